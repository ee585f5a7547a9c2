"""LinearNO as its paper describes it, step by step: no released code was found.

Shares and products are written out, heads are split by copies, convolutions have channels first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operators.models.linear_no import LinearNO, LinearPhysicsAttention


class PlainLinearAttention(nn.Module):
    """Of squares, with a convolution of 3 x 3 points."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.project = nn.Conv2d(width, width, 3, 1, 1)
        self.query, self.key = (nn.Linear(self.size, slices, bias=bias) for bias in (True, False))
        self.value = nn.Linear(self.size, self.size, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, u: Tensor) -> Tensor:
        batch, n1, n2, width = u.shape
        x = self.project(u.permute(0, 3, 1, 2).contiguous()).permute(0, 2, 3, 1)
        x = x.reshape(batch, n1 * n2, self.heads, self.size).permute(0, 2, 1, 3).contiguous()
        query = torch.exp(self.query(x))
        query = query / query.sum(dim=3, keepdim=True)
        key = torch.exp(self.key(x))
        key = key / key.sum(dim=2, keepdim=True)
        states = torch.einsum("bhng,bhnd->bhgd", key, self.value(x))
        y = torch.einsum("bhng,bhgd->bhnd", query, states)
        return self.out(y.permute(0, 2, 1, 3).reshape(batch, n1, n2, width))

    def copy_from(self, attention: LinearPhysicsAttention) -> None:
        """Take over the weights of an attention of the project's model."""
        for name in ("query", "key", "value", "out"):
            getattr(self, name).load_state_dict(getattr(attention, name).state_dict())
        self.project.load_state_dict(attention.project.convolution.state_dict())


class PlainLinearNO(nn.Module):
    """On squares, with distances to a lattice of points."""

    def __init__(
        self, width: int, depth: int, heads: int, slices: int, feedforward: int, lattice: int
    ) -> None:
        super().__init__()
        self.lattice = lattice
        self.embed = nn.Sequential(
            nn.Linear(1 + lattice**2, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.placeholder = nn.Parameter(torch.zeros(width))
        self.attentions = nn.ModuleList(
            PlainLinearAttention(width, heads, slices) for _ in range(depth)
        )
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, feedforward), nn.GELU(), nn.Linear(feedforward, width))
            for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth + 1))
        self.last = nn.Linear(width, 1)

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        axis = torch.linspace(0, 1, self.lattice, dtype=x.dtype)
        points = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2)
        distances = torch.sqrt(((x[..., None, :] - points) ** 2).sum(-1))
        u = torch.cat([distances.expand(len(a), -1, -1, -1), a], dim=-1)
        u = self.embed(u) + self.placeholder
        for i, (attention, mlp) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            u = attention(self.norms[2 * i](u)) + u
            u = mlp(self.norms[2 * i + 1](u)) + u
        return self.last(self.norms[-1](u))

    @torch.no_grad()
    def copy_from(self, model: LinearNO) -> None:
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
