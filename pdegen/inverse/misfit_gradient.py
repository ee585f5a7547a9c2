"""The adjoint gradient of a misfit, as a learned scheme takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from pdegen.inverse.phases import Field, Level

_FLOOR = 1e-3  # deviation of u where it hardly varies, at walls, of that elsewhere


@dataclass(frozen=True)
class MisfitGradient:
    """The gradient of ½ mean ((H u(p) - d)/s)² with respect to p: one solve and one adjoint solve.

    s is the deviation of u over samples, so that gradients have one scale for all noise levels.

    Args:
        level: u, H and the mean error of the model, on the cells where p is wanted.
        spread: s, up to a floor.
        phases: α < β, the coefficients of p = 0 and p = 1.
    """

    level: Level
    spread: Float[np.ndarray, " *data"]
    phases: tuple[float, float]
    solves: ClassVar[int] = 2

    def __call__(self, p: Field, d: Float[np.ndarray, " *data"]) -> Field:
        """The gradient at p, for the data d."""
        floor = _FLOOR * float(np.sqrt(np.mean(self.spread**2)))
        at, observation = self.level.forward.linearise(p), self.level.observation
        r: np.ndarray = observation(at.u) - (d - self.level.error.mean)
        return at.vjp(observation.transposed(r / (self.spread + floor) ** 2)) / r.size

    def fraction(self, a: np.ndarray) -> np.ndarray:
        """p of a coefficient a."""
        low, high = self.phases
        return (a - low) / (high - low)

    def coefficient(self, p: np.ndarray) -> np.ndarray:
        """a of a fraction p."""
        low, high = self.phases
        return low + (high - low) * p
