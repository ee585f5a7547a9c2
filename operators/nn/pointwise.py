"""What many operators do at each point of a grid: coordinate features, MLPs, small convolutions."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

Coordinates = Literal["raw", "periodic", "none"]
Field = Float[Tensor, "batch *grid c"]


def coordinate_count(coordinates: Coordinates, dim: int) -> int:
    """How many features `coordinate_features` gives."""
    return {"raw": dim, "periodic": 2 * dim, "none": 0}[coordinates]


def coordinate_features(
    coordinates: Coordinates, x: Float[Tensor, "*grid dim"]
) -> Float[Tensor, "*grid p"]:
    """x itself ("raw"), cos 2πx and sin 2πx ("periodic"), or nothing ("none").

    >>> coordinate_features("periodic", torch.tensor([[0.0]]))
    tensor([[1., 0.]])
    """
    if coordinates == "raw":
        return x
    if coordinates == "none":
        return x[..., :0]
    return torch.cat([torch.cos(2 * torch.pi * x), torch.sin(2 * torch.pi * x)], dim=-1)


def mlp(in_features: int, hidden: int, out_features: int) -> nn.Sequential:
    """W₂ GELU(W₁ u + b₁) + b₂ at each point."""
    return nn.Sequential(nn.Linear(in_features, hidden), nn.GELU(), nn.Linear(hidden, out_features))


class Convolution(nn.Module):
    """Convolution over 3 points along each axis of the grid; channels last."""

    def __init__(self, dim: int, width: int, padding: Literal["zeros", "circular"]) -> None:
        super().__init__()
        kind = nn.Conv1d if dim == 1 else nn.Conv2d
        self.convolution = kind(width, width, 3, padding=1, padding_mode=padding)

    def forward(self, u: Field) -> Field:
        return self.convolution(u.movedim(-1, 1)).movedim(1, -1)
