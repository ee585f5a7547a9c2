"""Flow around inclusions: exact solutions of discs, order, shapes, law and refusals. What needs
dolfinx and Gmsh is skipped without them, or fails where CI=true."""

import math

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy_inclusion.problem import RandomInclusion, finite_volumes
from pdegen.equations.darcy_inclusion.solver import CurvedTriangles, Disc, FittedElement, shapes
from pdegen.numerics.errors import MissingSolverError
from pdegen.numerics.fenicsx import client
from pdegen.recipe import load_recipe
from pdegen.sampling.coefficients import RandomVoid
from pdegen.schema import SchemaError
from tests.pdegen.test_checks import findings

INSIDE, OUTSIDE, RADIUS = 12.0, 3.0, 0.3
DISC = RandomInclusion(RandomVoid(RADIUS, 0.0, 1.0, 3.0, 1), 0.0)
GRID = CellGrid(48)


exact = Disc(RADIUS, INSIDE, OUTSIDE)


def distance(u, v):
    return float(np.linalg.norm(u - v) / np.linalg.norm(v))


def test_the_exact_solution_satisfies_the_equation_and_both_conditions_on_the_circle():
    h, angles = 1e-4, np.linspace(0.1, 6.2, 17)
    for r, a in ((0.2, INSIDE), (0.4, OUTSIDE)):
        x, y = 0.5 + r * np.cos(angles), 0.5 + r * np.sin(angles)
        around = exact(x + h, y) + exact(x - h, y) + exact(x, y + h) + exact(x, y - h)
        assert -a * (around - 4 * exact(x, y)) / h**2 == pytest.approx(1.0, abs=1e-4)

    def at(r):
        return exact(0.5 + r * np.cos(angles), 0.5 + r * np.sin(angles))

    inner, outer = RADIUS - 1e-9, RADIUS + 1e-9
    assert at(inner) == pytest.approx(at(outer), abs=1e-8)
    fluxes = [(at(inner) - at(inner - h)) / h * INSIDE, (at(outer + h) - at(outer)) / h * OUTSIDE]
    assert fluxes[0] == pytest.approx(fluxes[1], abs=0.02)  # one-sided differences, first order


@pytest.mark.usefixtures("dolfinx")
def test_discs_are_solved_to_order_three():
    centres = np.meshgrid(GRID.x, GRID.x, indexing="ij")
    errors = []
    for n in (16, 32, 64):
        curve = DISC.curve(np.zeros(4), n)
        u, residual = FittedElement(n, OUTSIDE, INSIDE).solve(curve, GRID, 1.0, exact)
        assert residual < 1e-12
        errors.append(distance(u, exact(*centres)))
    assert errors[1] < 1e-5
    # a mesh is not the refinement of another: single steps differ from 8
    assert np.log2(errors[0] / errors[-1]) / 2 == pytest.approx(3, abs=0.4)


@pytest.mark.usefixtures("dolfinx")
def test_without_a_jump_the_solution_is_that_of_poissons_equation():
    from pdegen.equations.darcy.finite_volume import FiniteVolume

    grid = CellGrid(64)
    z = np.random.default_rng(0).standard_normal((1, 12))
    curve = RandomInclusion(RandomVoid(0.1, 0.2, 16.0, 3.0, 5), 0.1).curve(z[0], 32)
    u, _ = FittedElement(32, 1.0, 1.0).solve(curve, grid)
    assert distance(u, FiniteVolume(grid)(np.ones((1, 64, 64)))[0]) < 1e-3  # order 2 of volumes


@pytest.mark.usefixtures("dolfinx")
def test_stated_errors_are_those_to_a_much_finer_mesh():
    problem = load_recipe("darcy-inclusion-quick").problem
    finest = problem.model_copy(update={"elements": 64})
    z = problem.inclusion.build().numbers(0, range(4))
    coarse, fine = problem.labels(z), finest.labels(z)
    for row in range(4):
        true = distance(coarse["u"][row], fine["u"][row])
        assert 0.5 < coarse["error"][row] / true < 2


@pytest.mark.usefixtures("dolfinx")
def test_wrong_samples_break_the_law():
    problem = load_recipe("darcy-inclusion-quick").problem
    sound = problem.compute(0, range(16))
    assert findings(problem.checks(), sound) == []
    moved = {**sound, "u": np.roll(sound["u"], 2, axis=1)}
    assert any("finite volumes" in str(found) for found in findings(problem.checks(), moved))
    assert findings(problem.checks(), {**sound, "a": sound["a"][::-1]}) != []
    assert findings(problem.checks(), {**sound, "centre": sound["centre"] + 1e-6}) != []


