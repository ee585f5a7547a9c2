r"""Layers of Fourier neural operators: K u + W u + b, where K is convolution with a learned kernel.

References: Z. Li et al., Fourier Neural Operator for Parametric Partial Differential Equations,
ICLR 2021, equations (2)-(5).
"""

from typing import Literal

from torch import nn

from operators.base import Function
from operators.nn.pointwise import BatchNorm, Dropout, InstanceNorm
from operators.nn.spectral import SpectralConv1d, SpectralConv2d, SpectralConv3d

CONVOLUTIONS = {1: SpectralConv1d, 2: SpectralConv2d, 3: SpectralConv3d}
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
            self.convolution = CONVOLUTIONS[dim](width, width, modes)
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
