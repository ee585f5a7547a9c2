"""Linear, cubic and trigonometric interpolation between product grids; division of a grid into
windows and back."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, Mask, Operator, Points, Targets, at_least, check_input
from operators.nn.encoder import on_processor, product
from operators.nn.tokens import Coordinates, Positions, cached, nodal

Image = Float[Tensor, "batch n1 n2 c"]
Grid = Float[Tensor, "n1 n2 2"]
Resampling = Literal["bicubic", "periodic", "fourier"]
_ROUNDING = 1e-5  # largest deviation from a product grid, over the extent of the grid


def resized(u: Image, n1: int, n2: int) -> Float[Tensor, "batch {n1} {n2} c"]:
    """Bilinear interpolation from a uniform grid to n1 x n2 uniform points with the same ends.

    `resized_grid` returns the coordinates of the new points.

    On devices other than the CPU, each axis is interpolated by a matrix product in at least
    float32. The gradient is then a matrix product too, which is the same in every run.
    """
    if u.shape[1:3] == (n1, n2):
        return u
    if not on_processor(u):
        return _stretched_by_products(u, (n1, n2))
    channels_first = u.permute(0, 3, 1, 2)  # strides of channels last: no copy, the fast kernel
    v = nn.functional.interpolate(channels_first, (n1, n2), mode="bilinear", align_corners=True)
    return v.permute(0, 2, 3, 1)


def _stretched_by_products(u: Image, sizes: tuple[int, int]) -> Float[Tensor, "batch m1 m2 c"]:
    v = u
    for axis, m in enumerate(sizes):
        n, batch, rest = v.shape[axis + 1], math.prod(v.shape[: axis + 1]), v.shape[axis + 2 :]
        if n != m:
            matrix_of = _stretching if torch.compiler.is_compiling() else _cached_stretching
            matrix = matrix_of(n, m, torch.promote_types(u.dtype, torch.float32), u.device)
            columns = v.reshape(batch, n, -1)
            v = product(matrix, columns).view(*v.shape[: axis + 1], m, *rest)
    return v.to(u.dtype)


def _stretching(
    n: int, m: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "{m} {n}"]:
    """Matrix of linear interpolation from n uniform points to m uniform points, same ends.

    >>> _stretching(3, 5, torch.float32, torch.device("cpu"))[1]
    tensor([0.5000, 0.5000, 0.0000])
    """
    position = torch.arange(m, dtype=torch.float64, device=device) * ((n - 1) / max(m - 1, 1))
    distance = (position[:, None] - torch.arange(n, device=device)).abs()
    return (1 - distance).clamp(min=0).to(dtype)


_cached_stretching = cached(_stretching)


def stretched(u: Float[Tensor, "batch *grid c"], sizes: Sequence[int]) -> Float[Tensor, "b ... c"]:
    """Linear interpolation from a uniform grid of one or two axes to one with the same ends."""
    if u.ndim == 3:
        return stretched(u[:, :, None], [*sizes, 1])[:, :, 0]
    n1, n2 = sizes
    return resized(u, n1, n2)


def resized_grid(x: Grid, n1: int, n2: int) -> Float[Tensor, "{n1} {n2} 2"]:
    """The points of a grid, resized to n1 x n2 points."""
    return resized(x[None], n1, n2)[0]


def interpolation(x: Float[Tensor, " n"], y: Float[Tensor, " m"]) -> Float[Tensor, "m n"]:
    """The matrix of linear interpolation from ascending points x to points y.

    The rows of the matrix sum to 1. Beyond the ends the interpolant is constant.

    >>> interpolation(torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0.5, 2.5, 9.0]))
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.2500, 0.7500],
            [0.0000, 0.0000, 1.0000]])
    """
    upper = torch.searchsorted(x, y.contiguous(), right=True).clamp(1, len(x) - 1)
    lower = upper - 1
    weight = ((y - x[lower]) / (x[upper] - x[lower])).clamp(0, 1)
    columns = torch.arange(len(x), device=x.device)
    return (columns == lower[:, None]) * (1 - weight)[:, None] + (
        columns == upper[:, None]
    ) * weight[:, None]


def interpolated(
    u: Float[Tensor, "batch *grid c"],
    x: Float[Tensor, "*grid dim"],
    y: Float[Tensor, "*target_grid dim"],
) -> Float[Tensor, "batch *target_grid c"]:
    """Linear interpolation along each axis from the points x to the points y of product grids."""
    for axis in range(x.shape[-1]):
        line = (*[0] * axis, slice(None), *[0] * (x.ndim - 2 - axis), axis)
        matrix = interpolation(x[line].contiguous(), y[line])
        before, after = u.shape[: axis + 1], u.shape[axis + 2 :]
        v = u.reshape(math.prod(before), x.shape[axis], -1)
        u = torch.bmm(matrix.expand(len(v), -1, -1), v).view(*before, len(matrix), *after)
    return u


def check_products(x: Float[Tensor, "*grid dim"], y: Float[Tensor, "*target_grid dim"]) -> None:
    """Raise ValueError unless values can be interpolated from x to y along each axis.

    x and y must be products of their axes, and x must ascend along each axis. Operators call this
    in evaluation only, because comparing values waits for the device. `torch.func.vmap` over x or y
    and the device meta have no values to compare, and fail here.
    """
    if not _is_product(x, ascends=True):
        raise ValueError(
            "values are interpolated along each axis: the points x must be a product grid whose "
            "coordinates ascend"
        )
    if not _is_product(y):
        raise ValueError(
            "values are interpolated along each axis: the points y must be a product grid"
        )


def _is_product(x: Float[Tensor, "*grid dim"], ascends: bool = False) -> bool:
    """Whether coordinate i of x depends on grid axis i only, up to rounding."""
    if not x.numel():
        return True
    fits: list[Tensor] = []
    for axis, along in enumerate(x.unbind(-1)):
        lines = along.movedim(axis, -1).flatten(0, -2) if along.ndim > 1 else along[None]
        rounding = 4 * torch.finfo(x.dtype).eps * lines.abs().amax()
        extent = lines.amax() - lines.amin()
        fits.append((lines - lines[0]).abs().amax() <= _ROUNDING * extent + rounding)
        if ascends:
            fits.append((lines[0].diff() > 0).all())
    return bool(torch.stack(fits).all())


def resampled(
    u: Float[Tensor, "batch c *grid"], kind: Resampling, sizes: Sequence[int]
) -> Float[Tensor, "batch c ..."]:
    """Resample functions from a uniform grid of a box to another one. Channels are on axis 1.

    Modes that a coarser new grid cannot represent are filtered out.

    Args:
        kind: "bicubic": cubic convolution from points (j + ½)/n, like PyTorch's antialiased
            interpolation. "periodic": cubic convolution of periodic functions on points j/n.
            "fourier": trigonometric interpolation with the modes that both grids can represent.
        sizes: Number of new points along each axis.
    """
    for axis, (n, m) in enumerate(zip(u.shape[2:], sizes, strict=True)):
        if n != m:
            # compilers trace how a matrix is made; they do not support the cache
            matrix_of = _resampling if torch.compiler.is_compiling() else _cached_resampling
            matrix = matrix_of(kind, n, m, u.dtype, u.device)
            u = u @ matrix.T if axis == u.ndim - 3 else matrix @ u
    return u


def _resampling(
    kind: Resampling, n: int, m: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "{m} {n}"]:
    """The matrix that resamples from n points to m points along one axis."""
    shift = 0.5 if kind == "bicubic" else 0.0
    new = (torch.arange(m, dtype=torch.float64, device=device) + shift) * (n / m) - shift
    distance = new[:, None] - torch.arange(n, device=device)
    if kind == "fourier":
        common = min(n, m)
        k = torch.arange(1, (common + 1) // 2, device=device)
        waves = (2 * math.pi / n * distance[..., None] * k).cos()
        matrix = 1 + 2 * waves.sum(-1)
        if common % 2 == 0:  # the last mode has no sine; on finer grids it is two modes, +k and -k
            matrix += (1 if common == n else 2) * (math.pi * common / n * distance).cos()
    else:
        width = max(n / m, 1.0)
        images = range(-3, 4) if kind == "periodic" else (0,)
        matrix = torch.stack([_cubic((distance + n * i) / width) for i in images]).sum(0)
    return (matrix / matrix.sum(1, keepdim=True)).to(dtype)


_cached_resampling = cached(_resampling)


def _cubic(x: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """Kernel of cubic convolution with a = -½ (R. G. Keys 1981, equation 15)."""
    x = x.abs()
    inner, outer = (1.5 * x - 2.5) * x * x + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2
    return torch.where(x < 1, inner, torch.where(x < 2, outer, torch.zeros_like(x)))


def windows(
    u: Float[Tensor, "batch *grid c"], side: int | list[int]
) -> Float[Tensor, "batch *coarse p c"]:
    """Split a grid into windows of `side` points along each axis; flatten each window.

    >>> import torch
    >>> windows(torch.arange(8).view(1, 2, 4, 1).float(), 2).flatten(-2).tolist()
    [[[[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]]]
    """
    dim = u.ndim - 2
    for axis in range(dim, 0, -1):
        u = u.unflatten(axis, (-1, side if isinstance(side, int) else side[axis - 1]))
    # (batch, m1, side, m2, side, c)
    u = u.permute(0, *range(1, 2 * dim, 2), *range(2, 2 * dim + 1, 2), 2 * dim + 1)
    return u.flatten(dim + 1, 2 * dim)


def joined(
    v: Float[Tensor, "batch *coarse p c"], side: int | list[int]
) -> Float[Tensor, "batch *grid c"]:
    """Put the windows of a grid, as `windows` splits it, together again."""
    dim = v.ndim - 3
    v = v.unflatten(dim + 1, [side] * dim if isinstance(side, int) else side)
    v = v.permute(0, *[k for i in range(dim) for k in (1 + i, 1 + dim + i)], 2 * dim + 1)
    for axis in range(dim, 0, -1):
        v = v.flatten(2 * axis - 1, 2 * axis)
    return v


# Base of operators on grids and structured meshes: padding, an axis of frames, output points.


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
        if frame_channels and dim > 2:
            raise ValueError(f"frame_channels needs dim 1 or 2, got {dim}")
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

    @classmethod
    def dims_with(cls, settings: Mapping[str, object]) -> tuple[int, ...]:
        return (1, 2) if settings.get("frame_channels") else cls.dims

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
        points = nodal(a.shape[1:-1], a) if self.indices else x
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
