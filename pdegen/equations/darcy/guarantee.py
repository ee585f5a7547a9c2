"""What is proved of a predicted pressure, and the solver that goes on from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from pdegen.domains import CellGrid
from pdegen.equations.darcy.error_bound import ErrorBound
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.reconstruction import Biquadratic
from pdegen.equations.guarantee import Guarantee, Polished
from pdegen.numerics.device import constant, empty, to_numpy


@dataclass(frozen=True)
class PressureGuarantee(Guarantee):
    """Of pressures u predicted from coefficients a.

    Args:
        grid: The cells of a and u.
        source: f.
        solver: Of the labels, on cells finer by an odd factor.
    """

    sentences: ClassVar[Mapping[str, str]] = {
        "energy": "‖a^½ ∇(u - p_h)‖, p_h the biquadratic reconstruction of the values",
        "relative_energy": "‖a^½ ∇(u - p_h)‖ / ‖a^½ ∇u‖",
        "l2": "‖u - p_h‖",
        "relative_l2": "‖u - p_h‖ / ‖u‖",
    }
    headline: ClassVar[str] = "relative_energy"

    grid: CellGrid
    source: float
    solver: FiniteVolume

    @cached_property
    def _bound(self) -> ErrorBound:
        return ErrorBound(self.grid)

    def bounds(self, inputs: Mapping[str, np.ndarray], p: np.ndarray) -> dict[str, np.ndarray]:
        found = self._bound(inputs["a"], p, self.source)
        return {
            "energy": found.energy,
            "relative_energy": found.relative,
            "l2": found.l2,
            "relative_l2": found.relative_l2,
        }

    def polished(
        self, inputs: Mapping[str, np.ndarray], p: np.ndarray, rtol: float, device: str | None
    ) -> Polished:
        """The start on finer cells has the values of p_h there."""
        factor = self.solver.grid.n // self.grid.n
        a, p = inputs["a"].astype(np.float64), p.astype(np.float64)
        start = Biquadratic.of(a, p).on_finer(factor).centres
        a = np.repeat(np.repeat(a, factor, axis=1), factor, axis=2)
        if device is not None:
            like = empty((), np.float64, device)
            a, start = constant(a, like), constant(start, like)
        solution = replace(self.solver, rtol=rtol).solve(a, self.source, start=start)
        centres = slice(factor // 2, None, factor)
        u, residual, iterations = map(to_numpy, solution)
        return Polished(u[:, centres, centres], residual, iterations)
