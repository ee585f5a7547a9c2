"""The convolutional neural operator as released in simplified form, step by step.

CNO1d_simplified and CNO2d_simplified of camlab-ethz/ConvolutionalNeuralOperator (6e76519): PyTorch
interpolates, on a grid that the network is made for.
"""

from __future__ import annotations

from torch import Tensor, cat, nn
from torch.nn.functional import interpolate, leaky_relu

from operators.models.cno import CNO, Block, Lift, Residual


def bicubic(u: Tensor, sizes: list[int]) -> Tensor:
    if u.ndim == 3:
        image = interpolate(u[:, :, None], (1, *sizes), mode="bicubic", antialias=True)
        return image[:, :, 0]
    return interpolate(u, tuple(sizes), mode="bicubic", antialias=True)


def filtered(u: Tensor, sizes: list[int]) -> Tensor:
    """The activation: up, LeakyReLU, down."""
    fine = [2 * n for n in u.shape[2:]]
    return bicubic(leaky_relu(bicubic(u, fine), 0.01), sizes)


def of_block(block: Block, u: Tensor, sizes: list[int]) -> Tensor:
    return filtered(block.norm(block.convolution(u)), sizes)


def of_lift(lift: Lift, u: Tensor) -> Tensor:
    return lift.convolution(filtered(lift.block.convolution(u), list(u.shape[2:])))


def of_residuals(blocks: nn.Module, u: Tensor) -> Tensor:
    for block in blocks.children():
        assert isinstance(block, Residual)
        v = of_block(block.block, u, list(u.shape[2:]))
        u = u + block.norm(block.convolution(v))
    return u


def plain_cno(model: CNO, a: Tensor, grid: Tensor) -> Tensor:
    """Output of the released network, built for the grid of a, with the weights of the model."""
    x = a.movedim(-1, 1)
    sizes = [[n // 2**i for n in x.shape[2:]] for i in range(model.levels + 1)]
    x, skips = of_lift(model.lift, x), list[Tensor]()
    for i in range(model.levels):
        skips.append(of_residuals(model.across[i], x))
        x = of_block(model.down[i], x, sizes[i + 1])
    x = of_residuals(model.across[model.levels], x)
    for i in range(model.levels, 0, -1):
        skip = of_block(model.expand[i], x if i == model.levels else skips[i], sizes[i])
        x = skip if i == model.levels else cat([x, skip], dim=1)
        x = of_block(model.up[i - 1], x, sizes[i - 1])
    x = cat([x, of_block(model.expand[0], skips[0], sizes[0])], dim=1)
    return of_lift(model.project, x).movedim(1, -1)
