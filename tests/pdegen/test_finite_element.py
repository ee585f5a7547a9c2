"""Needs dolfinx: without it these tests are skipped, or fail where CI=true."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_element import FiniteElement
from pdegen.numerics.errors import SolveError
from tests.oracles.bilinear import bilinear_solution

pytestmark = pytest.mark.usefixtures("dolfinx", "shapes")
each_element = pytest.mark.parametrize("element", ["Q1", "P1", "Q2", "P2"])


def random_coefficients(batch=5, n=12, contrast=100.0):
    generator = np.random.default_rng(3)
    return np.exp(generator.uniform(0, np.log(contrast), (batch, n, n)))


# what it solves


@pytest.mark.parametrize(("linear", "error"), [("cholesky", 1e-12), ("cg", 1e-10)])
def test_agrees_with_another_assembly(linear, error):
    a = random_coefficients()
    f, walls = np.random.default_rng(4).normal(size=(5, 12, 12)), lambda x, y: 0.1 * (x - y * y)
    solver = FiniteElement(CellGrid(12), linear=linear, rtol=1e-11)
    u = solver(a, f, walls)
    expected = [bilinear_solution(*sample, walls) for sample in zip(a, f, strict=True)]
    np.testing.assert_allclose(u, expected, atol=error * np.abs(u).max(), rtol=0)


@pytest.mark.parametrize(("element", "order"), [("Q1", 2), ("P1", 2), ("Q2", 4), ("P2", 4)])
def test_order_for_a_smooth_solution(element, order):
    def exact(x, y):
        return np.exp(x) * np.sin(2 * x + 3 * y)

    def source(x, y):  # -Δu
        return 2 * np.exp(x) * (6 * np.sin(2 * x + 3 * y) - 2 * np.cos(2 * x + 3 * y))

    errors = []
    for n in (8, 16, 32):
        grid = CellGrid(n)
        u = FiniteElement(grid, element, linear="cholesky")(np.full((1, n, n), 2.0),
            lambda x, y: 2 * source(x, y), exact)[0]  # fmt: skip
        errors.append(np.abs(u - exact(grid.x[:, None], grid.x)).max())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders[-1] == pytest.approx(order, abs=0.2)


@each_element
@pytest.mark.parametrize("n", [1, 2, 9])
def test_values_at_face_centres_are_continued_to_the_corners(element, n):
    """A linear u is met exactly, on a single cell too if it is constant."""
    x = CellGrid(n).x
    slope = float(n > 1)
    walls = 1 + slope * np.stack([2 * x, 3 + 2 * x, 3 * x, 3 * x + 2])  # 1 + 3x + 2y
    u = FiniteElement(CellGrid(n), element)(random_coefficients(1, n, 1.0), 0.0, walls)[0]
    np.testing.assert_allclose(u, 1 + slope * (3 * x[:, None] + 2 * x), rtol=1e-9)


@each_element
def test_a_source_may_be_a_number_cells_or_a_function(element):
    a = random_coefficients()
    solver = FiniteElement(CellGrid(12), element)
    expected = solver(a, 2.0)
    each = np.arange(1.0, 6)[:, None, None]
    np.testing.assert_array_equal(solver(a, np.full((12, 12), 2.0)), expected)
    np.testing.assert_allclose(solver(a, lambda x, y: 2.0), expected, rtol=1e-8)
    np.testing.assert_allclose(solver(a, each + np.zeros(a.shape)), each / 2 * expected, rtol=1e-8)


def test_says_residual_and_iterations():
    a = random_coefficients()
    iterative = FiniteElement(CellGrid(12)).solve(a)
    assert (iterative.residual <= 1e-10).all()
    assert ((iterative.iterations > 1) & (iterative.iterations < 30)).all()
    direct = FiniteElement(CellGrid(12), linear="cholesky").solve(a)
    assert (direct.residual < 1e-12).all()
    np.testing.assert_array_equal(direct.iterations, 0)


@pytest.mark.parametrize("linear", ["cg", "cholesky"])
def test_a_sample_is_the_same_bits_in_any_batch(linear):
    a = random_coefficients()
    solver = FiniteElement(CellGrid(12), linear=linear)
    u = solver(a)
    np.testing.assert_array_equal(solver(a[3:4])[0], u[3])
    assert solver(a[:0]).shape == (0, 12, 12)


def test_a_sample_is_the_same_bits_whatever_was_solved_before(dolfinx):
    a, direct = random_coefficients(1), FiniteElement(CellGrid(12), linear="cholesky")
    with ThreadPoolExecutor(1) as another:  # its worker is new
        first = another.submit(direct, a).result()
    for linear in ("cg", "cholesky"):
        FiniteElement(CellGrid(12), linear=linear)(random_coefficients(2, contrast=1e3), 2.0, 1.0)
        np.testing.assert_array_equal(direct(a), first)


# MPI


@pytest.mark.parametrize("linear", ["cg", "cholesky"])
@pytest.mark.parametrize("element", ["Q1", "P2"])
def test_two_ranks_agree_with_one(element, linear):
    a, grid = random_coefficients(), CellGrid(12)
    f, walls = np.linspace(0, 1, 144).reshape(12, 12), lambda x, y: 0.1 * x * y
    one = FiniteElement(grid, element, linear).solve(a, f, walls)
    samples = FiniteElement(grid, element, linear, ranks=2).solve(a, f, walls)
    np.testing.assert_array_equal(samples.u, one.u)
    np.testing.assert_array_equal(samples.residual, one.residual)
    np.testing.assert_array_equal(samples.iterations, one.iterations)
    domain = FiniteElement(grid, element, linear, ranks=2, mode="domain").solve(a, f, walls)
    np.testing.assert_allclose(domain.u, one.u, rtol=1e-8)  # another order of sums


def test_two_ranks_name_the_first_unsolved_sample():
    a, f = random_coefficients(6), np.ones((6, 12, 12))
    f[:3] = 0  # solved without an iteration
    solver = FiniteElement(CellGrid(12), ranks=2, limit=1)
    with pytest.raises(SolveError, match="sample 3 of the batch: CG") as refusal:
        solver(a, f)
    assert refusal.value.row == 3
    np.testing.assert_array_equal(solver(a, 0.0), 0)  # they live on


# refusals


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_unsolved_sample_is_named(ranks):
    a = random_coefficients()
    solver = FiniteElement(CellGrid(12), limit=1, ranks=ranks)
    with pytest.raises(SolveError, match=r"sample 0 of the batch: CG \+ hypre ended with DIV"):
        solver(a)
    with pytest.raises(SolveError, match="rtol = 1e-17: use a larger rtol") as refusal:
        FiniteElement(CellGrid(12), linear="cholesky", rtol=1e-17)(a[2:])
    assert refusal.value.row == 0
    f = np.zeros(a.shape)
    f[3] = 1  # the others are solved without an iteration
    with pytest.raises(SolveError) as refusal:
        solver(a, f)
    assert refusal.value.row == 3


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_an_impossible_coefficient_is_refused_by_its_row(value):
    a = random_coefficients()
    a[2, 3, 4] = value
    with pytest.raises(SolveError, match="must be positive and finite") as refusal:
        FiniteElement(CellGrid(12))(a)
    assert refusal.value.row == 2


@pytest.mark.usefixtures("unchecked")
def test_other_shapes_are_refused():
    solver, a = FiniteElement(CellGrid(12)), random_coefficients()
    with pytest.raises(ValueError, match=r"expected a of shape \(batch, 12, 12\), got \(12, 12\)"):
        solver(a[0])
    with pytest.raises(ValueError, match=r"f must be a number or of shape .*, got \(4, 12, 12\)"):
        solver(a, a[:4])
    with pytest.raises(
        ValueError, match=r"boundary_value must be a number or of shape \(4, 12\), got \(12,\)"
    ):
        solver(a, 1.0, np.zeros(12))
