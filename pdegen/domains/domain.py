"""The interface of all domains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from pdegen.domains.grids import DomainError

NAMES = ("x", "y", "z")  # names of the coordinates of space


class Domain(ABC):
    """A set of points in space at which functions have values."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of arrays that store functions on this domain."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Number of points along each of the `axes`."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of space dimensions."""

    @property
    def moves(self) -> bool:
        """Whether the positions of the points differ from sample to sample."""
        return False

    @property
    @abstractmethod
    def points(self) -> Float[np.ndarray, "*shape dim"]:
        """Positions of the points.

        Raises DomainError if the positions differ from sample to sample. In this case `at`
        returns the domain of one sample.
        """

    def at(self, positions: Float[np.ndarray, "*shape dim"]) -> Domain:
        """The domain of a sample whose points have the given positions."""
        raise DomainError(f"the points of a {self.kind} domain are the same in all samples")

    @property
    @abstractmethod
    def weights(self) -> Float[np.ndarray, " *shape"]:
        """Quadrature weights of the points; their sum is the measure of the domain."""

    @property
    @abstractmethod
    def boundary(self) -> Bool[np.ndarray, " *shape"]:
        """Mask that is True at the points on the boundary."""

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """Spacing h along each axis of a box; None for other domains."""
        return None

    @property
    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """Kind of each axis: "periodic", "cell" or "nodal"; "cloud" for unordered points."""

    @abstractmethod
    def every(self, strides: tuple[int, ...]) -> Domain:
        """The domain of every r-th point along each axis; `strides` contains one r per axis."""

    @abstractmethod
    def attributes(self) -> dict[str, Any]:
        """Attributes that describe the domain in a store, without the coordinates."""
