"""Metropolis-Hastings steps for two phases and their flow, compiled into one loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.posterior.kernels import Model, steps
from benchmarks.posterior.metropolis import Proposal, Randoms, State
from benchmarks.posterior.potential import OfFractions, PhasePotential
from pdegen.equations.darcy.inversion import PhaseFlow
from pdegen.inverse.classical import Separable
from pdegen.inverse.phases import GridModel


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
