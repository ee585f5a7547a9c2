"""Noise on the samples of an experiment: on the inputs, or on the training targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from operators.data.opening import names_of
from pdegen.sampling.noise import Levels, hashed
from pdegen.schema import SchemaError
from pipelines.config.experiment import InputNoise

Numbers = Callable[[Sequence[int]], Sequence[int]]
"""Numbers of samples -> their numbers in the random stream."""


@dataclass(frozen=True)
class NoisyInputs:
    """Adds noise to the inputs. If the operator has the noise level as an input, the level is
    appended to the inputs as a channel.

    Args:
        noise: Kind, level and seed of the noise.
        std: Standard deviation σ(x) of the inputs over the training split.
        numbers: Function from sample numbers to the numbers that select the random noise of each
            sample.
        scale: Range of noise levels, if the level is an input of the operator; otherwise None.
        assumed_level: The noise level in the appended channel; None for the true level.
        fresh: Whether each epoch of training draws new noise.
    """

    noise: InputNoise
    std: np.ndarray
    numbers: Numbers
    scale: Levels | None = None
    assumed_level: float | None = None
    fresh: bool = False

    @property
    def channels(self) -> int:
        """Number of appended channels."""
        return 0 if self.scale is None else 1

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        noise, model, numbers = self.noise, self.noise.build(), self.numbers(samples)
        draw = 0 if epoch is None or not self.fresh else epoch + 1
        levels = None if noise.levels is None else noise.levels.drawn(noise.seed, numbers, draw)
        noisy = model.add(a[..., 0], noise.seed, numbers, self.std, draw, levels)[..., None]
        if self.scale is None:
            return noisy
        true = model.level if levels is None else levels
        level = true if self.assumed_level is None else self.assumed_level
        return _with_channel(noisy, self.scale.feature(level))


@dataclass(frozen=True)
class NoisyTargets:
    """Adds noise to the targets of training samples, which a measured label would have.

    A sample has the same noise in all epochs, because it is measured once. The noise is independent
    of that on the inputs, and channels have independent noise.

    Args:
        noise: Kind, level and seed of the noise.
        std: Standard deviation σ(x) of each channel of the targets over the training split,
            shape (*grid, c).
        numbers: Function from sample numbers to the numbers that select the random noise of each
            sample.
    """

    noise: InputNoise
    std: np.ndarray
    numbers: Numbers
    channels = 0
    fresh = False

    def __call__(self, u: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        model, numbers, noisy = self.noise.build(), self.numbers(samples), np.empty_like(u)
        for channel in range(u.shape[-1]):
            seed = hashed(self.noise.seed, f"targets {channel}", 0)
            std = self.std[..., channel]
            noisy[..., channel] = model.add(u[..., channel], seed, numbers, std)
        return noisy


@dataclass(frozen=True)
class ZeroNoise:
    """Leaves inputs free of noise, and appends the assumed noise level as a channel."""

    scale: Levels
    assumed_level: float
    channels = 1
    fresh = False

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        return _with_channel(a, self.scale.feature(self.assumed_level))


@dataclass(frozen=True)
class InOrder:
    """Maps the samples of a split to the numbers that select their random noise."""

    by_sample: dict[int, int]

    @classmethod
    def of(cls, noise: InputNoise, samples: Sequence[int]) -> InOrder:
        """The numbers that this kind of noise assigns to the samples of a split."""
        return cls(dict(zip(samples, noise.build().numbers(samples), strict=True)))

    def __call__(self, samples: Sequence[int]) -> list[int]:
        return [self.by_sample[sample] for sample in samples]


@dataclass(frozen=True)
class InStream:
    """Maps streamed training samples to the numbers that select their random noise. A training is
    treated like a split. Noise that numbers the samples of a split from 0 also numbers the samples
    of each training from 0.

    Args:
        noise: Kind, level and seed of the noise.
        apart: Number of sample numbers reserved for each training.
    """

    noise: InputNoise
    apart: int

    def __call__(self, samples: Sequence[int]) -> Sequence[int]:
        start = samples[0] // self.apart * self.apart
        numbers = self.noise.build().numbers(range(start, start + self.apart))
        return numbers[samples[0] - start : samples[-1] + 1 - start]


def _with_channel(a: np.ndarray, feature: np.ndarray) -> np.ndarray:
    """Append a channel that is constant over the points. `feature` has one value for all samples,
    or one for each sample."""
    level = np.broadcast_to(feature.reshape(-1, *[1] * (a.ndim - 1)), (*a.shape[:-1], 1))
    return np.concatenate([a, level.astype(a.dtype)], axis=-1)


def check_noise(
    noise: InputNoise, inputs: str | Sequence[str], channels: int, masked: bool, where: str
) -> None:
    """Raise SchemaError if noise is impossible for these inputs, or for targets with padding."""
    if noise.on_inputs and channels != 1:
        names = ", ".join(names_of(inputs))
        raise SchemaError(
            f"noise is for inputs with one channel, {names} of {where} has {channels}"
        )
    if noise.on_targets and masked:
        raise SchemaError(
            "noise on the targets needs samples with equal numbers of points, those of "
            f'{where} differ: use noise.on = "inputs"'
        )
