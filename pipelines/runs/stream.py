"""Streams of training samples, which are solved during training and used once.

Let s be the seed of a training, N the number of samples per epoch, and K the number of random
streams per sample (`Problem.streams_per_sample`). Epoch e uses the samples with numbers
(1 + s) K 2³² + e N + i for 0 <= i < N. Sample n uses the streams of n + k 2³² for 0 <= k < K, and
stores have samples below 2³². Hence stores, trainings with different seeds, and epochs share no
stream.
"""

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
from operators.data.mixed import containing
from operators.data.reading import Blocks, Rows, values_in
from operators.data.resolution import Reduction, Values
from operators.data.samples import quadrature
from operators.data.variables import names_of
from pdegen.equations.base import Problem
from pdegen.numerics.one_thread import one_thread
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.format import ParameterLaw
from pdegen.store.variables import Variable
from pipelines.config.experiment import Experiment
from pipelines.runs.noise import check_noise

APART = 2**32  # largest number of samples of a training
_BLOCK = 8  # samples that a thread solves at a time; at least a batch
_BLOCK_ON_DEVICE = 256  # a GPU is fast on large arrays
_POINTS_ON_DEVICE = 2**23  # limit of a block, because an epoch starts by waiting for its first one
_THREADS = 8


def first_number(seed: int, problem: Problem) -> int:
    """Number of the first sample in the stream of a training seed."""
    return (1 + seed) * problem.streams_per_sample * APART


