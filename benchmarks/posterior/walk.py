"""Metropolis-Hastings steps for two phases and their flow, compiled into one loop.

The flow is solved by an L D Lᵀ factorisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from benchmarks.posterior.cases import OfFractions, PhasePotential
from benchmarks.posterior.metropolis import Proposal, Randoms, State
from pdegen.equations.darcy.inversion import PhaseFlow
from pdegen.equations.darcy.kernels import stiffness_band
from pdegen.inverse.classical import Separable
from pdegen.inverse.phases import GridModel

# basis, deviations, means, the phases, f, X, Y, m
Model = tuple[
    np.ndarray, np.ndarray, np.ndarray, float, float, float, np.ndarray, np.ndarray, np.ndarray,
]  # fmt: skip

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})


@_jit
def flow(p: np.ndarray, low: float, high: float, source: float) -> np.ndarray:
    """u(p) on n x n cells."""
    n = len(p)
    a, u = stiffness_band(low + (high - low) * p), np.full(n * n, source / n**2)
    for k in range(n * n):  # column k of L D is a[k]
        scale = 1 / a[k, 0]
        for i in range(1, min(n, n * n - 1 - k) + 1):
            factor = a[k, i] * scale
            for j in range(i, n + 1):
                a[k + i, j - i] -= factor * a[k, j]
            u[k + i] -= factor * u[k]
    for k in range(n * n - 1, -1, -1):
        total = u[k]
        for i in range(1, min(n, n * n - 1 - k) + 1):
            total -= a[k, i] * u[k + i]
        u[k] = total / a[k, 0]
    return u.reshape(n, n)


@_jit
def predicted(xi: np.ndarray, model: Model) -> np.ndarray:
    """Data predicted by a model."""
    basis, stds, means, low, high, source, x, y, offset = model
    g = basis @ (stds * xi) @ np.ascontiguousarray(basis.T)
    upper = np.empty_like(g)
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            upper[i, j] = 1.0 if g[i, j] >= 0 else 0.0
    u = flow(means @ upper @ np.ascontiguousarray(means.T), low, high, source)
    return x @ u @ np.ascontiguousarray(y.T) + offset


@_jit
def misfit(prediction: np.ndarray, data: np.ndarray, precision: np.ndarray) -> float:
    """½ rᵀ R⁻¹ r."""
    r = (data - prediction).ravel()
    return 0.5 * float(r @ (precision @ r))


@_jit
def steps(
    state: State,
    warmth: float,
    beta: float,
    proposal: tuple[np.ndarray, np.ndarray, np.ndarray],
    randoms: tuple[np.ndarray, np.ndarray],
    of_data: tuple[np.ndarray, np.ndarray],
    model: Model,
    coarse_model: Model,
    delayed: bool,
) -> tuple[State, int, int]:
    """Steps of `Metropolis`.

    The proposal holds directions and, along each of them, the factors of ξ and of w. Across the
    directions these factors are (1 - β²)^½ and β.
    """
    xi, fine, coarse, phi = state
    (directions, shrink, taken), (w, log_uniform), (data, precision) = proposal, randoms, of_data
    first, second, across = 0, 0, np.sqrt(1 - beta**2)
    for k in range(len(w)):
        change = (shrink - across) * (directions @ xi.ravel())
        change += (taken - beta) * (directions @ w[k].ravel())
        proposed = across * xi + beta * w[k] + (change @ directions).reshape(xi.shape)
        coarse_proposed, onward, back = coarse, 0.0, 0.0  # logarithms of g
        if delayed:
            coarse_proposed = predicted(proposed, coarse_model)
            guess = misfit(fine + coarse_proposed - coarse, data, precision)
            onward = min(0.0, warmth * (phi - guess))
            if log_uniform[k, 0] >= onward:
                continue
        first += 1
        fine_proposed = predicted(proposed, model)
        phi_proposed = misfit(fine_proposed, data, precision)
        if delayed:
            guess = misfit(fine_proposed + coarse - coarse_proposed, data, precision)
            back = min(0.0, warmth * (phi_proposed - guess))
        if log_uniform[k, 1] < warmth * (phi - phi_proposed) + back - onward:
            xi, fine, coarse, phi = proposed, fine_proposed, coarse_proposed, phi_proposed
            second += 1
    return (xi, fine, coarse, phi), first, second


@dataclass(frozen=True)
class PhaseWalk:
    """`Metropolis.compiled` for the potentials of two phases: the same steps, in less time.

    The models are `PhaseFlow`s of `OfFractions`, observed by a `Separable`.

    Args:
        fine: The potential Φ.
        coarse: Potential of the coarse model, whose prediction is F*; None for no such model.

    Raises:
        TypeError: If a model has another type.
    """

    fine: PhasePotential
    coarse: PhasePotential | None = None

    def __post_init__(self) -> None:
        _ = self._models

    def __call__(
        self, state: State, warmth: float, beta: float, proposal: Proposal, randoms: Randoms
    ) -> tuple[State, int, int]:
        """The state after steps with these random numbers, and the number accepted by stage."""
        variance = 1 / (1 + proposal.eigenvalues)
        shrink, taken = np.sqrt(1 - beta**2 * variance), beta * np.sqrt(variance)
        fine, coarse = self._models
        return steps(
            state, warmth, beta, (proposal.directions, shrink, taken), randoms, self._data,
            fine, coarse, self.coarse is not None,
        )  # fmt: skip

    @cached_property
    def _models(self) -> tuple[Model, Model]:
        fine = _model(self.fine.level)
        return fine, _model(self.coarse.level) if self.coarse else fine

    @cached_property
    def _data(self) -> tuple[np.ndarray, np.ndarray]:
        """Data d and R⁻¹."""
        data, covariance = self.fine.data, self.fine.covariance
        units = np.eye(data.size).reshape(-1, *data.shape)
        return data, np.stack([covariance.inverse(unit).ravel() for unit in units])


def _model(level: GridModel) -> Model:
    """Arrays of a model that the kernels take."""
    forward, observation, prior = level.forward, level.observation, level.prior
    if not isinstance(forward, OfFractions) or not isinstance(forward.flow, PhaseFlow):
        raise TypeError(
            f"compiled steps need OfFractions of a PhaseFlow, got {type(forward).__name__}"
        )
    if not isinstance(observation, Separable):
        raise TypeError(
            f"compiled steps need a Separable observation, got {type(observation).__name__}"
        )
    flow, means = forward.flow, np.ascontiguousarray(forward.means)
    return (
        prior.basis, np.ascontiguousarray(prior.stds), means, *flow.phases,
        flow.source, observation.x, observation.y, level.error.mean,
    )  # fmt: skip
