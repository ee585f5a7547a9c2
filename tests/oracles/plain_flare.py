"""FLARE as its released code has it, step by step; vpuri3/FLARE.py, 4e05378.

The scores are matrices; the MLPs are written out, with the approximate GELU from its formula.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from operators.models.flare import FLARE, LatentRouting
from operators.nn.pointwise import ResidualMLP


def gelu(u: Tensor) -> Tensor:
    """u/2 (1 + tanh(√(2/π) (u + 0.044715 u³)))."""
    return 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))


class PlainMLP(nn.Module):
    """Linear maps, with sums around the first and the last where `sums` says so."""

    def __init__(self, sizes: list[int], sums: tuple[bool, bool]) -> None:
        super().__init__()
        self.sums = sums
        self.maps = nn.ModuleList(nn.Linear(m, n) for m, n in itertools.pairwise(sizes))

    def forward(self, u: Tensor) -> Tensor:
        first, *hidden, last = self.maps
        v = gelu(first(u)) + (u if self.sums[0] else 0)
        for layer in hidden:
            v = gelu(layer(v)) + v
        return last(v) + (v if self.sums[1] else 0)

    def copy_from(self, module: ResidualMLP) -> None:
        """Take over the weights of an MLP of the project."""
        theirs = [module.first, *module.hidden, module.last]
        for mine, other in zip(self.maps, theirs, strict=True):
            mine.load_state_dict(other.state_dict())


class PlainRouting(nn.Module):
    """From the points to the latent tokens and back by the same scores, in a loop over heads."""

    def __init__(self, width: int, heads: int, latents: int, depth: int) -> None:
        super().__init__()
        self.heads = heads
        self.latents = nn.Parameter(torch.zeros(heads, latents, width // heads))
        self.key, self.value = (PlainMLP([width] * (depth + 3), (True, True)) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, u: Tensor) -> Tensor:
        keys, values = (p(u).chunk(self.heads, dim=-1) for p in (self.key, self.value))
        heads = []
        for latents, k, v in zip(self.latents, keys, values, strict=True):
            scores = torch.einsum("md,bnd->bmn", latents, k)
            z = torch.einsum("bmn,bnd->bmd", torch.softmax(scores, dim=2), v)
            heads.append(torch.einsum("bmn,bmd->bnd", torch.softmax(scores, dim=1), z))
        return self.out(torch.cat(heads, dim=-1))

    def copy_from(self, routing: LatentRouting) -> None:
        """Take over the weights of a routing of the project."""
        self.latents.copy_(routing.latents)
        self.key.copy_from(routing.key)
        self.value.copy_from(routing.value)
        self.out.load_state_dict(routing.out.state_dict())


class PlainFLARE(nn.Module):
    """From features [x, a] of points to values there."""

    def __init__(
        self,
        features: int,
        out_channels: int,
        width: int,
        depth: int,
        heads: int,
        latents: int,
        mlp_depth: int,
    ) -> None:
        super().__init__()
        self.embed = PlainMLP([features, *[width] * 4], (False, True))
        self.routings = nn.ModuleList(
            PlainRouting(width, heads, latents, mlp_depth) for _ in range(depth)
        )
        self.mlps = nn.ModuleList(
            PlainMLP([width] * (mlp_depth + 3), (True, True)) for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth + 1))
        self.last = PlainMLP([*[width] * 4, out_channels], (True, False))

    def forward(self, features: Tensor) -> Tensor:
        u = self.embed(features)
        for i, (routing, mlp) in enumerate(zip(self.routings, self.mlps, strict=True)):
            u = routing(self.norms[2 * i](u)) + u
            u = mlp(self.norms[2 * i + 1](u)) + u
        return self.last(self.norms[-1](u))

    @torch.no_grad()
    def copy_from(self, model: FLARE) -> None:
        """Take over the weights of a model of the project."""
        self.embed.copy_from(model.embed)
        for i, block in enumerate(model.blocks):
            self.routings[i].copy_from(block.routing)
            self.mlps[i].copy_from(block.mlp)
            self.norms[2 * i].load_state_dict(block.norm1.state_dict())
            self.norms[2 * i + 1].load_state_dict(block.norm2.state_dict())
        self.norms[-1].load_state_dict(model.decoder[0].state_dict())
        self.last.copy_from(model.decoder[1])
