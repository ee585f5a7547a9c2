"""Guaranteed error bounds of predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np


class Guarantee(ABC):
    """Error bounds of predicted functions.

    Predictions and inputs are arrays of shape (batch, *grid), with values at all points of a store.
    """

    sentences: ClassVar[Mapping[str, str]]
    """The norm of the error that each bound is above, by the name of the bound."""

    headline: ClassVar[str]
    """The name of the bound that reports show first."""

    @abstractmethod
    def bounds(self, inputs: Mapping[str, np.ndarray], p: np.ndarray) -> dict[str, np.ndarray]:
        """A dictionary from the keys of `sentences` to error bounds, one for each prediction.

        Raises SolveError if a sample has no bound, for example if a value is not finite.
        """
