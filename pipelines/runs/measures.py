"""Further error measures: other norms, and errors in parts of space, time and frequency."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from operators.data import Batch, Samples, Task, TrajectoryTask
from operators.training.evaluate import errors_of, positions
from pdegen.domains import NAMES, Box
from pipelines.runs.score import times_in

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
        """Difference quotients of neighbouring points. Yields a pair (axis, quotients) for each
        axis that has several points."""
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
        """Mask of the steepest points, at most one in `STEEPEST`. Points are ranked by the sum of
        the squared difference quotients to their neighbours."""
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
    """Undeformed positions of the points, relative to the lower corner of the box. They are
    repeated for each time. None unless the targets are displacements on a box."""
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
