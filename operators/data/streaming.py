"""Whole shards read ahead, shuffled in a buffer: training on stores larger than memory.

The order of an epoch is a function of (seed, epoch), of how the samples lie in shards, and of the
size of the buffer: shards are permuted and taken in windows of a few, which lie in memory at once,
and the samples of a window are permuted. So any batch can be found without reading those before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from operators.data.batch import Batch
from operators.data.metadata import DataError, location
from operators.data.pairs import Pairs, Samples, check_rank
from operators.data.variables import Variable
from operators.seeds import generator

Piece = range  # places of samples of one shard, among all
Alteration = Callable[[np.ndarray, Sequence[int], int | None], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class StreamedPairs(Samples):
    """Input and target functions that stay in their store, and are read again in every epoch.

    It can be pickled and sent to processes however they are started: files are opened where it is
    iterated. Its threads run while an iterator is open; they end with it, and what goes wrong in
    them is raised by it.

    Args:
        a, u: The variables of inputs and targets.
        window: Shards that are shuffled together. Memory has two such windows: one is used while
            the next is read.
        threads: How many shards are read at once.
        altered: What happens to inputs: (values, places of the samples among all, epoch) ->
            values of the same shape, such as with noise. The epoch is None outside training.
    """

    a: Variable
    u: Variable
    window: int
    threads: int = 4
    altered: Alteration | None = None

    @property
    def channels(self) -> tuple[int, int]:
        return self.a.shape[-1], self.u.shape[-1]

    @property
    def reading(self) -> str:
        return f"streamed, {min(self.window, len(self._shards))} shards shuffled together"

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and targets in float32, as `resident` has them."""
        return len(self) * _row_bytes(self.a, self.u)

    def to(self, device: torch.device | str) -> StreamedPairs:
        return replace(self, **self._on(device))

    def resident(self) -> Pairs:
        """All of them in memory.

        Raises:
            DataError: If the data cannot be read, or are too large.
        """
        try:
            values = [np.empty((len(self), *v.shape), np.float32) for v in (self.a, self.u)]
        except MemoryError:
            raise DataError(
                f"{self.source['url']}: {len(self)} samples need {self.nbytes:,} bytes, more than "
                "the memory: stream them"
            ) from None
        for _ in self._read([self._shards], (self.a, self.u), None, [values]):
            pass
        a, u = (torch.from_numpy(v).to(self.device) for v in values)
        shared = {field.name: getattr(self, field.name) for field in fields(Samples)}
        return Pairs(**shared, a=a, u=u)

    def first(self) -> Batch:
        return next(replace(self, samples=self.samples[:1]).parts(1))

    def parts(self, batch: int) -> Generator[Batch, None, None]:
        windows = self._grouped(self._shards)
        with closing(self._windows(windows, (self.a, self.u), None)) as loaded:
            for a, u in loaded:
                for start in range(0, len(a), batch):
                    rows = slice(start, start + batch)
                    yield Batch(self._sent(a[rows].copy()), self._sent(u[rows].copy()))

    @property
    def inputs(self) -> Iterable[Tensor]:
        return _Blocks(self, self.a)

    @property
    def targets(self) -> Iterable[Tensor]:
        return _Blocks(self, self.u)

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        check_rank(rank, ranks)
        windows = list(enumerate(self._grouped(self._shuffled(seed, epoch, rank, ranks))))
        left, skipped = len(self) // ranks // batch - first, first * batch
        while left > 0 and skipped >= (size := sum(map(len, windows[0][1]))):
            skipped -= size
            del windows[0]
        if left <= 0:
            return
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        missing = batch
        loaded = self._windows([window for _, window in windows], (self.a, self.u), epoch)
        with closing(loaded):
            for (number, _), (a, u) in zip(windows, loaded, strict=True):
                order = torch.randperm(len(a), generator=generator(seed, 2, epoch, number)).numpy()
                start, skipped = skipped, 0
                while start < len(order):
                    chosen = order[start : start + missing]
                    start += missing
                    missing -= len(chosen)
                    parts.append((a[chosen], u[chosen]))
                    if missing == 0:
                        yield Batch(*(self._sent(*v) for v in zip(*parts, strict=True)))
                        parts, missing, left = [], batch, left - 1
                        if left == 0:
                            return

    @cached_property
    def _shards(self) -> list[Piece]:
        """The places of the samples of each shard, in order."""
        shard = self.samples // self.a.shards.samples
        starts = [0, *(np.flatnonzero(np.diff(shard)) + 1).tolist(), len(self)]
        return [range(i, j) for i, j in itertools.pairwise(starts)]

    def _shuffled(self, seed: int, epoch: int, rank: int, ranks: int) -> list[Piece]:
        """The shards of a rank in random order; at the ends, parts of shards.

        All shards in random order are one line of samples, cut into equal lengths.
        """
        order = torch.randperm(len(self._shards), generator=generator(seed, 0, epoch)).tolist()
        start, stop = (len(self) * k // ranks for k in (rank, rank + 1))
        pieces, passed = [], 0
        for k in order:
            shard = self._shards[k]
            piece = shard[max(start - passed, 0) : max(stop - passed, 0)]
            pieces += [piece] if len(piece) else []
            passed += len(shard)
        return pieces

    def _grouped(self, pieces: list[Piece]) -> list[list[Piece]]:
        return [pieces[k : k + self.window] for k in range(0, len(pieces), self.window)]

    def _windows(
        self, windows: list[list[Piece]], variables: tuple[Variable, ...], epoch: int | None
    ) -> Generator[list[np.ndarray], None, None]:
        """Values of the variables in each window; those of the next but one replace them."""
        rows = max(sum(map(len, window)) for window in windows)
        memory = [
            [np.empty((rows, *v.shape), np.float32) for v in variables]
            for _ in range(min(2, len(windows)))
        ]
        return self._read(windows, variables, epoch, memory)

    def _read(
        self,
        windows: list[list[Piece]],
        variables: tuple[Variable, ...],
        epoch: int | None,
        memory: list[list[np.ndarray]],
    ) -> Generator[list[np.ndarray], None, None]:
        """Fills the memories in turn, each while the one before is used."""
        files, root = location(self.source["url"])
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="reading")

        def started(number: int) -> list[Future[None]]:
            return [
                pool.submit(self._fill, files, root, variable, piece, epoch, values)
                for piece, *rows in _in_rows(windows[number], memory[number % len(memory)])
                for variable, values in zip(variables, rows, strict=True)
            ]

        try:
            reading = started(0)
            for number, window in enumerate(windows):
                for future in reading:
                    future.result()
                if number + 1 < len(windows):
                    reading = started(number + 1)
                size = sum(map(len, window))
                yield [values[:size] for values in memory[number % len(memory)]]
        finally:
            pool.shutdown(cancel_futures=True)

    def _fill(
        self, files: Any, root: str, variable: Variable, piece: Piece, epoch: int | None,
        out: np.ndarray,
    ) -> None:  # fmt: skip
        variable.read(files, root, self.samples[piece.start : piece.stop], out)
        if variable is self.a and self.altered is not None:
            out[...] = self.altered(out, piece, epoch)

    def _sent(self, *parts: np.ndarray) -> Tensor:
        values = torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))
        if self.device.type == "cuda":  # from pinned memory, beside the computation
            return values.pin_memory().to(self.device, non_blocking=True)
        return values.to(self.device)


@dataclass(frozen=True)
class _Blocks:
    """All values of one variable in blocks, each time they are iterated.

    The memory of a block is used again for the next but one.
    """

    pairs: StreamedPairs
    variable: Variable

    def __iter__(self) -> Iterator[Float[Tensor, "block *grid c"]]:
        windows = self.pairs._grouped(self.pairs._shards)
        with closing(self.pairs._windows(windows, (self.variable,), None)) as loaded:
            for (values,) in loaded:
                yield torch.from_numpy(values)


def shards_within(size: int, a: Variable, u: Variable) -> int:
    """How many shards of inputs and targets have at most so many bytes in float32; one at least."""
    return max(1, size // (a.shards.samples * _row_bytes(a, u)))


def _row_bytes(a: Variable, u: Variable) -> int:
    return 4 * (int(np.prod(a.shape)) + int(np.prod(u.shape)))


def _in_rows(pieces: list[Piece], values: list[np.ndarray]) -> Iterator[tuple[Any, ...]]:
    """Each piece with the rows that are its own, one piece after another."""
    start = 0
    for piece in pieces:
        yield piece, *(v[start : start + len(piece)] for v in values)
        start += len(piece)
