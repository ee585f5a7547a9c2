"""The multiwavelet operator against its released form, in float64."""

import pytest
import torch

from operators.models.mwt import MWT, filters
from operators.nn.resample import stretched
from operators.nn.spectral import convolved
from tests.oracles.plain_mwt import fourier_plane, plain_filters, plain_mwt


def points(*sizes):
    axes = [torch.arange(n, dtype=torch.float64) / n for n in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def small(**settings):
    """In float64 with weights of order one, so that every term counts."""
    torch.manual_seed(0)
    model = MWT(**{"dim": 1, "channels": 2, "polynomials": 3, "modes": 3, "head_width": 10}
                | settings)  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.double()


@pytest.mark.parametrize("k", [1, 3, 4])
def test_filters_are_orthogonal_and_those_of_polynomials(k):
    f = filters(k, 1)
    (h0, h1), (g0, g1) = (row.split(k, dim=1) for row in f.split(k))
    one, zero = torch.eye(k, dtype=torch.float64), torch.zeros(k, k, dtype=torch.float64)
    torch.testing.assert_close(h0 @ h0.T + h1 @ h1.T, one)
    torch.testing.assert_close(g0 @ g0.T + g1 @ g1.T, one)
    torch.testing.assert_close(g0 @ h0.T + g1 @ h1.T, zero)
    torch.testing.assert_close(f.T @ f, torch.eye(2 * k, dtype=torch.float64))
    torch.testing.assert_close((h0, h1, g0, g1), plain_filters(k), rtol=1e-10, atol=1e-10)


def test_filters_of_squares_leave_products_of_one_wavelet_out():
    f = filters(3, 2)
    assert f.shape == (18, 36)
    torch.testing.assert_close(f @ f.T, torch.eye(18, dtype=torch.float64))


@pytest.mark.parametrize(("name", "count"), [("burgers", 500_201), ("darcy", 9_807_873)])
def test_presets_have_the_published_number_of_parameters(name, count):
    preset = MWT.presets[name]
    model = MWT(dim=preset.dim, **preset.settings)
    assert model.parameter_count == preset.parameters == count


@pytest.mark.parametrize(
    ("dim", "n", "settings"),
    [
        (1, 16, {}),
        (1, 16, {"coarsest": 2, "modes": 20}),
        (1, 2, {}),
        (2, 16, {}),
        (2, 8, {"coarsest": 1, "modes": 6, "polynomials": 2}),
        (2, 2, {}),
    ],
)
def test_is_the_released_operator_written_out(dim, n, settings):
    model = small(dim=dim, out_channels=2, **settings)
    x = points(*[n] * dim)
    a = torch.randn(2, *[n] * dim, 1, dtype=torch.float64, requires_grad=True)
    outputs = [model(a, x), plain_mwt(model, a, x)]
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)
    inputs = [a, *model.parameters()]
    gradients = [torch.autograd.grad(u.square().sum(), inputs) for u in outputs]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_modes_that_a_square_lacks_are_left_out(n):
    torch.manual_seed(0)
    u = torch.randn(2, n, 8, 3, dtype=torch.float64)
    weight = torch.randn(2, 5, 5, 3, 4, 2, dtype=torch.float64)
    expected = fourier_plane(u, torch.view_as_complex(weight))
    torch.testing.assert_close(convolved(u, weight), expected)


@pytest.mark.parametrize("sizes", [(11,), (11, 5), (8, 5)])
def test_other_grids_are_interpolated_to_powers_of_two_and_back(sizes):
    model, x = small(dim=len(sizes)), points(*sizes)
    a = torch.randn(2, *sizes, 1, dtype=torch.float64)
    powers = [{11: 16, 5: 8, 8: 8}[n] for n in sizes]

    u = stretched(model.embed(torch.cat([a, x.expand(2, *x.shape)], dim=-1)), powers)
    s = model.layers[1](model.layers[0](u.unflatten(-1, model.shape)).relu())
    expected = model.decoder(stretched(s.flatten(-2), sizes))
    torch.testing.assert_close(model(a, x), expected)


def test_powers_of_two_are_not_interpolated(monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "interpolate", None)
    assert small(dim=2)(torch.randn(1, 8, 4, 1).double(), points(8, 4)).shape == (1, 8, 4, 1)


def test_a_batch_of_one_sample_keeps_its_axis():
    assert small()(torch.randn(1, 8, 1).double(), points(8)).shape == (1, 8, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 3}, "dim must be 1 or 2, got 3"),
        ({"polynomials": 0}, "polynomials must be at least 1, got 0"),
        ({"coarsest": -1}, "coarsest must be at least 0, got -1"),
    ],
)
def test_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)


def test_refuses_grids_without_a_scale_below_them():
    model = small(dim=2, coarsest=2)
    with pytest.raises(ValueError, match="more than 4 points along each axis, got 4"):
        model(torch.zeros(1, 8, 4, 1).double(), points(8, 4))
