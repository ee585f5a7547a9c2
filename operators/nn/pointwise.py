"""MLPs, small convolutions, norms and dropout, and the initialisation of linear maps."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Mask

# U-Nets for functions on grids: convolutions on coarser grids and back, with skip connections.


Norm = Literal["batch", "instance"]

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
POOLS = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
NORMS = {
    "batch": {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d},
    "instance": {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d},
}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class UNet(nn.Module):
    """A U-Net v = U(u), where u and v have `width` channels.

    Args:
        levels: Number of coarser grids.
        normalization: Norm of each channel after each convolution. "batch": over batch and grid.
            "instance": over the grid of each sample.
        multiple: Divisor of the sizes of the padded grid; 0 means 2^levels.
    """

    def __init__(
        self, dim: int, width: int, levels: int, normalization: Norm, multiple: int = 0
    ) -> None:
        super().__init__()
        self.dim, self.width, self.levels, self.normalization = dim, width, levels, normalization
        self.multiple = multiple or 2**levels

    def forward(self, u: Function) -> Function:
        margins = [-n % self.multiple for n in u.shape[1:-1]]
        longest = max(n + margin for n, margin in zip(u.shape[1:-1], margins, strict=True))
        if self.normalization == "instance" and longest == 2**self.levels:
            raise ValueError(
                f'normalization "instance" with levels={self.levels} needs an axis of more than '
                f"{longest} points, got {max(u.shape[1:-1])}"
            )
        outside = [0, 0, *(side for margin in reversed(margins) for side in (0, margin))]
        v = self.coarsened(nn.functional.pad(u, outside).movedim(-1, 1)).movedim(1, -1)
        return nn.functional.pad(v, [-side for side in outside])

    @abstractmethod
    def coarsened(self, u: Tensor) -> Tensor:
        """The map U on grids whose sizes are multiples of `multiple`. Channels come first."""

    def convolution(
        self, c_in: int, c_out: int, activation: nn.Module, stride: int = 1
    ) -> nn.Sequential:
        """Convolution with 3 points along each axis, without bias; then norm and activation."""
        norm = NORMS[self.normalization][self.dim]
        return nn.Sequential(
            CONVOLUTIONS[self.dim](c_in, c_out, 3, stride, padding=1, bias=False),
            norm(c_out, affine=True),
            activation,
        )


class StridedUNet(UNet):
    """The U-Net of U-FNO: strided convolutions down, transposed convolutions up.

    All grids have `width` channels. Activations are LeakyReLU with slope 0.1. The last convolution,
    on the finest grid, has neither norm nor activation.

    >>> StridedUNet(2, 4, 3, "batch")(torch.randn(2, 16, 13, 4)).shape
    torch.Size([2, 16, 13, 4])
    """

    def __init__(self, dim: int, width: int, levels: int, normalization: Norm) -> None:
        super().__init__(dim, width, levels, normalization)

        def convolution(stride: int) -> nn.Module:
            return self.convolution(width, width, nn.LeakyReLU(0.1), stride)

        def up(c_in: int) -> nn.Module:
            transposed = TRANSPOSED[dim](c_in, width, 4, stride=2, padding=1)
            return nn.Sequential(transposed, nn.LeakyReLU(0.1))

        coarser = (nn.Sequential(convolution(2), convolution(1)) for _ in range(levels - 1))
        self.down = nn.ModuleList([convolution(2), *coarser])
        self.up = nn.ModuleList([up(width), *(up(2 * width) for _ in range(levels - 1))])
        self.out = CONVOLUTIONS[dim](2 * width, width, 3, padding=1)

    def coarsened(self, u: Tensor) -> Tensor:
        skips = [u]
        for down in self.down:
            skips.append(down(skips[-1]))
        v = skips.pop()
        for up in self.up:
            v = torch.cat([skips.pop(), up(v)], 1)
        return self.out(v)


class PooledUNet(UNet):
    """The U-Net of Neural-Solver-Library and PyTorch examples: max pooling down, interpolation up.

    Each grid has two convolutions with ReLU before its pooling and two after the interpolation back
    to it. The coarsest grid has two in all. The number of channels doubles at each level except the
    coarsest. The last layer is a pointwise linear map.

    Args:
        beside: Modules in the skip connections, one for each of the `levels + 1` grids, finest grid
            first. Their inputs have channels first. The default is the identity.

    >>> PooledUNet(1, 4, 4, "instance")(torch.randn(2, 43, 4)).shape
    torch.Size([2, 43, 4])
    """

    def __init__(
        self,
        dim: int,
        width: int,
        levels: int,
        normalization: Norm,
        beside: Sequence[nn.Module] = (),
        multiple: int = 0,
    ) -> None:
        super().__init__(dim, width, levels, normalization, multiple)

        def two(c_in: int, c: int, c_out: int) -> nn.Module:
            first = self.convolution(c_in, c, nn.ReLU())
            return nn.Sequential(first, self.convolution(c, c_out, nn.ReLU()))

        channels = [width * 2**level for level in range(levels)]
        self.first = two(width, width, width)
        self.pool = POOLS[dim](2)
        self.down = nn.ModuleList(
            two(c, c_next, c_next)
            for c, c_next in zip(channels, [*channels[1:], channels[-1]], strict=True)
        )
        self.up = nn.ModuleList(
            two(2 * c, c, c_next)
            for c, c_next in zip(channels[::-1], [*channels[-2::-1], width], strict=True)
        )
        self.beside = nn.ModuleList(beside or [nn.Identity()] * (levels + 1))
        self.out = CONVOLUTIONS[dim](width, width, 1)

    def coarsened(self, u: Tensor) -> Tensor:
        skips = [self.first(u)]
        for down in self.down:
            skips.append(down(self.pool(skips[-1])))
        skips = [beside(u) for beside, u in zip(self.beside, skips, strict=True)]
        v = skips.pop()
        for up in self.up:
            u = skips.pop()
            finer = nn.functional.interpolate(
                v, u.shape[2:], mode=LINEAR[self.dim], align_corners=True
            )
            v = up(torch.cat([u, finer], 1))
        return self.out(v)


def alternating(
    activation: type[nn.Module], layers: Iterable[nn.Module], last: bool = False
) -> nn.Sequential:
    """Layers with activations between them, and after the last one if `last`."""
    modules = [module for layer in layers for module in (layer, activation())]
    return nn.Sequential(*modules if last else modules[:-1])


def mlp(*features: int, activation: type[nn.Module] = nn.GELU, bias: bool = True) -> nn.Sequential:
    """Linear maps between consecutive numbers of features, with activations between the maps."""
    return alternating(activation, (nn.Linear(*pair, bias=bias) for pair in pairwise(features)))


class ResidualMLP(nn.Module):
    """MLP v = σ(W₀ u + b₀), v <- v + σ(W v + b) for each hidden layer, then W₁ v + b₁.

    Args:
        first: Whether u is added to the first v.
        last: Whether the last v is added to the result.
    """

    def __init__(
        self,
        in_features: int,
        width: int,
        out_features: int,
        depth: int,
        activation: nn.Module,
        first: bool = False,
        last: bool = False,
    ) -> None:
        super().__init__()
        self.activation, self.from_first, self.to_last = activation, first, last
        self.first = nn.Linear(in_features, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, out_features)

    def forward(self, u: Float[Tensor, "... _"]) -> Float[Tensor, "... _"]:
        v = self.activation(self.first(u))
        v = u + v if self.from_first else v
        for layer in self.hidden:
            v = v + self.activation(layer(v))
        return v + self.last(v) if self.to_last else self.last(v)


class GEGLU(nn.Module):
    """Gated MLP W₁ (GELU(u₁) u₂) + b₁ with [u₁ u₂] = W₀ u + b₀."""

    def __init__(self, in_features: int, hidden: int, out_features: int) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, 2 * hidden)
        self.last = nn.Linear(hidden, out_features)

    def forward(self, u: Float[Tensor, "... _"]) -> Float[Tensor, "... _"]:
        gate, value = self.first(u).chunk(2, dim=-1)
        return self.last(nn.functional.gelu(gate) * value)


def start_truncated(model: nn.Module, std: float | None = 0.02) -> None:
    """Initialise the linear maps of a model: truncated normal weights, biases 0.

    Args:
        std: Standard deviation before truncation; None means in_features^(-1/2).
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=std or module.in_features**-0.5)
            if module.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
                nn.init.zeros_(module.bias)


