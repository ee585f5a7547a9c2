"""The law of the fast dropout, and where operators drop."""

import math

import pytest
import torch

from operators.nn.pointwise import Dropout, dropped
from operators.testing.checks import functions, points
from tests.operators.cases import CASES, DIMS, arguments, made


@pytest.mark.parametrize("p", [0.02, 0.1, 0.25])
def test_drops_each_value_with_its_probability_and_on_its_own(p):
    torch.manual_seed(0)
    n, repeats = 50, 20_000
    hits = torch.zeros(repeats * n)
    hits[dropped(repeats * n, p)] = 1
    hits = hits.view(repeats, n)
    sigma = math.sqrt(p * (1 - p) / repeats)
    assert (hits.mean(0) - p).abs().max() < 4.5 * sigma  # the largest of 50
    correlation = torch.corrcoef(hits.T).fill_diagonal_(0)
    assert correlation.abs().max() < 5 / math.sqrt(repeats)  # the largest of 1,225


def test_pieces_drawn_one_after_the_other_have_the_law_of_one():
    """First and last place, where a wrong start or a lack of draws would show."""
    torch.manual_seed(0)
    p, n, repeats = 0.2, 7, 4_000
    counts = torch.zeros(n)
    for _ in range(repeats):
        counts[dropped(n, p)] += 1
    assert (counts / repeats - p).abs().max() < 4 * math.sqrt(p * (1 - p) / repeats)


def test_indices_ascend_and_stay_inside():
    torch.manual_seed(0)
    for count in (0, 1, 5, 1000):
        indices = dropped(count, 0.2)
        assert bool((indices.diff() > 0).all())
        assert bool(((indices >= 0) & (indices < count)).all())


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_gradient_is_the_mask_of_the_values(p):
    torch.manual_seed(0)
    u = torch.randn(4, 50, 6, dtype=torch.float64).transpose(1, 2).requires_grad_()
    drop = Dropout(p)
    v = drop(u)
    assert v.shape == u.shape
    mask = v / u
    assert torch.equal(mask == 0, v == 0)
    torch.testing.assert_close(mask[mask != 0], torch.full_like(mask[mask != 0], 1 / (1 - p)))
    v.sum().backward()
    torch.testing.assert_close(u.grad, mask.detach())


def test_does_nothing_in_evaluation_nor_with_rate_zero():
    u = torch.ones(10)
    assert Dropout(0.1).eval()(u) is u
    assert Dropout(0.0)(u) is u


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_refuses_a_rate_that_is_none(p):
    with pytest.raises(ValueError, match=r"a dropout rate must lie in \[0, 1\)"):
        Dropout(p)


# (operator, rate, setting): the layer that would drop is not there
IDLE = {
    ("galerkin-transformer", "decoder_dropout", "pointwise"),
    ("galerkin-transformer-2d", "decoder_dropout", "pointwise"),
    ("galerkin-transformer", "attention_dropout", "none"),
    ("galerkin-transformer-2d", "attention_dropout", "none"),
}


def drops(label):
    """The rates of a case: those of its operator, decoder and attention once."""
    own, name = arguments(label), CASES[label].name
    beside = {str(own.get(key)).lower() for key in ("decoder", "attention")}
    for rate in own:
        refused = rate == "head_dropout" and own.get("decoder") == "spectral"
        if rate.endswith("dropout") and not refused:
            idle = any((name, rate, word) in IDLE for word in beside)
            yield (name, rate, own.get("decoder"), "none" in beside), (label, rate, idle)


RATES = {key: case for label in reversed(CASES) for key, case in drops(label)}.values()


@pytest.mark.parametrize(("label", "rate", "idle"), RATES)
def test_each_rate_acts_in_training_and_not_in_evaluation(label, rate, idle):
    dim = DIMS[label][-1]
    model, plain = made(label, dim, **{rate: 0.5}), made(label, dim, **{rate: 0.0})
    a, x = functions(dim), points(dim)
    assert torch.equal(model.eval()(a, x), plain.eval()(a, x))
    values = []
    for one in (model, plain):
        torch.manual_seed(0)  # of random features
        values.append(one.train()(a, x))
    assert torch.equal(*values) == idle
