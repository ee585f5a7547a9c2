"""Samples of an experiment, from a store or a stream, with or without noise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, reduce
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.base import generator
from operators.data import (
    Batch,
    DataError,
    Map,
    Perturbation,
    Reader,
    Samples,
    Streamed,
    Subsample,
    Task,
    open_pairs,
)
from operators.data.opening import names_of
from operators.data.resolution import Reduction, ResolutionError, Values
from operators.data.samples import (
    Blocks,
    Drawn,
    Rows,
    containing,
    inclusion,
    quadrature,
    systematic,
    values_in,
)
from operators.training.evaluate import scores
from operators.transforms import Predictor
from pdegen.equations.base import Problem, SampleError
from pdegen.numerics.device import one_thread
from pdegen.recipe import Recipe, load_recipe, recipe_names
from pdegen.sampling.noise import Levels, hashed, pointwise_std
from pdegen.schema import SchemaError
from pdegen.software import cores
from pdegen.store.format import ParameterLaw
from pdegen.store.layout import Variable
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment, InputNoise, domain_of

# Noise on the samples of an experiment: on the inputs, or on the training targets.


Numbers = Callable[[Sequence[int]], Sequence[int]]
"""Numbers of samples -> their numbers in the random stream."""


@dataclass(frozen=True)
class NoisyInputs:
    """Adds noise to the inputs. If the operator has the noise level as an input, the level is
    appended to the inputs as a channel; if values can be missing, so is the mask of those present.

    Args:
        noise: Kind, level and seed of the noise.
        std: Standard deviation σ(x) of the inputs over the training split.
        numbers: Function from sample numbers to the numbers that select the random noise of each
            sample.
        scale: Range of noise levels, if the level is an input of the operator; otherwise None.
        assumed_level: The noise level in the appended channel; None for the true level.
        fresh: Whether each epoch of training draws new noise.
        points: Coordinates of the points, on which noise by point depends; None if samples have
            different points.
        masked: Whether a channel with the mask is appended: 1 at the points with data, 0 elsewhere.
    """

    noise: InputNoise
    std: np.ndarray
    numbers: Numbers
    scale: Levels | None = None
    assumed_level: float | None = None
    fresh: bool = False
    points: np.ndarray | None = None
    masked: bool = False

    @property
    def channels(self) -> int:
        """Number of appended channels."""
        return (self.scale is not None) + self.masked

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        noise, model, numbers = self.noise, self.noise.build(), self.numbers(samples)
        draw = 0 if epoch is None or not self.fresh else epoch + 1
        levels = None if noise.levels is None else noise.levels.drawn(noise.seed, numbers, draw)
        values, seed = a[..., 0], noise.seed
        noisy = model.add(values, seed, numbers, self.std, draw, levels, self.points)[..., None]
        if self.scale is not None:
            true = model.level if levels is None else levels
            level = true if self.assumed_level is None else self.assumed_level
            noisy = _with_channel(noisy, self.scale.feature(level))
        if self.masked:
            present = model.present(values.shape[1:], seed, numbers, draw, self.points)
            noisy = _with_channel(noisy, present[..., None])
        return noisy


@dataclass(frozen=True)
class NoisyTargets:
    """Adds noise to the targets of training samples, which a measured label would have.

    A sample has the same noise in all epochs, because it is measured once. The noise is independent
    of that on the inputs, and channels have independent noise.

    Args:
        noise: Kind, level and seed of the noise.
        std: Standard deviation σ(x) of each channel of the targets over the training split,
            shape (*grid, c).
        numbers: Function from sample numbers to the numbers that select the random noise of each
            sample.
    """

    noise: InputNoise
    std: np.ndarray
    numbers: Numbers
    channels = 0
    fresh = False

    def __call__(self, u: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        model, numbers, noisy = self.noise.build(), self.numbers(samples), np.empty_like(u)
        for channel in range(u.shape[-1]):
            seed = hashed(self.noise.seed, f"targets {channel}", 0)
            std = self.std[..., channel]
            noisy[..., channel] = model.add(u[..., channel], seed, numbers, std)
        return noisy


@dataclass(frozen=True)
class ZeroNoise:
    """Leaves inputs free of noise, and appends the channels of `NoisyInputs`: the assumed noise
    level, and the mask of values that are all present."""

    scale: Levels | None
    assumed_level: float
    masked: bool = False
    fresh = False

    @property
    def channels(self) -> int:
        """Number of appended channels."""
        return (self.scale is not None) + self.masked

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        if self.scale is not None:
            a = _with_channel(a, self.scale.feature(self.assumed_level))
        return _with_channel(a, np.ones(1)) if self.masked else a


@dataclass(frozen=True)
class InOrder:
    """Maps the samples of a split to the numbers that select their random noise."""

    by_sample: dict[int, int]

    @classmethod
    def of(cls, noise: InputNoise, samples: Sequence[int]) -> InOrder:
        """The numbers that this kind of noise assigns to the samples of a split."""
        return cls(dict(zip(samples, noise.build().numbers(samples), strict=True)))

    def __call__(self, samples: Sequence[int]) -> list[int]:
        return [self.by_sample[sample] for sample in samples]


@dataclass(frozen=True)
class InStream:
    """Maps streamed training samples to the numbers that select their random noise. A training is
    treated like a split. Noise that numbers the samples of a split from 0 also numbers the samples
    of each training from 0.

    Args:
        noise: Kind, level and seed of the noise.
        apart: Number of sample numbers reserved for each training.
    """

    noise: InputNoise
    apart: int

    def __call__(self, samples: Sequence[int]) -> Sequence[int]:
        start = samples[0] // self.apart * self.apart
        numbers = self.noise.build().numbers(range(start, start + self.apart))
        return numbers[samples[0] - start : samples[-1] + 1 - start]


def _with_channel(a: np.ndarray, feature: np.ndarray) -> np.ndarray:
    """Append a channel, which may be constant over the points."""
    if feature.ndim < a.ndim:
        feature = feature.reshape(-1, *[1] * (a.ndim - 1))
    channel = np.broadcast_to(feature, (*a.shape[:-1], 1))
    return np.concatenate([a, channel.astype(a.dtype)], axis=-1)


def check_noise(
    noise: InputNoise,
    inputs: str | Sequence[str],
    channels: int,
    shape: tuple[int, ...],
    masked: bool,
    where: str,
) -> None:
    """Raise SchemaError if noise is impossible for these inputs, or for targets with padding."""
    if noise.on_inputs and channels != 1:
        names = ", ".join(names_of(inputs))
        raise SchemaError(
            f"noise is for inputs with one channel, {names} of {where} has {channels}"
        )
    try:
        noise.build().check_grid(shape)
    except ValueError as error:
        raise SchemaError(f"noise of {where}: {error}") from None
    if noise.on_targets and masked:
        raise SchemaError(
            "noise on the targets needs samples with equal numbers of points, those of "
            f'{where} differ: use noise.on = "inputs"'
        )


def _check_points(noise: InputNoise, points: np.ndarray, where: str) -> None:
    """Raise SchemaError if inputs at these points cannot have the noise."""
    try:
        noise.build().check_points(points)
    except ValueError as error:
        raise SchemaError(f"noise of {where}: {error}") from None


# A reader of samples that are solved when they are read.


APART = 2**32  # largest number of samples of a training
_BLOCK = 8  # samples that a thread solves at a time; at least a batch


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
        drawn: Numbers of the samples in the batches; by default they follow from the epoch. Drawn
            samples are solved one by one, since their numbers are not consecutive.
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
    drawn: Int[Tensor, " n"] | None = None

    @property
    def channels(self) -> tuple[int, int]:
        axes = len(self.kept.domain.axes)
        a, u = (
            sum(math.prod(variable_of(self.recipe, name).shape[:-axes]) for name in names)
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
        skipped = first % batches
        if self.drawn is None:
            start = first_number(seed, self.recipe.problem) + epoch * len(self) + rank * share
            numbers = range(start, start + count * batch)
        else:
            numbers = self.drawn[rank * share :][: count * batch].tolist()
        blocks = _cut(numbers[(first - skipped) * batch :], batches * batch)
        with closing(self._solved(blocks)) as solved:
            for block in solved:
                yield from islice(block.split(batch), skipped, None)
                skipped = 0

    def _first_epoch(self, block: int) -> Iterator[Sequence[int]]:
        first = int(self.samples[0])
        return _cut(range(first, first + len(self)), block)

    def _solved(self, blocks: Iterable[Sequence[int]]) -> Generator[Batch, None, None]:
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
        self, numbers: Sequence[int], cuda: torch.cuda.Stream | None
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

    def _functions(self, numbers: Sequence[int]) -> Batch:
        """Solve samples, and return their inputs, targets and parameters."""
        if not isinstance(numbers, range):
            return reduce(Batch.joined, (self._functions(range(n, n + 1)) for n in numbers))
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
    """The CUDA stream on which all epochs are solved."""
    return torch.cuda.Stream(device)


def _cut(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Split numbers into consecutive blocks of `size`."""
    return (numbers[k : k + size] for k in range(0, len(numbers), size))


