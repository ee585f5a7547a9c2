"""Every operator against its released code, or its paper, in other words: values and gradients.

The oracles read the weights of the model. Those of scOT, POD-DeepONet, PiT, ONO and DeepONet, which
need more than a row, are compared in the operators' own files.
"""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from operators.models.fno import CAO, FIRST, PLUS
from operators.models.galerkin import GalerkinTransformer
from operators.registry import OPERATORS
from tests.operators.drawn import (
    at,
    cloud,
    grid,
    in_time,
    mesh,
    near_grid,
    nodes,
    of_features,
    of_indices,
    points,
    same,
    same_as_copy,
    scattered,
    shaken,
)
from tests.oracles.plain_cno import plain_cno
from tests.oracles.plain_f_fno import plain_f_fno
from tests.oracles.plain_factformer import plain_factformer
from tests.oracles.plain_flare import plain_flare
from tests.oracles.plain_fno import plain_fno
from tests.oracles.plain_galerkin import PlainGalerkinTransformer
from tests.oracles.plain_galerkin2d import PlainGalerkinTransformer2d
from tests.oracles.plain_galerkin_lite import plain_galerkin_lite
from tests.oracles.plain_gaot import PlainGAOT
from tests.oracles.plain_geofno import plain_geofno
from tests.oracles.plain_gnot import plain_gnot
from tests.oracles.plain_htnet import plain_htnet
from tests.oracles.plain_ipot import plain_ipot
from tests.oracles.plain_lno import plain_lno
from tests.oracles.plain_lrsa import PlainLRSA, plain_lrsa
from tests.oracles.plain_lsm import plain_lsm
from tests.oracles.plain_mwt import plain_mwt
from tests.oracles.plain_oformer import plain_oformer
from tests.oracles.plain_operators import PlainDeepONet, PlainTransformer, plain_transformer
from tests.oracles.plain_pit_2025 import plain_pit_2025
from tests.oracles.plain_slices import plain_slices
from tests.oracles.plain_transolver import PlainTransolver
from tests.oracles.plain_u_fno import plain_u_fno, plain_unet
from tests.oracles.plain_upt import plain_upt
from tests.oracles.plain_xd import plain_xd

BOTH = (True, False)  # in training and in evaluation, which norms of the batch tell apart
TRAINED = (True,)
MANY = {"width": 12, "depth": 2, "heads": 3}
SLICES = {**MANY, "slices": 5, "feedforward": 10}
IPOT = {"width": 12, "depth": 2, "heads": 3, "cross_heads": 2, "latents": 5, "bands": 3,
        "resolution": 8, "dim": 2}  # fmt: skip
OFORMER = {"width": 8, "latent": 12, "resolution": 5.0, "decoder_heads": 2, "in_channels": 2,
           "out_channels": 2, "dropout": 0.0, "embed_dropout": 0.0}  # fmt: skip
UPT = {"supernodes": 6, "radius": 0.3, "neighbours": 30, "latents": 5, "encoder_width": 12,
       "width": 18, "decoder_width": 8, "encoder_heads": 3, "heads": 2, "decoder_heads": 4,
       "encoder_depth": 1, "depth": 1, "decoder_depth": 1, "in_channels": 2,
       "out_channels": 3}  # fmt: skip
GAOT = {"lattice": 8, "radius": 0.3, "channels": 4, "hidden": 6, "kernel_depth": 2, "width": 16,
        "depth": 2, "heads": 4, "scaling": "unit", "in_channels": 2, "out_channels": 3}  # fmt: skip
FNO = {"width": 6, "depth": 3, "modes": 5, "head_width": 7, "in_channels": 2}
FFNO = {**FNO, "factor": 2}
U_FNO = {"width": 6, "depth": 1, "u_depth": 2, "modes": 4, "head_width": 7}
LIBRARY = {"u_net": "pooled", "levels": 4, "activation": "gelu", "last_activation": False,
           "lift": "mlp", "width": 6, "head_width": 6, "depth": 2, "u_depth": 2, "modes": 4,
           "coordinates": "lattice", "padding": [11 / 21, 3 / 29]}  # fmt: skip
LSM = {"width": 8, "levels": 3, "patches": 4, "heads": 2, "tokens": 3, "basis": 5}
HTNET = {"width": 4, "levels": 2, "window": 2, "modes": 3, "decoder_depth": 2, "head_width": 6,
         "padding_points": 5, "in_channels": 2, "out_channels": 3}  # fmt: skip
