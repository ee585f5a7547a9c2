"""GNOT against its released code in plain form, and its claims, in float64."""

import pytest
import torch

from operators.models.gnot import GNOT, normalized
from tests.operators.drawn import same, shaken
from tests.oracles.plain_gnot import plain_gnot


def small(**settings):
    torch.manual_seed(0)
    return GNOT(
        **{"dim": 2, "width": 12, "depth": 2, "heads": 3, "feedforward": 10, "mlp_depth": 2}
        | settings
    )


def cloud(n=9, dim=2):
    torch.manual_seed(2)
    return torch.rand(n, dim, dtype=torch.float64)


def functions(n=9, channels=1, batch=2):
    torch.manual_seed(3)
    return torch.randn(batch, n, channels, dtype=torch.float64)


@pytest.mark.parametrize("branches", ["one", "each"])
def test_is_the_released_operator_written_out_with_its_gradients(branches):
    model = shaken(small(in_channels=2, out_channels=2, branches=branches))
    a, x = functions(channels=2), cloud()
    same(model(a, x), plain_gnot(model, a, x, heads=3), model, rtol=1e-9)


@pytest.mark.parametrize("branches", ["one", "each"])
def test_channels_are_one_function_or_several(branches):
    model = small(in_channels=3, branches=branches)
    assert len(model.branches) == {"one": 1, "each": 3}[branches]
    assert model.branches[0].first.in_features == 2 + {"one": 3, "each": 1}[branches]


def test_half_precision_keeps_the_weights_of_many_points():
    """Sums over 4096 points would be beyond the 8 bits of a sum of bfloat16."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 1, n, 8).softmax(-1) for n in (3, 4096))
    v = torch.randn(1, 1, 4096, 8)
    half = normalized(q.bfloat16(), k.bfloat16(), v.bfloat16()).float()
    torch.testing.assert_close(half, normalized(q, k, v), rtol=0, atol=1e-2)
