"""What one training step of an operator costs: seconds, memory, floating-point operations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count


def _forward(q: Any, k: Any, v: Any, *rest: Any, **words: Any) -> int:
    return sdpa_flop_count(q, k, v)


def _backward(grad: Any, q: Any, k: Any, v: Any, *rest: Any, **words: Any) -> int:
    return sdpa_backward_flop_count(grad, q, k, v)


# PyTorch itself counts fused attention on GPUs alone
_ATTENTION_ON_CPU: dict[Any, Any] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
}
_WARM, _MEASURED = 2, 5  # steps


@dataclass(frozen=True)
class Cost:
    """Of one step: forward, loss, backward, Adam.

    Args:
        seconds: Median of some steps after some others.
        peak_bytes: Largest sum of all tensors that were alive at once; those of the data included.
        flops: Of the matrix products, attention and convolutions, counted from their shapes; other
            operations, FFTs among them, are not in it.
    """

    seconds: float
    peak_bytes: int
    flops: int


def step_cost(
    model: nn.Module,
    loss: Callable[[], Tensor],
    device: torch.device,
) -> Cost:
    """Measure steps that minimise a loss.

    Args:
        model: Whose parameters are optimised; they are changed.
        loss: Evaluates the model on a batch.
        device: Where all of it is.
    """
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(_WARM):
        step()
    seconds = []
    for _ in range(_MEASURED):
        finish()
        start = time.perf_counter()
        step()
        finish()
        seconds.append(time.perf_counter() - start)
    with FlopCounterMode(display=False, custom_mapping=_ATTENTION_ON_CPU) as counter:
        step()
    peak = peak_bytes(model, optimizer, step, device)
    return Cost(median(seconds), peak, counter.get_total_flops())


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
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        step()
    snapshot = tracker.get_tracker_snapshot("peak")
    return sum(kinds["Total"] for kinds in snapshot.values())
