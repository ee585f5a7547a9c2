"""The processes of one training, started by torchrun; or the one process of it."""

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
    """The processes of a training cannot work together; one line."""

    exit_status = 1


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many; all hold the same weights.

    Args:
        local: Number of the process on its machine: which GPU is its own.
    """

    rank: int = 0
    count: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def mean_gradient(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients by their means over all processes, in one message."""
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients]) / self.count
        _reduced(flat)
        for own, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            own.copy_(mean.view_as(own))

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a number over all processes."""
        if self.count == 1:
            return value
        value = value.clone() / self.count
        _reduced(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in some process."""
        if self.count == 1:
            return flag
        flags = torch.tensor(int(flag))  # on the processor: the device is not waited for
        _reduced(flags, dist.ReduceOp.MAX)
        return bool(flags)

    def same(self, module: nn.Module) -> None:
        """Give weights and buffers of the first process to all."""
        if self.count > 1:
            for value in module.state_dict().values():
                dist.broadcast(value, 0)

    def wait(self) -> None:
        """Until all processes are here."""
        self.any(False)


def _reduced(value: Tensor, how: Any = dist.ReduceOp.SUM) -> None:
    try:
        dist.all_reduce(value, op=how)
    except RuntimeError as error:
        raise RankError(f"another process of the training has ended: {error}") from error


ALONE = Ranks()


@contextmanager
def torchrun(device: torch.device) -> Iterator[Ranks]:
    """The processes that torchrun has started, joined meanwhile; `ALONE` without it.

    Messages go by gloo between processors and by NCCL between GPUs, of which each has its own.
    A process that fails leaves at once, and torchrun ends the others, which may wait for it.

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
                f"process {ranks.local} of this machine has no GPU of its own: there are "
                f"{torch.cuda.device_count()}"
            )
        torch.cuda.set_device(ranks.local)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(days=1))  # the first one may make data
    yield ranks
    dist.destroy_process_group()
