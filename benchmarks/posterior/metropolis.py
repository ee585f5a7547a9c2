"""Posterior samples under the prior N(0, I): Metropolis-Hastings with one model or two."""

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
_STRIDE = 2**40  # random numbers of the stream reserved for a chain
_GAIN = 0.05  # gain of log β in burn-in
_STEADY = 10  # steps of burn-in with the same β
_WARMEST = 0.01  # inverse temperature at the first step
HESSIANS = 24  # number of curvatures computed in burn-in
_SEEN = 0.1  # eigenvalues of H below this are ignored against the prior


# ξ, F(ξ), F*(ξ) and Φ(ξ); without a coarse model F*(ξ) is F(ξ)
State = tuple[Coefficients, Data, Data, float]
# random numbers of steps: w ~ N(0, I), (steps, *modes); log U of both acceptances, (steps, 2)
Randoms = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Proposal:
    """ξ' = (I - β² C)^½ ξ + β C^½ w,  C = (I + H)⁻¹,  w ~ N(0, I).

    It is reversible with respect to N(0, I), so a step is accepted by Φ alone. With H = 0 it is
    the preconditioned proposal of Crank and Nicolson; an H like the curvature of Φ makes steps
    short in directions that the data determine, and leaves them long in others.

    Args:
        directions: Orthonormal eigenvectors of H, as rows; H is 0 across them.
        eigenvalues: Eigenvalues of these directions, >= 0.

    References: S. Cotter, G. Roberts, A. Stuart and D. White, MCMC methods for functions, Statist.
    Sci. 28 (2013), section 4.2; D. Rudolf and B. Sprungk, On a generalization of the
    preconditioned Crank-Nicolson Metropolis algorithm, Found. Comput. Math. 18 (2018), section 3.1.
    """

    directions: Float[np.ndarray, "k modes"]
    eigenvalues: Float[np.ndarray, " k"]

    @classmethod
    def plain(cls, modes: int) -> Proposal:
        """The proposal with H = 0."""
        return cls(np.empty((0, modes)), np.empty(0))

    @classmethod
    def of(cls, hessian: Float[np.ndarray, "modes modes"]) -> Proposal:
        """The proposal with this symmetric H; eigenvalues below 0.1 count as 0."""
        nonzero = np.flatnonzero(hessian.any(axis=0))
        eigenvalues, vectors = np.linalg.eigh(hessian[np.ix_(nonzero, nonzero)])
        informed = eigenvalues > _SEEN
        directions = np.zeros((int(informed.sum()), len(hessian)))
        directions[:, nonzero] = vectors[:, informed].T
        return cls(directions, eigenvalues[informed])

    def __call__(self, xi: Coefficients, w: Coefficients, beta: float) -> Coefficients:
        """The proposed ξ'."""
        shrink = np.sqrt(1 - beta**2)
        variance = 1 / (1 + self.eigenvalues)
        along, noise = self.directions @ xi.ravel(), self.directions @ w.ravel()
        change = (np.sqrt(1 - beta**2 * variance) - shrink) * along
        change += beta * (np.sqrt(variance) - 1) * noise
        return shrink * xi + beta * w + (change @ self.directions).reshape(xi.shape)


@dataclass(frozen=True)
class Potential:
    """Φ(ξ) = misfit(predicted(ξ)): the posterior density is exp(-Φ) N(0, I).

    Args:
        predicted: Map from ξ to the predicted data F(ξ).
        misfit: Map from predicted data to Φ.
    """

    predicted: Prediction
    misfit: Callable[[Data], float]

    def __call__(self, xi: Coefficients) -> float:
        """Φ(ξ)."""
        return self.misfit(self.predicted(xi))


class Compiled(Protocol):
    """Several steps of `Metropolis` at once, with one proposal and one β."""

    def __call__(
        self, state: State, warmth: float, beta: float, proposal: Proposal, randoms: Randoms, /
    ) -> tuple[State, int, int]:
        """The state after the steps, and the number accepted by each stage."""
        ...


@dataclass
class Evaluations:
    """Work of a chain: predictions of the fine and of the coarse model, and curvatures."""

    fine: int = 0
    coarse: int = 0
    curvatures: int = 0


