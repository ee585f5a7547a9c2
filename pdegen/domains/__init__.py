"""Domains of functions: their points, quadrature weights, boundary, spacing and cells.

A box is a product of one-dimensional grids. A curvilinear mesh has nodes at positions x[i, j]. A
cloud is an unordered set of points. The positions of a mesh or cloud may differ from sample to
sample. In this case the domain has no positions, and a store has them in variables with the role
`geometry`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

# Grids of equally spaced points on an interval: periodic, cell-centred or nodal.


class DomainError(ValueError):
    """Raised if attributes or positions do not describe a domain. The message is a single line."""


@dataclass(frozen=True)
class Grid:
    """Equally spaced points of an interval.

    Raises ValueError if the grid has too few points, or its length is not positive and finite.
    """

    n: int  # number of points
    length: float = 1.0  # length L of the interval
    start: float = 0.0  # lower end of the interval

    kind: ClassVar[str]
    minimum: ClassVar[int] = 1  # smallest number of points
    too_few: ClassVar[str] = "a grid has at least one point"  # error message
    offset: ClassVar[float] = 0  # distance, in spacings h, from the lower end to the first point
    extra_points: ClassVar[int] = 0  # number of points minus number of spacings h in the length

    def __post_init__(self) -> None:
        if self.n < self.minimum:
            raise ValueError(f"{self.too_few}, got {self.n}")
        if not (0 < self.length < math.inf and math.isfinite(self.start)):
            raise ValueError(
                f"an interval has a positive, finite length, got {self.length} from {self.start}"
            )

    def check_unit(self) -> None:
        """Raise ValueError if the interval is not (0, 1)."""
        if (self.start, self.length) != (0, 1):
            raise ValueError(
                f"expected a grid on (0, 1), got ({self.start:g}, {self.start + self.length:g})"
            )

    @property
    def intervals(self) -> int:
        """Length of the interval divided by the spacing h."""
        return self.n - self.extra_points

    @cached_property
    def x(self) -> Float[np.ndarray, " n"]:
        """Coordinates of the points."""
        unit = (np.arange(self.n) + self.offset) / self.intervals
        return unit if (self.start, self.length) == (0, 1) else self.start + self.length * unit

    @property
    def spacing(self) -> float:
        """Spacing h, which is also the quadrature weight of an inner point."""
        return self.length / self.intervals

    @cached_property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Quadrature weights; their sum is the length."""
        return np.full(self.n, self.spacing)

    @cached_property
    def boundary(self) -> Bool[np.ndarray, " n"]:
        """Mask that is True at points on the ends of the interval."""
        return np.zeros(self.n, bool)

    def every(self, stride: int) -> Grid:
        """The grid of every `stride`-th point.

        >>> CellGrid(5).every(2).x
        array([0.1, 0.5, 0.9])
        """
        if stride == 1:
            return self
        n, h = -(-self.n // stride), stride * self.spacing
        coarse = replace(self, n=n)
        start = self.start + self.offset * self.spacing - self.offset * h
        return replace(coarse, start=start, length=coarse.intervals * h)

    @classmethod
    def through(cls, x: Float[np.ndarray, " n"]) -> Grid:
        """The grid whose points are x.

        Raises DomainError if they are not equally spaced within the rounding to float32.
        """
        n = len(x)
        probe = cls(n)
        if n == 1:
            return cls(1, start=float(x[0]) - probe.offset)
        h = float(x[-1] - x[0]) / (n - 1)
        rounding = 4 * np.finfo(np.float32).eps * float(np.abs(x).max())
        if not (0 < h < math.inf) or np.abs(np.diff(x) - h).max() > 1e-6 * h + rounding:
            raise DomainError(f"the points of a {cls.kind} grid must increase by equal steps")
        start = float(x[0]) - probe.offset * h
        length = probe.intervals * h
        near = [abs(start) <= 1e-9 * length, abs(length - 1) <= 1e-9]
        return cls(n, 1.0 if near[1] else length, 0.0 if near[0] else start)


@dataclass(frozen=True)
class PeriodicGrid(Grid):
    """Points x_j = jL/n, j = 0 ... n-1, on a circle of length L. The end point is not repeated.

    >>> PeriodicGrid(64).x[-1] == 63 / 64
    np.True_
    """

    kind = "periodic"

    def stride_to(self, coarse: PeriodicGrid) -> int:
        """The stride s with coarse.x = x[::s].

        Raises ValueError if some points of the coarse grid are not points of this grid.
        """
        if self.n % coarse.n:
            raise ValueError(f"a grid of {coarse.n} points is not part of a grid of {self.n}")
        return self.n // coarse.n


@dataclass(frozen=True)
class CellGrid(Grid):
    """Centres x_i = (i + 1/2)L/n, i = 0 ... n-1, of n equal cells of (0, L).

    >>> CellGrid(64).x[0] == 1 / 128
    np.True_
    """

    kind = "cell"
    too_few = "a cell grid has at least one cell"
    offset = 0.5


@dataclass(frozen=True)
class NodalGrid(Grid):
    """Points x_i = iL/(n-1), i = 0 ... n-1, of [0, L], both ends included.

    >>> NodalGrid(65).x[-1]
    np.float64(1.0)
    """

    kind = "nodal"
    minimum = 2
    too_few = "a nodal grid has at least its two ends"
    extra_points = 1

    @cached_property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Weights of the trapezoidal rule: h inside, h/2 at the ends."""
        weights = np.full(self.n, self.spacing)
        weights[[0, -1]] /= 2
        return weights

    @cached_property
    def boundary(self) -> Bool[np.ndarray, " n"]:
        ends = np.zeros(self.n, bool)
        ends[[0, -1]] = True
        return ends


GRIDS: dict[str, type[Grid]] = {g.kind: g for g in (PeriodicGrid, CellGrid, NodalGrid)}


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
        """Positions of the points."""

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


@dataclass(frozen=True)
class Box(Domain):
    """A product of one to three one-dimensional grids, which may differ in kind and length.

    Raises:
        ValueError: If the number of grids is not 1, 2 or 3.

    >>> Box.cell(32, 16).points.shape
    (32, 16, 2)
    """

    grids: tuple[Grid, ...]  # along each axis

    kind = "box"

    def __post_init__(self) -> None:
        if not 1 <= len(self.grids) <= len(NAMES):
            raise ValueError(f"a box has one to three axes, got {len(self.grids)}")

    @classmethod
    def periodic(cls, *n: int) -> Box:
        """The torus with length 1 and n points along each axis."""
        return cls(tuple(map(PeriodicGrid, n)))

    @classmethod
    def cell(cls, *n: int) -> Box:
        """The unit box with n cells along each axis."""
        return cls(tuple(map(CellGrid, n)))

    @classmethod
    def nodal(cls, *n: int) -> Box:
        """The unit box with n nodes along each axis, including those on the boundary."""
        return cls(tuple(map(NodalGrid, n)))

    @property
    def axes(self) -> tuple[str, ...]:
        return NAMES[: len(self.grids)]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(grid.n for grid in self.grids)

    @property
    def dim(self) -> int:
        return len(self.grids)

    @property
    def grid(self) -> str:
        """The kind of the grids: "periodic", "cell", "nodal", or "mixed" if they differ."""
        kinds = {grid.kind for grid in self.grids}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(grid.kind for grid in self.grids)

    def every(self, strides: tuple[int, ...]) -> Box:
        return Box(tuple(g.every(r) for g, r in zip(self.grids, strides, strict=True)))

    @cached_property
    def points(self) -> Float[np.ndarray, "*shape dim"]:
        return np.stack(np.meshgrid(*[grid.x for grid in self.grids], indexing="ij"), axis=-1)

    @cached_property
    def weights(self) -> Float[np.ndarray, " *shape"]:
        return reduce(np.multiply.outer, [grid.weights for grid in self.grids])

    @cached_property
    def boundary(self) -> Bool[np.ndarray, " *shape"]:
        return reduce(np.logical_or.outer, [grid.boundary for grid in self.grids])

    @property
    def spacing(self) -> tuple[float, ...]:
        return tuple(grid.spacing for grid in self.grids)

    def attributes(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "axes": [
                {"name": name, "grid": grid.kind, "n": grid.n, "length": grid.length,
                 "start": grid.start}
                for name, grid in zip(self.axes, self.grids, strict=True)
            ],
        }  # fmt: skip


# Domains whose points have arbitrary positions: curvilinear meshes and clouds.


@dataclass(frozen=True, eq=False)
class _Positioned(Domain):
    """A domain whose points have arbitrary positions. All samples may share the same positions."""

    size: tuple[int, ...]  # points along each axis
    space: int  # dimension of space
    # shape (*size, space); None if they differ between samples
    positions: Float[np.ndarray, "*shape dim"] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.space <= len(NAMES) or min(self.size, default=0) < 1:
            raise ValueError(
                f"a domain of {self.size} points in {self.space} dimensions is invalid"
            )
        if self.positions is not None and self.positions.shape != (*self.size, self.space):
            raise ValueError(
                f"expected positions of shape {(*self.size, self.space)}, got "
                f"{self.positions.shape}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size

    @property
    def dim(self) -> int:
        return self.space

    @property
    def moves(self) -> bool:
        return self.positions is None

    @property
    def points(self) -> Float[np.ndarray, "*shape dim"]:
        if self.positions is None:
            raise DomainError("the points differ from sample to sample")
        return self.positions

    def attributes(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "axes": list(self.axes), "shape": list(self.size),
            "dim": self.space, "moves": self.moves,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Curvilinear(_Positioned):
    """A structured mesh with nodes at positions x[i, j].

    >>> from pdegen.domains import Box
    >>> square = Curvilinear.of(Box.nodal(3, 5).points)
    >>> float(square.weights.sum())
    1.0
    """

    closed: tuple[bool, ...] = ()  # for each axis, whether its last node is next to its first one

    kind = "curvilinear"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.size) != self.space or self.space > 2:
            raise ValueError(
                f"a curvilinear mesh has one or two axes, as many as space has dimensions, got "
                f"{self.size} in {self.space} dimensions"
            )
        if self.closed and len(self.closed) != self.space:
            raise ValueError(f"closed has a value for each axis, got {self.closed}")

    @classmethod
    def of(
        cls, positions: Float[np.ndarray, "*shape dim"], closed: Sequence[bool] = ()
    ) -> Curvilinear:
        """The mesh whose nodes have these positions in all samples."""
        return cls(positions.shape[:-1], positions.shape[-1], positions, tuple(closed))

    def at(self, positions: Float[np.ndarray, "*shape dim"]) -> Curvilinear:
        return Curvilinear(self.size, self.space, positions, self.closed)

    @property
    def axes(self) -> tuple[str, ...]:
        return ("i", "j")[: self.space]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple("periodic" if self._is_closed(k) else "nodal" for k in range(self.space))

    def every(self, strides: tuple[int, ...]) -> Curvilinear:
        size = tuple(-(-n // r) for n, r in zip(self.size, strides, strict=True))
        strided = tuple(slice(None, None, r) for r in strides)
        positions = None if self.positions is None else self.positions[strided]
        return Curvilinear(size, self.space, positions, self.closed)

    def _is_closed(self, axis: int) -> bool:
        return bool(self.closed) and self.closed[axis]

    @cached_property
    def weights(self) -> Float[np.ndarray, " *shape"]:
        """Quadrature weights: the area of each cell is divided equally among its corners."""
        x = self.points
        for axis in range(self.space):
            if self._is_closed(axis):
                x = np.concatenate([x, x.take([0], axis=axis)], axis=axis)
        if self.space == 1:
            areas, corners = np.abs(np.diff(x[:, 0])), [(0,), (1,)]
        else:
            diagonal = x[1:, 1:] - x[:-1, :-1], x[:-1, 1:] - x[1:, :-1]
            areas = np.abs(diagonal[0][..., 0] * diagonal[1][..., 1]
                           - diagonal[0][..., 1] * diagonal[1][..., 0]) / 2  # fmt: skip
            corners = [(0, 0), (1, 0), (0, 1), (1, 1)]
        weights = np.zeros(self.size)
        for corner in corners:
            index = np.ix_(*[
                (np.arange(m) + c) % n
                for m, c, n in zip(areas.shape, corner, self.size, strict=True)
            ])  # fmt: skip
            weights[index] += areas / len(corners)
        return weights

    @cached_property
    def boundary(self) -> Bool[np.ndarray, " *shape"]:
        ends = []
        for axis, n in enumerate(self.size):
            line = np.zeros(n, bool)
            line[[0, -1]] = not self._is_closed(axis)
            ends.append(line)
        return reduce(np.logical_or.outer, ends)

    def attributes(self) -> dict[str, Any]:
        closed = [self._is_closed(axis) for axis in range(self.space)]
        return {**super().attributes(), "closed": closed}


@dataclass(frozen=True, eq=False)
class Cloud(_Positioned):
    """An unordered set of points, with or without cells.

    >>> float(Cloud.of(np.array([[0.0, 0], [1, 0], [0, 1]]), np.array([[0, 1, 2]])).weights.sum())
    0.5
    """

    # indices of the corners of each cell, in order around it, padded by -1 for cells with fewer
    # corners; None without cells
    cells: Int[np.ndarray, "cells corners"] | None = None
    # True at the points on the boundary; None if not known: then no point counts as boundary
    edge: Bool[np.ndarray, " *shape"] | None = None

    kind = "cloud"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.size) != 1:
            raise ValueError(f"a cloud has one axis, got {self.size}")
        cells, n = self.cells, self.size[0]
        if cells is not None and (cells.ndim != 2 or cells.min() < -1 or cells.max() >= n):
            raise ValueError(f"cells are rows of indices of points, -1 to {n - 1}")
        if self.edge is not None and self.edge.shape != self.size:
            raise ValueError(f"edge has shape {self.edge.shape}, expected {self.size}")

    @classmethod
    def of(
        cls,
        positions: Float[np.ndarray, "n dim"],
        cells: Int[np.ndarray, "cells corners"] | None = None,
    ) -> Cloud:
        """The cloud whose points have these positions in all samples."""
        return cls(positions.shape[:-1], positions.shape[-1], positions, cells)

    def at(self, positions: Float[np.ndarray, "n dim"]) -> Cloud:
        return Cloud(self.size, self.space, positions, self.cells, self.edge)

    @property
    def axes(self) -> tuple[str, ...]:
        return ("point",)

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("cloud",)

    def every(self, strides: tuple[int, ...]) -> Cloud:
        if strides != (1,):
            raise DomainError(f"a cloud cannot be strided, got every {strides[0]}-th point")
        return self

    @property
    def triangles(self) -> Int[np.ndarray, "triangles 3"] | None:
        """The cells of a plane cloud, divided into triangles for drawing and quadrature."""
        if self.cells is None or self.space != 2:
            return None
        parts = [self.cells[:, [0, k, k + 1]] for k in range(1, self.cells.shape[1] - 1)]
        triangles = np.concatenate(parts)
        return triangles[(triangles >= 0).all(axis=1)]

    @cached_property
    def weights(self) -> Float[np.ndarray, " *shape"]:
        """Quadrature weights: the area of each triangle is divided equally among its corners."""
        triangles, n = self.triangles, self.size[0]
        if triangles is None:
            return np.full(n, 1 / n)
        a, b, c = (self.points[triangles[:, k]] for k in range(3))
        u, v = b - a, c - a
        areas = np.abs(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]) / 2
        return np.bincount(triangles.ravel(), np.repeat(areas / 3, 3), n)

    @property
    def boundary(self) -> Bool[np.ndarray, " *shape"]:
        return np.zeros(self.size, bool) if self.edge is None else self.edge


def from_attributes(
    content: Mapping[str, Any],
    positions: Float[np.ndarray, "*shape dim"] | None = None,
    cells: Int[np.ndarray, "cells corners"] | None = None,
    edge: Bool[np.ndarray, " *shape"] | None = None,
) -> Domain:
    """Construct a domain from the attributes (`Domain.attributes`) and arrays of a store.

    Raises DomainError if the attributes and arrays do not describe a domain.

    Args:
        content: The attributes.
        positions: Positions of the points of a mesh or cloud.
        cells: Cells of a cloud.
        edge: Mask that is True at the boundary points of a cloud.
    """
    try:
        kind = content["kind"]
        if kind == "box":
            grids = [
                GRIDS[axis["grid"]](axis["n"], axis["length"], axis["start"])
                for axis in content["axes"]
            ]
            domain: Domain = Box(tuple(grids))
            names = [axis["name"] for axis in content["axes"]]
        else:
            size, names = tuple(content["shape"]), content["axes"]
            if kind == "curvilinear":
                closed = tuple(content.get("closed", ()))
                domain = Curvilinear(size, content["dim"], positions, closed)
            elif kind == "cloud":
                domain = Cloud(size, content["dim"], positions, cells, edge)
            else:
                raise DomainError(f"unknown kind of domain {kind!r}: box, curvilinear, cloud")
            if domain.moves is not content["moves"]:
                raise DomainError("positions belong either to the domain or to each sample")
    except (KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
        raise DomainError(f"the attributes of the domain are damaged: {error!r}") from None
    except ValueError as error:
        raise DomainError(str(error)) from None
    if tuple(names) != domain.axes:
        raise DomainError(f"axes of a {kind} are {', '.join(domain.axes)}, got {names}")
    return domain


__all__ = [
    "GRIDS", "NAMES", "Box", "CellGrid", "Cloud", "Curvilinear", "Domain", "DomainError", "Grid",
    "NodalGrid", "PeriodicGrid", "from_attributes",
]  # fmt: skip
