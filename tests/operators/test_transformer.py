"""The Transformer against its plain transcription and its symmetries."""

import copy
import math

import pytest
import torch

from operators.base import check_input
from operators.models.transformer import Transformer
from tests.operators.drawn import shaken
from tests.oracles.plain_operators import PlainTransformer

ATTENTIONS = ["softmax", "efficient", "galerkin"]
SMALL = {"width": 12, "depth": 2, "heads": 2, "feedforward": 16, "modes": 4, "decoder_width": 6}


def small(**settings):
    return Transformer(**SMALL | settings)


def points(dim, n=10):
    """The points j/n of each axis, shape (n, ..., dim)."""
    axis = torch.arange(n, dtype=torch.float64) / n
    return torch.stack(torch.meshgrid(*[axis] * dim, indexing="ij"), -1)


def field(dim, n=10, batch=2):
    torch.manual_seed(2)
    return torch.randn(batch, *[n] * dim, 1, dtype=torch.float64)


def plain(model, a, x, *, attention, pre, activation):
    """The same map without one shared line, for the linear decoder."""
    f, heads = torch.nn.functional, SMALL["heads"]
    act = torch.relu if activation == "relu" else lambda t: t * (1 + torch.erf(t / 2**0.5)) / 2
    u = torch.cat([a, x.expand(len(a), *x.shape)], -1).flatten(1, -2)
    u = u @ model.embed.weight.T + model.embed.bias

    def norm(t, weights):
        mean, variance = t.mean(-1, keepdim=True), t.var(-1, keepdim=True, correction=0)
        return (t - mean) / (variance + 1e-5).sqrt() * weights.weight + weights.bias

    def attend(t, layer):
        project, rows = layer.attention.project, []
        for h in range(heads):
            chosen = slice(h * 6, (h + 1) * 6)
            q, k, v = (
                t @ w[chosen].T + b[chosen]
                for w, b in zip(project.weight, project.bias, strict=True)
            )
            if attention == "softmax":
                rows.append(f.softmax(q @ k.mT / math.sqrt(6), -1) @ v)
            elif attention == "efficient":
                rows.append(f.softmax(q, -1) / math.sqrt(6) @ (f.softmax(k, -2).mT @ v))
            else:
                rows.append(q @ (k.mT @ v) / t.shape[1])
        return layer.attention.out(torch.cat(rows, -1))

    def mlp(t, layer):
        return layer.mlp[2](act(layer.mlp[0](t)))

    for layer in model.layers:
        if pre:
            u = u + attend(norm(u, layer.norm1), layer)
            u = u + mlp(norm(u, layer.norm2), layer)
        else:
            u = norm(u + attend(u, layer), layer.norm1)
            u = norm(u + mlp(u, layer), layer.norm2)
    if pre:
        u = norm(u, model.norm)
    return model.decoder(u).view(*a.shape[:-1], -1)


@pytest.mark.parametrize("name", Transformer.presets)
def test_presets_have_their_number_of_parameters(name):
    preset = Transformer.presets[name]
    with torch.device("meta"):
        assert Transformer(**preset.settings).parameter_count == preset.parameters


def test_presets_are_as_large_as_those_of_the_talk():
    counts = {name: preset.parameters for name, preset in Transformer.presets.items()}
    assert round(counts["burgers-vanilla"] / 1e6) == 22
    assert round(counts["burgers-efficient"] / 1e3) == 523


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(("normalization", "activation"), [("pre", "gelu"), ("post", "relu")])
def test_equals_the_plain_transcription(dim, attention, normalization, activation):
    model = shaken(
        small(dim=dim, attention=attention, normalization=normalization, activation=activation)
    )
    a, x = field(dim), points(dim)
    expected = plain(
        model, a, x, attention=attention, pre=normalization == "pre", activation=activation
    )
    torch.testing.assert_close(model(a, x), expected, rtol=1e-9, atol=1e-9)


