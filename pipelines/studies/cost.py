"""What one training step of an operator costs: seconds, memory, floating-point operations."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from operators.nn import precision, spectral  # noqa: F401 - they register operations

Shape = torch.Size


def _forward(q: Shape, k: Shape, v: Shape, *rest: object, **words: object) -> int:
    return sdpa_flop_count(q, k, v)


def _backward(grad: Shape, q: Shape, k: Shape, v: Shape, *rest: object, **words: object) -> int:
    return sdpa_backward_flop_count(grad, q, k, v)


def _added(total: Shape, a: Shape, b: Shape, *rest: object, **words: object) -> int:
    return 2 * math.prod(a) * b[-1]


def _transformed(u: Shape, *rest: object, out_shape: Shape, **words: object) -> int:
    return 2 * math.prod(out_shape) * u[1]


def _exact(f: Shape, g: Shape, **words: object) -> int:
    return 2 * math.prod(f) * g[-1]


# PyTorch itself counts fused attention on GPUs alone, and neither products that add to their result
# nor those that are operations of this package
_COUNTED: dict[object, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
    torch.ops.aten.addmm_: _added,
    torch.ops.aten.baddbmm_: _added,
    torch.ops.operators.transformed: _transformed,
    torch.ops.operators.exact_bmm: _exact,
}
_WARM, _FEWEST, _MOST = 2, 5, 25  # steps
_ENOUGH = 2.0  # seconds


Clock = Callable[[], float]


def clock_of(device: torch.device) -> Clock:
    """Seconds at which all that a device was asked for is done."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


@dataclass(frozen=True)
class Cost:
    """Of one training step.

    Args:
        peak_bytes: Largest sum of all tensors that were alive at once; those of the data included.
        flops: Of the matrix products, attention and convolutions, counted from their shapes; other
            operations, FFTs among them, are not in it.
    """

    seconds: float
    peak_bytes: int
    flops: int


class _Tracker(MemTracker):
    """Lets a step apply a model several times, as a rollout does."""

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
    """Largest sum of all tensors that were alive at once in a step."""
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
