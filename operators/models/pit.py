r"""The Position-induced Transformer: attention to a latent mesh and back, weighted by distances.

References: J. Chen and K. Wu, Positional Knowledge is All You Need: Position-induced Transformer
(PiT) for Operator Learning, ICML 2024; code in
github.com/junfeng-chen/position_induced_transformer (the TensorFlow version is that of the paper).
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Mask, Points, Preset, Targets, at_least, check_input
from operators.nn.neighbours import farthest_points
from operators.nn.pointwise import InstanceNorm
from operators.nn.pointwise import mlp as two_layers
from operators.nn.resample import for_each_axis
from operators.nn.tokens import (
    Coordinates,
    PointOperator,
    PositionAttention,
    PositionAverage,
    Positions,
    Real,
    SelfAttention,
    SelfPositionAttention,
    SquaredDistance,
    TokenOperator,
    TokenPoints,
    Values,
    check_heads,
    check_localities,
    flattened,
    mesh,
)
from pdegen.domains import Domain

# The PyTorch version of the Position-induced Transformer, with attention based on distances.


_CODE = "released code of 2025 (05d1c2d), train_{}.py"
_OURS = "not published: {}"
_SQUARE = {"width": 64, "latent": 16, "ends": True}
_NACA_2025 = {"width": 128, "heads": 1, "latent": "output", "stride": 4, "coordinates": "none"}


def start_normal(layers: nn.Sequential) -> nn.Sequential:
    """Draw the weights of linear maps from N(0, 2/c_in); leave the biases unchanged."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return layers


_LATENT_POINTS = 1024  # of the latent mesh, where its number along an axis is not declared


