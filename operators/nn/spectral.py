"""Convolution in Fourier space, cut off at a number of modes."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn


@lru_cache(maxsize=32)
def _dft(n: int, modes: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Real matrices of the orthonormal DFT cut off at `modes`, and of its inverse.

    forward (2 modes, n): rows cos and -sin, so that forward @ f = (Re, Im) of rfft(f)[:modes].
    inverse (n, 2 modes): irfft of a spectrum that is zero beyond `modes`.
    """
    k = torch.arange(modes, dtype=torch.float64)
    j = torch.arange(n, dtype=torch.int64)
    # k j mod n in integers: the angle keeps full precision on large grids
    angle = (2 * math.pi / n) * ((k[:, None].long() * j) % n).double()
    forward = torch.cat([angle.cos(), -angle.sin()]) / math.sqrt(n)
    # a real signal has each mode twice, except 0 and (for even n) n/2, whose sine part is void
    once = (k == 0) | (2 * k == n)
    weight = torch.where(once, 1.0, 2.0).repeat(2)
    weight[modes:][once] = 0.0
    inverse = (forward * weight[:, None]).T.contiguous()
    return forward.to(device, dtype), inverse.to(device, dtype)


class SpectralConv1d(nn.Module):
    """v = irfft(W · rfft(u)[:modes]) on a periodic grid: a convolution with a learned kernel.

    The transforms are orthonormal, so that a change of grid leaves the kernel unchanged up to
    the factor √n that cancels between them. Only `modes` modes are kept, so both transforms are
    products with an (n, 2 modes) matrix, cheaper than a full FFT while modes << n.

    Args:
        in_channels, out_channels: Channels c_in and c_out.
        modes: Modes kept, 0 ... modes - 1; needs a grid of n >= 2 modes points.
        std: Standard deviation of the initial real and imaginary parts of W. By default that of
            the published code, Xavier-normal with gain 1/(c_in c_out) on a tensor of shape
            (c_in, c_out, modes, 2): close to zero.

    Raises:
        ValueError: On a grid too coarse for the modes.

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
        # (modes, in, out) in complex numbers, kept as real pairs
        self.weight = nn.Parameter(std * torch.randn(modes, in_channels, out_channels, 2))

    def forward(self, u: Float[Tensor, "batch n c_in"]) -> Float[Tensor, "batch n c_out"]:
        n = u.shape[1]
        if n < 2 * self.modes:
            raise ValueError(
                f"{self.modes} modes need a grid of at least {2 * self.modes} points, got {n}"
            )
        forward, inverse = _dft(n, self.modes, u.dtype, u.device)
        batch = len(u)
        u_hat = torch.bmm(forward.expand(batch, -1, -1), u).unflatten(
            1, (2, self.modes)
        )  # (batch, re/im, modes, c_in)
        re, im = u_hat[:, 0].transpose(0, 1), u_hat[:, 1].transpose(0, 1)  # (modes, batch, c_in)
        w_re, w_im = self.weight.unbind(-1)
        # the complex product as one real product of twice the size
        w = torch.cat([torch.cat([w_re, w_im], -1), torch.cat([-w_im, w_re], -1)], -2)
        v_hat = torch.cat([re, im], -1) @ w  # (modes, batch, 2 c_out)
        v_hat = v_hat.unflatten(-1, (2, -1)).permute(1, 2, 0, 3).flatten(1, 2)
        return torch.bmm(inverse.expand(batch, -1, -1), v_hat)
