"""What happens to inputs before an operator sees them: noise, and beside it the level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from pdegen.sampling.levels import Levels
from pipelines.declared.registry import InputNoise
from pipelines.runs.stream import APART


@dataclass(frozen=True)
class Disturbance:
    """Noise on inputs, and the level beside it where the operator takes that.

    Args:
        noise: Which.
        deviation: σ(x) of the inputs.
        scale: By which the operator is told the level; None for one that does not take it.
        told: The level that it is told; None for the truth.
    """

    noise: InputNoise
    deviation: np.ndarray
    scale: Levels | None = None
    told: float | None = None

    @property
    def channels(self) -> int:
        """That come after those of the inputs."""
        return 0 if self.scale is None else 1

    def __call__(self, a: np.ndarray, numbers: Sequence[int], epoch: int) -> np.ndarray:
        """Inputs with the noise of these numbers in the random stream."""
        noise, model = self.noise, self.noise.build()
        levels = None if noise.levels is None else noise.levels.drawn(noise.seed, numbers, epoch)
        noisy = model.add(a[..., 0], noise.seed, numbers, self.deviation, epoch, levels)[..., None]
        if self.scale is None:
            return noisy
        known = model.level if levels is None else levels
        return _beside(noisy, self.scale.told(known if self.told is None else self.told))


@dataclass(frozen=True)
class Noisy:
    """Inputs with noise, as a function of their places among the samples and of the epoch.

    Args:
        added: Which noise.
        numbers: What each sample has for a number in the random stream.
    """

    added: Disturbance
    numbers: tuple[int, ...]

    def __call__(self, a: np.ndarray, places: Sequence[int], epoch: int | None) -> np.ndarray:
        """Noisy inputs; epoch None has the frozen noise, and all have it unless it is fresh."""
        numbers = [self.numbers[place] for place in places]
        number = 0 if epoch is None or not self.added.noise.fresh else epoch + 1
        return self.added(a, numbers, number)

    def of_all(self, a: torch.Tensor, epoch: int | None) -> torch.Tensor:
        """The same of all samples."""
        return torch.from_numpy(self(a.numpy(), range(len(a)), epoch))


class Ahead:
    """The inputs of an epoch, whose successor is made in a thread while the epoch is learned.

    Args:
        of: The inputs of an epoch, a function of its number alone.
    """

    def __init__(self, of: Callable[[int], torch.Tensor]) -> None:
        self.of = of
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inputs")
        self._next: tuple[int, Future[torch.Tensor]] | None = None

    def __call__(self, epoch: int) -> torch.Tensor:
        waiting, self._next = self._next, None
        ready = waiting is not None and waiting[0] == epoch
        found = waiting[1].result() if waiting is not None and ready else self.of(epoch)
        self._next = epoch + 1, self._thread.submit(self.of, epoch + 1)
        return found


@dataclass(frozen=True)
class NoisyStream:
    """Inputs of a stream with noise, as a function of the numbers of the samples.

    Args:
        added: Which noise; a number comes once, so it is fresh in any case.
    """

    added: Disturbance

    def __call__(self, a: np.ndarray, samples: range) -> np.ndarray:
        start = samples.start // APART * APART
        # of the whole stream, as if it were a set: one kind of noise goes by places in a set
        numbers = self.added.noise.build().numbers(range(start, start + APART))
        return self.added(a, numbers[samples.start - start : samples.stop - start], 0)


@dataclass(frozen=True)
class Quiet:
    """Inputs without noise for an operator that takes the level.

    Args:
        scale: By which it is told the level.
        told: The level.
    """

    scale: Levels
    told: float

    def __call__(self, a: np.ndarray, places: Sequence[int], epoch: int | None) -> np.ndarray:
        return _beside(a, self.scale.told(self.told))


def _beside(a: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Inputs with a further channel, constant over the points: one number, or one a sample."""
    level = np.broadcast_to(told.reshape(-1, *[1] * (a.ndim - 1)), (*a.shape[:-1], 1))
    return np.concatenate([a, level.astype(a.dtype)], axis=-1)
