"""The factorized Fourier neural operator against the released one written out, in float64."""

import math

import pytest
import torch

from operators.models.f_fno import FFNO, FactorizedConvolution, WeightNormalized
from operators.nn.spectral import SpectralConv1d
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


def test_commutes_with_exchanging_the_axes_and_their_weights():
    model, other = (shaken(small(coordinates="none")) for _ in range(2))
    first, second = other.layers.convolutions[0].weights
    first.data, second.data = second.data, first.data
    a, x = torch.randn(2, 14, 17, 1, dtype=torch.float64), points(14, 17)
    expected = model(a, x).transpose(1, 2)
    found = other(a.transpose(1, 2), points(17, 14))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_along_one_axis_it_is_the_convolution_of_lines():
    convolution = FactorizedConvolution(4, [6], 1.0).double()
    plain = SpectralConv1d(4, 4, 6).double()
    plain.weight = convolution.weights[0]
    u = torch.randn(3, 16, 4, dtype=torch.float64)
    assert torch.equal(convolution(u), plain(u))


def test_weights_begin_as_xavier_normal_ones_and_linear_maps_as_those_without_norm():
    torch.manual_seed(0)
    for gain in (1.0, 0.1):
        (weight,) = FactorizedConvolution(24, [16], gain).weights  # 18,432 draws
        tensor = torch.empty(24, 24, 16, 2)  # as the released code lays it out
        torch.nn.init.xavier_normal_(tensor, gain=gain)
        assert float(weight.detach().std()) == pytest.approx(float(tensor.std()), rel=0.03)
        assert float(weight.detach().std()) == pytest.approx(gain / math.sqrt(768), rel=0.03)
    layer = WeightNormalized(5, 3)
    u = torch.randn(7, 5)
    torch.testing.assert_close(layer(u), torch.nn.functional.linear(u, layer.weight, layer.bias))


def test_the_length_of_a_direction_is_void():
    layer, u = WeightNormalized(5, 3), torch.randn(7, 5)
    before = layer(u)
    layer.weight.data *= torch.tensor([[2.0], [0.5], [7.0]])
    torch.testing.assert_close(layer(u), before)
    layer.length.data *= 2
    torch.testing.assert_close(layer(u) - layer.bias, 2 * (before - layer.bias))


def test_shared_weights_act_in_every_layer_once_kept():
    model, own = small(), small(shared=False)
    assert len(model.layers.convolutions) == 1
    assert len(own.layers.convolutions) == 3
    counted = own.parameter_count - model.parameter_count
    assert counted == 2 * 2 * 5 * 6 * 6 * 2


def test_padding_is_a_length():
    model = shaken(small(dim=1, padding=1 / 3)).requires_grad_(False)

    def values(n):
        x = (torch.arange(n, dtype=torch.float64)[:, None] + 0.5) / n
        return model(torch.cos(3 * x)[None], x)[0, n // 54 :: n // 27]

    first, second, third = (float((values(3 * n) - values(n)).abs().max()) for n in (27, 81, 243))
    assert second < first / 4
    assert third < second / 4


def test_with_indices_positions_are_not_read_and_there_are_no_other_points():
    model = shaken(small(indices=True))
    a, x = torch.randn(2, 14, 17, 1, dtype=torch.float64), points(14, 17)
    assert torch.equal(model(a, x), model(a, x.square()))
    with pytest.raises(ValueError, match="y must be None"):
        model(a, x, x)


def test_refuses_grids_too_coarse_for_its_modes():
    a, x = torch.zeros(1, 14, 8, 1), points(14, 8).float()
    with pytest.raises(ValueError, match="5 modes need an axis of at least 10 points, got 8"):
        small()(a, x)
    assert small(modes=[5, 4])(a, x).shape == (1, 14, 8, 1)
