"""IPOT as its released code has it, step by step; 7tl7qns7ch/IPOT, 18c1778.

Heads are split by copies, attention is a matrix, every sample has latent tokens and queries of its
own. The MLP of the encoder, which nothing calls there, is left out; that of the output is not.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from operators.models.ipot import IPOT
from operators.nn.cross import CrossAttention
from operators.nn.pointwise import GEGLU


class PlainAttention(nn.Module):
    """Of normalised queries to sources, which are normalised except among latent tokens."""

    def __init__(
        self, queries: int, sources: int, out: int, heads: int, size: int, within: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.size = heads, size
        self.norm = nn.LayerNorm(queries)
        self.norm_source = nn.Identity() if within else nn.LayerNorm(sources)
        self.to_query = nn.Linear(queries, heads * size, bias=False)
        self.to_both = nn.Linear(sources, 2 * heads * size, bias=False)
        self.out = nn.Linear(heads * size, out)

    def forward(self, q: Tensor, z: Tensor) -> Tensor:
        def heads(v: Tensor) -> Tensor:
            v = v.view(len(v), v.shape[1], self.heads, self.size).permute(0, 2, 1, 3)
            return v.reshape(-1, v.shape[2], self.size)

        key, value = self.to_both(self.norm_source(z)).chunk(2, dim=-1)
        scores = torch.einsum("bid,bjd->bij", heads(self.to_query(self.norm(q))), heads(key))
        mixed = torch.softmax(scores * self.size**-0.5, dim=-1) @ heads(value)
        mixed = mixed.view(len(q), self.heads, -1, self.size).permute(0, 2, 1, 3)
        return self.out(mixed.flatten(2))

    def copy_from(self, attention: CrossAttention, norm: nn.Module, norm_source: nn.Module) -> None:
        """Take over the weights of an attention of the project and of the norms before it."""
        self.norm.load_state_dict(norm.state_dict())
        self.norm_source.load_state_dict(norm_source.state_dict())
        self.to_query.load_state_dict(attention.query.state_dict())
        both = torch.cat([attention.key.weight, attention.value.weight])
        self.to_both.load_state_dict({"weight": both})
        self.out.load_state_dict(attention.out.state_dict())


class PlainGated(nn.Module):
    """A linear map times the GELU of another, and a third."""

    def __init__(self, width: int, expansion: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.both = nn.Linear(width, 2 * expansion * width)
        self.last = nn.Linear(expansion * width, width)

    def forward(self, u: Tensor) -> Tensor:
        v, gates = self.both(self.norm(u)).chunk(2, dim=-1)
        return self.last(v * nn.functional.gelu(gates))

    def copy_from(self, norm: nn.Module, mlp: GEGLU) -> None:
        """Take over the weights of an MLP of the project, whose gates come first."""
        self.norm.load_state_dict(norm.state_dict())
        self.both.load_state_dict(
            {name: v.roll(len(v) // 2, dims=0) for name, v in mlp.first.state_dict().items()}
        )
        self.last.load_state_dict(mlp.last.state_dict())


class PlainIPOT(nn.Module):
    """From values a at positions x, (batch, n, dim), to values at y."""

    def __init__(
        self,
        channels: tuple[int, int],
        dim: int,
        width: int,
        depth: int,
        heads: int,
        cross_heads: int,
        latents: int,
        expansion: int,
        bands: int,
        resolution: int,
    ) -> None:
        super().__init__()
        p = dim * (2 * bands + 1)
        c_in, c_out = channels
        self.depth, self.bands, self.resolution = depth, bands, resolution
        self.latents = nn.Parameter(torch.randn(latents, width) * 0.02)
        self.encode = PlainAttention(width, c_in + p, width, cross_heads, width // cross_heads)
        self.within = PlainAttention(width, width, width, heads, width // heads, within=True)
        self.mlp = PlainGated(width, expansion)
        self.decode = PlainAttention(p, width, c_out, cross_heads, width // cross_heads)
        self.last = PlainGated(c_out, expansion)

    def features(self, x: Tensor) -> Tensor:
        """Coordinates, then all sines, then all cosines."""
        f = torch.linspace(1.0, self.resolution / 2, self.bands, dtype=x.dtype)
        angles = math.pi * (x[..., None] * f).reshape(*x.shape[:-1], -1)
        return torch.cat([x, torch.sin(angles), torch.cos(angles)], dim=-1)

    def forward(self, a: Tensor, x: Tensor, y: Tensor) -> Tensor:
        z = self.latents.repeat(len(a), 1, 1)
        z = self.encode(z, torch.cat([a, self.features(x)], dim=-1)) + z
        for _ in range(self.depth):
            z = self.within(z, z) + z
            z = self.mlp(z) + z
        u = self.decode(self.features(y), z)
        return 0.1 * (self.last(u) + u)

    @torch.no_grad()
    def copy_from(self, model: IPOT) -> None:
        """Take over the weights of a model of the project."""
        self.latents.copy_(model.latents)
        self.encode.copy_from(model.encode, model.norm_latents, model.norm_input)
        self.within.copy_from(model.within, model.norm_within, nn.Identity())
        self.mlp.copy_from(model.norm_mlp, model.mlp)
        self.decode.copy_from(model.decode, model.norm_query, model.norm_tokens)
        if model.last is not None:
            self.last.copy_from(*model.last)
