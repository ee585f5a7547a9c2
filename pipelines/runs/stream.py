"""Training samples that are solved while an operator trains, each once. Epoch e of a training with
seed s has the samples (1 + s) 2³² + e N + 0 ... N-1 of the recipe, N to an epoch: no store has such
numbers, and no two trainings or epochs the same."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from operators.data import Batch, Map, Perturbation, Reader, Samples, Subsample
from operators.data.reading import Blocks, Rows, values_in
from operators.data.samples import quadrature
from operators.data.variables import Reduction, Values, names_of
from pdegen.numerics.one_thread import one_thread
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.variables import Variable
from pipelines.config.experiment import Experiment

APART = 2**32  # numbers of samples that each training seed has for itself
_SEEDS = 2**31 - 1  # of trainings: all numbers are below 2⁶³
_BLOCK = 8  # samples that a thread solves at a time, at least a batch
_BLOCK_ON_DEVICE = 256  # many at a time: a device is fast where its arrays are large
_POINTS_ON_DEVICE = 2**23  # but no more: an epoch begins by waiting for its first block
_THREADS = 8


def first_number(seed: int) -> int:
    """The first sample of the stream of a training seed."""
    return (1 + seed) * APART


@dataclass(frozen=True, kw_only=True)
class SolvedAhead(Reader):
    """Input and target functions of a recipe, solved ahead by threads while they are asked for.

    Its epochs are those of a training set that has no end. `samples`, and with it `parts`,
    `values` and `one`, are those of the first epoch; they are solved anew each time.

    Where `on` is a CUDA device, one thread samples and solves on a stream of the device of its
    own, beside the training, and only the noise visits the host. Threads run while
    an iterator is open; they end with it, and what goes wrong in them is raised by it.

    Args:
        on: The device of PyTorch that solves, such as "cuda"; None is NumPy, whose samples have
            the bits of a store of the recipe.
        threads: How many solve at a time.
        block: Samples that are solved at a time, but at least a batch.
    """

    recipe: Recipe
    kept: Subsample
    a: tuple[str, ...]
    u: tuple[str, ...]
    on: str | None = None
    threads: int = 1
    block: int = _BLOCK
    noise: Perturbation | None = None

    @property
    def channels(self) -> tuple[int, int]:
        axes = len(self.kept.domain.axes)
        a, u = (
            sum(math.prod(_variable(self.recipe, name).shape[:-axes]) for name in names)
            for names in (self.a, self.u)
        )
        return a + (0 if self.noise is None else self.noise.channels), u

    def __str__(self) -> str:
        return f"solved as they are needed, {len(self):,} new ones an epoch"

    def to(self, device: torch.device | str) -> SolvedAhead:
        return replace(self, device=torch.device(device))

    def rows(self, rows: Rows) -> SolvedAhead:
        return replace(self, samples=self.samples[rows])

    def disturbed(self, noise: Perturbation) -> SolvedAhead:
        return replace(self, noise=noise)

    def one(self, place: int) -> Batch:
        return next(self.rows(slice(place, place + 1)).parts(1))

    def parts(self, batch: int) -> Generator[Batch, None, None]:
        with closing(self._solved(self._first_epoch(batch))) as solved:
            yield from solved

    def values(self, which: Literal["a", "u"]) -> Iterable[Tensor]:
        return Blocks(partial(values_in, self.parts, which, self.block))

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        """As of `Samples`, but every epoch has samples of its own, in the order of their numbers.

        Each rank has a run of numbers without gaps, so that several batches are one block. Blocks
        are cut alike wherever the epoch begins: their size may show in the last digits on a device.
        """
        share = len(self) // ranks
        count, together = share // batch, max(1, self.block // batch)
        start = first_number(seed) + epoch * len(self) + rank * share
        whole = range(start, start + count * batch)
        skipped = first % together
        blocks = _cut(whole[(first - skipped) * batch :], together * batch)
        with closing(self._solved(blocks)) as solved:
            for block in solved:
                yield from islice(block.split(batch), skipped, None)
                skipped = 0

    def _first_epoch(self, block: int) -> Iterator[range]:
        first = int(self.samples[0])
        return _cut(range(first, first + len(self)), block)

    def _solved(self, blocks: Iterable[range]) -> Generator[Batch, None, None]:
        """The functions of each block, in order; those after it are in work or done meanwhile."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="solving")
        cuda = _beside(self.on) if torch.device(self.on or "cpu").type == "cuda" else None
        ahead: deque[Future[tuple[Batch, torch.Event | None]]] = deque()
        try:
            for numbers in blocks:
                ahead.append(pool.submit(self._solve, numbers, cuda))
                if len(ahead) > self.threads + 1:
                    yield self._received(ahead.popleft())
            while ahead:
                yield self._received(ahead.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _solve(
        self, numbers: range, cuda: torch.cuda.Stream | None
    ) -> tuple[Batch, torch.Event | None]:
        if cuda is None:
            with one_thread():
                return self._functions(numbers), None
        with torch.cuda.stream(cuda):
            functions = self._functions(numbers)
            return functions, cuda.record_event()

    def _received(self, future: Future[tuple[Batch, torch.Event | None]]) -> Batch:
        batch, done = future.result()
        if done is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(done)
            for values in batch.tensors():  # which the allocator gives away once they are used
                values.record_stream(current)
        return batch.to(self.device)

    def _functions(self, numbers: range) -> Batch:
        values = self.recipe.problem.solve_in_blocks(self.recipe.seed, numbers, self.on)
        a = self._function(values, self.a, self.kept.input)
        u = self._function(values, self.u, self.kept.target)
        if self.noise is not None:
            noisy = self.noise(a.cpu().numpy(), numbers, None)
            a = torch.from_numpy(noisy).to(a.device)
        own = [torch.as_tensor(values[name]).reshape(len(a), -1).float().to(a.device)
               for name in self._parameters]  # fmt: skip
        return Batch(a, u, parameters=torch.cat(own, dim=1) if own else None)

    @property
    def _parameters(self) -> list[str]:
        """Variables that are numbers of a sample, to learn from."""
        found = self.recipe.problem.variables()
        return [v.name for v in found if v.attributes.get("role") == "parameter"]

    def _function(
        self, values: Mapping[str, Values], names: Sequence[str], reduction: Reduction
    ) -> Float[Tensor, "block *grid c"]:
        def function(name: str) -> Tensor:
            v = torch.as_tensor(reduction(values[name])).float()
            first = v.ndim - len(self.kept.domain.axes)
            return v.reshape(len(v), -1, *v.shape[first:]).movedim(1, -1)

        found = [function(name) for name in names]
        return (found[0] if len(found) == 1 else torch.cat(found, dim=-1)).contiguous()


@lru_cache
def _beside(device: str | None) -> torch.cuda.Stream:
    """One stream for all epochs: PyTorch keeps the memory of each apart."""
    return torch.cuda.Stream(device)


def _cut(numbers: range, size: int) -> Iterator[range]:
    return (numbers[k : k + size] for k in range(0, len(numbers), size))


def _variable(recipe: Recipe, name: str) -> Variable:
    """A variable of a recipe that is a function on its grid. Raises SchemaError if it has none of
    that name."""
    axes = set(recipe.problem.domain.axes)
    functions = {v.name: v for v in recipe.problem.variables() if axes <= {*v.dims}}
    if name not in functions:
        raise SchemaError(
            f"recipe {recipe.name}: it has no function {name!r}, known: {', '.join(functions)}"
        )
    return functions[name]


def solved_pairs(experiment: Experiment, samples: int, device: torch.device) -> Samples:
    """The stream of an experiment; nothing is solved yet.

    Raises:
        SchemaError: If the recipe has not what the experiment asks for, its solver cannot run on
            the device, or the numbers of samples do not suffice.
        DataError: If the grid that the experiment asks for is no part of the recipe's.
        MissingSolverError: If the recipe's solver is not installed.
    """
    training, stream = experiment.training, experiment.data.stream
    assert stream is not None
    recipe, on = stream.load_recipe(), None if device.type == "cpu" else str(device)
    pairs = _pairs(recipe, experiment, samples, f"stream {recipe.name}")
    try:
        recipe.problem.check_solver(None if on is None else device.type)
    except SchemaError as error:
        raise SchemaError(f"{pairs.source['url']}: {error}") from error
    if training.epochs * samples > APART:
        raise SchemaError(
            f"{pairs.source['url']}: it has 2^32 samples for a training, got {training.epochs} "
            f"epochs of {samples}"
        )
    reader = pairs.reader
    if on is None:
        reader = replace(reader, threads=min(_THREADS, len(os.sched_getaffinity(0))))
        return replace(pairs, reader=reader)
    targets = names_of(pairs.source["target"])
    points = sum(math.prod(_variable(recipe, name).shape) for name in targets)
    block = max(1, min(_BLOCK_ON_DEVICE, _POINTS_ON_DEVICE // points))
    return replace(pairs, reader=replace(reader, on=on, block=block)).to(device)


def _pairs(recipe: Recipe, experiment: Experiment, samples: int, where: str) -> Samples:
    """What an experiment learns, of the samples of a recipe; solved by NumPy."""
    data, seed = experiment.data, experiment.training.seed
    input, target = experiment.variables
    for name in (*names_of(input), *names_of(target)):
        _variable(recipe, name)
    if seed >= _SEEDS:
        raise SchemaError(f"{where}: training.seed must be < {_SEEDS}, got {seed}")
    domain = recipe.problem.domain
    if domain.moves:
        raise SchemaError(
            f"{where}: the points of a stream are those of all samples, and here each sample has "
            "its own: make a store and train on that"
        )
    kept = Subsample.of(domain, data.resolution, data.target_resolution, where)
    source = {
        "url": where, "recipe": recipe.name, "fingerprint": recipe.fingerprint,
        "resolution": data.resolution, "input": input, "target": target,
        "target_resolution": data.target_resolution, "epoch_samples": samples,
    }  # fmt: skip
    numbers = first_number(seed) + np.arange(samples)
    return Samples(
        reader=SolvedAhead(
            samples=numbers,
            recipe=recipe,
            kept=kept,
            a=tuple(names_of(input)),
            u=tuple(names_of(target)),
        ),
        x=kept.x,
        y=kept.y,
        domain=kept.domain,
        weight=None if kept.y is not None else quadrature(kept.domain),
        source=source,
    )


def check_alike(pairs: Samples, stored: Samples) -> None:
    """Raise SchemaError unless a stream has functions of the kind and on the points of a store, on
    which its epoch is chosen."""
    where, there = pairs.source["url"], stored.source["url"]
    for what, found, wanted in (
        ("channels", pairs.channels, stored.channels),
        ("grid", pairs.grid, stored.grid),
        ("shape of the grid", pairs.domain.shape, stored.domain.shape),
    ):
        if found != wanted:
            raise SchemaError(
                f"{where} and {there}, where the epoch is chosen, differ: {what} {found}, {wanted}"
            )
    if not torch.allclose(pairs.points.cpu(), stored.points.cpu(), rtol=0, atol=1e-6):
        raise SchemaError(f"{where} and {there}, where the epoch is chosen, differ in their points")


def check_data(experiment: Experiment, device: torch.device) -> int:
    """The dimension of the domain of an experiment's recipe, before a store of it is made. Raises
    SchemaError or DataError if the experiment cannot be trained on the recipe, on the grids that it
    asks for, or on its stream."""
    data, batch = experiment.data, experiment.training.batch
    recipe = data.load_recipe()
    samples = data.epoch_samples or min(data.samples or recipe.splits.train, recipe.splits.train)
    if batch > samples and isinstance(experiment.learned, Map):
        raise SchemaError(f"batch {batch} is larger than the {samples} samples of an epoch")
    where, domain = f"recipe {recipe.name}", recipe.problem.domain
    experiment.check_applies(domain, where)
    for name in (name for names in experiment.variables for name in names_of(names)):
        _variable(recipe, name)
    (target, *_) = names_of(experiment.variables[1])
    dims, shape = _variable(recipe, target).dims, _variable(recipe, target).shape
    experiment.learned.check(shape[dims.index("time")] if "time" in dims else 0, where)
    for resolution in (data.resolution, *experiment.resolutions):
        Subsample.of(domain, resolution, data.target_resolution, where)
    if data.stream is None:
        return domain.dim
    pairs = solved_pairs(experiment, samples, device)
    check_alike(pairs, _pairs(recipe, experiment, samples, where))
    return domain.dim
