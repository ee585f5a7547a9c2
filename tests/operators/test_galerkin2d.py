"""The Fourier/Galerkin Transformer on a square against its plain transcription."""

import math

import pytest
import torch

from operators.models.galerkin2d import Downscaler, GalerkinTransformer2d, published
from operators.nn.resample import interpolated
from tests.operators.drawn import points, same_as_copy, shaken
from tests.oracles.plain_galerkin2d import (
    PlainGalerkinTransformer2d,
    released_ratio,
    released_sizes,
)

# the published settings of the inverse problem
INVERSE = {
    "width": 192, "feedforward": 384, "latent": "output", "decoder": "pointwise",
    "activation": "silu", "downscaler_dropout": 0.05, "upscaler_dropout": 0.05, "dropout": 0.05,
    "feedforward_dropout": 0.05, "head_dropout": 0.05, "latent_dropout": 0.05,
    "intermediate": "published",
}  # fmt: skip
NO_DROPOUT = {"downscaler_dropout": 0.0, "dropout": 0.0, "feedforward_dropout": 0.0}
SMALL = {"width": 12, "depth": 2, "heads": 2, "feedforward": 16, "modes": 4, "decoder_width": 6,
         "head_width": 10, "latent": 9} | NO_DROPOUT  # fmt: skip
SMALL_INVERSE = SMALL | {"latent": "output", "decoder": "pointwise", "activation": "silu"}


def nodes(n):
    return points(n, n, kind="nodal")


def cells(n):
    return points(n, n, kind="cell")


def small(**settings):
    return GalerkinTransformer2d(**SMALL | settings)


def field(n, batch=2):
    torch.manual_seed(2)
    return torch.randn(batch, n, n, 1, dtype=torch.float64)


@pytest.mark.parametrize("activation", ["relu", "silu"])
@pytest.mark.parametrize("grid", [nodes, cells])
def test_forward_model_equals_the_plain_transcription(grid, activation):
    model = shaken(small(activation=activation))
    plain = PlainGalerkinTransformer2d(
        12, 2, 2, 16, 9, modes=4, decoder_width=6, head_width=10, activation=activation
    ).double()
    plain.copy_from(model)
    a, x = field(21), grid(21)
    same_as_copy(model(a, x), plain(a, x), model, plain)


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_inverse_model_equals_the_plain_transcription(activation):
    model = shaken(GalerkinTransformer2d(**SMALL_INVERSE | {"activation": activation}))
    plain = PlainGalerkinTransformer2d(
        12, 2, 2, 16, 9, inverse=True, activation=activation
    ).double()
    plain.copy_from(model)
    a, x, y = field(21), nodes(21), nodes(9)
    same_as_copy(model(a, x, y), plain(a, x, y), model, plain)


@pytest.mark.parametrize(
    ("n", "m", "down", "up"),
    [
        (141, 43, 78, 77), (211, 61, 113, 113), (211, 71, 123, 122), (85, 29, 50, 49),
        (141, 71, 100, 99), (421, 71, 172, 172), (141, 36, 71, 71), (85, 22, 43, 42),
    ],
)  # fmt: skip
def test_published_intermediate_grids_are_those_of_the_released_code(n, m, down, up):
    """Figures that the released function printed for the grids of its examples."""
    assert released_sizes(n, m) == (down, up)
    assert published(n, m) == (down, up)


@pytest.mark.parametrize(
    ("n", "m", "sizes"),
    [(30, 27, (28, 28)), (66, 17, (33, 32)), (100, 8, (28, 28)), (110, 99, (104, 104))],
)
def test_published_intermediate_grids_have_the_binary_fractions_of_the_released_code(n, m, sizes):
    """Figures that the released function printed where the exact rule says otherwise."""
    assert published(n, m) == sizes != released_sizes(n, m)


def test_published_intermediate_grids_follow_the_released_rule_on_every_pair():
    for n in range(8, 253):
        for m in range(2, n + 1):
            tied = (
                round(math.sqrt(m / n) * 1e4) % 10 == 5 or (2 * n * released_ratio(n, m)) % 1 == 0
            )
            if not tied:  # where it is, binary fractions decide
                assert published(n, m) == released_sizes(n, m), (n, m)


def test_the_inverse_problem_has_no_intermediate_grid_on_the_way_up():
    model = GalerkinTransformer2d(**SMALL_INVERSE | {"intermediate": "published"})
    sizes = []
    model.upscaler.register_forward_pre_hook(lambda _, args: sizes.append(args[1]))
    model(field(21).float(), nodes(21).float(), nodes(9).float())
    assert sizes == [(9, 9)]


def test_intermediate_grids_follow_each_axis():
    model = small(intermediate="published")
    assert model.between((141, 211), (43, 61)) == ((78, 113), (77, 113))
    assert small().between((141, 211), (43, 61)) == ((78, 113), (78, 113))


