"""Norms and losses of functions on a grid, one value per sample."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

Function = Float[Tensor, "batch n c"]


def l2(u: Float[Tensor, "batch ..."]) -> Float[Tensor, " batch"]:
    """‖u‖ = (mean |u|²)^½ per sample: the L² norm on a grid of equal cells of a unit domain."""
    return u.flatten(1).square().mean(dim=1).sqrt()


def relative_l2(
    prediction: Float[Tensor, "batch ..."], target: Float[Tensor, "batch ..."]
) -> Float[Tensor, " batch"]:
    """‖p - u‖ / ‖u‖ per sample. The quadrature weight cancels on a uniform grid.

    >>> u = torch.tensor([[3.0, 4.0]])
    >>> relative_l2(1.1 * u, u)
    tensor([0.1000])
    """
    return torch.linalg.vector_norm((prediction - target).flatten(1), dim=1) / (
        torch.linalg.vector_norm(target.flatten(1), dim=1)
    )


def central_difference(u: Function, spacing: float) -> Function:
    """(u_{j+1} - u_{j-1}) / 2h on a periodic grid, along the axis next to the channels."""
    return (u.roll(-1, dims=1) - u.roll(1, dims=1)) / (2 * spacing)


class RelativeL2:
    """Mean over the batch of ‖p - u‖ / ‖u‖."""

    def __call__(self, prediction: Function, target: Function) -> Tensor:
        return relative_l2(prediction, target).mean()


class RelativeH1:
    """Mean over the batch of ‖p - u‖/‖u‖ + √(γh) ‖Dp - Du‖/‖Du‖, D the central difference.

    The unsquared form of the published code (Cao 2021 prints the squared one in eq. 10).

    Args:
        gamma: Weight γ of the derivative term; it is scaled by the spacing h = 1/n.
        periodic: True takes differences across the ends, as is right for periodic data.
            False is the published behaviour: the derivative error counts interior points only,
            the reference derivative all of them.
    """

    def __init__(self, gamma: float = 0.1, periodic: bool = True) -> None:
        if gamma < 0:
            raise ValueError(f"gamma must be >= 0, got {gamma}")
        self.gamma = gamma
        self.periodic = periodic

    def __call__(self, prediction: Function, target: Function) -> Tensor:
        h = 1 / target.shape[1]
        du = central_difference(target, h)
        error = central_difference(prediction, h) - du
        if not self.periodic:
            error = error[:, 1:-1]
        weight = math.sqrt(self.gamma * h)
        slope = torch.linalg.vector_norm(error.flatten(1), dim=1) / (
            torch.linalg.vector_norm(du.flatten(1), dim=1)
        )
        return (relative_l2(prediction, target) + weight * slope).mean()
