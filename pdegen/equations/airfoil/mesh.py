"""Cells of a structured grid with a cut, and the stencils of their faces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float, Int

# Nodes of C-grids around a morphed NACA 0012 airfoil.


# cells of the published grid: along the wake, along one side of the airfoil, away from the wall
WAKE_CELLS, SIDE_CELLS, NORMAL_CELLS = 50, 60, 50
PUBLISHED_CELLS = 2 * (
    WAKE_CELLS + SIDE_CELLS
)  # cells along i, around the airfoil and along its wake
# outer boundary, in chords: a half circle of this radius around (1, 0), straight lines to x = 40
_RADIUS, _CENTRE_X, _OUTLET_X = 40.0, 1.0, 40.0
_FIRST_STEP = (2 / 120) / _RADIUS  # first step along a grid line, as a fraction of its length
_GROWTH, _GROWING_STEPS = 1.02, 37  # ratio of successive steps, and how many steps it holds for
CONTROL_X = (-0.25, 0.25, 0.75, 1.25)  # x of the control points
_CONTROL_Y = 0.1  # the control points lie at y = -0.1 and 0.1


def half_thickness(x: Float[np.ndarray, " *n"]) -> Float[np.ndarray, " *n"]:
    """Half the thickness of the NACA 0012 with a closed trailing edge, for a chord of length 1."""
    powers = -0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4
    return 0.6 * (0.2969 * np.sqrt(x) + powers)


def displacement(
    design: Float[np.ndarray, "8"], x: Float[np.ndarray, " *n"], y: Float[np.ndarray, " *n"]
) -> Float[np.ndarray, " *n"]:
    """Vertical displacement Σ d_i B_i(x, y) of the points (x, y).

    B_i is a cubic Lagrange polynomial in x, with the four control abscissae as nodes, and linear
    in y. Control points 1 to 4 lie at y = -0.1, from left to right. Control points 5 to 8 lie at
    y = 0.1, from right to left.
    """
    nodes = np.array(CONTROL_X)
    cubic = [np.prod([(x - b) / (a - b) for b in nodes if b != a], axis=0) for a in nodes]
    lower = sum(d * phi for d, phi in zip(design[:4], cubic, strict=True))
    upper = sum(d * phi for d, phi in zip(design[:3:-1], cubic, strict=True))
    upper_weight = (y + _CONTROL_Y) / (2 * _CONTROL_Y)
    return (1 - upper_weight) * lower + upper_weight * upper


def _stretched_fractions(t: Float[np.ndarray, " n"], first: float) -> Float[np.ndarray, " n"]:
    """Arc length after t steps along a grid line of length 1, for 0 <= t <= 50."""
    slow = first * (_GROWTH ** np.minimum(t, _GROWING_STEPS) - 1) / (_GROWTH - 1)
    slow_length, step = (
        first * (_GROWTH**_GROWING_STEPS - 1) / (_GROWTH - 1),
        first * _GROWTH**_GROWING_STEPS,
    )
    low, high = 1 + 1e-4, 2.0  # bisection for the ratio of the remaining steps
    for _ in range(200):
        ratio = (low + high) / 2
        too_long = (
            step * (ratio ** (NORMAL_CELLS - _GROWING_STEPS) - 1) / (ratio - 1) > 1 - slow_length
        )
        low, high = (low, ratio) if too_long else (ratio, high)
    fast = step * (ratio ** np.maximum(t - _GROWING_STEPS, 0) - 1) / (ratio - 1)
    fractions = slow + fast
    fractions[t == NORMAL_CELLS] = 1
    return fractions


def _surface_x(s: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Abscissae of the surface nodes that are s cells of the published grid away from the nose."""
    return np.where(s < 2, s**2 / (4 * (SIDE_CELLS - 1)), (s - 1) / (SIDE_CELLS - 1))


