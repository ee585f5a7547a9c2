"""Errors of a checkpoint, or of another method, for each sample of a split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import BeforeValidator
from scipy.spatial import KDTree
from torch import Tensor

from operators.data import Batch, Channel, Samples, Task, TrajectoryTask, distinguished
from operators.norms import over_defined, undefined
from operators.training.evaluate import errors_of, positions
from pdegen.domains import NAMES, Box

# Measures that compare the phases and interfaces of reconstructed and true coefficients.


_DIAMETER = float(np.sqrt(2))  # diameter of the unit square


def phases(a: Float[np.ndarray, "..."], values: tuple[float, float]) -> Bool[np.ndarray, "..."]:
    """Mask of the cells whose value is nearer to the larger of the two phase values.

    >>> phases(np.array([3.0, 7.0, 8.0]), (3.0, 12.0))
    array([False, False,  True])
    """
    return a > sum(values) / 2


def intersection_over_union(p: Bool[np.ndarray, "n n"], q: Bool[np.ndarray, "n n"]) -> float:
    """Mean of |P ∩ Q| / |P ∪ Q| over both phases. P and Q are the cells of one phase in the first
    and in the second field. If both sets are empty, the ratio is 1."""

    def ratio(v: np.ndarray, w: np.ndarray) -> float:
        union = np.count_nonzero(v | w)
        return np.count_nonzero(v & w) / union if union else 1.0

    return (ratio(p, q) + ratio(~p, ~q)) / 2


def hausdorff(p: Bool[np.ndarray, "n n"], q: Bool[np.ndarray, "n n"]) -> float:
    """Hausdorff distance between the interfaces of two fields in the unit square. `p` and `q` are
    the masks of one phase.

    An interface consists of the midpoints of all faces between cells of different phases. If only
    one field has an interface, the distance is √2, the diameter of the square. If neither field has
    an interface, the distance is 0.
    """
    first, second = interface_points(p), interface_points(q)
    if not len(first) or not len(second):
        return 0.0 if len(first) == len(second) else _DIAMETER
    first_to_second, _ = KDTree(second).query(first)
    second_to_first, _ = KDTree(first).query(second)
    return float(max(first_to_second.max(), second_to_first.max()))


def agreement(
    reconstructed: Float[np.ndarray, "batch n n"],
    truth: Float[np.ndarray, "batch n n"],
    values: tuple[float, float],
) -> tuple[Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
    """Intersection over union of the phases and Hausdorff distance of the interfaces for each
    sample."""
    pairs = [
        (phases(p, values), phases(q, values)) for p, q in zip(reconstructed, truth, strict=True)
    ]
    return (
        np.array([intersection_over_union(p, q) for p, q in pairs]),
        np.array([hausdorff(p, q) for p, q in pairs]),
    )


def interface_points(p: Bool[np.ndarray, "n n"]) -> Float[np.ndarray, "points 2"]:
    """Midpoints of the faces between the phases, for cells of the unit square."""
    across_x, across_y = np.argwhere(p[1:] != p[:-1]), np.argwhere(p[:, 1:] != p[:, :-1])
    points = np.concatenate([np.add(across_x, (1.0, 0.5)), np.add(across_y, (0.5, 1.0))])
    return points / len(p)


def at_interface(p: Bool[np.ndarray, "*batch n n"]) -> Bool[np.ndarray, "*batch n n"]:
    """Mask of the cells with a face between the phases.

    >>> at_interface(np.array([[True, True, True], [True, True, True], [True, True, False]])) * 1
    array([[0, 0, 0],
           [0, 0, 1],
           [0, 1, 1]])
    """
    mask = np.zeros_like(p)
    across_x, across_y = p[..., 1:, :] != p[..., :-1, :], p[..., 1:] != p[..., :-1]
    mask[..., 1:, :] |= across_x
    mask[..., :-1, :] |= across_x
    mask[..., 1:] |= across_y
    mask[..., :-1] |= across_y
    return mask


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
        measures: Further errors of each sample (`pipelines.runs.score.MEASURES`).

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
        """Error of each sample in one of `pipelines.runs.score.MEASURES`, or in "l2", the
        relative L² error of all channels. Raises KeyError if the measure does not apply to the
        data."""
        return self.errors if measure == "l2" else self.measures[measure]

    @property
    def residual_correlation(self) -> float:
        """Correlation of residuals and errors over the samples; nan if they have none."""
        both = np.array([self.errors, self.measures.get("residual", self.errors)])
        both = both[:, np.isfinite(both).all(axis=0)]
        if "residual" not in self.measures or both.shape[1] < 3 or not both.std(axis=1).all():
            return math.nan
        return float(np.corrcoef(both)[0, 1])

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


# Further error measures: other norms, and errors in parts of space, time and frequency.


# bands of |k|, in waves (or pairs of half waves) per side of the domain, as in PDEBench
# (Takamoto et al. 2022, appendix B)
BANDS = {"low": (0.0, 5.0), "middle": (5.0, 13.0), "high": (13.0, math.inf)}
STEEPEST = 20  # the steepest twentieth of the points

NORMS = {
    "block": "relative L² error of all times as one block",
    "steps": "relative L² error of each time, averaged over the times",
    "seen": "relative L² error of the times used in training, as one block",
    "unseen": "relative L² error of the other times, as one block",
    "l1": "relative L¹ error of each channel, averaged over the channels",
    "points": "relative L² error over the points with equal weights",
    "deformed": "relative L² error of positions (from a corner) and displacements together",
    "near": "relative L² error over the points near the body, with equal weights",
}
PARTS = {
    "h1": "relative H¹ error, with differences of neighbouring points",
    "max": "largest error, relative to the largest absolute value",
    "mean": "error of the mean over the domain, relative to the root mean square of u",
    "energy": "error of ‖u‖², relative to ‖u‖²",
    "low": "L² error at |k| < 5 (waves per side of the domain), relative to ‖u‖",
    "middle": "L² error at 5 ≤ |k| < 13, relative to ‖u‖",
    "high": "L² error at |k| ≥ 13, relative to ‖u‖",
    "boundary": "root mean square error at boundary points, relative to that of u",
    "steep": "root mean square error at the steepest 5 % of the points, relative to that of u",
    "interface": "root mean square error next to jumps of a two-phase input, relative to that of u",
    "residual": "relative residual of the equation in the labels' scheme, which needs no labels",
}
MEASURES = NORMS | PARTS


def measures_of(
    prediction: Tensor, batch: Batch, pairs: Samples, task: Task | None = None
) -> dict[str, Tensor]:
    """Errors of the predictions of a batch in all `MEASURES` that apply to the data.

    Each has shape (batch,). An error is nan if the target is 0, and infinite if the prediction is
    not finite. "interface" is nan for samples whose input has no two phases, and absent if no
    sample has.
    """
    finite = prediction.isfinite().flatten(1).all(dim=1)
    measured = _measures_of(prediction, batch, pairs, task)
    if finite.all():
        return measured
    of_zero = _measures_of(torch.zeros_like(prediction), batch, pairs, task)
    return {
        name: errors.where(finite | ~errors.isnan() | of_zero[name].isnan(), math.inf)
        for name, errors in measured.items()
    }


def _measures_of(
    prediction: Tensor, batch: Batch, pairs: Samples, task: Task | None
) -> dict[str, Tensor]:
    """Errors as in `measures_of`, but only for finite predictions."""
    measured = _norms(prediction, batch, pairs, task)
    error = _Error(prediction.double(), batch.u.double(), batch.weights(pairs.weight, pairs.y))
    measured |= {"max": error.largest, "mean": error.mean, "energy": error.energy}
    x = pairs.x if batch.x is None else batch.x
    y = pairs.y if batch.y is None else batch.y
    points = x if y is None else y
    if not isinstance(pairs.domain, Box) or points is None or points.ndim != pairs.dim + 1:
        return measured
    grid = _Grid(error, points, tuple(kind == "periodic" for kind in pairs.domain.kinds))
    measured |= {"h1": grid.h1, **grid.bands, "steep": grid.at(grid.steep)}
    if not all(grid.periodic):
        measured["boundary"] = grid.at(grid.outermost)
    if batch.a.shape[1:-1] == batch.u.shape[1:-1]:
        jumps = grid.jumps(batch.a)
        if jumps.any():
            measured["interface"] = grid.at(jumps)
    return measured


@dataclass(frozen=True)
class _Error:
    """The error e = p - u of predictions p of targets u. Norms include all channels."""

    p: Float[Tensor, "batch *grid c"]
    u: Float[Tensor, "batch *grid c"]
    weight: Tensor | None

    @cached_property
    def e(self) -> Float[Tensor, "batch *grid c"]:
        return self.p - self.u

    def average(self, v: Float[Tensor, "batch *grid c"]) -> Float[Tensor, "batch c"]:
        """Mean over the domain, computed with the quadrature weights."""
        if self.weight is None:
            return v.flatten(1, -2).mean(dim=1)
        weight = self.weight.double().expand(v.shape[:-1])
        return (v * weight[..., None]).flatten(1, -2).sum(1) / weight.flatten(1).sum(1)[:, None]

    @cached_property
    def square(self) -> Float[Tensor, " batch"]:
        """Mean of |u|² over the domain; nan if u is 0, because relative errors are then
        undefined."""
        square = self.average(self.u**2).sum(dim=1)
        return square.where(square > 0, math.nan)

    @property
    def largest(self) -> Float[Tensor, " batch"]:
        """max |e| / max |u|."""
        seen = 1.0 if self.weight is None else (self.weight > 0)[..., None]
        size = (self.u * seen).flatten(1).abs().amax(dim=1)
        return (self.e * seen).flatten(1).abs().amax(dim=1) / size.where(size > 0, math.nan)

    @property
    def mean(self) -> Float[Tensor, " batch"]:
        """|mean e| / root mean square of u."""
        return (self.average(self.e).square().sum(dim=1) / self.square).sqrt()

    @property
    def energy(self) -> Float[Tensor, " batch"]:
        """| ‖p‖² / ‖u‖² - 1 |."""
        return (self.average(self.p**2).sum(dim=1) / self.square - 1).abs()


@dataclass(frozen=True)
class _Grid:
    """Error measures that need a Cartesian grid with equal spacing along each axis."""

    of: _Error
    points: Float[Tensor, "*grid dim"]
    periodic: tuple[bool, ...]

    def _differences(self, v: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Difference quotients of neighbouring points."""
        for axis, periodic in enumerate(self.periodic, start=1):
            if v.shape[axis] > 1:
                x = self.points[..., axis - 1]
                h = float(x.select(axis - 1, 1).flatten()[0] - x.flatten()[0])
                ends = v.narrow(axis, 0, 1) if periodic else v.narrow(axis, 0, 0)
                yield axis, torch.cat([v, ends], dim=axis).diff(dim=axis) / h

    @property
    def h1(self) -> Float[Tensor, " batch"]:
        """(‖e‖² + ‖De‖²)^½ / (‖u‖² + ‖Du‖²)^½, with difference quotients D."""

        def square(v: Tensor) -> Tensor:
            parts = [v, *(d for _, d in self._differences(v))]
            return torch.stack([d.square().flatten(1, -2).mean(1).sum(1) for d in parts]).sum(0)

        size = square(self.of.u)
        return (square(self.of.e) / size.where(size > 0, math.nan)).sqrt()

    @property
    def bands(self) -> dict[str, Float[Tensor, " batch"]]:
        """L² norm of the error in each band of wave numbers that the grid resolves, divided by ‖u‖.

        The squares of these errors sum to the square of the relative L² error. Along non-periodic
        axes, the error is extended to an even function, and two half waves count as one wave.
        """
        e, axes = self.of.e, tuple(range(1, self.of.e.ndim - 1))
        for axis, periodic in enumerate(self.periodic, start=1):
            e = e if periodic else torch.cat([e, e.flip(axis)], dim=axis)
        power = torch.fft.fftn(e, dim=axes, norm="forward").abs().square().sum(-1)
        k = torch.zeros(e.shape[1:-1], dtype=e.dtype, device=e.device)
        for axis, periodic in enumerate(self.periodic):
            n = e.shape[axis + 1]
            along = torch.fft.fftfreq(n, 1 / n, dtype=e.dtype, device=e.device)
            shape = [-1 if i == axis else 1 for i in range(k.ndim)]
            k = k + (along if periodic else along / 2).square().reshape(shape)
        square = self.of.u.square().flatten(1, -2).mean(1).sum(1)
        square = square.where(square > 0, math.nan)
        by_band = dict[str, Tensor]()
        for name, (least, below) in BANDS.items():
            inside = (k.sqrt() >= least) & (k.sqrt() < below)
            if inside.any():
                by_band[name] = ((power * inside).flatten(1).sum(dim=1) / square).sqrt()
        return by_band

    def at(self, mask: Bool[Tensor, " #batch *grid"]) -> Float[Tensor, " batch"]:
        """Root mean square of the error over the masked points, divided by the root mean square of
        u over all points. The result is nan if the mask is empty."""
        inside = mask.expand(self.of.u.shape[:-1]).flatten(1)
        errors = self.of.e.square().sum(-1).flatten(1)
        return ((errors * inside).sum(1) / inside.sum(1) / self.of.square).sqrt()

    @property
    def outermost(self) -> Bool[Tensor, " 1 *grid"]:
        """Mask of the first and last points of axes that are not periodic."""
        mask = torch.zeros(self.of.u.shape[1:-1], dtype=torch.bool, device=self.of.u.device)
        for axis, periodic in enumerate(self.periodic):
            if not periodic:
                mask.select(axis, 0).fill_(True)
                mask.select(axis, -1).fill_(True)
        return mask[None]

    @property
    def steep(self) -> Bool[Tensor, " batch *grid"]:
        """Mask of the steepest points, at most one in `STEEPEST`."""
        slope = torch.zeros_like(self.of.u[..., 0])
        for axis, d in self._differences(self.of.u):
            square, n = d.square().sum(-1), slope.shape[axis]
            slope.narrow(axis, 0, square.shape[axis]).add_(square)
            after = square.roll(1, axis) if square.shape[axis] == n else square
            slope.narrow(axis, n - square.shape[axis], square.shape[axis]).add_(after)
        flat = slope.flatten(1)
        count = max(1, flat.shape[1] // STEEPEST)
        mask = torch.zeros_like(flat, dtype=torch.bool)
        mask = mask.scatter(1, flat.topk(count, dim=1).indices, True) & (flat > 0)
        return mask.reshape(slope.shape)

    def jumps(self, a: Float[Tensor, "batch *grid c"]) -> Bool[Tensor, " batch *grid"]:
        """Mask of the points with a neighbour of the other phase. It is that of the first channel
        of a sample with exactly two values, and empty for samples without such a channel."""
        mask = torch.zeros_like(a[..., 0], dtype=torch.bool)
        for channel in a.unbind(-1):
            values, shape = channel.flatten(1), (-1, *[1] * (channel.ndim - 1))
            low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
            two = ((values == low) | (values == high)).all(dim=1) & (low != high)[:, 0]
            absent = two & ~mask.flatten(1).any(dim=1)
            mask |= self._changes(channel) & absent.reshape(shape)
        return mask

    def _changes(self, a: Float[Tensor, " batch *grid"]) -> Bool[Tensor, " batch *grid"]:
        """Mask of the points with a neighbour of another value."""
        mask = torch.zeros_like(a, dtype=torch.bool)
        for axis, periodic in enumerate(self.periodic, start=1):
            n = a.shape[axis]
            jumps = a.narrow(axis, 0, n - 1) != a.narrow(axis, 1, n - 1)
            mask.narrow(axis, 0, n - 1).logical_or_(jumps)
            mask.narrow(axis, 1, n - 1).logical_or_(jumps)
            if periodic:
                ends = a.narrow(axis, 0, 1) != a.narrow(axis, n - 1, 1)
                mask.narrow(axis, 0, 1).logical_or_(ends)
                mask.narrow(axis, n - 1, 1).logical_or_(ends)
        return mask


def _norms(
    prediction: Tensor, batch: Batch, pairs: Samples, task: Task | None
) -> dict[str, Tensor]:
    """Relative errors in those of the `NORMS` that apply to the data."""
    channels = batch.u.shape[-1]
    norms = {"l1": errors_of(prediction, batch, pairs, 1, channels).nanmean(dim=1)}
    if not isinstance(pairs.domain, Box):  # published errors on meshes have no weights
        equal = replace(batch, weight=torch.ones_like(batch.u[..., 0]))
        norms["points"] = errors_of(prediction, equal, pairs)[:, 0]
    if (at_rest := _at_rest(pairs)) is not None:
        p, u = (torch.cat([v + at_rest, v], dim=-1) for v in (prediction, batch.u))
        norms["deformed"] = errors_of(p, replace(batch, u=u), pairs)[:, 0]
    if pairs.near:
        near = replace(batch, weight=_inside(batch, pairs).expand(batch.u.shape[:-1]).to(batch.u))
        norms["near"] = errors_of(prediction, near, pairs)[:, 0]
    times = len(times_in(pairs.target_channels))
    if times > 1:
        norms["block"] = errors_of(prediction, batch, pairs)[:, 0]
        norms["steps"] = errors_of(prediction, batch, pairs, parts=times).nanmean(dim=1)
    frames = task.frames if isinstance(task, TrajectoryTask) else None
    if isinstance(task, TrajectoryTask) and frames is not None:
        last = (frames - task.first) * channels // times
        for name, part in (("seen", slice(last)), ("unseen", slice(last, None))):
            some_times = replace(batch, u=batch.u[..., part])
            if some_times.u.shape[-1]:
                norms[name] = errors_of(prediction[..., part], some_times, pairs)[:, 0]
    return norms


def _at_rest(pairs: Samples) -> Tensor | None:
    """Undeformed positions of the points, relative to the lower corner of the box."""
    channels = pairs.target_channels
    if not isinstance(pairs.domain, Box) or not channels or pairs.y is not None:
        return None
    times, rest = divmod(len(channels), pairs.dim)
    if rest or not all(channel.moves for channel in channels):
        return None
    corner = pairs.points.new_tensor([grid.start for grid in pairs.domain.grids])
    return (pairs.points - corner).repeat(*[1] * pairs.dim, times)


def _inside(batch: Batch, pairs: Samples) -> Tensor:
    """Mask of the target points inside the box `pairs.near`."""
    x, y, *_ = positions(batch, pairs)
    points = x if y is None else y
    assert points is not None
    inside = torch.ones_like(points[..., 0], dtype=torch.bool)
    for axis, (low, high) in pairs.near.items():
        along = points[..., NAMES.index(axis)]
        inside &= (low <= along) & (along <= high)
    return inside
