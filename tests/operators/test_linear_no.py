"""LinearNO against its formulas in other words, and against Transolver."""

import pytest
import torch

from operators.models.linear_no import LinearNO
from operators.models.transolver import Transolver
from tests.operators.drawn import points, same_as_copy, shaken
from tests.oracles.plain_linear_no import PlainLinearNO

SIZES = {"width": 12, "depth": 2, "heads": 3, "slices": 5, "feedforward": 10, "lattice": 3}


def small(**settings):
    torch.manual_seed(0)
    return shaken(LinearNO(**SIZES | settings))


def square(n1=6, n2=5):
    torch.manual_seed(2)
    return torch.randn(2, n1, n2, 1, dtype=torch.float64), points(n1, n2)


def test_is_the_operator_of_the_paper_with_its_gradients():
    model, (a, x) = small(), square()
    plain = PlainLinearNO(**SIZES).double()
    plain.copy_from(model)
    u, expected = model(a, x), plain(a, x)
    same_as_copy(u, expected, model, plain)


@pytest.mark.parametrize("projection", ["convolution", "linear"])
@pytest.mark.parametrize("shares", ["slices", "points"])
def test_is_transolver_without_its_attention_and_with_projections_alike(
    monkeypatch, projection, shares
):
    """The same weights, temperature 1, and slices that attend to themselves alone. Shares that
    are a softmax over points are others."""
    model = small(projection=projection, shares=shares)
    torch.manual_seed(0)
    other = Transolver(**SIZES, projection=projection).double()
    with torch.no_grad():
        for mine, theirs in zip(model.blocks, other.blocks, strict=True):
            mine.attention.key.weight.copy_(mine.attention.query.weight)
            if shares == "slices":
                mine.attention.key.bias.copy_(mine.attention.query.bias)
            theirs.attention.temperature.fill_(1)
            for name in ("norm1", "norm2", "mlp"):
                getattr(theirs, name).load_state_dict(getattr(mine, name).state_dict())
            for name, source in (
                ("to_slices", "project"),
                ("to_values", "project"),
                ("slices", "query"),
                ("value", "value"),
                ("out", "out"),
            ):
                state = getattr(mine.attention, source).state_dict()
                getattr(theirs.attention, name).load_state_dict(state)
        for name in ("embed", "decoder"):
            getattr(other, name).load_state_dict(getattr(model, name).state_dict())
        other.placeholder.copy_(model.placeholder)
    a, x = square()
    plain = other(a, x)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda q, k, v: v)
    assert torch.allclose(model(a, x), other(a, x), rtol=1e-12, atol=1e-12) == (shares == "slices")
    assert not torch.allclose(plain, other(a, x), rtol=1e-3)