CNO = {"width": 4, "levels": 2, "blocks": 1, "neck_blocks": 2, "lift_width": 6, "in_channels": 2,
       "out_channels": 3}  # fmt: skip
PIT = {"width": 8, "depth": 2, "latent": 6, "encoder_locality": 21.0, "decoder_locality": 13.0}
LITE = {"width": 8, "depth": 2, "feedforward": 12, "modes": 3, "decoder_width": 5, "dim": 2}


def fno_rows():
    for dim in (1, 2):
        for settings, how in (
            ({}, {}),
            ({"padding": 0.25}, {}),
            (FIRST, {"sigma": F.relu, "norm": "batch"}),
            (PLUS, {"plus": True}),
            ({**PLUS, "normalization": "instance"}, {"plus": True, "norm": "instance"}),
            (CAO, {"sigma": F.silu, "last": True}),
        ):
            filled = [round(n * settings.get("padding", 0)) for n in (14, 17)[:dim]]
            yield (
                "fno", {**FNO, "out_channels": 3, "dim": dim, **settings},
                partial(grid, *(14, 17)[:dim], channels=2),
                of_features(plain_fno, points=filled, **how), BOTH if "norm" in how else TRAINED,
            )  # fmt: skip
    # neuraloperator/Geo-FNO, airfoils/naca_geofno.py: the positions of the mesh are a
    yield (
        "fno", {**FNO, "dim": 2, "modes": [6, 3], "padding": [0.2, 0.1], "indices": True},
        partial(mesh, 14, 17), of_indices(plain_fno, points=[3, 2]), TRAINED,
    )  # fmt: skip
    for own in (1, 2):
        yield (
            "fno", {**FNO, "in_channels": 3, "out_channels": 4 * own, "dim": 2, "modes": 4,
                    "frame_channels": own, "frame_padding": 6},
            partial(nodes, 8, 9, channels=3), in_time(plain_fno, 4, points=[0, 0, 6]), TRAINED,
        )  # fmt: skip


def other_rows():
    for normalization in ("batch", "instance"):
        for sizes in ((43,), (32, 48), (21, 29)):
            yield (
                "unet", {"width": 4, "dim": len(sizes), "in_channels": 2,
                         "normalization": normalization},
                partial(nodes, *sizes, channels=2), of_features(plain_unet), BOTH,
            )  # fmt: skip
        yield (
            "u-fno", {**LIBRARY, "dim": 2, "normalization": normalization}, partial(nodes, 21, 29),
            of_features(plain_u_fno, points=[11, 3]), BOTH,
        )  # fmt: skip
        # of three samples; 13 points are no multiple of four
        for sizes in ((13,), (13, 8)):
            yield (
                "cno", {**CNO, "dim": len(sizes), "normalization": normalization.replace(
                    "instance", "none")},
                partial(grid, *sizes, channels=2), plain_cno, BOTH,
            )  # fmt: skip
    for sizes in ((16,), (8, 24)):
        yield (
            "u-fno", {**U_FNO, "dim": len(sizes), "in_channels": 2},
            partial(nodes, *sizes, channels=2, batch=3),
            of_features(plain_u_fno, points=[0] * len(sizes)), BOTH,
        )  # fmt: skip
    yield (
        "u-fno", {**U_FNO, "dim": 2, "out_channels": 8, "frame_channels": 1}, partial(nodes, 8, 16),
        in_time(plain_u_fno, 8, points=[0, 0, 0]), TRAINED,
    )  # fmt: skip
    for sizes in ((14,), (17,), (14, 17), (43, 11)):
        for shared in BOTH:
            yield (
                "f-fno", {**FFNO, "dim": len(sizes), "shared": shared},
                partial(grid, *sizes, channels=2), of_features(plain_f_fno), TRAINED,
            )  # fmt: skip
    # meshes, 8 more points along each axis, without and with frames along a third one
    yield (
        "f-fno", {**FFNO, "dim": 2, "modes": [7, 4], "shared": False, "indices": True,
                  "padding": [8 / 21, 8 / 13]},
        partial(mesh, 21, 13), of_indices(plain_f_fno, padding=8), TRAINED,
    )  # fmt: skip
    yield (
        "f-fno", {**FFNO, "dim": 2, "in_channels": 1, "out_channels": 12, "modes": [7, 4, 3],
                  "shared": False, "indices": True, "padding": [8 / 9, 8 / 7],
                  "frame_channels": 3, "frame_padding": 8},
        partial(grid, 9, 7), in_time(plain_f_fno, 4, padding=8), TRAINED,
    )  # fmt: skip
    for transform in ("mean", "sum"):
        for inputs in (partial(mesh, 23, channels=2), at(partial(mesh, 23, channels=2), 3, 5, 2)):
            yield (
                "geo-fno", {"width": 6, "depth": 4, "modes": 4, "latent": 9, "head_width": 7,
                            "deformation_width": 8, "in_channels": 2, "out_channels": 3,
                            "transform": transform},
                inputs, plain_geofno, TRAINED,
            )  # fmt: skip
    for settings, inputs in (
        ({"normalization": "batch"}, partial(mesh, 13, 12, channels=1)),  # 12 are a whole grid
        ({"normalization": "instance", "out_channels": 2}, partial(mesh, 13, 12, channels=1)),
        ({"dim": 1, "levels": 4, "patches": 8}, partial(grid, 19, batch=3)),
        ({"latent": 12, "modes": 4, "transform": "sum", "deformation_width": 8},
         partial(mesh, 23, channels=1)),
    ):  # fmt: skip
        yield "lsm", {**LSM, **settings}, inputs, plain_lsm, TRAINED
    for settings in (
        {},
        {"levels": 3, "heads": 2},
        {"window": 4, "padding_points": 0, "levels": 1},
    ):
        yield (
            "ht-net", {**HTNET, **settings}, partial(grid, 8, 16, channels=2), plain_htnet, TRAINED
        )  # fmt: skip
    for n, settings in (
        (16, {}), (16, {"coarsest": 2, "modes": 20}), (2, {}), (16, {"dim": 2}),
        (8, {"dim": 2, "coarsest": 1, "modes": 6, "polynomials": 2}), (2, {"dim": 2}),
    ):  # fmt: skip
        yield (
            "mwt", {"dim": 1, "channels": 2, "polynomials": 3, "modes": 3, "head_width": 10,
                    "out_channels": 2, **settings},
            partial(grid, *[n] * settings.get("dim", 1)), plain_mwt, TRAINED,
        )  # fmt: skip
    for sizes in ((8,), (7,), (8, 8), (5, 7)):
        yield (
            "xd", {"dim": len(sizes), "width": 3, "depth": 2, "kernel": 3, "size": 8,
                   "head_width": 6, "out_channels": 2},
            partial(grid, *sizes), plain_xd, BOTH,
        )  # fmt: skip