def c_grid(design: Float[np.ndarray, "8"], resolution: int) -> Float[np.ndarray, "n m 2"]:
    """Nodes of the C-grid with `resolution` cells along i. The published grid has 220.

    i starts at the outlet and runs along the wake, the upper side, the nose, the lower side, and
    the wake again to the outlet. j runs from the airfoil and the wake outwards. The grid with
    twice the resolution contains these nodes.

    >>> grid = c_grid(np.zeros(8), 220)
    >>> grid.shape, grid[110, 0].tolist(), grid[50, 0].round(12).tolist()
    ((221, 51, 2), [0.0, 0.0], [1.0, 0.0])
    """
    step = PUBLISHED_CELLS / resolution
    i, j = (
        step * np.arange(resolution + 1),
        step * np.arange(resolution * NORMAL_CELLS // PUBLISHED_CELLS + 1),
    )
    s = i - PUBLISHED_CELLS / 2  # published steps from the nose, negative on the upper side
    x = _surface_x(np.minimum(abs(s), SIDE_CELLS))
    y = np.where(s < 0, 1, -1) * half_thickness(x)
    y[abs(s) >= SIDE_CELLS] = 0.0  # the trailing edge and the wake
    last_step = np.hypot(
        1 / (SIDE_CELLS - 1), half_thickness(_surface_x(np.array(SIDE_CELLS - 1.0)))
    )
    wake_fraction = _stretched_fractions(
        np.maximum(abs(s) - SIDE_CELLS, 0), float(last_step) / (_OUTLET_X - 1)
    )
    y = y + displacement(design, x, y)
    inner = np.stack(
        [x * (1 - wake_fraction) + _OUTLET_X * wake_fraction, y * (1 - wake_fraction)], axis=-1
    )
    angle = np.pi / 2 + np.pi * np.clip((s / SIDE_CELLS + 1) / 2, 0, 1)
    straight = (_OUTLET_X - 1) * np.maximum(abs(s) - SIDE_CELLS, 0) / WAKE_CELLS
    outer = np.stack(
        [_CENTRE_X + _RADIUS * np.cos(angle) + straight, _RADIUS * np.sin(angle)], axis=-1
    )
    # lines of constant i run straight from the inner to the outer boundary
    w = _stretched_fractions(j, _FIRST_STEP)[None, :, None]
    return (1 - w) * inner[:, None] + w * outer[:, None]


_EXTRAPOLATED = 4  # cells above a wall face from which its pressure is extrapolated
_SMOOTH = 2.0  # differences below (2h)^(3/2) are not limited, h the distance of cell centres

Numbers = Int[np.ndarray, "n m"]


@dataclass(frozen=True)
class Topology:
    """Neighbours of the cells of an n x m grid, without the positions of its nodes.

    The first and the last `cut` cells of the row j = 0 touch each other across the wake. The other
    cells of that row lie on a wall if `wall` is true, otherwise at the far field.
    """

    # n, m: cells along i and j
    n: int
    m: int
    cut: int = 0  # cells at each end of the row j = 0 that touch the other end
    wall: bool = True  # whether the rest of the row j = 0 lies on a wall

    @cached_property
    def number(self) -> Numbers:
        """Number of each cell, indexed by (i, j)."""
        i, j = np.meshgrid(np.arange(self.n), np.arange(self.m), indexing="ij")
        upper = i < self.n - self.n // 2
        line = np.minimum(i, self.n - 1 - i)
        return 2 * self.m * line + np.where(upper, self.m - 1 - j, self.m + j)

    @cached_property
    def across(self) -> Int[np.ndarray, " n"]:
        """Index i of the neighbour across the cut, for each cell of the row j = 0."""
        neighbours = np.full(self.n, -1)
        ends = np.r_[: self.cut, self.n - self.cut : self.n]
        neighbours[ends] = self.n - 1 - ends
        return neighbours

    @cached_property
    def above(self) -> Int[np.ndarray, " k"]:
        """Indices i of the cells of the row j = 0 that do not touch the cut."""
        return np.arange(self.cut, self.n - self.cut)

    @cached_property
    def faces(self) -> Int[np.ndarray, "faces 4"]:
        """The four cells a, b | c, d of each inner face, as `kernels` defines them."""
        number, cut = self.number, self.across[: self.cut]
        # numbers with a frame of -1, in which each face takes four cells in a row
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
        """The cell at each far-field face, and the next cell inwards."""
        number = self.number
        parts = [number[:2], number[:-3:-1], number.T[:-3:-1]]
        parts += [] if self.wall else [number.T[:2, self.above]]
        return np.concatenate([part.T for part in parts])

    @cached_property
    def wall_cells(self) -> Int[np.ndarray, "faces above"]:
        """Cells above each wall face from which the wall pressure is extrapolated."""
        return self.number[self.above[: None if self.wall else 0], :_EXTRAPOLATED]

    @cached_property
    def _keys(self) -> Int[np.ndarray, " entries"]:
        """row * n * m + column of each nonzero block of the Jacobian, in ascending order."""
        size, faces = self.n * self.m, self.faces
        pairs = [(faces[:, row], faces[:, k]) for row in (1, 2) for k in range(4)]
        pairs += [(part[:, 0], column) for part in (self.far, self.wall_cells) for column in part.T]
        pairs.append((np.arange(size), np.arange(size)))
        keys = np.concatenate([rows * size + columns for rows, columns in pairs])
        columns = np.concatenate([columns for _, columns in pairs])
        return np.unique(keys[columns >= 0])

    @cached_property
    def columns(self) -> Int[np.ndarray, " entries"]:
        """Column of each nonzero block of the Jacobian, sorted by row."""
        return self._keys % (self.n * self.m)

    @cached_property
    def starts(self) -> Int[np.ndarray, " rows"]:
        """Number of the first block of each row, followed by the number of all blocks."""
        size = self.n * self.m
        return np.searchsorted(self._keys, np.arange(size + 1) * size)

    def _position(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Number of the block (row, column) of the Jacobian, or -1 if the column is negative."""
        positions = np.searchsorted(self._keys, rows[:, None] * (self.n * self.m) + columns)
        return np.where(columns < 0, -1, positions)

    @cached_property
    def diagonal(self) -> Int[np.ndarray, " cells"]:
        """Number of the diagonal block of each cell."""
        cells = np.arange(self.n * self.m)
        return self._position(cells, cells[:, None])[:, 0]

    @cached_property
    def positions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The argument `positions` of `kernels.jacobian`."""
        faces, far, wall_cells = self.faces, self.far, self.wall_cells
        inner = np.stack([self._position(faces[:, row], faces) for row in (1, 2)], axis=1)
        return inner, self._position(far[:, 0], far), self._position(wall_cells[:, 0], wall_cells)


@lru_cache(maxsize=8)
def topology(n: int, m: int, cut: int = 0, wall: bool = True) -> Topology:
    """The topology with these arguments, cached so that equal meshes share its arrays."""
    return Topology(n, m, cut, wall)


@dataclass(frozen=True, eq=False)
class Mesh:
    """A structured grid: a topology and the positions of the nodes."""

    topology: Topology  # neighbourhood of the cells
    # nodes, shape (n + 1, m + 1, 2); all cells have the same orientation
    points: Float[np.ndarray, "nodes rows 2"]

    @cached_property
    def areas(self) -> Float[np.ndarray, "n m"]:
        """Areas of the cells, indexed by (i, j). Negative areas show that the grid folds."""
        x = self.points
        p, q = x[1:, 1:] - x[:-1, :-1], x[:-1, 1:] - x[1:, :-1]  # diagonals
        signed = (p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0]) / 2
        return signed * self._orientation

    @cached_property
    def _orientation(self) -> float:
        """1 if the directions of i and j form a right-handed pair at the last node, else -1."""
        x = self.points
        i, j = x[-1, -1] - x[-2, -1], x[-1, -1] - x[-1, -2]
        return float(np.sign(i[0] * j[1] - i[1] * j[0]))

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        """Values that are indexed by (i, j), reordered by the numbers of the cells."""
        ordered = np.empty((self.topology.number.size, *values.shape[2:]))
        ordered[self.topology.number] = values
        return ordered

    @cached_property
    def volumes(self) -> Float[np.ndarray, " cells"]:
        """Areas of the cells, ordered by the numbers of the cells."""
        return self._ordered(self.areas)

    @cached_property
    def centres(self) -> Float[np.ndarray, "cells 2"]:
        """Mean of the four nodes of each cell, ordered by the numbers of the cells."""
        x = self.points
        return self._ordered((x[1:, 1:] + x[:-1, 1:] + x[1:, :-1] + x[:-1, :-1]) / 4)

    @cached_property
    def midpoints(self) -> tuple[np.ndarray, np.ndarray]:
        """Midpoints of the faces i = const, and of the faces j = const."""
        x = self.points
        return (x[:, 1:] + x[:, :-1]) / 2, (x[1:] + x[:-1]) / 2

    @cached_property
    def normals(self) -> tuple[np.ndarray, np.ndarray]:
        """Normals of the faces i = const and of the faces j = const."""
        along_j, along_i = np.diff(self.points, axis=1), np.diff(self.points, axis=0)
        return (
            self._orientation * np.stack([along_j[..., 1], -along_j[..., 0]], axis=-1),
            self._orientation * np.stack([-along_i[..., 1], along_i[..., 0]], axis=-1),
        )

    @cached_property
    def widths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Half widths: distances from cell centres to the midpoints of the four faces."""
        centres = self.centres[self.topology.number]
        i, j = self.midpoints
        ends = (i[:-1], i[1:], j[:, :-1], j[:, 1:])
        west, east, south, north = (np.linalg.norm(centres - end, axis=-1) for end in ends)
        return west, east, south, north

    @cached_property
    def faces(self) -> tuple[np.ndarray, ...]:
        """The argument `faces` of `kernels`."""
        top, (west, east, south, north) = self.topology, self.widths
        across, cut = top.across, slice(top.cut)
        opposite = across[cut]
        first = [np.where(across < 0, 1.0, width[across, 0]) for width in (north, south)]
        # half widths before and after the cell centres on lines along i, along j and across the
        # cut; each line has one more cell at both ends
        lines = (
            (_framed(west.T), _framed(east.T)),
            tuple(
                np.concatenate([start[:, None], width, width[:, -1:]], axis=1)
                for start, width in zip(first, (south, north), strict=True)
            ),
            tuple(
                np.stack(
                    [lower[opposite, 1], lower[opposite, 0], upper[cut, 0], upper[cut, 1]], axis=-1
                )
                for lower, upper in ((north, south), (south, north))
            ),
        )
        parts = [_weights(before, after) for before, after in lines]
        parts[0] = parts[0][0].swapaxes(0, 1), parts[0][1].T  # lines along i: back to (i, j)
        weights = np.concatenate([part.reshape(-1, 4) for part, _ in parts])
        distance = np.concatenate([part.reshape(-1) for _, part in parts])
        i, j = self.normals
        normals = [i[1:-1].reshape(-1, 2), j[:, 1:-1].reshape(-1, 2), j[cut, 0]]
        return top.faces, weights, np.concatenate(normals), (_SMOOTH * distance) ** 3

    @cached_property
    def _outer(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Weights, outward normals and midpoints of the faces on each side of the far field."""
        (west, east, south, north), (i, j), (x, y) = self.widths, self.normals, self.midpoints
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
        """Midpoints of the far-field faces."""
        return np.concatenate([midpoints for _, _, midpoints in self._outer])

    def far(self, states: Float[np.ndarray, "faces 3"]) -> tuple[np.ndarray, ...]:
        """The argument `far` of `kernels`. `states` are the states outside the far-field faces."""
        weights, normals = (np.concatenate([side[k] for side in self._outer]) for k in (0, 1))
        return self.topology.far, weights, normals, states

    @cached_property
    def wall(self) -> tuple[np.ndarray, ...]:
        """The argument `wall` of `kernels`."""
        cells = self.topology.wall_cells
        above = self.topology.above[: len(cells)]
        _, _, south, north = self.widths
        steps = (north[above, :-1] + south[above, 1:])[:, : _EXTRAPOLATED - 1]
        first = south[above, :1]
        distances = np.concatenate([first, first + np.cumsum(steps, axis=1)], axis=1)
        weights = np.ones(cells.shape)
        for k in range(cells.shape[1]):
            for m in range(cells.shape[1]):
                if m != k:
                    weights[:, k] *= distances[:, m] / (distances[:, m] - distances[:, k])
        return cells, weights, -self.normals[1][above, 0]

    def at_nodes(self, q: Float[np.ndarray, "cells k"]) -> Float[np.ndarray, "nodes rows k"]:
        """Values at the nodes, interpolated linearly from the values in the cells.

        Values on the boundaries are extrapolated linearly. Coincident nodes on both sides of the
        wake get the same values.
        """
        top, (_, _, south, north) = self.topology, self.widths
        values = q[top.number]
        columns = _between(values.swapaxes(0, 1), north.T, south.T).swapaxes(0, 1)
        ends, opposite = np.flatnonzero(top.across >= 0), top.across[top.across >= 0]
        near = south[opposite, 0] / (south[ends, 0] + south[opposite, 0])
        columns[ends, 0] = (
            near[:, None] * values[ends, 0] + (1 - near)[:, None] * values[opposite, 0]
        )
        half = np.linalg.norm(np.diff(self.points, axis=0), axis=-1) / 2
        nodes = _between(columns, half, half)
        if top.cut:
            wake = nodes[: top.cut + 1, 0] / 2 + nodes[: -top.cut - 2 : -1, 0] / 2
            nodes[: top.cut + 1, 0], nodes[: -top.cut - 2 : -1, 0] = wake, wake
        return nodes


def _framed(x: np.ndarray) -> np.ndarray:
    """The array x with its first and last columns repeated."""
    return np.concatenate([x[:, :1], x, x[:, -1:]], axis=1)


def _weights(
    before: Float[np.ndarray, "lines cells"], after: Float[np.ndarray, "lines cells"]
) -> tuple[Float[np.ndarray, "lines faces 4"], Float[np.ndarray, "lines faces"]]:
    """The `weights` of `kernels` for faces on lines of cells, and the distances from b to c."""
    gap = after[:, :-1] + before[:, 1:]
    b, c = after[:, 1:-2], before[:, 2:-1]
    parts = [b / gap[:, :-2], b / gap[:, 1:-1], c / gap[:, 1:-1], c / gap[:, 2:]]
    return np.stack(parts, axis=-1), gap[:, 1:-1]


def _between(
    values: Float[np.ndarray, "n lines k"],
    after: Float[np.ndarray, "n lines"],
    before: Float[np.ndarray, "n lines"],
) -> Float[np.ndarray, "m lines k"]:
    """Linear interpolation from the n cell centres of each line to the n + 1 ends of the cells."""
    gap = (after[:-1] + before[1:])[..., None]
    fraction = after[:-1, :, None] / gap
    inside = (1 - fraction) * values[:-1] + fraction * values[1:]
    first = values[:1] + before[:1, :, None] / gap[:1] * (values[:1] - values[1:2])
    last = values[-1:] + after[-1:, :, None] / gap[-1:] * (values[-1:] - values[-2:-1])
    return np.concatenate([first, inside, last])
