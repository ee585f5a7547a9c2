"""The base class of all operators: maps between functions on a domain."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from pdegen.domains import Box, Domain

# Bounds of the arguments of constructors that files set: files are checked against them.


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1)]  # of a running mean, or a fraction that may be 0
Fraction = Annotated[float, Field(gt=0, lt=1)]
Factor = Annotated[float, Field(gt=0, le=1)]
Divisor = Annotated[float, Field(ge=1)]
Count = Annotated[int, Field(ge=1, le=2**32)]


def require(condition: bool, requirement: str, *values: object) -> None:
    """Raise ValueError unless a condition holds.

    >>> require(-1 >= 0, "weight_decay must be >= 0", -1)
    Traceback (most recent call last):
    ValueError: weight_decay must be >= 0, got -1
    """
    if not condition:
        raise ValueError(f"{requirement}, got {', '.join(map(str, values))}")


# Random number streams that are determined by a key.


def stream_seed(*key: int) -> int:
    """A seed of 63 bits, computed from a key of integers >= 0."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)


def generator(*key: int) -> torch.Generator:
    """A random generator on the CPU, seeded by a key of integers >= 0."""
    return torch.Generator().manual_seed(stream_seed(*key))


Function = Float[Tensor, "batch *grid c"]
Points = Float[Tensor, "*grid dim"] | Float[Tensor, "batch *grid dim"]
Targets = Float[Tensor, "... dim"]  # output points, with an axis of samples if x has one
Blocks = Iterable[Float[Tensor, "_ *grid c"]]  # blocks of functions, of any sizes
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
        parameters: Number of trainable real numbers for the given `channels` and `dim`. A test
            checks this number.
        source: The publication of the configuration.
        channels: Numbers of input and output channels to which `parameters` refers.
        dim: Dimension of the domain to which `parameters` refers.
    """

    settings: Mapping[str, object]
    parameters: int
    source: str
    channels: tuple[int, int] = (1, 1)
    dim: int = 1


class Operator(nn.Module, ABC):
    """A map between functions on a domain, a -> u.

    Input values a(x) are given at points x, and output values u(y) at points y. Tensors have the
    shape (batch, *grid, channels). A cloud is a grid with one axis. An operator stores no grid, and
    the same weights act at every resolution.

    A class attribute lists everything that the class supports with suitable settings. If the
    settings of an instance support less, the instance has its own attribute.

    Args:
        in_channels, out_channels, dim: The attributes of the same names. If None, the subclass
            sets the value.
        width: Number of features at each point.
        depth: Number of layers or blocks.
        heads: Number of heads in each attention layer; must divide the width.
        feedforward: Number of hidden features of the MLP in each block.
        head_width: Number of hidden features of the final network.
        activation: "tanh", "relu", "gelu" or "silu".
        coordinates: Coordinates that are appended to the input at each point. "raw" appends x.
            "periodic" appends cos 2πx and sin 2πx, which have no jump at the ends. "lattice"
            appends the distances to a lattice of reference points in [0, 1]^dim. "none" appends
            nothing.
        lattice: Number of reference points along each axis, including the ends.
        indices: Whether scaled grid indices replace the positions x. The input channels must then
            contain the positions of mesh points. Predictions are only possible at x.

    Attributes:
        in_channels, out_channels: Number of channels of a and of u.
        dim: Number of space dimensions.
        dims: Numbers of space dimensions that the class supports.
        domains: Supported kinds of domains, a subset of `EVERYWHERE`.
        points_by_sample: Whether the points may differ from sample to sample.
        masks: Whether some points may be padding.
        other_points: Whether u can be evaluated at points y other than x.
        weights: Whether `forward` has an argument `weight` for quadrature weights of the points,
            shape (*grid) or (batch, *grid); `weight` None stands for equal weights.
        presets: Published configurations; the keys are their names.
        package: Import name of an extra package that the operator needs; empty for none.
        released_names: Pairs (text in published tensor names, its replacement here), applied in
            this order.
        by_channels: Prefixes of the names of tensors whose shapes depend on the channels. These
            tensors keep their initial values if published weights have other channels.
        points_per: Numbers of points along an axis that one unit of an argument needs, by the name
            of the argument: two for a mode. See `suited`.
        added: Names of arguments that earlier versions did not have. Experiments and checkpoints
            omit them at their defaults, so that the records of earlier trainings stay the same.

    Raises:
        ValueError: If settings are impossible or `dim` is not among `dims`. A call raises the error
            if the input has an unexpected shape, if the grid is too coarse for the settings, or
            if points y are given but not supported.

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
    points_per: ClassVar[Mapping[str, int]] = {}
    added: ClassVar[tuple[str, ...]] = ()

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
        """Numbers of space dimensions that the class supports with these settings."""
        return cls.dims

    @classmethod
    def suited(cls, settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
        """Settings in place of those that a domain does not allow, such as fewer modes on a coarse
        grid. Empty if all are possible.

        Args:
            settings: All arguments of the constructor that are settings.
            domain: The domain.
        """
        least = min(domain.shape)
        return {
            name: max(1, least // points)
            for name, points in cls.points_per.items()
            if isinstance(value := settings[name], int) and value * points > least
        }

    @abstractmethod
    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        """Evaluate the operator.

        Args:
            a: Input function values a(x), shape (batch, *grid, in_channels).
            x: Coordinates of the points, shape (*grid, dim) if the samples share them, otherwise
                (batch, *grid, dim).
            y: Coordinates of the output points, shape (*target_grid, dim) if the samples share x,
                otherwise (batch, *target_grid, dim). None stands for x.
            mask: False at padding, shape (batch, *grid). Values and squared positions at padding
                must be finite. They do not influence other outputs, and the output at padding is
                meaningless. None stands for no padding.

        Returns:
            Output function values u(y), shape (batch, *target_grid, out_channels).
        """

    def adapt(self, u: Blocks, y: Points) -> None:
        """Fit the operator to the training targets. The method is called once, before training.

        Most operators ignore the call. Others store a result, such as a basis, in buffers, which
        checkpoints contain. The method is not called if each sample has its own points.

        Args:
            u: All normalised training targets, in blocks. A block may overwrite the previous one.
            y: Points of the targets, shape (*target_grid, dim).
        """

    def check_samples(self, count: int) -> None:
        """Raise ValueError if `adapt` needs more than `count` training samples."""

    @property
    def parameter_count(self) -> int:
        """Number of trainable real numbers; a complex weight counts as two."""
        trainable = (p for p in self.parameters() if p.requires_grad)
        return sum(p.numel() * (2 if p.is_complex() else 1) for p in trainable)


def at_least(least: int, **numbers: int) -> None:
    """Raise ValueError if any of the numbers is smaller than `least`.

    >>> at_least(1, width=8, depth=0)
    Traceback (most recent call last):
    ValueError: depth must be at least 1, got 0
    """
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")


def check_domain(model: Operator, domain: Domain, padded: bool = False) -> None:
    """Raise ValueError if an operator does not support functions on a domain."""
    kinds = {g.kind for g in domain.grids} if isinstance(domain, Box) else {domain.kind}
    if unsupported := sorted(kinds - model.domains):
        supported = ", ".join(sorted(model.domains))
        raise ValueError(f"{_name(model)} takes {supported} domains, not {unsupported[0]} ones")
    _check_points(model, domain.moves, padded)


def _check_points(model: Operator, by_sample: bool, padded: bool) -> None:
    """Raise ValueError if an operator does not support points that differ by sample, or padding."""
    if by_sample and not model.points_by_sample:
        raise ValueError(f"{_name(model)} needs points that all samples share")
    if padded and not model.masks:
        raise ValueError(f"{_name(model)} needs the same number of points in all samples")


def _name(model: Operator) -> str:
    return f"{type(model).__name__} with these settings"


def check_input(
    model: Operator, a: Tensor, x: Tensor, y: Tensor | None = None, mask: Tensor | None = None
) -> None:
    """Raise ValueError if `model` does not accept the shape of `a`, `x`, `y` or `mask`."""
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
    """The shapes that functions on a grid can have, as text for messages."""
    grids = [
        [letter] if n == 1 < max(axes) else [f"{letter}{i + 1}" for i in range(n)]
        for n in sorted(axes, reverse=True)
    ]
    return " or ".join(f"({', '.join(map(str, (*before, *grid, last)))})" for grid in grids)
