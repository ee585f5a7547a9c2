"""Compiled steps of a chain are those that it takes without a compiler."""

import numpy as np
import pytest

from benchmarks.posterior.cases import OfFractions, PhasePotential
from benchmarks.posterior.metropolis import Metropolis, Proposal
from benchmarks.posterior.walk import PhaseWalk, flow
from pdegen.domains import CellGrid
from pdegen.equations.darcy.inversion import PhaseFlow
from pdegen.inverse.classical import Separable, averages
from pdegen.inverse.gaussian import ModelError, Prior
from pdegen.inverse.phases import GridModel
from pdegen.sampling.gaussian import SquareGaussianField

RNG = np.random.default_rng(0)
FIELD = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 5)
DATA = 0.005 * RNG.standard_normal((2, 3))


def potential(cells, observation=None):
    model = PhaseFlow(CellGrid(cells), (3.0, 12.0), 2.0)
    observation = observation or Separable(averages(cells, 2), averages(cells, 3))
    error = ModelError(0.01 * np.ones((2, 3)), 0.004 * RNG.standard_normal((2, 2, 3)), 0.002)
    fractions = OfFractions(model, averages(12, cells))
    level = GridModel(Prior(FIELD, CellGrid(12)), fractions, observation, error, (1.0,))
    return PhasePotential(level, DATA + 0.05, 0.01 * np.ones((2, 3)))


@pytest.mark.parametrize("coarse", [None, potential(3)], ids=["one model", "delayed"])
def test_compiled_steps_are_the_steps(coarse):
    fine = potential(6)
    method = Metropolis(fine.potential, coarse and coarse.predicted)
    xi, root = RNG.standard_normal((5, 5)), RNG.standard_normal((4, 25))
    randoms = RNG.standard_normal((300, 5, 5)), np.log(RNG.uniform(size=(300, 2)))
    at = fine.predicted(xi)
    state = xi, at, coarse.predicted(xi) if coarse else at, fine.misfit(at)
    proposal = Proposal.of(root.T @ root)
    expected, *counts = method.step(state, 0.8, 0.4, proposal, randoms)
    found, *others = PhaseWalk(fine, coarse)(state, 0.8, 0.4, proposal, randoms)
    assert counts == others
    assert 20 < counts[1] < 280  # of 300: both answers occur
    assert (counts[0] < 300) == (coarse is not None)
    for one, two in zip(expected, found, strict=True):
        assert np.allclose(one, two, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_compiled_flow_is_the_flow(n):
    p = RNG.uniform(size=(n, n))
    model = PhaseFlow(CellGrid(n), (3.0, 12.0), 2.0)
    assert np.allclose(flow(p, 3.0, 12.0, 2.0), model(p), rtol=1e-11)
