"""What an experiment is trained and evaluated on: pairs of a store, with noise on their inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import torch

from operators.boundary import Boundary
from operators.data import (
    Channel,
    DataError,
    Pairs,
    Passes,
    Samples,
    StreamedPairs,
    Task,
    open_pairs,
)
from operators.symmetries import CircleSymmetries, SquareSymmetries
from operators.training.evaluate import check_defined
from operators.training.step import Augmentation
from pdegen.recipe import load_recipe, recipe_names
from pdegen.sampling.levels import Levels
from pdegen.sampling.noise import pointwise_deviation
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.declared.experiment import Experiment
from pipelines.declared.physics import domain_of, physics_of
from pipelines.declared.registry import InputNoise
from pipelines.runs.disturbed import Ahead, Disturbance, Noisy, NoisyStream, Quiet
from pipelines.runs.stream import SolvedPairs, check_alike, solved_pairs

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Source:
    """The data of an experiment in a store.

    Args:
        url: The store.
        experiment: Which variables, which grid, which noise, and how they are read.
        weighted: Whether points have quadrature weights, as in tests, or all count alike.
        at: Noise level of the samples that are tested; by default as in training.
        told: What an operator that knows the level is told of it; by default the truth.

    Raises:
        SchemaError: If a level is impossible, or told to an operator that does not take it.
    """

    url: str
    experiment: Experiment
    weighted: bool = True
    at: float | None = None
    told: float | None = None

    def __post_init__(self) -> None:
        if self.told is None:
            return
        if self.scale is None:
            raise SchemaError(
                f"told {self.told:g}: {self.experiment.name} takes no noise level as an input, "
                "which needs a range, noise.level = [low, high]"
            )
        if not 0 <= self.told < math.inf:
            raise SchemaError(f"the level that is told is finite and >= 0, got {self.told}")

    @property
    def noise(self) -> InputNoise | None:
        """That of the samples that are tested.

        Raises:
            SchemaError: If the level is impossible.
        """
        return (self.experiment if self.at is None else self.experiment.at_level(self.at)).noise

    @property
    def scale(self) -> Levels | None:
        """By which the operator is told the level; None for one that does not take it."""
        return None if self.experiment.noise is None else self.experiment.noise.levels

    @property
    def stored_resolution(self) -> int:
        """Points of the first axis of the store's domain."""
        return domain_of(open_sealed(self.url)).shape[0]

    @property
    def dim(self) -> int:
        """Of the domain."""
        return self.streamed("test").dim

    def clean(self, split: str, resolution: int | None = None) -> Pairs:
        """What is evaluated of a split, on the training grid or another, in memory."""
        return self._of_task(self.plain(split, resolution).resident())

    def noisy(
        self, split: str, resolution: int | None = None, noise: InputNoise | None = None
    ) -> Pairs:
        """`clean` with frozen noise on the inputs: the experiment's, or another."""
        return self._of_task(self._noisy(split, resolution, noise))

    def _noisy(
        self, split: str, resolution: int | None = None, noise: InputNoise | None = None
    ) -> Pairs:
        pairs = self.streamed(split, resolution).resident()
        noise = noise or self.noise
        if noise is None:
            return pairs
        return replace(pairs, a=self._noise(pairs, noise).of_all(pairs.a, None))

    def plain(self, split: str, resolution: int | None = None) -> StreamedPairs:
        """`streamed` as the operator takes them: where it knows the level of the noise, it is told
        that there is none."""
        pairs, scale = self.streamed(split, resolution), self.scale
        if scale is None:
            return pairs
        return replace(pairs, altered=Quiet(scale, self.told or 0.0), added=1)

    def some(self, split: str, count: int, resolution: int | None = None) -> Pairs:
        """`clean` of the first samples of a split."""
        pairs = self.plain(split, resolution)
        return self._of_task(replace(pairs, samples=pairs.samples[:count]).resident())

    def _of_task(self, pairs: Pairs) -> Pairs:
        found = self.task.tested(pairs)
        assert isinstance(found, Pairs)
        return found

    @property
    def task(self) -> Task:
        """What is learned."""
        return self.experiment.learned

    def asked(self, split: str, resolution: int | None = None) -> Samples:
        """What is evaluated of a split, without noise, read when it is asked for."""
        return self.task.tested(self.plain(split, resolution))

    def streamed(self, split: str, resolution: int | None = None) -> StreamedPairs:
        """Pairs of a split as they are stored, read when they are asked for; of the training split
        those that the experiment trains on."""
        pairs, wanted = self._whole(split, resolution), self.experiment.data.samples
        pairs = pairs if self.weighted else pairs.alike()
        if split != "train" or wanted is None:
            return pairs
        if wanted > len(pairs):
            raise SchemaError(
                f"data.samples: the training split of {self.url} has {len(pairs)}, got {wanted}"
            )
        return replace(pairs, samples=pairs.samples[:wanted])

    def _whole(self, split: str, resolution: int | None = None) -> StreamedPairs:
        data, (input, target) = self.experiment.data, self.experiment.variables
        self._check_equation()
        return open_pairs(
            self.url, split, resolution or data.resolution, input=input, target=target,
            target_resolution=data.target_resolution,
        )  # fmt: skip

    def boundary(self, pairs: Samples) -> Boundary | None:
        """The values that the store knows of the targets on the boundary of the domain."""
        values = physics_of(open_sealed(self.url)).boundary
        count = pairs.channels[1]
        channels = pairs.target_channels or (Channel(self.experiment.data.target),) * count
        return Boundary.of(pairs.domain, [values.get(channel.variable) for channel in channels])

    def check_symmetries(self, augment: Augmentation | None) -> None:
        """Raise SchemaError for a symmetry that the equation of the store does not have; stores
        that say nothing of symmetries are taken by the user's word."""
        known = physics_of(open_sealed(self.url)).symmetries
        asked = augment.names if isinstance(augment, CircleSymmetries | SquareSymmetries) else ()
        for name in sorted(asked):
            if known and name not in known:
                raise SchemaError(
                    f"training.symmetries: the equation of {self.url} has no {name}, known: "
                    f"{', '.join(known)}"
                )

    def check_applies(self) -> None:
        """Raise SchemaError for a key of the experiment that changes nothing on this store."""
        self.experiment.check_applies(domain_of(open_sealed(self.url)), self.url)

    def check_scores(self) -> None:
        """Raise SchemaError where no sample has an error by which the epoch could be chosen, or
        the model be tested."""
        for split in dict.fromkeys((self.experiment.training.selection_split, "test")):
            try:
                check_defined(self.asked(split))
            except ValueError as error:
                if isinstance(error, DataError):
                    raise
                raise SchemaError(f"split {split} of {self.url}: {error}") from None

    def _check_equation(self) -> None:
        """Raise SchemaError where the store is of another equation than the experiment, as far as
        the project made the store and has the recipe."""
        recipe = self.experiment.data.recipe
        held = open_sealed(self.url).said.recipe.problem.get("equation")
        if held is None or not (recipe.endswith(".toml") or recipe in recipe_names()):
            return
        meant = load_recipe(recipe).problem.word
        if held != meant:
            raise SchemaError(
                f"{self.url} holds samples of {held}, the experiment {self.experiment.name} is of "
                f"{meant}: give a store of {recipe}"
            )

    def deviation(self, pairs: Samples) -> np.ndarray:
        """Deviation σ(x) of the inputs over the whole training split, on the grid of `pairs`: the
        noise of test samples is the same, whatever is trained on."""
        train = self._whole("train", pairs.source["resolution"])
        return pointwise_deviation(block[..., 0].numpy() for block in train.inputs)

    def training(self, device: torch.device) -> Samples:
        """The training samples on a device, with the experiment's noise, fresh in each epoch or
        not: stored ones, in memory or streamed, as the experiment says or as they fit; or those of
        the experiment's stream.

        Raises:
            DataError: If the store, or the stream's recipe, has not what is asked for.
            SchemaError: If the experiment's stream cannot be, or is of other functions than the
                store, on which the epoch is chosen.
        """
        if self.experiment.data.stream is not None:
            return self.task.training(self._solved(device))
        pairs = self.task.training(self._learning._stored(device))
        length = self.experiment.data.epoch_samples
        if length is None:
            return pairs
        if self.experiment.training.batch > len(pairs):  # no pass has one
            raise SchemaError(
                f"batch {self.experiment.training.batch} is larger than the {len(pairs)} samples "
                "to train"
            )
        return Passes.of(pairs, length)

    def _solved(self, device: torch.device) -> SolvedPairs:
        """The stream of the experiment, with its noise."""
        stored, noise = self._whole("train"), self.experiment.noise
        pairs = solved_pairs(
            self.experiment, self.experiment.data.epoch_samples or len(stored), device
        )
        check_alike(pairs, stored)
        pairs = replace(
            pairs, input_channels=stored.input_channels, target_channels=stored.target_channels,
            weight=pairs.weight if self._learning.weighted else None,
        )  # fmt: skip
        if noise is None:
            return pairs
        self._check_noise(pairs)
        added = Disturbance(noise, self.deviation(stored), self.scale)
        return replace(pairs, altered=NoisyStream(added), added=added.channels)

    def _stored(self, device: torch.device) -> Samples:
        pairs, noise = self.streamed("train"), self.experiment.noise
        if not self._fits(pairs, device):
            return self._with_noise(pairs, noise).to(device)
        if noise is None or not noise.fresh:
            return self._noisy("train").to(device)
        clean = pairs.resident()
        added = self._noise(clean, noise)
        # normalisers are those of frozen noise
        noisy = replace(clean, a=added.of_all(clean.a, None))
        renewed = partial(added.of_all, clean.a)
        # the processor that learns has no time to spare
        ahead = renewed if device.type == "cpu" else Ahead(renewed)
        return replace(noisy, renewed=ahead).to(device)

    def tested(
        self, split: str, device: torch.device, resolution: int | None = None,
        task: Task | None = None,
    ) -> Samples:  # fmt: skip
        """The samples of a split on a device, with the experiment's noise, frozen; in memory or
        streamed, as the experiment says or as they fit; of its task, or another."""
        pairs, task = self.streamed(split, resolution), task or self.task
        if self._fits(pairs, device):
            return task.tested(self._noisy(split, resolution)).to(device)
        return task.tested(self._with_noise(pairs, self.noise).to(device))

    def selection(self, device: torch.device) -> Samples:
        """The samples by which the epoch is chosen, at times that training sees."""
        split = self.experiment.training.selection_split
        return self._learning.tested(split, device, task=self.task.seen)

    @property
    def _learning(self) -> Source:
        """The same, with the weights that points have in training."""
        return replace(self, weighted=self.experiment.training.area)

    def _fits(self, pairs: StreamedPairs, device: torch.device) -> bool:
        """Whether samples are to be in memory."""
        reading, noise = self.experiment.data.reading, self.experiment.noise
        copies = 1 if noise is None else 3  # clean ones, noisy ones, and those of the next epoch
        # half of the memory is left to the model and to other samples
        return reading == "resident" or (
            reading == "auto" and 2 * copies * pairs.nbytes <= free_memory(device)
        )

    def _with_noise(self, pairs: StreamedPairs, noise: InputNoise | None) -> StreamedPairs:
        if noise is None:
            return pairs
        noisy = self._noise(pairs, noise)
        return replace(pairs, altered=noisy, added=noisy.added.channels)

    def _noise(self, pairs: Samples, noise: InputNoise) -> Noisy:
        self._check_noise(pairs)
        numbers = noise.build().numbers(pairs.samples.tolist())
        added = Disturbance(noise, self.deviation(pairs), self.scale, self.told)
        return Noisy(added, tuple(numbers))

    def _check_noise(self, pairs: Samples) -> None:
        if pairs.channels[0] != 1:
            raise SchemaError(
                f"noise is for inputs of one channel, {pairs.source['input']} of "
                f"{pairs.source['url']} has {pairs.channels[0]}"
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
