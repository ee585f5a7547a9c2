"""UPT as its released code computes it, in other words: a list of edges, one head after another.

After github.com/ml-jku/UPT, commit 34e8549, src/models (encoders/cfd_pool_transformer_perceiver.py,
latent/transformer_model.py, decoders/cfd_transformer_perceiver.py), src/modules/gno/cfd_pool.py,
and blocks of the package kappamodules 0.1.112 that it calls: no condition, a last norm, no clamp.
Points lie in [0, 1]^dim and are shared by all samples. Supernodes are given. An edge leads to a
supernode from every point within the radius. The weights are those of a model of the project.
"""

import math

import torch
from torch.nn.functional import gelu


def affine(layer, u):
    return u @ layer.weight.T + layer.bias


def chain(layers, u):
    """Linear maps with GELU between."""
    linear = [layer for layer in layers if hasattr(layer, "weight")]
    for layer in linear[:-1]:
        u = gelu(affine(layer, u))
    return affine(linear[-1], u)


def norm(layer, u):
    centred = u - u.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return centred / deviation * layer.weight + layer.bias


def waves(positions, width, extent):
    """Of each coordinate first all sines, then all cosines; zeros at the end."""
    dim = positions.shape[1]
    each = width // dim
    each -= each % 2
    rows = []
    for position in extent * positions:
        row = []
        for t in position:
            phase = [t / 10000 ** (i / each) for i in range(0, each, 2)]
            row += [p.sin() for p in phase] + [p.cos() for p in phase]
        rows.append(torch.stack(row + [torch.zeros_like(position[0])] * (width - len(row))))
    return torch.stack(rows)


def attention(layer, q, z):
    q, k, v = affine(layer.query, q), affine(layer.key, z), affine(layer.value, z)
    d, heads = q.shape[-1] // layer.heads, []
    for i in range(layer.heads):
        part = slice(i * d, (i + 1) * d)
        scores = q[..., part] @ k[..., part].mT / math.sqrt(d)
        heads.append(scores.softmax(-1) @ v[..., part])
    return affine(layer.out, torch.cat(heads, -1))


def block(layer, z):
    n = norm(layer.norm1, z)
    z = z + attention(layer.attention, n, n)
    return z + chain(layer.mlp, norm(layer.norm2, z))


def perceiver(layer, q, z):
    q = q + attention(layer.attention, norm(layer.norm_query, q), norm(layer.norm_source, z))
    return q + chain(layer.mlp, norm(layer.norm_mlp, q))


def transformer(layers, z):
    z = affine(layers[0], z)
    for layer in layers[1:]:
        z = block(layer, z)
    return z


def edges(x, chosen, radius):
    """(supernode, point) of all pairs, sorted by the supernode; each is its own neighbour."""
    return [
        (s, p)
        for s in sorted(int(s) for s in chosen)
        for p in range(len(x))
        if math.dist(x[s].tolist(), x[p].tolist()) <= radius
    ]


class PlainUPT:
    """The function of a model of the project with scaling "unit"."""

    def __init__(self, model):
        self.model = model

    def messages(self, a, x, chosen):
        part, pairs = self.model.messages, edges(x, chosen, self.model.messages.radius)
        f = chain(part.embed, a) + waves(x, part.out.out_features, self.model.extent)
        sent = torch.cat([f[:, [p for _, p in pairs]], f[:, [s for s, _ in pairs]]], dim=-1)
        sent = chain([part.pair, part.hidden, part.out], sent)
        ends = torch.tensor([s for s, _ in pairs])
        return torch.stack([sent[:, ends == s].mean(1) for s in ends.unique()], dim=1)

    def __call__(self, a, x, y, chosen):
        m = self.model
        v = affine(m.widen, transformer(m.encoder, self.messages(a, x, chosen)))
        z = perceiver(m.pool, m.latents.expand(len(a), -1, -1), v)
        z = transformer(m.decoder, transformer(m.approximator, z))
        q = chain(m.query, waves(y, m.narrow.out_features, m.extent)).expand(len(a), -1, -1)
        u = perceiver(m.ask, q, affine(m.narrow, z))
        return affine(m.head[1], norm(m.head[0], u))
