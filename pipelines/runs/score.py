"""Errors of a checkpoint, or of another method, for each sample of a split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator

from operators.data import Channel, distinguished
from operators.norms import over_defined, undefined


@dataclass(frozen=True)
class Score:
    """Relative L² errors of the samples of one split at one resolution.

    Args:
        samples: Number of each sample in the store.
        errors: ‖p − u‖/‖u‖ of each sample. It is nan if u is 0; statistics leave such samples out.
        seconds: Duration of the evaluation.
        channels: Mean error of each channel, keyed by name; empty for a single channel.
        steps: Mean error over all components at each time; empty unless there are several
            components and several times.
        measures: Further errors of each sample (`pipelines.runs.measures.MEASURES`).

    Example:
        >>> score = Score("best", 3, "test", 16, (20, 22), (0.1, 0.3), 1.0)
        >>> score.mean, score.worst, score.summary()["skipped"]
        (0.2, 0.3, [21])
        >>> Score.of(score.summary()) == score
        True
    """

    checkpoint: str
    epoch: int
    split: str
    resolution: int
    samples: tuple[int, ...]
    errors: tuple[float, ...]
    seconds: float
    channels: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    measures: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean of the defined errors. The other statistics also omit undefined errors."""
        return over_defined(_mean, self.errors)

    @property
    def median(self) -> float:
        return over_defined(_median, self.errors)

    @property
    def worst(self) -> float:
        return over_defined(max, self.errors)

    @property
    def std(self) -> float:
        return over_defined(std, self.errors)

    @property
    def left_out(self) -> list[int]:
        """Numbers of the samples whose relative error is undefined because their target is 0."""
        return undefined(self.samples, self.errors)

    def measured(self, measure: str) -> tuple[float, ...]:
        """Error of each sample in one of `pipelines.runs.measures.MEASURES`, or in "l2", the
        relative L² error of all channels. Raises KeyError if the measure does not apply to the
        data."""
        return self.errors if measure == "l2" else self.measures[measure]

    def summary(self) -> dict[str, Any]:
        """Entry of scores.json, with the errors and their statistics."""
        first, last = self.samples[0], self.samples[-1]
        return {
            "checkpoint": self.checkpoint,
            "epoch": self.epoch,
            "split": self.split,
            "resolution": self.resolution,
            "first_sample": first,
            "skipped": sorted(set(range(first, last)) - set(self.samples)),
            "samples": len(self.samples),
            **{key: getattr(self, key) for key in ("mean", "median", "worst", "std")},
            "seconds": self.seconds,
            **{key: dict(means) for key in ("channels", "steps") if (means := getattr(self, key))},
            "errors": list(self.errors),
            **({"left_out": left_out} if (left_out := self.left_out) else {}),
            **({"measures": measures} if (measures := self._measures()) else {}),
        }

    def _measures(self) -> dict[str, Any]:
        return {
            name: {
                "mean": over_defined(_mean, errors), "median": over_defined(_median, errors),
                "worst": over_defined(max, errors), "errors": list(errors),
            }
            for name, errors in self.measures.items()
        }  # fmt: skip

    @classmethod
    def of(cls, summary: dict[str, Any]) -> Score:
        """The score with the given summary. Raises ValueError, TypeError or KeyError if the summary
        is invalid."""
        skipped, errors = set(summary.get("skipped", ())), tuple(map(float, summary["errors"]))
        first, count = int(summary.get("first_sample", 0)), int(summary["samples"])
        if not 0 < count == len(errors):
            raise ValueError(f"{len(errors)} errors of {count} samples")
        numbers = tuple(n for n in range(first, first + count + len(skipped)) if n not in skipped)
        return cls(
            checkpoint=str(summary["checkpoint"]),
            epoch=int(summary["epoch"]),
            split=str(summary["split"]),
            resolution=int(summary["resolution"]),
            samples=numbers,
            errors=errors,
            seconds=float(summary["seconds"]),
            **{
                key: {str(name): float(mean) for name, mean in summary.get(key, {}).items()}
                for key in ("channels", "steps")
            },
            measures={
                str(name): tuple(map(float, measure["errors"]))
                for name, measure in summary.get("measures", {}).items()
            },
        )


def _mean(errors: list[float]) -> float:
    return float(np.mean(errors))


def _median(errors: list[float]) -> float:
    return float(np.median(errors))


def std(errors: list[float]) -> float:
    """Standard deviation of errors; infinite if an error is infinite."""
    return float(np.std(errors)) if np.isfinite(errors).all() else math.inf


def times_in(channels: Sequence[Channel]) -> list[float]:
    """Times of the channels. The list is empty unless the channels are ordered by time and then by
    component.

    >>> times_in([Channel("u", c, t) for t in (0.0, 0.5) for c in ("u_x", "u_y")])
    [0.0, 0.5]
    """
    times = list(dict.fromkeys(channel.time for channel in channels if channel.time is not None))
    components = len(channels) // max(1, len(times))
    by_time = [c.time for c in channels] == [time for time in times for _ in range(components)]
    return times if by_time else []


def channel_parts(channels: Sequence[Channel]) -> dict[str, list[str]]:
    """Names of the channels and times whose errors are recorded separately, keyed by field of
    `Score` ("channels" or "steps").

    >>> channel_parts([Channel("u", c, t) for t in (0.0, 0.5) for c in ("u_x", "u_y")])["steps"]
    ['0', '0.5']
    >>> channel_parts([Channel("u")])
    {}
    """
    if len(channels) < 2:
        return {}
    parts = {"channels": [channel.name for channel in distinguished(channels)]}
    times = times_in(channels)
    if 1 < len(times) < len(channels):
        parts["steps"] = [f"{time:g}" for time in times]
    return parts


def _parsed(value: object) -> object:
    if not isinstance(value, dict):
        return value
    try:
        return Score.of(value)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no score: {error}") from None


KeptScore = Annotated[Score, BeforeValidator(_parsed)]  # in a pydantic model of a file
