"""Open a sealed store as pairs of input and target functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.base import generator
from operators.data.resolution import DataError, Reduction, Resolution, Strided, Subsample, one_line
from operators.data.samples import (
    Batch,
    Blocks,
    Channel,
    Perturbation,
    Reader,
    Resident,
    Rows,
    Samples,
    quadrature,
)
from pdegen.domains import Box, Cloud, Domain
from pdegen.software import cores
from pdegen.store.format import ParameterLaw
from pdegen.store.reading import Array, Shards, Store, StoreError, open_sealed

# Variables of a sealed store, read shard by shard at a resolution.


def open_store(store: str | Store) -> Store:
    """Open the sealed store at a path or fsspec URL, if it is not open already. Raises DataError
    if this fails."""
    try:
        return open_sealed(store)
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
        """Shape (*grid, channels) of one sample."""
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


# Training on stores larger than memory: whole shards are read ahead and shuffled in a buffer.


Piece = range  # indices of samples of one shard, among all samples


@dataclass(frozen=True, kw_only=True)
class Streamed(Reader):
    """A reader of samples that stay in their store and are read again in every epoch.

    The reader can be pickled, because it opens files only during iteration. Reading threads run
    until the iterator is closed. The iterator raises the errors of its threads.

    Args:
        per_sample: Other variables that differ by sample; the keys are field names of `Batch`. The
            variable "weight" has one channel. The variable "mask" contains the number of points of
            each sample.
        a, u: Variables of inputs and targets.
        domain: Domain of the inputs at the chosen resolution.
        window: Number of shards that are shuffled together. Memory contains two windows, because
            the next window is read while the current one is used.
        threads: Number of threads that read the variables of shards.
        noise: Noise on the inputs; None for no noise.
        target_noise: Noise on the targets, the same in every epoch; None for no noise.
        weighted: Whether points that differ by sample have quadrature weights; otherwise all points
            count alike.
    """

    url: str
    a: Stacked
    u: Stacked
    domain: Domain
    window: int
    per_sample: Mapping[str, Stacked] = field(default_factory=dict[str, Stacked])
    threads: int = 4
    noise: Perturbation | None = None
    target_noise: Perturbation | None = None
    weighted: bool = True

    @property
    def channels(self) -> tuple[int, int]:
        return self._shape(self.a)[-1], self.u.shape[-1]

    def _shape(self, entry: Stacked) -> tuple[int, ...]:
        """Shape of one sample of `entry`. Inputs include the channels that noise appends."""
        *grid, channels = entry.shape
        level_channels = self.noise.channels if self.noise is not None and entry is self.a else 0
        return (*grid, channels + level_channels)

    def __str__(self) -> str:
        return f"streamed, {min(self.window, len(self._shards))} shards shuffled together"

    @property
    def nbytes(self) -> int:
        """Size in bytes of all samples as float32."""
        return len(self) * _row_bytes(*self._entries.values())

    @property
    def masked(self) -> bool:
        return "mask" in self.per_sample

    @property
    def _entries(self) -> dict[str, Stacked]:
        return {"a": self.a, "u": self.u, **self.per_sample}

    def to(self, device: torch.device | str) -> Streamed:
        return replace(self, device=torch.device(device))

    def rows(self, rows: Rows) -> Streamed:
        return replace(self, samples=self.samples[rows])

    def with_noise(self, noise: Perturbation) -> Streamed:
        return replace(self, noise=noise)

    def with_target_noise(self, noise: Perturbation) -> Streamed:
        return replace(self, target_noise=noise)

    def resident(self) -> Resident:
        if self.noise is not None and self.noise.fresh:
            return replace(self, noise=None).resident().with_noise(self.noise)
        try:
            shapes = [(len(self), *self._shape(v)) for v in self._entries.values()]
            values = [np.empty(shape, np.float32) for shape in shapes]
        except MemoryError:
            raise DataError(
                f"{self.url}: {len(self)} samples need {self.nbytes:,} bytes, more than "
                "the memory: stream them"
            ) from None
        for _ in self._read([self._shards], self._entries.values(), None, [values]):
            pass
        all = self._batch(*(torch.as_tensor(v).to(self.device) for v in values))
        return Resident(
            a=all.a, u=all.u, per_sample=all.per_sample, samples=self.samples, device=self.device
        )

    def sample(self, index: int) -> Batch:
        return next(self.rows(slice(index, index + 1)).in_order(1))

    def in_order(self, batch: int) -> Generator[Batch, None, None]:
        windows = self._grouped(self._shards)
        with closing(self._windows(windows, self._entries.values(), None)) as loaded:
            for values in loaded:
                for start in range(0, len(values[0]), batch):
                    rows = slice(start, start + batch)
                    yield self._batch(*(self._sent(v[rows].copy()) for v in values))

    def values(self, which: Literal["a", "u"]) -> Iterable[Tensor]:
        return Blocks(partial(self._values, self._entries[which]))

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        windows = list(enumerate(self._grouped(self._shuffled(seed, epoch, rank, ranks))))
        left, skipped = len(self) // ranks // batch - first, first * batch
        while left > 0 and skipped >= (size := sum(map(len, windows[0][1]))):
            skipped -= size
            del windows[0]
        if left <= 0:
            return
        parts: list[tuple[np.ndarray, ...]] = []
        missing = batch
        entries = self._entries.values()
        loaded = self._windows([window for _, window in windows], entries, epoch)
        with closing(loaded):
            for (number, _), values in zip(windows, loaded, strict=True):
                order = torch.randperm(
                    len(values[0]), generator=generator(seed, 2, epoch, number)
                ).numpy()
                start, skipped = skipped, 0
                while start < len(order):
                    chosen = order[start : start + missing]
                    start += missing
                    missing -= len(chosen)
                    parts.append(tuple(v[chosen] for v in values))
                    if missing == 0:
                        yield self._batch(*(self._sent(*v) for v in zip(*parts, strict=True)))
                        parts, missing, left = [], batch, left - 1
                        if left == 0:
                            return

    def _values(self, entry: Stacked) -> Iterator[Float[Tensor, "block *grid c"]]:
        """All values of `entry`, in blocks; block k + 2 overwrites the memory of block k."""
        windows = self._grouped(self._shards)
        with closing(self._windows(windows, (entry,), None)) as loaded:
            for (values,) in loaded:
                yield torch.as_tensor(values)

    @cached_property
    def _shards(self) -> list[Piece]:
        """Index ranges of the samples in each shard, in order."""
        shard = self.samples // self.a.variables[0].shards.samples
        starts = [0, *(np.flatnonzero(np.diff(shard)) + 1).tolist(), len(self)]
        return [range(i, j) for i, j in itertools.pairwise(starts)]

    def _shuffled(self, seed: int, epoch: int, rank: int, ranks: int) -> list[Piece]:
        """The shards of one rank in random order."""
        order = torch.randperm(len(self._shards), generator=generator(seed, 0, epoch)).numpy()
        start, stop = (len(self) * k // ranks for k in (rank, rank + 1))
        pieces, passed = list[Piece](), 0
        for k in order:
            shard = self._shards[int(k)]
            piece = shard[max(start - passed, 0) : max(stop - passed, 0)]
            pieces += [piece] if len(piece) else []
            passed += len(shard)
        return pieces

    def _grouped(self, pieces: list[Piece]) -> list[list[Piece]]:
        """Group consecutive shards, or parts of shards, into windows."""
        return [pieces[k : k + self.window] for k in range(0, len(pieces), self.window)]

    def _windows(
        self, windows: list[list[Piece]], entries: Collection[Stacked], epoch: int | None
    ) -> Generator[list[np.ndarray], None, None]:
        """Yield the values of the entries in each window, as one array for each entry."""
        rows = max(sum(map(len, window)) for window in windows)
        memory = [
            [np.empty((rows, *self._shape(v)), np.float32) for v in entries]
            for _ in range(min(2, len(windows)))
        ]
        return self._read(windows, entries, epoch, memory)

    def _read(
        self,
        windows: list[list[Piece]],
        entries: Collection[Stacked],
        epoch: int | None,
        memory: list[list[np.ndarray]],
    ) -> Generator[list[np.ndarray], None, None]:
        """Yield the values of the entries in each window, as one array for each entry."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="reading")

        def submitted(number: int) -> list[Future[None]]:
            futures, start = list[Future[None]](), 0
            for piece in windows[number]:
                rows = slice(start, start + len(piece))
                for entry, values in zip(entries, memory[number % len(memory)], strict=True):
                    futures.append(pool.submit(self._fill, entry, piece, epoch, values[rows]))
                start += len(piece)
            return futures

        try:
            reading = submitted(0)
            for number, window in enumerate(windows):
                for future in reading:
                    future.result()
                if number + 1 < len(windows):
                    reading = submitted(number + 1)
                size = sum(map(len, window))
                yield [values[:size] for values in memory[number % len(memory)]]
        finally:
            pool.shutdown(cancel_futures=True)

    def _fill(self, entry: Stacked, piece: Piece, epoch: int | None, out: np.ndarray) -> None:
        """Read the samples `piece` of `entry` into `out`. Add noise to inputs and targets."""
        samples = self.samples[piece.start : piece.stop]
        noise = {id(self.a): self.noise, id(self.u): self.target_noise}.get(id(entry))
        if noise is None:
            entry.read(samples, out)
            return
        values = np.empty((len(samples), *entry.shape), np.float32) if noise.channels else out
        entry.read(samples, values)
        out[...] = noise(values, samples.tolist(), epoch)

    def _batch(self, a: Tensor, u: Tensor, *values: Tensor) -> Batch:
        """Create a batch from the values of its fields; compute masks and quadrature weights."""
        per_sample = dict(zip(self.per_sample, values, strict=True))
        if "mask" in per_sample:
            points = torch.arange(a.shape[1], device=a.device)
            per_sample["mask"] = points < per_sample["mask"]
        if self.weighted and self.domain.moves and "weight" not in per_sample:
            per_sample |= sample_weights(self.domain, per_sample["x"])
        elif "weight" in per_sample:
            per_sample["weight"] = per_sample["weight"][..., 0]
        return Batch(a, u, **per_sample)

    def _sent(self, *parts: np.ndarray) -> Tensor:
        """Concatenate arrays and copy them to the device."""
        values = torch.as_tensor(parts[0] if len(parts) == 1 else np.concatenate(parts))
        if self.device.type == "cuda":  # pinned memory is copied while the device computes
            return values.pin_memory().to(self.device, non_blocking=True)
        return values.to(self.device)


