"""U-FNO against the released ones written out, in float64, and against FNO."""

import pytest
import torch

from operators.models.fno import FNO
from operators.models.u_fno import UFNO, UFourierLayer
from operators.nn.tokens import Positions
from operators.nn.unet import PooledUNet, StridedUNet
from tests.operators.drawn import shaken
from tests.oracles.plain_u_fno import plain_u_fno, plain_u_net

dims = pytest.mark.parametrize("dim", [1, 2])
LIBRARY = {"u_net": "pooled", "levels": 4, "activation": "gelu", "last_activation": False,
           "lift": "mlp", "head_width": 6, "depth": 2, "u_depth": 2}  # fmt: skip


def points(*sizes):
    axes = [torch.linspace(0, 1, n, dtype=torch.float64) for n in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def small(**settings):
    torch.manual_seed(0)
    return UFNO(**{"width": 6, "depth": 1, "u_depth": 2, "modes": 4, "head_width": 7} | settings)


def same(model, found, expected):
    """Values, and gradients by all parameters."""
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    parameters = list(model.parameters())
    by_found, by_expected = (
        torch.autograd.grad(u.square().sum(), parameters) for u in (found, expected)
    )
    # sums of numbers of order 1 to 1e3
    torch.testing.assert_close(by_found, by_expected, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sizes", [(16,), (8, 24)])
def test_is_the_released_operator_on_grids_that_it_takes(sizes, training):
    model = shaken(small(dim=len(sizes), in_channels=2)).train(training)
    x = points(*sizes)
    a = torch.randn(3, *sizes, 2, dtype=torch.float64)
    features = torch.cat([a, x.expand(3, *x.shape)], -1)
    expected = plain_u_fno(model, features, [0] * len(sizes))
    same(model, model(a, x), expected)


def test_is_the_released_operator_in_time():
    """Time as a third axis: the released code itself is for these grids."""
    sizes, frames = (8, 16), 8
    model = shaken(small(out_channels=frames, frame_channels=1))
    a, x = torch.randn(2, *sizes, 1, dtype=torch.float64), points(*sizes)
    features = torch.cat(
        [a[:, :, :, None].expand(2, *sizes, frames, 1), points(*sizes, frames).expand(2, *sizes,
         frames, 3)], -1)  # fmt: skip
    same(model, model(a, x), plain_u_fno(model, features, [0, 0, 0])[..., 0])


@pytest.mark.parametrize("normalization", ["batch", "instance"])
def test_is_that_of_the_library_whose_padding_is_a_part_of_its_grid(normalization):
    sizes = (21, 29)  # to 32 x 32
    model = shaken(small(**LIBRARY, coordinates="lattice", padding=[11 / 21, 3 / 29],
                         normalization=normalization))  # fmt: skip
    a, x = torch.randn(3, *sizes, 1, dtype=torch.float64), points(*sizes)
    features = torch.cat([a, Positions("lattice", 2)(x).expand(3, *sizes, 64)], -1)
    same(model, model(a, x), plain_u_fno(model, features, [11, 3]))


def number(preset):
    c_in, c_out = preset.channels
    with torch.device("meta"):
        return UFNO(in_channels=c_in, out_channels=c_out, **preset.settings)


def test_published_number_counts_complex_weights_as_one():
    model = number(UFNO.presets["gas-saturation"])
    spectral = sum(p.numel() for k, p in model.named_parameters() if "convolution.weight" in k)
    assert model.parameter_count - spectral // 2 == 33_097_829


@pytest.mark.parametrize(
    ("name", "void", "millions"),
    # of the U-Nets in the library, whose own first and last maps have no effect
    [
        ("darcy", 14_786, 11.0),
        ("navier-stokes", 28_290, 44.1),
        ("airfoil", 6_722, 11.0),
        ("pipe", 101_634 + 512, 176),  # and positions as values and once more
        ("plasticity", 167_944 + 33_024 + 2, 176),
    ],
)
def test_has_the_number_of_parameters_of_the_library_that_have_an_effect(name, void, millions):
    count = number(UFNO.presets[name]).parameter_count
    assert count == UFNO.presets[name].parameters
    assert float(f"{(count + void) / 1e6:.3g}") == millions


def test_published_padding_is_that_of_the_published_grids():
    def padded(name, *grid):
        margins = number(UFNO.presets[name]).margins(grid)[::-1]
        return [n + m for n, m in zip(grid, margins[::2], strict=False)]

    assert padded("gas-saturation", 200, 96) == [208, 104]
    assert padded("darcy", 85, 85) == [96, 96]
    assert padded("darcy", 170, 170) == [192, 192]
    assert padded("airfoil", 221, 51) == [224, 64]
    assert padded("pipe", 129, 129) == [144, 144]
    assert padded("plasticity", 101, 31) == [112, 32]


@dims
@pytest.mark.parametrize("u_net", ["strided", "pooled"])
@pytest.mark.parametrize("padding", [0.0, 0.25])
def test_with_u_nets_that_return_zero_it_is_fno(dim, u_net, padding):
    settings = {"dim": dim, "width": 6, "modes": 4, "head_width": 7, "padding": padding,
                "activation": "relu", "last_activation": True}  # fmt: skip
    model = shaken(UFNO(**settings, depth=1, u_depth=2, u_net=u_net, levels=2)).eval()
    plain = FNO(**settings, depth=3).double()
    state = {
        key.replace("fourier.", ""): value
        for key, value in model.state_dict().items()
        if "u_net" not in key
    }
    plain.load_state_dict(state)
    x = points(*(14, 17)[:dim])
    a = torch.randn(3, *x.shape[:-1], 1, dtype=torch.float64)
    assert not torch.allclose(model(a, x), plain(a, x), atol=1e-2)
    for layer in model.layers:
        if isinstance(layer, UFourierLayer):
            torch.nn.init.zeros_(layer.u_net.out.weight)
            torch.nn.init.zeros_(layer.u_net.out.bias)
    assert torch.equal(model(a, x), plain(a, x))


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


@pytest.mark.parametrize("kind", [StridedUNet, PooledUNet])
def test_a_u_net_couples_points_as_far_as_its_levels_reach(kind):
    net = shaken(kind(1, 3, 3, "instance")).eval()
    torch.manual_seed(0)
    u = torch.randn(1, 64, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(u)[0, 32].sum(), u)
    assert gradient[0, [8, 56]].abs().max() > 0  # the norm of a sample couples all points
    net = shaken(kind(1, 3, 1, "batch")).eval()
    (gradient,) = torch.autograd.grad(net(u)[0, 32].sum(), u)
    assert gradient[0, :20].abs().max() == 0


@pytest.mark.parametrize("settings", [{}, LIBRARY])
@pytest.mark.parametrize("sizes", [(43, 43), (85, 85), (101, 31), (221, 51)])
def test_takes_grids_that_nothing_divides(sizes, settings):
    model = small(**settings, padding=0.1)
    u = model(torch.randn(1, *sizes, 1), points(*sizes).float())
    assert u.shape == (1, *sizes, 1)
    assert torch.isfinite(u).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 3}, "dim must be 1 or 2, got 3"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"u_depth": 0}, "u_depth must be at least 1, got 0"),
        ({"levels": 0}, "levels must be at least 1, got 0"),
        ({"head_width": 0}, "head_width must be at least 1, got 0"),
        ({"padding": -0.1}, "at least 0, got padding=-0.1"),
        ({"padding": [0.1, 0.2, 0.3]}, "padding needs one number for each of 2 axes"),
        ({"frame_padding": 6}, "frame_padding=6 needs frame_channels, got 0"),
    ],
)
def test_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)
