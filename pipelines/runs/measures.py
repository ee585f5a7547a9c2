"""Errors of predictions beside relative L²: other norms, and parts of space, of times, of waves."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from operators.data import Batch, InTime, Samples, Task
from operators.training.evaluate import errors_of, positions
from pdegen.domains import NAMES, Box
from pipelines.runs.score import times_in

# of waves, or pairs of half waves, that the domain has along its sides; those of PDEBench (Takamoto
# et al. 2022, appendix B)
BANDS = {"low": (0.0, 5.0), "middle": (5.0, 13.0), "high": (13.0, math.inf)}
STEEPEST = 20  # one in so many points is steep

NORMS = {
    "block": "relative L² error of all times as one block",
    "steps": "relative L² error of each time, averaged over the times",
    "seen": "relative L² error of the times that training sees, as one block",
    "unseen": "relative L² error of the other times, as one block",
    "l1": "relative L¹ error of each channel, averaged over the channels",
    "points": "relative L² error over the points, all of which count alike",
    "deformed": "relative L² error of the positions, from a corner, and the displacements together",
    "near": "relative L² error over the points near the body, all of which count alike",
}
PARTS = {
    "h1": "relative H¹ error, by differences of neighbouring points",
    "max": "largest error, over the largest absolute value",
    "mean": "error of the mean over the domain, over the root mean square of u",
    "energy": "error of ‖u‖², over ‖u‖²",
    "low": "L² error in fewer than 5 waves across the domain, over ‖u‖",
    "middle": "L² error in 5 to 12 waves across the domain, over ‖u‖",
    "high": "L² error in 13 waves and more across the domain, over ‖u‖",
    "boundary": "root mean square error at the outermost points, over that of u",
    "steep": "root mean square error at the steepest twentieth of the points, over that of u",
    "interface": "root mean square error next to jumps of a two-phase input, over that of u",
}
MEASURES = NORMS | PARTS


def measures_of(
    prediction: Tensor, batch: Batch, pairs: Samples, task: Task | None = None
) -> dict[str, Tensor]:
    """Errors of predictions of a batch by the `MEASURES` that the data have, each (batch,): nan
    where nothing is relative to the target, infinite where the prediction is not finite."""
    finite = prediction.isfinite().flatten(1).all(dim=1)
    found = _measures_of(prediction, batch, pairs, task)
    if finite.all():
        return found
    known = _measures_of(torch.zeros_like(prediction), batch, pairs, task)
    return {
        name: errors.where(finite | ~errors.isnan() | known[name].isnan(), math.inf)
        for name, errors in found.items()
    }


def _measures_of(
    prediction: Tensor, batch: Batch, pairs: Samples, task: Task | None
) -> dict[str, Tensor]:
    found = _norms(prediction, batch, pairs, task)
    error = _Error(prediction.double(), batch.u.double(), batch.weights(pairs.weight, pairs.y))
    found |= {"max": error.largest, "mean": error.mean, "energy": error.energy}
    x, y = (p if own is None else own for own, p in ((batch.x, pairs.x), (batch.y, pairs.y)))
    points = x if y is None else y
    if not isinstance(pairs.domain, Box) or points is None or points.ndim != pairs.dim + 1:
        return found
    grid = _Grid(error, points, tuple(kind == "periodic" for kind in pairs.domain.kinds))
    found |= {"h1": grid.h1, **grid.bands, "steep": grid.at(grid.steep)}
    if not all(grid.periodic):
        found["boundary"] = grid.at(grid.outermost)
    if batch.a.shape[1:-1] == batch.u.shape[1:-1]:
        for channel in batch.a.unbind(-1):
            if (jumps := grid.jumps(channel)) is not None:
                found["interface"] = grid.at(jumps)
                break
    return found


@dataclass(frozen=True)
class _Error:
    """What a prediction misses, all channels as a block."""

    p: Float[Tensor, "batch *grid c"]
    u: Float[Tensor, "batch *grid c"]
    weight: Tensor | None

    @cached_property
    def e(self) -> Float[Tensor, "batch *grid c"]:
        return self.p - self.u

    def average(self, v: Float[Tensor, "batch *grid c"]) -> Float[Tensor, "batch c"]:
        if self.weight is None:
            return v.flatten(1, -2).mean(dim=1)
        weight = self.weight.double().expand(v.shape[:-1])
        return (v * weight[..., None]).flatten(1, -2).sum(1) / weight.flatten(1).sum(1)[:, None]

    @cached_property
    def square(self) -> Float[Tensor, " batch"]:
        """Mean of u², nan where u is 0: nothing is relative to it."""
        found = self.average(self.u**2).sum(dim=1)
        return found.where(found > 0, math.nan)

    @property
    def largest(self) -> Float[Tensor, " batch"]:
        seen = 1.0 if self.weight is None else (self.weight > 0)[..., None]
        size = (self.u * seen).flatten(1).abs().amax(dim=1)
        return (self.e * seen).flatten(1).abs().amax(dim=1) / size.where(size > 0, math.nan)

    @property
    def mean(self) -> Float[Tensor, " batch"]:
        return (self.average(self.e).square().sum(dim=1) / self.square).sqrt()

    @property
    def energy(self) -> Float[Tensor, " batch"]:
        return (self.average(self.p**2).sum(dim=1) / self.square - 1).abs()


@dataclass(frozen=True)
class _Grid:
    """The same on a product of equally spaced grids."""

    of: _Error
    points: Float[Tensor, "*grid dim"]
    periodic: tuple[bool, ...]

    def _differences(self, v: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Of neighbours along each axis of more than one point, over their distance: the axis of
        v, and the differences."""
        for axis, periodic in enumerate(self.periodic, start=1):
            if v.shape[axis] > 1:
                here = self.points[..., axis - 1]
                h = float(here.select(axis - 1, 1).flatten()[0] - here.flatten()[0])
                ends = v.narrow(axis, 0, 1) if periodic else v.narrow(axis, 0, 0)
                yield axis, torch.cat([v, ends], dim=axis).diff(dim=axis) / h

    @property
    def h1(self) -> Float[Tensor, " batch"]:
        """(‖e‖² + ‖De‖²)^½ / (‖u‖² + ‖Du‖²)^½."""

        def square(v: Tensor) -> Tensor:
            parts = [v, *(d for _, d in self._differences(v))]
            return torch.stack([d.square().flatten(1, -2).mean(1).sum(1) for d in parts]).sum(0)

        size = square(self.of.u)
        return (square(self.of.e) / size.where(size > 0, math.nan)).sqrt()

    @property
    def bands(self) -> dict[str, Float[Tensor, " batch"]]:
        """‖e‖ in each of the bands that the grid resolves, over ‖u‖: their squares sum to that of
        the error. Axes that are not periodic are continued evenly, by half waves."""
        e, axes = self.of.e, tuple(range(1, self.of.e.ndim - 1))
        for axis, periodic in enumerate(self.periodic, start=1):
            e = e if periodic else torch.cat([e, e.flip(axis)], dim=axis)
        power = torch.fft.fftn(e, dim=axes, norm="forward").abs().square().sum(-1)
        k = torch.zeros(e.shape[1:-1], dtype=e.dtype, device=e.device)
        for axis, periodic in enumerate(self.periodic):
            n = e.shape[axis + 1]
            along = torch.fft.fftfreq(n, 1 / n, dtype=e.dtype, device=e.device)
            shape = [-1 if other == axis else 1 for other in range(k.ndim)]
            k = k + (along if periodic else along / 2).square().reshape(shape)
        square = self.of.u.square().flatten(1, -2).mean(1).sum(1)
        square = square.where(square > 0, math.nan)
        found = dict[str, Tensor]()
        for name, (least, below) in BANDS.items():
            inside = (k.sqrt() >= least) & (k.sqrt() < below)
            if inside.any():
                found[name] = ((power * inside).flatten(1).sum(dim=1) / square).sqrt()
        return found

    def at(self, places: Bool[Tensor, " #batch *grid"]) -> Float[Tensor, " batch"]:
        """Root mean square error at some points over that of u at all; nan where there are none."""
        every = places.expand(self.of.u.shape[:-1]).flatten(1)
        errors = self.of.e.square().sum(-1).flatten(1)
        return ((errors * every).sum(1) / every.sum(1) / self.of.square).sqrt()

    @property
    def outermost(self) -> Bool[Tensor, " 1 *grid"]:
        """The first and the last points of axes that are not periodic."""
        found = torch.zeros(self.of.u.shape[1:-1], dtype=torch.bool, device=self.of.u.device)
        for axis, periodic in enumerate(self.periodic):
            if not periodic:
                found.select(axis, 0).fill_(True)
                found.select(axis, -1).fill_(True)
        return found[None]

    @property
    def steep(self) -> Bool[Tensor, " batch *grid"]:
        """The points, one in `STEEPEST` at most, that have the largest sums of squared differences
        to their neighbours."""
        slope = torch.zeros_like(self.of.u[..., 0])
        for axis, d in self._differences(self.of.u):
            square, n = d.square().sum(-1), slope.shape[axis]
            slope.narrow(axis, 0, square.shape[axis]).add_(square)
            after = square.roll(1, axis) if square.shape[axis] == n else square
            slope.narrow(axis, n - square.shape[axis], square.shape[axis]).add_(after)
        flat = slope.flatten(1)
        count = max(1, flat.shape[1] // STEEPEST)
        found = torch.zeros_like(flat, dtype=torch.bool)
        found = found.scatter(1, flat.topk(count, dim=1).indices, True) & (flat > 0)
        return found.reshape(slope.shape)

    def jumps(self, a: Float[Tensor, " batch *grid"]) -> Bool[Tensor, " batch *grid"] | None:
        """The points with a neighbour of the other phase; None where a has not two values."""
        low, high = a.amin(), a.amax()
        if low == high or not ((a == low) | (a == high)).all():
            return None
        found = torch.zeros_like(a, dtype=torch.bool)
        for axis, periodic in enumerate(self.periodic, start=1):
            n = a.shape[axis]
            other = a.narrow(axis, 0, n - 1) != a.narrow(axis, 1, n - 1)
            found.narrow(axis, 0, n - 1).logical_or_(other)
            found.narrow(axis, 1, n - 1).logical_or_(other)
            if periodic:
                ends = a.narrow(axis, 0, 1) != a.narrow(axis, n - 1, 1)
                found.narrow(axis, 0, 1).logical_or_(ends)
                found.narrow(axis, n - 1, 1).logical_or_(ends)
        return found


def _norms(
    prediction: Tensor, batch: Batch, pairs: Samples, task: Task | None
) -> dict[str, Tensor]:
    """Relative errors of all points, of some of them, and of some times."""
    channels = batch.u.shape[-1]
    found = {"l1": errors_of(prediction, batch, pairs, 1, channels).nanmean(dim=1)}
    if not isinstance(pairs.domain, Box):  # published errors of meshes have no weights
        alike = replace(batch, weight=torch.ones_like(batch.u[..., 0]))
        found["points"] = errors_of(prediction, alike, pairs)[:, 0]
    if (at_rest := _at_rest(pairs)) is not None:
        p, u = (torch.cat([v + at_rest, v], dim=-1) for v in (prediction, batch.u))
        found["deformed"] = errors_of(p, replace(batch, u=u), pairs)[:, 0]
    if pairs.near:
        near = replace(batch, weight=_inside(batch, pairs).expand(batch.u.shape[:-1]).to(batch.u))
        found["near"] = errors_of(prediction, near, pairs)[:, 0]
    times = len(times_in(pairs.target_channels))
    if times > 1:
        found["block"] = errors_of(prediction, batch, pairs)[:, 0]
        found["steps"] = errors_of(prediction, batch, pairs, parts=times).nanmean(dim=1)
    frames = task.frames if isinstance(task, InTime) else None
    if isinstance(task, InTime) and frames is not None:
        last = (frames - task.first) * channels // times
        for name, part in (("seen", slice(last)), ("unseen", slice(last, None))):
            asked = replace(batch, u=batch.u[..., part])
            if asked.u.shape[-1]:
                found[name] = errors_of(prediction[..., part], asked, pairs)[:, 0]
    return found


def _at_rest(pairs: Samples) -> Tensor | None:
    """Positions of the points of a box from its lower corner, at each of the times of targets that
    displace them; None of other targets."""
    channels = pairs.target_channels
    if not isinstance(pairs.domain, Box) or not channels or pairs.y is not None:
        return None
    times, rest = divmod(len(channels), pairs.dim)
    if rest or not all(channel.moves for channel in channels):
        return None
    corner = pairs.points.new_tensor([grid.start for grid in pairs.domain.grids])
    return (pairs.points - corner).repeat(*[1] * pairs.dim, times)


def _inside(batch: Batch, pairs: Samples) -> Tensor:
    """Which points of the targets lie in the box `near`."""
    x, y, *_ = positions(batch, pairs)
    points = x if y is None else y
    assert points is not None
    inside = torch.ones_like(points[..., 0], dtype=torch.bool)
    for axis, (low, high) in pairs.near.items():
        along = points[..., NAMES.index(axis)]
        inside &= (low <= along) & (along <= high)
    return inside
