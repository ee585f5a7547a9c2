"""Sheets on meshes that are graded towards the clamped corners, with recovered stresses."""

import numpy as np
import pytest

from pdegen.equations.elasticity.mesh import PointTransfer, Rings
from pdegen.equations.elasticity.solver import Body, Recovery, Sheet
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.pdegen.test_elasticity import THETA, UNIT, VOID


def test_a_graded_mesh_halves_the_elements_at_the_clamped_corners():
    rings = Rings(36 + 8, 3 + 2, grading=2)
    around, across = rings.breaks
    added = [0.25, 0.5, 26.5, 26.75, 27.25, 27.5, 35.5, 35.75]
    assert around.tolist() == sorted([*range(37), *added])
    assert across.tolist() == [0, 1, 2, 2.5, 2.75, 3]
    body = Body.of(rings, VOID.radius(THETA, rings.angles))
    body.check()
    outer = body.nodes[1, :, -1]
    assert np.abs(outer - 0.5).max(axis=1) == pytest.approx(0.5)
    assert (outer[rings.bottom, 1] < 1e-12).all()
    assert (outer[:, 1] < 1e-12).sum() == len(rings.bottom)
    upper = [2 * e for e in rings.top]
    assert outer[[upper[0], upper[-1] + 2]] == pytest.approx(np.array([[1.0, 1.0], [0.0, 1.0]]))
    assert np.diff(outer[upper, 0]) == pytest.approx(-1 / 9)


def test_a_graded_mesh_has_nearly_the_energy_of_twice_the_elements():
    """Energies converge from below. Without grading the clamped corners have most of the error."""
    energies = []
    for rings in (Rings(72, 6), Rings(144, 12), Rings(72 + 4 * 6, 6 + 6, 6)):
        sheet = Sheet(rings, UNIT, 100.0)
        body = Body.of(rings, VOID.radius(THETA[:1], rings.angles))
        energies.append((sheet.load * sheet.solve(body).u).sum() / 2)
    plain, twice, graded = energies
    assert 0.9 < (graded - plain) / (twice - plain) < 1.5


@pytest.mark.parametrize("grading", [0, 2])
def test_recovered_gradients_at_points_of_smooth_functions(grading):
    """Those of linear functions are exact. Those of others have order 3, here with 2 and 4 times
    the elements, and are nearer to the exact ones than those in the elements."""
    errors = []
    for times in (2, 4):
        transfer = PointTransfer(Rings(24, 2), times, grading)
        rings = transfer.fine
        coarse, fine = (Body.of(r, VOID.radius(THETA, r.angles)) for r in (Rings(24, 2), rings))
        places = transfer.places(fine.nodes, coarse.points)
        slope = np.array([[1.0, 2.0], [-3.0, 0.5]])
        linear = Recovery(rings).gradient(fine.nodes, fine.nodes @ slope.T, places)
        np.testing.assert_allclose(linear, np.broadcast_to(slope.ravel(), linear.shape), atol=1e-9)
        (x, y), (px, py) = (np.moveaxis(p, -1, 0) for p in (fine.nodes, coarse.points))
        u = np.stack([np.sin(4 * x + y), np.exp(x - 2 * y)], axis=-1)
        by_x, e = np.cos(4 * px + py), np.exp(px - 2 * py)
        expected = np.stack([4 * by_x, by_x, e, -2 * e], axis=-1)
        recovered = Recovery(rings).gradient(fine.nodes, u, places)
        direct = transfer.mean(transfer.values(fine.nodes, coarse.points, u)[1])
        errors.append([np.linalg.norm(part - expected) for part in (recovered, direct)])
    (coarse_error, _), (recovered, direct) = errors
    assert np.log2(coarse_error / recovered) > 2.7
    assert recovered < direct / 4


def test_recovered_stresses_have_a_smaller_error_of_order_three():
    recipe = load_recipe("elasticity-certified")
    errors = {}
    for refinement, stress in [(2, "direct"), (2, "recovered"), (1, "recovered")]:
        changes = {"resolution": 24, "refinement": refinement, "stress": stress}
        errors[refinement, stress] = recipe.with_overrides(changes).problem.compute(0, range(2))
    smaller = errors[2, "recovered"]["error"]
    assert np.all(smaller < errors[2, "direct"]["error"] / 2)
    assert np.all(smaller < errors[1, "recovered"]["error"] / 5)


def test_recipes_without_graded_meshes_keep_their_fingerprints():
    """Keys that earlier recipes lack are absent at their default values."""
    recipe = load_recipe("elasticity")
    assert recipe.fingerprint.startswith("8debf591fbfa")
    assert {"grading", "stress"}.isdisjoint(recipe.model_dump()["problem"])
    named = recipe.with_overrides({"grading": 0, "stress": "direct"})
    assert named.fingerprint == recipe.fingerprint
    assert load_recipe("elasticity-certified").model_dump()["problem"]["grading"] == 2


@pytest.mark.parametrize(("refinement", "grading"), [(2, 0), (1, 1)])
def test_recovered_stresses_need_two_elements_across(refinement, grading):
    recipe = load_recipe("elasticity-quick")
    few = {"resolution": 12, "stress": "recovered", "refinement": 1, "grading": 0}
    with pytest.raises(SchemaError, match="two elements of the solver from the void to the side"):
        recipe.with_overrides(few)
    problem = recipe.with_overrides({**few, "refinement": refinement, "grading": grading}).problem
    assert np.isfinite(problem.solve(0, range(1))["u"]).all()
