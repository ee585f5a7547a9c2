import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.numerics.spectral import Torus

SHAPES = [((24,), 2), ((16, 24), 2), ((24, 16), 3), ((12, 16, 20), 1)]


def box(points, degree, lengths=(1.0, 2.0, 0.5)):
    return Torus(tuple(map(PeriodicGrid, points, lengths)), degree)


def modes(torus, seed=0, batch=(2,)):
    """Those of real functions: the plane of the last axis where k = 0 is symmetric."""
    values = np.random.default_rng(seed).standard_normal((*batch, *torus.points))
    return torus.to_modes(values)


@pytest.mark.parametrize(("points", "degree"), SHAPES)
def test_modes_and_points_are_transforms_of_each_other(points, degree):
    torus = box(points, degree)
    v = modes(torus)
    assert v.shape == (2, *torus.shape)
    np.testing.assert_allclose(torus.to_modes(torus.to_points(v)), v, atol=1e-15)


@pytest.mark.parametrize(("points", "degree"), SHAPES)
def test_modes_are_the_coefficients_of_the_full_transform(points, degree):
    torus = box(points, degree)
    values = np.random.default_rng(1).standard_normal(points)
    full = np.fft.fftn(values, norm="forward")
    v = torus.to_modes(values)
    for place in np.ndindex(*torus.shape):
        k = [int(number.ravel()[i]) for number, i in zip(torus.numbers, place, strict=True)]
        assert abs(v[place] - full[tuple(k)]) < 1e-15


@pytest.mark.parametrize(("points", "degree"), SHAPES)
def test_derivatives_are_those_of_a_wave(points, degree):
    torus = box(points, degree)
    x = np.meshgrid(*[grid.x for grid in torus.grids], indexing="ij")
    k = [2 * np.pi * (i + 1) / grid.length for i, grid in enumerate(torus.grids)]
    phase = sum(a * b for a, b in zip(k, x, strict=True)) + 0.3
    v = torus.to_modes(np.cos(phase))
    for symbol, number in zip(torus.d, k, strict=True):
        np.testing.assert_allclose(torus.to_points(symbol * v), -number * np.sin(phase), atol=1e-12)
    square = sum(number**2 for number in k)
    np.testing.assert_allclose(
        torus.to_points(torus.laplacian * v), -square * np.cos(phase), atol=2e-12
    )
    back = torus.to_points(torus.inverse_laplacian * torus.laplacian * v)
    np.testing.assert_allclose(back, np.cos(phase), atol=1e-13)


@pytest.mark.parametrize(("points", "degree"), SHAPES[:3])
def test_products_of_as_many_factors_are_exact(points, degree):
    """On twice the points nothing is aliased: the kept modes of the product are the same."""
    torus = box(points, degree)
    fine = box(tuple(2 * n for n in points), degree)
    v = modes(torus, 2, ())
    product = torus.to_modes(torus.to_points(v) ** degree)
    u = torus.to_points(v, fine.points)
    exact = np.fft.fftn(u**degree, norm="forward")
    for place in np.ndindex(*torus.shape):
        k = tuple(int(number.ravel()[i]) for number, i in zip(torus.numbers, place, strict=True))
        assert abs(product[place] - exact[k]) < 1e-14


@pytest.mark.parametrize(("points", "degree"), SHAPES)
def test_finer_points_sample_the_same_function(points, degree):
    torus = box(points, degree)
    v = modes(torus)
    fine = torus.to_points(v, tuple(2 * n for n in points))
    every = (slice(None), *(slice(None, None, 2) for _ in points))
    np.testing.assert_allclose(fine[every], torus.to_points(v), atol=1e-13)


def test_fewer_points_sample_the_function_without_its_highest_modes():
    torus = box((24, 16), 2)
    v = modes(torus, 3, ())
    low = v.copy()
    keep = np.ones(torus.shape, bool)
    for number in torus.numbers:
        keep &= np.abs(number) < 4
    low[~keep] = 0
    expected = torus.to_points(low)[::3, ::2]
    np.testing.assert_allclose(torus.to_points(v, (8, 8)), expected, atol=1e-13)


@pytest.mark.parametrize(("points", "degree"), [*SHAPES, ((8, 6), 4)])
def test_a_finer_torus_has_the_same_function(points, degree):
    torus = box(points, degree)
    finer, v = torus.finer, modes(torus)
    assert all(new >= old + 2 for new, old in zip(finer.highest, torus.highest, strict=True))
    assert all(1.25 * old <= new for new, old in zip(finer.points, points, strict=True))
    padded = finer.padded(v)
    assert padded.shape == (2, *finer.shape)
    np.testing.assert_allclose(finer.to_points(padded, points), torus.to_points(v), atol=1e-13)
    np.testing.assert_allclose(finer.to_modes(finer.to_points(padded)), padded, atol=1e-15)


@pytest.mark.parametrize(("points", "degree"), SHAPES)
def test_the_weights_give_the_mean_square(points, degree):
    torus = box(points, degree)
    v = modes(torus, 4, ())
    mean = np.sum(torus.weights * np.abs(v) ** 2)
    assert mean == pytest.approx(np.mean(torus.to_points(v) ** 2), rel=1e-13)


@pytest.mark.parametrize(("n", "degree"), [(15, 2), (2, 2), (4, 3)])
def test_a_grid_that_cannot_be_is_refused(n, degree):
    with pytest.raises(ValueError, match=f"even number of points > {degree + 1} .*got {n}"):
        Torus((PeriodicGrid(16), PeriodicGrid(n)), degree)
