"""Fourier/Galerkin Transformers, on lines and on squares: what is particular to them."""

import math

import pytest
import torch

from operators.models.galerkin import GalerkinTransformer
from operators.models.galerkin2d import Downscaler, GalerkinTransformer2d, published
from operators.nn.attention import FAVOR, FOURIER, RFA
from operators.nn.resample import interpolated
from tests.operators.drawn import points, same, shaken
from tests.oracles import plain_galerkin_lite
from tests.oracles.plain_galerkin2d import released_ratio, released_sizes

SMALL = {"width": 12, "depth": 2, "heads": 2, "feedforward": 16, "modes": 4, "decoder_width": 6,
         "head_width": 10, "latent": 9, "downscaler_dropout": 0.0, "dropout": 0.0,
         "feedforward_dropout": 0.0}  # fmt: skip
SMALL_INVERSE = SMALL | {"latent": "output", "decoder": "pointwise", "activation": "silu"}


def line(**settings):
    return GalerkinTransformer(
        **{"width": 12, "depth": 2, "feedforward": 16, "modes": 5, "decoder_width": 6} | settings
    )


def small(**settings):
    return GalerkinTransformer2d(**SMALL | settings)


def nodes(n):
    return points(n, n, kind="nodal")


def cells(n):
    return points(n, n, kind="cell")


def field(n, batch=2):
    torch.manual_seed(2)
    return torch.randn(batch, n, n, 1, dtype=torch.float64)


def test_points_that_samples_share_have_the_gradient_of_points_by_sample():
    model, x = shaken(line()).eval(), points(16)
    a, weight = torch.randn(2, 1, 16, 1, dtype=torch.float64)
    slopes = [
        torch.autograd.grad((model(a, p) * weight).sum(), p)[0].reshape(x.shape)
        for p in (x.clone().requires_grad_(), x[None].clone().requires_grad_())
    ]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [RFA, FAVOR])
def test_coordinates_come_once_after_attention_by_random_features(kind):
    model = shaken(line(attention=kind, heads=3)).eval()
    attention = model.encoder[0].attention
    features = []
    attention.out.register_forward_pre_hook(lambda _, args: features.append(args[0]))
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    model(a, x)
    assert torch.equal(features[0][..., 0], x[:, 0].expand(2, 16))
    assert features[0].shape[-1] == 1 + 12
    model(a, 1 - x)
    assert torch.equal(features[1][..., 1:], features[0][..., 1:])


@pytest.mark.parametrize("coordinates", ["raw", "periodic", "none"])
def test_fused_galerkin_attention_equals_the_general_path(coordinates):
    model = shaken(line(heads=2, coordinates=coordinates))
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    fused = model(a, x)
    for layer in model.encoder:
        assert layer.attention.as_one_map
        layer.attention.as_one_map = False
    torch.testing.assert_close(model(a, x), fused, rtol=1e-10, atol=1e-10)


def test_published_dropout_makes_two_evaluations_differ():
    model = shaken(line(attention_dropout="published")).eval()
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    assert not torch.equal(model(a, x), model(a, x))


def test_without_attention_it_acts_pointwise_before_the_decoder():
    model = GalerkinTransformer(attention=None)
    x = points(64, dtype=torch.float32)
    a = torch.randn(1, 64, 1)
    changed = a.clone()
    changed[:, 5] += 1.0
    u, v = (model.encoder[0](model.embed(f), x) for f in (a, changed))
    assert (u != v).any(dim=2).nonzero()[:, 1].tolist() == [5]


def test_an_instance_norm_is_that_of_each_feature_over_the_points():
    torch.manual_seed(0)
    model = GalerkinTransformer(width=8, heads=2, normalization="instance").double()
    layer = model.encoder[0].attention
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    u, x = torch.randn(3, 11, 8, dtype=torch.float64), torch.rand(11, 1, dtype=torch.float64)
    expected = plain_galerkin_lite.attention(layer, u, x, instance=True)
    same(layer(u, x), expected, layer, rtol=1e-8)


def test_an_instance_norm_of_queries_is_of_queries():
    """The released code takes the values for them by mistake."""
    torch.manual_seed(0)
    model = GalerkinTransformer(width=8, attention=FOURIER, normalization="instance")
    layer = model.encoder[0].attention.double()
    u, x = torch.randn(1, 11, 8, dtype=torch.float64), torch.rand(11, 1, dtype=torch.float64)
    q, k, v = (u @ layer.project.weight[i].T for i in range(3))
    q, k = (torch.nn.functional.instance_norm(w.transpose(1, 2)).transpose(1, 2) for w in (q, k))
    q, k, v = (torch.cat([x[None], w], dim=-1) for w in (q, k, v))
    torch.testing.assert_close(layer(u, x), layer.out(q @ (k.mT @ v) / (11 * 3)))


@pytest.mark.parametrize(
    ("n", "m", "sizes"),
    [  # what the released function printed for the grids of its examples
        (141, 43, (78, 77)), (211, 61, (113, 113)), (211, 71, (123, 122)), (85, 29, (50, 49)),
        (141, 71, (100, 99)), (421, 71, (172, 172)), (141, 36, (71, 71)), (85, 22, (43, 42)),
        # and where its binary fractions give other sizes than the rule
        (30, 27, (28, 28)), (66, 17, (33, 32)), (100, 8, (28, 28)), (110, 99, (104, 104)),
    ],
)  # fmt: skip
def test_published_intermediate_grids_are_those_of_the_released_code(n, m, sizes):
    assert published(n, m) == sizes
    assert (released_sizes(n, m) == sizes) == (n not in (30, 66, 100, 110))


def test_published_intermediate_grids_follow_the_released_rule_on_every_pair():
    for n in range(8, 253, 7):
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
    model(a, x, y)
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
