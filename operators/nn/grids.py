"""Operators on grids and structured meshes: padded, with frames along an axis, asked elsewhere."""

from collections.abc import Sequence
from typing import Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, Mask, Operator, Points, Targets, at_least, check_input
from operators.nn.resample import interpolated, interpolation
from operators.nn.tokens import Coordinates, Positions

Number = TypeVar("Number", int, float)


class GridOperator(Operator):
    """u = D L E (a, x): E and D act at each point, L on the grid and zeros after its last points.

    Points y of the output are met by linear interpolation along each axis of a box. Beyond the
    outermost points x values are continued as constants, on periodic grids too. On curvilinear
    meshes L acts along the axes of the indices, and there are no other points.

    Args:
        padding: Zeros after the last point of each axis, as a part of its n points, rounded to
            whole ones, for functions that are not periodic: the layers have one length on all
            resolutions. One number for all axes or one for each.
        padding_points: Their number on all resolutions instead.
        modes: Modes m kept along each axis, one number for all or one for each; the padded grid
            needs n >= 2m points along an axis.
        frame_channels: Channels of a frame, where those of u are frames one after another. They
            then lie along a further, last axis of the grid: the input is repeated there beside
            the coordinate 0 ... 1 of the frame. 0: channels of u are channels.
        frame_padding: Zeros after the last frame.

    Attributes:
        lift, layers, head: E, L and D.
        features: Channels that E takes.
        axes: Axes that L acts along.
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
        self.positions = Positions(coordinates, dim, last=True)
        self.shares, self.padding_points = shares, padding_points
        self.frame_channels, self.frame_padding = frame_channels, frame_padding
        self.indices = indices
        if indices:
            self.other_points = False
        in_time = frame_channels > 0
        self.features = in_channels + self.positions.count + in_time
        self.axes = dim + in_time

    def margins(self, grid: Sequence[int]) -> list[int]:
        """Zeros before and after each axis, channels first, then the last axis: as `pad` wants."""
        margins = [0, 0, 0, self.frame_padding] if self.frame_channels else [0, 0]
        for n, share in zip(reversed(grid), reversed(self.shares), strict=True):
            margins += [0, self.padding_points or round(share * n)]
        return margins

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        check_input(self, a, x, y, mask)
        if y is not None and x.ndim == a.ndim:
            raise ValueError(
                f"{type(self).__name__} interpolates between boxes alone: y must be None"
            )
        places = _places(a) if self.indices else x
        u = self.lift(self._in_time(self.positions.beside(a, places)))
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

    def _in_time(self, a: Function) -> Float[Tensor, "batch ... f"]:
        """The same at each frame, and the time of the frame, where frames are an axis."""
        own = self.frame_channels
        if not own:
            return a
        if self.out_channels % own:
            raise ValueError(f"frames of {own} channels, got {self.out_channels} channels in all")
        t = torch.linspace(0, 1, self.out_channels // own, dtype=a.dtype, device=a.device)
        grid = (*a.shape[:-1], len(t))
        repeated = a[..., None, :].expand(*grid, -1)
        return torch.cat([repeated, t[:, None].expand(*grid, 1)], dim=-1)


def for_each_axis(name: str, value: Number | list[Number], axes: int) -> list[Number]:
    """One number for each axis, where one is given for all.

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


def _places(a: Function) -> Float[Tensor, "*grid dim"]:
    """j/(n - 1) along each axis of the grid of a."""
    axes = [torch.linspace(0, 1, n, dtype=a.dtype, device=a.device) for n in a.shape[1:-1]]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
