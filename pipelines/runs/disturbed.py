"""What happens to inputs before an operator sees them: noise, and beside it the level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pdegen.sampling.levels import Levels
from pipelines.declared.registry import InputNoise

Numbers = Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class Disturbance:
    """Noise on inputs, and the level beside it where the operator takes that.

    Args:
        numbers: Numbers of samples -> their numbers in the random stream.
        scale: By which the operator is told the level; None for one that does not take it.
        told: The level that it is told; None for the truth.
        fresh: Whether each epoch of training has noise of its own.
    """

    noise: InputNoise
    deviation: np.ndarray
    numbers: Numbers
    scale: Levels | None = None
    told: float | None = None
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
        return _beside(noisy, self.scale.told(known if self.told is None else self.told))


@dataclass(frozen=True)
class Quiet:
    """Inputs without noise for an operator that takes the level."""

    scale: Levels
    told: float
    channels = 1
    fresh = False

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        return _beside(a, self.scale.told(self.told))


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


def _beside(a: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Inputs with a further channel, constant over the points: one number, or one a sample."""
    level = np.broadcast_to(told.reshape(-1, *[1] * (a.ndim - 1)), (*a.shape[:-1], 1))
    return np.concatenate([a, level.astype(a.dtype)], axis=-1)
