"""scOT as its released code computes it, in other words: one place of a window after another.

After github.com/camlab-ethz/poseidon, commit b8fa28f, scOT/model.py, and the attention of Swin V2
in the library transformers that it uses; on a grid of the operator's own size, without stochastic
depth and residual. The weights are read by the names of the released files.
"""

import math
from functools import cache

import torch
from torch.nn.functional import conv2d, conv_transpose2d, gelu, normalize

from operators.models.scot import ScOT
from operators.training.fit import renamed


class PlainScOT:
    """The function of a model of the project; `names` are those of the released files."""

    def __init__(self, model: ScOT, names):
        tensors = dict(model.named_parameters())
        self.model, self.w = model, {name: tensors[renamed(model, name)] for name in names}

    def affine(self, name, u):
        return u @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)

    def norm(self, name, u, t):
        """γ(t) and β(t) beside the plain formula."""
        u = u - u.mean(-1, keepdim=True)
        u = u / (u.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        gamma, beta = (
            t[:, None] * self.w[f"{name}.{part}.weight"][:, 0] + self.w[f"{name}.{part}.bias"]
            for part in ("weight", "bias")
        )
        return gamma[:, None, None] * u + beta[:, None, None]

    def attention(self, name, u, w, shift, heads):
        """Place by place: the others of its window that the shift has not brought together."""
        n, width = u.shape[1], u.shape[-1]
        d, own = width // heads, f"{name}.attention.self"
        q, k, v = (self.affine(f"{own}.{part}", u) for part in ("query", "key", "value"))
        tau = self.w[f"{own}.logit_scale"].flatten().clamp(max=math.log(100)).exp()
        out = torch.zeros_like(u)

        def part(i):  # the shift moves the first `shift` places to the end
            return 0 if i - shift < n - w and i >= shift else 1 if i >= shift else 2

        def window(i):
            return ((i - shift) % n) // w

        @cache
        def bias(*away):
            away = torch.tensor([8.0 * a / (w - 1) for a in away], dtype=u.dtype)
            away = away.sign() * (away.abs() + 1).log2() / 3
            hidden = self.affine(f"{own}.continuous_position_bias_mlp.0", away).relu()
            return 16 * self.affine(f"{own}.continuous_position_bias_mlp.2", hidden).sigmoid()

        places = [(i, j) for i in range(n) for j in range(n)]
        for i, j in places:
            same = [p for p in places if window(p[0]) == window(i) and window(p[1]) == window(j)]
            biases = torch.stack(
                [bias((i - shift) % n - (p - shift) % n, (j - shift) % n - (r - shift) % n)
                 for p, r in same]
            )  # fmt: skip
            apart = torch.tensor(
                [0.0 if (part(p), part(r)) == (part(i), part(j)) else -200.0 for p, r in same]
            )
            rows, columns = map(list, zip(*same, strict=True))
            for h in range(heads):
                own_part = slice(h * d, (h + 1) * d)
                cosine = (
                    normalize(q[:, i, j, None, own_part], dim=-1)
                    * normalize(k[:, rows, columns, own_part], dim=-1)
                ).sum(-1)
                share = (tau[h] * cosine + biases[:, h] + apart).softmax(-1)
                out[:, i, j, own_part] = (share[..., None] * v[:, rows, columns, own_part]).sum(1)
        return self.affine(f"{name}.attention.output.dense", out)

    def block(self, name, u, t, w, shift, heads):
        v = self.attention(name, u, w, shift, heads)
        u = u + self.norm(f"{name}.layernorm_before", v, t)
        v = self.affine(f"{name}.output.dense", gelu(self.affine(f"{name}.intermediate.dense", u)))
        return u + self.norm(f"{name}.layernorm_after", v, t)

    def __call__(self, a, t, patch, depths, heads, skips, window):
        def convolved(name, u, **kwargs):
            bias = self.w.get(name + ".bias")
            v = conv2d(u.permute(0, 3, 1, 2), self.w[name + ".weight"], bias, **kwargs)
            return v.permute(0, 2, 3, 1)

        u = convolved("embeddings.patch_embeddings.projection", a, stride=patch)
        u, kept = self.norm("embeddings.norm", u, t), []
        for i, (depth, h) in enumerate(zip(depths, heads, strict=True)):
            first, n, name = u, u.shape[1], f"encoder.layers.{i}"
            w = min(window, n)
            for j in range(depth):
                shift = window // 2 if n > w and j % 2 else 0
                u = self.block(f"{name}.blocks.{j}", u, t, w, shift, h)
            skip = u
            for j in range(skips[i]):
                at = f"residual_blocks.{i}.{j}"
                v = convolved(f"{at}.dwconv", skip, padding=3, groups=skip.shape[-1])
                v = gelu(self.affine(f"{at}.pwconv1", self.norm(f"{at}.norm", v, t)))
                skip = skip + self.w[f"{at}.weight"] * self.affine(f"{at}.pwconv2", v)
            kept.append(skip)
            if i < len(depths) - 1:
                u = u + first
                u = torch.cat([u[:, 0::2, 0::2], u[:, 1::2, 0::2], u[:, 0::2, 1::2],
                               u[:, 1::2, 1::2]], -1)  # fmt: skip
                u = self.affine(f"{name}.downsample.reduction", u)
                u = self.norm(f"{name}.downsample.norm", u, t)
        u = kept.pop()
        for k, i in enumerate(reversed(range(len(depths)))):
            n, name = u.shape[1], f"decoder.layers.{k}"
            w = min(window, n)
            for j in range(depths[i]):  # the last block has no shift, the one before it has
                shift = window // 2 if n > w and (depths[i] - 1 - j) % 2 else 0
                u = self.block(f"{name}.blocks.{j}", u, t, w, shift, heads[i])
            if i:
                v = self.affine(f"{name}.upsample.upsample", u)
                c, u = u.shape[-1] // 2, torch.zeros(len(u), 2 * n, 2 * n, u.shape[-1] // 2).to(u)
                for p in range(2):
                    for r in range(2):
                        u[:, p::2, r::2] = v[..., (2 * p + r) * c : (2 * p + r + 1) * c]
                u = self.norm(f"{name}.upsample.norm", u, t)
                u = self.affine(f"{name}.upsample.mixup", u) + kept.pop()
        u = conv_transpose2d(
            u.permute(0, 3, 1, 2), self.w["patch_recovery.projection.weight"],
            self.w["patch_recovery.projection.bias"], stride=patch,
        )  # fmt: skip
        return convolved("patch_recovery.mixup", u.permute(0, 2, 3, 1), padding=2)
