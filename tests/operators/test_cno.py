"""The convolutional neural operator against its released form, in float64."""

import math

import pytest
import torch
from torch.nn.functional import interpolate

from operators.models.cno import CNO
from operators.nn.resample import resampled
from tests.operators.drawn import points, same, shaken
from tests.oracles.plain_cno import plain_cno


def small(**settings):
    """In float64 with weights of order one, so that every term counts."""
    torch.manual_seed(0)
    return shaken(CNO(**{"dim": 1, "width": 4, "levels": 2, "blocks": 1, "neck_blocks": 2,
                   "lift_width": 6} | settings))  # fmt: skip


def band_limited(n, most, channels=1):
    """The same function on any grid: random modes 0 ... most."""
    torch.manual_seed(3)
    k = 2 * math.pi * torch.arange(most + 1, dtype=torch.float64)
    x = torch.arange(n, dtype=torch.float64)[:, None] / n
    weights = torch.randn(2, most + 1, channels, dtype=torch.float64)
    return ((k * x).cos() @ weights[0] + (k * x).sin() @ weights[1])[None]


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("normalization", ["batch", "none"])
@pytest.mark.parametrize("training", [True, False])
def test_is_the_released_network_written_out(dim, normalization, training):
    model = small(dim=dim, normalization=normalization, in_channels=2, out_channels=3)
    model.train(training)
    sizes = (13, 8)[:dim]  # one of them is no multiple of four
    a = torch.randn(2, *sizes, 2, dtype=torch.float64, requires_grad=True)
    same(
        model(a, points(*sizes)),
        plain_cno(model, a),
        [a, *model.parameters()],
        rtol=1e-8,
        atol=1e-8,
    )


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
    model, a = small(dim=2, size=8).eval(), torch.randn(1, 12, 20, 1).double()
    found, x = model(a, points(12, 20)), points(8, 8)
    model.size = 0
    inside = model(resampled(a.movedim(-1, 1), "bicubic", (8, 8)).movedim(1, -1), x)
    expected = resampled(inside.movedim(-1, 1), "bicubic", (12, 20)).movedim(1, -1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["periodic", "fourier"])
def test_commutes_with_shifts_of_the_coarsest_grid(kind):
    model, a = small(resampling=kind).eval(), torch.randn(2, 16, 1, dtype=torch.float64)
    moved = model(a.roll(4, 1), points(16))
    torch.testing.assert_close(moved, model(a, points(16)).roll(4, 1))
