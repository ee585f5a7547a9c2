"""The multiwavelet operator against its released form, in float64."""

import pytest
import torch

from operators.models.mwt import MWT, filters
from operators.nn.resample import stretched
from operators.nn.spectral import convolved
from tests.operators.drawn import points, same, shaken
from tests.oracles.plain_mwt import fourier_plane, plain_filters, plain_mwt


def small(**settings):
    """In float64 with weights of order one, so that every term counts."""
    torch.manual_seed(0)
    return shaken(MWT(**{"dim": 1, "channels": 2, "polynomials": 3, "modes": 3, "head_width": 10}
                | settings))  # fmt: skip


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
    same(model(a, x), plain_mwt(model, a, x), [a, *model.parameters()], rtol=1e-9, atol=1e-9)


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
