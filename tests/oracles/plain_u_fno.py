"""U-FNO and U-Nets as the released codes compute them, step by step, channels first.

`SimpleBlock3d` of gegewen/ufno at 8315fd7b, in any number of dimensions; `U_Net` and `U_FNO` of
thuml/Neural-Solver-Library at db942b72 on structured meshes. The weights are those of the project's
models, so that gradients can be compared.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from operators.models.fno import UFNO, UFourierLayer
from operators.models.unet import PlainUNet
from operators.nn.pointwise import PooledUNet, StridedUNet, UNet
from operators.nn.spectral import FourierLayer
from tests.oracles.plain import padded, pointwise, spectral


def normalized(u: Tensor, norm: nn.Module) -> Tensor:
    """Values normalised by moments of the batch (training), stored ones or those of a sample."""
    instance = isinstance(norm, (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d))
    axes = [*([] if instance else [0]), *range(2, u.ndim)]

    def shaped(v: Tensor) -> Tensor:
        return v.view(-1, *[1] * (u.ndim - 2))

    if norm.training or instance:
        mean = u.mean(axes, keepdim=True)
        variance = (u - mean).square().mean(axes, keepdim=True)
    else:
        mean, variance = shaped(norm.running_mean), shaped(norm.running_var)
    scaled = (u - mean) / torch.sqrt(variance + 1e-5)
    return scaled * shaped(norm.weight) + shaped(norm.bias)


def of_points(u: Tensor, layer: nn.Module, **options: int) -> Tensor:
    kind = "conv_transpose" if "Transpose" in type(layer).__name__ else "conv"
    return getattr(F, f"{kind}{u.ndim - 2}d")(u, layer.weight, layer.bias, **options)


def strided(net: StridedUNet, u: Tensor) -> Tensor:
    def conv(v: Tensor, block: nn.Sequential, stride: int) -> Tensor:
        v = normalized(of_points(v, block[0], stride=stride, padding=1), block[1])
        return torch.where(v > 0, v, 0.1 * v)

    down = [conv(u, net.down[0], 2)]
    for first, second in list(net.down)[1:]:
        down.append(conv(conv(down[-1], first, 2), second, 1))
    v = down[-1]
    for up, beside in zip(net.up, [*down[-2::-1], u], strict=True):
        v = of_points(v, up[0], stride=2, padding=1)
        v = torch.cat((beside, torch.where(v > 0, v, 0.1 * v)), 1)
    return of_points(v, net.out, padding=1)


def pooled(net: PooledUNet, u: Tensor) -> Tensor:
    def double(v: Tensor, blocks: nn.Sequential) -> Tensor:
        for block in blocks:
            v = torch.relu(normalized(of_points(v, block[0], padding=1), block[1]))
        return v

    mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[u.ndim]
    steps = [double(u, net.first)]
    for down in net.down:
        halved = getattr(F, f"max_pool{u.ndim - 2}d")(steps[-1], 2)
        steps.append(double(halved, down))
    v = steps[-1]
    for up, beside in zip(net.up, steps[-2::-1], strict=True):
        v = F.interpolate(v, scale_factor=2, mode=mode, align_corners=True)
        v = double(torch.cat((beside, v), 1), up)
    return of_points(v, net.out)


def plain_u_net(net: UNet, u: Tensor) -> Tensor:
    return strided(net, u) if isinstance(net, StridedUNet) else pooled(net, u)


def perceptron(u: Tensor, layers: nn.Sequential) -> Tensor:
    sigma = torch.relu if isinstance(layers[1], nn.ReLU) else F.gelu
    return pointwise(layers[2], sigma(pointwise(layers[0], u)))


def plain_u_fno(model: UFNO, features: Tensor, points: list[int]) -> Tensor:
    """The output at each point of a grid, from a and coordinates side by side, channels last; so
    many zeros are appended to each axis after the first map."""
    inside = (..., *[slice(n) for n in features.shape[1:-1]])
    u = features.movedim(-1, 1)
    u = pointwise(model.lift, u) if isinstance(model.lift, nn.Linear) else perceptron(u, model.lift)
    u = padded(u, points)
    layers = [one for one in model.layers if isinstance(one, (FourierLayer, UFourierLayer))]
    # GELU between the layers of the library, ReLU after each layer of the released code
    library = isinstance(layers[-1].u_net, PooledUNet)
    for layer in layers:
        fourier = layer if isinstance(layer, FourierLayer) else layer.fourier
        v = spectral(u, fourier.convolution.weight, fourier.convolution.modes)
        v = v + pointwise(fourier.pointwise, u)
        u = v + plain_u_net(layer.u_net, u) if isinstance(layer, UFourierLayer) else v
        if not library:
            u = torch.relu(u)
        elif layer is not layers[-1]:
            u = F.gelu(u)
    return perceptron(u[inside], model.head).movedim(1, -1)


def plain_unet(model: PlainUNet, features: Tensor) -> Tensor:
    """The same of a U-Net between two perceptrons, on multiples of 2^levels points."""
    inside = (..., *[slice(n) for n in features.shape[1:-1]])
    u = perceptron(features.movedim(-1, 1), model.lift)
    u = padded(u, [-n % 2**model.layers.levels for n in u.shape[2:]])
    return perceptron(pooled(model.layers, u)[inside], model.head).movedim(1, -1)
