"""Sums of sines: products and FFTs test each other, on every kind of size."""

import numpy as np
import pytest
import torch

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import Poisson
from pdegen.numerics.sines import by_fft, by_products, faster_by_fft, matrix
from pdegen.sampling.gaussian import SquareGaussianField

pytestmark = pytest.mark.usefixtures("shapes")

# one cell; even and odd; a power of 2; a prime; few factors
SIZES = (1, 2, 5, 37, 64, 135)
# arguments of sines have rounding errors of n ε: 3e-14 at 135, and sums of n terms as much again
EQUAL = 1e-12


def relative(u, v):
    return np.linalg.norm(u - v) / np.linalg.norm(v)


@pytest.mark.parametrize("n", SIZES)
def test_the_matrix_is_orthonormal(n):
    s = matrix(CellGrid(n))
    assert abs(s.T @ s - np.eye(n)).max() < EQUAL


@pytest.mark.parametrize("array", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("n", SIZES)
def test_products_and_ffts_agree_in_the_plane(n, array):
    grid, v = CellGrid(n), np.random.default_rng(0).standard_normal((2, n, n))
    products, ffts = by_products(grid, array(v)), by_fft(grid, array(v))
    for one, other in zip(products, ffts, strict=True):
        assert relative(np.asarray(other(array(v))), np.asarray(one(array(v)))) < EQUAL
    assert relative(np.asarray(ffts.backward(ffts.forward(array(v)))), v) < EQUAL


@pytest.mark.parametrize("n", SIZES)
def test_both_invert_the_laplacian_alike(n):
    r = np.random.default_rng(0).standard_normal((n, n))
    before = r.copy()
    products, ffts = Poisson(CellGrid(n), fft=False), Poisson(CellGrid(n), fft=True)
    assert relative(ffts.transformed(r), products.transformed(r)) < EQUAL
    assert relative(ffts(r), products(r)) < EQUAL
    assert (r == before).all()


@pytest.mark.parametrize("modes", [122, 135])
@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_fields_are_the_same_by_both(boundary, modes, monkeypatch):
    field, grid = SquareGaussianField(boundary, 3.0, 3.0, 2.0, modes), CellGrid(135)
    by_ffts = field(grid, 1, range(2))
    monkeypatch.setattr("pdegen.sampling.gaussian.faster_by_fft", lambda n: False)
    by_matrices = field(grid, 1, range(2))
    assert relative(by_ffts, by_matrices) < EQUAL
    assert not (by_ffts == by_matrices).all()  # two ways indeed


def test_few_modes_and_modes_beyond_the_grid_are_products(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(SquareGaussianField, "_by_fft", fail)
    for modes in (100, 136):
        SquareGaussianField("neumann", 3.0, 3.0, 2.0, modes)(CellGrid(135), 0, [0])
    with pytest.raises(AssertionError):
        SquareGaussianField("neumann", 3.0, 3.0, 2.0, 135)(CellGrid(135), 0, [0])


def test_small_grids_and_large_primes_are_products():
    assert not any(map(faster_by_fft, (1, 85, 129, 211, 421, 2 * 211, 541)))
    assert all(map(faster_by_fft, (135, 256, 3 * 47, 423, 425, 631, 841, 1681)))


@pytest.mark.parametrize(("n", "fft"), [(64, False), (256, True)])
def test_the_default_of_a_grid_is_what_is_faster(n, fft, monkeypatch):
    calls = []
    monkeypatch.setattr("scipy.fft.dst", lambda v, **words: calls.append(words["type"]) or v)
    Poisson(CellGrid(n))(np.ones((n, n)))
    assert calls == ([2, 3] if fft else [])
