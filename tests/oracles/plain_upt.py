"""UPT as its released code computes it, in other words: a list of edges, one head after another.

After github.com/ml-jku/UPT, commit 34e8549, src/models (encoders/cfd_pool_transformer_perceiver.py,
latent/transformer_model.py, decoders/cfd_transformer_perceiver.py), src/modules/gno/cfd_pool.py,
and blocks of the package kappamodules 0.1.112 that it calls: no condition, a last norm, no clamp.
Points lie in [0, 1]^dim and are shared by all samples. Supernodes are given. An edge leads to a
supernode from every point within the radius. The weights are those of a model of the project.
"""

import math

import torch

from operators.models.upt import supernodes
from tests.oracles.plain import affine, attended, chain


def waves(positions, width, extent):
    """Waves of each coordinate: all sines, then all cosines; zeros at the end."""
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
    return affine(layer.out, attended(q, k, v, layer.heads))


def block(layer, z):
    n = layer.norm1(z)
    z = z + attention(layer.attention, n, n)
    return z + chain(layer.mlp, layer.norm2(z))


def perceiver(layer, q, z):
    q = q + attention(layer.attention, layer.norm_query(q), layer.norm_source(z))
    return q + chain(layer.mlp, layer.norm_mlp(q))


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


def messages(model, a, x, chosen):
    part, pairs = model.messages, edges(x, chosen, model.messages.radius)
    f = chain(part.embed, a) + waves(x, part.out.out_features, model.extent)
    sent = torch.cat([f[:, [p for _, p in pairs]], f[:, [s for s, _ in pairs]]], dim=-1)
    sent = chain([part.pair, part.hidden, part.out], sent)
    ends = torch.tensor([s for s, _ in pairs])
    return torch.stack([sent[:, ends == s].mean(1) for s in ends.unique()], dim=1)


def plain_upt(m, a, x, y=None):
    """The function of a model of the project with scaling "unit"; y is x where it is not given.

    In training supernodes are drawn as the model draws them.
    """
    chosen = supernodes(x[None], m.supernodes, m.training).index[0]
    v = affine(m.widen, transformer(m.encoder, messages(m, a, x, chosen)))
    z = perceiver(m.pool, m.latents.expand(len(a), -1, -1), v)
    z = transformer(m.decoder, transformer(m.approximator, z))
    y = x if y is None else y
    q = chain(m.query, waves(y, m.narrow.out_features, m.extent)).expand(len(a), -1, -1)
    u = perceiver(m.ask, q, affine(m.narrow, z))
    return affine(m.head[1], m.head[0](u))
