"""Transolver as its publication and released settings describe it, step by step.

Nothing is fused or rearranged: shares of the points are normalised before the tokens are formed,
heads are split by copies, convolutions have channels first. The oracle of the tests, and the
baseline of the benchmarks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operators.models.transolver import PhysicsAttention


class PlainPhysicsAttention(nn.Module):
    """Physics attention on squares, with convolutions of 3 x 3 points."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.to_slices, self.to_values = (nn.Conv2d(width, width, 3, 1, 1) for _ in range(2))
        self.slices = nn.Linear(self.size, slices)
        self.temperature = nn.Parameter(torch.full((1, heads, 1, 1), 0.5))
        self.query, self.key, self.value = (
            nn.Linear(self.size, self.size, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(width, width)

    def forward(self, u: Tensor) -> Tensor:
        batch, n1, n2, width = u.shape
        image = u.permute(0, 3, 1, 2).contiguous()

        def split(v: Tensor) -> Tensor:
            v = v.permute(0, 2, 3, 1).contiguous().view(batch, n1 * n2, self.heads, self.size)
            return v.permute(0, 2, 1, 3).contiguous()  # (batch, heads, points, features)

        f, x = split(self.to_values(image)), split(self.to_slices(image))
        w = torch.softmax(self.slices(x) / torch.clamp(self.temperature, 0.1, 5), dim=-1)
        total = w.sum(2)
        tokens = torch.einsum("bhnd,bhng->bhgd", f, w)
        tokens = tokens / (total + 1e-5)[..., None].repeat(1, 1, 1, self.size)
        q, k, v = self.query(tokens), self.key(tokens), self.value(tokens)
        attention = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * self.size**-0.5, dim=-1)
        y = torch.einsum("bhgd,bhng->bhnd", torch.matmul(attention, v), w)
        return self.out(y.permute(0, 2, 1, 3).reshape(batch, n1, n2, width))

    @torch.no_grad()
    def copy_from(self, attention: PhysicsAttention) -> None:
        """Take over the weights of an attention of the project's model."""
        for name in ("slices", "query", "key", "value", "out"):
            getattr(self, name).load_state_dict(getattr(attention, name).state_dict())
        for name in ("to_slices", "to_values"):
            theirs = getattr(attention, name).convolution
            getattr(self, name).load_state_dict(theirs.state_dict())
        self.temperature.copy_(attention.temperature[None])


class PlainTransolver(nn.Module):
    """Transolver on squares, with distances to a lattice of points."""

    def __init__(
        self, width: int = 128, depth: int = 8, heads: int = 8, slices: int = 64,
        feedforward: int = 256, lattice: int = 8,
    ) -> None:  # fmt: skip
        super().__init__()
        self.lattice = lattice
        self.embed = nn.Sequential(
            nn.Linear(1 + lattice**2, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.placeholder = nn.Parameter(torch.zeros(width))
        self.attentions = nn.ModuleList(
            PlainPhysicsAttention(width, heads, slices) for _ in range(depth)
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
        u = self.embed(torch.cat([distances.expand(len(a), -1, -1, -1), a], dim=-1))
        u = u + self.placeholder
        for i, (attention, mlp) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            u = attention(self.norms[2 * i](u)) + u
            u = mlp(self.norms[2 * i + 1](u)) + u
        return self.last(self.norms[-1](u))

    @torch.no_grad()
    def copy_from(self, model: nn.Module) -> None:
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
