"""The contract that every operator obeys."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from pdegen.domains import Box, Domain

Function = Float[Tensor, "batch *grid c"]
Points = Float[Tensor, "*grid dim"] | Float[Tensor, "batch *grid dim"]
Targets = Float[Tensor, "... dim"]  # their own grid, after the axis of samples where x has one
Blocks = Iterable[Float[Tensor, "_ *grid c"]]  # of functions, as many in each as it likes
Mask = Bool[Tensor, "batch *grid"]
Weight = Float[Tensor, " *grid"] | Float[Tensor, " batch *grid"]

BOXES = frozenset({"periodic", "cell", "nodal"})
MESHES = BOXES | {"curvilinear"}
EVERYWHERE = MESHES | {"cloud"}


@dataclass(frozen=True)
class Preset:
    """A published configuration of an operator.

    Args:
        settings: Arguments of the constructor that differ from its defaults.
        parameters: Trainable real numbers that it has with `channels`; a test counts them.
        channels, dim: Input and output channels and dimension of the domain of that count.
    """

    settings: Mapping[str, object]
    parameters: int
    source: str
    channels: tuple[int, int] = (1, 1)
    dim: int = 1


class Operator(nn.Module, ABC):
    """A map between functions on a domain, a -> u.

    Batch first, channels last, the grid between them; a cloud is a grid of one axis. An operator
    holds no grid: the same weights act on every resolution, `x` says where the values of `a` lie,
    and `y` where those of `u` are asked for.

    A class says what its operators take with suitable settings; where settings exclude some of it,
    the operator itself has a smaller attribute.

    Args:
        in_channels, out_channels, dim: See the attributes; what is absent, the class has.
        width: Features of a point.
        depth: Number of layers or blocks.
        heads: Heads of each attention; must divide the width.
        feedforward: Hidden features of the MLP in each block.
        head_width: Hidden features of the network at the end.
        activation: "tanh", "relu", "gelu" or "silu".
        coordinates: Beside a at each point: "raw", x itself; "periodic", cos 2πx and sin 2πx, which
            have no jump at the ends; "lattice", the distances to a lattice of reference points in
            [0, 1]^dim; "none", nothing.
        lattice: Reference points along each axis, the ends included.
        indices: The places of points in the grid, evenly spaced along each axis, stand for their
            positions x: where the points of a mesh lie, a has to say. Predictions are at x only.

    Attributes:
        in_channels, out_channels: Channels of a and of u.
        dim: Dimension of space.
        dims: Dimensions that there are operators for.
        domains: Kinds of domains that they take: words of `EVERYWHERE`.
        points_by_sample: Whether the points may differ from sample to sample.
        masks: Whether some of the points may be padding.
        other_points: Whether u can be asked for at other points than those of a.
        weights: Whether `forward` has an argument `weight`: the quadrature weights of the points,
            shape (*grid) or (batch, *grid); None where all points count alike.
        presets: Published configurations by name.
        package: A package beyond the dependencies of this one that it needs, as it is imported;
            empty for none.
        released_names: What parts of names of published weights are called here, in this order.
        by_channels: Beginnings of names whose tensors depend on the channels: where published
            weights have other channels, these start anew.

    Raises:
        ValueError: On impossible settings or a dimension that is not among `dims`; when called, on
            input of another shape than declared, on grids too coarse for the settings, and on
            points y where there are no other points.

    >>> class Identity(Operator):
    ...     def forward(self, a, x, y=None, mask=None):
    ...         check_input(self, a, x, y, mask)
    ...         return a
    >>> Identity(in_channels=1, out_channels=1, dim=2).domains == BOXES
    True
    """

    in_channels: int
    out_channels: int
    dim: int
    dims: ClassVar[tuple[int, ...]] = (1, 2)
    domains: frozenset[str] = BOXES
    points_by_sample: bool = False
    masks: bool = False
    other_points: bool = False
    weights: bool = False
    presets: ClassVar[Mapping[str, Preset]] = {}
    package: ClassVar[str] = ""
    released_names: ClassVar[tuple[tuple[str, str], ...]] = ()
    by_channels: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        in_channels: int | None = None,
        out_channels: int | None = None,
        dim: int | None = None,
    ) -> None:
        super().__init__()
        if in_channels is not None:
            self.in_channels = in_channels
        if out_channels is not None:
            self.out_channels = out_channels
        if dim is not None:
            if dim not in self.dims:
                raise ValueError(f"dim must be {' or '.join(map(str, self.dims))}, got {dim}")
            self.dim = dim

    @classmethod
    def dims_with(cls, settings: Mapping[str, object]) -> tuple[int, ...]:
        """Those of `dims` that operators with these settings are for."""
        return cls.dims

    @abstractmethod
    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        """Evaluate the operator.

        Args:
            a: Input function values a(x), shape (batch, *grid, in_channels).
            x: Coordinates of the points, shape (*grid, dim) where the samples share them, or
                (batch, *grid, dim).
            y: Coordinates of the points of the output, shape (*target_grid, dim), or, where the
                samples do not share x, (batch, *target_grid, dim). None, the points x.
            mask: False at points that are padding, shape (batch, *grid). The values and positions
                there have no influence, and the output there has no meaning. None, no padding.

        Returns:
            Output function values u(y), shape (batch, *target_grid, out_channels).
        """

    def adapt(self, u: Blocks, y: Points) -> None:
        """Take what the operator needs of training targets, once, before training.

        Most operators need nothing. What is taken belongs into buffers, which checkpoints save.
        Where each sample has points of its own, nothing is given.

        Args:
            u: All targets of the training samples as the operator is to give them, in blocks,
                which may be overwritten by those after them.
            y: Their points, shape (*target_grid, dim).
        """

    def check_samples(self, count: int) -> None:
        """Raise ValueError unless `adapt` can do with so many training samples."""

    @property
    def parameter_count(self) -> int:
        """Number of trainable real numbers; a complex weight counts as two."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