def token_rows():
    yield (
        "flare", {**MANY, "latents": 5, "mlp_depth": 2, "in_channels": 3, "out_channels": 2},
        partial(cloud, channels=3), plain_flare, TRAINED,
    )  # fmt: skip
    for coordinates in ("raw", "none"):
        for inputs in (partial(cloud, channels=3), at(scattered(9, 2, 3), 4, 2)):
            yield (
                "lno", {**MANY, "latents": 5, "mlp_depth": 2, "in_channels": 3, "out_channels": 2,
                        "coordinates": coordinates},
                inputs, plain_lno, TRAINED,
            )  # fmt: skip
    for channels in ((3, 2), (1, 1)):
        for y in ((), ((2, 4, 2),)):
            inputs = partial(cloud, channels=channels[0])
            yield (
                "ipot", {**IPOT, "in_channels": channels[0], "out_channels": channels[1]},
                at(inputs, *y[0]) if y else inputs, partial(plain_ipot, bands=3, resolution=8),
                TRAINED,
            )  # fmt: skip
    yield (
        "transolver-plus", {**SLICES, "in_channels": 3, "out_channels": 2},
        partial(cloud, channels=3), plain_slices, BOTH,
    )  # fmt: skip
    for settings in (
        {}, {"shares": "slices"}, {"shares": "slices", "projection": "linear"},
        {"shares": "points", "projection": "linear"},
    ):  # fmt: skip
        yield (
            "linear-no", {**SLICES, "lattice": 3, **settings}, partial(grid, 6, 5), plain_slices,
            TRAINED,
        )  # fmt: skip
    for sizes in ((6,), (6, 5)):
        for how in ({"projection": "linear"}, {"padding": "zeros"}, {"padding": "circular"}):
            yield (
                "transolver", {**SLICES, "lattice": 3, "dim": len(sizes), **how},
                partial(grid, *sizes), plain_slices, TRAINED,
            )  # fmt: skip
        for applies in BOTH:
            yield (
                "lrsa", {**MANY, "latents": 5, "feedforward": 10, "dim": len(sizes),
                         "convolution": applies, "normalize": applies},
                partial(grid, *sizes), plain_lrsa, TRAINED,
            )  # fmt: skip
    for branches in ("one", "each"):
        yield (
            "gnot", {"dim": 2, "width": 12, "depth": 2, "heads": 3, "feedforward": 10,
                     "mlp_depth": 2, "in_channels": 2, "out_channels": 2, "branches": branches},
            scattered(9, 2, 2), plain_gnot, TRAINED,
        )  # fmt: skip
    for structure in (  # of the released scripts: Darcy flow, Burgers, Navier-Stokes
        {"heads": 2, "scales": [3.0, 1.0], "decoder_scale": 2.0},
        {"heads": 1, "kind": "fourier", "scales": [2.0, 1.0], "layer_norm": False, "beside": True,
         "decoder": "residual", "decoder_depth": 2, "decoder_heads": 3, "decoder_scale": 1.0},
        {"heads": 1, "scales": [3.0, 1.0, 1.0], "decoder": "marching", "decoder_depth": 2,
         "out_channels": 6, "frame_channels": 2},
    ):  # fmt: skip
        for dim in (1, 2):
            inputs = scattered(9, dim, 2)
            yield (
                "oformer",
                {**OFORMER, "dim": dim, **structure},
                at(inputs, 5, dim),
                plain_oformer,
                TRAINED,
            )
    for settings in (
        {}, {"normalization": "heads", "multiplier": 6}, {"decoder": "marching"},
        {"decoder": "marching", "frame_channels": 1},
    ):  # fmt: skip
        yield (
            "factformer", {"dim": 2, "width": 16, "depth": 2, "heads": 3, "head_features": 4,
                           "in_channels": 2, "out_channels": 2, **settings},
            partial(nodes, 6, 5, channels=2), partial(plain_factformer, heads=3), TRAINED,
        )  # fmt: skip
    for dim in (1, 2):
        for attention in ("softmax", "efficient", "galerkin"):
            for pre, activation in ((True, "gelu"), (False, "relu")):
                yield (
                    "transformer", {**MANY, "heads": 2, "feedforward": 16, "dim": dim,
                                    "attention": attention, "activation": activation,
                                    "normalization": "pre" if pre else "post"},
                    partial(grid, *[10, 4][:dim]),
                    partial(plain_transformer, attention=attention, pre=pre,
                            act=getattr(F, activation)), TRAINED,
                )  # fmt: skip
    # some nodes of the lattice have no neighbour
    for settings in (
        {}, {"attention": "dot", "scales": [1.0, 2.0], "scale_weights": True, "depth": 3},
        {"lattice": [8, 4], "radius": 0.5, "scales": [0.5, 1.0], "depth": 4, "width": 24},
        {"dim": 1, "lattice": 12, "radius": 0.04, "patch": 4, "depth": 1},
    ):  # fmt: skip
        dim = settings.get("dim", 2)
        yield (
            "gaot", {**GAOT, **settings}, at(scattered(30, dim, 2), 17, dim),
            lambda model, a, x, y: PlainGAOT(model)(a, x, y), TRAINED,
        )  # fmt: skip
    for settings in (
        {}, {"encoder_depth": 2, "depth": 0, "decoder_depth": 2, "latents": 1},
        {"encoder_width": 15, "decoder_width": 10, "decoder_heads": 1, "extent": 200.0},  # zeros
        {"dim": 1, "radius": 0.05}, {"supernodes": 50},  # all points
    ):  # fmt: skip
        dim = settings.get("dim", 2)
        inputs = scattered(30, dim, 2)
        yield "upt", {**UPT, **settings}, at(inputs, 17, dim), plain_upt, BOTH
    yield "upt", UPT, scattered(30, 2, 2), plain_upt, BOTH
    for dim, settings, ends in (  # Burgers, Sod, Darcy, vorticity
        (1, {"periodic": True, "heads": 2}, False), (1, {"periodic": False, "heads": 1}, False),
        (2, {"periodic": False, "ends": True}, True),
        (2, {"periodic": True, "normalization": "instance"}, False),
    ):  # fmt: skip
        latent = points(*[6] * dim, kind="nodal" if ends else "periodic")
        yield (
            "pit-2025", {**PIT, "dim": dim, **settings}, near_grid(11, dim),
            partial(plain_pit_2025, latent=latent, period=1.0 if settings["periodic"] else None),
            TRAINED,
        )  # fmt: skip
    yield (  # elasticity
        "pit-2025", {**PIT, "dim": 2, "in_channels": 3, "latent": "output", "periodic": False},
        partial(mesh, 29, channels=3), partial(plain_pit_2025, period=None), TRAINED,
    )  # fmt: skip
    yield (  # airfoils: from an outline to a mesh, of which every second point is a latent one
        "pit-2025", {**PIT, "dim": 2, "in_channels": 2, "out_channels": 4, "heads": 1,
                     "latent": "output", "stride": 2, "periodic": False, "coordinates": "none"},
        at(partial(mesh, 12), 3, 7, 5, 2), partial(plain_pit_2025, period=None, stride=2), TRAINED,
    )  # fmt: skip
    yield (
        "galerkin-transformer",
        {**GalerkinTransformer.presets["navier-stokes"].settings, **LITE, "in_channels": 10},
        partial(grid, 9, 9, channels=10), plain_galerkin_lite, (False,),
    )  # fmt: skip


