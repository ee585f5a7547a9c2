"""Resolutions of a dataset: subsamples of its points, and averages over cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pdegen.domains import Box, CellGrid, Domain

# The error for unusable data, and the formatting of its message.


class DataError(ValueError):
    """A store is damaged or does not fit the request. The message is one line."""

    exit_status = 2


def one_line(error: BaseException) -> str:
    r"""The message of an error, joined into one line.

    >>> one_line(ValueError("no such\n  codec"))
    'no such codec'
    """
    return " ".join(str(error).split())


class ResolutionError(DataError):
    """A store has no subsample with the requested number of points.

    Args:
        message: One line.
        possible: A number of points along the first axis that the store has.
    """

    def __init__(self, message: str, possible: int) -> None:
        super().__init__(message)
        self.possible = possible


Resolution = int | tuple[int, ...]
Values = Any  # a NumPy array or a tensor of shape (batch, *channels, *grid)


@dataclass(frozen=True)
class Strided:
    """Subsampling to every r-th point along each axis, starting at the first point.

    Args:
        strides: The stride r of each axis.
    """

    strides: tuple[int, ...]

    @property
    def keeps_all(self) -> bool:
        """Whether all strides are 1."""
        return set(self.strides) <= {1}

    def __call__(self, values: Values) -> Values:
        return values[(..., *[slice(None, None, r) for r in self.strides])]

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the subsampled grid, given the shape of the full grid."""
        return tuple(-(-n // r) for n, r in zip(shape, self.strides, strict=True))


@dataclass(frozen=True, eq=False)
class Averaged:
    """Averages over coarse cells, computed in float64.

    Args:
        weights: Matrix of `averaging_weights` for each axis.
    """

    weights: tuple[Float[np.ndarray, "_ _"], ...]
    keeps_all = False

    def __call__(self, values: Values) -> Values:
        first = values.ndim - len(self.weights)
        if isinstance(values, Tensor):
            xp, values = torch, values.double()
            weights = [torch.as_tensor(w.T).to(values.device) for w in self.weights]
        else:
            xp, weights = np, [w.T for w in self.weights]
        for axis, weight in enumerate(weights, first):
            values = xp.moveaxis(xp.moveaxis(values, axis, -1) @ weight, -1, axis)
        return values

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Number of coarse cells along each axis."""
        return tuple(map(len, self.weights))


Reduction = Strided | Averaged


@dataclass(frozen=True)
class Subsample:
    """Points of inputs and targets at a resolution, and maps from stored values to these points.

    Args:
        stored: Domain of all stored points.
        domain: Domain of the inputs at this resolution.
        x: Positions of the points of the inputs; None if they differ by sample.
        y: Positions of the points of the targets; None if they are those of the inputs.
        input, target: Subsampling or averaging of the stored values of inputs and of targets.
        target_domain: Domain of the targets; None if it is that of the inputs.
    """

    stored: Domain
    domain: Domain
    x: Float[Tensor, "*grid dim"] | None
    y: Float[Tensor, "*target_grid dim"] | None
    input: Strided
    target: Reduction
    target_domain: Domain | None = None

    @classmethod
    def of(
        cls,
        domain: Domain,
        resolution: Resolution | None,
        target_resolution: Resolution | None,
        where: str,
        axes: Sequence[Float[np.ndarray, " _"]] | None = None,
    ) -> Subsample:
        """Choose the points of a domain for the resolutions of `open_pairs`.

        Args:
            where: URL of the store, for messages.
            axes: Stored coordinates of the points along each axis of a box; None if they are
                computed from the domain.

        Raises:
            DataError: If a resolution does not fit the domain.
        """
        strided = Strided(strides(domain, resolution, where))
        coarse = domain.every(strided.strides)
        if axes is not None and isinstance(domain, Box):
            lines = [axis[::r] for axis, r in zip(axes, strided.strides, strict=True)]
            points = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)
        else:
            points = None if coarse.moves else coarse.points
        x = None if points is None else torch.as_tensor(points.astype(np.float32))
        if target_resolution is None:
            return cls(domain, coarse, x, None, strided, strided)
        cells = _cells(domain, target_resolution, where)
        averages = zip(domain.shape, cells.shape, strict=True)
        y = torch.as_tensor(cells.points.astype(np.float32))
        weights = tuple(averaging_weights(n, m) for n, m in averages)
        return cls(domain, coarse, x, y, strided, Averaged(weights), cells)


def _cells(domain: Domain, resolution: Resolution, where: str) -> Box:
    """The grid of the coarse cells over which targets are averaged."""
    shape = domain.shape
    sizes = (resolution,) if isinstance(resolution, int) else resolution
    if len(sizes) == 1:  # the same ratio along each axis
        sizes = tuple(n * sizes[0] // shape[0] for n in shape)
        exact = all(n * sizes[0] == m * shape[0] for n, m in zip(shape, sizes, strict=True))
    else:
        exact = len(sizes) == len(shape)
    fits = exact and all(1 <= m <= n for m, n in zip(sizes, shape, strict=True))
    if not fits or not isinstance(domain, Box) or set(domain.kinds) != {"cell"}:
        allowed = " x ".join(f"1 to {n}" for n in dict.fromkeys(shape))
        kind = domain.kinds[0] if len(set(domain.kinds)) == 1 else "mixed"
        raise DataError(
            f"target_resolution averages cells: it must be {allowed} on a cell grid, got "
            f"{_resolution_text(resolution)} on the {kind} grid of {where}"
        )
    grids = zip(sizes, domain.grids, strict=True)
    return Box(tuple(CellGrid(m, grid.length, grid.start) for m, grid in grids))


def averaging_weights(n: int, m: int) -> Float[np.ndarray, "m n"]:
    """Matrix that maps values on n equal cells of an interval to averages over m equal cells.

    Entry (i, j) is the fraction of coarse cell i that fine cell j covers. Averages are exact for
    functions that are constant on the fine cells. Averaging preserves the integral.

    >>> averaging_weights(3, 2)
    array([[0.66666667, 0.33333333, 0.        ],
           [0.        , 0.33333333, 0.66666667]])
    """
    fine, coarse = np.arange(n + 1) / n, np.arange(m + 1) / m
    low = np.maximum(coarse[:-1, None], fine[:-1])
    high = np.minimum(coarse[1:, None], fine[1:])
    return np.maximum(high - low, 0) * m


def allowed_resolutions(n: int, grid: str) -> list[int]:
    """All numbers of points that a subsample of n points on an axis can have, ascending.

    Args:
        grid: Kind of the axis, as in `Domain.kinds`.

    >>> allowed_resolutions(13, "cell")
    [2, 3, 4, 5, 7, 13]
    """
    if grid == "periodic":
        return [m for m in range(1, n + 1) if n % m == 0]
    if grid == "cloud" or n == 1:
        return [n]
    return [1 + (n - 1) // r for r in range(n - 1, 0, -1) if (n - 1) % r == 0]


def strides(domain: Domain, resolution: Resolution | None, where: str) -> tuple[int, ...]:
    """Stride along each axis of a domain such that the subsample has a given resolution.

    Args:
        resolution: Number of points along the first axis, or a tuple with a number for each axis.
            A single number determines one stride for all axes. None stands for all points.
        where: URL of the store, for messages.

    Raises:
        DataError: If no strides give the resolution.
    """
    shape, kinds = domain.shape, domain.kinds
    if resolution is None:
        return (1,) * len(shape)
    if isinstance(resolution, int):
        r = _stride(shape[0], resolution, kinds[0], where)
        steps = (r,) * len(shape)
    else:
        if len(resolution) != len(shape):
            raise DataError(
                f"a resolution of {where} has {len(shape)} axes, got {_resolution_text(resolution)}"
            )
        steps = tuple(
            _stride(n, m, kind, where) for n, m, kind in zip(shape, resolution, kinds, strict=True)
        )
    for n, r, kind, axis in zip(shape, steps, kinds, domain.axes, strict=True):
        if (n if kind == "periodic" else n - 1) % r:
            raise DataError(
                f"resolution {_resolution_text(resolution)} takes every {steps[0]}-th point, which "
                f"leaves out the last of the {n} {kind} points along {axis} of {where}: "
                "give one resolution for each axis"
            )
    return steps


def _stride(n: int, resolution: int, grid: str, where: str) -> int:
    allowed = allowed_resolutions(n, grid)
    if resolution not in allowed:
        below, above = (
            [m for m in allowed if m < resolution],
            [m for m in allowed if m > resolution],
        )
        raise ResolutionError(
            f"resolution {resolution} is not a subsample of the {n} {grid} points of {where}: "
            f"possible are {' or '.join(map(str, (*below[-1:], *above[:1])))}",
            (*above[:1], *below[-1:])[0],
        )
    if grid == "periodic":
        return n // resolution
    return (n - 1) // max(resolution - 1, 1) or 1


def _resolution_text(resolution: Resolution) -> str:
    return " x ".join(map(str, (resolution,) if isinstance(resolution, int) else resolution))