@dataclass(frozen=True, kw_only=True)
class SolvedAhead(Reader):
    """Input and target functions of a recipe, solved ahead by threads.

    Every epoch has new samples. `batches` returns the samples of any epoch. `samples`, `sample`,
    `in_order` and `values` refer to the first epoch, whose samples are solved again at each access.

    If `on` is a CUDA device, the samples are drawn and solved on a separate CUDA stream,
    concurrently with the training. Only noise is added on the CPU. Threads run while an iterator is
    open, and the iterator raises their errors.

    Args:
        recipe: The recipe of the samples.
        kept: Subsample of the recipe's grid. Inputs and targets have values at its points.
        a, u: Names of the input and target variables.
        on: PyTorch device of the solver, such as "cuda". None solves with NumPy and gives bitwise
            the values in a store of the recipe.
        threads: Number of solving threads.
        block: Number of samples that are solved at a time; at least a batch.
        noise: Noise on the inputs; by default none.
        target_noise: Noise on the targets; by default none.
    """

    recipe: Recipe
    kept: Subsample
    a: tuple[str, ...]
    u: tuple[str, ...]
    on: str | None = None
    threads: int = 1
    block: int = _BLOCK
    noise: Perturbation | None = None
    target_noise: Perturbation | None = None

    @property
    def channels(self) -> tuple[int, int]:
        axes = len(self.kept.domain.axes)
        a, u = (
            sum(math.prod(_variable(self.recipe, name).shape[:-axes]) for name in names)
            for names in (self.a, self.u)
        )
        return a + (0 if self.noise is None else self.noise.channels), u

    def __str__(self) -> str:
        return f"solved during training, {len(self):,} new ones per epoch"

    def to(self, device: torch.device | str) -> SolvedAhead:
        return replace(self, device=torch.device(device))

    def rows(self, rows: Rows) -> SolvedAhead:
        return replace(self, samples=self.samples[rows])

    def with_noise(self, noise: Perturbation) -> SolvedAhead:
        return replace(self, noise=noise)

    def with_target_noise(self, noise: Perturbation) -> SolvedAhead:
        return replace(self, target_noise=noise)

    def sample(self, index: int) -> Batch:
        return next(self.rows(slice(index, index + 1)).in_order(1))

    def in_order(self, batch: int) -> Generator[Batch, None, None]:
        with closing(self._solved(self._first_epoch(batch))) as solved:
            yield from solved

    def values(self, which: Literal["a", "u"]) -> Iterable[Tensor]:
        return Blocks(partial(values_in, self.in_order, which, self.block))

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        """The batches of an epoch, in the order of the sample numbers. The arguments are those of
        `Samples.batches`.

        Each rank has consecutive sample numbers, so that several batches can be solved as one
        block. An epoch that is resumed at a later batch has the same blocks. On a GPU, the size of
        a block affects the last digits of the solution.
        """
        share = len(self) // ranks
        count, batches = share // batch, max(1, self.block // batch)
        start = first_number(seed, self.recipe.problem) + epoch * len(self) + rank * share
        numbers = range(start, start + count * batch)
        skipped = first % batches
        blocks = _cut(numbers[(first - skipped) * batch :], batches * batch)
        with closing(self._solved(blocks)) as solved:
            for block in solved:
                yield from islice(block.split(batch), skipped, None)
                skipped = 0

    def _first_epoch(self, block: int) -> Iterator[range]:
        first = int(self.samples[0])
        return _cut(range(first, first + len(self)), block)

    def _solved(self, blocks: Iterable[range]) -> Generator[Batch, None, None]:
        """Yield the solved blocks in order, while threads solve later blocks."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="solving")
        cuda = _cuda_stream(self.on) if torch.device(self.on or "cpu").type == "cuda" else None
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
            for values in batch.tensors():  # the allocator may not reuse their memory before
                values.record_stream(current)
        return batch.to(self.device)

    def _functions(self, numbers: range) -> Batch:
        """Solve samples, and return their inputs, targets and parameters."""
        values = self.recipe.problem.solve_in_blocks(self.recipe.seed, numbers, self.on)
        a = self._function(values, self.a, self.kept.input)
        u = self._function(values, self.u, self.kept.target)
        if self.noise is not None:
            noisy = self.noise(a.cpu().numpy(), numbers, None)
            a = torch.from_numpy(noisy).to(a.device)
        if self.target_noise is not None:
            noisy = self.target_noise(u.cpu().numpy(), numbers, None)
            u = torch.from_numpy(noisy).to(u.device)
        parameters = [torch.as_tensor(values[name]).reshape(len(a), -1).float().to(a.device)
               for name in self._parameters]  # fmt: skip
        return Batch(a, u, parameters=torch.cat(parameters, dim=1) if parameters else None)

    @property
    def _parameters(self) -> list[str]:
        """Names of the variables that are parameters of a sample."""
        variables = self.recipe.problem.variables()
        return [v.name for v in variables if v.attributes.get("role") == "parameter"]

    def _function(
        self, values: Mapping[str, Values], names: Sequence[str], reduction: Reduction
    ) -> Float[Tensor, "block *grid c"]:
        """Variables at the points of the reduced grid, with their components as channels."""

        def function(name: str) -> Tensor:
            v = torch.as_tensor(reduction(values[name])).float()
            first = v.ndim - len(self.kept.domain.axes)
            return v.reshape(len(v), -1, *v.shape[first:]).movedim(1, -1)

        functions = [function(name) for name in names]
        joined = functions[0] if len(functions) == 1 else torch.cat(functions, dim=-1)
        return joined.contiguous()


@lru_cache
def _cuda_stream(device: str | None) -> torch.cuda.Stream:
    """The CUDA stream on which all epochs are solved. PyTorch reserves memory for each stream, so
    there is only one."""
    return torch.cuda.Stream(device)


def _cut(numbers: range, size: int) -> Iterator[range]:
    """Split numbers into consecutive blocks of `size`."""
    return (numbers[k : k + size] for k in range(0, len(numbers), size))


def _variable(recipe: Recipe, name: str) -> Variable:
    """A variable of a recipe that is a function on its grid. Raises SchemaError if there is no such
    variable."""
    axes = set(recipe.problem.domain.axes)
    functions = {v.name: v for v in recipe.problem.variables() if axes <= {*v.dims}}
    if name not in functions:
        raise SchemaError(
            f"recipe {recipe.name} has no function {name!r}, known: {', '.join(functions)}"
        )
    return functions[name]


def solved_pairs(
    experiment: Experiment, samples: int, device: torch.device, resolution: int | None = None
) -> Samples:
    """The stream of an experiment. Nothing is solved yet.

    Args:
        samples: Number of samples per epoch.
        resolution: Points along the first axis; by default those of the experiment.

    Raises:
        SchemaError: If the recipe lacks a variable, its solver cannot run on the device, or the
            stream is too short for the epochs.
        DataError: If the grid of the experiment is not a subsample of the recipe's grid.
        MissingSolverError: If the solver of the recipe is not installed.
    """
    training, stream = experiment.training, experiment.data.stream
    assert stream is not None
    recipe, on = stream.load_recipe(), None if device.type == "cpu" else str(device)
    grid = resolution or experiment.data.finest
    pairs = _pairs(recipe, experiment, samples, grid, f"stream {recipe.name}")
    try:
        recipe.problem.check_solver(None if on is None else device.type)
    except SchemaError as error:
        raise SchemaError(f"{pairs.source['url']}: {error}") from error
    if training.epochs * samples > APART:
        raise SchemaError(
            f"{pairs.source['url']} has 2^32 samples for a training, got {training.epochs} "
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


def _pairs(
    recipe: Recipe, experiment: Experiment, samples: int, resolution: int, where: str
) -> Samples:
    """Inputs and targets of an experiment, from samples of a recipe that are solved with NumPy."""
    data, seed = experiment.data, experiment.training.seed
    input, target = experiment.variables
    for name in (*names_of(input), *names_of(target)):
        _variable(recipe, name)
    streams = recipe.problem.streams_per_sample
    seeds = 2**63 // (streams * APART) - 1  # numbers of streams stay below 2⁶³
    if seed >= seeds:
        raise SchemaError(f"{where}: training.seed must be < {seeds}, got {seed}")
    domain = recipe.problem.domain
    if domain.moves:
        raise SchemaError(
            f"{where}: a stream needs points that all samples share, here each sample has its own: "
            "generate a store and train on it"
        )
    subsample = Subsample.of(domain, resolution, data.target_resolution, where)
    source = {
        "url": where, "recipe": recipe.name, "fingerprint": recipe.fingerprint,
        "resolution": resolution, "input": input, "target": target,
        "target_resolution": data.target_resolution, "epoch_samples": samples,
    }  # fmt: skip
    if laws := recipe.problem.physics().parameters:
        source["parameters"] = list(laws)
    if streams > 1:  # numbered otherwise than by earlier versions, whose trainings cannot go on
        source["streams_per_sample"] = streams
    numbers = first_number(seed, recipe.problem) + np.arange(samples)
    return Samples(
        reader=SolvedAhead(
            samples=numbers,
            recipe=recipe,
            kept=subsample,
            a=tuple(names_of(input)),
            u=tuple(names_of(target)),
        ),
        x=subsample.x,
        y=subsample.y,
        domain=subsample.domain,
        weight=None if subsample.y is not None else quadrature(subsample.domain),
        parameter_laws=_parameter_laws(recipe),
        source=source,
    )


def _parameter_laws(recipe: Recipe) -> tuple[ParameterLaw | None, ...]:
    """The law of each parameter of a sample, in the order of `Batch.parameters`."""
    problem = recipe.problem
    laws = problem.physics().parameters
    return tuple(
        laws.get(v.name)
        for v in problem.variables()
        if v.attributes.get("role") == "parameter"
        for _ in range(math.prod(v.shape))
    )


def check_alike(pairs: Samples, stored: Samples) -> None:
    """Raise SchemaError unless a stream has the same channels, grid and points as the stored
    samples, which select the best epoch."""
    stream, store = pairs.source["url"], stored.source["url"]
    for quantity, streamed, expected in (
        ("channels", pairs.channels, stored.channels),
        ("grid", pairs.grid, stored.grid),
        ("shape of the grid", pairs.domain.shape, stored.domain.shape),
    ):
        if streamed != expected:
            raise SchemaError(
                f"{stream} and {store}, which chooses the epoch, differ: {quantity} {streamed}, "
                f"{expected}"
            )
    if not torch.allclose(pairs.points.cpu(), stored.points.cpu(), rtol=0, atol=1e-6):
        raise SchemaError(f"{stream} and {store}, which chooses the epoch, differ in their points")


def padded(recipe: Recipe) -> bool:
    """Whether the samples of a recipe have different numbers of points."""
    return any(v.attributes.get("role") == "count" for v in recipe.problem.variables())


def _channels(recipe: Recipe, names: Iterable[str]) -> int:
    """Number of channels of all variables together, times included."""
    axes, variables = recipe.problem.domain.axes, [_variable(recipe, name) for name in names]
    return sum(
        math.prod(n for n, dim in zip(v.shape, v.dims, strict=True) if dim not in axes)
        for v in variables
    )


def check_data(experiment: Experiment, device: torch.device) -> int:
    """Check an experiment before its store is generated. Returns the dimension of the domain.

    Raises:
        SchemaError, DataError: If the experiment cannot be trained on the recipe, on its grids, or
            on its stream.
    """
    data, batch = experiment.data, experiment.training.batch
    recipe = data.load_recipe()
    samples = data.epoch_samples or min(data.samples or recipe.splits.train, recipe.splits.train)
    if batch > samples and isinstance(experiment.learned, Map):
        raise SchemaError(f"batch {batch} is larger than the {samples} samples of an epoch")
    where, domain = f"recipe {recipe.name}", recipe.problem.domain
    experiment.check_applies(domain, where)
    for name in (name for names in experiment.variables for name in names_of(names)):
        _variable(recipe, name)
    inputs, (target, *_) = experiment.variables[0], names_of(experiment.variables[1])
    if experiment.noise is not None:
        channels = _channels(recipe, names_of(inputs))
        check_noise(experiment.noise, inputs, channels, padded(recipe), where)
    dims, shape = _variable(recipe, target).dims, _variable(recipe, target).shape
    experiment.learned.check(shape[dims.index("time")] if "time" in dims else 0, where)
    for resolution in (*data.trained, *experiment.resolutions):
        Subsample.of(domain, resolution, data.target_resolution, where)
    resolution = containing(domain, data.trained, where) if data.resolutions else data.finest
    if data.stream is None:
        return domain.dim
    pairs = solved_pairs(experiment, samples, device, resolution)
    check_alike(pairs, _pairs(recipe, experiment, samples, resolution, where))
    return domain.dim