def at_least(least: int, **numbers: int) -> None:
    """Raise ValueError where one of the numbers is smaller.

    >>> at_least(1, width=8, depth=0)
    Traceback (most recent call last):
    ValueError: depth must be at least 1, got 0
    """
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")


def check_domain(model: Operator, domain: Domain, padded: bool = False) -> None:
    """Raise ValueError where functions on a domain are not what an operator takes."""
    kinds = {g.kind for g in domain.grids} if isinstance(domain, Box) else {domain.kind}
    if other := sorted(kinds - model.domains):
        known = ", ".join(sorted(model.domains))
        raise ValueError(f"{_these(model)} takes {known} domains, not {other[0]} ones")
    _check_points(model, domain.moves, padded)


def _check_points(model: Operator, by_sample: bool, padded: bool) -> None:
    if by_sample and not model.points_by_sample:
        raise ValueError(f"{_these(model)} needs points that all samples share")
    if padded and not model.masks:
        raise ValueError(f"{_these(model)} needs the same number of points in all samples")


def _these(model: Operator) -> str:
    return f"{type(model).__name__} with these settings"


def check_input(
    model: Operator, a: Tensor, x: Tensor, y: Tensor | None = None, mask: Tensor | None = None
) -> None:
    """Raise ValueError where `a`, `x`, `y` or `mask` is not of a shape that `model` takes."""
    dim, batch, by_sample = model.dim, a.shape[0], x.ndim == a.ndim
    axes = {dim, 1} if "cloud" in model.domains else {dim}
    if a.ndim - 2 not in axes or a.shape[-1] != model.in_channels:
        expected = _shapes("n", axes, ("batch",), model.in_channels)
        raise ValueError(f"expected input of shape {expected}, got {tuple(a.shape)}")
    points = (*a.shape[0 if by_sample else 1 : -1], dim)
    if x.shape != points:
        raise ValueError(f"expected coordinates of shape {points}, got {tuple(x.shape)}")
    _check_points(model, by_sample, mask is not None)
    if mask is not None and mask.shape != a.shape[:-1]:
        raise ValueError(f"expected a mask of shape {tuple(a.shape[:-1])}, got {tuple(mask.shape)}")
    if y is None:
        return
    if not model.other_points:
        raise ValueError("this operator predicts at the points x of its input: y must be None")
    samples = (batch,) if by_sample else ()
    fits = y.shape[: len(samples)] == samples and y.shape[-1] == dim
    if y.ndim - 1 - len(samples) not in axes or not fits:
        expected = _shapes("m", axes, samples, dim)
        raise ValueError(f"expected output coordinates of shape {expected}, got {tuple(y.shape)}")


def _shapes(letter: str, axes: set[int], before: tuple[object, ...], last: int) -> str:
    """The shapes of functions on as many axes as one of `axes`."""
    grids = [
        [letter] if n == 1 < max(axes) else [f"{letter}{i + 1}" for i in range(n)]
        for n in sorted(axes, reverse=True)
    ]
    return " or ".join(f"({', '.join(map(str, (*before, *grid, last)))})" for grid in grids)
