"""What is proved of a predicted pressure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from pdegen.domains import CellGrid
from pdegen.equations.darcy.error_bound import ErrorBound
from pdegen.equations.guarantee import Guarantee


@dataclass(frozen=True)
class PressureGuarantee(Guarantee):
    """Of pressures u predicted from coefficients a."""

    sentences: ClassVar[Mapping[str, str]] = {
        "energy": "‖a^½ ∇(u - p_h)‖, p_h the biquadratic reconstruction of the values",
        "relative_energy": "‖a^½ ∇(u - p_h)‖ / ‖a^½ ∇u‖",
        "l2": "‖u - p_h‖",
        "relative_l2": "‖u - p_h‖ / ‖u‖",
    }
    headline: ClassVar[str] = "relative_energy"

    grid: CellGrid  # the cells of a and u
    source: float  # f

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
