"""What an experiment is trained and evaluated on: samples of a store, with noise on the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
import torch

from operators.data import Reader, Samples, Streamed, Task, open_pairs
from pdegen.recipe import load_recipe, recipe_names
from pdegen.sampling.noise import pointwise_deviation
from pdegen.sampling.noise_levels import Levels
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.config.physics import domain_of
from pipelines.config.registry import InputNoise
from pipelines.runs.stream import APART, check_alike, solved_pairs

_CGROUP = Path("/sys/fs/cgroup")
Purpose = Literal["training", "selection", "test"]
Wanted = InputNoise | Literal["declared"] | None


@dataclass(frozen=True)
class Source:
    """The data of an experiment in a store.

    Args:
        url: The store.
        experiment: Which variables, which grid, which noise, and how they are read.
        at: Noise level of the samples that are tested; by default as in training.
        assumed_level: What an operator that knows the level is told of it; by default the truth.

    Raises:
        SchemaError: If a level is impossible, or told to an operator that does not take it.
    """

    url: str
    experiment: Experiment
    at: float | None = None
    assumed_level: float | None = None

    def __post_init__(self) -> None:
        if self.assumed_level is None:
            return
        if self.scale is None:
            raise SchemaError(
                f"assumed level {self.assumed_level:g}: {self.experiment.name} takes no noise "
                "level as an input, which needs a range, noise.level = [low, high]"
            )
        if not 0 <= self.assumed_level < math.inf:
            raise SchemaError(
                f"the assumed noise level must be finite and >= 0, got {self.assumed_level}"
            )

    @property
    def noise(self) -> InputNoise | None:
        """That of the samples that are tested. Raises SchemaError if the level is impossible."""
        return (self.experiment if self.at is None else self.experiment.at_level(self.at)).noise

    @property
    def scale(self) -> Levels | None:
        """By which the operator is told the level; None for one that does not take it."""
        return None if self.experiment.noise is None else self.experiment.noise.levels

    @property
    def task(self) -> Task:
        return self.experiment.learned

    @property
    def stored_resolution(self) -> int:
        """Points of the first axis of the store's domain."""
        return domain_of(open_sealed(self.url)).shape[0]

    def samples(
        self,
        split: str,
        purpose: Purpose = "test",
        *,
        noise: Wanted = "declared",
        resolution: int | None = None,
        device: torch.device | None = None,
    ) -> Samples:
        """Samples of a split as the operator takes them.

        Args:
            split: Of the store; the training split has the samples that the experiment trains on.
            purpose: "training" gives the examples to learn from, stored ones or those of the
                experiment's stream, with the noise of the epoch; "selection" what the epoch is
                chosen by, at times that training sees; "test" what is evaluated. Noise of the
                last two is frozen, and the weights of points in the first two are those of the
                training.
            noise: Of the inputs: "declared" by the experiment, another one, or None. An operator
                that takes the level is told it.
            resolution: Points of the first axis; by default as in training.

        Raises:
            DataError: If the store, or the stream's recipe, has not what is asked for.
            SchemaError: If the experiment's stream cannot be, or is of other functions than the
                store, on which the epoch is chosen.
        """
        learning = purpose == "training"
        solved = learning and self.experiment.data.stream is not None
        weighted = purpose == "test" or self.experiment.training.area
        pairs = self.stored(split, resolution, weighted=weighted)
        fits = device is not None and not solved and self._fits(pairs.reader, device)
        if solved:
            pairs = self._solved(pairs, device or torch.device("cpu"))
        pairs = self._disturbed(pairs, self.noise if noise == "declared" else noise, purpose)
        task = self.task.seen if purpose == "selection" else self.task
        pairs = task.training(pairs) if learning else task.tested(pairs)
        pairs = pairs.resident() if fits else pairs
        pairs = pairs if device is None else pairs.to(device)
        return self._epochs(pairs) if learning and not solved else pairs

    def stored(
        self, split: str, resolution: int | None = None, *, weighted: bool = True
    ) -> Samples:
        """Samples of a split as they are stored, read when they are asked for; of the training
        split those that the experiment trains on."""
        pairs = self._whole(split, resolution, weighted)
        wanted = self.experiment.data.samples
        if split != "train" or wanted is None:
            return pairs
        if wanted > len(pairs):
            raise SchemaError(
                f"data.samples: the training split of {self.url} has {len(pairs)}, got {wanted}"
            )
        return pairs.rows(slice(wanted))

    def deviation(self, pairs: Samples) -> np.ndarray:
        """Deviation σ(x) of the inputs over the whole training split, on the grid of `pairs`: the
        noise of test samples is the same, whatever is trained on."""
        train = self._whole("train", pairs.source["resolution"])
        return pointwise_deviation(block[..., 0].numpy() for block in train.inputs)

    def _whole(self, split: str, resolution: int | None, weighted: bool = True) -> Samples:
        data, (input, target) = self.experiment.data, self.experiment.variables
        self._check_equation()
        return open_pairs(
            self.url, split, resolution or data.resolution, input=input, target=target,
            target_resolution=data.target_resolution, weighted=weighted,
        )  # fmt: skip

    def _check_equation(self) -> None:
        """Raise SchemaError where the store is of another equation than the experiment, as far as
        the project made the store and has the recipe."""
        recipe = self.experiment.data.recipe
        held = open_sealed(self.url).metadata.recipe.problem.get("equation")
        if held is None or not (recipe.endswith(".toml") or recipe in recipe_names()):
            return
        meant = load_recipe(recipe).problem.equation_name
        if held != meant:
            raise SchemaError(
                f"{self.url} holds samples of {held}, the experiment {self.experiment.name} is of "
                f"{meant}: give a store of {recipe}"
            )

    def _solved(self, stored: Samples, device: torch.device) -> Samples:
        count = self.experiment.data.epoch_samples or len(stored)
        pairs = solved_pairs(self.experiment, count, device)
        check_alike(pairs, stored)
        return replace(
            pairs, input_channels=stored.input_channels, target_channels=stored.target_channels,
            weight=pairs.weight if self.experiment.training.area else None,
        )  # fmt: skip

    def _disturbed(self, pairs: Samples, noise: InputNoise | None, purpose: Purpose) -> Samples:
        if noise is None:
            scale = self.scale
            return (
                pairs
                if scale is None
                else pairs.disturbed(ZeroNoise(scale, self.assumed_level or 0.0))
            )
        if pairs.channels[0] != 1:
            raise SchemaError(
                f"noise is for inputs of one channel, {pairs.source['input']} of "
                f"{pairs.source['url']} has {pairs.channels[0]}"
            )
        if stored := isinstance(pairs.reader, Streamed):
            numbers = InOrder.of(noise, pairs.samples.tolist())
        else:
            numbers = InStream(noise, APART)
        # a number of a stream comes once: its noise is fresh in any case
        fresh = stored and purpose == "training" and noise.fresh
        deviation = self.deviation(pairs)
        return pairs.disturbed(
            NoisyInputs(noise, deviation, numbers, self.scale, self.assumed_level, fresh)
        )

    def _epochs(self, pairs: Samples) -> Samples:
        """Training samples in epochs of the length that the experiment says."""
        length = self.experiment.data.epoch_samples
        if length is None:
            return pairs
        if self.experiment.training.batch > len(pairs):  # no pass has one
            raise SchemaError(
                f"batch {self.experiment.training.batch} is larger than the {len(pairs)} samples "
                "to train"
            )
        return replace(pairs, length=length)

    def _fits(self, reader: Reader, device: torch.device) -> bool:
        """Whether samples are to be in memory."""
        assert isinstance(reader, Streamed)
        reading, noise = self.experiment.data.reading, self.experiment.noise
        copies = 1 if noise is None else 3  # clean ones, noisy ones, and those of the next epoch
        # half of the memory is left to the model and to other samples
        return reading == "resident" or (
            reading == "auto" and 2 * copies * reader.nbytes <= free_memory(device)
        )