@dataclass(frozen=True)
class Chain:
    """A chain after burn-in.

    Args:
        values: Watched values at the stored steps.
        potentials: Φ at the stored steps.
        last: ξ at the end.
        accepted: Share of accepted steps, by both models if there are two.
        first_stage: Share of steps that the coarse model accepted; 1 without a coarse model.
        beta: Step size β.
        work: Work of the chain, including burn-in.
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
    the law, and only its differences between near states need to be accurate.

    In burn-in β is adapted to the acceptance, and H is the mean of curvatures at some states. Φ is
    multiplied by a factor that grows from 0.01 to 1, so that chains from any start reach the likely
    states. Afterwards β is its geometric mean over the last quarter of burn-in: β falls fast while
    a chain is stuck, so its last value would depend on the last state.

    Args:
        fine: Φ.
        coarse: F*, cheaper; by default none.
        curvature: An approximate second derivative of Φ, >= 0, over all coefficients raveled; by
            default 0, and the proposal is that of Crank and Nicolson.
        goal: Target share of accepted steps, by both models if there are two.
        beta: Initial step size.
        compiled: Faster implementation of the steps for these models; by default `step`.

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

    def step(
        self, state: State, warmth: float, beta: float, proposal: Proposal, randoms: Randoms
    ) -> tuple[State, int, int]:
        """The state after steps with these random numbers, and the number accepted by each stage.

        Args:
            state: State before the steps.
            warmth: Factor of Φ.
            beta: Step size β.
            proposal: Proposal of the steps.
            randoms: w and log U of each step.
        """
        xi, fine, coarse, phi = state
        misfit, first, second = self.fine.misfit, 0, 0
        for w, (log_first, log_second) in zip(*randoms, strict=True):
            proposed, onward, back = proposal(xi, w, beta), 0.0, 0.0  # logarithms of g
            coarse_proposed = coarse
            if self.coarse:
                coarse_proposed = self.coarse(proposed)
                onward = min(0.0, warmth * (phi - misfit(fine + coarse_proposed - coarse)))
                if log_first >= onward:
                    continue
            first += 1
            fine_proposed = self.fine.predicted(proposed)
            phi_proposed = misfit(fine_proposed)
            if self.coarse:
                back = min(
                    0.0, warmth * (phi_proposed - misfit(fine_proposed + coarse - coarse_proposed))
                )
            if log_second < warmth * (phi - phi_proposed) + back - onward:
                xi, fine, coarse, phi = proposed, fine_proposed, coarse_proposed, phi_proposed
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
            burn_in: Number of burn-in steps, which are not stored.
            seed: Seed of the random numbers.
            chain: Number of the chain; chains have independent random numbers.
            watch: Map from ξ to the values that are stored.
            every: Number of steps between stored values.
        """
        walk, sizes = _Walk(self, start, seed, chain), list[float]()
        learned = max(1, burn_in // HESSIANS)
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
        values, potentials, watched = list[np.ndarray](), list[float](), watch(walk.xi)
        while tried < steps:
            walk.go(min(every, steps - tried))
            tried, first, second = tried + walk.tried, first + walk.first, second + walk.second
            if walk.second:
                watched = watch(walk.xi)
            if walk.tried == every:
                values.append(watched)
                potentials.append(walk.phi)
        return Chain(
            np.array(values), np.array(potentials), walk.xi,
            second / max(1, tried), first / max(1, tried), walk.beta, walk.work,
        )  # fmt: skip


class _Walk:
    """The state of a chain with its proposal, step size and counts."""

    def __init__(self, by: Metropolis, start: Coefficients, seed: int, chain: int) -> None:
        self.by, self.beta, self.warmth, self.work = by, by.beta, 1.0, Evaluations(1)
        fine = by.fine.predicted(start)
        self.state: State = start, fine, fine, by.fine.misfit(fine)
        if by.coarse:
            self.state = start, fine, by.coarse(start), by.fine.misfit(fine)
            self.work.coarse = 1
        self.proposal = Proposal.plain(start.size)
        self.hessian = np.zeros((start.size,) * 2 if by.curvature else 0)
        self.randoms = randoms(seed, chain, start.shape)
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
        take = self.by.compiled or self.by.step
        self.state, self.first, self.second = take(
            self.state, self.warmth, self.beta, self.proposal, randoms
        )
        self.tried = steps
        self.work.fine += self.first
        self.work.coarse += steps if self.by.coarse else 0


def randoms(
    seed: int, chain: int, shape: tuple[int, ...]
) -> Iterator[tuple[Coefficients, Float[np.ndarray, "2"]]]:
    """Random numbers of the steps: w ~ N(0, I) of the proposal, log U of both acceptances."""
    stream, first = NormalStream(seed), (chain + 1) * _STRIDE
    size = int(np.prod(shape))
    while True:
        for row in stream.normals_of(range(first, first + _BLOCK), size + 2):
            yield row[:size].reshape(shape), scipy.special.log_ndtr(row[size:])
        first += _BLOCK
