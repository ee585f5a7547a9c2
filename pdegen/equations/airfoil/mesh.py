"""Cells of a structured grid with a cut: their faces, and the cells that a face takes part in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float, Int

_ABOVE = 4  # cells that the pressure of the wall is extrapolated from
_SMOOTH = 2.0  # slopes below (2h)^(3/2) are not limited, h the distance of cells

Numbers = Int[np.ndarray, "n m"]


@dataclass(frozen=True)
class Topology:
    """Which cells are beside each other, whatever their positions.

    The first and the last `cut` cells of the row j = 0 touch those of the other end: the wake. The
    others of that row have a wall below them, or, without `wall`, the outside.
    """

    # n, m: cells along i and j
    n: int
    m: int
    cut: int = 0  # cells of the row 0, at each end, that touch those of the other
    wall: bool = True  # whether there is a wall

    @cached_property
    def number(self) -> Numbers:
        """Of the cell (i, j): along lines that cross the wake, from the outlet to the nose."""
        i, j = np.meshgrid(np.arange(self.n), np.arange(self.m), indexing="ij")
        before = i < self.n - self.n // 2
        line = np.minimum(i, self.n - 1 - i)
        return 2 * self.m * line + np.where(before, self.m - 1 - j, self.m + j)

    @cached_property
    def across(self) -> Int[np.ndarray, " n"]:
        """The cells of row 0 below the cells of row 0; -1 for those above the wall."""
        found = np.full(self.n, -1)
        ends = np.r_[: self.cut, self.n - self.cut : self.n]
        found[ends] = self.n - 1 - ends
        return found

    @cached_property
    def above(self) -> Int[np.ndarray, " k"]:
        """Which cells of row 0 have a wall or the outside below them."""
        return np.arange(self.cut, self.n - self.cut)

    @cached_property
    def faces(self) -> Int[np.ndarray, "faces 4"]:
        """The cells a, b | c, d of each inner face, along i, then along j, then across the cut."""
        number, cut = self.number, self.across[: self.cut]
        wide = np.full((self.n + 2, self.m), -1)
        wide[1:-1] = number
        high = np.full((self.n, self.m + 2), -1)
        high[:, 1:-1] = number
        high[:, 0] = np.where(self.across < 0, -1, number[self.across, 0])
        along_i = np.stack([wide[k : self.n - 1 + k] for k in range(4)], axis=-1)
        along_j = np.stack([high[:, k : self.m - 1 + k] for k in range(4)], axis=-1)
        through = [number[cut, 1], number[cut, 0], number[: self.cut, 0], number[: self.cut, 1]]
        return np.concatenate(
            [along_i.reshape(-1, 4), along_j.reshape(-1, 4), np.stack(through, axis=-1)]
        )

    @cached_property
    def far(self) -> Int[np.ndarray, "faces 2"]:
        """The cell inside each outer face, and the next one inwards."""
        number = self.number
        parts = [number[:2], number[:-3:-1], number.T[:-3:-1]]
        parts += [] if self.wall else [number.T[:2, self.above]]
        return np.concatenate([part.T for part in parts])

    @cached_property
    def below(self) -> Int[np.ndarray, "faces above"]:
        """The cells above each face of the wall."""
        return self.number[self.above[: None if self.wall else 0], :_ABOVE]

    @cached_property
    def _keys(self) -> Int[np.ndarray, " entries"]:
        size, faces = self.n * self.m, self.faces
        pairs = [(faces[:, row], faces[:, k]) for row in (1, 2) for k in range(4)]
        pairs += [(part[:, 0], column) for part in (self.far, self.below) for column in part.T]
        pairs.append((np.arange(size), np.arange(size)))
        keys = np.concatenate([rows * size + columns for rows, columns in pairs])
        columns = np.concatenate([columns for _, columns in pairs])
        return np.unique(keys[columns >= 0])

    @cached_property
    def columns(self) -> Int[np.ndarray, " entries"]:
        return self._keys % (self.n * self.m)

    @cached_property
    def starts(self) -> Int[np.ndarray, " rows"]:
        size = self.n * self.m
        return np.searchsorted(self._keys, np.arange(size + 1) * size)

    def _place(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        found = np.searchsorted(self._keys, rows[:, None] * (self.n * self.m) + columns)
        return np.where(columns < 0, -1, found)

    @cached_property
    def diagonal(self) -> Int[np.ndarray, " cells"]:
        cells = np.arange(self.n * self.m)
        return self._place(cells, cells[:, None])[:, 0]

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the derivatives by the cells of faces, outer faces and the wall stand."""
        faces, far, below = self.faces, self.far, self.below
        inner = np.stack([self._place(faces[:, row], faces) for row in (1, 2)], axis=1)
        return inner, self._place(far[:, 0], far), self._place(below[:, 0], below)


