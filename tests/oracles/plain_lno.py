"""LNO as its released code has it, step by step; L-I-M-I-T/LatentNeuralOperator, 771a874.

Each sample has points and scores of its own, heads are split by copies, and attention is a matrix.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from operators.models.lno import LNO, Block
from operators.nn.pointwise import ResidualMLP


class PlainMLP(nn.Module):
    """One map to the hidden features, residual maps among them, one map out."""

    def __init__(self, features: int, width: int, out: int, layers: int) -> None:
        super().__init__()
        sizes = [features, *[width] * (layers + 1), out]
        self.maps = nn.ModuleList(nn.Linear(m, n) for m, n in itertools.pairwise(sizes))

    def forward(self, u: Tensor) -> Tensor:
        first, *hidden, last = self.maps
        v = nn.functional.gelu(first(u))
        for layer in hidden:
            v = nn.functional.gelu(layer(v)) + v
        return last(v)

    def copy_from(self, module: ResidualMLP) -> None:
        """Take over the weights of an MLP of the project."""
        for mine, theirs in zip(
            self.maps, [module.first, *module.hidden, module.last], strict=True
        ):
            mine.load_state_dict(theirs.state_dict())


class PlainBlock(nn.Module):
    """Attention among the latent tokens and an MLP of each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, z: Tensor) -> Tensor:
        batch, latents, width = z.shape
        tokens = self.norm1(z)
        q, k, v = (
            p(tokens).view(batch, latents, self.heads, -1).permute(0, 2, 1, 3)
            for p in (self.query, self.key, self.value)
        )
        scores = torch.einsum("bhic,bhjc->bhij", q, k) / math.sqrt(width // self.heads)
        mixed = torch.einsum("bhij,bhjc->bhic", torch.softmax(scores, dim=-1), v)
        z = z + self.out(mixed.permute(0, 2, 1, 3).reshape(batch, latents, width))
        return z + self.down(nn.functional.gelu(self.up(self.norm2(z))))

    def copy_from(self, block: Block) -> None:
        """Take over the weights of a block of the project."""
        for name in ("query", "key", "value", "out"):
            getattr(self, name).load_state_dict(getattr(block.attention, name).state_dict())
        for name in ("norm1", "norm2"):
            getattr(self, name).load_state_dict(getattr(block, name).state_dict())
        self.up.load_state_dict(block.mlp[0].state_dict())
        self.down.load_state_dict(block.mlp[2].state_dict())


class PlainLNO(nn.Module):
    """From positions x, (batch, n, dim), and features [x, a] there to values at x.

    Args:
        features, dim: Features [x, a] and coordinates.
        out_channels: Channels of u.
        width, depth, heads, latents, layers: Sizes; `layers`, of each MLP.
    """

    def __init__(
        self,
        features: int,
        dim: int,
        out_channels: int,
        width: int,
        depth: int,
        heads: int,
        latents: int,
        layers: int,
    ) -> None:
        super().__init__()
        self.trunk = PlainMLP(dim, width, width, layers)
        self.branch = PlainMLP(features, width, width, layers)
        self.decoder = PlainMLP(width, width, out_channels, layers)
        self.to_scores = PlainMLP(width, width, latents, layers)
        self.blocks = nn.ModuleList(PlainBlock(width, heads) for _ in range(depth))

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        scores = self.to_scores(self.trunk(x))
        encode, decode = torch.softmax(scores, dim=1), torch.softmax(scores, dim=-1)
        z = torch.einsum("bij,bic->bjc", encode, self.branch(features))
        for block in self.blocks:
            z = block(z)
        return self.decoder(torch.einsum("bij,bjc->bic", decode, z))

    def copy_from(self, model: LNO) -> None:
        """Take over the weights of a model of the project."""
        for name in ("trunk", "branch", "decoder", "to_scores"):
            getattr(self, name).copy_from(getattr(model, name))
        for mine, theirs in zip(self.blocks, model.blocks, strict=True):
            mine.copy_from(theirs)
