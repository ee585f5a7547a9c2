"""Transolver++ as its released code has it, step by step; thuml/Transolver_plus, d5a23bc.

On one process, where the sums over a group of processes do nothing. Noise is asked for by name:
there it is always on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operators.models.transolver_plus import EideticAttention
from tests.oracles.plain_transolver import PlainFrame


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


class PlainTransolverPlus(PlainFrame):
    """From features [x, a] of points to values there."""

    attention = PlainEideticAttention

    def forward(self, features: Tensor, noisy: bool) -> Tensor:
        return self.values(features, noisy)
