"""Samples of a posterior with the prior N(0, I): Metropolis and Hastings, by one model or two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.sampling.gaussian import NormalStream

Coefficients = Float[np.ndarray, " *modes"]
Potential = Callable[[Coefficients], float]  # Φ: the posterior density is exp(-Φ) N(0, I)
Curvature = Callable[[Coefficients], Float[np.ndarray, "m m"]]

_BLOCK = 64  # steps whose random numbers are drawn at once
_STRIDE = 2**40  # numbers of the stream that a chain has for itself
_GAIN = 0.05  # of log β, in burn-in
_WARMEST = 0.01  # inverse temperature at the first step
_HESSIANS = 24  # in burn-in
_SEEN = 0.1  # eigenvalue of H below which data do not count against the prior


@dataclass(frozen=True)
class Proposal:
    """ξ' = (I - β² C)^½ ξ + β C^½ w,  C = (I + H)⁻¹,  w ~ N(0, I).

    It is reversible with respect to N(0, I), so a step is accepted by Φ alone. With H = 0 it is
    the preconditioned proposal of Crank and Nicolson; an H like the curvature of Φ makes steps
    short where data are strong, and leaves them long elsewhere.

    Args:
        directions: Orthonormal eigenvectors of H, rows; H is 0 across them.
        eigenvalues: Theirs, >= 0.

    References: S. Cotter, G. Roberts, A. Stuart and D. White, MCMC methods for functions, Statist.
    Sci. 28 (2013), section 4.2; D. Rudolf and B. Sprungk, On a generalization of the
    preconditioned Crank-Nicolson Metropolis algorithm, Found. Comput. Math. 18 (2018), section 3.1.
    """

    directions: Float[np.ndarray, "k modes"]
    eigenvalues: Float[np.ndarray, " k"]

    @classmethod
    def plain(cls, modes: int) -> Proposal:
        """H = 0."""
        return cls(np.empty((0, modes)), np.empty(0))

    @classmethod
    def of(cls, hessian: Float[np.ndarray, "modes modes"]) -> Proposal:
        """With this H, symmetric; what is below a tenth of the prior's curvature counts as 0."""
        eigenvalues, vectors = np.linalg.eigh(hessian)
        seen = eigenvalues > _SEEN
        return cls(np.ascontiguousarray(vectors[:, seen].T), eigenvalues[seen])

    def __call__(self, xi: Coefficients, w: Coefficients, beta: float) -> Coefficients:
        """ξ'."""
        kept = np.sqrt(1 - beta**2)
        variance = 1 / (1 + self.eigenvalues)
        along, noise = self.directions @ xi.ravel(), self.directions @ w.ravel()
        change = (np.sqrt(1 - beta**2 * variance) - kept) * along
        change += beta * (np.sqrt(variance) - 1) * noise
        return kept * xi + beta * w + (change @ self.directions).reshape(xi.shape)


@dataclass
class Evaluations:
    """What a chain took: values of Φ of the fine model and of the coarse one, and curvatures."""

    fine: int = 0
    coarse: int = 0
    curvatures: int = 0


@dataclass(frozen=True)
class Chain:
    """A chain after burn-in.

    Args:
        values: What was watched, every so many steps.
        potentials: Φ at these steps.
        last: ξ at the end.
        accepted: Share of the steps that were accepted, by both models if there are two.
        first_stage: Share of steps, or of inner ones, that the coarse model accepted; 1 without.
        beta: Step size.
        work: With burn-in.
    """

    values: Float[np.ndarray, " kept *watched"]
    potentials: Float[np.ndarray, " kept"]
    last: Coefficients
    accepted: float
    first_stage: float
    beta: float
    work: Evaluations


