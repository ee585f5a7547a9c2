"""Measures the cost of one training step of an operator: time, memory and floating-point
operations."""

import math
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pydantic import BaseModel
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator, make_interp_spline
from scipy.signal import resample
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from operators.data import Batch, Samples
from operators.data.opening import names_of
from operators.data.samples import quadrature
from operators.nn import encoder, spectral  # noqa: F401 - they register operations
from operators.norms import mean_defined
from operators.training.evaluate import errors_of
from operators.training.optimizers import SOAP
from operators.training.step import Acceleration, Step, keep_memory, return_memory
from operators.transforms import Predictor
from pdegen.domains import Box, Cloud, Domain
from pdegen.equations.base import SampleError
from pdegen.generation.generate import RecipeJob, generate
from pdegen.generation.pools import pool
from pdegen.recipe import Recipe
from pdegen.store.format import LEADING
from pdegen.store.layout import Variable
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.checks import checked_operator
from pipelines.runs.data import Source
from pipelines.runs.score import measures_of

# Measures the cost of a dataset's solver at several resolutions, and computes break-even points of
# operators.


SAMPLES = 4  # samples that are solved to measure
STORED = 2.0**-24  # relative rounding error of float32, which all stored labels have


class Solve(BaseModel):
    """Cost and error of the solver at one resolution.

    Args:
        overrides: Overrides of the recipe; empty for the solver that computed the labels.
        seconds: Time per sample.
        error: Mean error of the solutions relative to the labels, in the same measure as errors of
            operators.
    """

    overrides: dict[str, Any] = {}
    seconds: float
    error: float = 0.0


class SolverCost(BaseModel):
    """Costs of the solver of a dataset.

    Args:
        label_error: Error of the labels, as recorded in their store; 0 if the store records no
            errors.
        samples: Number of training and validation samples that the solver generated.
    """

    made_from: str
    label_error: float
    samples: int
    solves: list[Solve]
    provenance: dict[str, Any] = {}

    @property
    def comparable(self) -> bool:
        """Whether the solver was also measured at a coarser resolution than that of the labels."""
        return len(self.solves) > 1

    @property
    def data_seconds(self) -> float:
        """Time to generate all training and validation samples."""
        return self.samples * self.solves[0].seconds

    def seconds(self, error: float) -> float:
        """Time per sample of the solver at the resolution at which its error equals `error`.

        Errors e are measured against labels that have an error l. Both errors are assumed to be
        independent, so the true error is √(e² + l²). Between measured resolutions, log time is
        interpolated linearly in log error. For errors above that of the coarsest resolution, the
        time of this resolution is used. A resolution is ignored if a more accurate one is faster.
        """
        label = max(self.label_error, STORED)
        wanted, best = math.hypot(error, label), list[tuple[float, float]]()
        solves = sorted((math.hypot(solve.error, label), solve.seconds) for solve in self.solves)
        for solve_error, seconds in solves:
            if not best or seconds < best[-1][1]:
                best.append((solve_error, seconds))
        for (finer, slow), (coarser, fast) in pairwise(best):
            if wanted <= coarser:
                share = math.log(wanted / finer) / math.log(coarser / finer)
                return slow * (fast / slow) ** max(0.0, share)
        return best[-1][1]

    def break_even(
        self, error: float, spent: float, inference: float, trivial: float = math.inf
    ) -> float:
        """Number of solves after which an operator saves time; infinite if it never does.

        N = (T_data + T_training + T_tuning) / (t_solver(ε) - t_inference)

        Args:
            error: Error ε of the operator.
            spent: Time of training and tuning in seconds.
            inference: Time of a prediction per sample in seconds.
            trivial: Error of the best trivial predictor, which has no weights and costs nothing. An
                operator that is not more accurate than this predictor never saves time.

        References:
            arXiv 2605.15399; the treatment of label errors is ours.
        """
        saved = self.seconds(error) - inference if error < trivial else 0.0
        return (self.data_seconds + spent) / saved if saved > 0 else math.inf


def recipe_of(store: str, coarser: Sequence[Mapping[str, object]]) -> Recipe | None:
    """The recipe that generated a store; None if the store was made from other data.

    Raises:
        SchemaError: If the recipe does not match the store's fingerprint, or does not accept the
            overrides in `coarser`.
    """
    sealed = open_sealed(store)
    if sealed.command != "generate":
        return None
    recipe = RecipeJob.of(sealed).recipe
    for overrides in coarser:
        recipe.with_overrides(overrides)
    return recipe


