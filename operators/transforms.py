"""Normalisers of inputs and targets, and predictors, which combine an operator with normalisers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.base import Blocks, Operator
from operators.data import Map, Samples, Task
from operators.nn.resample import interpolation
from operators.symmetries import check_mean, square_mean
from pdegen.domains import Box, Cloud, Curvilinear, Domain
from pdegen.store.format import ParameterLaw

# Known values of u on the boundary of its domain.


@dataclass(frozen=True)
class Boundary:
    """Known values of u on the boundary of the domain, at any resolution.

    Args:
        values: Boundary value of each channel; None if the value is unknown.
        ends: Whether the first and last points along each axis of a box or a structured mesh lie on
            the boundary.
        edge: Mask of the boundary points of a cloud; replaces `ends`.

    >>> Boundary((0.0,), (True,)).points((4,))
    tensor([ True, False, False,  True])
    """

    values: tuple[float | None, ...]
    ends: tuple[bool, ...] = ()
    edge: Bool[Tensor, " points"] | None = None

    @classmethod
    def of(cls, domain: Domain, values: Sequence[float | None]) -> Boundary | None:
        """The boundary values on a domain.

        The result is None if no value is known or no point lies on the boundary. The outermost
        points of a cell grid, for example, lie half a cell inside the domain.
        """
        boundary = cls(tuple(values))
        if isinstance(domain, Box):
            boundary = replace(
                boundary, ends=tuple(bool(grid.boundary.any()) for grid in domain.grids)
            )
        elif isinstance(domain, Curvilinear):
            closed = domain.closed or (False,) * domain.dim
            boundary = replace(boundary, ends=tuple(not is_closed for is_closed in closed))
        elif isinstance(domain, Cloud) and domain.edge is not None:
            boundary = replace(boundary, edge=torch.from_numpy(domain.edge))
        edge = boundary.edge
        exists = any(boundary.ends) or (edge is not None and bool(edge.any()))
        return boundary if exists and any(v is not None for v in values) else None

    def description(self) -> dict[str, Any]:
        """The boundary values as JSON, for a checkpoint."""
        edge = None if self.edge is None else [len(self.edge), *self.edge.nonzero()[:, 0].tolist()]
        return {"values": list(self.values), "ends": list(self.ends), "edge": edge}

    @classmethod
    def described(cls, content: Mapping[str, Any]) -> Boundary:
        """Create boundary values from their `description`."""
        edge = None
        if content["edge"] is not None:
            edge = torch.zeros(content["edge"][0], dtype=torch.bool)
            edge[content["edge"][1:]] = True
        values = tuple(None if v is None else float(v) for v in content["values"])
        return cls(values, tuple(map(bool, content["ends"])), edge)

    def points(self, grid: tuple[int, ...]) -> Bool[Tensor, " *grid"]:
        """Mask of the boundary points of a grid with this shape.

        Raises:
            ValueError: If a cloud has another number of points.
        """
        if self.edge is not None:
            if self.edge.shape != grid:
                raise ValueError(
                    f"the boundary is known for {len(self.edge)} points, not for {grid}"
                )
            return self.edge
        mask = torch.zeros(grid, dtype=torch.bool)
        for axis in (axis for axis, ends in enumerate(self.ends) if ends):
            mask.movedim(axis, 0)[[0, -1]] = True
        return mask

    def on(self, grid: tuple[int, ...], like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tensors (factor, summand) such that factor * u + summand has the known boundary values.

        The summand is None if all boundary values are 0.
        """
        fixed = self.points(grid)[..., None] & torch.tensor([v is not None for v in self.values])
        added = fixed * torch.tensor([v or 0.0 for v in self.values])
        return (~fixed).to(like), added.to(like) if any(self.values) else None


Function = Float[Tensor, "batch *grid c"]
Positions = tuple[Tensor | None, ...]  # x, y, and the mask if there is one
MAP = Map()
_PART = 2**20  # numbers that are copied to float64 at a time
_LEAST_DEVIATION = 1e-3  # of a prediction, as a share of that of the target


