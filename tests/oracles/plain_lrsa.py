"""Low-rank spatial attention as its publication and released settings describe it.

Every map by itself: norms by their formula, attention by the library's call, the norm of the points
once for the way down and once for the way up. The baseline of the benchmarks; and the function, in
any dimension, with and without the convolution and the norms of queries and keys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operators.models import lrsa
from operators.nn.tokens import CrossAttention
from tests.oracles.plain import affine, around, attended, chain


class PlainNorm(nn.Module):
    """u / √(mean u² + 1e-6), scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, u: Tensor) -> Tensor:
        return u * torch.rsqrt(u.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class PlainAttention(nn.Module):
    def __init__(self, width: int, heads: int, project: bool) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query = nn.Linear(width, width, bias=False) if project else nn.Identity()
        self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.norm_query, self.norm_key = (PlainNorm(self.size) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, q: Tensor, z: Tensor) -> Tensor:
        def split(v: Tensor) -> Tensor:
            return v.view(len(v), -1, self.heads, self.size).transpose(1, 2).contiguous()

        q, k, v = split(self.query(q)), split(self.key(z)), split(self.value(z))
        y = nn.functional.scaled_dot_product_attention(self.norm_query(q), self.norm_key(k), v)
        return self.out(y.transpose(1, 2).reshape(len(y), -1, self.heads * self.size))


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int, latents: int, feedforward: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.zeros(latents, width))
        self.down = PlainAttention(width, heads, False)
        self.within, self.up = (PlainAttention(width, heads, True) for _ in range(2))
        self.mlp1, self.mlp2 = (
            nn.Sequential(nn.Linear(width, feedforward), nn.GELU(), nn.Linear(feedforward, width))
            for _ in range(2)
        )
        self.convolution = nn.Conv2d(width, width, 3, padding=1)
        self.pointwise = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, feedforward, bias=False), nn.GELU(),
            nn.Linear(feedforward, width),
        )  # fmt: skip
        self.norm_down, self.norm1, self.norm_within, self.norm2, self.norm_up, self.norm3 = (
            PlainNorm(width) for _ in range(6)
        )

    def forward(self, u: Tensor) -> Tensor:
        batch, n1, n2, width = u.shape
        points = u.view(batch, n1 * n2, width)
        z = self.down(self.queries.repeat(batch, 1, 1), self.norm_down(points))
        z = z + self.mlp1(self.norm1(z))
        z = z + self.within(self.norm_within(z), self.norm_within(z))
        z = z + self.mlp2(self.norm2(z))
        u = u + self.up(self.norm_down(points), self.norm_up(z)).view(u.shape)
        image = self.norm3(u).permute(0, 3, 1, 2).contiguous()
        return u + self.pointwise(self.convolution(image).permute(0, 2, 3, 1).contiguous())

    @torch.no_grad()
    def copy_from(self, block: lrsa.Block) -> None:
        """Take over the weights of a block of the project's model."""
        convolution, *pointwise = block.pointwise
        self.convolution.load_state_dict(convolution.convolution.state_dict())
        self.pointwise.load_state_dict(nn.Sequential(*pointwise).state_dict())
        self.queries.copy_(block.queries)
        for name, child in block.named_children():
            if name != "pointwise":
                getattr(self, name).load_state_dict(child.state_dict())


class PlainLRSA(nn.Module):
    """LRSA on squares, with raw coordinates."""

    def __init__(
        self, width: int = 128, depth: int = 8, heads: int = 8, latents: int = 64,
        feedforward: int = 128,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(3, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.blocks = nn.ModuleList(
            PlainBlock(width, heads, latents, feedforward) for _ in range(depth)
        )
        self.decoder = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        u = self.embed(torch.cat([x.expand(len(a), *x.shape), a], dim=-1))
        for block in self.blocks:
            u = block(u)
        return self.decoder(u)

    @torch.no_grad()
    def copy_from(self, model: lrsa.LRSA) -> None:
        """Take over the weights of a model of the project."""
        self.embed.load_state_dict(model.embed.state_dict())
        self.decoder.load_state_dict(model.decoder.state_dict())
        for plain, block in zip(self.blocks, model.blocks, strict=True):
            plain.copy_from(block)


def rms(u: Tensor, norm: nn.Module) -> Tensor:
    return u / (u.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight


def attention(part: CrossAttention, q: Tensor, z: Tensor) -> Tensor:
    """q is projected already."""
    k = affine(part.key, z)
    if isinstance(part.norm_key, nn.RMSNorm):
        q, k = (
            torch.cat([rms(one, norm) for one in v.chunk(part.heads, -1)], -1)
            for v, norm in ((q, part.norm_query), (k, part.norm_key))
        )
    return affine(part.out, attended(q, k, affine(part.value, z), part.heads))


def plain_lrsa(model: lrsa.LRSA, a: Tensor, x: Tensor) -> Tensor:
    u = chain(model.embed, torch.cat([x.expand(*a.shape[:-1], x.shape[-1]), a], dim=-1))
    for block in model.blocks:
        grid, flat = u.shape, u.flatten(1, -2)
        n = rms(flat, block.norm_down)
        z = attention(block.down, block.queries.expand(len(u), -1, -1), n)
        z = z + chain(block.mlp1, rms(z, block.norm1))
        t = rms(z, block.norm_within)
        z = z + attention(block.within, affine(block.within.query, t), t)
        z = z + chain(block.mlp2, rms(z, block.norm2))
        t = rms(z, block.norm_up)
        u = (flat + attention(block.up, affine(block.up.query, n), t)).view(grid)
        v, layers = rms(u, block.norm3), block.pointwise
        if hasattr(layers[0], "convolution"):
            v, layers = layers[1](around(layers[0], v)), layers[2:]
        u = u + chain(layers, v)
    return chain(model.decoder, u)
