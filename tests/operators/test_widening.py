"""Operators with a further input start as those without it."""

import pytest
import torch

from operators.training.widening import start_as
from pipelines.declared.models import parse_model
from tests.operators.cases import CASES, FIRST, functions, points

# a weight norm of all inputs together, and a layer norm of the inputs
KEEPING = {"f-fno", "ipot"}
STARTING = [(label, dim) for label, dim in FIRST if CASES[label].name not in KEEPING]


def built(label, dim, channels):
    """An operator with its initial weights, in float64."""
    torch.manual_seed(1)
    case = CASES[label]
    model = parse_model({"name": case.name, **case.settings}).build(channels, 1, dim).double()
    x = points(dim, dtype=torch.float32)
    model.adapt([torch.randn(20, *x.shape[:-1], 1)], x)
    return model.eval()


def started(label, dim):
    """(without the input, with it, whether the latter started as the former)."""
    narrow, wide = built(label, dim, 1), built(label, dim, 2)
    x = points(dim)
    return narrow, wide, start_as(wide, narrow, lambda model, a: model(a, x), functions(dim))


@pytest.mark.parametrize(("label", "dim"), STARTING)
def test_it_is_the_operator_without_the_input_and_learns_of_it(label, dim):
    narrow, wide, could = started(label, dim)
    assert could
    a, x = functions(dim), points(dim)
    b = torch.randn_like(a)
    found = wide(torch.cat([a, b], -1), x)
    torch.testing.assert_close(found, narrow(a, x), rtol=1e-9, atol=1e-9)
    found.square().sum().backward()
    weights = zip(narrow.named_parameters(), wide.named_parameters(), strict=True)
    wider = [new for (_, old), (_, new) in weights if old.shape != new.shape]
    assert wider
    for parameter in wider:
        assert parameter.grad is not None
        assert parameter.grad[parameter == 0].abs().min() > 0


@pytest.mark.parametrize(("label", "dim"), [one for one in FIRST if CASES[one[0]].name in KEEPING])
def test_where_weights_cannot_be_told_apart_it_keeps_its_own(label, dim):
    own = built(label, dim, 2).state_dict()
    _, wide, could = started(label, dim)
    assert not could
    assert all(torch.equal(v, own[name]) for name, v in wide.state_dict().items())
