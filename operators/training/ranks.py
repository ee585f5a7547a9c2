"""Training by several processes that torchrun started, or by a single process."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class RankError(RuntimeError):
    """The processes of a training cannot work together. The message is one line."""

    exit_status = 1


@dataclass(frozen=True)
class Ranks:
    """The rank of this process in a training, and communication with the other processes.

    All processes have the same weights.

    Args:
        rank: Index of this process.
        count: Number of processes.
        local: Index of this process among those on the same machine, and index of its GPU.
    """

    rank: int = 0
    count: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """Whether this process has rank 0. Only this process writes files and prints."""
        return self.rank == 0

    def mean_gradient(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients by their means over all processes, with a single all-reduce."""
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients]) / self.count
        _all_reduce(flat)
        for gradient, mean in zip(
            gradients, flat.split([g.numel() for g in gradients]), strict=True
        ):
            gradient.copy_(mean.view_as(gradient))

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a number over all processes."""
        if self.count == 1:
            return value
        value = value.clone() / self.count
        _all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is True in at least one process."""
        if self.count == 1:
            return flag
        flags = torch.tensor(int(flag))  # on the host, so as not to wait for the device
        _all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags)

    def same(self, module: nn.Module) -> None:
        """Copy the weights and buffers of process 0 to all processes."""
        if self.count > 1:
            for value in module.state_dict().values():
                dist.broadcast(value, 0)

    def wait(self) -> None:
        """Wait until all processes have made this call."""
        self.any(False)


def _all_reduce(value: Tensor, operation: Any = dist.ReduceOp.SUM) -> None:
    """Replace a value by its reduction over all processes, by default the sum."""
    try:
        dist.all_reduce(value, op=operation)
    except RuntimeError as error:
        raise RankError(f"another process of the training has ended: {error}") from error


ALONE = Ranks()


@contextmanager
def torchrun(device: torch.device) -> Iterator[Ranks]:
    """Connect the processes that torchrun has started. Without torchrun, yield `ALONE`.

    The backend is gloo on CPUs and NCCL on GPUs. Each process has its own GPU. A process that fails
    exits at once, and torchrun then ends the other processes.

    Raises:
        RankError: If there are fewer GPUs than processes.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ALONE
        return
    ranks = Ranks(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
    if device.type == "cuda":
        if ranks.local >= torch.cuda.device_count():
            raise RankError(
                f"process {ranks.local} of this machine has no GPU: there are "
                f"{torch.cuda.device_count()}"
            )
        torch.cuda.set_device(ranks.local)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, timeout=timedelta(days=1)
    )  # the first process may generate data
    yield ranks
    dist.destroy_process_group()
