"""GAOT as its released code computes it, in other words: one query after another.

After github.com/camlab-ethz/GAOT, commit aec18bb, src/model (gaot.py, layers/magno.py, agno.py,
gemb.py, attn.py): linear transform, statistical embedding, absolute positions, no conditional norm.
Points are shared by all samples and lie in [0, 1]^dim. Neighbours are found by comparing all
distances; each query sums over a list of them. The weights are those of a model of the project.
"""

import math

import torch
from torch.nn.functional import normalize, silu

from tests.oracles.plain import affine, attended, chain


def neighbours(sources, queries, radius):
    return [torch.nonzero((sources - q).norm(dim=1) <= radius)[:, 0] for q in queries]


def features(sources, queries, near):
    """Number, mean distance, its variance, offset of the centroid, sorted eigenvalues."""
    rows = torch.zeros(len(queries), 3 + 2 * sources.shape[1], dtype=sources.dtype)
    for row, q, index in zip(rows, queries, near, strict=True):
        if not len(index):
            continue
        p = sources[index]
        d = (p - q).norm(dim=1)
        centred = p - p.mean(0)
        values = torch.linalg.eigvalsh(centred.T @ centred / len(p)).flip(0)
        first = torch.stack([torch.tensor(len(p)).to(d), d.mean(), d.var(correction=0)])
        row[:] = torch.cat([first, p.mean(0) - q, values])
    std = rows.std(dim=0)
    return (rows - rows.mean(0)) / torch.where(std < 1e-6, 1, std)


class PlainGAOT:
    """The function of a model of the project with scaling "unit"."""

    def __init__(self, model):
        self.model = model

    def sums(self, part, f, sources, queries, radius):
        """Attention and kernel over neighbours, beside the embedding of their geometry."""
        near = neighbours(sources, queries, radius)
        found = torch.zeros(len(f), len(queries), f.shape[-1], dtype=f.dtype)
        for i, (q, index) in enumerate(zip(queries, near, strict=True)):
            if not len(index):
                continue
            p = sources[index]
            ends = torch.cat([p, q.expand_as(p)], dim=1)
            if part.query is None:
                scores = (normalize(p, dim=1) * normalize(q, dim=0)).sum(1)
            else:
                scores = affine(part.key, p) @ affine(part.query, q) / math.sqrt(64)
            kernel = chain(part.kernel, ends) * scores.softmax(0)[:, None]
            found[:, i] = (kernel * f[:, index]).sum(1)
        g = chain(part.geometry, features(sources, queries, near), torch.relu).relu()
        return affine(part.mix, torch.cat([found, g.expand(len(f), -1, -1)], dim=-1))

    def scales(self, end, part, f, sources, queries):
        parts = [self.sums(part, f, sources, queries, r) for r in self.model.radii]
        if not len(self.model.of_scales):
            return sum(parts) / len(parts)
        weights = chain(self.model.of_scales[end], queries, torch.relu).softmax(-1)
        return sum(w[:, None] * u for w, u in zip(weights.T, parts, strict=True))

    def patches(self, u):
        """Patches of the lattice, one after another, and the places of their nodes."""
        patch = self.model.processor.patch
        counts = [n // patch for n in self.model.processor.sizes]
        nodes = torch.arange(u.shape[1]).view([n * patch for n in counts])
        places = torch.cartesian_prod(*map(torch.arange, counts)).view(-1, len(counts))
        index = torch.stack(
            [nodes[tuple(slice(patch * i, patch * (i + 1)) for i in p)].flatten() for p in places]
        )
        return u[:, index].flatten(2), index

    def positions(self, count, like):
        """[sin i₁ω, cos i₁ω, sin i₂ω, cos i₂ω] with falling ω."""
        places = torch.cartesian_prod(*map(torch.arange, count)).view(-1, len(count))
        waves = like.shape[-1] // (2 * len(count))
        rows = []
        for place in places.to(like):
            row = []
            for i in place:
                phase = [i / 10000 ** (j / waves) for j in range(waves)]
                row += [p.sin() for p in phase] + [p.cos() for p in phase]
            rows.append(torch.stack(row))
        return torch.stack(rows)

    def block(self, block, u, skip=None):
        if skip is not None:
            u = affine(block.join, torch.cat([u, skip], dim=-1))

        def norm(v, module):
            return v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt() * module.weight

        q, k, v = affine(block.qkv, norm(u, block.norm1)).chunk(3, dim=-1)
        u = norm(u + affine(block.out, attended(q, k, v, block.heads)), block.norm2)
        w1, w3 = block.gates.weight.chunk(2)
        return u + affine(block.down, silu(u @ w1.T) * (u @ w3.T))

    def __call__(self, a, x, y):
        m = self.model
        axes = [torch.linspace(-1, 1, n, dtype=x.dtype) for n in m.lattice.sizes]
        nodes = torch.cartesian_prod(*axes).view(-1, len(axes))
        x, y = 2 * x - 1, 2 * y - 1
        u = self.scales(0, m.encoder, affine(m.lift, a), x, nodes)
        u, index = self.patches(u)
        u = affine(m.processor.embed, u)
        u = u + self.positions([n // m.processor.patch for n in m.processor.sizes], u)
        wide = not isinstance(m.processor.into, torch.nn.Identity)
        u = affine(m.processor.into, u) if wide else u
        kept = []
        for block in m.processor.first:
            u = self.block(block, u)
            kept.append(u)
        for block in m.processor.middle:
            u = self.block(block, u)
        for block in m.processor.last:
            u = self.block(block, u, kept.pop())
        u = affine(m.processor.outof, u) if wide else u
        latent = torch.zeros(len(a), len(nodes), m.lift.out_features, dtype=a.dtype)
        latent = latent.index_copy(1, index.flatten(), u.reshape(len(a), index.numel(), -1))
        return affine(m.head, self.scales(1, m.decoder, latent, nodes, y))