def _suited(settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
    """A latent mesh of at most `_LATENT_POINTS` points, if one of two or three axes has more."""
    latent, dim = settings["latent"], domain.dim
    if dim == 1 or not isinstance(latent, int) or latent**dim <= _LATENT_POINTS:
        return {}
    return {"latent": round(_LATENT_POINTS ** (1 / dim))}


class PiT2025(PointOperator):
    """Local averages to a latent mesh and back, with MLPs of the averages of all heads.

        u <- σ MLP(A a),    u <- σ MLP([u, A u]) for each block,    u <- MLP(A u)

    with A v = [A₁ v, ..., A_h v], A_i = softmax(-λ_i D) over the points, and σ = GELU. Features are
    averaged without a projection. There is no embedding: the first A acts on a with the coordinates
    appended. Otherwise the network is that of `PiT`. The defaults are the released settings for the
    inviscid Burgers equation: 95,375 parameters.

    The released code gives the same function if no two distances are equal. Where distances equal
    the quantile, rounding decides which of these points that code averages over. Here either all of
    them or none are included. In the released code coordinates of shock tubes lie in [-5, 5]:
    `scale` 0.01 gives the same distances here, but the x appended to a lies in [0, 1]. In the
    released code for airfoils a is given at the 120 points of the outline. This is possible here
    too, but in the data here a is given on the mesh. The released network for the wake of a
    cylinder is omitted; it has a residual sum and reads a coarse mesh from a file.

    Args:
        heads: Number h of heads in every average.
        latent: Points of the latent mesh along each axis, one number or a list. "output", as
            published for meshes: the latent mesh is every `stride`-th output point along each axis.
        ends: Whether the n latent points along an axis include both ends and lie at j/(n - 1).
            Otherwise they lie at j/n.
        stride: Distance between latent points in steps of the output grid, for latent "output"
            only.
        encoder_locality: Percentage of the points x that a latent point averages over.
        decoder_locality: Percentage of the latent points that a point of the output averages over.
        periodic: Whether distances are those on the unit torus.
        scale: Squared length by which the squared distances D are divided.
        normalization: "instance", as published for vorticity: features are normalised to mean 0 and
            variance 1 over the latent points before the first block and after the last one. "none":
            no normalisation.
    """

    other_points = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "inviscid-burgers": Preset({}, 95_375, _CODE.format("burgers")),
        "shock-tube": Preset(
            {"width": 32, "heads": 1, "depth": 2, "periodic": False, "scale": 0.01},
            8_647,
            _CODE.format("sod"),
            (3, 3),
        ),
        "darcy": Preset(
            _SQUARE | {"depth": 4, "periodic": False}, 78_989, _CODE.format("darcy"), dim=2
        ),
        "vorticity": Preset(
            {"width": 256, "depth": 4, "latent": 16, "normalization": "instance"},
            1_254_413,
            _CODE.format("vorticity"),
            (10, 1),
            dim=2,
        ),
        "elasticity": Preset(
            {"width": 256, "depth": 4, "latent": "output", "periodic": False},
            1_270_797,
            _CODE.format("elasticity"),
            (42, 1),
            dim=2,
        ),
        "airfoil": Preset(
            _NACA_2025 | {"depth": 4, "periodic": False},
            231_562,
            _CODE.format("naca"),
            (2, 4),
            dim=2,
        ),
        "pipe": Preset(
            _NACA_2025 | {"depth": 4, "periodic": False},
            231_175,
            _OURS.format("as airfoil"),
            (2, 1),
            dim=2,
        ),
        "plasticity": Preset(
            _NACA_2025 | {"depth": 4, "periodic": False, "coordinates": "raw"},
            231_560,
            _OURS.format("as airfoil"),
            (2, 2),
            dim=2,
        ),
    }

    @classmethod
    def suited(cls, settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
        return _suited(settings, domain)

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        width: int = 64,
        heads: int = 2,
        depth: int = 5,
        latent: int | list[int] | Literal["output"] = 256,
        ends: bool = False,
        stride: int = 1,
        encoder_locality: float = 2.0,
        decoder_locality: float = 2.0,
        periodic: bool = True,
        scale: float = 1.0,
        normalization: Literal["none", "instance"] = "none",
        coordinates: Coordinates = "raw",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim))
        at_least(1, width=width, heads=heads, stride=stride)
        at_least(0, depth=depth)
        points = 1 if isinstance(latent, str) else latent  # "output" needs no mesh
        sizes = for_each_axis("latent", points, dim)
        at_least(1, latent=min(sizes))
        if stride > 1 and latent != "output":
            raise ValueError(f'stride={stride} needs latent "output", got {latent}')
        check_localities(encoder_locality=encoder_locality, decoder_locality=decoder_locality)
        self.latent, self.stride = None if latent == "output" else sizes, stride
        # from the points j/n of `mesh` to j/(n - 1) = (j/n) n/(n - 1)
        self.stretch = [n / (n - 1) if ends and n > 1 else 1.0 for n in sizes]
        distance = SquaredDistance(periodic, scale)
        self.down = PositionAverage(heads, encoder_locality, distance)
        self.lift = start_normal(two_layers(heads * self.features, width, width))
        self.averages = nn.ModuleList(PositionAverage(heads, 100, distance) for _ in range(depth))
        self.mixers = nn.ModuleList(
            start_normal(two_layers((1 + heads) * width, width, width)) for _ in range(depth)
        )
        self.up = PositionAverage(heads, decoder_locality, distance)
        self.head = start_normal(two_layers(heads * width, width, out_channels))
        self.norm = InstanceNorm() if normalization == "instance" else None

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        check_input(self, a, x, y, mask)
        target, by_sample = x if y is None else y, x.ndim == a.ndim
        samples = (slice(None),) * by_sample  # the axis of samples, where y has one
        points, outputs = flattened(x, by_sample), flattened(target, by_sample)
        real, within = None if mask is None else mask.flatten(1), None
        if self.latent is None:
            strided = (slice(None, None, self.stride),) * (target.ndim - 1 - by_sample)
            latent = flattened(target[(*samples, *strided)], by_sample)
            if mask is not None and y is None:
                within = mask[(slice(None), *strided)].flatten(1)
        else:
            axes = mesh(self.latent, points).flatten(0, -2).unbind(-1)
            latent = torch.stack([z * s for z, s in zip(axes, self.stretch, strict=True)], dim=-1)
        v = self.positions.beside(a, x).flatten(1, -2)
        u = nn.functional.gelu(self.lift(self.down(v, points, latent, real)))
        u = u if self.norm is None else self.norm(u, within)
        for average, mix in zip(self.averages, self.mixers, strict=True):
            u = torch.cat([u, average(u, latent, latent, within)], dim=-1)
            u = nn.functional.gelu(mix(u))
        u = u if self.norm is None else self.norm(u, within)
        u = self.head(self.up(u, latent, outputs, within))
        return u.reshape(len(u), *target.shape[int(by_sample) : -1], -1)