ROWS = [
    pytest.param(name, settings, inputs, oracle, training, id=f"{name}-{number}-{training}")
    for number, (name, settings, inputs, oracle, modes) in enumerate(
        [*fno_rows(), *other_rows(), *token_rows()]
    )
    for training in modes
]


@pytest.mark.parametrize(("name", "settings", "inputs", "oracle", "training"), ROWS)
def test_is_the_released_operator_with_its_gradients(name, settings, inputs, oracle, training):
    torch.manual_seed(0)
    model = shaken(OPERATORS[name].operator(**settings)).train(training)
    given, found = inputs(), []
    for function in (model, partial(oracle, model)):
        torch.manual_seed(3)  # the same noise, the same choice of points
        found.append(function(*given))
    same(*found, model, rtol=1e-8, atol=1e-8)


SMALL_GT_2D = {"width": 12, "depth": 2, "heads": 2, "feedforward": 16, "latent": 9,
               "downscaler_dropout": 0.0, "dropout": 0.0, "feedforward_dropout": 0.0}  # fmt: skip
FORWARD = {"modes": 4, "decoder_width": 6, "head_width": 10}
INVERSE = {"latent": "output", "decoder": "pointwise"}
COPIES = [
    *(("galerkin-transformer", {"width": 12, "depth": 2, "feedforward": 16, "modes": 5,
                                "decoder_width": 6, "heads": heads},
       partial(grid, 16, batch=3), lambda heads=heads: PlainGalerkinTransformer(
           12, 2, heads, 16, 5, 6)) for heads in (1, 3)),
    *(("galerkin-transformer-2d", {**SMALL_GT_2D, **FORWARD, "activation": activation},
       partial(grid, 21, 21, kind=kind), lambda activation=activation: PlainGalerkinTransformer2d(
           12, 2, 2, 16, 9, **FORWARD, activation=activation))
      for activation in ("relu", "silu") for kind in ("nodal", "cell")),
    *(("galerkin-transformer-2d", {**SMALL_GT_2D, **INVERSE, "activation": activation},
       lambda: (*nodes(21, 21), points(9, 9, kind="nodal")),
       lambda activation=activation: PlainGalerkinTransformer2d(
           12, 2, 2, 16, 9, inverse=True, activation=activation))
      for activation in ("relu", "silu")),
    ("galerkin-transformer-2d", {**SMALL_GT_2D, **FORWARD, "intermediate": "published"},
     partial(nodes, 21, 21), lambda: PlainGalerkinTransformer2d(
         12, 2, 2, 16, 9, **FORWARD, released=True)),
    ("lrsa", {**MANY, "dim": 2, "latents": 5, "feedforward": 10}, partial(grid, 6, 6),
     lambda: PlainLRSA(12, 2, 3, 5, 10)),
    ("transolver", {**SLICES, "dim": 2, "lattice": 3}, partial(grid, 6, 5),
     lambda: PlainTransolver(12, 2, 3, 5, 10, lattice=3)),
    ("transformer", {**MANY, "heads": 2, "feedforward": 16, "attention": "softmax"},
     partial(grid, 10), lambda: PlainTransformer(1, 12, 2, 2, 16)),
    ("deeponet", {"sensors": 16, "basis": 6, "width": 8, "branch_depth": 2}, partial(grid, 16),
     lambda: PlainDeepONet(16, 8, 6, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "inputs", "plain"), COPIES)
def test_is_the_plain_module_that_benchmarks_compare_it_with(name, settings, inputs, plain):
    """The weights are copies with separate gradients."""
    torch.manual_seed(0)
    model, other, given = shaken(OPERATORS[name].operator(**settings)), plain().double(), inputs()
    other.copy_from(model)
    same_as_copy(model(*given), other(*given), model, other)
