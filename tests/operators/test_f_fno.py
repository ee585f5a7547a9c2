"""The factorized Fourier neural operator against the released one written out, in float64."""

import pytest
import torch

from operators.models.f_fno import FFNO
from tests.operators.drawn import points, same, shaken
from tests.oracles.plain_f_fno import plain_f_fno


def small(**settings):
    torch.manual_seed(0)
    return FFNO(**{"width": 6, "depth": 3, "modes": 5, "factor": 2, "head_width": 7} | settings)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sizes", [(14,), (17,), (14, 17), (43, 11)])
def test_is_the_released_operator_of_periodic_grids(sizes, shared):
    model = shaken(small(dim=len(sizes), in_channels=2, shared=shared))
    x = points(*sizes)
    a = torch.randn(3, *sizes, 2, dtype=torch.float64)
    expected = plain_f_fno(model, torch.cat([a, x.expand(3, *x.shape)], -1))
    same(model(a, x), expected, model)


def test_is_the_released_operator_of_meshes():
    """Index coordinates from 0 to 1, 8 more points along each axis, other modes along each."""
    sizes = (21, 13)
    model = shaken(small(in_channels=2, modes=[7, 4], shared=False, indices=True,
                         padding=[8 / 21, 8 / 13]))  # fmt: skip
    x = torch.rand(3, *sizes, 2, dtype=torch.float64)
    features = torch.cat([x, points(*sizes, kind="nodal").expand(3, *sizes, 2)], -1)
    same(model(x, x), plain_f_fno(model, features, padding=8), model)


def test_is_the_released_operator_of_meshes_in_time():
    """Frames along a third axis, with time as the third coordinate, each of several channels."""
    sizes, frames = (9, 7), 4
    model = shaken(small(out_channels=4 * 3, modes=[7, 4, 3], shared=False, indices=True,
                         padding=[8 / 9, 8 / 7], frame_channels=3, frame_padding=8))  # fmt: skip
    a, x = torch.randn(2, *sizes, 1, dtype=torch.float64), points(*sizes)
    places = points(*sizes, frames, kind="nodal").expand(2, *sizes, frames, 3)
    features = torch.cat([a[:, :, :, None].expand(2, *sizes, frames, 1), places], -1)
    expected = plain_f_fno(model, features, padding=8)
    same(model(a, x), expected.flatten(3), model)


def test_published_padding_has_eight_points_on_its_grids():
    def margins(name, *grid):
        preset = FFNO.presets[name]
        with torch.device("meta"):
            model = FFNO(
                in_channels=preset.channels[0],
                out_channels=preset.channels[1],
                **preset.settings,
            )
        return model.margins(grid)

    assert margins("airfoil", 221, 51) == [0, 0, 0, 8, 0, 8]
    assert margins("pipe", 129, 129) == [0, 0, 0, 8, 0, 8]
    assert margins("plasticity", 101, 31) == [0, 0, 0, 8, 0, 8, 0, 8]
    # the same length on a finer mesh
    assert margins("airfoil", 442, 102) == [0, 0, 0, 16, 0, 16]
