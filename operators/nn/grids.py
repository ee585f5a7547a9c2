"""Base of operators on grids and structured meshes: padding, an axis of frames, output points."""

import math
from collections.abc import Sequence
from typing import Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, Mask, Operator, Points, Targets, at_least, check_input
from operators.nn.resample import check_products, interpolated, interpolation
from operators.nn.tokens import Coordinates, Positions

Number = TypeVar("Number", int, float)


class GridOperator(Operator):
    """u = D L E (a, x). E and D act at each point; L acts on the grid, padded with zeros.

    On a box, values at output points y are interpolated linearly along each axis. The points y must
    be a product grid. In evaluation, others are refused, and so are points y beside points x that
    are no product grid with ascending coordinates. Beyond the outermost points x the values are
    constant, even on periodic grids. On curvilinear meshes L acts along the indices, and y must be
    None.

    Args:
        padding: Number of zeros after the last point of each axis, divided by the number of points.
            The padding then has the same length at all resolutions. A single number applies to all
            axes. Padding is for functions that are not periodic.
        padding_points: Number of zeros at all resolutions; replaces `padding`.
        period: Length of the padded axis, divided by the distance between its first and its last
            point; replaces `padding`. Rounding aside, it is the same at all resolutions of a grid
            that contains both ends. 0 for none.
        frame_channels: Number of channels of a frame if the channels of u are consecutive frames,
            otherwise 0. Frames become the last axis of the grid. The input is repeated along this
            axis, with the position of the frame, 0 ... 1, as a further feature.
        frame_padding: Number of zeros after the last frame.
        indices: Whether positions are the indices of points, scaled to [0, 1]; then y must be None.

    Attributes:
        lift, layers, head: E, L and D.
        features: Number of input channels of E.
        axes: Number of axes along which L acts.
    """

    domains = MESHES
    points_by_sample = True
    other_points = True
    lift: nn.Module
    layers: nn.Module
    head: nn.Module

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        coordinates: Coordinates | Literal["lattice"],
        padding: float | list[float] = 0.0,
        padding_points: int = 0,
        frame_channels: int = 0,
        frame_padding: int = 0,
        indices: bool = False,
        period: float = 0.0,
    ) -> None:
        super().__init__(in_channels, out_channels, dim)
        at_least(0, frame_channels=frame_channels, frame_padding=frame_padding)
        if frame_padding and not frame_channels:
            raise ValueError(f"frame_padding={frame_padding} needs frame_channels, got 0")
        shares = for_each_axis("padding", padding, dim)
        if min(*shares, padding_points) < 0 or (any(shares) and padding_points):
            raise ValueError(
                "one of padding and padding_points must be 0 and the other at least 0, "
                f"got padding={padding}, padding_points={padding_points}"
            )
        if period and (not 1 < period < math.inf or any(shares) or padding_points):
            raise ValueError(
                "period must be finite and above 1, without padding and padding_points, "
                f"got period={period}, padding={padding}, padding_points={padding_points}"
            )
        self.positions = Positions(coordinates, dim, last=True)
        self.shares, self.padding_points, self.period = shares, padding_points, period
        self.frame_channels, self.frame_padding = frame_channels, frame_padding
        self.indices = indices
        if indices:
            self.other_points = False
        frame_axis = frame_channels > 0
        self.features = in_channels + self.positions.count + frame_axis
        self.axes = dim + frame_axis

    def margins(self, grid: Sequence[int]) -> list[int]:
        """Numbers of zeros before and after each axis, in the order of `nn.functional.pad`."""
        margins = [0, 0, 0, self.frame_padding] if self.frame_channels else [0, 0]
        for n, share in zip(reversed(grid), reversed(self.shares), strict=True):
            margins += [0, self._margin(n, share)]
        return margins

    def _margin(self, n: int, share: float) -> int:
        """Number of zeros after an axis of n points."""
        if not self.period:
            return self.padding_points or round(share * n)
        margin = round(self.period * (n - 1)) - n
        if margin < 0:
            raise ValueError(f"period={self.period:g} is shorter than an axis of {n} points")
        return margin

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        check_input(self, a, x, y, mask)
        if y is not None and x.ndim == a.ndim:
            raise ValueError(
                f"{type(self).__name__} predicts at other points y only for inputs on a box; here "
                "each sample has its own points x, so y must be None"
            )
        if y is not None and not (self.training or torch.compiler.is_compiling()):
            check_products(x, y)
        points = _index_points(a) if self.indices else x
        u = self.lift(self._with_frames(self.positions.beside(a, points)))
        margins = self.margins(a.shape[1:-1])
        if any(margins):
            u = nn.functional.pad(u, margins)
        u = self.layers(u)
        if any(margins):
            u = nn.functional.pad(u, [-margin for margin in margins])
        u = self.head(u)
        u = u.flatten(-2) if self.frame_channels else u
        if y is None:
            return u
        if self.dim == 1:
            return interpolation(x[:, 0].contiguous(), y[:, 0]) @ u
        return interpolated(u, x, y)

    def _with_frames(self, a: Function) -> Float[Tensor, "batch ... f"]:
        """If there are frames, repeat a along an axis of frames and append their time to a."""
        channels = self.frame_channels
        if not channels:
            return a
        if self.out_channels % channels:
            raise ValueError(
                f"frames of {channels} channels, got {self.out_channels} channels in all"
            )
        t = torch.linspace(0, 1, self.out_channels // channels, dtype=a.dtype, device=a.device)
        grid = (*a.shape[:-1], len(t))
        repeated = a[..., None, :].expand(*grid, -1)
        return torch.cat([repeated, t[:, None].expand(*grid, 1)], dim=-1)


def for_each_axis(name: str, value: Number | list[Number], axes: int) -> list[Number]:
    """Convert one number for all axes, or a list with one number for each axis, to such a list.

    >>> for_each_axis("modes", 16, 2)
    [16, 16]
    >>> for_each_axis("modes", [32, 16, 8], 2)
    Traceback (most recent call last):
    ValueError: modes needs one number for each of 2 axes, got [32, 16, 8]
    """
    numbers = value if isinstance(value, list) else [value] * axes
    if len(numbers) != axes:
        raise ValueError(f"{name} needs one number for each of {axes} axes, got {value}")
    return numbers


def _index_points(a: Function) -> Float[Tensor, "*grid dim"]:
    """Points j/(n - 1) along each axis of the grid of a."""
    axes = [torch.linspace(0, 1, n, dtype=a.dtype, device=a.device) for n in a.shape[1:-1]]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
