"""Transolver++ as its released code has it, step by step; thuml/Transolver_plus, d5a23bc.

On one process, where the sums over a group of processes do nothing. Noise is asked for by name:
there it is always on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operators.models.transolver_plus import EideticAttention, TransolverPlus


class PlainEideticAttention(nn.Module):
    """Of points without a grid."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.project, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.slices = nn.Linear(self.size, slices)
        self.hidden, self.last = nn.Linear(self.size, slices), nn.Linear(slices, 1)
        self.offset = nn.Parameter(torch.full((1, heads, 1, 1), 0.5))
        self.query, self.key, self.value = (
            nn.Linear(self.size, self.size, bias=False) for _ in range(3)
        )

    def forward(self, u: Tensor, noisy: bool) -> Tensor:
        batch, n, width = u.shape
        x = self.project(u).reshape(batch, n, self.heads, self.size).permute(0, 2, 1, 3)
        tau = nn.functional.gelu(self.last(nn.functional.gelu(self.hidden(x)))) + self.offset
        logits = self.slices(x)
        if noisy:
            uniform = torch.rand_like(logits)
            logits = logits - torch.log(-torch.log(uniform + 1e-8) + 1e-8)
        w = torch.softmax(logits / torch.clamp(tau, min=0.01), dim=-1)
        tokens = torch.einsum("bhnc,bhng->bhgc", x, w) / (w.sum(2) + 1e-5)[..., None]
        q, k, v = self.query(tokens), self.key(tokens), self.value(tokens)
        attention = torch.softmax(q @ k.transpose(-1, -2) / self.size**0.5, dim=-1)
        y = torch.einsum("bhgc,bhng->bhnc", attention @ v, w)
        return self.out(y.permute(0, 2, 1, 3).reshape(batch, n, width))

    def copy_from(self, attention: EideticAttention) -> None:
        """Take over the weights of an attention of the project's model."""
        for name in ("project", "slices", "query", "key", "value", "out"):
            getattr(self, name).load_state_dict(getattr(attention, name).state_dict())
        self.hidden.load_state_dict(attention.temperature[0].state_dict())
        self.last.load_state_dict(attention.temperature[2].state_dict())
        self.offset.copy_(attention.offset[None])


class PlainTransolverPlus(nn.Module):
    """From features [x, a] of points to values there."""

    def __init__(
        self, features: int, out_channels: int, width: int, depth: int, heads: int, slices: int,
        feedforward: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed = nn.Sequential(
            nn.Linear(features, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.placeholder = nn.Parameter(torch.zeros(width))
        self.attentions = nn.ModuleList(
            PlainEideticAttention(width, heads, slices) for _ in range(depth)
        )
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, feedforward), nn.GELU(), nn.Linear(feedforward, width))
            for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth + 1))
        self.last = nn.Linear(width, out_channels)

    def forward(self, features: Tensor, noisy: bool) -> Tensor:
        u = self.embed(features) + self.placeholder
        for i, (attention, mlp) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            u = attention(self.norms[2 * i](u), noisy) + u
            u = mlp(self.norms[2 * i + 1](u)) + u
        return self.last(self.norms[-1](u))

    @torch.no_grad()
    def copy_from(self, model: TransolverPlus) -> None:
        """Take over the weights of a model of the project."""
        self.embed.load_state_dict(model.embed.state_dict())
        self.placeholder.copy_(model.placeholder)
        for i, block in enumerate(model.blocks):
            self.attentions[i].copy_from(block.attention)
            self.mlps[i].load_state_dict(block.mlp.state_dict())
            self.norms[2 * i].load_state_dict(block.norm1.state_dict())
            self.norms[2 * i + 1].load_state_dict(block.norm2.state_dict())
        self.norms[-1].load_state_dict(model.decoder[0].state_dict())
        self.last.load_state_dict(model.decoder[1].state_dict())
