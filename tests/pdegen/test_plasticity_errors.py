"""Errors that forgings state, by blocks with coarser and with finer elements."""

import numpy as np
import pytest

from pdegen.checks.check import ROUNDING
from pdegen.equations.plasticity.solver import Billet, Forging, centred
from pdegen.recipe import load_recipe
from tests.pdegen.test_plasticity import forged, random_die, small_problem


def test_two_grids_estimate_the_error():
    """Error of the displacement without drift, against a block with elements a quarter as large."""
    forging = Forging(Billet(across=20, up=6))
    frames, coarse = forging(random_die()), forging.coarser()(random_die())
    with_drift, error = forging.estimates(frames, coarse)
    true = forging.difference(centred(frames), centred(forged(0, 80)))
    assert true / 3 < error < 3 * true
    assert with_drift > error / 3


def test_a_block_with_finer_elements_shares_every_second_node():
    block = Billet(across=20, up=6)
    fine = block.finer().nodes
    np.testing.assert_allclose(block.nodes[:, ::2, ::2], fine[:, ::3, ::3])
    assert Forging(block).difference(block.nodes[None], fine[None]) < 1e-15
    assert Forging(block).difference(1.1 * block.nodes[None], fine[None]) == pytest.approx(0.1)


def test_a_finer_block_states_the_error_of_a_label_with_its_drift():
    """A coarser block errs more than the label, in a way that says little of it."""
    forging = Forging(Billet(across=20, up=6))
    frames, finer, fine = (forged(3, across) for across in (20, 30, 40))
    with_drift, error = forging.estimates(frames, finer)
    true = forging.difference(frames.u, fine.u)
    assert 0.5 < with_drift / true < 2
    assert 0.5 < error / forging.difference(centred(frames), centred(fine)) < 2
    coarse, _ = forging.estimates(frames, forging.coarser()(random_die(3)))
    assert coarse > 3 * true


def test_recipes_without_the_key_keep_their_fingerprints():
    recipe = load_recipe("plasticity")
    assert "compared" not in recipe.model_dump()["problem"]["solver"]
    assert recipe.fingerprint == recipe.with_overrides({"compared": "coarser"}).fingerprint
    assert recipe.fingerprint != recipe.with_overrides({"compared": "finer"}).fingerprint
    assert recipe.fingerprint.startswith("f605678d22c7")


@pytest.mark.parametrize("compared", ["coarser", "finer"])
@pytest.mark.parametrize("drift", ["kept", "removed"])
def test_labels_state_the_error_by_the_block_that_the_recipe_names(compared, drift):
    problem = small_problem(frames=6, compared=compared, drift=drift)
    (die,) = problem.dies(0, range(1))
    forging = problem.forging
    other = (forging.coarser() if compared == "coarser" else forging.finer())(die)
    with_drift, at_rest = forging.estimates(forging(die), other)
    values = problem.solve(0, range(1))
    label = with_drift if drift == "kept" else at_rest
    for name, estimate in (("error", label), ("error_at_rest", at_rest)):
        assert values[name][0] == pytest.approx(np.hypot(estimate, np.sqrt(ROUNDING)), rel=1e-15)
    assert at_rest != with_drift


def test_estimates_are_distances_to_elements_half_as_large_at_order_1():
    forging, frames = Forging(Billet(across=20, up=6)), forged(0, 20)

    def of(block, size):
        """Frames with an error of 1/1000 per size of the elements, without drift."""
        u = np.tile((1 + 1e-3 * size) * block.nodes, (len(frames.u), 1, 1, 1))
        return frames._replace(u=u)

    own = of(forging.block, 1.0)
    for other, size in ((forging.coarser(), 2.0), (forging.finer(), 2 / 3)):
        found, _ = forging.estimates(own, of(other.block, size))
        assert found == pytest.approx(5e-4, rel=2e-3)
