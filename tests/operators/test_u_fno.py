"""U-FNO against the released ones written out, in float64, and against FNO."""

from functools import partial

import pytest
import torch

from operators.models.u_fno import UFNO
from operators.nn.tokens import Positions
from operators.nn.unet import PooledUNet, StridedUNet
from tests.operators.drawn import points, same, shaken
from tests.oracles.plain_u_fno import plain_u_fno, plain_u_net

nodes = partial(points, kind="nodal")
LIBRARY = {"u_net": "pooled", "levels": 4, "activation": "gelu", "last_activation": False,
           "lift": "mlp", "head_width": 6, "depth": 2, "u_depth": 2}  # fmt: skip


def small(**settings):
    torch.manual_seed(0)
    return UFNO(**{"width": 6, "depth": 1, "u_depth": 2, "modes": 4, "head_width": 7} | settings)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sizes", [(16,), (8, 24)])
def test_is_the_released_operator_on_grids_that_it_takes(sizes, training):
    model = shaken(small(dim=len(sizes), in_channels=2)).train(training)
    x = nodes(*sizes)
    a = torch.randn(3, *sizes, 2, dtype=torch.float64)
    features = torch.cat([a, x.expand(3, *x.shape)], -1)
    expected = plain_u_fno(model, features, [0] * len(sizes))
    same(model(a, x), expected, model, atol=1e-8)


def test_is_the_released_operator_in_time():
    """Time as a third axis: the released code itself is for these grids."""
    sizes, frames = (8, 16), 8
    model = shaken(small(out_channels=frames, frame_channels=1))
    a, x = torch.randn(2, *sizes, 1, dtype=torch.float64), nodes(*sizes)
    grid = (2, *sizes, frames)
    features = torch.cat([a[..., None, :].expand(*grid, 1), nodes(*grid[1:]).expand(*grid, 3)], -1)
    same(model(a, x), plain_u_fno(model, features, [0, 0, 0])[..., 0], model, atol=1e-8)


@pytest.mark.parametrize("normalization", ["batch", "instance"])
def test_is_that_of_the_library_whose_padding_is_a_part_of_its_grid(normalization):
    sizes = (21, 29)  # to 32 x 32
    model = shaken(small(**LIBRARY, coordinates="lattice", padding=[11 / 21, 3 / 29],
                         normalization=normalization))  # fmt: skip
    a, x = torch.randn(3, *sizes, 1, dtype=torch.float64), nodes(*sizes)
    features = torch.cat([a, Positions("lattice", 2)(x).expand(3, *sizes, 64)], -1)
    same(model(a, x), plain_u_fno(model, features, [11, 3]), model, atol=1e-8)


def test_published_padding_is_that_of_the_published_grids():
    def padded(name, *grid):
        preset = UFNO.presets[name]
        with torch.device("meta"):
            model = UFNO(out_channels=preset.channels[1], **preset.settings)
        margins = model.margins(grid)[::-1]
        return [n + m for n, m in zip(grid, margins[::2], strict=False)]

    assert padded("gas-saturation", 200, 96) == [208, 104]
    assert padded("darcy", 85, 85) == [96, 96]
    assert padded("darcy", 170, 170) == [192, 192]
    assert padded("airfoil", 221, 51) == [224, 64]
    assert padded("pipe", 129, 129) == [144, 144]
    assert padded("plasticity", 101, 31) == [112, 32]


@pytest.mark.parametrize("kind", [StridedUNet, PooledUNet])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_u_net_fills_a_grid_up_with_zeros_and_cuts_them_off(kind, dim):
    net = shaken(kind(dim, 3, 2, "batch")).eval()
    sizes = (7, 5, 6)[:dim]
    u = torch.randn(2, *sizes, 3, dtype=torch.float64)
    filled = torch.zeros(2, *[8] * dim, 3, dtype=torch.float64)
    inside = tuple(slice(n) for n in sizes)
    filled[:, *inside] = u
    expected = plain_u_net(net, filled.movedim(-1, 1)).movedim(1, -1)[:, *inside]
    torch.testing.assert_close(net(u), expected, rtol=1e-10, atol=1e-10)