def test_quadratic_functions_on_curved_triangles_are_found_at_the_centres():
    """A square of two triangles whose common edge is a parabola; x and y are in the space."""
    x = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0], [1, 0.5], [0.5, 1], [0, 0.5],
                  [0.55, 0.45]], float)  # fmt: skip
    mesh = CurvedTriangles(x, np.array([[0, 1, 2, 5, 8, 4], [0, 2, 3, 6, 7, 8]]))
    grid = CellGrid(7)
    found = [mesh.values(x[:, k], grid) for k in (0, 1)]
    assert found[0] == pytest.approx(np.repeat(grid.x[:, None], 7, axis=1), abs=1e-12)
    assert found[1] == pytest.approx(np.repeat(grid.x[None], 7, axis=0), abs=1e-12)
    with pytest.raises(ArithmeticError, match="does not cover"):
        CurvedTriangles(x, mesh.cells[:1]).values(x[:, 0], grid)


def test_the_laws_finite_volumes_are_those_of_darcy():
    from pdegen.equations.darcy.finite_volume import FiniteVolume

    a = np.exp(np.random.default_rng(0).standard_normal((9, 9)))
    u = FiniteVolume(CellGrid(9), rtol=1e-13)(a[None], 2.0)[0]
    assert finite_volumes(a, 2.0) == pytest.approx(u, rel=1e-9)


def test_gradients_of_shape_functions_are_derivatives():
    s, h = np.random.default_rng(0).random((5, 2)) / 2, 1e-6
    _, gradients = shapes(s)
    for k in range(2):
        step = h * np.eye(2)[k]
        slopes = (shapes(s + step)[0] - shapes(s - step)[0]) / (2 * h)
        assert gradients[:, k] == pytest.approx(slopes, abs=1e-8)


def test_the_shape_is_that_of_its_numbers():
    """The formulas of the documentation, term by term: a sum over modes for one inclusion."""
    least, span, sigma, tau, modes, shift = 0.1, 0.22, 16.0, 3.0, 2, 0.1
    shape = RandomInclusion(RandomVoid(least, span, sigma, tau, modes), shift)
    z = shape.numbers(7, range(1))
    assert z.shape == (1, 6)
    first, second, *of_waves = z[0]
    centre = [0.5 + shift * math.erf(number / math.sqrt(2)) for number in (first, second)]
    assert shape.centre(z)[0] == pytest.approx(centre, rel=1e-14)
    angle = 0.7
    g = sum(
        sigma / (math.sqrt(math.pi) * (k * k + tau**2))
        * (of_waves[2 * k - 2] * math.cos(k * angle) + of_waves[2 * k - 1] * math.sin(k * angle))
        for k in (1, 2)
    )  # fmt: skip
    radius = least + span / (1 + math.exp(g))
    assert shape.radius(z, np.array([angle]))[0, 0] == pytest.approx(radius, rel=1e-13)


def test_points_of_the_curve_are_equidistant_and_on_it():
    shape = RandomInclusion(RandomVoid(0.1, 0.22, 16.0, 3.0, 5), 0.1)
    z = shape.numbers(0, range(3))
    for row in range(3):
        curve = shape.curve(z[row], 32)
        steps = np.linalg.norm(np.diff(curve, axis=0), axis=1)
        assert steps == pytest.approx(steps.mean(), rel=0.01)  # chords of arcs of one length
        dx, dy = (curve - shape.centre(z)[row]).T
        assert np.hypot(dx, dy) == pytest.approx(
            shape.radius(z[row : row + 1], np.arctan2(dy, dx))[0], abs=1e-12
        )
        assert len(shape.curve(z[row], 64)) == 2 * len(curve)


def test_without_gmsh_the_refusal_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(client, "interpreter", lambda: "/usr/bin/python3")
    monkeypatch.setattr(client, "_gmsh_version", lambda python: "")
    with pytest.raises(MissingSolverError, match=r"no Gmsh in /usr/bin/python3.*python3-gmsh"):
        load_recipe("darcy-inclusion").problem.check_solver()


def test_inclusions_near_the_boundary_and_other_devices_are_refused():
    recipe = load_recipe("darcy-inclusion")
    with pytest.raises(SchemaError, match=r"least \+ span \+ shift must be at most 0.45, got 0.52"):
        recipe.with_overrides({"inclusion.shift": 0.2})
    with pytest.raises(SchemaError, match="CPU only, got device 'cuda'"):
        recipe.problem.check_solver("cuda")
