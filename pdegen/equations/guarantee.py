"""What an equation can prove of a prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np


class Guarantee(ABC):
    """Bounds of errors of predicted functions, whose values and inputs are on all points of the
    store, shape (batch, *grid)."""

    sentences: ClassVar[Mapping[str, str]]
    """What each bound is above, by its name."""

    headline: ClassVar[str]
    """The name of the bound that people are told."""

    @abstractmethod
    def bounds(self, inputs: Mapping[str, np.ndarray], p: np.ndarray) -> dict[str, np.ndarray]:
        """Bounds of the error of each prediction, shape (batch,), by the names of `sentences`.
        Raises SolveError if there is none for a sample, such as where a value is not finite."""
