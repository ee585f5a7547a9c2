"""DeepONet as its library writes it, and the Transformer made of PyTorch's own encoder layers.

Baselines of the benchmarks, and oracles of the tests.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from operators.models.deeponet import DeepONet
from operators.models.transformer import Transformer


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
