"""Domains: where functions live. Points, quadrature weights, boundary, spacing, cells.

A box is a product of one-dimensional grids. A curvilinear mesh has the positions x[i, j], and a
cloud has points without an order. The positions of both may differ from sample to sample: then the
domain holds none, and a store has them in variables of the role `geometry`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

NAMES = ("x", "y", "z")  # of the coordinates of space


class DomainError(ValueError):
    """Attributes or positions that describe no domain; one line."""


@dataclass(frozen=True)
class Grid:
    """Equally spaced points of an interval.

    Args:
        n: Number of points.
        length: Of the interval.
        start: Its lower end.

    Raises:
        ValueError: If there are too few points, or the interval has no length.
    """

    n: int
    length: float = 1.0
    start: float = 0.0

    kind: ClassVar[str]
    least: ClassVar[int] = 1  # points
    few: ClassVar[str] = "a grid has at least one point"
    offset: ClassVar[float] = 0  # spacings h from the lower end to the first point
    beyond: ClassVar[int] = 0  # points more than the length has spacings h

    def __post_init__(self) -> None:
        if self.n < self.least:
            raise ValueError(f"{self.few}, got {self.n}")
        if not (0 < self.length < math.inf and math.isfinite(self.start)):
            raise ValueError(
                f"an interval has a positive, finite length, got {self.length} from {self.start}"
            )

    @property
    def intervals(self) -> int:
        """Spacings h that the length has."""
        return self.n - self.beyond

    @cached_property
    def x(self) -> Float[np.ndarray, " n"]:
        """The points."""
        unit = (np.arange(self.n) + self.offset) / self.intervals
        return unit if (self.start, self.length) == (0, 1) else self.start + self.length * unit

    @property
    def spacing(self) -> float:
        """h, which is also the weight of an inner point in a quadrature."""
        return self.length / self.intervals

    @cached_property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Quadrature weights; their sum is the length."""
        return np.full(self.n, self.spacing)

    @cached_property
    def boundary(self) -> Bool[np.ndarray, " n"]:
        """Which points lie on an end of the interval."""
        return np.zeros(self.n, bool)

    def every(self, stride: int) -> Grid:
        """The grid of every r-th point.

        >>> CellGrid(5).every(2).x
        array([0.1, 0.5, 0.9])
        """
        if stride == 1:
            return self
        n, h = -(-self.n // stride), stride * self.spacing
        kept = replace(self, n=n)
        start = self.start + self.offset * self.spacing - self.offset * h
        return replace(kept, start=start, length=kept.intervals * h)

    @classmethod
    def through(cls, x: Float[np.ndarray, " n"]) -> Grid:
        """The grid that has these points.

        Raises:
            DomainError: If they are not equally spaced, up to rounding to float32.
        """
        n = len(x)
        probe = cls(n)
        if n == 1:
            return cls(1, start=float(x[0]) - probe.offset)
        h = float(x[-1] - x[0]) / (n - 1)
        rounding = 4 * np.finfo(np.float32).eps * float(np.abs(x).max())
        if not (0 < h < math.inf) or np.abs(np.diff(x) - h).max() > 1e-6 * h + rounding:
            raise DomainError(f"the points of a {cls.kind} grid rise by equal steps")
        start = float(x[0]) - probe.offset * h
        length = probe.intervals * h
        near = [abs(start) <= 1e-9 * length, abs(length - 1) <= 1e-9]
        return cls(n, 1.0 if near[1] else length, 0.0 if near[0] else start)


@dataclass(frozen=True)
class PeriodicGrid(Grid):
    """Points x_j = jL/n, j = 0 ... n-1, of a circle of length L; the end point is not repeated.

    >>> PeriodicGrid(64).x[-1] == 63 / 64
    np.True_
    """

    kind = "periodic"

    def stride_to(self, coarse: PeriodicGrid) -> int:
        """The stride s with coarse.x = x[::s].

        Raises:
            ValueError: If the coarse points are not among the fine ones.
        """
        if self.n % coarse.n:
            raise ValueError(f"a grid of {coarse.n} points is not a part of one of {self.n}")
        return self.n // coarse.n


@dataclass(frozen=True)
class CellGrid(Grid):
    """Centres x_i = (i + 1/2)L/n, i = 0 ... n-1, of n equal cells of (0, L).

    >>> CellGrid(64).x[0] == 1 / 128
    np.True_
    """

    kind = "cell"
    few = "a cell grid has at least one cell"
    offset = 0.5


@dataclass(frozen=True)
class NodalGrid(Grid):
    """Points x_i = iL/(n-1), i = 0 ... n-1, of [0, L], both ends included.

    >>> NodalGrid(65).x[-1]
    np.float64(1.0)
    """

    kind = "nodal"
    least = 2
    few = "a nodal grid has at least its two ends"
    beyond = 1

    @cached_property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The trapezoidal rule: h inside, h/2 at the ends."""
        weights = np.full(self.n, self.spacing)
        weights[[0, -1]] /= 2
        return weights

    @cached_property
    def boundary(self) -> Bool[np.ndarray, " n"]:
        ends = np.zeros(self.n, bool)
        ends[[0, -1]] = True
        return ends


GRIDS: dict[str, type[Grid]] = {g.kind: g for g in (PeriodicGrid, CellGrid, NodalGrid)}
_D = TypeVar("_D", bound="Domain")
KINDS: dict[str, type[Domain]] = {}


def _kind(domain: type[_D]) -> type[_D]:
    KINDS[domain.kind] = domain
    return domain


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
        """Positions of the points.

        Raises:
            DomainError: If they differ from sample to sample: `at` has a sample's.
        """

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


@_kind
@dataclass(frozen=True)
class Box(Domain):
    """A product of one-dimensional grids, which may be of several kinds and lengths.

    Args:
        grids: Along each axis.

    Raises:
        ValueError: If there are none, or more than three.

    >>> Box.cell(32, 16).points.shape
    (32, 16, 2)
    """

    grids: tuple[Grid, ...]

    kind = "box"

    def __post_init__(self) -> None:
        if not 1 <= len(self.grids) <= len(NAMES):
            raise ValueError(f"a box has one to three axes, got {len(self.grids)}")

    @classmethod
    def periodic(cls, *n: int) -> Box:
        """A torus of lengths 1."""
        return cls(tuple(map(PeriodicGrid, n)))

    @classmethod
    def cell(cls, *n: int) -> Box:
        """Cells of the unit box."""
        return cls(tuple(map(CellGrid, n)))

    @classmethod
    def nodal(cls, *n: int) -> Box:
        """Nodes of the unit box, its boundary included."""
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
        """The kind of the grids: "periodic", "cell" or "nodal"; "mixed" where they differ."""
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


@dataclass(frozen=True, eq=False)
class _Positioned(Domain):
    """A domain whose points have positions, of its own or of each sample.

    Args:
        size: Points along each axis.
        space: Dimension of space.
        positions: Shape (*size, space); None where each sample has its own.
    """

    size: tuple[int, ...]
    space: int
    positions: Float[np.ndarray, "*shape dim"] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.space <= len(NAMES) or min(self.size, default=0) < 1:
            raise ValueError(f"no domain has {self.size} points in {self.space} dimensions")
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


@_kind
@dataclass(frozen=True, eq=False)
class Curvilinear(_Positioned):
    """A structured mesh with the positions x[i, j] of its nodes.

    Args:
        closed: For each axis, whether its last node is next to its first one.

    >>> square = Curvilinear.of(Box.nodal(3, 5).points)
    >>> float(square.weights.sum())
    1.0
    """

    closed: tuple[bool, ...] = ()

    kind = "curvilinear"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.size) != self.space or self.space > 2:
            raise ValueError(
                f"a curvilinear mesh has one or two axes, as many as space, got {self.size} in "
                f"{self.space} dimensions"
            )
        if self.closed and len(self.closed) != self.space:
            raise ValueError(f"closed has a value for each axis, got {self.closed}")

    @classmethod
    def of(
        cls, positions: Float[np.ndarray, "*shape dim"], closed: Sequence[bool] = ()
    ) -> Curvilinear:
        """The mesh of all samples with these positions."""
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
        kept = tuple(slice(None, None, r) for r in strides)
        positions = None if self.positions is None else self.positions[kept]
        return Curvilinear(size, self.space, positions, self.closed)

    def _is_closed(self, axis: int) -> bool:
        return bool(self.closed) and self.closed[axis]

    @cached_property
    def weights(self) -> Float[np.ndarray, " *shape"]:
        """A cell gives each of its corners an equal part of its area."""
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


@_kind
@dataclass(frozen=True, eq=False)
class Cloud(_Positioned):
    """Points without an order, with cells where there are any.

    Args:
        cells: Numbers of the corners of each cell, in order around it; -1 fills up cells with fewer
            corners. None where there are no cells.
        edge: Which points lie on the boundary; None where nobody knows: then no point does.

    >>> float(Cloud.of(np.array([[0.0, 0], [1, 0], [0, 1]]), np.array([[0, 1, 2]])).weights.sum())
    0.5
    """

    cells: Int[np.ndarray, "cells corners"] | None = None
    edge: Bool[np.ndarray, " *shape"] | None = None

    kind = "cloud"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.size) != 1:
            raise ValueError(f"a cloud has one axis, got {self.size}")
        cells, n = self.cells, self.size[0]
        if cells is not None and (cells.ndim != 2 or cells.min() < -1 or cells.max() >= n):
            raise ValueError(f"cells have numbers of points, -1 to {n - 1}")
        if self.edge is not None and self.edge.shape != self.size:
            raise ValueError(f"edge has shape {self.edge.shape}, expected {self.size}")

    @classmethod
    def of(
        cls,
        positions: Float[np.ndarray, "n dim"],
        cells: Int[np.ndarray, "cells corners"] | None = None,
    ) -> Cloud:
        """The cloud of all samples with these positions."""
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
            raise DomainError(f"a cloud is taken whole, not every {strides[0]}-th point")
        return self

    @property
    def triangles(self) -> Int[np.ndarray, "triangles 3"] | None:
        """The cells of a plane cut into triangles, to draw and to integrate."""
        if self.cells is None or self.space != 2:
            return None
        parts = [self.cells[:, [0, k, k + 1]] for k in range(1, self.cells.shape[1] - 1)]
        found = np.concatenate(parts)
        return found[(found >= 0).all(axis=1)]

    @cached_property
    def weights(self) -> Float[np.ndarray, " *shape"]:
        """A triangle gives each corner a third of its area; without cells all points weigh the
        same, and together 1."""
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
    """The domain that `Domain.attributes` has described.

    Args:
        content: The attributes.
        positions, cells, edge: The arrays that a store holds beside them.

    Raises:
        DomainError: If they describe none.
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
                raise DomainError(f"unknown kind of domain {kind!r}: {', '.join(KINDS)}")
            if domain.moves is not content["moves"]:
                raise DomainError("positions are of the domain or of each sample")
    except (KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
        raise DomainError(f"the attributes of the domain are damaged: {error!r}") from None
    except ValueError as error:
        raise DomainError(str(error)) from None
    if tuple(names) != domain.axes:
        raise DomainError(f"axes of a {kind} are {', '.join(domain.axes)}, got {names}")
    return domain
