"""What happens to functions before and after the operator: normalisation, augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.base import Blocks, Operator
from operators.boundary import Boundary
from operators.data import Map, Samples, Task
from pdegen.domains import Box, Domain

Function = Float[Tensor, "batch *grid c"]
Places = tuple[Tensor | None, ...]  # x, y and the mask where there is one
MAP = Map()
_PART = 2**20  # numbers of a block that are copied to float64 at a time


class Normalizer(nn.Module):
    """v -> (v - mean)/std, and back. Its numbers are saved with the model.

    One value for each channel, or for each point and channel. The latter have the coordinates of
    their points with them: on another box they are interpolated linearly, and other points of a
    mesh or a cloud are refused. Where each sample has a mesh of its own with the same nodes, they
    are those of the nodes, by their numbers. Meshes of other sizes are then refused: nodes between
    these have positions that no interpolation of the means knows to within their deviations.

    Args:
        mean, std: Shape (c,) or (*grid, c); std > 0.
        axes: Coordinates along each axis of a box; none for one value for each channel.
        points: Positions of the points of a mesh or a cloud, in place of `axes`.
        nodes: Whether the points are nodes of meshes that differ by sample, in place of both.

    Raises:
        ValueError: If a deviation is not positive, or they are not of one kind.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Float[Tensor, "*grid c"],
        std: Float[Tensor, "*grid c"],
        axes: Sequence[Float[Tensor, " _"]] = (),
        points: Float[Tensor, "*grid dim"] | None = None,
        nodes: bool = False,
    ) -> None:
        super().__init__()
        self.nodes: tuple[int, ...] = tuple(mean.shape[:-1]) if nodes else ()
        kinds = {(v.dtype, tuple(v.shape)) for v in (mean, std)}
        grid = self.nodes or (map(len, axes) if points is None else points.shape[:-1])
        if kinds != {(torch.float32, (*grid, *mean.shape[-1:]))}:
            raise ValueError(
                f"a normaliser is of float32, on its axes {[len(axis) for axis in axes]}, got "
                f"{', '.join(f'{dtype} {shape}' for dtype, shape in sorted(kinds, key=str))}"
            )
        if not bool((std > 0).all()):
            raise ValueError(f"a normaliser needs positive deviations, got {float(std.min()):g}")
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        for number, axis in enumerate(axes):
            self.register_buffer(f"axis{number}", axis.contiguous())
        if points is not None:
            self.register_buffer("points", points.contiguous())

    @classmethod
    def identity(cls, channels: int) -> Normalizer:
        return cls(torch.zeros(channels), torch.ones(channels))

    @classmethod
    def of(cls, values: Function | Blocks) -> Normalizer:
        """Mean and deviation of each channel over samples and points, in float64."""
        if isinstance(values, Tensor):
            flat = values.flatten(0, -2).double()
            return cls(flat.mean(0).float(), flat.std(0, correction=0).float())
        mean, std = _running_moments(block.flatten(0, -2) for block in values)
        return cls(mean.float(), std.float())

    @classmethod
    def pointwise(
        cls,
        values: Function | Blocks,
        x: Float[Tensor, "*grid dim"] | None,
        eps: float | None = None,
        box: bool = True,
    ) -> Normalizer:
        """Mean and deviation over the samples at each point, in float64.

        Args:
            eps: Added to the deviations, which may be 0 at some points. By default, for each
                channel, a thousandth of their root mean square, so that no unit of measurement
                matters; the published code has 1e-5, which for the pressure of Darcy flow is a
                third of the deviation next to a wall.
        """
        found = _moments(values) if isinstance(values, Tensor) else _running_moments(values)
        mean, std = found if x is None else (v.to(x.device) for v in found)
        added = 1e-3 * std.flatten(0, -2).square().mean(0).sqrt() if eps is None else eps
        axes, points = (axes_of(x), None) if box and x is not None else ((), x)
        return cls(mean.float(), (std + added).float(), axes, points, nodes=x is None)

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], name: str) -> Normalizer:
        """The normaliser whose tensors `name.mean`, ... a state dictionary holds."""
        axes = [state[key] for key in sorted(state) if key.startswith(f"{name}.axis")]
        mean, points = state[f"{name}.mean"], state.get(f"{name}.points")
        nodes = mean.ndim > 1 and points is None and not axes
        return cls(mean, state[f"{name}.std"], axes, points, nodes)

    def at(self, x: Float[Tensor, "*grid dim"] | None) -> tuple[Tensor, Tensor]:
        """Mean and deviation at the points x, or of each channel, or of each node."""
        return self._at(self.mean, x), self._at(self.std, x)

    def check(self, grid: tuple[int, ...]) -> None:
        """Raise ValueError where functions on this grid are not on the nodes that are known."""
        if self.nodes and grid != self.nodes:
            raise ValueError(
                f"pointwise normalisation by node is of meshes of {_by(self.nodes)} nodes, "
                f"got {_by(grid)}"
            )

    def forward(self, v: Function, x: Float[Tensor, "*grid dim"] | None) -> Function:
        self.check(tuple(v.shape[1:-1]))
        mean, std = self.at(x)
        return (v - mean) / std

    def inverse(self, v: Function, x: Float[Tensor, "*grid dim"] | None) -> Function:
        self.check(tuple(v.shape[1:-1]))
        mean, std = self.at(x)
        return v * std + mean

    def _at(self, values: Tensor, x: Tensor | None) -> Tensor:
        if values.ndim == 1 or self.nodes:
            return values
        if x is None:
            raise ValueError("pointwise normalisation needs points that all samples share")
        own_points: Tensor | None = getattr(self, "points", None)
        if own_points is not None:
            if x.shape != own_points.shape or not torch.equal(x, own_points):
                raise ValueError(
                    "pointwise normalisation of a mesh or a cloud is of its points only"
                )
            return values
        for number, axis in enumerate(axes_of(x)):
            own: Tensor = getattr(self, f"axis{number}")
            if axis.shape != own.shape or not torch.equal(axis, own):
                weights = _linear_interpolation(own, axis)
                values = (values.movedim(number, -1) @ weights.T).movedim(-1, number)
        return values


