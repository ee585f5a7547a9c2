"""Bilinear finite elements: the exact solution of constant coefficients, order, and the other
solver."""

import json
from pathlib import Path

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.bilinear import BilinearElements, BilinearFlow
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError

GALLERY = json.loads((Path(__file__).parents[1] / "data/membrane-64.json").read_text("utf-8"))


def membrane(parts):
    """The flow of Aristoff and Bangerth, on 8 x 8 cells of parts² elements."""
    return BilinearFlow(BilinearElements(CellGrid(8), parts), np.arange(1, 14) / 14, 10.0)


def torsion(x: np.ndarray, terms: int = 60) -> np.ndarray:
    """The solution of -Δu = 1 with zero walls, by its series, at the points (x, x)."""
    odd = np.arange(1, terms, 2)
    sines = np.sin(np.pi * np.outer(x, odd))
    modes = np.outer(odd, odd) * (odd[:, None] ** 2 + odd**2)
    return 16 / np.pi**4 * sines @ (1 / modes) @ sines.T


def test_a_constant_coefficient_has_the_series_as_solution():
    grid = CellGrid(21)
    exact = torsion(grid.x) / 3
    errors = [
        abs(BilinearElements(grid, parts)(np.full((1, 21, 21), 3.0))[0] - exact).max()
        for parts in (2, 4)
    ]
    assert errors[1] < 2e-4 * exact.max()
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.1)


def test_it_agrees_with_the_finite_volumes_under_refinement():
    rng = np.random.default_rng(0)
    a = np.where(rng.random((1, 7, 7)) < 0.5, 3.0, 12.0)
    f = rng.uniform(0.5, 2, (1, 7, 7))
    fine = [m.repeat(45, axis=1).repeat(45, axis=2) for m in (a, f)]
    volumes = FiniteVolume(CellGrid(315)).solve(*fine).u[:, 22::45, 22::45]
    errors = [
        np.linalg.norm(BilinearElements(CellGrid(7), parts).solve(a, f).u - volumes)
        / np.linalg.norm(volumes)
        for parts in (4, 16)
    ]
    assert errors[1] < 2e-3
    assert errors[1] < errors[0] / 2


def test_the_equations_are_solved_and_the_axes_are_in_order():
    a = np.ones((1, 9, 9))
    a[:, 6:] = 12.0  # large x
    solution = BilinearElements(CellGrid(9)).solve(a, 2.0)
    assert solution.residual[0] < 1e-12
    assert solution.u[0, 1].max() > 2 * solution.u[0, 7].max()
    assert np.allclose(solution.u[0], solution.u[0, :, ::-1])


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="parts must be an even number, at least 2, got 3"):
        BilinearElements(CellGrid(5), 3)
    with pytest.raises(SolveError):
        BilinearElements(CellGrid(5))(np.zeros((1, 5, 5)))
    with pytest.raises(SchemaError, match="parts"):
        load_recipe("darcy-quick").with_overrides(
            {"problem.solver": {"method": "bilinear", "parts": 3}}
        )


def test_a_recipe_solves_with_it():
    recipe = load_recipe("inverse-darcy-1").with_overrides({"problem.resolution": 21})
    other = recipe.with_overrides({"problem.solver": {"method": "bilinear", "parts": 4}})
    first, second = (r.problem.compute(5, range(2)) for r in (recipe, other))
    assert (first["a"] == second["a"]).all()
    off = np.linalg.norm(first["u"] - second["u"]) / np.linalg.norm(first["u"])
    assert 1e-6 < off < 0.01
    for check in (recipe, other):
        assert check.problem.checks()


@pytest.mark.parametrize(("number", "theta"), [(0, [1.0] * 64), (4, GALLERY["theta 4"])])
def test_stored_outputs_of_the_gallery_are_reproduced(number, theta):
    u = membrane(4).linearise(np.reshape(theta, (8, 8)).T).u
    np.testing.assert_allclose(u.ravel(), GALLERY[f"z {number}"], atol=1e-11)


def test_the_banded_factorisation_solves_the_equations_of_the_sparse_one():
    rng = np.random.default_rng(3)
    a, elements = np.exp(rng.standard_normal((5, 5))), BilinearElements(CellGrid(5), 4)
    u = BilinearFlow(elements, CellGrid(5).x, 2.0).linearise(a).u
    np.testing.assert_allclose(u, elements(a[None], 2.0)[0], rtol=1e-10)
    with pytest.raises(ArithmeticError, match="not positive definite"):
        membrane(4).linearise(-np.ones((8, 8)))


def test_the_gradient_is_that_of_differences():
    rng = np.random.default_rng(4)
    a, da, v = np.exp(rng.standard_normal((8, 8))), rng.standard_normal((8, 8)), np.eye(13)
    flow, h = membrane(4), 1e-5
    change = np.sum(v * (flow.linearise(a + h * da).u - flow.linearise(a - h * da).u)) / (2 * h)
    assert np.sum(da * flow.linearise(a).vjp(v)) == pytest.approx(change, rel=1e-6)
