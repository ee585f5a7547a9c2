"""The Fourier neural operator with torch.fft, channels first, in any number of dimensions.

The published forwards of 2020 and 2021 (also that of three axes, time last), of the code with
channel MLPs, of Cao's code and of neuraloperator/Geo-FNO along the indices of a mesh.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from operators.models.fno import FNO
from operators.nn.spectral import FourierLayer
from tests.oracles.plain import chain, padded, pointwise, spectral


def plain_fno(
    model: FNO, features: Tensor, points: list[int], sigma=F.gelu, last=False, plus=False,
    norm="none",
) -> Tensor:  # fmt: skip
    """u from a and coordinates side by side, channels last; so many zeros after each axis."""

    def instance(u: Tensor) -> Tensor:
        return F.instance_norm(u) if norm == "instance" else u

    inside = (..., *[slice(n) for n in features.shape[1:-1]])
    u = padded(pointwise(model.lift, features.movedim(-1, 1)), points)
    layers = [layer for layer in model.layers if isinstance(layer, FourierLayer)]
    for layer in layers:
        weight, modes = layer.convolution.weight, layer.convolution.modes
        k = instance(spectral(instance(u), weight, modes))
        if plus:
            first, _, second = layer.channel_mlp
            k = pointwise(second, sigma(pointwise(first, k)))
        u = k + pointwise(layer.pointwise, u)
        if norm == "batch":
            b = layer.batch_norm
            u = F.batch_norm(
                u, b.running_mean, b.running_var, b.weight, b.bias, training=model.training,
                momentum=0.0,
            )  # fmt: skip
        if last or layer is not layers[-1]:
            u = sigma(u)
    return chain(model.head, u[inside].movedim(1, -1), sigma)
