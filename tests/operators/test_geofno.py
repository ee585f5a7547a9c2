"""Geo-FNO against its released code in our own words, FNO, and sums over points, in float64."""

import pytest
import torch

from operators.models.fno import FNO
from operators.models.geofno import GeoFNO
from operators.nn.spectral import Deformation
from tests.operators.drawn import grid, mesh, shaken
from tests.oracles.plain_geofno import plain_deformation, plain_geofno


def small(**settings):
    torch.manual_seed(0)
    chosen = {"width": 6, "depth": 4, "modes": 4, "latent": 9, "head_width": 7}
    return GeoFNO(**chosen | {"deformation_width": 8} | settings)


def cloud():
    return mesh(23, channels=1)


def outcomes(model, output):
    """The output and the gradients of all parameters."""
    return output, *torch.autograd.grad(output.square().sum(), list(model.parameters()))


def test_is_the_released_code_where_the_lonely_frequency_has_no_weight():
    model = shaken(small(transform="sum"))
    a, x = cloud()
    assert not torch.allclose(model(a, x), plain_geofno(model, a, x, released=True), rtol=1e-3)
    with torch.no_grad():
        model.last.weight[1, -1, 1:] = 0  # k₁ = -4, k₂ > 0
    found = outcomes(model, model(a, x))
    expected = outcomes(model, plain_geofno(model, a, x, released=True))
    for name, one, own in zip(["u", *dict(model.named_parameters())], found, expected, strict=True):
        if name == "last.weight":  # its gradient there is of another completion
            one, own = (v.flatten(0, 1)[:-1] for v in (one, own))
        torch.testing.assert_close(one, own, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("dim", [1, 2])
def test_without_deformation_on_a_regular_grid_it_is_fno(dim):
    settings = {"in_channels": 2, "out_channels": 3, "width": 8, "modes": 6, "head_width": 16}
    torch.manual_seed(0)
    fno = FNO(dim=dim, depth=5, **settings)
    model = GeoFNO(dim=dim, latent=16, **settings)
    convolutions = [layer for layer in fno.layers if hasattr(layer, "pointwise")]
    with torch.no_grad():
        torch.nn.init.zeros_(model.deformation.mlp[-1].weight)
        torch.nn.init.zeros_(model.deformation.mlp[-1].bias)
        model.lift.load_state_dict(fno.lift.state_dict())
        model.head.load_state_dict(fno.head.state_dict())
        places = [model.first_places, *[one.places for one in model.layers], model.last_places]
        own = [model.first, *[one.convolution for one in model.layers], model.last]
        for i, layer in enumerate(convolutions):
            layer.convolution.weight.normal_(std=0.2 * dim)  # as large as what is pointwise
            own[i].weight.copy_(layer.convolution.weight)
            places[i].weight.zero_()
            places[i].bias.copy_(layer.pointwise.bias)
            if i in (0, 4):
                layer.pointwise.weight.zero_()
            else:
                model.layers[i - 1].pointwise.load_state_dict(layer.pointwise.state_dict())
                model.layers[i - 1].pointwise.bias.zero_()
    a, x = grid(*[16] * dim, channels=2)
    u = fno.double()(a, x)
    assert u.std() > 0.05
    torch.testing.assert_close(model.double()(a, x), u, rtol=0, atol=1e-10)


def test_without_deformation_points_lie_where_they_are():
    model, (a, x) = shaken(small(deformed=False, coordinates="none")), cloud()
    with torch.no_grad():
        model.first_places.weight.zero_()
        model.last_places.weight.zero_()
        for layer in model.layers:
            layer.places.weight.zero_()
    # shifts by points of the latent grid commute then
    moved = model(a, x + torch.tensor([2 / 9, 5 / 9], dtype=torch.float64))
    torch.testing.assert_close(moved, model(a, x), rtol=1e-10, atol=1e-10)


def test_the_box_of_the_points_is_laid_on_the_torus():
    model, (a, x) = shaken(small()), cloud()
    scaled = shaken(small(start=-1.0, length=4.0))
    torch.testing.assert_close(scaled(a, 4 * x - 1), model(a, x), rtol=1e-9, atol=1e-9)


def test_deformation_is_its_formula_and_leaves_the_origin():
    for settings in ({}, {"depth": 3, "activation": torch.nn.Tanh, "center": 1e-4}):
        model = shaken(Deformation(2, 8, **settings))
        x = torch.rand(3, 5, 2, dtype=torch.float64)
        torch.testing.assert_close(model(x), plain_deformation(model, x), rtol=1e-10, atol=1e-10)
    assert torch.equal(model(torch.zeros(1, 2).double()), torch.zeros(1, 2).double())
    line = torch.rand(4, 1, dtype=torch.float64)
    assert shaken(Deformation(1, 8))(line).shape == (4, 1)


def test_transforms_stay_exact_under_autocast():
    model, (a, x) = small().requires_grad_(False), cloud()
    a, x = a.float(), x.float()
    at = model.first.waves(x)
    u = torch.randn(3, 23, 6)
    expected = model.first.from_points(u, at, None, [9, 9])
    with torch.autocast("cpu", torch.bfloat16):
        assert model.first.waves(x).dtype == torch.float32
        half = model(a, x)
    error = (half - model(a, x)).norm() / model(a, x).norm()
    assert 0 < float(error) < 0.02  # bf16 has three digits
    with torch.autocast("cpu", torch.bfloat16):
        found = model.first.from_points(u, at, None, [9, 9])
    # the weights of the modes alone are in bf16
    assert float((found - expected).norm() / expected.norm()) < 0.01
