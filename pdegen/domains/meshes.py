"""Domains whose points have arbitrary positions: curvilinear meshes and clouds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from pdegen.domains.domain import NAMES, Domain
from pdegen.domains.grids import DomainError


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
        """Quadrature weights: the area of each triangle is divided equally among its corners.

        Without cells all weights are equal and sum to 1.
        """
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
