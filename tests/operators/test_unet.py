"""The plain U-Net against that of the library written out, in float64."""

import pytest
import torch

from operators.models.unet import PlainUNet
from operators.nn.tokens import Positions
from tests.operators.drawn import shaken
from tests.oracles.plain_u_fno import plain_unet


def points(*sizes):
    axes = [torch.linspace(0, 1, n, dtype=torch.float64) for n in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def small(**settings):
    torch.manual_seed(0)
    return PlainUNet(**{"width": 4} | settings)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("normalization", ["batch", "instance"])
@pytest.mark.parametrize("sizes", [(43,), (32, 48), (21, 29)])
def test_is_the_released_one(sizes, normalization, training):
    dim = len(sizes)
    model = shaken(small(dim=dim, in_channels=2, normalization=normalization)).train(training)
    a, x = torch.randn(3, *sizes, 2, dtype=torch.float64), points(*sizes)
    features = torch.cat([a, Positions("lattice", dim)(x).expand(3, *sizes, 8**dim)], -1)
    found, expected = model(a, x), plain_unet(model, features)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    parameters = list(model.parameters())
    by_found, by_expected = (
        torch.autograd.grad(u.square().sum(), parameters) for u in (found, expected)
    )
    # sums of numbers of order 1 to 1e3
    torch.testing.assert_close(by_found, by_expected, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "more", "millions"),
    # as counted in the library, to three digits
    [
        ("darcy", 0, 69.3),
        ("navier-stokes", 0, 277),
        ("airfoil", 0, 4.33),
        ("pipe", 512, 69.2),  # positions as values and once more
        ("plasticity", 33_024 + 2, 69.3),
    ],
)
def test_presets_have_the_published_number_of_parameters(name, more, millions):
    preset = PlainUNet.presets[name]
    c_in, c_out = preset.channels
    with torch.device("meta"):
        model = PlainUNet(in_channels=c_in, out_channels=c_out, **preset.settings)
    assert model.parameter_count == preset.parameters
    assert float(f"{(model.parameter_count + more) / 1e6:.3g}") == millions


@pytest.mark.parametrize("sizes", [(43, 43), (85, 85), (101, 31), (221, 51)])
def test_takes_grids_that_nothing_divides(sizes):
    u = small()(torch.randn(1, *sizes, 1), points(*sizes).float())
    assert u.shape == (1, *sizes, 1)
    assert torch.isfinite(u).all()


def test_an_instance_of_one_point_is_refused():
    model = small(dim=1, levels=2, normalization="instance").eval()
    assert model(torch.randn(2, 5, 1), points(5).float()).shape == (2, 5, 1)
    with pytest.raises(ValueError, match="levels=2 needs an axis of more than 4 points, got 4"):
        model(torch.randn(2, 4, 1), points(4).float())


def test_what_stands_after_the_last_points_is_zero():
    """Of a grid that is filled up the output is that of the grid with these zeros."""
    model = shaken(small(coordinates="none", levels=2)).eval()
    first, _, second = model.lift
    second.bias.data = -(torch.nn.functional.gelu(first.bias) @ second.weight.T).detach()
    a = torch.zeros(1, 8, 8, 1, dtype=torch.float64)  # which the first MLP maps to 0
    a[:, :7, :5] = torch.randn(1, 7, 5, 1, dtype=torch.float64)
    whole, part = model(a, points(8, 8)), model(a[:, :7, :5], points(7, 5))
    torch.testing.assert_close(part, whole[:, :7, :5], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 3}, "dim must be 1 or 2, got 3"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"levels": 0}, "levels must be at least 1, got 0"),
    ],
)
def test_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)