def sample_weights(domain: Domain, x: Float[Tensor, "batch *grid dim"]) -> dict[str, Tensor]:
    """Quadrature weights for points that differ by sample, normalised to mean 1.

    Returns:
        A dict with the key "weight"; empty for clouds without triangles, whose points count alike.
    """
    if isinstance(domain, Cloud) and domain.triangles is None:
        return {}
    weights = np.stack([domain.at(points).weights for points in x.cpu().double().numpy()])
    weights /= weights.mean(axis=tuple(range(1, weights.ndim)), keepdims=True)
    return {"weight": torch.as_tensor(weights.astype(np.float32)).to(x.device)}


def shards_within(size: int, *entries: Stacked) -> int:
    """Number of shards whose values of all `entries`, as float32, fit into `size` bytes; >= 1."""
    return max(1, size // (entries[0].variables[0].shards.samples * _row_bytes(*entries)))


def _row_bytes(*entries: Stacked) -> int:
    """Size in bytes of one sample of all `entries` together, as float32."""
    return 4 * sum(math.prod(entry.shape) for entry in entries)


BUFFER_BYTES = 2**28  # size of the shuffle buffer of streamed samples
_THREADS = 4  # largest number of threads that read


def open_pairs(
    url: str | Store,
    split: str | tuple[int, int],
    resolution: Resolution | None = None,
    *,
    input: str | Sequence[str] | None = None,
    target: str | Sequence[str] | None = None,
    target_resolution: Resolution | None = None,
    level: float | None = None,
    buffer: int = BUFFER_BYTES,
    weighted: bool = True,
) -> Samples:
    """Open the samples of a split. Their values are read from the store during iteration.

    Samples that the store lists as skipped are left out. `read_pairs` reads all values at once.

    Args:
        url: URL or path of a sealed store, or the opened store.
        split: Name of a split, or the pair (first sample, last sample + 1).
        resolution: Number of points along the first axis, or a tuple with a number for each axis.
            By default, all n points of each axis are used. A smaller number keeps every r-th
            point, without averages. The whole number r is n/resolution on a periodic axis. On other
            axes it is (n - 1)/(resolution - 1), so both ends are kept: of 421 points, 211, 141 or
            85 can be kept. A single number gives one r for all axes. Clouds keep all points.
        input, target: Name or names of the variables, which are concatenated as channels. By
            default the inputs are all functions with the role input. If no function has this
            role, the inputs are the positions of the points. The default target is the first
            function with the role target. In a store without roles, the input is `a` and the
            target is `u`.
        target_resolution: Number of cells along the first axis, or a tuple with a number for each
            axis. The target is averaged over each cell, and its points are the centres of the
            cells. A single number coarsens all axes by the same ratio. By default the target has
            the points of the input, without averages.
        level: Noise level; required if a variable is stored at several noise levels.
        buffer: Size of the shuffle buffer in bytes; it has room for at least one shard.
        weighted: Whether points of meshes and clouds have quadrature weights; otherwise all points
            count alike.

    Raises:
        DataError: If the store is missing, unfinished, invalid or of another kind, or if no sample
            is left. Also if the split, a variable or the noise level is unknown, if a resolution
            does not fit the store, or if the variables have different axes.
    """
    store = open_store(url if isinstance(url, Store) else str(url))
    samples = _sample_numbers(store, split)
    if input is None:
        input = _of_role(store, "input")
        input = input[0] if len(input) == 1 else input
    if target is None:
        target = _of_role(store, "target")[0]
    inputs, targets = names_of(input), names_of(target)
    axes = _axes(store, inputs + targets)
    a, u = (_stacked(store, names, axes, level) for names in (inputs, targets))
    if level is not None and all(v.level is None for v in (*a.variables, *u.variables)):
        raise DataError(f"{store.url} has no noise levels, got level {level}")
    try:
        domain = store.domain(axes)
    except StoreError as error:
        raise DataError(str(error)) from None
    lines = [store.coordinates[axis] for axis in axes] if isinstance(domain, Box) else None
    subsample = Subsample.of(domain, resolution, target_resolution, store.url, lines)
    first = domain.shape[0] if resolution is None else resolution
    source = {
        "url": store.url,
        "recipe": store.metadata.recipe.name,
        "fingerprint": store.metadata.fingerprint,
        "content": store.metadata.content,
        "resolution": first if isinstance(first, int) else list(first),
        "input": input if isinstance(input, str) else inputs,
        "target": target if isinstance(target, str) else targets,
        "target_resolution": target_resolution,
        "level": level,
    }
    if laws := store.metadata.physics.parameters:
        source["parameters"] = list(laws)
    return _streamed(store, samples, a, u, domain, subsample, buffer, weighted, source)


def _streamed(
    store: Store,
    samples: np.ndarray,
    a: Stacked,
    u: Stacked,
    domain: Domain,
    subsample: Subsample,
    buffer: int,
    weighted: bool,
    source: dict[str, Any],
) -> Samples:
    """Samples that are streamed from a store, at the points of a subsample."""
    a, u = a.reduced(subsample.input), u.reduced(subsample.target)
    per_sample = _per_sample(store, domain, subsample)
    window = shards_within(buffer, a, u, *per_sample.values())
    shared_weight = weighted and subsample.y is None and "weight" not in per_sample
    if not weighted:
        per_sample.pop("weight", None)
    # several threads for each core only if they wait for a server
    threads = cores() if store.objects.is_local else _THREADS
    reader = Streamed(
        url=store.url, a=a, u=u, per_sample=per_sample, samples=samples, domain=subsample.domain,
        window=window, weighted=weighted, threads=min(_THREADS, threads),
    )  # fmt: skip
    return Samples(
        reader=reader,
        x=subsample.x,
        y=subsample.y,
        domain=subsample.domain,
        target_domain=subsample.target_domain,
        stored_domain=subsample.stored,
        weight=quadrature(subsample.domain) if shared_weight else None,
        input_channels=a.channels,
        target_channels=u.channels,
        near=store.metadata.physics.near,
        parameter_laws=_parameter_laws(store, per_sample),
        source=source,
    )


def _sample_numbers(store: Store, split: str | tuple[int, int]) -> np.ndarray:
    """Numbers of the samples in a split or in a range, without the skipped samples."""
    url, metadata = store.url, store.metadata
    if isinstance(split, str) and split not in metadata.splits:
        raise DataError(f"{url} has no split {split!r}: known are {', '.join(metadata.splits)}")
    start, stop = metadata.splits[split] if isinstance(split, str) else split
    if not 0 <= start < stop <= metadata.samples:
        raise DataError(
            f"{url} has samples 0 to {metadata.samples - 1}, got the range {start} to {stop - 1}"
        )
    samples = np.setdiff1d(np.arange(start, stop), metadata.skipped)
    if not len(samples):
        raise DataError(f"{url}: all samples {start} to {stop - 1} were skipped")
    return samples


def _of_role(store: Store, role: str) -> list[str]:
    """Names of the functions that have a role in the store."""
    description = store.description
    names = [
        name
        for name, variable in description.variables.items()
        if variable.metadata.role == role and description.axes_of(variable)
    ]
    if not names and role == "input":
        names = [name for name, v in description.variables.items() if v.metadata.role == "geometry"]
    return names or [{"input": "a", "target": "u"}[role]]


def _axes(store: Store, names: list[str]) -> tuple[str, ...]:
    """Names of the domain axes. Raises DataError if the functions have different axes."""
    axes_of = {name: store.description.axes_of(array_of(store, name)) for name in names}
    first, shared = next(iter(axes_of.items()))
    for name, axes in axes_of.items():
        if not axes:
            raise DataError(f"{store.url}: {name} is not a function on a grid")
        if axes != shared:
            raise DataError(
                f"{store.url}: {first} is a function of {', '.join(shared)}, {name} of "
                f"{', '.join(axes)}: input and target must have the same axes"
            )
    return shared


def _stacked(
    store: Store, names: list[str], axes: tuple[str, ...] = (), level: float | None = None
) -> Stacked:
    """Variables of a store at all points, concatenated as channels."""
    return Stacked(tuple(StoredVariable.of(store, name, level, axes) for name in names))


def _per_sample(store: Store, domain: Domain, subsample: Subsample) -> dict[str, Stacked]:
    """The variables that differ by sample: positions, weights, masks and parameters."""
    names_by_role = dict[str, list[str]]()
    for name, array in store.description.variables.items():
        names_by_role.setdefault(array.metadata.role, []).append(name)
    entries = dict[str, Stacked]()
    if domain.moves:
        positions = [*("x", "y", "z")[: domain.dim]]
        missing = [name for name in positions if name not in names_by_role.get("geometry", [])]
        if missing:
            raise DataError(f"{store.url} has no variable {missing[0]} of the role geometry")
        entries["x"] = _stacked(store, positions, domain.axes).reduced(subsample.input)
    if "weight" in names_by_role and subsample.target.keeps_all:  # weights of a part are not stored
        entries["weight"] = _stacked(store, names_by_role["weight"][:1], domain.axes)
    if "count" in names_by_role:
        entries["mask"] = _stacked(store, names_by_role["count"][:1])
    if "parameter" in names_by_role:
        entries["parameters"] = _stacked(store, names_by_role["parameter"])
    return entries


def _parameter_laws(
    store: Store, per_sample: Mapping[str, Stacked]
) -> tuple[ParameterLaw | None, ...]:
    """The law of each parameter of a sample, in the order of `Batch.parameters`."""
    if "parameters" not in per_sample:
        return ()
    laws = store.metadata.physics.parameters
    return tuple(
        laws.get(variable.shards.array.name)
        for variable in per_sample["parameters"].variables
        for _ in range(variable.shape[-1])
    )


def read_pairs(
    url: str | Store,
    split: str | tuple[int, int],
    resolution: Resolution | None = None,
    **options: Any,
) -> Samples:
    """Read a split into memory. The arguments are those of `open_pairs`.

    Raises:
        DataError: See `open_pairs`; also if the data are damaged or missing.
    """
    return open_pairs(url, split, resolution, **options).resident()
