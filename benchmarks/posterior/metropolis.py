"""Samples of a posterior with the prior N(0, I): Metropolis and Hastings, by one model or two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.sampling.gaussian import NormalStream

Coefficients = Float[np.ndarray, " *modes"]
Data = Float[np.ndarray, " *data"]
Prediction = Callable[[Coefficients], Data]
Curvature = Callable[[Coefficients], Float[np.ndarray, "m m"]]

_BLOCK = 64  # steps whose random numbers are drawn at once
_STRIDE = 2**40  # numbers of the stream that a chain has for itself
_GAIN = 0.05  # of log β, in burn-in
_STEADY = 10  # steps of burn-in with one β
_WARMEST = 0.01  # inverse temperature at the first step
_HESSIANS = 24  # in burn-in
_SEEN = 0.1  # eigenvalue of H below which data do not count against the prior


# ξ, F(ξ), F*(ξ) and Φ(ξ); without a coarse model F(ξ) stands in the place of F*(ξ)
State = tuple[Coefficients, Data, Data, float]
# of each step: w ~ N(0, I), (steps, *modes), and log U of both acceptances, (steps, 2)
Randoms = tuple[np.ndarray, np.ndarray]


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
        some = np.flatnonzero(hessian.any(axis=0))
        eigenvalues, vectors = np.linalg.eigh(hessian[np.ix_(some, some)])
        seen = eigenvalues > _SEEN
        directions = np.zeros((int(seen.sum()), len(hessian)))
        directions[:, some] = vectors[:, seen].T
        return cls(directions, eigenvalues[seen])

    def __call__(self, xi: Coefficients, w: Coefficients, beta: float) -> Coefficients:
        """ξ'."""
        kept = np.sqrt(1 - beta**2)
        variance = 1 / (1 + self.eigenvalues)
        along, noise = self.directions @ xi.ravel(), self.directions @ w.ravel()
        change = (np.sqrt(1 - beta**2 * variance) - kept) * along
        change += beta * (np.sqrt(variance) - 1) * noise
        return kept * xi + beta * w + (change @ self.directions).reshape(xi.shape)


@dataclass(frozen=True)
class Potential:
    """Φ(ξ) = misfit(predicted(ξ)): the posterior density is exp(-Φ) N(0, I).

    Args:
        predicted: The data that a model says, F(ξ).
        misfit: From data to Φ.
    """

    predicted: Prediction
    misfit: Callable[[Data], float]

    def __call__(self, xi: Coefficients) -> float:
        """Φ."""
        return self.misfit(self.predicted(xi))


class Compiled(Protocol):
    """Several steps at once, as `Metropolis` takes them, with one proposal and one β."""

    def __call__(
        self, state: State, warmth: float, beta: float, proposal: Proposal, randoms: Randoms, /
    ) -> tuple[State, int, int]:
        """The state after them, and how many each stage accepted."""
        ...