class Convolution(nn.Module):
    """Convolution whose kernel has 3 points along each axis of the grid; channels last."""

    def __init__(self, dim: int, width: int, padding: Literal["zeros", "circular"]) -> None:
        super().__init__()
        self.convolution = CONVOLUTIONS[dim](width, width, 3, padding=1, padding_mode=padding)

    def forward(self, u: Function) -> Function:
        return self.convolution(u.movedim(-1, 1)).movedim(1, -1)


class BatchNorm(nn.BatchNorm1d):
    """v = γ (u - E u) / √(Var u + 1e-5) + β, with moments over batch and grid except padding.

    Evaluation uses moving averages of the training moments. The result for a sample then does not
    depend on its batch.

    >>> BatchNorm(3)(torch.randn(2, 8, 8, 3)).shape
    torch.Size([2, 8, 8, 3])
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def forward(self, input: Function, mask: Mask | None = None) -> Function:
        if mask is None or not self.training:
            return super().forward(input.flatten(0, -2)).view_as(input)
        u, real, n = input.to(self.weight.dtype), mask[..., None], mask.sum()
        mean = u.masked_fill(~real, 0).flatten(0, -2).sum(0) / n
        centred = u - mean
        variance = centred.masked_fill(~real, 0).square().flatten(0, -2).sum(0) / n
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * n / (n - 1), self.momentum)
            self.num_batches_tracked.add_(1)
        v = centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias
        return v.to(input.dtype)


class InstanceNorm(nn.Module):
    """Normalise u to mean 0 and variance 1 over the grid, for each channel and sample."""

    def forward(self, u: Function, mask: Mask | None = None) -> Function:
        grid = tuple(range(1, u.ndim - 1))
        if mask is None:
            variance, mean = torch.var_mean(u, dim=grid, correction=0, keepdim=True)
            return (u - mean) * torch.rsqrt(variance + 1e-5)
        padding, n = ~mask[..., None], mask[..., None].sum(grid, keepdim=True)
        centred = u - u.masked_fill(padding, 0).sum(grid, keepdim=True) / n
        variance = centred.masked_fill(padding, 0).square().sum(grid, keepdim=True) / n
        return centred * torch.rsqrt(variance + 1e-5)


def dropped(count: int, p: float) -> Tensor:
    """Draw ascending indices from 0 ... count - 1, each independently with probability p.

    Gaps between consecutive indices have a geometric distribution, floor(log U / log(1 - p)) + 1
    with U uniform in (0, 1]. This needs about p · count random numbers instead of count.
    """
    mean = p * count
    draws = int(mean + 8 * math.sqrt(mean) + 8)
    last, parts = -1, []
    while last < count:  # a second pass is needed in one case of 10¹⁴
        uniform = 1 - torch.rand(draws, dtype=torch.float64)
        gaps = uniform.log_().div_(math.log1p(-p)).to(torch.int64).add_(1)
        parts.append(gaps.cumsum_(0).add_(last))
        last = int(parts[-1][-1])
    indices = torch.cat(parts) if len(parts) > 1 else parts[0]
    return indices[: int(torch.searchsorted(indices, count))]


class _Thinned(torch.autograd.Function):
    """Set random values to zero and divide the others by 1 - p; do the same to the gradient."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, p: float) -> Tensor:
        ctx.p = p
        indices = dropped(u.numel(), p)
        ctx.save_for_backward(indices)
        return _thin(u, indices, p)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (indices,) = ctx.saved_tensors
        return _thin(grads[0], indices, ctx.p), None


def _thin(u: Tensor, indices: Tensor, p: float) -> Tensor:
    v = u.contiguous() * (1 / (1 - p))
    v.view(-1).index_fill_(0, indices, 0.0)
    return v


class Dropout(nn.Module):
    """A dropout like `torch.nn.Dropout`, but several times faster on the CPU for small rates.

    On the CPU, PyTorch draws a random number for each value. This module draws one only for each
    value that is set to zero. The distribution is the same, and both use PyTorch's default
    random generator.

    Args:
        p: Probability that a value is set to zero; other values are divided by 1 - p.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"a dropout rate must lie in [0, 1), got {p}")
        self.p = p

    @property
    def active(self) -> bool:
        """Whether the module sets values to zero: in training mode, if p > 0."""
        return self.training and self.p > 0

    def forward(self, u: Tensor) -> Tensor:
        if not self.active:
            return u
        if self.p > 0.25 or u.device.type != "cpu":
            return nn.functional.dropout(u, self.p)
        return _Thinned.apply(u, self.p)  # pyright: ignore[reportReturnType]
