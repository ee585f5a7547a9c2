"""Coarse finite volumes whose faces are fitted to a finer solver."""

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.calibrated import CalibratedFlow
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.sampling.gaussian import SquareGaussianField

N, PHASES = 21, (3.0, 12.0)
GRID = CellGrid(N)


@pytest.fixture(scope="module")
def samples():
    """Phases on N x N cells, and u on cells finer by 3 at their centres."""
    g = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 42)(GRID, 0, range(60))
    p = (g >= 0).astype(float)
    fine = np.repeat(np.repeat(3 + 9 * p, 3, axis=1), 3, axis=2)
    return p, FiniteVolume(CellGrid(3 * N))(fine)[:, 1::3, 1::3]


@pytest.fixture(scope="module")
def flow(samples):
    p, u = samples
    return CalibratedFlow(GRID, PHASES).fitted(p[:40], u[:40])


def error(flow, p, u):
    return np.sqrt(np.mean([(flow(one) - known) ** 2 for one, known in zip(p, u, strict=True)]))


def test_without_factors_it_is_the_finite_volume_solver(samples):
    p, _ = samples
    expected = FiniteVolume(GRID, rtol=1e-12)(3 + 9 * p[:2], 2.0)
    found = [CalibratedFlow(GRID, PHASES, source=2.0)(one) for one in p[:2]]
    assert np.allclose(found, expected, rtol=0, atol=1e-11)


def test_fitted_faces_come_near_the_finer_solver_on_other_samples(flow, samples):
    p, u = (values[40:] for values in samples)
    # 0.4 here, 0.2 at 43 cells: coarser cells have more corners
    assert error(flow, p, u) < 0.5 * error(CalibratedFlow(GRID, PHASES), p, u)


def test_the_fit_keeps_factors_of_one_phase_near_one(flow):
    assert flow.table[[0, -1]] == pytest.approx(1, abs=0.05)


def test_mirrored_phases_give_mirrored_flow(flow, samples):
    p = samples[0][50]
    for turned in (np.flipud, np.fliplr, np.transpose):
        assert np.allclose(flow(turned(p)), turned(flow(p)), rtol=0, atol=1e-13)


def test_tangent_and_adjoint_are_transposes_and_derivatives(flow):
    rng = np.random.default_rng(0)
    p, dp, v = rng.uniform(0, 1, (N, N)), *rng.standard_normal((2, N, N))
    at = flow.linearise(p)
    du = at.jvp(dp)
    assert np.sum(du * v) == pytest.approx(np.sum(dp * at.vjp(v)), rel=1e-11)
    small = 1e-2 * dp
    remainders = [
        np.linalg.norm(flow(p + h * small) - at.u - h * at.jvp(small)) for h in (1.0, 0.5)
    ]
    assert np.log2(remainders[0] / remainders[1]) == pytest.approx(2, abs=0.1)


def test_derivatives_with_respect_to_factors(flow, samples):
    p = samples[0][3]
    classes = np.arange(64)
    columns = flow.linearise(p).with_respect_to_factors(classes)
    index, h = 63, 1e-6  # all six cells in the upper phase
    changed = [flow.table.copy() for _ in range(2)]
    for table, sign in zip(changed, (1, -1), strict=True):
        table[index] += sign * h
    up, down = (CalibratedFlow(GRID, PHASES, factors=table)(p) for table in changed)
    assert np.allclose(columns[index].reshape(N, N), (up - down) / (2 * h), rtol=1e-5, atol=1e-10)


def test_another_shape_is_refused(flow):
    with pytest.raises(ValueError, match=r"expected p of shape \(21, 21\), got \(20, 21\)"):
        flow(np.ones((20, 21)))


def test_a_matrix_that_is_not_definite_is_refused():
    with pytest.raises(ArithmeticError, match="not positive definite"):
        CalibratedFlow(GRID, PHASES)(np.full((N, N), -1.0))
