"""PyTorch DataLoaders over the epochs of samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader, IterableDataset

from operators.data.batch import Batch

if TYPE_CHECKING:
    from operators.data.samples import Samples


class Epochs(IterableDataset[Batch]):
    """A dataset of batches; each iteration yields the batches of the next epoch."""

    def __init__(self, samples: Samples, batch: int, shuffle: bool, seed: int) -> None:
        self.samples, self.batch, self.shuffle, self.seed = samples, batch, shuffle, seed
        self.epoch = 0

    def __len__(self) -> int:
        count = len(self.samples)
        return count // self.batch if self.shuffle else -(-count // self.batch)

    def __iter__(self) -> Iterator[Batch]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        samples = self.samples
        batches = (
            samples.batches(self.seed, epoch, self.batch)
            if self.shuffle
            else samples.in_order(self.batch)
        )
        with closing(batches):
            yield from batches


def loader(samples: Samples, batch: int, shuffle: bool, seed: int) -> DataLoader[Batch]:
    """A DataLoader over `Epochs`. Threads of this process read the files."""
    return DataLoader(Epochs(samples, batch, shuffle, seed), batch_size=None)
