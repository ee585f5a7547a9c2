"""Variables of a sealed store, read shard by shard at a resolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from operators.data.batch import Channel
from operators.data.errors import DataError, one_line
from operators.data.resolution import Reduction, Strided
from pdegen.store.reading import Array, Shards, Store, open_sealed


def open_store(url: str) -> Store:
    """Open the sealed store at a path or fsspec URL. Raises DataError if this fails."""
    try:
        return open_sealed(url)
    except (ValueError, OSError) as error:
        raise DataError(one_line(error)) from None


@dataclass(frozen=True)
class StoredVariable:
    """A variable of a store. Each sample is a function on the domain or a list of numbers.

    The object has no open files.

    Args:
        shards: The chunks of the array.
        row: Shape of the stored values of one sample.
        axes: Number of trailing axes of `row` that belong to the domain; 0 for numbers.
        level: Index of the noise level along the first axis of `row`; None if the variable has no
            noise levels.
        reduction: Subsampling or averaging of the stored values.
        channels: Descriptions of the channels.
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
        """A stored variable at all its points.

        Args:
            level: Noise level; ignored if the variable has no noise levels.
            axes: Names of the trailing axes that belong to the domain; empty for numbers.

        Raises:
            DataError: If the variable or the noise level is missing, or if the axes are in an
                unexpected order.
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
        """Shape (*grid, channels) of one sample.

        The channels are all components at the first time, then all at the second time, and so on.
        """
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
            self._read(samples, out)
        except Exception as error:  # stores and codecs raise many types on damaged data
            reason = one_line(error).removeprefix(f"{self.url}: ")
            raise DataError(f"{damaged} ({reason}); pdegen verify names the shards") from error
        if not self.shards.finite(samples) and not np.isfinite(out).all():
            raise DataError(f"{damaged} (values are missing); pdegen verify names the shards")

    def _read(self, samples: np.ndarray, out: np.ndarray) -> None:
        """Read samples of one shard into `out`. Values that are not finite are no error."""
        channels = self.shape[-1]
        if self.level is None and self.reduction.keeps_all and channels == 1:
            for _ in self.shards.pieces(samples, out.reshape(len(out), *self.row)):
                pass
            return
        for rows, piece in self.shards.pieces(samples):
            values = piece if self.level is None else piece[:, self.level]
            shape = (len(values), channels, *values.shape[values.ndim - self.axes :])
            out[rows] = np.moveaxis(self.reduction(values.reshape(shape)), 1, -1)


@dataclass(frozen=True)
class Stacked:
    """Variables of a store, concatenated as the channels of one field of a `Batch`."""

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
        """The same variables with another subsampling or averaging."""
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
    """Convert one name, or a sequence of names, to a list."""
    return [variables] if isinstance(variables, str) else [*variables]


def array_of(store: Store, name: str) -> Array:
    """A variable of a store. Raises DataError if the store has no variable of this name."""
    if name not in store.arrays:
        raise DataError(f"{store.url} has no variable {name}")
    return store.arrays[name]


def channels_of(store: Store, name: str, axes: int) -> tuple[Channel, ...]:
    """Descriptions of the channels of a variable, ordered by time and then by component.

    Args:
        axes: Number of trailing axes that belong to the domain.
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
