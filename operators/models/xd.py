r"""XD: convolutions with learned matrices in place of the Fourier transforms.

References: N. Roberts, M. Khodak et al., Rethinking Neural Operations for Diverse Tasks, NeurIPS
2021, definition 3.1 and section 4; released code mkhodak/relax (f6b5a31), examples/pde. T. Dao et
al., Kaleidoscope: An Efficient, Learnable Representation for All Structured Linear Maps, ICLR 2020.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Complex
from torch import Tensor, nn

from operators.base import MESHES, Function, Preset, at_least
from operators.nn.encoder import on_processor, product
from operators.nn.pointwise import BatchNorm, alternating, mlp
from operators.nn.tokens import Coordinates, FieldOperator, Positions, Real

Spectra = Complex[Tensor, "*any n"]


class Butterfly(nn.Module):
    """A product of log₂ n sparse matrices ("levels"), each with n/2 complex 2 x 2 blocks.

    Each block of a level mixes two entries at distance s, where s = n/2, n/4 ... 1 for successive
    levels. The initial product is the discrete Fourier transform, and its output has frequencies in
    bit-reversed order. The inverse has the levels in reverse order, and its input has frequencies
    in bit-reversed order.

    Args:
        n: Number of rows and of columns of the product, a power of two.
        inverse: Whether the initial product is the inverse transform.
        scale: Factor of each level; 2^-½ makes the product unitary.
    """

    def __init__(self, n: int, inverse: bool, scale: float) -> None:
        super().__init__()
        self.n = n
        self.steps = [n >> level for level in range(1, n.bit_length())]
        levels = []
        for s in self.steps:
            twiddle = torch.polar(torch.ones(s).double(), -math.pi * torch.arange(s).double() / s)
            ones = torch.ones_like(twiddle)
            block = torch.stack([ones, ones, twiddle, -twiddle], dim=-1).view(s, 2, 2)
            block = block.mH if inverse else block
            levels.append((scale * block).repeat(n // (2 * s), 1, 1))
        if inverse:
            self.steps, levels = self.steps[::-1], levels[::-1]
        blocks = torch.view_as_real(torch.stack(levels).resolve_conj())
        # (level, pair, row, column, re/im); pairs in the order of consecutive runs of 2 s entries
        self.blocks = nn.Parameter(blocks.to(torch.get_default_dtype()))

    def forward(self, u: Spectra) -> Spectra:
        """Multiply each vector u; if there are more than n vectors, the matrix is formed first."""
        if u.numel() <= self.n**2:
            return self.through(u)
        matrix = self.through(torch.eye(self.n, dtype=u.dtype, device=u.device))
        if on_processor(u):
            return u @ matrix
        return product(u.reshape(1, -1, self.n), matrix[None]).view(u.shape)

    def through(self, u: Spectra) -> Spectra:
        """Multiply each row u by the levels in turn. The rows of I give the transposed matrix."""
        for s, level in zip(self.steps, torch.view_as_complex(self.blocks), strict=True):
            first, second = u.unflatten(-1, (-1, 2, s)).unbind(-2)  # (*any, n / 2s, s)
            t = level.view(-1, s, 2, 2)
            u = torch.stack(
                [t[..., i, 0] * first + t[..., i, 1] * second for i in (0, 1)], dim=-2
            ).flatten(-3)
        return u


class Transform(nn.Module):
    """Applies a butterfly matrix along each axis of the grid, the last `dim` axes of an array.

    Args:
        dim: Number of axes.
        n, inverse, scale: Size, direction and factor of each matrix, see `Butterfly`.
    """

    def __init__(self, dim: int, n: int, inverse: bool, scale: float) -> None:
        super().__init__()
        self.axes = nn.ModuleList(Butterfly(n, inverse, scale) for _ in range(dim))

    def forward(self, u: Complex[Tensor, "*any"]) -> Complex[Tensor, "*any"]:
        for axis, butterfly in enumerate(reversed(self.axes), start=1):
            u = butterfly(u.transpose(-1, -axis)).transpose(-1, -axis)
        return u


class XDConv(nn.Module):
    """v_o = Re K Σ_i (L w_oi) · (M u_i) with learned matrices K, L, M and kernels w.

    Initially K is the inverse Fourier transform, and L and M are the Fourier transform. The
    operation is then the circular convolution on `size` points along each axis with centred kernels
    w of `kernel` points. Functions on smaller grids are padded with zeros.

    Args:
        dim: Number of axes.
        width: Channels of u and v.
        size, kernel: Number of points along each axis of the matrices and of the kernels.
    """

    def __init__(self, dim: int, width: int, size: int, kernel: int) -> None:
        super().__init__()
        self.size, self.kernel = size, kernel
        bound = (width * kernel**dim) ** -0.5
        self.weight = nn.Parameter(
            torch.empty(width, width, *[kernel] * dim).uniform_(-bound, bound)
        )
        self.k = Transform(dim, size, True, 0.5**0.5)
        self.l = Transform(dim, size, False, 1.0)
        self.m = Transform(dim, size, False, 0.5**0.5)

    def forward(self, u: Function) -> Function:
        grid, axes = u.shape[1:-1], tuple(range(2, u.ndim))
        if max(grid) > self.size:
            raise ValueError(
                f"size={self.size} allows at most {self.size} points along each axis, "
                f"got {max(grid)}"
            )
        margins = [m for n in reversed(grid) for m in (0, self.size - n)]
        u = u if u.dtype == torch.float64 else u.float()
        u_hat = self.m(_complex(nn.functional.pad(u.movedim(-1, 1), margins)))
        # flipped, because convolutional layers correlate; the middle of the kernel comes first
        w = nn.functional.pad(self.weight, [0, self.size - self.kernel] * len(grid))
        w = w.flip(axes).roll([(self.kernel + 1) // 2] * len(grid), axes)
        u_rows, w_rows = u_hat.flatten(2), self.l(_complex(w)).flatten(2)
        if on_processor(u):
            v_hat = torch.einsum("bif,oif->bof", u_rows, w_rows)
        else:  # in at least float32
            v_hat = product(u_rows.permute(2, 0, 1), w_rows.permute(2, 1, 0)).permute(1, 2, 0)
        v = self.k(v_hat.unflatten(2, u_hat.shape[2:])).real
        for axis, n in zip(axes, grid, strict=True):
            v = v.narrow(axis, 0, n)
        return v.movedim(1, -1)


def _complex(u: Tensor) -> Tensor:
    return torch.complex(u, torch.zeros_like(u))


class XDLayer(nn.Module):
    """v = N(K u + W u + b) with the operation K of `XDConv` and a batch norm N."""

    def __init__(self, dim: int, width: int, size: int, kernel: int) -> None:
        super().__init__()
        self.operation = XDConv(dim, width, size, kernel)
        self.pointwise = nn.Linear(width, width)
        self.norm = BatchNorm(width)

    def forward(self, u: Function) -> Function:
        return self.norm(self.operation(u) + self.pointwise(u))


class XD(FieldOperator):
    """The network of FNO with XD operations in place of spectral convolutions.

    The matrices K, L, M have a fixed size, so grids must have at most `size` points along each
    axis. The initial convolutions are periodic only on grids of exactly `size` points. Kernels
    cover a fixed number of points, not a fixed length, so values do not converge as grids are
    refined. On a mesh the operator acts along the indices.

    The operator is that of the released example for Darcy, with matrices of depth 1. That example
    uses a CUDA package for butterfly matrices; here they are written in PyTorch. Here one optimiser
    trains all weights, whereas the example trains K, L and M with SGD at learning rate 0.1. The 1-D
    version is the analogue of the released one in 2-D.

    Args:
        kernel: Number of points of the kernels along each axis, odd. The default is the number of
            modes of FNO plus 1.
        size: Number of points along each axis of the matrices, a power of two.
    """

    domains = MESHES
    masks = False
    presets: ClassVar[Mapping[str, Preset]] = {
        "burgers": Preset(
            {"width": 64, "kernel": 17, "size": 2048}, 1_385_665, "ours: 1-D form for 2048 points"
        ),
        "darcy": Preset({}, 787_201, "released code, darcyflow.sh, 85 x 85 points", dim=2),
        "navier-stokes": Preset({"size": 64}, 738_337, "ours: the settings of Darcy", (10, 1), 2),
        "airfoil": Preset({"size": 256}, 897_825, "ours: the settings of Darcy", (2, 1), 2),
        "pipe": Preset({"size": 256}, 897_825, "ours: the settings of Darcy", (2, 1), 2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 32,
        depth: int = 4,
        kernel: int = 13,
        size: int = 128,
        head_width: int = 128,
        coordinates: Coordinates = "raw",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, last=True))
        at_least(1, width=width, depth=depth, kernel=kernel, head_width=head_width)
        at_least(2, size=size)
        if size & (size - 1) or size < kernel or kernel % 2 == 0:
            raise ValueError(
                "size must be a power of two and kernel odd and at most size, "
                f"got size={size}, kernel={kernel}"
            )
        self.embed = nn.Linear(self.features, width)
        layers = (XDLayer(dim, width, size, kernel) for _ in range(depth))
        self.layers = alternating(nn.ReLU, layers)
        self.decoder = mlp(width, head_width, out_channels, activation=nn.ReLU)

    def encoded(self, u: Function, mask: Real | None) -> Function:
        return self.layers(u)
