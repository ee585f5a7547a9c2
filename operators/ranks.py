"""The processes of one training, started by torchrun; or the one process of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many; all hold the same weights.

    Args:
        rank, count: 0 <= rank < count.
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
        dist.all_reduce(flat)
        for own, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            own.copy_(mean.view_as(own))

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a number over all processes."""
        if self.count == 1:
            return value
        value = value.clone() / self.count
        dist.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in some process."""
        if self.count == 1:
            return flag
        flags = torch.tensor(int(flag))  # on the processor: the device is not waited for
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def same(self, module: nn.Module) -> None:
        """Give weights and buffers of the first process to all."""
        if self.count > 1:
            for value in module.state_dict().values():
                dist.broadcast(value, 0)

    def wait(self) -> None:
        """Until all processes are here."""
        self.any(False)


ALONE = Ranks()


@contextmanager
def torchrun() -> Iterator[Ranks]:
    """The processes that torchrun has started, joined meanwhile; `ALONE` without it.

    Messages go by gloo between processors and by NCCL between GPUs.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield ALONE
        return
    ranks = Ranks(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
    if torch.cuda.is_available():
        torch.cuda.set_device(ranks.local)
        dist.init_process_group("cpu:gloo,cuda:nccl")
    else:
        dist.init_process_group("gloo")
    try:
        yield ranks
    finally:
        dist.destroy_process_group()
