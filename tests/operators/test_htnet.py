"""HT-Net against its released form, in float64."""

import pytest
import torch

from operators.models.htnet import HTNet, WindowAttention
from operators.nn.resample import stretched
from operators.nn.windows import joined, windows
from tests.operators.drawn import points, same, shaken
from tests.oracles.plain_htnet import plain_htnet


def small(**settings):
    """In float64 with weights of order one, so that every term counts."""
    torch.manual_seed(0)
    return shaken(HTNet(**{"width": 4, "levels": 2, "window": 2, "modes": 3, "decoder_depth": 2,
                     "head_width": 6, "padding_points": 5} | settings))  # fmt: skip


@pytest.mark.parametrize(
    "settings", [{}, {"levels": 3, "heads": 2}, {"window": 4, "padding_points": 0, "levels": 1}]
)
def test_is_the_released_network_written_out(settings):
    model = small(in_channels=2, out_channels=3, **settings)
    a = torch.randn(2, 8, 16, 2, dtype=torch.float64, requires_grad=True)
    same(
        model(a, points(8, 16)),
        plain_htnet(model, a),
        [a, *model.parameters()],
        rtol=1e-9,
        atol=1e-9,
    )


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


def test_refuses_grids_smaller_than_a_patch():
    model = small(patch=6, stride=4)
    with pytest.raises(ValueError, match="patch=6 needs at least 4 points along each axis, got 3"):
        model(torch.zeros(1, 9, 3, 1).double(), points(9, 3))