@dataclass(frozen=True)
class Metropolis:
    """Chains whose law tends to exp(-Φ(ξ)) N(0, I), up to a constant.

    With a coarse model Φ* acceptance is delayed: `inner` steps are accepted or not by Φ* alone,
    and where they lead to is accepted by the fine model with the probability

        min(1, exp(Φ(ξ) - Φ(ξ') - Φ*(ξ) + Φ*(ξ'))),

    so that Φ* changes the work, not the law. Nothing is asked of the fine model where ξ' = ξ.

    In burn-in alone β follows the acceptance, H is the mean of the curvatures at some states, and
    Φ is multiplied by a factor that grows from 0.01 to 1, so that chains find the states that
    matter from anywhere.

    Args:
        fine: Φ.
        coarse: Φ*, cheaper; by default none.
        curvature: An approximate second derivative of Φ, >= 0, over all coefficients raveled; by
            default 0, and the proposal is that of Crank and Nicolson.
        inner: Steps with Φ* for each with Φ.
        goal: Share of the steps that are accepted, by both models if there are two.
        beta: Step size to begin with.

    Raises:
        ValueError: On several inner steps without a coarse model.

    References: J. Christen and C. Fox, Markov chain Monte Carlo using an approximation, J. Comput.
    Graph. Statist. 14 (2005), equations 1 to 3; M. Lykkegaard et al., Multilevel delayed
    acceptance MCMC, SIAM/ASA J. Uncertain. Quantif. 11 (2023), for inner > 1; T. Cui, K. Law and
    Y. Marzouk, Dimension-independent likelihood-informed MCMC, J. Comput. Phys. 304 (2016), section
    3.2, for means of curvatures.

    >>> toy = Metropolis(lambda xi: 0.5 * float(xi @ xi))  # the posterior is N(0, I/2)
    >>> chain = toy.run(np.zeros(2), steps=4000, burn_in=500, seed=0)
    >>> round(float(chain.values.var()), 1)
    0.5
    """

    fine: Potential
    coarse: Potential | None = None
    curvature: Curvature | None = None
    inner: int = 1
    goal: float = 0.25
    beta: float = 0.1

    def __post_init__(self) -> None:
        if self.inner > 1 and self.coarse is None:
            raise ValueError(f"{self.inner} inner steps need a coarse model")

    def run(
        self,
        start: Coefficients,
        steps: int,
        burn_in: int,
        seed: int,
        chain: int = 0,
        watch: Callable[[Coefficients], np.ndarray] = np.copy,
        every: int = 1,
    ) -> Chain:
        """One chain.

        Args:
            start: ξ at the first step.
            steps: Steps of the fine model after burn-in.
            burn_in: Steps before them; what they found is left out.
            seed: Of the random numbers.
            chain: Its number: others have independent random numbers.
            watch: What to keep of ξ.
            every: Steps from one that is kept to the next.
        """
        walk = _Walk(self, start, _randoms(seed, chain, start.size, self.inner))
        for step in range(burn_in):
            walk.warmth = min(1.0, _WARMEST ** (1 - 2 * step / burn_in))
            if self.curvature and step % max(1, burn_in // _HESSIANS) == 0:
                walk.learn(self.curvature)
            walk.step(adapting=True)
        walk.warmth, walk.tried, walk.first, walk.second = 1.0, 0, 0, 0
        seen, values, potentials = watch(walk.xi), list[np.ndarray](), list[float]()
        for step in range(steps):
            if walk.step(adapting=False):
                seen = watch(walk.xi)
            if step % every == every - 1:
                values.append(seen)
                potentials.append(walk.fine)
        tried = max(1, walk.tried)
        accepted, first = walk.second / max(1, steps), walk.first / tried
        return Chain(
            np.array(values), np.array(potentials), walk.xi, accepted, first, walk.beta, walk.work
        )


@dataclass
class _Walk:
    """The state of a chain."""

    by: Metropolis
    xi: Coefficients
    randoms: Iterator[tuple[np.ndarray, np.ndarray]]
    warmth: float = 1.0
    tried: int = 0
    first: int = 0
    second: int = 0
    work: Evaluations = field(default_factory=Evaluations)

    def __post_init__(self) -> None:
        self.beta = self.by.beta
        self.proposal = Proposal.plain(self.xi.size)
        self.hessian = np.zeros((self.xi.size,) * 2 if self.by.curvature else 0)
        self.fine, self.coarse = self.of_fine(self.xi), self.of_coarse(self.xi)

    def of_fine(self, xi: Coefficients) -> float:
        self.work.fine += 1
        return self.by.fine(xi)

    def of_coarse(self, xi: Coefficients) -> float:
        if self.by.coarse is None:
            return 0.0
        self.work.coarse += 1
        return self.by.coarse(xi)

    def learn(self, curvature: Curvature) -> None:
        self.hessian += curvature(self.xi)
        self.work.curvatures += 1
        self.proposal = Proposal.of(self.hessian / self.work.curvatures)

    def step(self, adapting: bool) -> bool:
        """Whether ξ is another one."""
        w, log_uniform = next(self.randoms)
        there, coarse, moved, by_fine = self.xi, self.coarse, 0, self.by.coarse is None
        for k in range(self.by.inner):
            proposed = self.proposal(there, w[k].reshape(there.shape), self.beta)
            if by_fine:
                there, moved = proposed, 1
                break
            value = self.of_coarse(proposed)
            if log_uniform[k] < self.warmth * (coarse - value):
                there, coarse, moved = proposed, value, moved + 1
        accepted = False
        if moved:
            fine = self.of_fine(there)
            gain = self.fine - fine - (self.coarse - coarse)
            accepted = bool(log_uniform[-1] < self.warmth * gain)
            if accepted:
                self.xi, self.fine, self.coarse = there, fine, coarse
        self.tried += self.by.inner
        self.first += moved
        self.second += accepted
        if adapting:
            self.beta = float(min(1.0, self.beta * np.exp(_GAIN * (accepted - self.by.goal))))
        return accepted


def _randoms(
    seed: int, chain: int, modes: int, inner: int
) -> Iterator[tuple[Float[np.ndarray, "inner modes"], Float[np.ndarray, " inner+1"]]]:
    """Of each step: w ~ N(0, I) of the proposals, and log U of the acceptances."""
    stream, first = NormalStream(seed), (chain + 1) * _STRIDE
    while True:
        block = stream.normals_of(range(first, first + _BLOCK), inner * (modes + 1) + 1)
        for row in block:
            w = row[: inner * modes].reshape(inner, modes)
            yield w, scipy.special.log_ndtr(row[inner * modes :])
        first += _BLOCK