@pytest.mark.parametrize("intermediate", ["geometric", "published"])
@pytest.mark.parametrize(("settings", "n", "m"), [({}, 85, 29), (INVERSE, 71, 36)])
@pytest.mark.usefixtures("unchecked")
def test_published_settings_equal_the_plain_transcription(settings, n, m, intermediate):
    torch.manual_seed(0)
    inverse = bool(settings)
    settings = {"latent": m} | settings | {"intermediate": intermediate}
    model = GalerkinTransformer2d(**settings).double().eval()
    plain = PlainGalerkinTransformer2d(
        model.embed.in_features - 2, feedforward=settings.get("feedforward", 256), n_c=m,
        inverse=inverse, activation="silu" if inverse else "relu",
        released=intermediate == "published",
    ).double()  # fmt: skip
    plain.copy_from(model)
    a, x, y = field(n, 1), nodes(n), nodes(m) if inverse else None
    with torch.no_grad():
        torch.testing.assert_close(model(a, x, y), plain(a, x, y), rtol=1e-8, atol=1e-8)


def test_latent_points_have_the_coordinates_of_what_is_interpolated():
    """A function of the position alone reaches the coarse points as that function there."""
    model = small(latent=7)
    x = cells(22)[::3, ::3]  # 8 points, no half cell at the far end
    positions = []
    model.encoder[0].register_forward_pre_hook(lambda _, args: positions.append(args[1]))
    model.double()(field(8), x)
    first, last = float(x[0, 0, 0]), float(x[-1, 0, 0])
    expected = first + (last - first) * nodes(7)
    torch.testing.assert_close(positions[0], expected.flatten(0, 1))


def test_attention_acts_on_the_points_of_the_output():
    model = GalerkinTransformer2d(**SMALL_INVERSE).double()
    positions = []
    tokens = []
    model.encoder[0].register_forward_pre_hook(lambda _, args: positions.append(args[1]))
    model.downscaler.register_forward_hook(lambda _, args, out: tokens.append(out))
    a, x, y = field(21), cells(21), cells(9)
    assert model(a, x, y).shape == (2, 9, 9, 1)
    assert torch.equal(positions[0], y.flatten(0, 1))
    assert torch.equal(
        tokens[0], model.downscaler(a, x, (14, 14), (9, 9), y)
    )  # interpolated to y itself


def test_downscaler_meets_the_points_asked_for_where_they_lie():
    """With convolutions that do nothing, a linear function arrives as that function there."""
    down = Downscaler(1, 3, "relu", 0.0).double()
    with torch.no_grad():
        for weight in down.parameters():
            weight.zero_()
            weight[:, 0, 1, 1] = 1.0
    x = cells(31)[::2, ::2]
    a = 1 + x[..., :1] + 2 * x[..., 1:]
    for y in (cells(9), nodes(9) * 0.9 + 0.05):
        v = down(a[None], x, (12, 12), (9, 9), y)
        torch.testing.assert_close(v[0], (1 + y[..., :1] + 2 * y[..., 1:]).expand(9, 9, 3))


def test_features_reach_the_points_asked_for_where_they_lie():
    model = shaken(small())
    seen = {}
    model.upscaler.register_forward_hook(lambda _, args, out: seen.update(between=out))
    model.decoder.register_forward_pre_hook(lambda _, args: seen.update(features=args[0]))
    x, y = nodes(21), cells(12)
    model(field(21), x, y)
    n = seen["between"].shape[1]
    features = interpolated(seen["between"], nodes(n), y)
    expected = model.embed(torch.cat([features, y.expand(2, 12, 12, 2)], -1))
    torch.testing.assert_close(seen["features"], expected, rtol=1e-9, atol=1e-9)


def test_output_at_the_points_of_the_input_is_the_same_by_coordinates():
    """Points asked for by their coordinates get the same values as without being asked for."""
    model = shaken(small())
    a, x = field(21), nodes(21)
    torch.testing.assert_close(model(a, x, x.clone()), model(a, x), rtol=1e-9, atol=1e-9)
    assert model(a, x, cells(12)).shape == (2, 12, 12, 1)


@pytest.mark.parametrize("settings", [SMALL, SMALL_INVERSE])
def test_latent_dropout_acts_before_the_encoder_and_before_the_decoder(settings):
    """Interpolated first and dropped then: on the grid of the output each value by itself."""
    model = shaken(GalerkinTransformer2d(**settings | {"latent_dropout": 0.25})).train()
    masks = []
    model.drop.register_forward_hook(lambda _, args, out: masks.append((args[0], out)))
    a, x, y = field(21), nodes(21), nodes(9)
    model(a, x, y if settings is SMALL_INVERSE else None)
    assert [u.shape[1] for u, _ in masks] == [9, 9 if settings is SMALL_INVERSE else 21]
    assert [u.shape[-1] for u, _ in masks] == [12, 12]  # the features, not those of the decoder
    for before, after in masks:
        dropped = after == 0
        torch.testing.assert_close(after[~dropped], before[~dropped] / 0.75)
        share = float((dropped & (before != 0)).double().mean() / (before != 0).double().mean())
        assert share == pytest.approx(0.25, abs=0.06)  # 4 deviations of 972 values
