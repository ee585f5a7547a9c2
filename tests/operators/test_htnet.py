"""HT-Net against its released form, in float64."""

import pytest
import torch

from operators.models.htnet import HTNet
from operators.nn.resample import stretched
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
