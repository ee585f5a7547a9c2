"""Transolver++ against the released code in other words; its noise, by statistics."""

import math

import pytest
import torch

from operators.models.transolver_plus import EideticAttention, TransolverPlus, gumbel
from tests.operators.drawn import cloud, same_as_copy, shaken
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
    same_as_copy(u, expected, model, plain)


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


def test_temperature_is_bounded_below_and_belongs_to_the_point():
    attention = shaken(EideticAttention(12, 3, 5)).eval()
    x = torch.randn(1, 3, 2, 4, dtype=torch.float64)
    with torch.no_grad():
        attention.offset.fill_(-5.0)
        cold = attention.weights(x)
        torch.testing.assert_close(cold, (attention.slices(x) / 0.01).softmax(-1))
        attention.offset.fill_(-50.0)
        assert torch.equal(attention.weights(x), cold)
        attention.offset.fill_(1.0)
        warm = attention.weights(x)
    ratio = [
        (attention.slices(x)[0, 0, j].diff() / warm[0, 0, j].log().diff()).mean() for j in (0, 1)
    ]
    expected = (attention.temperature(x) + 1.0)[0, 0, :, 0]
    torch.testing.assert_close(torch.stack(ratio), expected)
