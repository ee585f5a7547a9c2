"""A reader of samples that are solved when they are read."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from itertools import islice
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.data import Batch, Perturbation, Reader, Subsample
from operators.data.resolution import Reduction, Values
from operators.data.samples import Blocks, Rows, values_in
from pdegen.equations.base import Problem
from pdegen.numerics.device import one_thread
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.layout import Variable

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
    """The CUDA stream on which all epochs are solved. PyTorch reserves memory for each stream, so
    there is only one."""
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
