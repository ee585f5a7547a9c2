"""Transolver++ against the released code in other words; its noise, by statistics."""

import copy
import math

import pytest
import torch

from operators.models.transolver_plus import EideticAttention, TransolverPlus, gumbel
from tests.operators.drawn import cloud, graded, shaken
from tests.oracles.plain_transolver_plus import PlainTransolverPlus

SIZES = {"width": 12, "depth": 2, "heads": 3, "slices": 5, "feedforward": 10}


def small(**settings):
    return shaken(TransolverPlus(**SIZES | settings))


@pytest.mark.parametrize("noisy", [False, True])
def test_is_the_released_operator_with_its_gradients(noisy):
    """In training with the same random numbers, in evaluation without."""
    model = small(in_channels=3, out_channels=2).train(noisy)
    plain = PlainTransolverPlus(5, 2, **SIZES).double()
    plain.copy_from(model)
    a, x = cloud(channels=3)
    torch.manual_seed(3)
    u = model(a, x)
    torch.manual_seed(3)
    expected = plain(torch.cat([x, a], dim=-1), noisy)
    torch.testing.assert_close(u, expected, rtol=1e-10, atol=1e-10)
    for v in (u, expected):
        v.square().sum().backward()
    again = copy.deepcopy(plain)  # with the gradients of ours in place of its weights
    again.copy_from(graded(model))
    for mine, theirs in zip(again.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.grad, rtol=1e-10, atol=1e-10)


def test_predictions_are_not_random_and_steps_of_training_are():
    model, (a, x) = small(), cloud()
    assert not torch.allclose(model(a, x), model(a, x), rtol=1e-3)
    model.eval()
    assert torch.equal(model(a, x), model(a, x))


def test_without_noise_training_is_evaluation(monkeypatch):
    """-log(-log U) is 0 where U is 1/e; 1e-8 stands beside it."""
    model, (a, x) = small(), cloud()
    monkeypatch.setattr(
        torch, "rand_like", lambda u, dtype=None: torch.full_like(u, math.exp(-1), dtype=dtype)
    )
    found = model(a, x)
    torch.testing.assert_close(found, model.eval()(a, x), rtol=1e-6, atol=1e-6)


def test_noise_has_the_law_of_gumbel():
    torch.manual_seed(0)
    draws = gumbel(torch.zeros(200_000, dtype=torch.float64))
    # deviations: of the mean 0.0029, of the variance 0.0077; five of them
    assert float(draws.mean()) == pytest.approx(0.5772, abs=0.015)
    assert float(draws.var()) == pytest.approx(math.pi**2 / 6, abs=0.04)
    below = (draws < 1).double().mean()
    assert float(below) == pytest.approx(math.exp(-math.exp(-1)), abs=0.006)
    assert bool(gumbel(torch.zeros(1000).bfloat16()).isfinite().all())
    assert gumbel(torch.zeros(2).bfloat16()).dtype == torch.float32


def test_cold_slices_are_chosen_with_the_probabilities_of_a_softmax():
    """At the lowest temperature each point is in one slice, the one whose logit plus noise is
    largest: the softmax of the logits, whatever they were divided by."""
    attention = EideticAttention(4, 1, 3).double()
    with torch.no_grad():
        attention.slices.weight.zero_()
        attention.slices.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
        attention.offset.fill_(-1.0)  # below the bound
    torch.manual_seed(0)
    w = attention.weights(torch.zeros(1, 1, 100_000, 4, dtype=torch.float64))
    assert float((w.amax(-1) > 0.99).double().mean()) > 0.95
    expected = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64).softmax(0)
    # five deviations of a share of 100,000 draws
    torch.testing.assert_close(w.mean(dim=(0, 1, 2)), expected, rtol=0, atol=0.008)


@pytest.mark.parametrize("noisy", [False, True])
def test_shares_of_a_point_sum_to_one(noisy):
    attention = shaken(EideticAttention(12, 3, 5)).train(noisy)
    w = attention.weights(torch.randn(2, 3, 7, 4, dtype=torch.float64))
    torch.testing.assert_close(w.sum(-1), torch.ones(2, 3, 7, dtype=torch.float64))
    assert w.min() > 0
    half = attention.bfloat16().weights(torch.randn(2, 3, 7, 4).bfloat16())
    assert half.dtype == torch.float32


def test_temperature_is_bounded_below_and_belongs_to_the_point():
    attention = shaken(EideticAttention(12, 3, 5)).eval()
    x = torch.randn(1, 3, 2, 4, dtype=torch.float64)
    with torch.no_grad():
        attention.offset.fill_(-5.0)
        cold = attention.weights(x)
        attention.offset.fill_(-50.0)
        assert torch.equal(attention.weights(x), cold)
        attention.offset.fill_(1.0)
        warm = attention.weights(x)
    ratio = [
        (attention.slices(x)[0, 0, j].diff() / warm[0, 0, j].log().diff()).mean() for j in (0, 1)
    ]
    expected = (attention.temperature(x) + 1.0)[0, 0, :, 0]
    torch.testing.assert_close(torch.stack(ratio), expected)


def test_number_of_parameters():
    def linear(c_in, c_out, bias=True):
        return c_in * c_out + bias * c_out

    d, width, slices = 16, 128, 64
    attention = (
        2 * linear(width, width) + 2 * linear(d, slices) + linear(slices, 1) + 8
        + 3 * linear(d, d, bias=False)
    )  # fmt: skip
    block = attention + 2 * linear(width, width) + 4 * width
    ends = linear(3, 2 * width) + linear(2 * width, width) + width + 2 * width + linear(width, 1)
    with torch.device("meta"):
        assert TransolverPlus().parameter_count == 8 * block + ends


@pytest.mark.parametrize("orthogonal", [True, False])
def test_map_to_slices_starts_orthogonal_or_small(orthogonal):
    module = TransolverPlus(depth=1, orthogonal=orthogonal).blocks[0].attention
    gram = module.slices.weight.mT @ module.slices.weight
    assert torch.allclose(gram, torch.eye(16), atol=1e-5) == orthogonal


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 3}, "dim must be 1 or 2, got 3"),
        ({"heads": 5}, "heads must divide width, got heads=5, width=12"),
        ({"slices": 1}, "slices must be at least 2, got 1"),
        ({"lattice": 1}, "lattice must be at least 2, got 1"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
    ],
)
def test_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)
