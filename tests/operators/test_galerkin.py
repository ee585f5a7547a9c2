"""The Fourier/Galerkin Transformer against its plain transcription and its specification."""

import pytest
import torch

from operators.models.galerkin import GalerkinTransformer
from operators.nn.attention import EFFICIENT, FOURIER, GALERKIN, LINEAR, SOFTMAX
from operators.nn.features import FAVOR, RFA
from operators.nn.nystrom import NYSTROM
from tests.operators.drawn import points, same, same_as_copy, shaken
from tests.oracles import plain_galerkin_lite
from tests.oracles.plain_galerkin import PlainGalerkinTransformer

KINDS = {
    "galerkin": GALERKIN, "fourier": FOURIER, "softmax": SOFTMAX, "linear": LINEAR,
    "efficient": EFFICIENT, "rfa": RFA, "favor": FAVOR, "nystrom": NYSTROM,
}  # fmt: skip


def small(**settings):
    return GalerkinTransformer(
        **{"width": 12, "depth": 2, "feedforward": 16, "modes": 5, "decoder_width": 6} | settings
    )


@pytest.mark.parametrize("kind", [RFA, FAVOR])
def test_coordinates_come_once_after_attention_by_random_features(kind):
    model = shaken(small(attention=kind, heads=3)).eval()
    attention = model.encoder[0].attention
    features = []
    attention.out.register_forward_pre_hook(lambda _, args: features.append(args[0]))
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    model(a, x)
    assert torch.equal(features[0][..., 0], x[:, 0].expand(2, 16))
    assert features[0].shape[-1] == 1 + 12
    model(a, 1 - x)
    assert torch.equal(features[1][..., 1:], features[0][..., 1:])


@pytest.mark.parametrize("heads", [1, 3])
def test_equals_the_plain_transcription_with_its_gradients(heads):
    model = shaken(small(heads=heads))
    plain = PlainGalerkinTransformer(12, 2, heads, 16, 5, 6).double()
    plain.copy_from(model)
    a, x = torch.randn(3, 16, 1, dtype=torch.float64), points(16)
    same_as_copy(model(a, x), plain(a, x), model, plain)


@pytest.mark.parametrize("coordinates", ["raw", "periodic", "none"])
def test_fused_galerkin_attention_equals_the_general_path(coordinates):
    model = shaken(small(heads=2, coordinates=coordinates))
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    fused = model(a, x)
    for layer in model.encoder:
        assert layer.attention.as_one_map
        layer.attention.as_one_map = False
    torch.testing.assert_close(model(a, x), fused, rtol=1e-10, atol=1e-10)


def test_published_dropout_makes_two_evaluations_differ():
    model = shaken(small(attention_dropout="published")).eval()
    a, x = torch.randn(2, 16, 1, dtype=torch.float64), points(16)
    assert not torch.equal(model(a, x), model(a, x))


def test_without_attention_it_acts_pointwise_before_the_decoder():
    model = GalerkinTransformer(attention=None)
    assert model.parameter_count == 530_305 - 4 * (3 * (96**2 + 96) + 4 * 96 + 97 * 96 + 96)
    x = points(64, dtype=torch.float32)
    a = torch.randn(1, 64, 1)
    changed = a.clone()
    changed[:, 5] += 1.0
    u, v = (model.encoder[0](model.embed(f), x) for f in (a, changed))
    assert (u != v).any(dim=2).nonzero()[:, 1].tolist() == [5]


# with weights of order one the mean of RFA's kernel has zeros, where no grid is fine enough


def test_on_squares_it_is_the_released_lite_model_written_out():
    torch.manual_seed(0)
    settings = GalerkinTransformer.presets["navier-stokes"].settings
    sizes = {"width": 8, "depth": 2, "feedforward": 12, "modes": 3, "decoder_width": 5}
    model = GalerkinTransformer(in_channels=10, dim=2, **settings | sizes).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    a = torch.randn(3, 9, 9, 10, dtype=torch.float64)
    x = torch.rand(9, 9, 2, dtype=torch.float64)
    same(model(a, x), plain_galerkin_lite.plain(model, a, x), model, rtol=1e-8)


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
    model = GalerkinTransformer(width=8, attention=KINDS["fourier"], normalization="instance")
    layer = model.encoder[0].attention.double()
    u, x = torch.randn(1, 11, 8, dtype=torch.float64), torch.rand(11, 1, dtype=torch.float64)
    q, k, v = (u @ layer.project.weight[i].T for i in range(3))
    q, k = (torch.nn.functional.instance_norm(w.transpose(1, 2)).transpose(1, 2) for w in (q, k))
    q, k, v = (torch.cat([x[None], w], dim=-1) for w in (q, k, v))
    torch.testing.assert_close(layer(u, x), layer.out(q @ (k.mT @ v) / (11 * 3)))