def test_projections_start_as_xavier_without_a_diagonal():
    torch.manual_seed(0)
    weight = Transformer().layers[0].attention.project.weight.detach()
    bound = math.sqrt(3 / 128)
    assert float(weight.abs().max()) == pytest.approx(bound, rel=0.01)
    # of 3 · 128 draws of deviation 0.09, whose mean deviates by 0.005
    assert abs(float(weight.diagonal(dim1=1, dim2=2).mean())) < 0.02


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("decoder", ["linear", "spectral"])
def test_gradient_reaches_every_parameter(dim, attention, decoder):
    model = shaken(small(dim=dim, attention=attention, decoder=decoder))
    model(field(dim), points(dim)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_batch_equals_its_samples(dim, attention):
    model = shaken(small(dim=dim, attention=attention))
    a, x = field(dim, batch=3), points(dim)
    singles = torch.cat([model(one[None], x) for one in a])
    torch.testing.assert_close(model(a, x), singles, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_without_coordinates_it_commutes_with_permutations_of_the_points(attention):
    model = shaken(small(attention=attention, coordinates="none"))
    a, x = field(1), points(1)
    order = torch.randperm(10)
    torch.testing.assert_close(model(a[:, order], x), model(a, x)[:, order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_points_and_values_that_are_permuted_together_give_the_values_permuted(attention):
    model = shaken(small(attention=attention))
    a, x = field(1), points(1)
    order = torch.randperm(10)
    torch.testing.assert_close(
        model(a[:, order], x[order]), model(a, x)[:, order], rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("dim", [1, 2])
def test_without_coordinates_the_spectral_decoder_commutes_with_shifts(dim):
    model = shaken(small(dim=dim, coordinates="none", decoder="spectral"))
    a, x = field(dim), points(dim)
    shifts, axes = (3, 5)[:dim], tuple(range(1, dim + 1))
    torch.testing.assert_close(
        model(a.roll(shifts, axes), x), model(a, x).roll(shifts, axes), rtol=1e-9, atol=1e-9
    )


def test_periodic_coordinates_are_the_same_at_both_ends():
    model = small(coordinates="periodic", dim=2).double()
    ends = torch.tensor([[[0.0, 0.3]], [[1.0, 0.3]]], dtype=torch.float64)
    p = model.positions(ends)
    assert p.shape == (2, 1, 4)
    torch.testing.assert_close(p[0], p[1])


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("decoder", ["linear", "spectral"])
def test_converges_under_refinement(dim, attention, decoder):
    """Attention is a quadrature, exact to many digits for periodic smooth functions."""
    model = shaken(small(dim=dim, attention=attention, decoder=decoder, coordinates="periodic"))

    def values(n):
        x = points(dim, n)
        return model(torch.sin(2 * torch.pi * x).prod(-1)[None, ..., None] + 0.3, x)[0]

    n = 64 if dim == 1 else 16
    fine = values(2 * n)[::2] if dim == 1 else values(2 * n)[::2, ::2]
    torch.testing.assert_close(fine, values(n), rtol=1e-3, atol=1e-3)


def test_float32_agrees_with_float64():
    model = small()
    a, x = field(1), points(1)
    single = model(a.float(), x.float())
    torch.testing.assert_close(single.double(), model.double()(a, x), rtol=1e-5, atol=1e-5)


def test_two_evaluations_and_a_copy_are_bit_equal_with_every_dropout_on():
    model = small(dropout=0.3, attention_dropout=0.3).eval()
    a, x = field(1).float(), points(1).float()
    assert torch.equal(model(a, x), model(a, x))
    assert torch.equal(copy.deepcopy(model)(a, x), model(a, x))


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout"])
def test_each_dropout_acts_in_training(rate):
    model = shaken(small(**{rate: 0.3})).train()
    a, x = field(1), points(1)
    assert not torch.equal(model(a, x), model(a, x))


def test_grids_of_two_sizes():
    model = shaken(small(dim=2))
    a, x = field(2)[:, :, :7], points(2)[:, :7]
    assert model(a, x).shape == (2, 10, 7, 1)


def test_refuses_impossible_settings():
    with pytest.raises(ValueError, match="heads must divide width, got heads=5, width=12"):
        small(heads=5)
    with pytest.raises(ValueError, match="dim must be 1 or 2, got 3"):
        small(dim=3)


@pytest.mark.usefixtures("unchecked")
def test_refuses_input_of_another_shape():
    grids = r"shape \(batch, n1, n2, 1\) or \(batch, n, 1\), got \(2, 9, 2\)"
    with pytest.raises(ValueError, match=grids):
        check_input(small(dim=2), torch.zeros(2, 9, 2), points(2, 9))
    with pytest.raises(ValueError, match=r"coordinates of shape \(2, 9, 2\), got \(9, 9, 2\)"):
        check_input(small(dim=2), torch.zeros(2, 9, 1), points(2, 9))
    with pytest.raises(ValueError, match=r"shape \(batch, n1, 1\), got \(2, 9, 2\)"):
        small()(torch.zeros(2, 9, 2), points(1, 9))


def test_refuses_points_of_the_output_other_than_those_of_the_input():
    with pytest.raises(ValueError, match="y must be None"):
        small()(field(1).float(), points(1).float(), points(1, 5).float())


def test_refuses_a_grid_too_coarse_for_the_modes():
    with pytest.raises(ValueError, match="4 modes need a grid of at least 8 points, got 7"):
        small(decoder="spectral")(field(1, 7).float(), points(1, 7).float())


def test_is_what_pytorch_makes_of_its_own_layers():
    model = shaken(small(attention="softmax"))
    plain = PlainTransformer(1, 12, 2, 2, 16).double()
    plain.copy_from(model)
    a, x = torch.randn(2, 10, 1, dtype=torch.float64), points(1)
    torch.testing.assert_close(model(a, x), plain(a, x))
