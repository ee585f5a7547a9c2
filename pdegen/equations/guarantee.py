"""What an equation can prove of a prediction, and how it takes one to the solution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np


class Polished(NamedTuple):
    """Solutions reached from predictions: values of the predicted function, float64, and of each
    sample the relative residual of the discrete equations and the iterations."""

    values: np.ndarray
    residual: np.ndarray
    iterations: np.ndarray


class Guarantee(ABC):
    """Bounds of errors of predicted functions, and their polishing by the solver.

    Inputs and predictions are values on all points of the store, shape (batch, *grid).
    """

    sentences: ClassVar[Mapping[str, str]]
    """What each bound is above, by its name."""

    headline: ClassVar[str]
    """The name of the bound that people are told."""

    @abstractmethod
    def bounds(self, inputs: Mapping[str, np.ndarray], p: np.ndarray) -> dict[str, np.ndarray]:
        """Bounds of the error of each prediction, shape (batch,), by the names of `sentences`.

        Raises:
            SolveError: If there is none for a sample, such as where a value is not finite.
        """

    @abstractmethod
    def polished(
        self, inputs: Mapping[str, np.ndarray], p: np.ndarray, rtol: float, device: str | None
    ) -> Polished:
        """The solutions of the store's solver, from predictions, to another tolerance.

        Args:
            inputs, p: As above.
            rtol: Largest relative residual.
            device: A device of PyTorch to solve on, such as "cuda"; None is NumPy.

        Raises:
            SolveError: If a sample does not reach the tolerance.
        """
