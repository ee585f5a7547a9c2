"""A variable of a store -> its functions on the grid that was asked for, shard by shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
import zarr
from jaxtyping import Float, Int
from torch import Tensor

from operators.data.batch import Channel
from operators.data.digests import job_of
from operators.data.metadata import DataError, array_of, is_compressed, one_line
from operators.data.shards import Shards
from pdegen.domains import Box, CellGrid, DomainError, Grid, NodalGrid, PeriodicGrid

GridKind = Literal["periodic", "cell", "nodal"]
GRIDS_BY_KIND: dict[str, type[Grid]] = {g.kind: g for g in (PeriodicGrid, CellGrid, NodalGrid)}
Values = Any  # an array of NumPy or a tensor, of shape (batch, [channels,] *grid)


@dataclass(frozen=True)
class Strided:
    """Every r-th point of each axis; the first and, but on periodic grids, the last are kept."""

    stride: int

    def __call__(self, values: Values, dim: int) -> Values:
        return values[(..., *[slice(None, None, self.stride)] * dim)]

    def size(self, n: int) -> int:
        """Points that are left of n."""
        return -(-n // self.stride)


@dataclass(frozen=True)
class Averaged:
    """Averages over m cells of each axis, in float64; see `averaging_weights`."""

    weights: np.ndarray

    def __call__(self, values: Values, dim: int) -> Values:
        if isinstance(values, Tensor):
            xp, values = torch, values.double()
            weights = torch.from_numpy(self.weights.T).to(values.device)
        else:
            xp, weights = np, self.weights.T
        for axis in range(values.ndim - dim, values.ndim):
            values = xp.moveaxis(xp.moveaxis(values, axis, -1) @ weights, -1, axis)
        return values

    def size(self, n: int) -> int:
        return len(self.weights)


Reduction = Strided | Averaged


@dataclass(frozen=True)
class Subsample:
    """From the points of a dataset to those that inputs and targets are wanted at.

    Args:
        domain: Where the inputs are.
        x, y: Coordinates of inputs and of targets, as of `Samples`.
        input, target: What is kept of their values.
    """

    domain: Box
    x: Float[Tensor, "*grid dim"]
    y: Float[Tensor, "*target_grid dim"] | None
    input: Strided
    target: Reduction

    @classmethod
    def of(
        cls, axes: list[np.ndarray], grid: GridKind, resolution: int,
        target_resolution: int | None, where: str,
    ) -> Subsample:  # fmt: skip
        """The subsample that `open_pairs` describes.

        Args:
            axes, grid: Coordinates along each axis of the dataset, and what they are.
            resolution, target_resolution: What is wanted.
            where: Names the dataset in errors.

        Raises:
            DataError: If there is no such subsample.
        """
        n = len(axes[0])
        every = Strided(stride(n, resolution, grid, where))
        kept = [axis[:: every.stride] for axis in axes]
        domain, x = Box(tuple(_grid(grid, axis) for axis in kept)), _points(kept)
        if target_resolution is None:
            return cls(domain, x, None, every, every)
        if grid != "cell" or not 1 <= target_resolution <= n:
            raise DataError(
                f"target_resolution averages cells: it must be 1 to {n} on a cell grid, got "
                f"{target_resolution} on the {grid} grid of {where}"
            )
        cells = [(np.arange(target_resolution) + 0.5) / target_resolution] * len(axes)
        averaged = Averaged(averaging_weights(n, target_resolution))
        return cls(domain, x, _points(cells), every, averaged)


def _grid(kind: GridKind, axis: np.ndarray) -> Grid:
    """The grid of an axis; that of the unit interval where rounding hides what it is."""
    grid = GRIDS_BY_KIND[kind]
    try:
        return grid.through(axis)
    except DomainError:
        return grid(len(axis))


def _points(axes: list[np.ndarray]) -> Float[Tensor, "*grid dim"]:
    """Coordinates of the points of a product grid."""
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    return torch.from_numpy(points.astype(np.float32))


@dataclass(frozen=True)
class Variable:
    """A variable of a store whose values are functions on a grid. Nothing in it is open.

    Args:
        url: The store.
        shards: How it is stored.
        row: Shape of what is stored of a sample.
        space: The axes among its dimensions, its last ones.
        level: Which noise level is picked of the first dimension; None where there is none.
        reduction: What is kept of the points.
    """

    url: str
    shards: Shards
    row: tuple[int, ...]
    space: tuple[str, ...]
    level: int | None
    reduction: Reduction = Strided(1)

    @classmethod
    def of(
        cls, group: zarr.Group, url: str, name: str, level: float | None, records: str | None
    ) -> Variable:
        """A variable on all its points, of a group that `open_group` gives.

        Raises:
            DataError: If there is none, it is no function on a grid, or lacks the noise level.
        """
        array = array_of(group, url, name)
        dims = tuple(map(str, getattr(array.metadata, "dimension_names", None) or ()))
        space = tuple(d for d in dims if d in ("x", "y", "z"))
        if dims[:1] != ("sample",) or not space or array.shards is None:
            raise DataError(f"{url}: {name} is no function on a grid")
        chunks = array.shards[0] // array.chunks[0]
        attributes: dict[str, Any] = group.attrs.asdict()
        shards = Shards(
            name, array.chunks, array.dtype.newbyteorder("<"), chunks, attributes["content"],
            job_of(attributes), records, attributes["format_version"] > 2, is_compressed(array),
        )  # fmt: skip
        if "level" not in dims:
            return cls(url, shards, array.shape[1:], space, None)
        levels = np.asarray(array_of(group, url, "level")[:]).tolist()
        if level not in levels:
            known = ", ".join(f"{v:g}" for v in levels)
            raise DataError(f"{url}: {name} has no noise level {level}: known are {known}")
        return cls(url, shards, array.shape[1:], space, levels.index(level))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a function, (*grid, channels): the channels are the times, or one."""
        sizes = self.row if self.level is None else self.row[1:]
        dim = len(self.space)
        grid = tuple(self.reduction.size(n) for n in sizes[-dim:])
        return (*grid, sizes[0] if len(sizes) > dim else 1)

    def read(
        self,
        files: Any,
        root: str,
        samples: Int[np.ndarray, " n"],
        out: Float[np.ndarray, "n *grid c"],
    ) -> None:
        """Read some samples of one shard.

        Args:
            files: The file system of the store.
            root: Path of the store in it.
            samples: Their numbers, rising.
            out: Where to, in float32.

        Raises:
            DataError: If the data are damaged, missing, or cannot be read.
        """
        damaged = (
            f"{self.url}: {self.shards.key}, samples {samples[0]} to {samples[-1]}: the data are "
            "damaged"
        )
        try:
            finite = self._read(files, root, samples, out)
        except Exception as error:  # stores and codecs raise many kinds on damaged data
            raise DataError(
                f"{damaged} ({one_line(error)}); pdegen verify names the shards"
            ) from error
        if not finite:
            raise DataError(f"{damaged} (values are missing); pdegen verify names the shards")

    def _read(self, files: Any, root: str, samples: np.ndarray, out: np.ndarray) -> bool:
        """Whether all values are finite; those of the first chunk that has others are the last."""
        shards, dim = self.shards, len(self.space)
        rows = shards.shape[0]
        shard = int(samples[0]) // shards.samples
        inside = samples - shard * shards.samples
        chunks, first = np.unique(inside // rows, return_index=True)
        ends = [*first[1:].tolist(), len(samples)]
        as_stored = self.level is None and self.reduction == Strided(1) and out.shape[-1] == 1
        direct = as_stored and len(self.row) == dim and shards.dtype == out.dtype
        decoded = np.empty(shards.shape, shards.dtype)
        stored = shards.stored(files, root, shard, chunks.tolist())
        for (k, data), start, stop in zip(stored, first.tolist(), ends, strict=True):
            if data is None:  # NaN was stored
                return False
            if direct and stop - start == rows:
                values = out[start:stop]
                shards.decode(data, values)
                if not np.isfinite(values).all():
                    return False
                continue
            shards.decode(data, decoded)
            values = decoded[_picked(inside[start:stop] - k * rows)]
            values = values if self.level is None else values[:, self.level]
            if not np.isfinite(values).all():
                return False
            values = self.reduction(values, dim)
            out[start:stop] = values[..., None] if values.ndim == dim + 1 else (
                np.moveaxis(values, 1, -1)
            )  # fmt: skip
        return True


def channels_of(group: zarr.Group, name: str, variable: Variable) -> tuple[Channel, ...]:
    """What the channels of a variable are."""
    dims = getattr(group[name].metadata, "dimension_names", None) or ()
    if "time" not in dims or "time" not in group:
        return tuple([Channel(name)] * variable.shape[-1])
    times = np.asarray(array_of(group, variable.url, "time")[:], float).tolist()
    return tuple(Channel(name, time=t) for t in times)


def _picked(rows: np.ndarray) -> slice | np.ndarray:
    """Rising rows as a slice where they are consecutive: then nothing is copied."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def averaging_weights(n: int, m: int) -> Float[np.ndarray, "m n"]:
    """Weights of the averages over m equal cells of an interval, of values on n equal cells.

    The weight of a fine cell is its overlap with the coarse one, so averages are exact for
    functions that are constant on the fine cells, and the integral is kept.

    >>> averaging_weights(3, 2)
    array([[0.66666667, 0.33333333, 0.        ],
           [0.        , 0.33333333, 0.66666667]])
    """
    fine, coarse = np.arange(n + 1) / n, np.arange(m + 1) / m
    low = np.maximum(coarse[:-1, None], fine[:-1])
    high = np.minimum(coarse[1:, None], fine[1:])
    return np.maximum(high - low, 0) * m


def allowed_resolutions(n: int, grid: GridKind) -> list[int]:
    """The numbers of points that a subsample of n points of an axis can have."""
    if grid == "periodic":
        return [m for m in range(1, n + 1) if n % m == 0]
    return [1 + (n - 1) // r for r in range(n - 1, 0, -1) if (n - 1) % r == 0]


def read_axes(
    group: zarr.Group, url: str, names: tuple[str, ...]
) -> tuple[list[np.ndarray], GridKind]:
    """The coordinates along each axis, and what their points are.

    Raises:
        DataError: If the axes differ, or their points are of no known kind.
    """
    arrays = [array_of(group, url, name) for name in names]
    kinds, sizes = {str(a.attrs.get("grid")) for a in arrays}, {a.shape[0] for a in arrays}
    known = get_args(GridKind)
    if len(sizes) > 1 or len(kinds) > 1 or not kinds <= set(known):
        raise DataError(
            f"{url} has axes of {sorted(sizes)} points, {', '.join(sorted(kinds))}: all must have "
            f"as many of one kind, {', '.join(known)}"
        )
    return [np.asarray(a[:]) for a in arrays], cast(GridKind, kinds.pop())


def stride(n: int, resolution: int, grid: GridKind, url: str) -> int:
    """The r whose every r-th of n points gives this resolution.

    Raises:
        DataError: If there is none; near ones are named.
    """
    allowed = allowed_resolutions(n, grid)
    if resolution not in allowed:
        near = sorted(sorted(allowed, key=lambda m: abs(m - resolution))[:6])
        raise DataError(
            f"resolution {resolution} is no subsample of the {n} {grid} points of {url}: "
            f"near ones are {', '.join(map(str, near))}"
        )
    return n // resolution if grid == "periodic" else (n - 1) // max(resolution - 1, 1)
