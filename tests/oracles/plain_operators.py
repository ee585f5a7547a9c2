"""DeepONet as its library writes it, and the Transformer made of PyTorch's own encoder layers.

Baselines of the benchmarks, and oracles of the tests; and the Transformer step by step.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from operators.models.deeponet import DeepONet
from operators.models.transformer import Transformer
from tests.oracles.plain import affine, attended, chain


class PlainDeepONet(nn.Module):
    """Σₖ βₖ(a) τₖ(y) + b with the features cos 2πky, sin 2πky, k = 1, 2, of the points y."""

    def __init__(
        self, sensors: int = 128, width: int = 128, basis: int = 128, branch_depth: int = 3,
        trunk_depth: int = 2,
    ) -> None:  # fmt: skip
        super().__init__()
        self.branch = nn.ModuleList(
            nn.Linear(*pair) for pair in pairwise([sensors, *[width] * branch_depth, basis])
        )
        self.trunk = nn.ModuleList(
            nn.Linear(*pair) for pair in pairwise([4, *[width] * trunk_depth, basis])
        )
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        b = a[..., 0]
        for layer in self.branch[:-1]:
            b = torch.tanh(layer(b))
        b = self.branch[-1](b)
        angle = 2 * torch.pi * x
        t = torch.cat([f(k * angle) for f in (torch.cos, torch.sin) for k in (1, 2)], dim=-1)
        for layer in self.trunk:
            t = torch.tanh(layer(t))
        return (torch.einsum("bi,ni->bn", b, t) + self.bias)[..., None]

    @torch.no_grad()
    def copy_from(self, model: DeepONet) -> None:
        """Take over the weights of a model of the project."""
        for plain, ours in ((self.branch, model.branch), (self.trunk, model.trunk)):
            linear = [module for module in ours if isinstance(module, nn.Linear)]
            for to, source in zip(plain, linear, strict=True):
                to.load_state_dict(source.state_dict())
        self.bias.copy_(model.bias)


class PlainTransformer(nn.Module):
    """torch.nn.TransformerEncoder between two linear maps, layer norms first."""

    def __init__(
        self, dim: int = 1, width: int = 128, depth: int = 8, heads: int = 8, feedforward: int = 256
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(1 + dim, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, feedforward, dropout=0.0, activation="gelu", batch_first=True,
            norm_first=True,
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(
            layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.decoder = nn.Linear(width, 1)

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        u = torch.cat([a, x.expand(len(a), *x.shape)], dim=-1)
        return self.decoder(self.encoder(self.embed(u.flatten(1, -2)))).view(a.shape)

    @torch.no_grad()
    def copy_from(self, model: Transformer) -> None:
        """Take over the weights of a model of the project."""
        self.embed.load_state_dict(model.embed.state_dict())
        self.decoder.load_state_dict(model.decoder.state_dict())
        assert self.encoder.norm is not None
        self.encoder.norm.load_state_dict(model.norm.state_dict())
        for plain, layer in zip(self.encoder.layers, model.layers, strict=True):
            project = layer.attention.project
            plain.self_attn.in_proj_weight.copy_(project.weight.flatten(0, 1))
            plain.self_attn.in_proj_bias.copy_(project.bias.flatten())
            plain.self_attn.out_proj.load_state_dict(layer.attention.out.state_dict())
            plain.norm1.load_state_dict(layer.norm1.state_dict())
            plain.norm2.load_state_dict(layer.norm2.state_dict())
            plain.linear1.load_state_dict(layer.mlp[0].state_dict())
            plain.linear2.load_state_dict(layer.mlp[2].state_dict())


def plain_transformer(
    model: Transformer, a: Tensor, x: Tensor, attention: str, pre: bool, act=nn.functional.gelu
) -> Tensor:
    """The map with the linear decoder, the norms before each part or after it."""

    def norm(t: Tensor, layer: nn.LayerNorm) -> Tensor:
        mean, variance = t.mean(-1, keepdim=True), t.var(-1, keepdim=True, correction=0)
        return (t - mean) / (variance + 1e-5).sqrt() * layer.weight + layer.bias

    def attend(t: Tensor, layer: nn.Module) -> Tensor:
        part, found = layer.attention, []
        weights = zip(part.project.weight, part.project.bias, strict=True)
        q, k, v = (t @ w.T + b for w, b in weights)
        if attention == "softmax":
            return affine(part.out, attended(q, k, v, part.heads))
        for qh, kh, vh in zip(*(u.chunk(part.heads, dim=-1) for u in (q, k, v)), strict=True):
            if attention == "efficient":
                qh, kh = qh.softmax(-1) / qh.shape[-1] ** 0.5, kh.softmax(-2)
            else:
                kh = kh / t.shape[1]
            found.append(qh @ (kh.mT @ vh))
        return affine(part.out, torch.cat(found, -1))

    u = torch.cat([a, x.expand(len(a), *x.shape)], -1).flatten(1, -2)
    u = affine(model.embed, u)
    for layer in model.layers:
        for part, by in (
            (attend, layer.norm1),
            (lambda t, one: chain(one.mlp, t, act), layer.norm2),
        ):
            u = u + part(norm(u, by), layer) if pre else norm(u + part(u, layer), by)
    u = norm(u, model.norm) if pre else u
    return affine(model.decoder, u).view(*a.shape[:-1], -1)