class Normalizer(nn.Module):
    """The map v -> (v - mean)/std and its inverse. Mean and std are saved with the model.

    Mean and std have one value per channel, or one value per point and channel. Pointwise values on
    a box are interpolated linearly to other grids; beyond the outermost points they are constant,
    also on periodic grids. Pointwise values on a mesh or a cloud can only be used at the same
    points. If each sample has its own mesh, the values belong to node numbers and can only be used
    on meshes of the same size. Interpolation to other nodes is not supported, because its errors
    would be larger than the standard deviations.

    Args:
        mean, std: Means and standard deviations, shape (c,) or (*grid, c); std > 0.
        axes: Coordinates of pointwise values along each axis of a box.
        points: Positions of pointwise values on a mesh or a cloud.
        nodes: Whether pointwise values belong to the node numbers of meshes that differ by sample.
        log: For each channel, whether mean and std are those of its logarithm; None if all are
            those of the channel itself.

    Raises:
        ValueError: If a deviation is not positive, or if shapes or types do not agree.
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
        log: Bool[Tensor, " c"] | None = None,
    ) -> None:
        super().__init__()
        self.nodes: tuple[int, ...] = tuple(mean.shape[:-1]) if nodes else ()
        kinds = {(v.dtype, tuple(v.shape)) for v in (mean, std)}
        grid = self.nodes or (map(len, axes) if points is None else points.shape[:-1])
        if kinds != {(torch.float32, (*grid, *mean.shape[-1:]))}:
            raise ValueError(
                f"a normaliser needs float32 on its axes {[len(axis) for axis in axes]}, got "
                f"{', '.join(f'{dtype} {shape}' for dtype, shape in sorted(kinds, key=str))}"
            )
        if not bool((std > 0).all()):
            raise ValueError(f"a normaliser needs positive deviations, got {float(std.min()):g}")
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        for number, axis in enumerate(axes):
            self.register_buffer(f"axis{number}", axis.clone())  # not shared with x
        if points is not None:
            self.register_buffer("points", points.clone())
        if log is not None:
            self.register_buffer("log", log)

    @classmethod
    def identity(cls, channels: int) -> Normalizer:
        """A normaliser with mean 0 and standard deviation 1."""
        return cls(torch.zeros(channels), torch.ones(channels))

    @classmethod
    def of(cls, values: Function | Blocks) -> Normalizer:
        """A normaliser with one value per channel.

        Mean and standard deviation are taken over samples and points, in float64.
        """
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
        """A normaliser with one value per point and channel.

        Mean and standard deviation are taken over samples, in float64.

        Args:
            values: Values of functions, or blocks of such values.
            x: Points that the samples share; None if each sample has its own mesh.
            eps: Number added to the standard deviations, which may be 0 at some points. The default
                is 1/1000 of the root mean square deviation of each channel; its effect does not
                depend on units. The published code adds 1e-5, which is a third of the standard
                deviation of Darcy pressures next to a wall.
            box: Whether the points are a grid of a box.
        """
        moments = _moments(values) if isinstance(values, Tensor) else _running_moments(values)
        mean, std = moments if x is None else (v.to(x.device) for v in moments)
        added = 1e-3 * std.flatten(0, -2).square().mean(0).sqrt() if eps is None else eps
        axes, points = (axes_of(x), None) if box and x is not None else ((), x)
        return cls(mean.float(), (std + added).float(), axes, points, nodes=x is None)

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], name: str) -> Normalizer:
        """Restore a normaliser from the tensors `name.mean`, `name.std`, ... of a state dict."""
        axes = [state[key] for key in sorted(state) if key.startswith(f"{name}.axis")]
        mean, points = state[f"{name}.mean"], state.get(f"{name}.points")
        nodes = mean.ndim > 1 and points is None and not axes
        return cls(mean, state[f"{name}.std"], axes, points, nodes, state.get(f"{name}.log"))

    def with_laws(self, laws: Mapping[int, ParameterLaw]) -> Normalizer:
        """The same normaliser, but channels with a law have the mean and deviation of the law.

        The channels are constant over the domain. If the law is log-uniform, their logarithm is
        normalised.

        >>> law = ParameterLaw("log-uniform", 0.01, 1.0)
        >>> v = torch.tensor([[[5.0, 0.1]]])
        >>> [round(float(x), 6) for x in Normalizer.identity(2).with_laws({1: law})(v, None)[0, 0]]
        [5.0, 0.0]
        """
        if not laws:
            return self
        mean, std = self.mean.clone(), self.std.clone()
        log = torch.zeros(mean.shape[-1], dtype=torch.bool, device=mean.device)
        for channel, law in laws.items():
            mean[..., channel], std[..., channel] = law.moments
            log[channel] = law.log
        buffers: dict[str, Tensor] = dict(self.named_buffers())
        axes = [buffers[name] for name in sorted(buffers) if name.startswith("axis")]
        return Normalizer(mean, std, axes, buffers.get("points"), bool(self.nodes), log)

    def raised(self, v: Function) -> Function:
        """The values whose mean and deviation are known: v, or its logarithm in some channels."""
        log: Tensor | None = getattr(self, "log", None)
        if log is None:
            return v
        return torch.where(log, v.clamp_min(torch.finfo(v.dtype).tiny).log(), v)

    def at(self, x: Float[Tensor, "*grid dim"] | None) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation at the points x.

        Values per channel and values at node numbers do not depend on x.
        """
        return self._at(self.mean, x), self._at(self.std, x)

    def check(self, grid: tuple[int, ...]) -> None:
        """Raise ValueError if pointwise values belong to node numbers and the mesh size differs."""
        if self.nodes and grid != self.nodes:
            raise ValueError(
                f"pointwise normalisation by node needs meshes of {_by(self.nodes)} nodes, "
                f"got {_by(grid)}"
            )

    def forward(self, v: Function, x: Float[Tensor, "*grid dim"] | None) -> Function:
        self.check(tuple(v.shape[1:-1]))
        mean, std = self.at(x)
        return (self.raised(v) - mean) / std

    def inverse(self, v: Function, x: Float[Tensor, "*grid dim"] | None) -> Function:
        self.check(tuple(v.shape[1:-1]))
        mean, std = self.at(x)
        return v * std + mean

    def _at(self, values: Tensor, x: Tensor | None) -> Tensor:
        """Evaluate pointwise means or standard deviations at the points x."""
        if values.ndim == 1 or self.nodes:
            return values
        if x is None:
            raise ValueError("pointwise normalisation needs points that all samples share")
        points: Tensor | None = getattr(self, "points", None)
        if points is not None:
            if x.shape != points.shape or not torch.equal(x, points):
                raise ValueError(
                    "pointwise normalisation of a mesh or a cloud needs the points of the training"
                )
            return values
        for number, axis in enumerate(axes_of(x)):
            known_axis: Tensor = getattr(self, f"axis{number}")
            if axis.shape != known_axis.shape or not torch.equal(axis, known_axis):
                weights = interpolation(known_axis, axis)
                values = (values.movedim(number, -1) @ weights.T).movedim(-1, number)
        return values


