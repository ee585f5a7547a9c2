"""HT-Net, the multiwavelet operator and CNO: windows, wavelets, grids of their own, resampling."""

import math

import pytest
import torch
from torch.nn.functional import interpolate

from operators.models.cno import CNO
from operators.models.htnet import HTNet
from operators.models.mwt import MWT, filters
from operators.nn.resample import resampled, stretched
from operators.nn.spectral import convolved
from tests.operators.drawn import points, shaken
from tests.oracles.plain_mwt import fourier_plane, plain_filters


def htnet(**settings):
    torch.manual_seed(0)
    return shaken(HTNet(**{"width": 4, "levels": 2, "window": 2, "modes": 3, "decoder_depth": 2,
                           "head_width": 6, "padding_points": 5} | settings))  # fmt: skip


def cno(**settings):
    torch.manual_seed(0)
    return shaken(CNO(**{"dim": 1, "width": 4, "levels": 2, "blocks": 1, "neck_blocks": 2,
                         "lift_width": 6} | settings))  # fmt: skip


def test_several_blocks_follow_one_another():
    model, a = htnet(blocks=2, levels=1), torch.randn(1, 4, 4, 1).double()
    u = model.norm(model.embed(a.movedim(-1, 1)).movedim(1, -1))
    first, second = model.pyramid.blocks[0]
    torch.testing.assert_close(model.pyramid(u), second(first(u)))


def test_other_grids_get_zeros_up_to_whole_windows():
    model, u = htnet(), torch.randn(1, 7, 9, 4, dtype=torch.float64)
    filled = torch.zeros(1, 8, 12, 4, dtype=torch.float64)
    filled[:, :7, :9] = u
    torch.testing.assert_close(model.pyramid(u), model.pyramid(filled)[:, :7, :9])


