"""Spectral convolutions: learned linear maps of a limited number of Fourier modes."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from operators.base import Function
from operators.nn.encoder import exactly, on_processor, parts_of, product, widened
from operators.nn.pointwise import BatchNorm, Dropout, InstanceNorm
from operators.nn.resample import for_each_axis
from operators.nn.tokens import Real, TokenPoints, Tokens, cached


def _angles(k: Tensor, n: int) -> Tensor:
    """Angles 2πkj/n for j = 0 ... n - 1, shape (len(k), n)."""
    # k j mod n in integers keeps angles precise on large grids
    return (2 * math.pi / n) * ((k[:, None] * torch.arange(n)) % n).double()


def frequencies(n: int, modes: int) -> Int[Tensor, " rows"]:
    """Frequencies 0 ... modes - 1 and -modes ... -1.

    If two frequencies coincide on n points, only the negative one is listed.

    >>> frequencies(8, 2).tolist(), frequencies(4, 3).tolist()
    ([0, 1, -2, -1], [0, -3, -2, -1])
    """
    return torch.cat([torch.arange(min(n, 2 * modes) - modes), torch.arange(-modes, 0)])


@cached  # recorded graphs keep reading the cached matrices
def _matrix(kind: str, n: int, modes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A factor of the orthonormal DFT, restricted to low frequencies, as a real matrix."""
    if kind == "complex":
        angle = _angles(frequencies(n, modes), n)
        rotation = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], -1)
        matrix = rotation.unflatten(-1, (2, 2)).transpose(1, 2).flatten(2).flatten(0, 1)
    elif kind == "first":
        angle = _angles(torch.arange(modes + 1), n)
        matrix = torch.stack([angle.cos(), angle.sin()], 1).flatten(0, 1)
    elif kind in ("second", "back"):
        angle = _angles(torch.arange(modes), n)
        c, s = angle.cos(), angle.sin()
        matrix = torch.cat([torch.cat(row, 1) for row in ((c, -s), (-s, -c), (c, s), (-s, c))])
        if kind == "back":
            counted = torch.full((modes, 1), 2.0, dtype=torch.float64)
            counted[0] = 1.0
            matrix = (matrix * counted.repeat(4, 1)).T
    else:
        k = torch.arange(modes)
        angle = _angles(k, n)
        matrix = torch.cat([angle.cos(), -angle.sin()])
        if kind == "values":
            # modes of a real signal count twice, except 0 and n/2 (even n), whose sine vanishes
            single = (k == 0) | (2 * k == n)
            weight = torch.where(single, 1.0, 2.0).repeat(2)
            weight[modes:][single] = 0.0
            matrix = (matrix * weight[:, None]).T
    return (matrix / math.sqrt(n)).contiguous().to(device, dtype)


Columns = Float[Tensor, "batch _ c"]


def transformed(u: Columns, kind: str, n: int, modes: int, transposed: bool = False) -> Columns:
    """Multiply each sample of u by the matrix `_matrix(kind, n, modes)`, or by its transpose."""
    if on_processor(u):
        return _product(u, kind, n, modes, transposed)
    return _exact_product(u, kind, n, modes, transposed)


def _product(u: Tensor, kind: str, n: int, modes: int, transposed: bool) -> Tensor:
    matrix = _matrix(kind, n, modes, u.dtype, u.device)
    matrix = matrix.T if transposed else matrix
    batch, points = u.shape[:2]
    parts = parts_of(points, u)
    if parts == 1:
        return torch.bmm(matrix.expand(batch, -1, -1), u)
    matrix = matrix.unflatten(1, (parts, -1)).transpose(0, 1).repeat(batch, 1, 1)
    products = torch.bmm(matrix, u.unflatten(1, (parts, -1)).flatten(0, 1))
    return products.unflatten(0, (batch, parts)).sum(1)


