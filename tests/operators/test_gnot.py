"""GNOT against its released code in plain form, and its claims, in float64."""

import pytest
import torch
from torch.nn.functional import gelu

from operators.models.gnot import GNOT, Experts, normalized
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


def test_the_weights_of_a_query_are_positive_and_sum_to_one():
    """Of the values e_j of the standard basis the mean has the weights themselves."""
    q, k = (torch.randn(2, 3, n, 4, dtype=torch.float64).softmax(-1) for n in (5, 7))
    weights = normalized(q, k, torch.eye(7, dtype=torch.float64).expand(2, 3, 7, 7))
    assert (weights > 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))
    products = q @ k.mT
    torch.testing.assert_close(weights, products / products.sum(-1, keepdim=True))


def test_padding_has_no_weight():
    q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64).softmax(-1) for n in (5, 7, 7))
    mask = torch.arange(7)[None] < 4
    torch.testing.assert_close(normalized(q, k, v, mask), normalized(q, k[:, :, :4], v[:, :, :4]))


def test_one_expert_is_a_plain_mlp():
    module = shaken(Experts(6, 10, 1))
    u = torch.randn(2, 5, 6, dtype=torch.float64)
    hidden = gelu(u @ module.first.weight.T + module.first.bias)
    expected = hidden @ module.weight.T + module.bias[0]
    torch.testing.assert_close(module(u, torch.ones(1, 5, 1).double()), expected)
    assert small(experts=1).blocks[0].gate is None


def test_equal_experts_are_one_whatever_the_gates():
    """The gates sum to one."""
    several, one = shaken(Experts(6, 10, 3)), shaken(Experts(6, 10, 1))
    with torch.no_grad():
        several.first.weight.copy_(one.first.weight.repeat(3, 1))
        several.first.bias.copy_(one.first.bias.repeat(3))
        several.weight.copy_(one.weight.repeat(1, 3))
        several.bias.copy_(one.bias.repeat(3, 1))
    u = torch.randn(2, 5, 6, dtype=torch.float64)
    g = torch.randn(1, 5, 3, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(several(u, g), one(u, g[..., :1] * 0 + 1))


def test_experts_start_like_linear_maps_of_their_own():
    torch.manual_seed(0)
    module = Experts(64, 256, 4)
    # uniform between ±1/16: the largest of many draws is close to the bound
    assert 0.99 / 16 < float(module.weight.detach().abs().max()) <= 1 / 16
    assert 0.9 / 16 < float(module.bias.detach().abs().max()) <= 1 / 16


def test_gates_see_the_place_alone():
    model = shaken(small())
    a, x = functions(), cloud()
    gates = []
    model.blocks[0].gate.register_forward_hook(lambda _, __, out: gates.append(out))
    model(a, x)
    model(a + 1, x)
    assert torch.equal(*gates)
    assert gates[0].shape == (1, 9, 3)


def test_the_points_of_the_output_ask_and_attend_to_each_other():
    model = shaken(small())
    a, x = functions(), cloud()
    torch.testing.assert_close(model(a, x, x), model(a, x))
    torch.testing.assert_close(model(a, x, torch.cat([x, x])), model(a, x).repeat(1, 2, 1))
    assert not torch.allclose(model(a, x, x[:4]), model(a, x)[:, :4])


def test_a_repeated_function_with_the_same_weights_counts_twice():
    """The functions are summed, as released, and not averaged."""
    model = shaken(small(branches="each", in_channels=2))
    attention = model.blocks[0].cross
    attention.keys[1].load_state_dict(attention.keys[0].state_dict())
    attention.values[1].load_state_dict(attention.values[0].state_dict())
    u, z = (torch.randn(2, n, 12, dtype=torch.float64) for n in (5, 7))
    q = attention.query(u).unflatten(-1, (3, 4)).softmax(-1).flatten(2)

    def before(functions):
        found = attention(u, functions) - attention.out.bias
        return torch.linalg.solve(attention.out.weight, found.mT).mT - q

    both = before([z, z])
    del attention.keys[1], attention.values[1]
    torch.testing.assert_close(both, 2 * before([z]))


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
