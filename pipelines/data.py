"""What an experiment is trained and evaluated on: pairs of a store, with noise on their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from operators.data import Pairs, read_pairs
from pdegen.noise import pointwise_deviation
from pdegen.store import open_sealed
from pipelines.experiment import Experiment
from pipelines.registry import InputNoise


@dataclass(frozen=True)
class Source:
    """The data of an experiment in a store.

    Args:
        url: The store.
        experiment: Which variables, which grid, which noise.
    """

    url: str
    experiment: Experiment

    @property
    def stored_resolution(self) -> int:
        """Points of each axis of the store."""
        return open_sealed(self.url).array("x").shape[0]

    def clean(self, split: str, resolution: int | None = None) -> Pairs:
        """Pairs of a split as they are stored, on the training grid or another."""
        data = self.experiment.data
        return read_pairs(
            self.url, split, resolution or data.resolution, input=data.input,
            target=data.target, target_resolution=data.target_resolution,
        )  # fmt: skip

    def noisy(
        self, split: str, resolution: int | None = None, noise: InputNoise | None = None
    ) -> Pairs:
        """Pairs of a split with frozen noise on the inputs: the experiment's, or another."""
        pairs, noise = self.clean(split, resolution), noise or self.experiment.noise
        if noise is None:
            return pairs
        added = Noisy.of(pairs, noise, self.deviation(pairs))
        return replace(pairs, a=added(0))

    def deviation(self, pairs: Pairs) -> np.ndarray:
        """Deviation σ(x) of the inputs over the training split, on the grid of `pairs`."""
        train = self.clean("train", pairs.source["resolution"])
        return pointwise_deviation(part[..., 0].numpy() for part in train.a.split(64))

    def training(self, device: torch.device) -> tuple[Pairs, Callable[[int], torch.Tensor] | None]:
        """The training pairs, and the inputs of an epoch where the noise is fresh in each."""
        noise = self.experiment.noise
        if noise is None:
            return self.clean("train").to(device), None
        if not noise.fresh:
            return self.noisy("train").to(device), None
        pairs = self.clean("train")
        added = Noisy.of(pairs, noise, self.deviation(pairs))
        # epoch 0 is the frozen noise; normalisers are those of noisy inputs
        return replace(pairs, a=added(0)).to(device), lambda epoch: added(epoch + 1).to(device)


@dataclass(frozen=True)
class Noisy:
    """Inputs with noise, as a function of the epoch."""

    clean: np.ndarray
    samples: range
    noise: InputNoise
    deviation: np.ndarray

    @classmethod
    def of(cls, pairs: Pairs, noise: InputNoise, deviation: np.ndarray) -> Noisy:
        return cls(pairs.a[..., 0].numpy(), range(*pairs.samples), noise, deviation)

    def __call__(self, epoch: int) -> torch.Tensor:
        noise = self.noise.build()
        values = noise(self.clean, self.noise.seed, self.samples, self.deviation, epoch)
        return torch.from_numpy(values)[..., None]
