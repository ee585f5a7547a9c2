"""Draws of samples with known probabilities."""

from __future__ import annotations

import pytest
import torch

from operators.data.samples import inclusion, systematic

DRAWS = 4000


def scores(candidates: int) -> torch.Tensor:
    """Scores with a long tail, and one of 0."""
    values = torch.randn(
        candidates, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    return (3 * values).exp().index_fill(0, torch.tensor([0]), 0.0)


@pytest.mark.parametrize(("count", "uniform"), [(1, 0.1), (8, 0.1), (31, 0.5), (32, 0.1)])
def test_probabilities_are_at_most_1_and_sum_to_the_number_of_draws(count, uniform):
    probabilities = inclusion(scores(32), count, uniform)
    assert float(probabilities.sum()) == pytest.approx(count)
    assert float(probabilities.max()) <= 1
    assert float(probabilities.min()) >= min(1, uniform * count / 32) * (1 - 1e-12)
    order = scores(32).argsort()
    assert bool((probabilities[order].diff() >= 0).all())


def test_probabilities_below_1_grow_linearly_with_the_score():
    s = scores(200).clamp(max=1.0)
    probabilities = inclusion(s, 4, 0.25)
    expected = 4 * (0.25 / 200 + 0.75 * s / s.sum())
    torch.testing.assert_close(probabilities, expected)


def test_equal_scores_of_0_are_drawn_alike():
    assert inclusion(torch.zeros(8, dtype=torch.float64), 2, 0.1).tolist() == [0.25] * 8


def test_candidates_are_drawn_with_their_probabilities_and_none_twice():
    probabilities = inclusion(scores(32), 8, 0.1)
    random, counts = torch.Generator().manual_seed(2), torch.zeros(32)
    for _ in range(DRAWS):
        rows = systematic(probabilities, random)
        assert len(set(rows.tolist())) == len(rows) == 8
        counts[rows] += 1
    std = (probabilities * (1 - probabilities) / DRAWS).sqrt()
    assert bool(((counts / DRAWS - probabilities).abs() <= 5 * std + 1e-9).all())


def test_means_with_inverse_probabilities_are_unbiased():
    values, probabilities = scores(32).sqrt(), inclusion(scores(32), 8, 0.1)
    random, means = torch.Generator().manual_seed(3), list[torch.Tensor]()
    for _ in range(DRAWS):
        rows = systematic(probabilities, random)
        means.append((values[rows] / probabilities[rows]).sum() / 32)
    estimates = torch.stack(means)
    error = float(estimates.mean() - values.mean())
    assert abs(error) <= 5 * float(estimates.std()) / DRAWS**0.5
    plain = float(values[systematic(probabilities, random)].mean())
    assert plain > 2 * float(values.mean())  # without weights the mean is another one


def test_the_order_of_the_draws_is_random():
    probabilities = inclusion(torch.ones(64, dtype=torch.float64), 32, 0.1)
    rows = systematic(probabilities, torch.Generator().manual_seed(4))
    assert rows.tolist() != sorted(rows.tolist())
    again = systematic(probabilities, torch.Generator().manual_seed(4))
    assert torch.equal(rows, again)
