"""Low-rank spatial attention against its formulas written out token by token, in float64."""

import math

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from operators.models.lrsa import LRSA
from tests.operators.drawn import points, shaken
from tests.oracles.plain_lrsa import PlainLRSA

VARIANTS = [
    {"dim": dim, "convolution": convolution, "normalize": normalize}
    for dim in (1, 2)
    for convolution, normalize in ((True, True), (False, False))
]


def small(**settings):
    torch.manual_seed(0)
    return LRSA(
        **{"dim": 1, "width": 12, "depth": 2, "heads": 3, "latents": 5, "feedforward": 10}
        | settings
    )


def rms(u, norm):
    return u / (u.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight


def maps(u, module):
    """The MLP, from its matrices."""
    first, _, second = module
    return gelu(u @ first.weight.T + first.bias) @ second.weight.T + second.bias


def attended(q, z, module, normalize):
    """Attention with loops over heads and queries; q is projected already."""
    k, v = z @ module.key.weight.T, z @ module.value.weight.T
    out = torch.zeros_like(q)
    for h in range(3):
        part = slice(4 * h, 4 * h + 4)
        qh, kh = q[..., part], k[..., part]
        if normalize:
            qh, kh = rms(qh, module.norm_query), rms(kh, module.norm_key)
        for i in range(q.shape[1]):
            scores = [(qh[:, i] * kh[:, j]).sum(-1) / math.sqrt(4) for j in range(z.shape[1])]
            weight = torch.stack(scores, -1).exp()
            weight = weight / weight.sum(-1, keepdim=True)
            out[:, i, part] = sum(weight[:, j, None] * v[:, j, part] for j in range(z.shape[1]))
    return out @ module.out.weight.T + module.out.bias


@pytest.mark.parametrize("variant", VARIANTS)
def test_block_equals_its_formula_token_by_token(variant):
    model = shaken(small(**variant))
    block, normalize = model.blocks[0], variant["normalize"]
    u = torch.randn(2, *(5, 4)[: variant["dim"]], 12, dtype=torch.float64)
    flat = u.flatten(1, -2)
    n = rms(flat, block.norm_down)
    z = attended(block.queries.expand(2, 5, 12), n, block.down, normalize)
    z = z + maps(rms(z, block.norm1), block.mlp1)
    t = rms(z, block.norm_within)
    z = z + attended(t @ block.within.query.weight.T, t, block.within, normalize)
    z = z + maps(rms(z, block.norm2), block.mlp2)
    t = rms(z, block.norm_up)
    v = flat + attended(n @ block.up.query.weight.T, t, block.up, normalize)
    w = rms(v, block.norm3)
    if variant["convolution"]:
        convolution, norm, first, _, second = block.pointwise
        channels_first = w.unflatten(1, u.shape[1:-1]).movedim(-1, 1)
        w = convolution.convolution(channels_first).flatten(2).mT
        w = gelu(layer_norm(w, (12,), norm.weight, norm.bias) @ first.weight.T)
        w = w @ second.weight.T + second.bias
    else:
        w = maps(w, block.pointwise)
    torch.testing.assert_close(block(u).flatten(1, -2), v + w)


def test_is_the_released_operator_written_out():
    torch.manual_seed(0)
    sizes = {"width": 12, "depth": 2, "heads": 3, "latents": 5, "feedforward": 10}
    model, plain = LRSA(**sizes).double(), PlainLRSA(**sizes).double()
    plain.copy_from(model)
    a = torch.randn(2, 6, 6, 1, dtype=torch.float64)
    torch.testing.assert_close(model(a, points(6, 6)), plain(a, points(6, 6)))