def free_memory(device: torch.device) -> int:
    """Bytes that this process may still take, on the machine and on the device."""
    free, own = [psutil.virtual_memory().available], psutil.Process().memory_info().rss
    for folder in (_CGROUP, _CGROUP / _own_cgroup()):  # where a scheduler or container limits it
        try:
            free.append(int((folder / "memory.max").read_text()) - own)
        except (OSError, ValueError):  # none, or "max"
            continue
    if device.type == "cuda":
        free.append(torch.cuda.mem_get_info(device)[0])
    return max(0, min(free))


def _own_cgroup() -> str:
    """Path of the control group of this process below the root; empty where there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")


Numbers = Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class NoisyInputs:
    """Noise on inputs, and the level beside it where the operator takes that.

    Args:
        numbers: Numbers of samples -> their numbers in the random stream.
        scale: By which the operator is told the level; None for one that does not take it.
        assumed_level: The level that it is told; None for the truth.
        fresh: Whether each epoch of training has noise of its own.
    """

    noise: InputNoise
    deviation: np.ndarray
    numbers: Numbers
    scale: Levels | None = None
    assumed_level: float | None = None
    fresh: bool = False

    @property
    def channels(self) -> int:
        return 0 if self.scale is None else 1

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        noise, model, numbers = self.noise, self.noise.build(), self.numbers(samples)
        number = 0 if epoch is None or not self.fresh else epoch + 1
        levels = None if noise.levels is None else noise.levels.drawn(noise.seed, numbers, number)
        noisy = model.add(a[..., 0], noise.seed, numbers, self.deviation, number, levels)[..., None]
        if self.scale is None:
            return noisy
        known = model.level if levels is None else levels
        return _beside(
            noisy, self.scale.feature(known if self.assumed_level is None else self.assumed_level)
        )


@dataclass(frozen=True)
class ZeroNoise:
    """Inputs without noise for an operator that takes the level."""

    scale: Levels
    assumed_level: float
    channels = 1
    fresh = False

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        return _beside(a, self.scale.feature(self.assumed_level))


@dataclass(frozen=True)
class InOrder:
    """The number of each of some samples in the random stream."""

    by_sample: dict[int, int]

    @classmethod
    def of(cls, noise: InputNoise, samples: Sequence[int]) -> InOrder:
        """Numbers of the samples of a split, as the kind of noise counts them."""
        return cls(dict(zip(samples, noise.build().numbers(samples), strict=True)))

    def __call__(self, samples: Sequence[int]) -> list[int]:
        return [self.by_sample[sample] for sample in samples]


@dataclass(frozen=True)
class InStream:
    """The numbers of the samples of a stream in the random stream: those of one training, of which
    there are so many, are counted as a split.

    Args:
        apart: Numbers of samples that each training has for itself.
    """

    noise: InputNoise
    apart: int

    def __call__(self, samples: Sequence[int]) -> Sequence[int]:
        start = samples[0] // self.apart * self.apart
        numbers = self.noise.build().numbers(range(start, start + self.apart))
        return numbers[samples[0] - start : samples[-1] + 1 - start]


def _beside(a: np.ndarray, assumed_level: np.ndarray) -> np.ndarray:
    """Inputs with a further channel, constant over the points: one number, or one a sample."""
    level = np.broadcast_to(assumed_level.reshape(-1, *[1] * (a.ndim - 1)), (*a.shape[:-1], 1))
    return np.concatenate([a, level.astype(a.dtype)], axis=-1)
