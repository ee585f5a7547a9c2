"""A variable of a store -> its functions on the grid that was asked for, shard by shard."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from operators.data.batch import Channel
from operators.data.store import DataError, one_line
from operators.data.subsample import Reduction, Strided
from pdegen.store.reading import Array, Shards, Store


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
        """Read some samples of one shard.

        Raises:
            DataError: If the data are damaged, missing, or cannot be read.
        """
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
        if self.level is None and self.reduction.whole and channels == 1:
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
        parts = array.said.channels if len(array.said.channels) == count else range(count)
        parts = [str(part) for part in parts]
    how = store.said.physics.drawing.get(name)
    moves = how is not None and how.moves
    return tuple(Channel(name, part, time, moves) for time in times for part in parts)