def variable_of(recipe: Recipe, name: str) -> Variable:
    """A variable of a recipe that is a function on its grid. Raises SchemaError if there is no such
    variable."""
    axes = set(recipe.problem.domain.axes)
    functions = {v.name: v for v in recipe.problem.variables() if axes <= {*v.dims}}
    if name not in functions:
        raise SchemaError(
            f"recipe {recipe.name} has no function {name!r}, known: {', '.join(functions)}"
        )
    return functions[name]


# Streams of training samples, which are solved during training and used once.


_BLOCK_ON_DEVICE = 256  # a GPU is fast on large arrays
_POINTS_ON_DEVICE = 2**23  # limit of a block, because an epoch starts by waiting for its first one
_THREADS = 8


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
    grid = resolution or experiment.data.finest_resolution
    pairs = _pairs(recipe, experiment, samples, grid, f"stream {recipe.name}")
    for solved in (recipe, stream.load_coarse()):
        try:
            solved.problem.check_solver(None if on is None else device.type)
        except SchemaError as error:
            raise SchemaError(f"{pairs.source['url']}: {error}") from error
    numbers = samples * stream.numbers_per_sample
    if training.epochs * numbers > APART:
        raise SchemaError(
            f"{pairs.source['url']} has 2^32 samples and candidates for a training, got "
            f"{training.epochs} epochs of {numbers}"
        )
    reader = pairs.reader
    if on is None:
        reader = replace(reader, threads=min(_THREADS, cores()))
        return replace(pairs, reader=reader)
    targets = names_of(pairs.source["target"])
    points = sum(math.prod(variable_of(recipe, name).shape) for name in targets)
    block = max(1, min(_BLOCK_ON_DEVICE, _POINTS_ON_DEVICE // points))
    return replace(pairs, reader=replace(reader, on=on, block=block)).to(device)


def _pairs(
    recipe: Recipe, experiment: Experiment, samples: int, resolution: int, where: str
) -> Samples:
    """Inputs and targets of an experiment, from samples of a recipe that are solved with NumPy."""
    data, seed = experiment.data, experiment.training.seed
    input, target = experiment.variables
    for name in (*names_of(input), *names_of(target)):
        variable_of(recipe, name)
    if recipe.select is not None:
        raise SchemaError(
            f"{where}: select chooses samples of stores, a stream has all: leave it out"
        )
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
        target_domain=subsample.target_domain,
        stored_domain=subsample.stored,
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
    axes, variables = recipe.problem.domain.axes, [variable_of(recipe, name) for name in names]
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
    experiment.check_applies(domain, recipe.splits.validation, where)
    experiment.check_loss(recipe.problem.physics().phases, where)
    for name in (name for names in experiment.variables for name in names_of(names)):
        variable_of(recipe, name)
    inputs, (target, *_) = experiment.variables[0], names_of(experiment.variables[1])
    if experiment.noise is not None:
        channels = _channels(recipe, names_of(inputs))
        shape = Subsample.of(domain, data.finest_resolution, None, where).domain.shape
        check_noise(experiment.noise, inputs, channels, shape, padded(recipe), where)
    dims, shape = variable_of(recipe, target).dims, variable_of(recipe, target).shape
    experiment.learned.check(shape[dims.index("time")] if "time" in dims else 0, where)
    for resolution in (*data.training_resolutions, *experiment.resolutions):
        Subsample.of(domain, resolution, data.target_resolution, where)
    resolution = (
        containing(domain, data.training_resolutions, where)
        if data.resolutions
        else data.finest_resolution
    )
    if data.stream is None:
        return domain.dim
    pairs = solved_pairs(experiment, samples, device, resolution)
    check_alike(pairs, _pairs(recipe, experiment, samples, resolution, where))
    return domain.dim


# Draws the samples of a stream from candidates for which the operator has large errors.


POWER = 3  # of the error, in the probability that a candidate is drawn
UNIFORM = 0.1  # share of the probability that all candidates have in common


@dataclass(frozen=True)
class TailDraw:
    """Draws the samples of each epoch, more of those with large relative errors.

    The error e of a candidate is that of the operator against a cheap solution without noise. Of M
    candidates, n are drawn with the probabilities n (λ/M + (1 - λ) e³/Σe³), at most 1. The loss
    does not divide by the probabilities, so a training minimises a mean in which samples count by
    these. The samples of the first epoch are the first candidates, since initial weights predict
    nothing.

    Args:
        candidates: Candidates of the first epoch with cheap solutions. Those of later epochs have
            the numbers after theirs.
        count: Number n of samples that are drawn for an epoch.
        seed: Seed of the training.
    """

    candidates: Samples
    count: int
    seed: int

    def __call__(self, predictor: Predictor, epoch: int) -> Drawn:
        total = len(self.candidates.ids)
        numbers = torch.from_numpy(self.candidates.ids + epoch * total)
        if epoch == 0:
            return Drawn(numbers[: self.count], torch.full((self.count,), self.count / total))
        candidates = self.candidates.with_reader(samples=numbers.numpy())
        try:
            errors = scores(predictor, candidates).cpu()
        except SampleError as error:
            reason = f"{error.reason}; this is its cheap solution: change data.stream.coarse"
            raise SampleError(error.sample, reason) from error
        errors = errors.nan_to_num(0, 0, 0)  # 0 where undefined
        probabilities = inclusion(errors**POWER, self.count, UNIFORM)
        rows = systematic(probabilities, generator(self.seed, 6, epoch))
        return Drawn(numbers[rows], probabilities[rows])


def tail_draw(experiment: Experiment, pairs: Samples, processes: int) -> TailDraw | None:
    """The draws of an experiment's stream; None if it has no stream or a uniform one.

    Args:
        pairs: Samples of the first epoch.
        processes: Number of processes of the training.

    Raises:
        SchemaError: If several processes train, or cheap solutions have other points.
    """
    stream, training = experiment.data.stream, experiment.training
    if stream is None or stream.sampling == "uniform":
        return None
    key = 'data.stream.sampling = "tail"'
    if processes > 1:
        raise SchemaError(f"{key} is for training in one process, got {processes}")
    count = len(pairs.reader)
    numbers = pairs.ids[0] + np.arange(stream.candidates * count)
    candidates = pairs.with_reader(recipe=stream.load_coarse(), samples=numbers, target_noise=None)
    return TailDraw(candidates, count, training.seed)


_CGROUP = Path("/sys/fs/cgroup")
Purpose = Literal["training", "selection", "test"]
NoiseChoice = InputNoise | Literal["declared"] | None


@dataclass(frozen=True)
class Source:
    """The data of an experiment in a store.

    Args:
        at_store: The store, or its URL; it is opened once.
        experiment: The experiment, which declares the variables, the grid, the noise and how
            samples are read.
        at: Noise level of the test samples; by default the training level.
        assumed_level: Noise level that the operator receives, if the level is one of its inputs; by
            default the true level.
        content: Digest that the content of the store must have; by default any.
        tests: Store of test samples in place of those of `at_store`
            (`pipelines.config.conditions.StudyCondition.recipe`). Statistics remain those of
            `at_store`, and so do the numbers that select the noise of a sample.

    Raises:
        SchemaError: If the assumed level is negative or infinite, or if the operator does not have
            the noise level as an input.
    """

    at_store: str | Store
    experiment: Experiment
    at: float | None = None
    assumed_level: float | None = None
    content: str | None = None
    tests: str | None = None

    def __post_init__(self) -> None:
        if self.assumed_level is None:
            return
        if self.scale is None:
            raise SchemaError(
                f"assumed level {self.assumed_level:g}: {self.experiment.name} takes no noise "
                "level as an input, which needs a range, noise.level = [low, high]"
            )
        if not 0 <= self.assumed_level < math.inf:
            raise SchemaError(
                f"the assumed noise level must be finite and >= 0, got {self.assumed_level}"
            )

    @cached_property
    def store(self) -> Store:
        """The opened store."""
        return open_sealed(self.at_store)

    @property
    def url(self) -> str:
        """URL of the store."""
        return self.at_store if isinstance(self.at_store, str) else self.at_store.url

    @property
    def noise(self) -> InputNoise | None:
        """Noise of the test samples. Raises SchemaError for an impossible level."""
        return (self.experiment if self.at is None else self.experiment.at_level(self.at)).noise

    @property
    def scale(self) -> Levels | None:
        """Range of noise levels, if the level is an input of the operator; otherwise None."""
        return None if self.experiment.noise is None else self.experiment.noise.levels

    @property
    def masked(self) -> bool:
        """Whether the mask of present values is an input of the operator."""
        noise = self.experiment.noise
        return noise is not None and noise.kind == "missing"

    @property
    def task(self) -> Task:
        """The learning task of the experiment."""
        return self.experiment.learned

    @property
    def _containing(self) -> int:
        """The smallest resolution that contains the points of all training batches."""
        trained = self.experiment.data.training_resolutions
        return containing(domain_of(self.store), trained, self.url)

    @property
    def stored_resolution(self) -> int:
        """Points along the first axis of the store's domain."""
        return domain_of(self.store).shape[0]

    def samples(
        self,
        split: str,
        purpose: Purpose = "test",
        *,
        noise: NoiseChoice = "declared",
        resolution: int | None = None,
        device: torch.device | None = None,
    ) -> Samples:
        """Samples of a split, as inputs and targets of the operator.

        On meshes and clouds, "test" samples have quadrature weights. The others have them only if
        `training.weights` is "area".

        Args:
            split: Name of the split. If the experiment trains on a part of the training split, only
                this part is returned.
            purpose: "training" returns the samples to train on, stored or streamed, with noise that
                may change with the epoch. "selection" returns the samples that select the best
                epoch, at the times used in training, with fixed noise; the first half of the split
                if `training.conformal`. "test" returns the samples for evaluation, with fixed
                noise.
            noise: Noise on the inputs. "declared" means the noise that the experiment declares, and
                None means no noise.
            resolution: Points along the first axis. By default, "training" batches have the numbers
                of the experiment, and other samples have the finest of them.
            device: Device of the samples. With None they stay on the CPU and are read on demand.

        Raises:
            DataError: If the store or the recipe of the stream lacks a variable, split or grid, or
                if the store has other data than `content` says.
            SchemaError: If the stream is impossible, or its channels or points differ from the
                store's.
        """
        learning = purpose == "training"
        solved = learning and self.experiment.data.stream is not None
        weighted = purpose == "test" or self.experiment.training.area
        mixed = learning and resolution is None and self.experiment.data.resolutions is not None
        pairs = self.stored(split, self._containing if mixed else resolution, weighted=weighted)
        if purpose == "selection" and self.experiment.training.conformal:
            pairs = pairs.rows(slice(len(pairs) // 2))
        fits = device is not None and not solved and self._fits(pairs.reader, device)
        if solved:
            pairs = self._solved(pairs, device or torch.device("cpu"))
        pairs = self._with_noise(pairs, self.noise if noise == "declared" else noise, purpose)
        task = self.task.for_selection if purpose == "selection" else self.task
        pairs = task.training(pairs) if learning else task.evaluation(pairs)
        pairs = pairs.resident() if fits else pairs
        pairs = pairs if device is None else pairs.to(device)
        pairs = pairs.mixed(*self.experiment.data.training_resolutions) if mixed else pairs
        return self._epochs(pairs) if learning and not solved else pairs

    def stored(
        self, split: str, resolution: int | None = None, *, weighted: bool = True
    ) -> Samples:
        """Stored samples of a split, read on demand, without noise. If the experiment trains on a
        part of the training split, only this part is returned."""
        pairs = self._whole(split, resolution, weighted)
        count = self.experiment.data.samples
        if split != "train" or count is None:
            return pairs
        if count > len(pairs):
            raise SchemaError(
                f"data.samples: the training split of {self.url} has {len(pairs)}, got {count}"
            )
        return pairs.rows(slice(count))

    def unlabelled(self, device: torch.device) -> Samples | None:
        """The samples after those of the training, whose inputs alone are used; None if the
        experiment declares none.

        Raises SchemaError if the training split has too few samples, or a batch too many.
        """
        term, batch = self.experiment.training.residual, self.experiment.training.batch
        if term is None or not term.unlabelled:
            return None
        whole = self._whole("train", None, self.experiment.training.area)
        labelled = self.experiment.data.samples or len(whole)
        if not batch <= term.unlabelled <= len(whole) - labelled:
            raise SchemaError(
                f"training.residual.unlabelled: must be 0, or at least training.batch = {batch} "
                f"and at most {len(whole) - labelled}, the training samples of {self.url} after "
                f"the {labelled} labelled ones (data.samples), got {term.unlabelled}"
            )
        rest = whole.rows(slice(labelled, labelled + term.unlabelled))
        pairs = self.task.training(rest)
        return (pairs.resident() if self._fits(rest.reader, device) else pairs).to(device)

    def std(self, pairs: Samples) -> np.ndarray:
        """Standard deviation σ(x) of the inputs over the training split, at the points of `pairs`.

        The whole split is used, so that the noise of test samples does not depend on the number of
        training samples.
        """
        train = self._whole("train", pairs.source["resolution"])
        return pointwise_std(block[..., 0].numpy() for block in train.inputs)

    def target_std(self, pairs: Samples) -> np.ndarray:
        """Standard deviation σ(x) of each channel of the targets over the training split."""
        train = self._whole("train", pairs.source["resolution"])
        return pointwise_std(block.numpy() for block in train.targets)

    def _whole(self, split: str, resolution: int | None, weighted: bool = True) -> Samples:
        """All stored samples of a split."""
        data, (input, target) = self.experiment.data, self.experiment.variables
        self._check_equation()
        other = self._tests if split == "test" else None
        try:
            pairs = open_pairs(
                other or self.store, split, resolution or data.finest_resolution, input=input,
                target=target, target_resolution=data.target_resolution, weighted=weighted,
            )  # fmt: skip
        except ResolutionError as error:
            if resolution is not None:
                raise
            n, key = error.possible, "resolution" if data.resolutions is None else "resolutions"
            raise SchemaError(
                f"data.{key}: {error}; this store needs --set data.resolution={n} "
                f"--set 'resolutions=[{n}]'"
            ) from None
        content = pairs.source["content"]
        if other is None and self.content not in (None, content):
            raise DataError(
                f"{self.url} has other data than the training (content {content[:12]}, not "
                f"{self.content[:12]}): name the store of the training"
            )
        return pairs

    @cached_property
    def _tests(self) -> Store | None:
        """The opened store of other test samples."""
        return None if self.tests is None else open_sealed(self.tests)

    def _in_store(self, pairs: Samples) -> list[int]:
        """Numbers of stored samples; of other test samples, those of the samples in their place."""
        other, shift = self._tests, 0
        if other is not None and pairs.source["url"] == other.url:
            shift = self.store.metadata.splits["test"][1] - other.metadata.splits["test"][1]
        return (pairs.ids + shift).tolist()

    def _check_equation(self) -> None:
        """Raise SchemaError if the store has another equation than the experiment."""
        recipe = self.experiment.data.recipe
        stored = self.store.metadata.recipe.problem.get("equation")
        if stored is None or not (recipe.endswith(".toml") or recipe in recipe_names()):
            return
        expected = load_recipe(recipe).problem.equation_name
        if stored != expected:
            raise SchemaError(
                f"{self.url} is a store of {stored}, experiment {self.experiment.name} needs one "
                f"of {expected}: name a store of {recipe}"
            )

    def _solved(self, stored: Samples, device: torch.device) -> Samples:
        """Samples of the stream."""
        count = self.experiment.data.epoch_samples or len(stored)
        pairs = solved_pairs(self.experiment, count, device, stored.source["resolution"])
        check_alike(pairs, stored)
        return replace(
            pairs, input_channels=stored.input_channels, target_channels=stored.target_channels,
            weight=pairs.weight if self.experiment.training.area else None,
        )  # fmt: skip

    def _with_noise(self, pairs: Samples, noise: InputNoise | None, purpose: Purpose) -> Samples:
        """Samples with noise on the inputs, the training targets or both."""
        if noise is None:
            none = ZeroNoise(self.scale, self.assumed_level or 0.0, self.masked)
            return pairs.with_noise(none) if none.channels else pairs
        source, masked = pairs.source, pairs.masked and purpose == "training"
        channels, shape = pairs.channels[0], pairs.domain.shape
        check_noise(noise, source["input"], channels, shape, masked, source["url"])
        if stored := isinstance(pairs.reader, Streamed):
            ids = pairs.ids.tolist()
            drawn = noise.build().numbers(self._in_store(pairs))
            numbers = InOrder(dict(zip(ids, drawn, strict=True)))
        else:
            numbers = InStream(noise, APART)
        noisy = pairs
        if noise.on_inputs:
            # each sample of a stream is used once, so its noise is new anyway
            fresh = stored and purpose == "training" and noise.fresh
            points = None if pairs.domain.moves else pairs.domain.points
            if points is not None:
                _check_points(noise, points, source["url"])
            std, told = self.std(pairs), (self.scale, self.assumed_level)
            inputs = NoisyInputs(noise, std, numbers, *told, fresh, points, self.masked)
            noisy = noisy.with_noise(inputs)
        if noise.on_targets and purpose == "training":
            targets = NoisyTargets(noise, self.target_std(pairs), numbers)
            noisy = noisy.with_target_noise(targets)
        return noisy

    def _epochs(self, pairs: Samples) -> Samples:
        """Training samples, with the number of samples per epoch that the experiment declares."""
        length = self.experiment.data.epoch_samples
        if length is None:
            return pairs
        if self.experiment.training.batch > len(pairs):  # an epoch would have no batch
            raise SchemaError(
                f"batch {self.experiment.training.batch} is larger than the {len(pairs)} training "
                "samples"
            )
        return replace(pairs, length=length)

    def _fits(self, reader: Reader, device: torch.device) -> bool:
        """Whether to hold all samples in memory: if the experiment requires it or, by default, if
        they fit."""
        assert isinstance(reader, Streamed)
        reading, noise = self.experiment.data.reading, self.experiment.noise
        copies = 1 if noise is None else 3  # clean, noisy, and noisy of the next epoch
        # half of the memory remains for the model and other samples
        return reading == "resident" or (
            reading == "auto" and 2 * copies * reader.nbytes <= free_memory(device)
        )


def free_memory(device: torch.device) -> int:
    """Bytes that this process may still allocate: the smaller of the free memory of the machine and
    that of the device."""
    free, used = [psutil.virtual_memory().available], psutil.Process().memory_info().rss
    for folder in (_CGROUP, _CGROUP / _own_cgroup()):  # limits of a scheduler or container
        try:
            free.append(int((folder / "memory.max").read_text()) - used)
        except (OSError, ValueError):  # no limit, or "max"
            continue
    if device.type == "cuda":
        free.append(torch.cuda.mem_get_info(device)[0])
    return max(0, min(free))


def _own_cgroup() -> str:
    """Path of the control group (cgroup) of this process, relative to the root of the cgroup file
    system; empty if there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
