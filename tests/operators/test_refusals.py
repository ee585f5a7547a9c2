"""Settings that no operator can have, each with what it is refused by."""

import pytest
import torch

from operators.registry import OPERATORS
from tests.operators.drawn import points

# the least of each number
LEAST = {
    "cno": {"width": 2, "levels": 1, "size": 0},
    "deeponet": {"sensors": 2},
    "shift-deeponet": {"sensors": 2},
    "f-fno": {"width": 1, "depth": 1, "factor": 1, "head_width": 1},
    "factformer": {"heads": 1},
    "flare": {"latents": 2, "depth": 1, "mlp_depth": 0},
    "fno": {"width": 1, "depth": 1, "modes": 1, "head_width": 1, "frame_channels": 0},
    "galerkin-transformer-2d": {"latent": 2},
    "gaot": {"depth": 0, "channels": 1},
    "geo-fno": {"width": 1, "depth": 2, "modes": 1, "deformation_width": 4},
    "gnot": {"experts": 1, "depth": 1, "mlp_depth": 1},
    "ht-net": {"window": 1, "padding_points": 0},
    "ipot": {"depth": 1, "bands": 1, "resolution": 2},
    "linear-no": {"slices": 2, "lattice": 2, "depth": 1},
    "lno": {"latents": 2, "depth": 1, "mlp_depth": 0},
    "lrsa": {"latents": 2, "depth": 1},
    "lsm": {"levels": 2, "tokens": 1, "basis": 1},
    "mwt": {"polynomials": 1, "coarsest": 0},
    "oformer": {"heads": 1},
    "ono": {"depth": 1},
    "pit": {"latent": 1, "depth": 0},
    "pit-2025": {"heads": 1, "latent": 1, "stride": 1, "depth": 0},
    "scot": {"patch": 1},
    "transolver": {"slices": 2, "lattice": 2, "depth": 1},
    "transolver-plus": {"slices": 2, "lattice": 2, "depth": 1},
    "u-fno": {"width": 1, "u_depth": 1, "levels": 1, "head_width": 1},
    "unet": {"width": 1, "levels": 1},
    "upt": {"supernodes": 1, "neighbours": 1, "latents": 1, "depth": 0},
}
# heads that share the features of a width, which 7 does not divide
SHARING = {
    "flare": ["heads"], "galerkin-transformer": ["heads"], "galerkin-transformer-2d": ["heads"],
    "gaot": ["heads"], "gnot": ["heads"], "ht-net": ["heads"], "ipot": ["heads", "cross_heads"],
    "linear-no": ["heads"], "lno": ["heads"], "lrsa": ["heads"], "lsm": ["heads"],
    "ono": ["heads"], "pit": ["heads"], "transformer": ["heads"], "transolver": ["heads"],
    "transolver-plus": ["heads"], "upt": ["encoder_heads", "heads", "decoder_heads"],
}  # fmt: skip
REFUSED = [
    ("deeponet", {"branch": "convolution", "sensors": 12}, "at least 13 sensors, got 12"),
    (
        "deeponet",
        {"sensor_grid": "cells", "indices": True},
        'indices=true needs sensor_grid "points", got',
    ),
    ("deeponet", {"channels": 32}, "channels=32 needs branch \"convolution\", got 'mlp'"),
    ("pod-deeponet", {"channels": 32}, "channels=32 needs branch \"convolution\", got 'mlp'"),
    ("f-fno", {"modes": [4, 0]}, "modes must be at least 1, got 0"),
    ("f-fno", {"modes": [4]}, r"modes needs one number for each of 2 axes, got \[4\]"),
    ("f-fno", {"modes": [4, 4], "frame_channels": 1}, "one number for each of 3 axes"),
    ("f-fno", {"padding": [0.1]}, r"padding needs one number for each of 2 axes, got \[0.1\]"),
    ("f-fno", {"padding": -0.1}, "at least 0, got padding=-0.1"),
    ("f-fno", {"gain": 0.0}, "gain must be positive, got 0.0"),
    ("f-fno", {"frame_padding": 6}, "frame_padding=6 needs frame_channels, got 0"),
    ("factformer", {"width": 12}, "width must be a positive multiple of 8, got 12"),
    ("factformer", {"head_features": 3, "multiplier": 1}, "times multiplier must be even"),
    ("factformer", {"frame_channels": 1}, "needs decoder 'marching', got 'convolution'"),
    ("fno", {"dim": 4}, "dim must be 1 or 2 or 3, got 4"),
    ("fno", {"modes": [5, 5], "dim": 1}, "one number for each of 1 axes, got "),
    (
        "fno",
        {"modes": [5, 4, 3], "dim": 2, "frame_channels": 1},
        "on three axes modes must be one number, got ",
    ),
    ("fno", {"padding": -0.1}, "at least 0, got padding=-0.1, padding_points=0"),
    ("fno", {"padding_points": -1}, "at least 0, got padding=0.0, padding_points=-1"),
    ("fno", {"padding": 0.1, "padding_points": 9}, "one of padding and padding_points must be 0"),
    ("fno", {"dropout": 1.0}, "a dropout rate must lie in"),
    (
        "galerkin-transformer-2d",
        {"head_dropout": 0.1},
        "head_dropout needs decoder \"pointwise\", got 'spectral'",
    ),
    ("gaot", {"lattice": [8]}, r"lattice needs one number for each of 2 axes, got \[8\]"),
    ("gaot", {"lattice": 7}, "at least 2 and a multiple of patch=2, got 7"),
    ("gaot", {"lattice": 1, "patch": 1}, "at least 2 and a multiple of patch=1, got 1"),
    ("gaot", {"radius": 0.0}, r"radius and scales must be positive, got 0.0 and \[1.0\]"),
    ("gaot", {"scales": []}, r"radius and scales must be positive, got .* and \[\]"),
    ("gaot", {"patch": 1, "channels": 6}, "a multiple of 4 features, got 6 with patch=1"),
    ("geo-fno", {"modes": 4, "latent": 7}, "latent must be at least 8, got 7"),
    ("geo-fno", {"length": 0.0}, "length must be positive, got 0.0"),
    ("ht-net", {"patch": 1, "stride": 2}, "patch must be at least stride, got patch=1, stride=2"),
    ("lsm", {"levels": 3, "patches": 6}, r"2\^\(levels - 1\) must divide patches, got levels=3"),
    ("lsm", {"latent": 12}, "latent must be at least 24, got 12"),
    ("oformer", {"width": 10}, "width must be a positive multiple of 4, got 10"),
    ("oformer", {"latent": 0}, "latent must be a positive multiple of 4, got 0"),
    ("oformer", {"scales": []}, "scales must be at least 1, got 0"),
    ("oformer", {"frame_channels": 1}, "frame_channels needs decoder 'marching', got 'points'"),
    ("oformer", {"dropout": 1.0}, r"a dropout rate must lie in \[0, 1\), got 1.0"),
    ("ono", {"eigenfunctions": 0}, "eigenfunctions must be at least 1, got 0"),
    ("ono", {"depth": 1, "queries": True}, "depth must be at least 2, got 1"),
    ("ono", {"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
    ("ono", {"jitter": 0.0}, "jitter must be positive, got 0.0"),
    ("ono", {"coordinates": "none", "queries": True}, "queries=true needs coordinates"),
    ("ono", {"query_time": True}, "query_time needs queries"),
    ("pit", {"latent": [8, 0], "dim": 2}, "latent must be at least 1, got 0"),
    ("pit", {"latent": [8], "dim": 2}, r"one number for each of 2 axes, got \[8\]"),
    ("pit", {"latent": []}, r"one number for each of 1 axes, got \[\]"),
    ("pit", {"encoder_locality": 0.0}, r"encoder_locality must lie in \(0, 100\], got 0.0"),
    ("pit", {"decoder_locality": 200.0}, r"decoder_locality must lie in \(0, 100\], got 200.0"),
    ("pit", {"scale": 0.0}, "scale must be positive, got 0.0"),
    ("pit-2025", {"dim": 2, "latent": [4]}, r"one number for each of 2 axes, got \[4\]"),
    ("pit-2025", {"stride": 2}, 'stride=2 needs latent "output"'),
    ("pit-2025", {"encoder_locality": 0.0}, r"encoder_locality must lie in \(0, 100\], got 0.0"),
    ("pit-2025", {"scale": 0.0}, "scale must be positive, got 0.0"),
    ("scot", {"dim": 1}, "dim must be 2, got 1"),
    ("scot", {"depths": [2, 2], "skips": [1, 0], "heads": [2]}, "each stage, got 2, 1 and 2"),
    ("scot", {"depths": []}, "need one number for each stage, got 0, "),
    ("scot", {"size": 130}, r"patch \* 2\^3 must divide size, got patch=4, size=130"),
    ("scot", {"window": 3}, r"window must divide the grids \[.*\] of the stages, got 3"),
    ("scot", {"heads": [5, 1, 1, 1]}, "heads must divide width, got heads=5"),
    ("scot", {"skips": [-1, 0, 0, 0]}, "skips must be at least 0, got -1"),
    *(
        (name, {"lattice": 9, "coordinates": "raw"}, 'lattice=9 needs coordinates "lattice", got')
        for name in ("transolver", "transolver-plus", "linear-no")
    ),
    ("u-fno", {"padding": -0.1}, "at least 0, got padding=-0.1"),
    ("u-fno", {"padding": [0.1, 0.2, 0.3]}, "padding needs one number for each of 2 axes"),
    ("u-fno", {"frame_padding": 6}, "frame_padding=6 needs frame_channels, got 0"),
    ("upt", {"encoder_width": 3, "encoder_heads": 1}, "encoder_width must be at least 4, got 3"),
    ("upt", {"decoder_width": 2, "decoder_heads": 1}, "decoder_width must be at least 4, got 2"),
    ("upt", {"radius": 0.0}, "radius and extent must be positive, got 0.0 and 200.0"),
    ("upt", {"extent": -1.0}, r"radius and extent must be positive, got .* and -1.0"),
    ("xd", {"size": 12}, "size must be a power of two and kernel odd .* got size=12"),
    ("xd", {"size": 8, "kernel": 4}, "got size=8, kernel=4"),
    ("xd", {"size": 8, "kernel": 9}, "got size=8, kernel=9"),
]
# grids that an operator of these settings cannot take
GRIDS = [
    ("cno", {"dim": 2, "levels": 2}, (9, 3), "levels=2 needs at least 4 points .* axis, got 3"),
    ("f-fno", {"modes": 5}, (14, 8), "5 modes need an axis of at least 10 points, got 8"),
    ("fno", {"modes": 5}, (8,), "5 modes need a grid of at least 10 points, got 8"),
    ("fno", {"dim": 2, "modes": 4, "frame_channels": 1, "out_channels": 7}, (9, 8),
     "4 modes need a grid of at least 8 points, got 9 x 8 x 7"),
    ("fno", {"dim": 2, "modes": 4, "width": 4, "out_channels": 4, "frame_channels": 5}, (32, 32),
     "frames of 5 channels, got 4 channels in all"),
    *((name, {"dim": 2, "out_channels": 3, "frame_channels": 2, "decoder": "marching"}, (32, 32),
       "frames of 2 channels, got 3 channels in all") for name in ("oformer", "factformer")),
    ("galerkin-transformer", {"modes": 16}, (31,), "a grid of at least 32 points, got 31"),
    ("galerkin-transformer", {"dim": 2, "modes": 12}, (30, 23),
     "12 modes need a grid of at least 24 points, got 30 x 23"),
    ("galerkin-transformer-2d", {"modes": 4}, (7, 7), "a grid of at least 8 points, got 7 x 7"),
    ("ht-net", {"patch": 6, "stride": 4}, (9, 3), "patch=6 needs at least 4 points .* got 3"),
    ("mwt", {"dim": 2, "coarsest": 2}, (8, 4), "more than 4 points along each axis, got 4"),
    ("unet", {"dim": 1, "levels": 2, "normalization": "instance"}, (4,),
     "levels=2 needs an axis of more than 4 points, got 4"),
    ("xd", {"dim": 1, "size": 8, "kernel": 3}, (9,), "size=8 allows at most 8 points .* got 9"),
]  # fmt: skip


def refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        OPERATORS[name].operator(**settings)


@pytest.mark.parametrize(("name", "settings", "message"), REFUSED)
def test_settings_that_cannot_be_are_refused(name, settings, message):
    refused(name, settings, message)


@pytest.mark.parametrize(("name", "settings", "grid", "message"), GRIDS)
def test_grids_that_cannot_be_are_refused(name, settings, grid, message):
    model = OPERATORS[name].operator(**settings)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(1, *grid, 1), points(*grid, dtype=torch.float32))


@pytest.mark.parametrize("name", LEAST)
def test_numbers_below_the_least_are_refused(name):
    for key, least in LEAST[name].items():
        refused(name, {key: least - 1}, f"{key} must be at least {least}, got {least - 1}")


@pytest.mark.parametrize("name", SHARING)
def test_heads_must_divide_the_width(name):
    for key in SHARING[name]:
        for heads in (0, 7):
            refused(name, {key: heads}, f"heads must divide width, got heads={heads}, width=")


@pytest.mark.parametrize(("projection", "masks"), [("linear", True), ("convolution", False)])
def test_convolutions_have_no_padding(projection, masks):
    model = OPERATORS["transolver"].operator(dim=2, projection=projection, coordinates="raw")
    assert model.masks == masks