def solver_cost(
    source: Source, coarser: Sequence[Mapping[str, object]], measure: str, label: float | None
) -> dict[str, Any]:
    """Values for the fields of `SolverCost`, measured on the first training samples."""
    recipe = recipe_of(source.url, coarser)
    assert recipe is not None
    labels = source.samples("train", noise=None).rows(slice(SAMPLES)).resident()
    solves = [Solve(seconds=_seconds(recipe))]
    for overrides in coarser:
        changed = recipe.with_overrides(overrides)
        try:
            error = _distance(source, labels, changed, measure)
            seconds = _seconds(changed)
        except SampleError:  # too coarse to solve
            continue
        solves.append(Solve(overrides=dict(overrides), seconds=seconds, error=error))
    splits = open_sealed(source.url).metadata.splits
    sizes = {name: stop - start for name, (start, stop) in splits.items()}
    train = source.experiment.data.samples or sizes["train"]
    return {"label_error": label or 0.0, "samples": train + sizes["validation"], "solves": solves}


def _seconds(recipe: Recipe) -> float:
    """Time per sample of the recipe's solver on one thread."""

    def timed(samples: range) -> float:
        start = time.perf_counter()
        recipe.compute(samples)
        return time.perf_counter() - start

    few = range(min(SAMPLES, recipe.samples))
    with pool("threads", 1) as workers:
        ((_, first),) = workers.run(timed, [range(1)])  # compiles
        if first > 10:
            ((_, first),) = workers.run(timed, [range(1)])
            return first
        ((_, seconds),) = workers.run(timed, [few])
    return seconds / len(few)


def _distance(source: Source, labels: Samples, recipe: Recipe, measure: str) -> float:
    """Mean error of a coarse recipe's solutions, relative to the labels of the same samples."""
    count = 1 + int(labels.ids.max())  # includes samples that the store skipped
    sizes = {"splits.train": count, "splits.validation": 1, "splits.test": 1}
    few = recipe.with_overrides({"samples": count + 2, "shard": count + 2, **sizes})
    with tempfile.TemporaryDirectory() as folder:
        url = generate(few, str(Path(folder) / "coarse.zarr"), workers=1).url
        experiment, stored = source.experiment, Source(url, source.experiment).stored_resolution
        data = experiment.data.model_copy(
            update={"resolution": stored, "resolutions": None, "samples": None}
        )
        coarse_source = Source(url, experiment.model_copy(update={"data": data}))
        coarse = coarse_source.samples("train", noise=None).rows(slice(count)).resident()
    coarse, count = coarse.rows(np.isin(coarse.ids, labels.ids)), len(labels)
    assert coarse.ids.tolist() == labels.ids.tolist()
    errors = list[float]()
    for order in (1, 3):  # keep the better: linear for kinks and shocks, cubic for smooth fields
        p = torch.from_numpy(np.stack([_at_labels(coarse, labels, i, order) for i in range(count)]))
        (batch,) = labels.in_order(count)
        scores = {"l2": errors_of(p, batch, labels)[:, 0]}
        scores |= measures_of(p, batch, labels, source.task)
        errors.append(mean_defined(scores[measure]))
    return min(errors)


def _at_labels(
    coarse: Samples, labels: Samples, i: int, order: int
) -> Float[np.ndarray, "*grid c"]:
    """Interpolate a coarse solution to the points of its label."""
    u, domain, other = coarse.u[i].double().numpy(), coarse.domain, labels.domain
    if isinstance(domain, Cloud):
        x, y = (np.asarray(pairs.all.per_sample["x"][i], float) for pairs in (coarse, labels))
        at, nearest = LinearNDInterpolator(x, u)(y), NearestNDInterpolator(x, u)(y)
        return np.where(np.isfinite(at), at, nearest)
    for axis in range(len(domain.shape)):
        u = _along(u, axis, _coordinates(domain, axis), _coordinates(other, axis), order,
                   domain.kinds[axis] == "periodic")  # fmt: skip
    return u


def _coordinates(domain: Domain, axis: int) -> Float[np.ndarray, " n"]:
    """Coordinates of the points along an axis."""
    if isinstance(domain, Box):
        return domain.grids[axis].x
    n = domain.shape[axis]
    return np.arange(n) / n if domain.kinds[axis] == "periodic" else np.linspace(0.0, 1.0, n)


