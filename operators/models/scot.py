r"""scOT, the backbone of Poseidon: a multiscale Transformer with attention in shifted windows.

References: M. Herde, B. Raonić, T. Rohner, R. Käppeli, R. Molinaro, E. de Bézenac, S. Mishra,
Poseidon: Efficient Foundation Models for PDEs, NeurIPS 2024, arXiv:2405.19101; code in
github.com/camlab-ethz/poseidon. Z. Liu et al., Swin Transformer V2, CVPR 2022, equations (1)-(4).
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import (
    MESHES,
    Function,
    Mask,
    Operator,
    Points,
    Preset,
    Targets,
    at_least,
    check_input,
)
from operators.nn.encoder import widened
from operators.nn.pointwise import mlp
from operators.nn.resample import joined, resized, windows
from operators.nn.tokens import check_heads, merged, split

Field = Float[Tensor, "batch n n c"]
Times = Float[Tensor, "batch 1"]

_SIZES = "Herde et al. 2024, table of sizes, and released code"
_EXCLUDED = -200.0  # added to scores of pairs that the shift joins: twice -100, as released
_NAMES = (
    ("embeddings.patch_embeddings.projection", "patches"),
    ("embeddings.norm", "norm"),
    (".layers.", "."),
    (".self.continuous_position_bias_mlp", ".bias"),
    (".self.logit_scale", ".scale"),
    (".self.", "."),
    ("attention.output.dense", "attention.out"),
    ("intermediate.dense", "mlp.0"),
    ("output.dense", "mlp.2"),
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
    (".downsample.reduction", ".resize.expand"),
    (".upsample.upsample", ".resize.expand"),
    (".upsample.mixup", ".resize.mix"),
    (".downsample.", ".resize."),
    (".upsample.", ".resize."),
    ("patch_recovery.projection", "recovery"),
    ("patch_recovery.mixup", "mix"),
    ("residual_blocks", "skips"),
)


class Norm(nn.Module):
    """Layer norm γ(t) (u - mean)/deviation + β(t) over features; γ and β are linear in time t.

    Args:
        width: Number of features.
        timed: Whether γ and β depend on t; otherwise this is a plain layer norm.
    """

    def __init__(self, width: int, timed: bool) -> None:
        super().__init__()
        self.timed, self.width = timed, width
        self.weight = nn.Linear(1, width) if timed else nn.Parameter(torch.ones(width))
        self.bias = nn.Linear(1, width) if timed else nn.Parameter(torch.zeros(width))

    def forward(self, u: Field, t: Times) -> Field:
        weight, bias = self.weight, self.bias
        if isinstance(weight, nn.Linear) and isinstance(bias, nn.Linear):
            scale, shift = (m(t.to(u))[:, None, None] for m in (weight, bias))
            return nn.functional.layer_norm(u, (self.width,)) * scale + shift
        assert isinstance(weight, Tensor)
        assert isinstance(bias, Tensor)
        return nn.functional.layer_norm(u, (self.width,), weight, bias)


class CosineAttention(nn.Module):
    """softmax(τ cos(q, k) + 16 sigmoid(B(Δ))) V within windows; each head learns its τ <= 100.

    Δ is the offset of two patches in a window, scaled to sign(Δ) log₂(1 + 8 |Δ|/(w - 1)) / 3 along
    each axis. B is a small MLP.

    Args:
        width, heads: Features, and number of heads.
        window: Number w of patches of a window along each axis.
    """

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.scale = nn.Parameter(torch.full((heads, 1, 1), math.log(10)))
        self.bias = nn.Sequential(nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, heads, bias=False))
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def biases(self, like: Tensor) -> Float[Tensor, "heads p p"]:
        """The learned bias of attention between each two patches of a window, between 0 and 16."""
        w = self.window
        offset = torch.arange(1 - w, w, device=like.device).to(like) * (8 / max(w - 1, 1))
        offset = offset.sign() * torch.log2(offset.abs() + 1) / 3
        table = self.bias(torch.stack(torch.meshgrid(offset, offset, indexing="ij"), dim=-1))
        index = torch.arange(w, device=like.device)
        row = index[:, None] - index + w - 1  # (w, w), rows of the table
        pairs = table[row[:, None, :, None], row[None, :, None, :]]  # (w, w, w, w, heads)
        return 16 * torch.sigmoid(pairs.flatten(0, 1).flatten(1, 2).permute(2, 0, 1))

    def exclusions(self, counts: int, shift: int, like: Tensor) -> Float[Tensor, "windows 1 p p"]:
        """-200 for pairs of patches in a window that lie at opposite ends of the grid, otherwise 0.

        The grid has `counts` windows along each axis, shifted by `shift` patches.
        """
        w = self.window
        index = torch.arange(counts * w, device=like.device)
        region = (index >= (counts - 1) * w).long() + (index >= counts * w - shift)
        region = (3 * region[:, None] + region).unflatten(0, (counts, w)).unflatten(2, (counts, w))
        region = region.transpose(1, 2).flatten(0, 1).flatten(1)  # (windows, p)
        different = region[:, None, :, None] != region[:, None, None, :]
        return different.to(like) * _EXCLUDED

    def forward(self, u: Field, shift: int) -> Field:
        batch, w = len(u), self.window
        counts = u.shape[1] // w
        u = u.roll((-shift, -shift), dims=(1, 2)) if shift else u
        u = windows(u, w).flatten(0, 2)
        q, k, v = (split(p(u), self.heads) for p in (self.query, self.key, self.value))
        tau = self.scale.clamp(max=math.log(100)).exp()
        q = nn.functional.normalize(q, dim=-1) * tau
        k = nn.functional.normalize(k, dim=-1)
        scores = self.biases(u)[None]
        if shift:
            scores = scores + self.exclusions(counts, shift, u)
        # windows and heads share an axis: the scores are the same for all samples
        scores = scores.expand(counts**2, -1, -1, -1).flatten(0, 1)[None].to(q)
        q, k, v = (x.reshape(batch, counts**2 * self.heads, *x.shape[2:]) for x in (q, k, v))
        u = nn.functional.scaled_dot_product_attention(q, k, v, scores, scale=1.0)
        u = merged(u.reshape(batch * counts**2, self.heads, w * w, -1))
        u = joined(u.unflatten(0, (batch, counts, counts)), w)
        u = u.roll((shift, shift), dims=(1, 2)) if shift else u
        return self.out(u)


class Block(nn.Module):
    """u <- u + N₁(attention(u)), u <- u + N₂(MLP(u)), with attention in shifted windows."""

    def __init__(
        self, width: int, heads: int, window: int, shift: int, ratio: int, timed: bool
    ) -> None:
        super().__init__()
        self.shift = shift
        self.attention = CosineAttention(width, heads, window)
        self.norm1, self.norm2 = Norm(width, timed), Norm(width, timed)
        self.mlp = mlp(width, ratio * width, width)

    def forward(self, u: Field, t: Times) -> Field:
        u = u + self.norm1(self.attention(u, self.shift), t)
        return u + self.norm2(self.mlp(u), t)


class Merge(nn.Module):
    """Map N(W u) of 2 x 2 patches to one patch with twice as many features."""

    def __init__(self, width: int, timed: bool) -> None:
        super().__init__()
        self.expand = nn.Linear(4 * width, 2 * width, bias=False)
        self.norm = Norm(2 * width, timed)

    def forward(self, u: Field, t: Times) -> Float[Tensor, "batch m m _"]:
        parts = [u[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.norm(self.expand(torch.cat(parts, dim=-1)), t)


class Unmerge(nn.Module):
    """Map W' N(W u) of a patch to 2 x 2 patches with half as many features."""

    def __init__(self, width: int, timed: bool) -> None:
        super().__init__()
        self.expand = nn.Linear(width, 2 * width, bias=False)
        self.norm = Norm(width // 2, timed)
        self.mix = nn.Linear(width // 2, width // 2, bias=False)

    def forward(self, u: Field, t: Times) -> Float[Tensor, "batch m m _"]:
        return self.mix(self.norm(joined(self.expand(u).unflatten(-1, (4, -1)), 2), t))


class Stage(nn.Module):
    """Blocks on one grid, followed by a change of resolution if there is one."""

    def __init__(self, blocks: list[Block], resize: nn.Module | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.resize = resize

    def forward(self, u: Field, t: Times) -> Field:
        for block in self.blocks:
            u = block(u, t)
        return u

    def resized(self, u: Field, t: Times) -> Float[Tensor, "batch m m _"]:
        return u if self.resize is None else self.resize(u, t)


class ConvNeXt(nn.Module):
    """u + s ⊙ W₂ GELU(W₁ N(K u)), with a 7 x 7 convolution K of each feature; s starts at 1e-6."""

    def __init__(self, width: int, timed: bool) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = Norm(width, timed)
        self.pwconv1, self.pwconv2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.weight = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, u: Field, t: Times) -> Field:
        v = self.norm(self.dwconv(u.movedim(-1, 1)).movedim(1, -1), t)
        return u + self.weight * self.pwconv2(nn.functional.gelu(self.pwconv1(v)))


def check_stages(depths: list[int], heads: list[int], skips: list[int]) -> None:
    """Raise ValueError unless all lists have one number for each stage."""
    counts = len(depths), len(heads), len(skips)
    if not depths or len(set(counts)) > 1:
        raise ValueError(
            "depths, heads and skips need one number for each stage, got "
            f"{counts[0]}, {counts[1]} and {counts[2]}"
        )
    at_least(0, depths=min(depths), skips=min(skips))


def grids_of(size: int, patch: int, stages: int, window: int) -> tuple[list[int], list[int]]:
    """Two lists: patches along an axis of the grid, and along an axis of a window, in each stage.

    Raises:
        ValueError: If the stages do not divide `size`, or `window` does not divide a grid.
    """
    grids = [size // patch // 2**i for i in range(stages)]
    if size != patch * grids[-1] * 2 ** (stages - 1) or not grids[-1]:
        raise ValueError(f"patch * 2^{stages - 1} must divide size, got patch={patch}, size={size}")
    windows = [min(window, n) for n in grids]
    for n, w in zip(grids, windows, strict=True):
        if n % w:
            raise ValueError(f"window must divide the grids {grids} of the stages, got {w}")
    return grids, windows


def fourier_resized(u: Function, axis: int, m: int) -> Float[Tensor, "batch *resized c"]:
    """Trigonometric interpolant of u at m points of an axis; modes not resolved there are dropped.

    >>> wave = torch.cos(2 * torch.pi * torch.arange(4) / 4)[None, :, None]
    >>> fourier_resized(wave, 1, 8)[0, :, 0].round(decimals=4).abs()
    tensor([1.0000, 0.7071, 0.0000, 0.7071, 1.0000, 0.7071, 0.0000, 0.7071])
    """
    n = u.shape[axis]
    if n == m:
        return u
    v = torch.fft.rfft(widened(u).movedim(axis, -1), norm="forward")
    v = v[..., : min(n, m) // 2 + 1]
    # the highest mode is single on the coarse grid, half of a pair on the fine one
    if n < m and n % 2 == 0:
        v = torch.cat([v[..., :-1], v[..., -1:] / 2], dim=-1)
    return torch.fft.irfft(v, n=m, norm="forward").movedim(-1, axis)


class ScOT(Operator):
    """A U-Net on patches; all its stages consist of attention in shifted windows.

    The operator is u(t) = G(a, t), where t enters every layer norm. The defaults are those of
    Poseidon-T. The network acts on a grid of `size` x `size` points. Functions on other grids,
    square or not, are resampled to this grid and back, as in the released code for square grids.
    Values thus converge as the grid is refined, but features that `size` does not resolve are lost.
    Coordinates are not used: on a mesh the operator acts along the indices.

    Args:
        size: Points along each axis of the grid of the network.
        resampling: "fourier": trigonometric interpolation of periodic functions, as published.
            "linear": linear interpolation between the points.
        time: "channel": t is the last channel of a, the same at all points, as in tasks `time`.
            "one": t = 1, as published for steady problems. "none": plain layer norms.
        patch: Points of a patch along each axis.
        width: Features of a patch in the first stage; each further stage has twice as many.
        depths, heads: Number of blocks and of heads in each stage, the same on the way down and up.
        skips: ConvNeXt blocks in the skip connection of each stage.
        window: Number of patches of a window along each axis. On grids with fewer patches the
            window is the whole grid.
        ratio: Hidden features of MLPs, in multiples of their input features.

    Differences from the released code (commit b8fa28f). The grid of each stage must consist of
    whole windows; the released code pads other grids. Resampling reduces the mode that is the
    highest along both axes to its even part. Stochastic depth (0 in the released scripts),
    prediction of u - a, and the loss by groups of channels are omitted. As published, norms start
    with γ of about 0.02 t: the blocks start close to the identity.
    """

    dims = (2,)
    domains = MESHES
    points_by_sample = True
    released_names = _NAMES
    by_channels = ("patches.", "recovery.", "mix.")
    presets: ClassVar[Mapping[str, Preset]] = {
        "poseidon-t": Preset({}, 20_774_444, _SIZES, (4, 4), 2),
        "poseidon-s": Preset({"depths": [8] * 4}, 39_901_076, f"{_SIZES}; no weights", (4, 4), 2),
        "poseidon-b": Preset({"depths": [8] * 4, "width": 96}, 157_729_988, _SIZES, (4, 4), 2),
        "poseidon-l": Preset({"depths": [8] * 4, "width": 192}, 628_575_524, _SIZES, (4, 4), 2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        size: int = 128,
        resampling: Literal["fourier", "linear"] = "fourier",
        time: Literal["channel", "one", "none"] = "one",
        patch: int = 4,
        width: int = 48,
        depths: list[int] = [4, 4, 4, 4],  # noqa: B006 - never changed
        heads: list[int] = [3, 6, 12, 24],  # noqa: B006
        skips: list[int] = [2, 2, 2, 0],  # noqa: B006
        window: int = 16,
        ratio: int = 4,
    ) -> None:
        super().__init__(in_channels, out_channels, dim)
        stages = len(depths)
        at_least(1, size=size, patch=patch, width=width, window=window, ratio=ratio)
        check_stages(depths, heads, skips)
        grids, windows = grids_of(size, patch, stages, window)
        self.size, self.resampling, self.time = size, resampling, time
        timed = time != "none"
        self.value_channels = in_channels - (time == "channel")
        self.patches = nn.Conv2d(max(1, self.value_channels), width, patch, stride=patch)
        self.norm = Norm(width, timed)

        def blocks(i: int, shifted: int) -> list[Block]:
            """The blocks of stage i. The windows of block j are shifted if j % 2 == `shifted`."""
            features = width * 2**i
            check_heads(features, heads[i])
            return [
                Block(features, heads[i], windows[i], shift, ratio, timed)
                for j in range(depths[i])
                for shift in [window // 2 if grids[i] > window and j % 2 == shifted else 0]
            ]

        self.encoder = nn.ModuleList(
            Stage(blocks(i, 1), Merge(width * 2**i, timed) if i < stages - 1 else None)
            for i in range(stages)
        )
        self.decoder = nn.ModuleList(
            Stage(blocks(i, depths[i] % 2), Unmerge(width * 2**i, timed) if i else None)
            for i in reversed(range(stages))
        )
        self.skips = nn.ModuleList(
            nn.ModuleList(ConvNeXt(width * 2**i, timed) for _ in range(skips[i]))
            for i in range(stages)
        )
        self.recovery = nn.ConvTranspose2d(width, out_channels, patch, stride=patch)
        self.mix = nn.Conv2d(out_channels, out_channels, 5, padding=2, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def resampled(self, u: Function, n1: int, n2: int) -> Float[Tensor, "batch {n1} {n2} c"]:
        if self.resampling == "linear":
            return resized(u, n1, n2)
        return fourier_resized(fourier_resized(u, 1, n1), 2, n2)

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch *grid c_out"]:
        check_input(self, a, x, y, mask)
        if not self.value_channels:
            raise ValueError("time='channel' needs another channel besides the time, got 1 channel")
        t = a[:, 0, 0, -1:] if self.time == "channel" else torch.ones_like(a[:, 0, 0, :1])
        u = self.resampled(a[..., : self.value_channels], self.size, self.size)
        u = self.norm(self.patches(u.movedim(-1, 1)).movedim(1, -1), t)
        skips: list[Tensor] = []
        for stage, skip in zip(self.encoder, self.skips, strict=True):
            assert isinstance(stage, Stage)
            assert isinstance(skip, nn.ModuleList)
            v = stage(u, t)
            u = stage.resized(v + u, t)
            for block in skip:
                v = block(v, t)
            skips.append(v)
        u = skips.pop()
        for stage in self.decoder:
            assert isinstance(stage, Stage)
            u = stage.resized(stage(u, t), t)
            u = u + skips.pop() if skips else u
        u = self.mix(self.recovery(u.movedim(-1, 1))).movedim(1, -1)
        return self.resampled(u, *a.shape[1:3])
