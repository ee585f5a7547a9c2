"""HT-Net against its released form, in float64."""

import pytest
import torch

from operators.models.htnet import HTNet, WindowAttention
from operators.nn.resample import stretched
from operators.nn.windows import joined, windows
from tests.oracles.plain_htnet import plain_htnet


def points(*sizes):
    axes = [torch.arange(n, dtype=torch.float64) / n for n in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def small(**settings):
    """In float64 with weights of order one, so that every term counts."""
    torch.manual_seed(0)
    model = HTNet(**{"width": 4, "levels": 2, "window": 2, "modes": 3, "decoder_depth": 2,
                     "head_width": 6, "padding_points": 5} | settings)  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.double()


@pytest.mark.parametrize(
    "settings", [{}, {"levels": 3, "heads": 2}, {"window": 4, "padding_points": 0, "levels": 1}]
)
def test_is_the_released_network_written_out(settings):
    model = small(in_channels=2, out_channels=3, **settings)
    a = torch.randn(2, 8, 16, 2, dtype=torch.float64, requires_grad=True)
    outputs = [model(a, points(8, 16)), plain_htnet(model, a)]
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)
    inputs = [a, *model.parameters()]
    gradients = [torch.autograd.grad(u.square().sum(), inputs) for u in outputs]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "released", "idle"),
    # the released class counts blocks whose results are not used, and one linear map
    [("darcy", 13_368_532, 64 * 128 + 128), ("navier-stokes", 1_219_389, 142_305 + 840)],
)
def test_presets_have_the_released_number_of_parameters_that_are_used(name, released, idle):
    preset = HTNet.presets[name]
    model = HTNet(in_channels=preset.channels[0], **preset.settings)
    assert model.parameter_count == preset.parameters == released - idle


@pytest.mark.parametrize("sizes", [(6,), (6, 4)])
def test_windows_are_joined_again(sizes):
    u = torch.randn(2, *sizes, 3)
    v = windows(u, 2)
    assert v.shape == (2, *(n // 2 for n in sizes), 2 ** len(sizes), 3)
    assert torch.equal(joined(v, 2), u)
    if len(sizes) == 2:
        assert torch.equal(v[:, 1, 0, 2], u[:, 3, 0])


def test_attention_acts_within_windows_and_by_offsets():
    attention = WindowAttention(1, 4, 2, 3).double()
    u = torch.randn(1, 6, 4, dtype=torch.float64)
    other = u.clone()
    other[:, 3:] += 1
    assert torch.equal(attention(u)[:, :3], attention(other)[:, :3])
    torch.nn.init.normal_(attention.bias)
    found = attention.bias[attention.index]  # (3, 3, heads): by i - j alone
    assert torch.equal(found[0, 1], found[1, 2])
    assert not torch.equal(found[0, 1], found[1, 0])


def test_several_blocks_follow_one_another():
    model, a = small(blocks=2, levels=1), torch.randn(1, 4, 4, 1).double()
    u = model.norm(model.embed(a.movedim(-1, 1)).movedim(1, -1))
    first, second = model.pyramid.blocks[0]
    torch.testing.assert_close(model.pyramid(u), second(first(u)))


def test_other_grids_get_zeros_up_to_whole_windows():
    model, u = small(), torch.randn(1, 7, 9, 4, dtype=torch.float64)
    filled = torch.zeros(1, 8, 12, 4, dtype=torch.float64)
    filled[:, :7, :9] = u
    torch.testing.assert_close(model.pyramid(u), model.pyramid(filled)[:, :7, :9])


@pytest.mark.parametrize("sizes", [(21,), (21, 13)])
def test_features_of_a_stride_are_interpolated(sizes):
    model = small(dim=len(sizes), patch=5, stride=2)
    found, seen = [], []
    model.head.register_forward_hook(lambda _, inputs, u: found.append(inputs[0]))
    model.decoder.register_forward_hook(lambda _, inputs, u: seen.append(u))
    assert model(torch.randn(1, *sizes, 1).double(), points(*sizes)).shape == (1, *sizes, 1)
    coarse = tuple((n - 3) // 2 + 1 for n in sizes)  # a zero at each end
    inside = seen[0][(slice(None), *map(slice, coarse))]
    torch.testing.assert_close(found[0], stretched(inside, sizes))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 3}, "dim must be 1 or 2, got 3"),
        ({"heads": 3}, "heads must divide width, got heads=3, width=4"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"patch": 1, "stride": 2}, "patch must be at least stride, got patch=1, stride=2"),
        ({"padding_points": -1}, "padding_points must be at least 0, got -1"),
    ],
)
def test_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)


def test_refuses_grids_smaller_than_a_patch():
    model = small(patch=6, stride=4)
    with pytest.raises(ValueError, match="patch=6 needs at least 4 points along each axis, got 3"):
        model(torch.zeros(1, 9, 3, 1).double(), points(9, 3))