def _by(grid: tuple[int, ...]) -> str:
    return " x ".join(map(str, grid))


def _moments(values: Function) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over samples, in float64."""
    mean = torch.stack([part.double().sum(0) for part in values.split(64)]).sum(0) / len(values)
    squares = [(part.double() - mean).square().sum(0) for part in values.split(64)]
    return mean, (torch.stack(squares).sum(0) / len(values)).sqrt()


def _running_moments(blocks: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the first axis of all blocks, in one pass and float64."""
    count, mean, squares = 0, *torch.zeros(2, dtype=torch.float64)
    for block in blocks:
        for part in block.split(max(1, _PART // block[0].numel())):
            values = part.double()
            part_mean = values.mean(0)
            change, total = part_mean - mean, count + len(values)
            mean = mean + change * (len(values) / total)
            squares = squares + (values - part_mean).square().sum(0) + (
                change.square() * (count * len(values) / total)
            )  # fmt: skip
            count = total
    return mean, (squares / count).sqrt()


def axes_of(x: Float[Tensor, "*grid dim"]) -> list[Tensor]:
    """Coordinates along each axis of a product grid."""
    dim = x.shape[-1]
    lines = (x[tuple(slice(None) if i == d else 0 for i in range(dim))] for d in range(dim))
    return [line[:, d].contiguous() for d, line in enumerate(lines)]


@dataclass(frozen=True)
class Extent:
    """The box of a domain. A call maps its points to [0, 1]^dim by x -> (x - start)/length.

    >>> Extent((-5.0,), (10.0,))(torch.tensor([[-5.0], [0.0]])).flatten()
    tensor([0.0000, 0.5000])
    """

    start: tuple[float, ...]
    length: tuple[float, ...]

    @classmethod
    def of(cls, domain: Domain) -> Extent | None:
        """The extent of a box.

        The result is None if points are not rescaled: for the unit box, for meshes and for clouds.
        """
        if not isinstance(domain, Box):
            return None
        extent = cls(*zip(*[(grid.start, grid.length) for grid in domain.grids], strict=True))
        is_unit = all(s == 0 and n == 1 for s, n in zip(extent.start, extent.length, strict=True))
        return None if is_unit else extent

    def description(self) -> list[list[float]]:
        """Start and length as JSON, for a checkpoint."""
        return [list(self.start), list(self.length)]

    def __call__(self, x: Float[Tensor, "*points dim"]) -> Float[Tensor, "*points dim"]:
        axes = zip(x.unbind(dim=-1), self.start, self.length, strict=True)
        return torch.stack([(along - start) / length for along, start, length in axes], dim=-1)


@dataclass(frozen=True)
class PhaseValues:
    """The two values α < β of a coefficient. A call maps logits z to α + (β - α)/(1 + e^-z).

    1/(1 + e^-z) is the probability of the upper phase.

    >>> PhaseValues(3.0, 12.0)(torch.tensor([-100.0, 0.0, 100.0]))
    tensor([ 3.0000,  7.5000, 12.0000])
    """

    low: float
    high: float

    def __call__(self, logit: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * logit.sigmoid()

    def share(self, a: Tensor) -> Tensor:
        """Share (a - α)/(β - α) of the upper phase, limited to [0, 1].

        >>> PhaseValues(3.0, 12.0).share(torch.tensor([3.0, 7.5, 13.0]))
        tensor([0.0000, 0.5000, 1.0000])
        """
        return ((a - self.low) / (self.high - self.low)).clamp(0, 1)


class Predictor(nn.Module):
    """An operator with normalisers. Inputs and outputs of the predictor are physical values.

    Args:
        operator: The operator.
        input, target: Normalisers of inputs and of targets.
        boundary: Known boundary values of u. Predictions at the points of the inputs have these
            values.
        task: The learning task, which may apply the operator repeatedly.
        extent: The box whose points are rescaled to the unit box; None for no rescaling.
        mean: Whether predictions in evaluation mode are means over the 8 symmetries of the square
            (`operators.symmetries.square_mean`). The points are then those of a symmetric grid.
        phases: The two values of the target; the outputs of the operator are then logits of the
            upper one. None for other targets.
        gaussian: Whether the operator has two output channels for each one of u: the normalised
            mean m, which is the prediction, and l. The stated deviation of u is s = σ (0.001 +
            e^l), where σ is the deviation of the normaliser. With `mean`, s is the mean over the
            symmetries, which is at least the deviation of the mean.
    """

    def __init__(
        self,
        operator: Operator,
        input: Normalizer,
        target: Normalizer,
        boundary: Boundary | None = None,
        task: Task = MAP,
        extent: Extent | None = None,
        mean: bool = False,
        phases: PhaseValues | None = None,
        gaussian: bool = False,
    ) -> None:
        super().__init__()
        self.operator, self.input, self.target, self.boundary = operator, input, target, boundary
        self.task, self.extent, self.mean, self.phases = task, extent, mean, phases
        self.gaussian = gaussian

    @property
    def in_channels(self) -> int:
        """Number of channels of the inputs."""
        return self.operator.in_channels

    @property
    def out_channels(self) -> int:
        """Number of channels of u."""
        return self.operator.out_channels // (2 if self.gaussian else 1)

    def forward(
        self,
        a: Float[Tensor, "batch *grid c_in"],
        x: Float[Tensor, "*points dim"] | None,
        y: Float[Tensor, "*target_points dim"] | None = None,
        mask: Bool[Tensor, " batch *grid"] | None = None,
        steps: int = 1,
        weight: Tensor | None = None,
        deviation: bool = False,
    ) -> Float[Tensor, "batch *target_grid c"]:
        """Predictions u(y).

        Args:
            steps: Number of applications of the operator; their outputs are concatenated as
                channels.
            deviation: Whether the channels of u are followed by those of its deviation, which a
                `gaussian` predictor has.
        """
        pairs = [(None, v) if v is not None and v.ndim == a.ndim else (v, None) for v in (x, y)]
        shared, by_sample = zip(*pairs, strict=True)
        u = self.on(*shared)(a, *by_sample, mask, steps, weight=weight)
        return u[..., : self.out_channels] if self.gaussian and not deviation else u

    def adapt(self, pairs: Samples) -> None:
        """Fit the operator to training samples by `Operator.adapt`."""
        step = pairs.single_step
        y = step.x if step.y is None else step.y
        if y is not None:  # otherwise each sample has its own points
            u = [step.targets] if isinstance(step.targets, Tensor) else step.targets
            placed = y if self.extent is None else self.extent(y)
            self.operator.adapt((self.target(block.to(y.device), y) for block in u), placed)

    def on(
        self, x: Tensor | None, y: Tensor | None = None, raw: bool = False
    ) -> Callable[..., Tensor]:
        """Prepare predictions at points that all samples share, and return the prediction function.

        Quantities that depend only on the points are computed once.

        Args:
            x: Points of the inputs that all samples share; None if they differ by sample.
            y: Points of the outputs that all samples share; None if they are those of the inputs.
            raw: Whether outputs are as a loss needs them: logits of two phases, not values, and
                logarithms of deviations.

        Returns:
            A function (a, x, y, mask, steps, truth, weight) -> u, or (u, s) if `gaussian`. Its
            arguments x and y are for points that differ by sample.
        """
        mean, std = self.input.at(x)
        target_mean, target_std = self.target.at(x if y is None else y)
        fixed = None
        if self.boundary is not None and x is not None and y is None:
            fixed = self.boundary.on(tuple(x.shape[:-1]), x)
        shared_x, shared_y = self._rescaled(x), self._rescaled(y)

        def applied(operator: Callable[..., Tensor], positions: Positions, a: Tensor) -> Tensor:
            self.input.check(tuple(a.shape[1:-1]))
            if self.target.nodes and positions[1] is not None:
                raise ValueError("pointwise normalisation by node allows no other points y")
            self.target.check(tuple(a.shape[1:-1]))
            u = operator((self.input.raised(a) - mean) / std, *positions)
            u, *log = u.chunk(2, dim=-1) if self.gaussian else (u,)
            u = u * target_std + target_mean
            if self.phases is not None:
                if raw:
                    return u
                u = self.phases(u)
            if self.boundary is not None and positions[1] is None:
                factor, added = fixed or self.boundary.on(tuple(a.shape[1:-1]), u)
                u = u * factor if added is None else u * factor + added
            if not log:
                return u
            s = target_std * (_LEAST_DEVIATION + log[0].exp())
            return torch.cat([u, s.log() if raw else s], dim=-1)

        def predicted(
            a: Tensor,
            sample_x: Tensor | None = None,
            sample_y: Tensor | None = None,
            mask: Tensor | None = None,
            steps: int = 1,
            truth: Tensor | None = None,
            weight: Tensor | None = None,
        ) -> Tensor:
            x = shared_x if sample_x is None else self._rescaled(sample_x)
            y = shared_y if sample_y is None else self._rescaled(sample_y)
            positions = (x, y) if mask is None else (x, y, mask)
            weighted = self.operator.weights and weight is not None
            operator = partial(self.operator, weight=weight) if weighted else self.operator
            apply = partial(applied, operator, positions)
            if self.mean and not self.training:
                if mask is not None:
                    raise ValueError("a mean over the symmetries of the square takes no mask")
                check_mean(x, y)
                apply = partial(square_mean, apply)
            return self.task.predict(apply, a, steps, truth)

        return predicted

    def _rescaled(self, x: Tensor | None) -> Tensor | None:
        return x if x is None or self.extent is None else self.extent(x)
