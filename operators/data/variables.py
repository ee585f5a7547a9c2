"""Variables of a sealed store, read shard by shard at a resolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.data.batch import Channel
from pdegen.domains import Box, CellGrid, Domain
from pdegen.store.reading import Array, Shards, Store, open_sealed


class DataError(ValueError):
    """A store that is damaged or does not fit the request; one line."""

    exit_status = 2


def one_line(error: BaseException) -> str:
    r"""The message of an error on one line.

    >>> one_line(ValueError("no such\n  codec"))
    'no such codec'
    """
    return " ".join(str(error).split())


def open_store(url: str) -> Store:
    """Open the store at a URL of fsspec or at a path."""
    try:
        return open_sealed(url)
    except (ValueError, OSError) as error:
        raise DataError(one_line(error)) from None


@dataclass(frozen=True)
class StoredVariable:
    """A variable of a store: functions on its domain, or numbers. It holds no open files.

    Args:
        shards: The chunks of the array.
        row: Shape of the stored values of a sample.
        axes: Number of its last axes that belong to the domain; those before are channels.
        level: Index of the noise level along the first axis; None without that axis.
        reduction: The points that are kept, or the cells of averages.
    """

    url: str
    shards: Shards
    row: tuple[int, ...]
    axes: int
    level: int | None
    reduction: Reduction
    channels: tuple[Channel, ...] = ()

    @classmethod
    def of(
        cls, store: Store, name: str, level: float | None, axes: tuple[str, ...] = ()
    ) -> StoredVariable:
        """A variable on all its points.

        Args:
            level: Noise level; None for a variable without levels.
            axes: Names of its last axes, which belong to the domain; none for numbers.

        Raises:
            DataError: If the store has no such variable, or the variable no such noise level.
        """
        array = array_of(store, name)
        between = array.dims[1 : len(array.dims) - len(axes)]
        order = [dim for dim in ("level", "time") if dim in between]
        if [*between[: len(order)]] != order:
            raise DataError(
                f"{store.url}: {name} has the axes {', '.join(array.dims)}: expected level, time, "
                "channels in this order, then those of space"
            )
        level_index = None
        if "level" in array.dims:
            levels = store.coordinates["level"].tolist()
            if level not in levels:
                stored = ", ".join(f"{v:g}" for v in levels)
                unknown = f"has no noise level {level}: known are"
                several = "is stored at several noise levels, choose one by level:"
                raise DataError(
                    f"{store.url}: {name} {several if level is None else unknown} {stored}"
                )
            level_index = levels.index(level)
        all_points = Strided((1,) * len(axes))
        channels = channels_of(store, name, len(axes))
        shards, row = store.shards_of(name), array.shape[1:]
        return cls(store.url, shards, row, len(axes), level_index, all_points, channels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (*grid, channels) of a function; the channels are the components at each time in
        turn."""
        sizes = self.row if self.level is None else self.row[1:]
        first = len(sizes) - self.axes
        return (*self.reduction.shape(sizes[first:]), math.prod(sizes[:first]))

    def read(self, samples: Int[np.ndarray, " n"], out: Float[np.ndarray, "n *grid c"]) -> None:
        """Read samples of one shard into `out`.

        Raises:
            DataError: If the data are damaged or missing.
        """
        name = self.shards.array.name
        damaged = f"{self.url}: {name}, samples {samples[0]} to {samples[-1]}: the data are damaged"
        try:
            finite = self._read(samples, out)
        except Exception as error:  # stores and codecs raise many types on damaged data
            reason = one_line(error).removeprefix(f"{self.url}: ")
            raise DataError(f"{damaged} ({reason}); pdegen verify names the shards") from error
        if not finite:
            raise DataError(f"{damaged} (values are missing); pdegen verify names the shards")

    def _read(self, samples: np.ndarray, out: np.ndarray) -> bool:
        """Read samples of one shard into `out`; whether all values are finite.

        Reading ends at the first chunk with a value that is not finite.
        """
        channels = self.shape[-1]
        if self.level is None and self.reduction.keeps_all and channels == 1:
            stored = out.reshape(len(out), *self.row)
            return all(np.isfinite(v).all() for _, v in self.shards.pieces(samples, stored))
        for rows, piece in self.shards.pieces(samples):
            values = piece if self.level is None else piece[:, self.level]
            if not np.isfinite(values).all():
                return False
            shape = (len(values), channels, *values.shape[values.ndim - self.axes :])
            out[rows] = np.moveaxis(self.reduction(values.reshape(shape)), 1, -1)
        return True