@lru_cache(maxsize=8)
def topology(n: int, m: int, cut: int = 0, wall: bool = True) -> Topology:
    """The same object for the same numbers, for what it has computed."""
    return Topology(n, m, cut, wall)


@dataclass(frozen=True, eq=False)
class Mesh:
    """A topology with the positions of its nodes."""

    topology: Topology  # of the cells
    # shape (n + 1, m + 1, 2); all cells have the same orientation
    points: Float[np.ndarray, "nodes rows 2"]

    @cached_property
    def areas(self) -> Float[np.ndarray, "n m"]:
        """Of the cells; some are negative where the grid folds."""
        x = self.points
        one, other = x[1:, 1:] - x[:-1, :-1], x[:-1, 1:] - x[1:, :-1]
        signed = (one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0]) / 2
        return signed * self._turn

    @cached_property
    def _turn(self) -> float:
        """1 where i, j are a right-handed pair, -1 else, as at the last nodes."""
        x = self.points
        i, j = x[-1, -1] - x[-2, -1], x[-1, -1] - x[-1, -2]
        return float(np.sign(i[0] * j[1] - i[1] * j[0]))

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        found = np.empty((self.topology.number.size, *values.shape[2:]))
        found[self.topology.number] = values
        return found

    @cached_property
    def volumes(self) -> Float[np.ndarray, " cells"]:
        return self._ordered(self.areas)

    @cached_property
    def centres(self) -> Float[np.ndarray, "cells 2"]:
        x = self.points
        return self._ordered((x[1:, 1:] + x[:-1, 1:] + x[1:, :-1] + x[:-1, :-1]) / 4)

    @cached_property
    def middles(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the faces of constant i, and of constant j."""
        x = self.points
        return (x[:, 1:] + x[:, :-1]) / 2, (x[1:] + x[:-1]) / 2

    @cached_property
    def normals(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the faces of constant i and of constant j, towards growing i and j."""
        along_j, along_i = np.diff(self.points, axis=1), np.diff(self.points, axis=0)
        return (
            self._turn * np.stack([along_j[..., 1], -along_j[..., 0]], axis=-1),
            self._turn * np.stack([-along_i[..., 1], along_i[..., 0]], axis=-1),
        )

    @cached_property
    def widths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Distances of the centres of cells to the middles of their faces: before and after along
        i, before and after along j."""
        centres = self.centres[self.topology.number]
        i, j = self.middles
        ends = (i[:-1], i[1:], j[:, :-1], j[:, 1:])
        west, east, south, north = (np.linalg.norm(centres - end, axis=-1) for end in ends)
        return west, east, south, north

    @cached_property
    def faces(self) -> tuple[np.ndarray, ...]:
        """As `kernels` has them."""
        top, (west, east, south, north) = self.topology, self.widths
        across, cut = top.across, slice(top.cut)
        other = across[cut]
        below = [np.where(across < 0, 1.0, one[across, 0]) for one in (north, south)]
        lines = (
            (_framed(west.T), _framed(east.T)),
            tuple(
                np.concatenate([first[:, None], one, one[:, -1:]], axis=1)
                for first, one in zip(below, (south, north), strict=True)
            ),
            tuple(
                np.stack([lower[other, 1], lower[other, 0], upper[cut, 0], upper[cut, 1]], axis=-1)
                for lower, upper in ((north, south), (south, north))
            ),
        )
        found = [_weights(before, after) for before, after in lines]
        found[0] = found[0][0].swapaxes(0, 1), found[0][1].T
        weights = np.concatenate([one.reshape(-1, 4) for one, _ in found])
        distance = np.concatenate([one.reshape(-1) for _, one in found])
        i, j = self.normals
        normals = [i[1:-1].reshape(-1, 2), j[:, 1:-1].reshape(-1, 2), j[cut, 0]]
        return top.faces, weights, np.concatenate(normals), (_SMOOTH * distance) ** 3

    @cached_property
    def _outer(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Weights, normals and middles of the outer faces, by the sides of the grid."""
        (west, east, south, north), (i, j), (x, y) = self.widths, self.normals, self.middles
        above = self.topology.above
        sides = [
            (west[0] / (east[0] + west[1]), -i[0], x[0]),
            (east[-1] / (east[-2] + west[-1]), i[-1], x[-1]),
            (north[:, -1] / (north[:, -2] + south[:, -1]), j[:, -1], y[:, -1]),
            ((south[:, 0] / (north[:, 0] + south[:, 1]))[above], -j[above, 0], y[above, 0]),
        ]
        return sides[: 3 if self.topology.wall else 4]

    @cached_property
    def outside(self) -> Float[np.ndarray, "faces 2"]:
        """Middles of the outer faces."""
        return np.concatenate([middles for _, _, middles in self._outer])

    def far(self, states: Float[np.ndarray, "faces 3"]) -> tuple[np.ndarray, ...]:
        """As `kernels` has them, with these states outside."""
        weights, normals = (np.concatenate([side[k] for side in self._outer]) for k in (0, 1))
        return self.topology.far, weights, normals, states

    @cached_property
    def wall(self) -> tuple[np.ndarray, ...]:
        """As `kernels` has them: a polynomial through the cells above has the pressure."""
        cells = self.topology.below
        above = self.topology.above[: len(cells)]
        _, _, south, north = self.widths
        steps = (north[above, :-1] + south[above, 1:])[:, : _ABOVE - 1]
        first = south[above, :1]
        distances = np.concatenate([first, first + np.cumsum(steps, axis=1)], axis=1)
        weights = np.ones(cells.shape)
        for k in range(cells.shape[1]):
            for other in range(cells.shape[1]):
                if other != k:
                    weights[:, k] *= distances[:, other] / (distances[:, other] - distances[:, k])
        return cells, weights, -self.normals[1][above, 0]

    def at_nodes(self, q: Float[np.ndarray, "cells k"]) -> Float[np.ndarray, "nodes rows k"]:
        """Values of cells, linearly between them and beyond the outermost; the two sides of the
        wake, which are the same points, have the same values."""
        top, (_, _, south, north) = self.topology, self.widths
        values = q[top.number]
        columns = _between(values.swapaxes(0, 1), north.T, south.T).swapaxes(0, 1)
        ends, other = np.flatnonzero(top.across >= 0), top.across[top.across >= 0]
        near = south[other, 0] / (south[ends, 0] + south[other, 0])
        columns[ends, 0] = near[:, None] * values[ends, 0] + (1 - near)[:, None] * values[other, 0]
        half = np.linalg.norm(np.diff(self.points, axis=0), axis=-1) / 2
        nodes = _between(columns, half, half)
        if top.cut:
            wake = nodes[: top.cut + 1, 0] / 2 + nodes[: -top.cut - 2 : -1, 0] / 2
            nodes[: top.cut + 1, 0], nodes[: -top.cut - 2 : -1, 0] = wake, wake
        return nodes


def _framed(x: np.ndarray) -> np.ndarray:
    """With the first and the last column twice."""
    return np.concatenate([x[:, :1], x, x[:, -1:]], axis=1)


def _weights(
    before: Float[np.ndarray, "lines cells"], after: Float[np.ndarray, "lines cells"]
) -> tuple[Float[np.ndarray, "lines faces 4"], Float[np.ndarray, "lines faces"]]:
    """The weights of `kernels` along lines of cells of these half widths, and their distances."""
    gap = after[:, :-1] + before[:, 1:]
    b, c = after[:, 1:-2], before[:, 2:-1]
    parts = [b / gap[:, :-2], b / gap[:, 1:-1], c / gap[:, 1:-1], c / gap[:, 2:]]
    return np.stack(parts, axis=-1), gap[:, 1:-1]


def _between(
    values: Float[np.ndarray, "n lines k"],
    after: Float[np.ndarray, "n lines"],
    before: Float[np.ndarray, "n lines"],
) -> Float[np.ndarray, "m lines k"]:
    """From values at n points on lines to n + 1 places between and beyond them, linearly."""
    gap = (after[:-1] + before[1:])[..., None]
    share = after[:-1, :, None] / gap
    inside = (1 - share) * values[:-1] + share * values[1:]
    first = values[:1] + before[:1, :, None] / gap[:1] * (values[:1] - values[1:2])
    last = values[-1:] + after[-1:, :, None] / gap[-1:] * (values[-1:] - values[-2:-1])
    return np.concatenate([first, inside, last])
