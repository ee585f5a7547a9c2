"""URL -> a sealed store -> its variables, at the points that are wanted, shard by shard."""

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
    """A store that cannot be read as asked; one line."""

    exit_status = 2


def one_line(error: BaseException) -> str:
    r"""What an error says.

    >>> one_line(ValueError("no such\n  codec"))
    'no such codec'
    """
    return " ".join(str(error).split())


def open_store(url: str) -> Store:
    """The store at a URL that fsspec knows, or a path."""
    try:
        return open_sealed(url)
    except (ValueError, OSError) as error:
        raise DataError(one_line(error)) from None


@dataclass(frozen=True)
class StoredVariable:
    """A variable of a store: functions on its domain, or numbers. Nothing in it is open.

    Args:
        row: Shape of what is stored of a sample.
        axes: How many of its last axes are of the domain; those before are channels.
        level: Which noise level is picked of the first axis; None where there is none.
        reduction: What is kept of the points.
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
            axes: Its last axes, of the domain; none for numbers.

        Raises:
            DataError: If there is none, or it lacks the noise level.
        """
        array = array_of(store, name)
        between = array.dims[1 : len(array.dims) - len(axes)]
        order = [dim for dim in ("level", "time") if dim in between]
        if [*between[: len(order)]] != order:
            raise DataError(
                f"{store.url}: {name} has the axes {', '.join(array.dims)}: expected level, time, "
                "channels in this order, and then those of space"
            )
        picked = None
        if "level" in array.dims:
            levels = store.coordinates["level"].tolist()
            if level not in levels:
                known = ", ".join(f"{v:g}" for v in levels)
                lacks = f"has no noise level {level}: known are"
                several = "is stored at several noise levels, choose one by level:"
                raise DataError(
                    f"{store.url}: {name} {several if level is None else lacks} {known}"
                )
            picked = levels.index(level)
        every = Strided((1,) * len(axes))
        channels = channels_of(store, name, len(axes))
        shards, row = store.shards_of(name), array.shape[1:]
        return cls(store.url, shards, row, len(axes), picked, every, channels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a function, (*grid, channels); the channels are components of times, in this order."""
        sizes = self.row if self.level is None else self.row[1:]
        first = len(sizes) - self.axes
        return (*self.reduction.shape(sizes[first:]), math.prod(sizes[:first]))

    def read(self, samples: Int[np.ndarray, " n"], out: Float[np.ndarray, "n *grid c"]) -> None:
        """Read some samples of one shard. Raises DataError if the data are damaged, missing, or
        cannot be read."""
        name = self.shards.array.name
        damaged = f"{self.url}: {name}, samples {samples[0]} to {samples[-1]}: the data are damaged"
        try:
            finite = self._read(samples, out)
        except Exception as error:  # stores and codecs raise many kinds on damaged data
            what = one_line(error).removeprefix(f"{self.url}: ")
            raise DataError(f"{damaged} ({what}); pdegen verify names the shards") from error
        if not finite:
            raise DataError(f"{damaged} (values are missing); pdegen verify names the shards")

    def _read(self, samples: np.ndarray, out: np.ndarray) -> bool:
        """Whether all values are finite; those of the first chunk that has others are the last."""
        channels = self.shape[-1]
        if self.level is None and self.reduction.keeps_all and channels == 1:
            stored = out.reshape(len(out), *self.row)
            return all(np.isfinite(v).all() for _, v in self.shards.pieces(samples, stored))
        for place, piece in self.shards.pieces(samples):
            values = piece if self.level is None else piece[:, self.level]
            if not np.isfinite(values).all():
                return False
            shape = (len(values), channels, *values.shape[values.ndim - self.axes :])
            out[place] = np.moveaxis(self.reduction(values.reshape(shape)), 1, -1)
        return True


@dataclass(frozen=True)
class Stacked:
    """Variables of a store side by side along the last axis: one entry of a `Batch`."""

    variables: tuple[StoredVariable, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, (*grid, channels)."""
        shapes = [variable.shape for variable in self.variables]
        return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(one for variable in self.variables for one in variable.channels)

    def reduced(self, reduction: Reduction) -> Stacked:
        """The same at other points."""
        return Stacked(tuple(replace(v, reduction=reduction) for v in self.variables))

    def read(self, samples: np.ndarray, out: np.ndarray) -> None:
        start = 0
        for variable in self.variables:
            stop = start + variable.shape[-1]
            whole = len(self.variables) == 1
            variable.read(samples, out if whole else out[..., start:stop])
            start = stop


def names_of(wanted: str | Sequence[str]) -> list[str]:
    """Of one variable, or of several."""
    return [wanted] if isinstance(wanted, str) else [*wanted]


def array_of(store: Store, name: str) -> Array:
    """A variable of a store. Raises DataError if there is none of this name."""
    if name not in store.arrays:
        raise DataError(f"{store.url} has no variable {name}")
    return store.arrays[name]


def channels_of(store: Store, name: str, axes: int) -> tuple[Channel, ...]:
    """What the channels of a variable are: its components at the first time, at the next, ..."""
    array, times, parts = store.arrays[name], [None], [""]
    if "time" in array.dims:
        times = np.atleast_1d(store.coordinates["time"]).astype(float).tolist()
    between = [
        n
        for dim, n in zip(array.dims, array.shape, strict=True)
        if dim not in ("sample", "level", "time", *array.dims[len(array.dims) - axes :])
    ]
    if between:
        count = math.prod(between)
        parts = array.metadata.channels if len(array.metadata.channels) == count else range(count)
        parts = [str(part) for part in parts]
    how = store.metadata.physics.drawing.get(name)
    moves = how is not None and how.moves
    return tuple(Channel(name, part, time, moves) for time in times for part in parts)


Resolution = int | tuple[int, ...]
Values = Any  # an array of NumPy or a tensor, of shape (batch, *channels, *grid)


@dataclass(frozen=True)
class Strided:
    """Every r-th point of each axis; the first and, if an axis has ends, the last are kept."""

    strides: tuple[int, ...]

    @property
    def keeps_all(self) -> bool:
        """Whether all points are kept."""
        return set(self.strides) <= {1}

    def __call__(self, values: Values) -> Values:
        return values[(..., *[slice(None, None, r) for r in self.strides])]

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Points that are left of so many along each axis."""
        return tuple(-(-n // r) for n, r in zip(shape, self.strides, strict=True))


@dataclass(frozen=True, eq=False)
class Averaged:
    """Averages over m cells of each axis, in float64; see `averaging_weights`."""

    weights: tuple[Float[np.ndarray, "_ _"], ...]
    keeps_all = False

    def __call__(self, values: Values) -> Values:
        first = values.ndim - len(self.weights)
        if isinstance(values, Tensor):
            xp, values = torch, values.double()
            weights = [torch.as_tensor(w.T).to(values.device) for w in self.weights]
        else:
            xp, weights = np, [w.T for w in self.weights]
        for axis, by in enumerate(weights, first):
            values = xp.moveaxis(xp.moveaxis(values, axis, -1) @ by, -1, axis)
        return values

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(len, self.weights))


Reduction = Strided | Averaged


@dataclass(frozen=True)
class Subsample:
    """From the points of a dataset to those that inputs and targets are wanted at."""

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
        """The subsample that `open_pairs` describes. Raises DataError if there is no such
        subsample."""
        every = Strided(strides(domain, resolution, where))
        kept = domain.every(every.strides)
        if axes is not None and isinstance(domain, Box):
            lines = [axis[::r] for axis, r in zip(axes, every.strides, strict=True)]
            points = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)
        else:
            points = None if kept.moves else kept.points
        x = None if points is None else torch.as_tensor(points.astype(np.float32))
        if target_resolution is None:
            return cls(kept, x, None, every, every)
        cells = _cells(domain, target_resolution, where)
        averages = zip(domain.shape, cells.shape, strict=True)
        y = torch.as_tensor(cells.points.astype(np.float32))
        return cls(kept, x, y, every, Averaged(tuple(averaging_weights(n, m) for n, m in averages)))


def _cells(domain: Domain, resolution: Resolution, where: str) -> Box:
    """The cells over which targets are averaged."""
    shape = domain.shape
    wanted = (resolution,) if isinstance(resolution, int) else resolution
    if len(wanted) == 1:  # as many more or fewer along each axis
        wanted = tuple(n * wanted[0] // shape[0] for n in shape)
        exact = all(n * wanted[0] == m * shape[0] for n, m in zip(shape, wanted, strict=True))
    else:
        exact = len(wanted) == len(shape)
    fits = exact and all(1 <= m <= n for m, n in zip(wanted, shape, strict=True))
    if not fits or not isinstance(domain, Box) or set(domain.kinds) != {"cell"}:
        allowed = " x ".join(f"1 to {n}" for n in dict.fromkeys(shape))
        raise DataError(
            f"target_resolution averages cells: it must be {allowed} on a cell grid, got "
            f"{_resolution_text(resolution)} on the {_kind(domain)} grid of {where}"
        )
    grids = zip(wanted, domain.grids, strict=True)
    return Box(tuple(CellGrid(m, grid.length, grid.start) for m, grid in grids))


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


def allowed_resolutions(n: int, grid: str) -> list[int]:
    """The numbers of points that a subsample of n points of an axis can have.

    Args:
        grid: What they are (`Domain.kinds`).

    >>> allowed_resolutions(13, "cell")
    [2, 3, 4, 5, 7, 13]
    """
    if grid == "periodic":
        return [m for m in range(1, n + 1) if n % m == 0]
    if grid == "cloud" or n == 1:
        return [n]
    return [1 + (n - 1) // r for r in range(n - 1, 0, -1) if (n - 1) % r == 0]


def strides(domain: Domain, resolution: Resolution | None, where: str) -> tuple[int, ...]:
    """For each axis the r whose every r-th point gives this resolution.

    Args:
        resolution: Points of the first axis, the others have the same stride; or of each axis.

    Raises:
        DataError: If there are none; near resolutions are named.
    """
    shape, kinds = domain.shape, domain.kinds
    if resolution is None:
        return (1,) * len(shape)
    if isinstance(resolution, int):
        r = _stride(shape[0], resolution, kinds[0], where)
        wanted = tuple(-(-n // r) for n in shape)
        found = (r,) * len(shape)
    else:
        wanted = resolution
        if len(wanted) != len(shape):
            raise DataError(
                f"a resolution of {where} has {len(shape)} axes, got {_resolution_text(wanted)}"
            )
        found = tuple(
            _stride(n, m, kind, where) for n, m, kind in zip(shape, wanted, kinds, strict=True)
        )
    for n, m, kind, axis in zip(shape, wanted, kinds, domain.axes, strict=True):
        if m not in allowed_resolutions(n, kind):
            raise DataError(
                f"resolution {_resolution_text(resolution)} takes every {found[0]}-th point, which "
                f"leaves out the last of the {n} {kind} points along {axis} of {where}: "
                "give one resolution for each axis"
            )
    return found


def _stride(n: int, resolution: int, grid: str, where: str) -> int:
    allowed = allowed_resolutions(n, grid)
    if resolution not in allowed:
        near = sorted(sorted(allowed, key=lambda m: abs(m - resolution))[:6])
        raise DataError(
            f"resolution {resolution} is no subsample of the {n} {grid} points of {where}: "
            f"near ones are {', '.join(map(str, near))}"
        )
    if grid == "periodic":
        return n // resolution
    return (n - 1) // max(resolution - 1, 1) or 1


def _resolution_text(resolution: Resolution) -> str:
    return " x ".join(map(str, (resolution,) if isinstance(resolution, int) else resolution))


def _kind(domain: Domain) -> str:
    kinds = sorted(set(domain.kinds))
    return kinds[0] if len(kinds) == 1 else "mixed"
