"""Training on stores larger than memory: whole shards are read ahead and shuffled in a buffer.

Each epoch permutes the shards and divides them into groups of a few shards, called windows. A
window is read into memory, and its samples are permuted. The order of the samples depends only on
the seed, the epoch, the processes, the shards and the size of the buffer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from operators.data.batch import Batch
from operators.data.errors import DataError
from operators.data.reading import Blocks, Perturbation, Reader, Resident, Rows
from operators.data.variables import Stacked
from operators.seeds import generator
from pdegen.domains import Cloud, Domain

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
        """The shards of one rank in random order.

        The permuted shards are a sequence of samples, which is divided equally among the ranks. A
        rank may therefore have only some of the samples of its first shard and of its last shard.
        """
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
        """Yield the values of the entries in each window, as one array for each entry.

        Two windows are in memory at a time. The arrays of a window are overwritten two windows
        later.
        """
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
        """Yield the values of the entries in each window, as one array for each entry.

        With two buffers, threads read the next window into one buffer while the caller uses the
        other.

        Args:
            windows: The pieces of shards in each window.
            entries: The variables.
            epoch: Number of the epoch, which selects the noise; None outside a training.
            memory: One or two buffers, each a list with one array for each variable.
        """
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="reading")

        def submitted(number: int) -> list[Future[None]]:
            return [
                pool.submit(self._fill, entry, piece, epoch, values)
                for piece, *rows in _in_rows(windows[number], memory[number % len(memory)])
                for entry, values in zip(entries, rows, strict=True)
            ]

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


def _in_rows(pieces: list[Piece], values: list[np.ndarray]) -> Iterator[tuple[Any, ...]]:
    """Each piece with its rows of the arrays `values`, which contain the pieces in order."""
    start = 0
    for piece in pieces:
        yield piece, *(v[start : start + len(piece)] for v in values)
        start += len(piece)
