"""What every domain says of its points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from pdegen.domains.grids import DomainError

NAMES = ("x", "y", "z")  # of the coordinates of space


class Domain(ABC):
    """A set of points in space that functions have values at."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def axes(self) -> tuple[str, ...]:
        """Names of the dimensions of a function's values in a store."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Points along each of `axes`."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Of space."""

    @property
    def moves(self) -> bool:
        """Whether the positions differ from sample to sample; then the domain holds none."""
        return False

    @property
    @abstractmethod
    def points(self) -> Float[np.ndarray, "*shape dim"]:
        """Positions of the points. Raises DomainError if they differ from sample to sample: `at`
        has a sample's."""

    def at(self, positions: Float[np.ndarray, "*shape dim"]) -> Domain:
        """The domain of one sample, whose points have these positions."""
        raise DomainError(f"the points of a {self.kind} domain are the same in all samples")

    @property
    @abstractmethod
    def weights(self) -> Float[np.ndarray, " *shape"]:
        """Quadrature weights of the points; their sum is the measure of the domain."""

    @property
    @abstractmethod
    def boundary(self) -> Bool[np.ndarray, " *shape"]:
        """Which points lie on the boundary."""

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """h along each axis of a box; None elsewhere."""
        return None

    @property
    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """What each axis is: "periodic", "cell" or "nodal"; "cloud" where points have no order."""

    @abstractmethod
    def every(self, strides: tuple[int, ...]) -> Domain:
        """The domain of every r-th point of each axis."""

    @abstractmethod
    def attributes(self) -> dict[str, Any]:
        """What a store says of it, beside its coordinates."""