@dataclass
class Evaluations:
    """What a chain took: predictions of the fine model and of the coarse one, and curvatures."""

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
        first_stage: Share of the steps that the coarse model accepted; 1 without.
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

    With a coarse model F* acceptance is delayed. A step from ξ to ξ' is proposed to the fine model
    F with the probability g(ξ, ξ'), by the coarse model corrected by the difference at ξ:

        g(ξ, ξ') = min(1, exp(Φ(ξ) - φ(F*(ξ') + F(ξ) - F*(ξ)))),   Φ = φ ∘ F,

    and then accepted with min(1, exp(Φ(ξ) - Φ(ξ')) g(ξ', ξ)/g(ξ, ξ')). So F* changes the work, not
    the law, and it has to be right in differences of near states alone.

    In burn-in alone β follows the acceptance, H is the mean of the curvatures at some states, and
    Φ is multiplied by a factor that grows from 0.01 to 1, so that chains find the states that
    matter from anywhere. Then β is its geometric mean over the last quarter of burn-in: where a
    chain stays for long β falls fast, and its last value would depend on the last state.

    Args:
        fine: Φ.
        coarse: F*, cheaper; by default none.
        curvature: An approximate second derivative of Φ, >= 0, over all coefficients raveled; by
            default 0, and the proposal is that of Crank and Nicolson.
        goal: Share of the steps that are accepted, by both models if there are two.
        beta: Step size to begin with.
        compiled: The same steps for the same models in less time; by default they are taken here.

    References: J. Christen and C. Fox, Markov chain Monte Carlo using an approximation, J. Comput.
    Graph. Statist. 14 (2005), section 2; T. Cui, C. Fox and M. O'Sullivan, Bayesian calibration of
    a large-scale geothermal reservoir model by a new adaptive delayed acceptance Metropolis
    Hastings algorithm, Water Resour. Res. 47 (2011), for the correction at ξ; T. Cui, K. Law and
    Y. Marzouk, Dimension-independent likelihood-informed MCMC, J. Comput. Phys. 304 (2016), section
    3.2, for means of curvatures.

    >>> toy = Potential(lambda xi: xi, lambda y: 0.5 * float(y @ y))  # the posterior is N(0, I/2)
    >>> chain = Metropolis(toy).run(np.zeros(2), steps=4000, burn_in=500, seed=0)
    >>> round(float(chain.values.var()), 1)
    0.5
    """

    fine: Potential
    coarse: Prediction | None = None
    curvature: Curvature | None = None
    goal: float = 0.25
    beta: float = 0.1
    compiled: Compiled | None = None

    def taken(
        self, state: State, warmth: float, beta: float, proposal: Proposal, randoms: Randoms
    ) -> tuple[State, int, int]:
        """The state after steps with these random numbers, and how many each stage accepted.

        Args:
            state: Before them.
            warmth: Factor of Φ.
            beta: β.
            proposal: Of the steps.
            randoms: w and log U.
        """
        xi, fine, coarse, phi = state
        misfit, first, second = self.fine.misfit, 0, 0
        for w, (log_first, log_second) in zip(*randoms, strict=True):
            proposed, onward, back = proposal(xi, w, beta), 0.0, 0.0  # logarithms of g
            coarse_there = coarse
            if self.coarse:
                coarse_there = self.coarse(proposed)
                onward = min(0.0, warmth * (phi - misfit(fine + coarse_there - coarse)))
                if log_first >= onward:
                    continue
            first += 1
            fine_there = self.fine.predicted(proposed)
            there = misfit(fine_there)
            if self.coarse:
                back = min(0.0, warmth * (there - misfit(fine_there + coarse - coarse_there)))
            if log_second < warmth * (phi - there) + back - onward:
                xi, fine, coarse, phi = proposed, fine_there, coarse_there, there
                second += 1
        return (xi, fine, coarse, phi), first, second

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
        walk, sizes = _Walk(self, start, seed, chain), list[float]()
        learned = max(1, burn_in // _HESSIANS)
        for step in range(0, burn_in, _STEADY):
            walk.warmth = min(1.0, _WARMEST ** (1 - 2 * step / burn_in))
            if self.curvature and step // learned >= walk.work.curvatures:
                walk.learn(self.curvature)
            walk.go(min(_STEADY, burn_in - step))
            walk.adapt()
            sizes.append(walk.beta)
        if sizes:
            walk.beta = float(np.exp(np.mean(np.log(sizes[3 * len(sizes) // 4 :]))))
        walk.warmth, tried, first, second = 1.0, 0, 0, 0
        values, potentials, seen = list[np.ndarray](), list[float](), watch(walk.xi)
        while tried < steps:
            walk.go(min(every, steps - tried))
            tried, first, second = tried + walk.tried, first + walk.first, second + walk.second
            if walk.second:
                seen = watch(walk.xi)
            if walk.tried == every:
                values.append(seen)
                potentials.append(walk.phi)
        return Chain(
            np.array(values), np.array(potentials), walk.xi,
            second / max(1, tried), first / max(1, tried), walk.beta, walk.work,
        )  # fmt: skip


class _Walk:
    """The state of a chain, and what the last steps did."""

    def __init__(self, by: Metropolis, start: Coefficients, seed: int, chain: int) -> None:
        self.by, self.beta, self.warmth, self.work = by, by.beta, 1.0, Evaluations(1)
        fine = by.fine.predicted(start)
        self.state: State = start, fine, fine, by.fine.misfit(fine)
        if by.coarse:
            self.state = start, fine, by.coarse(start), by.fine.misfit(fine)
            self.work.coarse = 1
        self.proposal = Proposal.plain(start.size)
        self.hessian = np.zeros((start.size,) * 2 if by.curvature else 0)
        self.randoms = _randoms(seed, chain, start.shape)
        self.tried = self.first = self.second = 0

    @property
    def xi(self) -> Coefficients:
        return self.state[0]

    @property
    def phi(self) -> float:
        return self.state[-1]

    def learn(self, curvature: Curvature) -> None:
        self.hessian += curvature(self.xi)
        self.work.curvatures += 1
        self.proposal = Proposal.of(self.hessian / self.work.curvatures)

    def adapt(self) -> None:
        surplus = self.second - self.by.goal * self.tried
        self.beta = float(min(1.0, self.beta * np.exp(_GAIN * surplus)))

    def go(self, steps: int) -> None:
        w, log_uniform = zip(*islice(self.randoms, steps), strict=True)
        randoms = np.stack(w), np.stack(log_uniform)
        take = self.by.compiled or self.by.taken
        self.state, self.first, self.second = take(
            self.state, self.warmth, self.beta, self.proposal, randoms
        )
        self.tried = steps
        self.work.fine += self.first
        self.work.coarse += steps if self.by.coarse else 0


def _randoms(
    seed: int, chain: int, shape: tuple[int, ...]
) -> Iterator[tuple[Coefficients, Float[np.ndarray, "2"]]]:
    """Of each step: w ~ N(0, I) of the proposal, and log U of both acceptances."""
    stream, first = NormalStream(seed), (chain + 1) * _STRIDE
    size = int(np.prod(shape))
    while True:
        for row in stream.normals_of(range(first, first + _BLOCK), size + 2):
            yield row[:size].reshape(shape), scipy.special.log_ndtr(row[size:])
        first += _BLOCK
