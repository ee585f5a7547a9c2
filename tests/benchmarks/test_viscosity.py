"""Viscosities from noisy solutions of Burgers' equation."""

import numpy as np
import pytest

from benchmarks.viscosity import ViscosityInversion, _ByViscosity, evidence
from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.inverse.gaussian import GaussianInversion
from pdegen.sampling.gaussian import PeriodicGaussianField
from tests.pdegen.test_burgers_inversion import Matrix, orders

NU, TIME, POINTS = 0.1 / (2 * np.pi), 1 / (2 * np.pi), 64
FIELD = PeriodicGaussianField(sigma=25.0, tau=5.0, alpha=2.0, modes=127)  # of burgers-quick
GRID = PeriodicGrid(256)
U0 = FIELD(GRID, 0, range(40))
U = ColeHopf(GRID, NU)(U0, TIME)[:, :: 256 // POINTS]
SIZE = U.std(axis=0)
NOISE = np.random.default_rng(0).standard_normal(U.shape)


def test_the_derivative_by_the_viscosity_leaves_a_remainder_of_order_two():
    at = _ByViscosity(ColeHopf(GRID, NU), U0[0], TIME)
    found = orders(
        lambda t: ColeHopf(GRID, NU * float(np.exp(t)))(U0[0], TIME), at.by_log_viscosity
    )
    assert found == pytest.approx(2, abs=0.1)


def test_of_a_linear_map_the_evidence_is_the_marginal_density():
    rng = np.random.default_rng(1)
    g, sigma = rng.standard_normal((12, 5)), rng.uniform(0.1, 1, 12)
    invert = GaussianInversion(Matrix(g), rtol=1e-10)
    data = rng.standard_normal((2, 12))
    found = [invert(d, sigma, np.zeros(5)) for d in data]
    marginal = np.linalg.inv(g @ g.T + np.diag(sigma**2))
    logs = [-0.5 * d @ marginal @ d for d in data]
    assert evidence(found[0]) - evidence(found[1]) == pytest.approx(logs[0] - logs[1], abs=1e-5)


def test_the_viscosity_from_both_ends_is_recovered_without_noise():
    truth = NU * np.exp(0.7)
    invert = ViscosityInversion(NU, 0.5, TIME, POINTS)
    data = ColeHopf(GRID, truth)(U0[0], TIME)[::4]
    found = invert.from_both(U0[0], data, np.zeros(POINTS))
    assert found.log == pytest.approx(np.log(truth), abs=1e-6)
    assert found.std < 1e-5


def test_the_viscosity_from_both_ends_is_as_sure_as_it_says():
    invert, z = ViscosityInversion(NU, 0.5, TIME, POINTS), []
    stds = []
    for i in range(40):
        found = invert.from_both(U0[i], U[i] + 0.05 * SIZE * NOISE[i], 0.05 * SIZE)
        z.append((found.log - np.log(NU)) / found.std)
        stds.append(found.std)
    assert np.std(z) == pytest.approx(1, abs=0.25)  # a deviation of 0.11
    assert np.mean(stds) < 0.05  # 0.5 before the data


def test_the_viscosity_from_the_solution_alone_is_told_from_others():
    invert, off, stds = ViscosityInversion(NU, 0.5, TIME, 32), [], []
    for i, z in enumerate((-1.0, 1.5)):
        truth = NU * float(np.exp(0.5 * z))
        data = ColeHopf(GRID, truth, 1e-6)(U0[i], TIME)[::8]
        found = invert.from_solution(
            FIELD, data + 0.01 * SIZE[::2] * NOISE[i, ::2], 0.01 * SIZE[::2]
        )
        off.append(found.log - np.log(truth))
        stds.append(found.std)
    assert np.sqrt(np.mean(np.square(off))) < 0.25  # 0.5 before the data
    assert 0.02 < np.mean(stds) < 0.25
    assert np.abs(np.divide(off, stds)).max() < 3


def test_data_that_are_all_noise_leave_the_law_of_the_viscosity():
    found = ViscosityInversion(NU, 0.5, TIME, 16).from_solution(FIELD, U[0, ::4], 100 * SIZE[::4])
    assert found.log == pytest.approx(np.log(NU), abs=1e-2)
    assert found.std == pytest.approx(0.5, rel=0.03)  # what is beyond 3 deviations is cut
