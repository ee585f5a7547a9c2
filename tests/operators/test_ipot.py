"""IPOT against the released code in other words, and what its queries are made of."""

import pytest
import torch

from operators.models.ipot import IPOT
from tests.operators.drawn import cloud, graded, shaken
from tests.oracles.plain_ipot import PlainIPOT

SIZES = {"dim": 2, "width": 12, "depth": 2, "heads": 3, "cross_heads": 2, "latents": 5,
         "expansion": 2, "bands": 3, "resolution": 8}  # fmt: skip


def small(**settings):
    """In float64, with weights of order one, so that every term counts."""
    torch.manual_seed(1)
    return shaken(IPOT(**SIZES | settings))


def plain(model, channels):
    found = PlainIPOT(channels, **SIZES).double()
    for parameter in found.parameters():
        torch.nn.init.zeros_(parameter)
    found.copy_from(model)
    return found


@pytest.mark.parametrize("channels", [(3, 2), (1, 1)])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_is_the_released_operator_with_its_gradients(channels, elsewhere):
    model = small(in_channels=channels[0], out_channels=channels[1])
    oracle = plain(model, channels)
    a, x = cloud(channels=channels[0])
    y = torch.rand(2, 4, 2, dtype=torch.float64) if elsewhere else x
    u, expected = model(a, x, y if elsewhere else None), oracle(a, x, y)
    torch.testing.assert_close(u, expected, rtol=1e-10, atol=1e-10)
    for v in (u, expected):
        v.square().sum().backward()
    again = plain(graded(model), channels)  # with the gradients of ours in place of its weights
    for (name, mine), theirs in zip(again.named_parameters(), oracle.parameters(), strict=True):
        if channels[1] > 1 or not name.startswith("last"):
            torch.testing.assert_close(mine, theirs.grad, rtol=1e-10, atol=1e-10)


def test_the_last_mlp_of_one_channel_is_a_constant():
    """Why there is none here."""
    oracle = PlainIPOT((1, 1), **SIZES).double()
    for parameter in oracle.last.parameters():
        torch.nn.init.normal_(parameter)
    v = oracle.last(torch.randn(7, 1, dtype=torch.float64))
    torch.testing.assert_close(v, v[:1].expand(7, 1))
    assert v.abs().min() > 0
    assert IPOT().last is None
    assert IPOT(out_channels=2).last is not None
