"""Products of one-dimensional grids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from pdegen.domains.domain import NAMES, Domain
from pdegen.domains.grids import CellGrid, Grid, NodalGrid, PeriodicGrid


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