@pytest.mark.parametrize("sizes", [(21,), (21, 13)])
def test_features_of_a_stride_are_interpolated(sizes):
    model = htnet(dim=len(sizes), patch=5, stride=2)
    found, seen = [], []
    model.head.register_forward_hook(lambda _, inputs, u: found.append(inputs[0]))
    model.decoder.register_forward_hook(lambda _, inputs, u: seen.append(u))
    model(torch.randn(1, *sizes, 1).double(), points(*sizes))
    coarse = tuple((n - 3) // 2 + 1 for n in sizes)  # a zero at each end
    inside = seen[0][(slice(None), *map(slice, coarse))]
    torch.testing.assert_close(found[0], stretched(inside, sizes))


@pytest.mark.parametrize("k", [1, 3, 4])
def test_filters_are_orthogonal_and_those_of_polynomials(k):
    f = filters(k, 1)
    (h0, h1), (g0, g1) = (row.split(k, dim=1) for row in f.split(k))
    torch.testing.assert_close(f.T @ f, torch.eye(2 * k, dtype=torch.float64))
    torch.testing.assert_close((h0, h1, g0, g1), plain_filters(k), rtol=1e-10, atol=1e-10)


def test_filters_of_squares_leave_products_of_one_wavelet_out():
    f = filters(3, 2)
    assert f.shape == (18, 36)
    torch.testing.assert_close(f @ f.T, torch.eye(18, dtype=torch.float64))


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_modes_that_a_square_lacks_are_left_out(n):
    torch.manual_seed(0)
    u = torch.randn(2, n, 8, 3, dtype=torch.float64)
    weight = torch.randn(2, 5, 5, 3, 4, 2, dtype=torch.float64)
    expected = fourier_plane(u, torch.view_as_complex(weight))
    torch.testing.assert_close(convolved(u, weight), expected)


@pytest.mark.parametrize("sizes", [(11,), (11, 5), (8, 5)])
def test_other_grids_are_interpolated_to_powers_of_two_and_back(sizes):
    model = shaken(MWT(dim=len(sizes), channels=2, polynomials=3, modes=3, head_width=10))
    x = points(*sizes)
    a = torch.randn(2, *sizes, 1, dtype=torch.float64)
    powers = [{11: 16, 5: 8, 8: 8}[n] for n in sizes]

    u = stretched(model.embed(torch.cat([a, x.expand(2, *x.shape)], dim=-1)), powers)
    s = model.layers[1](model.layers[0](u.unflatten(-1, model.shape)).relu())
    expected = model.decoder(stretched(s.flatten(-2), sizes))
    torch.testing.assert_close(model(a, x), expected)


def band_limited(n, most, channels=1):
    """The same function on any grid: random modes 0 ... most."""
    torch.manual_seed(3)
    k = 2 * math.pi * torch.arange(most + 1, dtype=torch.float64)
    x = torch.arange(n, dtype=torch.float64)[:, None] / n
    weights = torch.randn(2, most + 1, channels, dtype=torch.float64)
    return ((k * x).cos() @ weights[0] + (k * x).sin() @ weights[1])[None]


@pytest.mark.parametrize(("n", "m"), [(8, 16), (16, 8), (13, 6), (18, 4), (7, 21), (1, 2), (2, 1)])
def test_bicubic_resampling_is_that_of_pytorch(n, m):
    u = torch.randn(2, 3, n, 5, dtype=torch.float64)
    expected = interpolate(u, (m, 10), mode="bicubic", antialias=True)
    torch.testing.assert_close(resampled(u, "bicubic", (m, 10)), expected)


@pytest.mark.parametrize(("n", "m"), [(9, 16), (16, 9), (8, 20), (20, 8), (1, 2), (2, 1)])
def test_trigonometric_resampling_is_exact_on_common_modes(n, m):
    most = (min(n, m) - 1) // 2
    u, v = (band_limited(k, most).mT for k in (n, m))
    torch.testing.assert_close(resampled(u, "fourier", (m,)), v)


@pytest.mark.parametrize(("n", "m"), [(8, 20), (20, 8), (8, 13), (13, 8)])
def test_trigonometric_resampling_keeps_the_last_mode_of_an_even_grid(n, m):
    """It has no sine, and is one mode on the coarse grid, but two on the fine one."""
    wave = (torch.cos(math.pi * min(n, m) * torch.arange(k).double() / k) for k in (n, m))
    u, v = (one[None, None] for one in wave)
    torch.testing.assert_close(resampled(u, "fourier", (m,)), v)


def test_trigonometric_resampling_filters_and_goes_back():
    wave = torch.cos(2 * math.pi * 5 * points(16)).mT[None]
    torch.testing.assert_close(resampled(wave, "fourier", (8,)), torch.zeros(1, 1, 8).double())
    for n in (7, 8):  # the highest mode of an even number of points comes back as well
        u = torch.randn(1, 1, n, dtype=torch.float64)
        fine = resampled(u, "fourier", (2 * n,))
        torch.testing.assert_close(resampled(fine, "fourier", (n,)), u)


@pytest.mark.parametrize("kind", ["periodic", "fourier"])
@pytest.mark.parametrize("m", [24, 4])
def test_periodic_resampling_commutes_with_shifts(kind, m):
    u = torch.randn(1, 1, 12, dtype=torch.float64)
    moved = resampled(u.roll(3, -1), kind, (m,))
    torch.testing.assert_close(moved, resampled(u, kind, (m,)).roll(m // 4, -1))
    assert resampled(torch.ones_like(u), kind, (m,)).allclose(torch.ones(1).double())


def test_with_a_grid_of_its_own_it_acts_there():
    model, a = cno(dim=2, size=8).eval(), torch.randn(1, 12, 20, 1).double()
    found, x = model(a, points(12, 20)), points(8, 8)
    model.size = 0
    inside = model(resampled(a.movedim(-1, 1), "bicubic", (8, 8)).movedim(1, -1), x)
    expected = resampled(inside.movedim(-1, 1), "bicubic", (12, 20)).movedim(1, -1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["periodic", "fourier"])
def test_commutes_with_shifts_of_the_coarsest_grid(kind):
    model, a = cno(resampling=kind).eval(), torch.randn(2, 16, 1, dtype=torch.float64)
    moved = model(a.roll(4, 1), points(16))
    torch.testing.assert_close(moved, model(a, points(16)).roll(4, 1))
