"""Losses against the formulas written out, in float64."""

import math

import numpy as np
import pytest
import torch

from operators.norms import RelativeH1, RelativeL2, central_difference, l2, relative_l2


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return tuple(torch.from_numpy(rng.standard_normal((3, 10, 1))) for _ in range(2))


def slope_at(v, j):
    n = len(v)
    return (v[(j + 1) % n] - v[(j - 1) % n]) * n / 2


def dense_h1(p, u, gamma, periodic):
    total = 0.0
    for prediction, target in zip(p[..., 0].tolist(), u[..., 0].tolist(), strict=True):
        n = len(target)
        error = math.sqrt(sum((a - b) ** 2 for a, b in zip(prediction, target, strict=True)))
        points = range(n) if periodic else range(1, n - 1)
        slope = math.sqrt(sum((slope_at(prediction, j) - slope_at(target, j)) ** 2 for j in points))
        size = math.sqrt(sum(v**2 for v in target))
        steepness = math.sqrt(sum(slope_at(target, j) ** 2 for j in range(n)))
        total += error / size + math.sqrt(gamma / n) * slope / steepness
    return total / len(p)


@pytest.mark.parametrize("periodic", [True, False])
def test_h1_loss_is_the_unsquared_sum_with_weight_root_gamma_h(pair, periodic):
    loss = RelativeH1(gamma=0.1, periodic=periodic)(*pair)
    assert float(loss) == pytest.approx(dense_h1(*pair, 0.1, periodic), rel=1e-12)


def test_h1_loss_without_derivative_is_the_l2_loss(pair):
    torch.testing.assert_close(RelativeH1(gamma=0.0)(*pair), RelativeL2()(*pair))


def test_relative_l2_is_one_number_for_each_sample(pair):
    p, u = pair
    expected = torch.sqrt(((p - u) ** 2).sum((1, 2)) / (u**2).sum((1, 2)))
    torch.testing.assert_close(relative_l2(p, u), expected)


def test_l2_norm_of_a_sine_is_root_one_half_on_every_grid():
    for n in (16, 64):
        u = torch.sin(2 * torch.pi * torch.arange(n, dtype=torch.float64) / n)
        assert float(l2(u[None, :, None])[0]) == pytest.approx(math.sqrt(0.5), rel=1e-12)


def test_central_difference_has_order_two():
    def error(n):
        x = torch.arange(n, dtype=torch.float64)[None, :, None] / n
        exact = 2 * torch.pi * torch.cos(2 * torch.pi * x)
        return float((central_difference(torch.sin(2 * torch.pi * x), 1 / n) - exact).abs().max())

    assert math.log2(error(64) / error(128)) == pytest.approx(2, abs=0.05)


def test_negative_gamma_is_refused():
    with pytest.raises(ValueError, match="gamma must be >= 0, got -1"):
        RelativeH1(gamma=-1)