def _along(
    u: np.ndarray, axis: int, x: np.ndarray, y: np.ndarray, order: int, periodic: bool
) -> np.ndarray:
    """Interpolate values along an axis from points x to points y, by splines of a given order."""
    if x.shape == y.shape and np.allclose(x, y):
        return u
    if periodic and order > 1:
        times = -(-len(x) // len(y))
        fine: Any = resample(u, times * len(y), axis=axis)
        return np.take(fine, np.arange(len(y)) * times, axis)
    if periodic:
        x = np.append(x, x[0] + len(x) * (x[1] - x[0]))
        u = np.concatenate([u, np.take(u, [0], axis)], axis)
    spline: Any = make_interp_spline(x, u, min(order, len(x) - 1), axis=axis)
    return spline(y)


Shape = torch.Size


def _forward(q: Shape, k: Shape, v: Shape, *rest: object, **words: object) -> int:
    return sdpa_flop_count(q, k, v)


def _backward(grad: Shape, q: Shape, k: Shape, v: Shape, *rest: object, **words: object) -> int:
    return sdpa_backward_flop_count(grad, q, k, v)


def _transformed(u: Shape, *rest: object, out_shape: Shape, **words: object) -> int:
    return 2 * math.prod(out_shape) * u[1]


def _product(a: Tensor, b: Tensor, *rest: object, **words: object) -> int:
    """A complex product has four real multiplications, each with an addition."""
    return (8 if a.is_complex() else 2) * math.prod(a.shape) * b.shape[-1]


def _added(total: Tensor, a: Tensor, b: Tensor, *rest: object, **words: object) -> int:
    return _product(a, b)


for formula in (_product, _added):
    formula._get_raw = True  # type: ignore[attr-defined] - PyTorch passes tensors, not shapes


def _exact(f: Shape, g: Shape, **words: object) -> int:
    return 2 * math.prod(f) * g[-1]


# PyTorch counts fused attention only on GPUs, and complex products as real ones. It counts neither
# products that add to their result, or that a ReLU follows, nor the operations of this package.
_COUNTED: dict[object, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
    torch.ops.aten.mm: _product,
    torch.ops.aten.bmm: _product,
    torch.ops.aten.addmm: _added,
    torch.ops.aten.addmm_: _added,
    torch.ops.aten._addmm_activation: _added,
    torch.ops.aten.baddbmm: _added,
    torch.ops.aten.baddbmm_: _added,
    torch.ops.operators.transformed: _transformed,
    torch.ops.operators.exact_bmm: _exact,
}
_WARM, _FEWEST, _MOST = 2, 5, 25  # steps
_ENOUGH = 2.0  # seconds, after which no further step is timed

Clock = Callable[[], float]


def clock_of(device: torch.device) -> Clock:
    """A function that waits for all pending work of the device and then returns the time in
    seconds."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


@dataclass(frozen=True)
class Cost:
    """Cost of one training step.

    Args:
        peak_bytes: Peak memory of all tensors, including the data.
        flops: Number of floating-point operations in matrix products, attention and convolutions,
            derived from the shapes of the tensors. FFTs and other operations are not counted.
    """

    seconds: float
    peak_bytes: int
    flops: int


class _Tracker(MemTracker):
    """Memory tracker that allows several calls of the model in one step, as in rollouts."""

    def _pre_fw_hook(self, module: nn.Module, inputs: object) -> None:
        if set(self._mod_tracker.parents) <= {"Global", self._mod_tracker.get_known_fqn(module)}:
            self.memory_tracking.pop(module, None)
        super()._pre_fw_hook(module, inputs)


def step_cost(
    step: Callable[[], object],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> Cost:
    seconds, flops = step_seconds(step, device), step_flops(step)
    return Cost(seconds, peak_bytes(model, optimizer, step, device), flops)


def step_seconds(step: Callable[[], object], device: torch.device) -> float:
    clock = clock_of(device)
    for _ in range(_WARM):
        step()
    seconds: list[float] = []
    while len(seconds) < _FEWEST or (len(seconds) < _MOST and sum(seconds) < _ENOUGH):
        start = clock()
        step()
        seconds.append(clock() - start)
    return median(seconds)


def step_flops(step: Callable[[], object]) -> int:
    with FlopCounterMode(display=False, custom_mapping=_COUNTED) as counter:
        step()
    return counter.get_total_flops()


def peak_bytes(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Callable[[], object],
    device: torch.device,
) -> int:
    """Peak memory in bytes of all tensors during a step."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        step()
        return torch.cuda.max_memory_allocated(device)
    tracker = _Tracker()
    tracker.track_external(model, optimizer)
    with tracker:
        step()
    snapshot = tracker.get_tracker_snapshot("peak")
    return sum(kinds["Total"] for kinds in snapshot.values())


def held_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Peak memory in bytes that this process holds during a step.

    On a GPU it is the memory of the device that PyTorch has reserved, without the context of CUDA.
    On a CPU it is the resident memory of the process, with the interpreter and its libraries; 0 on
    systems other than Linux, which do not tell it for a single step.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        step()
        return torch.cuda.max_memory_reserved(device)
    return_memory()
    process = Path("/proc/self")
    try:
        (process / "clear_refs").write_text("5", "ascii")  # resets the peak
    except OSError:
        return 0
    step()
    peak = re.search(r"^VmHWM:\s*(\d+) kB$", (process / "status").read_text("utf-8"), re.M)
    return 1024 * int(peak.group(1)) if peak else 0


_STEPS = 10**6  # length of the schedule; the cost of a step does not depend on it


def random_pairs(experiment: Experiment, device: torch.device) -> Samples:
    """Two batches of random functions on the domain of an experiment's recipe.

    The inputs a are uniform between 1 and 2, and the targets u are normal. On a box, the first axis
    has as many points as the experiment declares. The numbers of points along the other axes are
    scaled in proportion.
    """
    data, count = experiment.data, 2 * experiment.training.batch
    problem = data.load_recipe().problem
    domain, channels = problem.domain, {v.name: _channels(v) for v in problem.variables()}
    if isinstance(domain, Box):
        factor = data.finest_resolution / domain.shape[0]
        domain = Box(tuple(
            replace(grid, n=max(grid.minimum, round(grid.n * factor))) for grid in domain.grids
        ))  # fmt: skip
    inputs, targets = (
        sum(channels[name] for name in names_of(names)) for names in experiment.variables
    )
    shape = (count, *domain.shape)
    moves = {"x": torch.rand(*shape, domain.dim), "weight": torch.ones(shape)}
    moving = moves if domain.moves else {}
    return Samples.of(
        x=None if moving else torch.tensor(domain.points, dtype=torch.float32), y=None,
        samples=np.arange(count), domain=domain, source={"url": "random functions"},
        a=torch.rand(*shape, inputs) + 1,
        u=torch.randn(*shape, targets), per_sample=moving,
        weight=quadrature(domain),
    ).to(device)  # fmt: skip


def _channels(variable: Variable) -> int:
    sizes = zip(variable.dims, variable.shape, strict=True)
    return math.prod(size for dim, size in sizes if dim in LEADING)


class Steps:
    """Training steps, computed as in `fit`.

    A call takes one step: it computes and clips the gradient, and advances the optimiser and the
    learning rate schedule.
    """

    def __init__(self, experiment: Experiment, pairs: Samples, acceleration: Acceleration) -> None:
        if pairs.device.type == "cpu":
            keep_memory()
        settings = experiment.training.settings()
        self.predictor = Predictor(
            checked_operator(experiment, pairs), *experiment.normalization.of(pairs),
            task=experiment.learned,
        ).to(pairs.device)  # fmt: skip
        self.predictor.train()
        self.gradient = Step(
            self.predictor, pairs.x, pairs.y, settings.loss, settings.clip, settings.augment,
            acceleration, weight=pairs.weight,
        )  # fmt: skip
        self.optimizer = settings.optimizer(self.predictor.parameters(), settings.lr)
        if isinstance(self.optimizer, SOAP):
            self.optimizer.graphed = acceleration.graphed
        self.schedule = settings.scheduled(self.optimizer, _STEPS)
        self.seed = 0

    def __call__(self, batch: Batch) -> torch.Tensor:
        loss = self.gradient(batch, self.seed)
        self.optimizer.step()
        self.schedule.step()
        self.seed += 1
        return loss

    def peak_bytes(self, batch: Batch) -> int:
        """Peak memory in bytes of all tensors during a step, including tensors that existed before
        it.
        """
        self(batch)
        return peak_bytes(self.predictor, self.optimizer, lambda: self(batch), batch.a.device)
