"""Samples of an experiment, from a store or a stream, with or without noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
import torch

from operators.data import DataError, Reader, Samples, Streamed, Task, open_pairs
from operators.data.resolution import ResolutionError
from operators.data.samples import containing
from pdegen.recipe import load_recipe, recipe_names
from pdegen.sampling.noise import Levels, pointwise_std
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment, InputNoise, domain_of
from pipelines.runs.noise import (
    InOrder,
    InStream,
    NoisyInputs,
    NoisyTargets,
    ZeroNoise,
    check_noise,
)
from pipelines.runs.solving import APART
from pipelines.runs.stream import check_alike, solved_pairs

_CGROUP = Path("/sys/fs/cgroup")
Purpose = Literal["training", "selection", "test"]
NoiseChoice = InputNoise | Literal["declared"] | None


@dataclass(frozen=True)
class Source:
    """The data of an experiment in a store.

    Args:
        url: URL of the store.
        experiment: The experiment, which declares the variables, the grid, the noise and how
            samples are read.
        at: Noise level of the test samples; by default the training level.
        assumed_level: Noise level that the operator receives, if the level is one of its inputs; by
            default the true level.
        content: Digest that the content of the store must have; by default any.

    Raises:
        SchemaError: If the assumed level is negative or infinite, or if the operator does not have
            the noise level as an input.
    """

    url: str
    experiment: Experiment
    at: float | None = None
    assumed_level: float | None = None
    content: str | None = None

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
        """Noise of the test samples. Raises SchemaError for an impossible level."""
        return (self.experiment if self.at is None else self.experiment.at_level(self.at)).noise

    @property
    def scale(self) -> Levels | None:
        """Range of noise levels, if the level is an input of the operator; otherwise None."""
        return None if self.experiment.noise is None else self.experiment.noise.levels

    @property
    def task(self) -> Task:
        """The learning task of the experiment."""
        return self.experiment.learned

    @property
    def _containing(self) -> int:
        """The smallest resolution that contains the points of all training batches."""
        trained = self.experiment.data.training_resolutions
        return containing(domain_of(open_sealed(self.url)), trained, self.url)

    @property
    def stored_resolution(self) -> int:
        """Points along the first axis of the store's domain."""
        return domain_of(open_sealed(self.url)).shape[0]

    def samples(
        self,
        split: str,
        purpose: Purpose = "test",
        *,
        noise: NoiseChoice = "declared",
        resolution: int | None = None,
        device: torch.device | None = None,
    ) -> Samples:
        """Samples of a split, as inputs and targets of the operator.

        On meshes and clouds, "test" samples have quadrature weights. The others have them only if
        `training.weights` is "area".

        Args:
            split: Name of the split. If the experiment trains on a part of the training split, only
                this part is returned.
            purpose: "training" returns the samples to train on, stored or streamed, with noise that
                may change with the epoch. "selection" returns the samples that select the best
                epoch, at the times used in training, with fixed noise. "test" returns the samples
                for evaluation, with fixed noise.
            noise: Noise on the inputs. "declared" means the noise that the experiment declares, and
                None means no noise.
            resolution: Points along the first axis. By default, "training" batches have the numbers
                of the experiment, and other samples have the finest of them.
            device: Device of the samples. With None they stay on the CPU and are read on demand.

        Raises:
            DataError: If the store or the recipe of the stream lacks a variable, split or grid, or
                if the store has other data than `content` says.
            SchemaError: If the stream is impossible, or its channels or points differ from the
                store's.
        """
        learning = purpose == "training"
        solved = learning and self.experiment.data.stream is not None
        weighted = purpose == "test" or self.experiment.training.area
        mixed = learning and resolution is None and self.experiment.data.resolutions is not None
        pairs = self.stored(split, self._containing if mixed else resolution, weighted=weighted)
        fits = device is not None and not solved and self._fits(pairs.reader, device)
        if solved:
            pairs = self._solved(pairs, device or torch.device("cpu"))
        pairs = self._with_noise(pairs, self.noise if noise == "declared" else noise, purpose)
        task = self.task.for_selection if purpose == "selection" else self.task
        pairs = task.training(pairs) if learning else task.evaluation(pairs)
        pairs = pairs.resident() if fits else pairs
        pairs = pairs if device is None else pairs.to(device)
        pairs = pairs.mixed(*self.experiment.data.training_resolutions) if mixed else pairs
        return self._epochs(pairs) if learning and not solved else pairs

    def stored(
        self, split: str, resolution: int | None = None, *, weighted: bool = True
    ) -> Samples:
        """Stored samples of a split, read on demand, without noise. If the experiment trains on a
        part of the training split, only this part is returned."""
        pairs = self._whole(split, resolution, weighted)
        count = self.experiment.data.samples
        if split != "train" or count is None:
            return pairs
        if count > len(pairs):
            raise SchemaError(
                f"data.samples: the training split of {self.url} has {len(pairs)}, got {count}"
            )
        return pairs.rows(slice(count))

    def std(self, pairs: Samples) -> np.ndarray:
        """Standard deviation σ(x) of the inputs over the training split, at the points of `pairs`.

        The whole split is used, so that the noise of test samples does not depend on the number of
        training samples.
        """
        train = self._whole("train", pairs.source["resolution"])
        return pointwise_std(block[..., 0].numpy() for block in train.inputs)

    def target_std(self, pairs: Samples) -> np.ndarray:
        """Standard deviation σ(x) of each channel of the targets over the training split."""
        train = self._whole("train", pairs.source["resolution"])
        return pointwise_std(block.numpy() for block in train.targets)

    def _whole(self, split: str, resolution: int | None, weighted: bool = True) -> Samples:
        """All stored samples of a split."""
        data, (input, target) = self.experiment.data, self.experiment.variables
        self._check_equation()
        try:
            pairs = open_pairs(
                self.url, split, resolution or data.finest_resolution, input=input, target=target,
                target_resolution=data.target_resolution, weighted=weighted,
            )  # fmt: skip
        except ResolutionError as error:
            if resolution is not None:
                raise
            n, key = error.possible, "resolution" if data.resolutions is None else "resolutions"
            raise SchemaError(
                f"data.{key}: {error}; this store needs --set data.resolution={n} "
                f"--set 'resolutions=[{n}]'"
            ) from None
        content = pairs.source["content"]
        if self.content not in (None, content):
            raise DataError(
                f"{self.url} has other data than the training (content {content[:12]}, not "
                f"{self.content[:12]}): name the store of the training"
            )
        return pairs

    def _check_equation(self) -> None:
        """Raise SchemaError if the store has another equation than the experiment. Imported stores
        and unknown recipes are not checked."""
        recipe = self.experiment.data.recipe
        stored = open_sealed(self.url).metadata.recipe.problem.get("equation")
        if stored is None or not (recipe.endswith(".toml") or recipe in recipe_names()):
            return
        expected = load_recipe(recipe).problem.equation_name
        if stored != expected:
            raise SchemaError(
                f"{self.url} is a store of {stored}, experiment {self.experiment.name} needs one "
                f"of {expected}: name a store of {recipe}"
            )

    def _solved(self, stored: Samples, device: torch.device) -> Samples:
        """Samples of the stream. Raises SchemaError if their channels, grid or points differ from
        those of the stored samples."""
        count = self.experiment.data.epoch_samples or len(stored)
        pairs = solved_pairs(self.experiment, count, device, stored.source["resolution"])
        check_alike(pairs, stored)
        return replace(
            pairs, input_channels=stored.input_channels, target_channels=stored.target_channels,
            weight=pairs.weight if self.experiment.training.area else None,
        )  # fmt: skip

    def _with_noise(self, pairs: Samples, noise: InputNoise | None, purpose: Purpose) -> Samples:
        """Samples with noise on the inputs, the training targets or both.

        If the operator has the noise level as an input, the level is appended to the inputs as a
        channel. Validation and test targets have no noise.
        """
        if noise is None:
            scale = self.scale
            return (
                pairs
                if scale is None
                else pairs.with_noise(ZeroNoise(scale, self.assumed_level or 0.0))
            )
        source, masked = pairs.source, pairs.masked and purpose == "training"
        check_noise(noise, source["input"], pairs.channels[0], masked, source["url"])
        if stored := isinstance(pairs.reader, Streamed):
            numbers = InOrder.of(noise, pairs.ids.tolist())
        else:
            numbers = InStream(noise, APART)
        noisy = pairs
        if noise.on_inputs:
            # each sample of a stream is used once, so its noise is new anyway
            fresh = stored and purpose == "training" and noise.fresh
            noisy = noisy.with_noise(
                NoisyInputs(noise, self.std(pairs), numbers, self.scale, self.assumed_level, fresh)
            )
        if noise.on_targets and purpose == "training":
            targets = NoisyTargets(noise, self.target_std(pairs), numbers)
            noisy = noisy.with_target_noise(targets)
        return noisy

    def _epochs(self, pairs: Samples) -> Samples:
        """Training samples, with the number of samples per epoch that the experiment declares."""
        length = self.experiment.data.epoch_samples
        if length is None:
            return pairs
        if self.experiment.training.batch > len(pairs):  # an epoch would have no batch
            raise SchemaError(
                f"batch {self.experiment.training.batch} is larger than the {len(pairs)} training "
                "samples"
            )
        return replace(pairs, length=length)

    def _fits(self, reader: Reader, device: torch.device) -> bool:
        """Whether to hold all samples in memory: if the experiment requires it or, by default, if
        they fit."""
        assert isinstance(reader, Streamed)
        reading, noise = self.experiment.data.reading, self.experiment.noise
        copies = 1 if noise is None else 3  # clean, noisy, and noisy of the next epoch
        # half of the memory remains for the model and other samples
        return reading == "resident" or (
            reading == "auto" and 2 * copies * reader.nbytes <= free_memory(device)
        )


def free_memory(device: torch.device) -> int:
    """Bytes that this process may still allocate: the smaller of the free memory of the machine and
    that of the device."""
    free, used = [psutil.virtual_memory().available], psutil.Process().memory_info().rss
    for folder in (_CGROUP, _CGROUP / _own_cgroup()):  # limits of a scheduler or container
        try:
            free.append(int((folder / "memory.max").read_text()) - used)
        except (OSError, ValueError):  # no limit, or "max"
            continue
    if device.type == "cuda":
        free.append(torch.cuda.mem_get_info(device)[0])
    return max(0, min(free))


def _own_cgroup() -> str:
    """Path of the control group (cgroup) of this process, relative to the root of the cgroup file
    system; empty if there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