def _by(grid: tuple[int, ...]) -> str:
    return " x ".join(map(str, grid))


def _moments(values: Function) -> tuple[Tensor, Tensor]:
    """Mean and deviation over samples in float64, without a copy of all samples in float64."""
    mean = torch.stack([part.double().sum(0) for part in values.split(64)]).sum(0) / len(values)
    squares = [(part.double() - mean).square().sum(0) for part in values.split(64)]
    return mean, (torch.stack(squares).sum(0) / len(values)).sqrt()


def _running_moments(blocks: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and deviation over the first axis of all blocks in one pass, in float64."""
    count, mean, squares = 0, *torch.zeros(2, dtype=torch.float64)
    for block in blocks:
        for part in block.split(max(1, _PART // block[0].numel())):
            values = part.double()
            own = values.mean(0)
            change, total = own - mean, count + len(values)
            mean = mean + change * (len(values) / total)
            squares = squares + (values - own).square().sum(0) + (
                change.square() * (count * len(values) / total)
            )  # fmt: skip
            count = total
    return mean, (squares / count).sqrt()


def axes_of(x: Float[Tensor, "*grid dim"]) -> list[Tensor]:
    """The coordinates along each axis of a product grid."""
    dim = x.shape[-1]
    lines = (x[tuple(slice(None) if i == d else 0 for i in range(dim))] for d in range(dim))
    return [line[:, d].contiguous() for d, line in enumerate(lines)]


def _linear_interpolation(
    own: Float[Tensor, " n"], other: Float[Tensor, " m"]
) -> Float[Tensor, "m n"]:
    """Weights from the points `own` to `other`; beyond the ends, the values there."""
    right = torch.searchsorted(own, other).clamp(1, len(own) - 1)
    share = ((other - own[right - 1]) / (own[right] - own[right - 1])).clamp(0, 1)
    weights = torch.zeros(len(other), len(own), dtype=own.dtype, device=own.device)
    weights.scatter_(1, (right - 1)[:, None], (1 - share)[:, None])
    return weights.scatter_add_(1, right[:, None], share[:, None])


@dataclass(frozen=True)
class Extent:
    """The box that a domain fills: operators are given points in parts of it, within [0, 1].

    >>> Extent((-5.0,), (10.0,))(torch.tensor([[-5.0], [0.0]])).flatten()
    tensor([0.0000, 0.5000])
    """

    start: tuple[float, ...]
    length: tuple[float, ...]

    @classmethod
    def of(cls, domain: Domain) -> Extent | None:
        """That of a box; None for the unit box, and for meshes and clouds, whose points stay."""
        if not isinstance(domain, Box):
            return None
        found = cls(*zip(*[(grid.start, grid.length) for grid in domain.grids], strict=True))
        unit = all(s == 0 and n == 1 for s, n in zip(found.start, found.length, strict=True))
        return None if unit else found

    def description(self) -> list[list[float]]:
        return [list(self.start), list(self.length)]

    def __call__(self, x: Float[Tensor, "*points dim"]) -> Float[Tensor, "*points dim"]:
        axes = zip(x.unbind(dim=-1), self.start, self.length, strict=True)
        return torch.stack([(own - start) / length for own, start, length in axes], dim=-1)


class Predictor(nn.Module):
    """An operator between its normalisers: physical values in, physical values out.

    Args:
        boundary: Values of u that are known there, where u is asked for at the points of a.
        task: How the operator is applied again and again to reach the targets.
        extent: In parts of what the operator is given points; None gives them as they are.
    """

    def __init__(
        self,
        operator: Operator,
        input: Normalizer,
        target: Normalizer,
        boundary: Boundary | None = None,
        task: Task = MAP,
        extent: Extent | None = None,
    ) -> None:
        super().__init__()
        self.operator, self.input, self.target, self.boundary = operator, input, target, boundary
        self.task, self.extent = task, extent

    def forward(
        self,
        a: Float[Tensor, "batch *grid c_in"],
        x: Float[Tensor, "*points dim"] | None,
        y: Float[Tensor, "*target_points dim"] | None = None,
        mask: Bool[Tensor, " batch *grid"] | None = None,
        steps: int = 1,
        weight: Tensor | None = None,
    ) -> Float[Tensor, "batch *target_grid c"]:
        """u(y).

        Args:
            steps: Applications of the operator, whose outputs are side by side.
        """
        each = [(None, v) if v is not None and v.ndim == a.ndim else (v, None) for v in (x, y)]
        shared, own = zip(*each, strict=True)
        return self.on(*shared)(a, *own, mask, steps, weight=weight)

    def adapt(self, pairs: Samples) -> None:
        """Let the operator take what it needs of training samples: see `Operator.adapt`."""
        one = pairs.one_step
        y = one.x if one.y is None else one.y
        if y is not None:  # else each sample has points of its own
            u = [one.targets] if isinstance(one.targets, Tensor) else one.targets
            placed = y if self.extent is None else self.extent(y)
            self.operator.adapt((self.target(block.to(y.device), y) for block in u), placed)

    def on(self, x: Tensor | None, y: Tensor | None = None) -> Callable[..., Tensor]:
        """(a, x, y, mask, ..., weight) -> u for inputs at the points x; what depends on the points
        alone is found once."""
        mean, std = self.input.at(x)
        target_mean, target_std = self.target.at(x if y is None else y)
        fixed = None
        if self.boundary is not None and x is not None and y is None:
            fixed = self.boundary.on(tuple(x.shape[:-1]), x)
        shared_x, shared_y = self._placed(x), self._placed(y)

        def applied(operator: Callable[..., Tensor], places: Places, a: Tensor) -> Tensor:
            self.input.check(tuple(a.shape[1:-1]))
            if self.target.nodes and places[1] is not None:
                raise ValueError(
                    "pointwise normalisation by node is of the nodes: no other points y may be "
                    "asked for"
                )
            self.target.check(tuple(a.shape[1:-1]))
            u = operator((a - mean) / std, *places)
            u = u * target_std + target_mean
            if self.boundary is None or places[1] is not None:
                return u
            kept, added = fixed or self.boundary.on(tuple(a.shape[1:-1]), u)
            return u * kept if added is None else u * kept + added

        def predicted(
            a: Tensor,
            own_x: Tensor | None = None,
            own_y: Tensor | None = None,
            mask: Tensor | None = None,
            steps: int = 1,
            truth: Tensor | None = None,
            weight: Tensor | None = None,
        ) -> Tensor:
            positions = shared_x if own_x is None else self._placed(own_x)
            asked = shared_y if own_y is None else self._placed(own_y)
            places = (positions, asked) if mask is None else (positions, asked, mask)
            weighted = self.operator.weights and weight is not None
            operator = partial(self.operator, weight=weight) if weighted else self.operator
            return self.task.march(partial(applied, operator, places), a, steps, truth)

        return predicted

    def _placed(self, x: Tensor | None) -> Tensor | None:
        return x if x is None or self.extent is None else self.extent(x)
