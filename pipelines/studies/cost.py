"""Measures the cost of one training step of an operator: time, memory and floating-point
operations."""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from operators.data import Batch, Samples
from operators.data.opening import names_of
from operators.data.samples import quadrature
from operators.nn import (
    encoder,  # noqa: F401 - they register operations
)
from operators.training.optimizers import SOAP
from operators.training.step import Acceleration, Step, keep_memory, return_memory
from operators.transforms import Predictor
from pdegen.domains import Box
from pdegen.store.format import LEADING
from pdegen.store.layout import Variable
from pipelines.config.experiment import Experiment
from pipelines.runs.checks import checked_operator

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
    """Memory tracker that allows several calls of the model in one step, for example in
    rollouts."""

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