@dataclass(frozen=True)
class Stacked:
    """Variables of a store side by side along the last axis: one entry of a `Batch`."""

    variables: tuple[StoredVariable, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (*grid, channels) of one sample."""
        shapes = [variable.shape for variable in self.variables]
        return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(channel for variable in self.variables for channel in variable.channels)

    def reduced(self, reduction: Reduction) -> Stacked:
        """The same variables at other points."""
        return Stacked(tuple(replace(v, reduction=reduction) for v in self.variables))

    def read(self, samples: np.ndarray, out: np.ndarray) -> None:
        """Read samples of one shard into `out`, shape (n, *grid, channels)."""
        start = 0
        for variable in self.variables:
            stop = start + variable.shape[-1]
            single = len(self.variables) == 1
            variable.read(samples, out if single else out[..., start:stop])
            start = stop


def names_of(variables: str | Sequence[str]) -> list[str]:
    """A list of names, given one name or several."""
    return [variables] if isinstance(variables, str) else [*variables]


def array_of(store: Store, name: str) -> Array:
    """A variable of a store. Raises DataError if the store has no variable of this name."""
    if name not in store.arrays:
        raise DataError(f"{store.url} has no variable {name}")
    return store.arrays[name]


def channels_of(store: Store, name: str, axes: int) -> tuple[Channel, ...]:
    """Descriptions of the channels of a variable: its components at each time in turn.

    Args:
        axes: Number of the axes of the domain.
    """
    array, times, components = store.arrays[name], [None], [""]
    if "time" in array.dims:
        times = np.atleast_1d(store.coordinates["time"]).astype(float).tolist()
    sizes = [
        n
        for dim, n in zip(array.dims, array.shape, strict=True)
        if dim not in ("sample", "level", "time", *array.dims[len(array.dims) - axes :])
    ]
    if sizes:
        count, names = math.prod(sizes), array.metadata.channels
        components = [
            str(component) for component in (names if len(names) == count else range(count))
        ]
    drawing = store.metadata.physics.drawing.get(name)
    moves = drawing is not None and drawing.moves
    return tuple(
        Channel(name, component, time, moves) for time in times for component in components
    )


Resolution = int | tuple[int, ...]
Values = Any  # a NumPy array or a tensor of shape (batch, *channels, *grid)


@dataclass(frozen=True)
class Strided:
    """Every r-th point along each axis; the first is kept and, if an axis has ends, the last."""

    strides: tuple[int, ...]

    @property
    def keeps_all(self) -> bool:
        """Whether all points are kept."""
        return set(self.strides) <= {1}

    def __call__(self, values: Values) -> Values:
        return values[(..., *[slice(None, None, r) for r in self.strides])]

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Numbers of points that are kept along each axis, of `shape` points."""
        return tuple(-(-n // r) for n, r in zip(shape, self.strides, strict=True))


@dataclass(frozen=True, eq=False)
class Averaged:
    """Averages over m cells along each axis, in float64; see `averaging_weights`."""

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
        """Numbers of cells along each axis."""
        return tuple(map(len, self.weights))


Reduction = Strided | Averaged


@dataclass(frozen=True)
class Subsample:
    """The points of inputs and targets, and how values of a dataset are reduced to them.

    Args:
        domain: Domain of the inputs at the resolution.
        x, y: Positions of the points of inputs and targets; None as in `Samples`.
        input, target: Reductions of inputs and targets.
    """

    domain: Domain
    x: Float[Tensor, "*grid dim"] | None
    y: Float[Tensor, "*target_grid dim"] | None
    input: Strided
    target: Reduction

    @classmethod
    def of(
        cls,
        domain: Domain,
        resolution: Resolution | None,
        target_resolution: Resolution | None,
        where: str,
        axes: Sequence[Float[np.ndarray, " _"]] | None = None,
    ) -> Subsample:
        """The subsample of a resolution; see `open_pairs`.

        Args:
            where: URL of the store, for messages.
            axes: Coordinates of the points along each axis of a box, as stored.

        Raises:
            DataError: If there is no such subsample.
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
            return cls(coarse, x, None, strided, strided)
        cells = _cells(domain, target_resolution, where)
        averages = zip(domain.shape, cells.shape, strict=True)
        y = torch.as_tensor(cells.points.astype(np.float32))
        weights = tuple(averaging_weights(n, m) for n, m in averages)
        return cls(coarse, x, y, strided, Averaged(weights))


def _cells(domain: Domain, resolution: Resolution, where: str) -> Box:
    """The cells over which targets are averaged."""
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
        raise DataError(
            f"target_resolution averages cells: it must be {allowed} on a cell grid, got "
            f"{_resolution_text(resolution)} on the {_kind(domain)} grid of {where}"
        )
    grids = zip(sizes, domain.grids, strict=True)
    return Box(tuple(CellGrid(m, grid.length, grid.start) for m, grid in grids))


def averaging_weights(n: int, m: int) -> Float[np.ndarray, "m n"]:
    """Weights that average values on n equal cells of an interval over m equal cells.

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


def allowed_resolutions(n: int, grid: str) -> list[int]:
    """Numbers of points that a subsample of the n points along an axis can have.

    Args:
        grid: Kind of the points, one of `Domain.kinds`.

    >>> allowed_resolutions(13, "cell")
    [2, 3, 4, 5, 7, 13]
    """
    if grid == "periodic":
        return [m for m in range(1, n + 1) if n % m == 0]
    if grid == "cloud" or n == 1:
        return [n]
    return [1 + (n - 1) // r for r in range(n - 1, 0, -1) if (n - 1) % r == 0]


def strides(domain: Domain, resolution: Resolution | None, where: str) -> tuple[int, ...]:
    """The stride r along each axis such that every r-th point gives a resolution.

    Args:
        resolution: Number of points along the first axis, whose stride all axes get; or the numbers
            along each axis.
        where: URL of the store, for messages.

    Raises:
        DataError: If there is no such stride; the message names near resolutions.
    """
    shape, kinds = domain.shape, domain.kinds
    if resolution is None:
        return (1,) * len(shape)
    if isinstance(resolution, int):
        r = _stride(shape[0], resolution, kinds[0], where)
        sizes = tuple(-(-n // r) for n in shape)
        steps = (r,) * len(shape)
    else:
        sizes = resolution
        if len(sizes) != len(shape):
            raise DataError(
                f"a resolution of {where} has {len(shape)} axes, got {_resolution_text(sizes)}"
            )
        steps = tuple(
            _stride(n, m, kind, where) for n, m, kind in zip(shape, sizes, kinds, strict=True)
        )
    for n, m, kind, axis in zip(shape, sizes, kinds, domain.axes, strict=True):
        if m not in allowed_resolutions(n, kind):
            raise DataError(
                f"resolution {_resolution_text(resolution)} takes every {steps[0]}-th point, which "
                f"leaves out the last of the {n} {kind} points along {axis} of {where}: "
                "give one resolution for each axis"
            )
    return steps


def _stride(n: int, resolution: int, grid: str, where: str) -> int:
    allowed = allowed_resolutions(n, grid)
    if resolution not in allowed:
        near = sorted(sorted(allowed, key=lambda m: abs(m - resolution))[:6])
        raise DataError(
            f"resolution {resolution} is not a subsample of the {n} {grid} points of {where}: "
            f"near ones are {', '.join(map(str, near))}"
        )
    if grid == "periodic":
        return n // resolution
    return (n - 1) // max(resolution - 1, 1) or 1


def _resolution_text(resolution: Resolution) -> str:
    return " x ".join(map(str, (resolution,) if isinstance(resolution, int) else resolution))


def _kind(domain: Domain) -> str:
    """The kind of grid, for messages."""
    kinds = sorted(set(domain.kinds))
    return kinds[0] if len(kinds) == 1 else "mixed"