# a custom operation, which compilers leave unchanged: its matrices are cached, not traced
@torch.library.custom_op(
    "operators::transformed",
    mutates_args=(),
    schema="(Tensor u, str kind, int n, int modes, bool transposed) -> Tensor",
)
def _exact_product(u: Tensor, kind: str, n: int, modes: int, transposed: bool) -> Tensor:
    with exactly(u):
        return _product(widened(u), kind, n, modes, transposed)


@_exact_product.register_fake
def _(u: Tensor, kind: str, n: int, modes: int, transposed: bool) -> Tensor:
    shape = {
        "spectrum": (2 * modes, n), "values": (n, 2 * modes), "first": (2 * (modes + 1), n),
        "second": (4 * modes, 2 * n), "back": (2 * n, 4 * modes),
        "complex": (2 * min(n, 2 * modes), 2 * n),
    }  # fmt: skip
    return widened(u).new_empty(len(u), shape[kind][transposed], u.shape[2])


def _save_arguments(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    u, *ctx.arguments, ctx.transposed = inputs
    ctx.dtype = u.dtype


def _transposed_product(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    back = _exact_product(gradient, *ctx.arguments, not ctx.transposed)
    return back.to(ctx.dtype), None, None, None, None


_exact_product.register_autograd(_transposed_product, setup_context=_save_arguments)


def complex_products(
    u: Float[Tensor, "modes 2 batch c_in"], weight: Float[Tensor, "modes c_in c_out 2"]
) -> Float[Tensor, "2 modes batch c_out"]:
    """Complex products u W for each mode, computed from real products, which compilers can fuse."""
    # real and imaginary parts of u times those of the weights, adjacent in memory
    parts = torch.bmm(u.flatten(1, 2), weight.flatten(2))
    of_re, of_im = parts.unflatten(1, (2, -1)).unflatten(-1, (-1, 2)).unbind(1)
    (re_re, re_im), (im_re, im_im) = of_re.unbind(-1), of_im.unbind(-1)
    return torch.stack([re_re - im_im, re_im + im_re])


class SpectralConv1d(nn.Module):
    """v = irfft(W · rfft(u)[:modes]) on a periodic grid: a convolution with a learned kernel.

    The transforms are orthonormal. The kernel is the same on all grids, because the factors √n of
    the two transforms cancel. Both transforms are products with a matrix of shape (n, 2 modes),
    which is cheaper than an FFT if modes << n.

    Args:
        modes: Number of modes; the frequencies are 0 ... modes - 1, and the grid needs n >= 2 modes
            points.
        std: Standard deviation of the initial real and imaginary parts of W. The default, close to
            zero, is that of the published code: Xavier-normal with gain 1/(c_in c_out) for a tensor
            of shape (c_in, c_out, modes, 2).

    References: Z. Li et al., Fourier Neural Operator, ICLR 2021.
    """

    def __init__(
        self, in_channels: int, out_channels: int, modes: int, std: float | None = None
    ) -> None:
        super().__init__()
        self.modes = modes
        if std is None:
            fan = 2 * modes * (in_channels + out_channels)
            std = math.sqrt(2 / fan) / (in_channels * out_channels)
        # complex weights (modes, in, out), stored as real pairs
        self.weight = nn.Parameter(std * torch.randn(modes, in_channels, out_channels, 2))

    def forward(self, u: Float[Tensor, "batch n c_in"]) -> Float[Tensor, "batch n c_out"]:
        n = u.shape[1]
        if n < 2 * self.modes:
            raise ValueError(
                f"{self.modes} modes need a grid of at least {2 * self.modes} points, got {n}"
            )
        return line_of(complex_products(line_modes(u, self.modes), self.weight), n)


def line_modes(u: Float[Tensor, "batch n c"], modes: int) -> Float[Tensor, "{modes} 2 batch c"]:
    """The first `modes` modes of functions of one variable, at most n/2 + 1 modes."""
    u_hat = transformed(u, "spectrum", u.shape[1], modes)
    return u_hat.unflatten(1, (2, modes)).permute(2, 1, 0, 3)


def line_of(v_hat: Float[Tensor, "2 modes batch c"], n: int) -> Float[Tensor, "batch {n} c"]:
    """Values on n points of functions of one variable, given their modes."""
    modes = v_hat.shape[1]
    return transformed(v_hat.permute(2, 0, 1, 3).flatten(1, 2), "values", n, modes)


class SpectralConv2d(nn.Module):
    """v = irfft2(W · rfft2(u)) with the modes -modes <= k₁ < modes and 0 <= k₂ < modes.

    The frequencies k₁ are those of the published code, which has one block of weights for k₁ >= 0
    and one for k₁ < 0. As in `SpectralConv1d`, the transforms are orthonormal and are computed as
    products with small matrices. Like irfft2, the layer ignores the part of W û at k₂ = 0 that
    would make the field complex.

    Args:
        modes: Number m of modes along each axis, or a list of m₁ and m₂; the grid needs at least 2m
            points along an axis with m modes.
        std: Standard deviation of the initial real and imaginary parts of W. The default, close to
            zero, is that of the published code: 1/(c_in c_out m) with m² = m₁m₂.
    """

    def __init__(
        self, in_channels: int, out_channels: int, modes: int | list[int], std: float | None = None
    ) -> None:
        super().__init__()
        self.modes = modes
        self.mode_counts = for_each_axis("modes", modes, 2)
        if std is None:
            std = 1 / (in_channels * out_channels * math.sqrt(math.prod(self.mode_counts)))
        # weight[0, k₁, k₂] belongs to (k₁, k₂), weight[1, k₁, k₂] to (-1 - k₁, k₂)
        shape = (2, *self.mode_counts, in_channels, out_channels, 2)
        self.weight = nn.Parameter(std * torch.randn(shape))

    def forward(self, u: Float[Tensor, "batch n1 n2 c_in"]) -> Float[Tensor, "batch n1 n2 c_out"]:
        _, n1, n2, _ = u.shape
        m1, m2 = self.mode_counts
        if n1 < 2 * m1 or n2 < 2 * m2:
            m, least = (m1, 2 * m1) if m1 == m2 else (f"{m1} x {m2}", f"{2 * m1} x {2 * m2}")
            raise ValueError(f"{m} modes need a grid of at least {least} points, got {n1} x {n2}")
        v_hat = complex_products(_modes(u, m1, m2).flatten(0, 2), self.weight.flatten(0, 2))
        return _field(v_hat.unflatten(1, (2, m1, m2)), n1, n2)


def _modes(
    u: Float[Tensor, "batch n1 n2 c"], m1: int, m2: int
) -> Float[Tensor, "2 m1 m2 2 batch c"]:
    """Modes of fields on a square, with axes (±, k₁, k₂, re/im, batch, c)."""
    batch, n1, n2, _ = u.shape
    waves = transformed(u.flatten(2), "first", n1, m1).view(batch * (m1 + 1), 2 * n2, -1)
    u_hat = transformed(waves, "second", n2, m2)
    u_hat = u_hat.view(batch, m1 + 1, 2, 2, m2, -1)  # (batch, |k₁|, ±, re/im, k₂, c)
    u_hat = torch.stack([u_hat[:, :-1, 0], u_hat[:, 1:, 1]])  # (±, batch, k₁, re/im, k₂, c)
    return u_hat.permute(0, 2, 4, 3, 1, 5)


def _field(
    v_hat: Float[Tensor, "2 2 m1 m2 batch c"], n1: int, n2: int
) -> Float[Tensor, "batch n1 n2 c"]:
    """Real fields on a square, given their modes with axes (re/im, ±, k₁, k₂, batch, c)."""
    m1, m2, batch = v_hat.shape[2:5]
    plus, minus = v_hat.permute(1, 4, 2, 0, 3, 5)  # (batch, k₁, re/im, k₂, c)
    empty = torch.zeros_like(plus[:, :1])
    v_hat = torch.stack(
        [torch.cat([plus, empty], 1), torch.cat([empty, minus], 1)], dim=2
    )  # (batch, |k₁|, ±, re/im, k₂, c)
    waves = transformed(v_hat.view(batch * (m1 + 1), 4 * m2, -1), "back", n2, m2)
    v = transformed(waves.view(batch, 2 * (m1 + 1), -1), "first", n1, m1, transposed=True)
    return v.view(batch, n1, n2, -1)


def spectrum(u: Float[Tensor, "batch *grid c"], m: int) -> Float[Tensor, "modes 2 batch c"]:
    """Orthonormal Fourier modes of fields on an interval or square, ordered like the weights."""
    return line_modes(u, m) if u.ndim == 3 else _modes(u, m, m).flatten(0, 2)


def values(
    v_hat: Float[Tensor, "2 modes batch c"], grid: Sequence[int], m: int
) -> Float[Tensor, "batch *grid c"]:
    """Real fields on a grid of one or two axes, given their modes as in `spectrum`."""
    if len(grid) == 1:
        return line_of(v_hat, grid[0])
    return _field(v_hat.unflatten(1, (2, m, m)), *grid)


def convolved(
    u: Float[Tensor, "batch n1 n2 c_in"], weight: Float[Tensor, "2 m m c_in c_out 2"]
) -> Float[Tensor, "batch n1 n2 c_out"]:
    """irfft2(W · rfft2(u)) on a grid of any size, without the modes that the grid lacks.

    Let l = min(m, n1/2 + 1). The frequencies along the first axis are 0 ... l - 1, with the weights
    `weight[0, :l]`, and -l ... -1, with the weights `weight[1, :l]` in this order. If two of these
    frequencies are equal on n1 points, the negative one is used. The frequencies along the second
    axis are 0 ... min(m, n2/2 + 1) - 1.
    """
    batch, n1, n2, _ = u.shape
    first, second = (min(weight.shape[1], n // 2 + 1) for n in (n1, n2))
    rows = min(n1, 2 * first)
    w = torch.cat([weight[0, : rows - first, :second], weight[1, :first, :second]])
    waves = transformed(u.flatten(0, 1), "spectrum", n2, second)
    u_hat = transformed(waves.reshape(batch, 2 * n1, -1), "complex", n1, first)
    u_hat = u_hat.view(batch, rows, 2, second, -1).permute(1, 3, 2, 0, 4)
    v_hat = complex_products(u_hat.flatten(0, 1), w.flatten(0, 1))  # (2, rows second, batch, c)
    v_hat = v_hat.unflatten(1, (rows, second)).permute(3, 1, 0, 2, 4).reshape(batch, 2 * rows, -1)
    waves = transformed(v_hat, "complex", n1, first, transposed=True)
    v = transformed(waves.reshape(batch * n1, 2 * second, -1), "values", n2, second)
    return v.view(batch, n1, n2, -1)


class SpectralConv3d(nn.Module):
    """v = irfftn(W · rfftn(u)) with the modes -modes <= k₁, k₂ < modes and 0 <= k₃ < modes.

    The frequencies are those of the published code, with four blocks of weights for the signs of k₁
    and k₂. The first axis is transformed to sums with cos θ₁ and sin θ₁; the other two are then
    transformed as in `SpectralConv2d`.

    Args:
        modes: Number m of modes along each axis; grids need n >= 2m points along all axes.
        std: Standard deviation of the initial real and imaginary parts of W. By default it is
            1/(c_in c_out m^(3/2)); v is then as large as in two dimensions.
    """

    def __init__(
        self, in_channels: int, out_channels: int, modes: int, std: float | None = None
    ) -> None:
        super().__init__()
        self.modes = modes
        if std is None:
            std = 1 / (in_channels * out_channels * math.sqrt(modes) * modes)
        # weight[±, ±, k₁, k₂, k₃]; minus stands for -1 - k along the first two axes
        shape = (2, 2, modes, modes, modes, in_channels, out_channels, 2)
        self.weight = nn.Parameter(std * torch.randn(shape))

    def forward(
        self, u: Float[Tensor, "batch n1 n2 n3 c_in"]
    ) -> Float[Tensor, "batch n1 n2 n3 c_out"]:
        batch, n1, n2, n3, _ = u.shape
        m = self.modes
        if min(n1, n2, n3) < 2 * m:
            raise ValueError(
                f"{m} modes need a grid of at least {2 * m} points, got {n1} x {n2} x {n3}"
            )
        waves = transformed(u.flatten(2), "first", n1, m).view(batch * 2 * (m + 1), n2, n3, -1)
        u_hat = _modes(waves, m, m).unflatten(4, (batch, m + 1, 2))
        cos, sin = u_hat.unbind(6)  # (±₂, k₂, k₃, re/im, batch, |k₁|, c)
        sin = torch.stack([sin[:, :, :, 1], -sin[:, :, :, 0]], dim=3)  # times -i
        u_hat = torch.stack([(cos + sin)[..., :-1, :], (cos - sin)[..., 1:, :]])
        u_hat = u_hat.permute(0, 1, 6, 2, 3, 4, 5, 7)  # (±₁, ±₂, k₁, k₂, k₃, re/im, batch, c)
        v_hat = complex_products(u_hat.flatten(0, 4), self.weight.flatten(0, 4))
        plus, minus = v_hat.unflatten(1, (2, 2, m, m, m)).unbind(1)
        empty = torch.zeros_like(plus[:, :, :1])
        plus, minus = torch.cat([plus, empty], 2), torch.cat([empty, minus], 2)
        re, im = plus - minus
        v_hat = torch.stack([plus + minus, torch.stack([-im, re])])  # of cos, and i times of sin
        v_hat = v_hat.permute(
            1, 2, 4, 5, 6, 3, 0, 7
        )  # (re/im, ±₂, k₂, k₃, batch, |k₁|, cos/sin, c)
        waves = _field(v_hat.flatten(4, 6), n2, n3).view(batch, 2 * (m + 1), -1)
        v = transformed(waves, "first", n1, m, transposed=True)
        return v.view(batch, n1, n2, n3, -1)


class SpectralLayer(nn.Module):
    """v = SiLU(W u + b + spectral convolution of u)."""

    def __init__(
        self,
        kind: type[SpectralConv1d] | type[SpectralConv2d] | type[SpectralConv3d],
        in_channels: int,
        out_channels: int,
        modes: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.pointwise = nn.Linear(in_channels, out_channels)
        self.convolution = kind(in_channels, out_channels, modes)
        self.drop = Dropout(dropout)

    def forward(self, u: Float[Tensor, "batch *grid c_in"]) -> Float[Tensor, "batch *grid c_out"]:
        return nn.functional.silu(self.pointwise(u) + self.convolution(self.drop(u)))


# Layers of Fourier neural operators: K u + W u + b, where K is convolution with a learned kernel.


SPECTRAL_CONVOLUTIONS: dict[
    int, type[SpectralConv1d] | type[SpectralConv2d] | type[SpectralConv3d]
] = {1: SpectralConv1d, 2: SpectralConv2d, 3: SpectralConv3d}
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


class FourierLayer(nn.Module):
    """v = N(M I K I u + W u + b) with a spectral convolution K and norms N and I; no activation.

    Args:
        dim: Number of axes of the grid.
        width: Number of channels of u and v.
        modes: Number of modes of K, either for all axes or, in two dimensions, for each axis.
        normalization: "batch": N is a batch normalisation. "instance": I is an instance
            normalisation. Otherwise N and I are identities.
        channel_mlp: The pointwise map M.
        initialization, dropout: Arguments of `operators.models.fno.FNO`.
    """

    def __init__(
        self,
        dim: int,
        width: int,
        modes: int | list[int],
        normalization: Literal["none", "batch", "instance"],
        channel_mlp: nn.Module,
        initialization: Literal["uniform", "near-zero"],
        dropout: float,
    ) -> None:
        super().__init__()
        if isinstance(modes, list):
            self.convolution = SpectralConv2d(width, width, modes)
        else:
            self.convolution = SPECTRAL_CONVOLUTIONS[dim](width, width, modes)
        if initialization == "uniform":
            nn.init.uniform_(self.convolution.weight, 0, 1 / width**2)
        self.pointwise = nn.Linear(width, width)
        self.channel_mlp = channel_mlp
        self.batch_norm = BatchNorm(width) if normalization == "batch" else nn.Identity()
        self.instance_norm = InstanceNorm() if normalization == "instance" else nn.Identity()
        self.drop = Dropout(dropout)

    def forward(self, u: Function) -> Function:
        k = self.convolution(self.drop(self.instance_norm(u)))
        k = self.channel_mlp(self.instance_norm(k))
        return self.batch_norm(k + self.pointwise(u))


# Fourier transforms of functions on scattered points, and maps from these points to a torus.


Waves = Float[Tensor, "n two_modes"] | Float[Tensor, "batch n two_modes"]
Transform = Literal["mean", "sum"]


def signed_frequencies(dim: int, m: int) -> Float[Tensor, "dim modes"]:
    """Frequencies k in the order of the weights of `SpectralConv1d` or `SpectralConv2d`.

    >>> signed_frequencies(2, 2).long().tolist()
    [[0, 0, 1, 1, -1, -1, -2, -2], [0, 1, 0, 1, 0, 1, 0, 1]]
    """
    k = torch.arange(m)
    if dim == 1:
        return k[None].float()
    first = torch.cat([k, -1 - k])
    return torch.stack([first.repeat_interleave(m), k.repeat(2 * m)]).float()


def waves(xi: TokenPoints, k: Float[Tensor, "dim modes"]) -> Waves:
    """The waves cos 2πk·ξ and -sin 2πk·ξ of each frequency k at each point ξ.

    They are the factors of Re v̂_k and Im v̂_k in v = Σ_k Re(v̂_k exp(2πik·ξ)). Phases are not
    computed by a matrix product, because they would be wrong in reduced precision.
    """
    turns = xi[..., :1] * k[0]
    for axis in range(1, len(k)):
        turns = turns + xi[..., axis, None] * k[axis]
    phase = 2 * math.pi * turns
    return torch.cat([phase.cos(), -phase.sin()], dim=-1)


class NonuniformConv(nn.Module):
    """The convolution of `SpectralConv1d` or `SpectralConv2d` from or to scattered points ξ_j.

    With "mean", the paper's choice, the coefficients of u on n points and the result v are

        û_k = 1/n Σ_j u_j exp(-2πik·ξ_j),  and  v(ξ) = Σ_k v̂_k exp(2πik·ξ),

    where the terms of k and -k are combined, and v is real. On a regular grid with at least 2m
    points along each axis, where m is the number of modes, û and v equal the results of the FFT.
    With "sum", as in the released code, û is divided by the number of points of the latent grid
    instead of n, and v is multiplied by this number. Then û has no limit as n grows. The points
    have equal weights, and the result depends on their density.
    """

    k: Tensor
    counted: Tensor

    def __init__(
        self, dim: int, in_channels: int, out_channels: int, modes: int, transform: Transform
    ) -> None:
        super().__init__()
        self.modes, self.transform = modes, transform
        weight = SPECTRAL_CONVOLUTIONS[dim](in_channels, out_channels, modes).weight
        self.weight = nn.Parameter(
            nn.init.uniform_(weight.detach(), 0, 1 / (in_channels * out_channels))
        )
        k = signed_frequencies(dim, modes)
        self.register_buffer("k", k, persistent=False)
        # a coefficient of k also stands for -k, except on the axis where both are stored
        counted = torch.where(k[-1] == 0, 1.0, 2.0)
        self.register_buffer("counted", counted[:, None, None], persistent=False)

    def waves(self, xi: TokenPoints) -> Waves:
        """Values of the waves at the points ξ, for `from_points` and `to_points`."""
        return waves(xi, self.k)

    def from_points(
        self, u: Tokens, at: Waves, mask: Real | None, grid: Sequence[int]
    ) -> Float[Tensor, "batch *grid c"]:
        """Convolution from values at scattered points to values on the latent grid j/s.

        Args:
            u: Values at the points.
            at: Result of `waves` for the points.
            mask: False at padding; None without padding.
            grid: Sizes s of the latent grid.
        """
        total = math.prod(grid)
        u = u if mask is None else u.masked_fill(~mask[..., None], 0.0)
        u_hat = product(at.mT, u).unflatten(1, (2, -1)).permute(2, 1, 0, 3)
        if self.transform == "sum":
            u_hat = u_hat / total
        elif mask is None:
            u_hat = u_hat / u.shape[1]
        else:
            u_hat = u_hat / mask.sum(1)[:, None]
        return values(self._weighted(u_hat), grid, self.modes) * math.sqrt(total)

    def to_points(self, u: Float[Tensor, "batch *grid c"], at: Waves) -> Tokens:
        """Convolution from values on the latent grid to scattered points; `at` is from `waves`."""
        total = math.prod(u.shape[1:-1])
        scale = math.sqrt(total) if self.transform == "sum" else 1 / math.sqrt(total)
        v_hat = self.counted * self._weighted(spectrum(u, self.modes) * scale)
        return product(at, v_hat.permute(2, 0, 1, 3).flatten(1, 2))

    def _weighted(self, u_hat: Float[Tensor, "modes 2 batch c"]) -> Tensor:
        weight = self.weight.flatten(0, -4)
        return complex_products(u_hat.to(torch.promote_types(u_hat.dtype, weight.dtype)), weight)


class Deformation(nn.Module):
    """ξ(x) = x + x ⊙ MLP(f(x)), a map from [0, 1]^d to the torus of period 1.

    Let z be a linear map of x, of the distance of x to the centre and, in two dimensions, of the
    angle of x about the centre. The features f are z and the sines and cosines of 2^j π z for j <
    width/4. As in the released code there is no activation after the first map of the MLP, the
    angle jumps at ±π, and the origin is a fixed point.
    """

    powers: Tensor

    def __init__(
        self,
        dim: int,
        width: int,
        depth: int = 2,
        activation: type[nn.Module] = nn.GELU,
        center: float = 0.5,
    ) -> None:
        super().__init__()
        self.center = center
        self.register_buffer("powers", 2.0 ** torch.arange(width // 4), persistent=False)
        self.embed = nn.Linear(2 * dim, width)
        hidden = 4 * width
        layers: list[nn.Module] = [nn.Linear(width + 4 * dim * (width // 4), hidden)]
        for _ in range(depth):
            layers += [nn.Linear(hidden, hidden), activation()]
        self.mlp = nn.Sequential(*layers, nn.Linear(hidden, dim))

    def forward(self, x: TokenPoints) -> TokenPoints:
        from_center = x - self.center
        features = [x, torch.linalg.vector_norm(from_center, dim=-1, keepdim=True)]
        if x.shape[-1] == 2:
            features.insert(1, torch.atan2(from_center[..., 1:], from_center[..., :1]))
        f = torch.cat(features, dim=-1)  # (x, angle, distance)
        phase = (math.pi * f[..., None] * self.powers).flatten(-2)
        return x + x * self.mlp(torch.cat([self.embed(f), phase.sin(), phase.cos()], dim=-1))