_TABLES = "Chen and Wu 2024, tables 1 and 2, and released code"
_PLAIN = {"periodic": False, "sharpening": False}
_SHOCK = {"periodic": False, "encoder_locality": 4.0, "decoder_locality": 2.0}
_DARCY = _PLAIN | {"width": 128, "latent": 32, "encoder_locality": 2.0, "decoder_locality": 5.0}
_VORTICITY = {"width": 256, "heads": 1, "latent": 16, "scale": 1.0, "sharpening": False}
_LOCAL = _PLAIN | {"encoder_locality": 2.0, "decoder_locality": 2.0}
_ELASTICITY = _LOCAL | {"width": 512, "heads": 8, "latent": "input"}
_NACA = _LOCAL | {"width": 256, "latent": [111, 26], "encoder_locality": 0.5, "indices": True}
_SELF = {"attention": "self-position"}
_A, _B = {"attention": "self-a"}, {"attention": "self-b"}
_SELF_PIT = "Chen and Wu 2024, section 4.5, and released code; the count is not published"


def dense(in_channels: int, out_channels: int) -> nn.Linear:
    """A linear layer with initial bias 0 and initial weights drawn from N(0, 2/c_in)."""
    linear = nn.Linear(in_channels, out_channels)
    nn.init.kaiming_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def mlp(width: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(dense(width, width), nn.GELU(), dense(width, out_channels))


class Block(nn.Module):
    """u <- GELU(MLP(attention(u)) + W u + b), with attention among the points of u."""

    def __init__(self, attention: nn.Module, width: int) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = mlp(width, width)
        self.skip = dense(width, width)

    def forward(self, u: Values, x: TokenPoints, mask: Real | None = None) -> Values:
        return nn.functional.gelu(self.mlp(self.attention(u, x, x, mask)) + self.skip(u))


def _sizes(
    latent: int | list[int] | Literal["input"], dim: int, farthest: bool, at_input: bool
) -> list[int]:
    """Points of the latent mesh along each axis."""
    if farthest and isinstance(latent, list):
        raise ValueError(f'latent_points="farthest" needs one number latent, got {latent}')
    if farthest and at_input:
        raise ValueError(
            'latent_points="farthest" needs a latent mesh, which latent "input" and the attentions '
            "self-position and self-a do not have"
        )
    points = 1 if isinstance(latent, str) else latent  # "input" needs no mesh
    sizes = for_each_axis("latent", points, dim)
    at_least(1, latent=min(sizes))
    return list(sizes)


class PiT(TokenOperator):
    """Local attention to a latent mesh, global attention on it, and local attention to the output.

    The attention matrix is softmax(-λD) instead of softmax(QKᵀ), with squared distances D.
    Attention is then an average over a neighbourhood of learned width, linear in the values, with
    one matrix for the whole batch. Only the pointwise MLPs between attentions are nonlinear. The
    defaults are the published settings for the inviscid Burgers equation: 95,503 parameters.

    The same weights act on every grid and every set of output points. Values converge under
    refinement only if the points x, over which the input is averaged, are spread evenly. With
    `sharpening` the output points y must be spread evenly too, because a last attention averages
    over neighbouring points y.

    If points differ between samples or some are padding, each sample has its own attention
    matrices. With `indices` all samples share the same matrices.

    Coordinates must lie in [0, 1] along each axis. As in the released code, the latent mesh has the
    points j/latent, whatever the grid x. The text proposes farthest-point sampling for points of
    unknown density (section 3): with `latent_points` "farthest", the latent points are chosen among
    the points x, and those of a sample depend on its points alone. They cover any shape evenly, but
    values do not converge as points are added, because other points are then chosen.

    Args:
        latent: Points of the latent mesh along each axis, one number or a list; the default is for
            one dimension. "input", as published for elasticity: the points x are the latent mesh,
            the first and last attentions are blocks with MLP and skip connection, and the output is
            at x only.
        latent_points: "mesh": the latent points are a mesh on [0, 1]^dim. "farthest": `latent` is
            the number of points that `operators.nn.neighbours.farthest_points` chooses. Evaluation
            refuses samples with fewer points. Training does not count the points of a padded
            sample, and chooses some of them repeatedly if they are too few.
        attention: "position", or one of three variants that the paper compares. "self-position"
            (Self-PiT): all attention matrices are softmax(QKᵀ/√d - λD). "self-a": all are
            softmax(QKᵀ/√d). "self-position" and "self-a" act at the points x, ignore `latent`, and
            have a cost quadratic in the number of points. "self-b": only the attention on the
            latent mesh is softmax(QKᵀ/√d).
        encoder_locality: Percentage of the points x that a point of the latent mesh attends to.
        decoder_locality: Percentage of the latent points that a point of the output attends to.
            With `sharpening` also the percentage of the points y in the last attention.
        periodic: Whether distances are those on the unit torus.
        scale: Squared length by which the squared distances D are divided. "diameter" is the
            largest squared distance in the domain: dim on the box, dim/4 on the torus.
        sharpening: Whether a block of local attention among the output points comes last, as
            published for shocks in one dimension. Its cost is quadratic in the number of these
            points.

    The code of 2024 has λ = r² for the shock tube and elasticity, and λ = tan r for airfoils. Here
    λ is always the same function of r (see `operators.nn.tokens`). The PyTorch version of 2025 is
    another network, `operators.models.pit.PiT2025`.
    """

    dims = (1, 2, 3)
    added = ("latent_points",)
    presets: ClassVar[Mapping[str, Preset]] = {
        "inviscid-burgers": Preset({}, 95_503, _TABLES),
        "inviscid-burgers-self-pit": Preset(_SELF, 152_847, _SELF_PIT),
        "inviscid-burgers-self-a": Preset(_A, 152_833, _TABLES),
        "inviscid-burgers-self-b": Preset(_B, 128_263, _TABLES),
        "shock-tube": Preset(_SHOCK, 95_631, _TABLES, (3, 1)),
        "shock-tube-self-pit": Preset(_SHOCK | _SELF, 152_975, _SELF_PIT, (3, 1)),
        "shock-tube-self-a": Preset(_SHOCK | _A, 152_961, _TABLES, (3, 1)),
        "shock-tube-self-b": Preset(_SHOCK | _B, 128_391, _TABLES, (3, 1)),
        "darcy": Preset(_DARCY, 313_613, _TABLES, dim=2),
        "darcy-self-b": Preset(_DARCY | _B, 444_677, _TABLES, dim=2),
        "vorticity": Preset(_VORTICITY, 1_252_103, _TABLES, (10, 1), dim=2),
        "vorticity-self-b": Preset(_VORTICITY | _B, 1_776_387, _TABLES, (10, 1), dim=2),
        "elasticity": Preset(_ELASTICITY, 6_586_929, _TABLES, (42, 1), dim=2),
        "elasticity-self-a": Preset(_ELASTICITY | _A, 9_732_609, _TABLES, (42, 1), dim=2),
        "elasticity-self-b": Preset(_ELASTICITY | _B, 8_684_049, _TABLES, (42, 1), dim=2),
        "airfoil": Preset(_NACA, 1_250_061, _TABLES, (2, 1), dim=2),
        "airfoil-self-b": Preset(_NACA | _B, 1_774_341, _TABLES, (2, 1), dim=2),
        "pipe": Preset(
            _NACA | {"latent": [33, 33]},
            1_250_061,
            "not published: as airfoil, with every fourth node as latent mesh",
            (2, 1),
            dim=2,
        ),
        "plasticity": Preset(
            _LOCAL | {"width": 256, "latent": [26, 8]},
            1_250_318,
            "not published: as airfoil, with every fourth node as latent mesh",
            (2, 2),
            dim=2,
        ),
        "burgers": Preset(
            {"latent": 256, "sharpening": False, "coordinates": "periodic"},
            78_989,
            "not published: chosen here for viscous Burgers at 512 to 8192 points, linear in them",
        ),
    }

    @classmethod
    def suited(cls, settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
        return _suited(settings, domain)

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        width: int = 64,
        heads: int = 2,
        depth: int = 4,
        latent: int | list[int] | Literal["input"] = 1024,
        attention: Literal["position", "self-position", "self-a", "self-b"] = "position",
        encoder_locality: float = 1.0,
        decoder_locality: float = 8.0,
        periodic: bool = True,
        scale: float | Literal["diameter"] = "diameter",
        sharpening: bool = True,
        coordinates: Coordinates = "raw",
        indices: bool = False,
        latent_points: Literal["mesh", "farthest"] = "mesh",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim))
        check_heads(width, heads)
        at_input = latent == "input" or attention in ("self-position", "self-a")
        self.farthest, self.periodic = latent_points == "farthest", periodic
        sizes = _sizes(latent, dim, self.farthest, at_input)
        at_least(0, depth=depth)
        check_localities(encoder_locality=encoder_locality, decoder_locality=decoder_locality)
        self.latent, self.other_points = None if at_input else sizes, not at_input
        if indices:
            self.see_indices()
        diameter = dim / 4 if periodic else dim
        distance = SquaredDistance(periodic, diameter if scale == "diameter" else scale)

        def by_position(locality: float) -> nn.Module:
            kind = SelfPositionAttention if attention == "self-position" else PositionAttention
            return kind(width, width, heads, locality, distance)

        def local(locality: float) -> nn.Module:
            if attention == "self-a":
                return SelfAttention(width, width, heads)
            return by_position(locality)

        def everywhere() -> nn.Module:
            if attention in ("self-a", "self-b"):
                return SelfAttention(width, width, heads)
            return by_position(100)

        self.embed = dense(self.features, width)
        self.down, self.up = None, None
        if latent == "input":
            first = Block(local(encoder_locality), width)
            inner = [Block(everywhere(), width) for _ in range(depth)]
            last = Block(local(decoder_locality), width)
            self.processor = nn.ModuleList([first, *inner, last])
        else:
            self.down = local(encoder_locality)
            self.processor = nn.ModuleList(Block(everywhere(), width) for _ in range(depth))
            self.up = local(decoder_locality)
        self.sharpen = Block(local(decoder_locality), width) if sharpening else None
        self.head = mlp(width, out_channels)

    def decoded(
        self, v: Values, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        latent = self._latent(x, mask)
        within = mask if self.latent is None else None
        u = nn.functional.gelu(self.embed(v))
        if self.down is not None:
            u = self.down(u, x, latent, mask)
        for block in self.processor:
            u = block(u, latent, within)
        if self.up is not None:
            u = self.up(u, latent, y, within)
        if self.sharpen is not None:
            u = self.sharpen(u, y, of_y)
        return self.head(u)

    def _latent(self, x: TokenPoints, mask: Real | None) -> TokenPoints:
        """The latent points: those of x, of the mesh, or farthest points of each sample."""
        if self.latent is None:
            return x
        if not self.farthest:
            return mesh(self.latent, x).flatten(0, -2)
        count = x.shape[-2]
        # not in training: counting padding waits for the device
        if mask is not None and not (self.training or torch.compiler.is_compiling()):
            count = int(mask.sum(dim=1).min())
        if self.latent[0] > count:
            raise ValueError(f"latent={self.latent[0]} needs as many points, got {count}")
        points = x if x.ndim == 3 else x[None]  # (batch, n, dim); a batch of 1 if samples share x
        points = points if mask is None else points.expand(len(mask), -1, -1)
        chosen = farthest_points(points, self.latent[0], self.periodic, mask)
        latent = points.gather(1, chosen[..., None].expand(-1, -1, points.shape[-1]))
        return latent[0] if x.ndim == 2 and mask is None else latent
