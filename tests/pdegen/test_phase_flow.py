"""Two phases on coarse cells, solved by a factorisation."""

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import PhaseFlow
from pdegen.sampling.gaussian import SquareGaussianField

N, PHASES = 21, (3.0, 12.0)
GRID = CellGrid(N)


@pytest.fixture(scope="module")
def samples():
    """Phases on N x N cells."""
    return (SquareGaussianField("neumann", 3.0, 3.0, 2.0, 42)(GRID, 0, range(3)) >= 0).astype(float)


def test_it_is_the_finite_volume_solver(samples):
    expected = FiniteVolume(GRID, rtol=1e-12)(3 + 9 * samples, 2.0)
    found = [PhaseFlow(GRID, PHASES, source=2.0)(one) for one in samples]
    assert np.allclose(found, expected, rtol=0, atol=1e-11)


def test_mirrored_phases_give_mirrored_flow(samples):
    p, flow = samples[0], PhaseFlow(GRID, PHASES)
    for turned in (np.flipud, np.fliplr, np.transpose):
        assert np.allclose(flow(turned(p)), turned(flow(p)), rtol=0, atol=1e-13)


def test_tangent_and_adjoint_are_transposes_and_derivatives():
    rng, flow = np.random.default_rng(0), PhaseFlow(GRID, PHASES)
    p, dp, v = rng.uniform(0, 1, (N, N)), *rng.standard_normal((2, N, N))
    at = flow.linearise(p)
    du = at.jvp(dp)
    assert np.sum(du * v) == pytest.approx(np.sum(dp * at.vjp(v)), rel=1e-11)
    small = 1e-2 * dp
    remainders = [
        np.linalg.norm(flow(p + h * small) - at.u - h * at.jvp(small)) for h in (1.0, 0.5)
    ]
    assert np.log2(remainders[0] / remainders[1]) == pytest.approx(2, abs=0.1)


def test_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"expected p of shape \(21, 21\), got \(20, 21\)"):
        PhaseFlow(GRID, PHASES)(np.ones((20, 21)))


def test_a_matrix_that_is_not_definite_is_refused():
    with pytest.raises(ArithmeticError, match="not positive definite"):
        PhaseFlow(GRID, PHASES)(np.full((N, N), -1.0))
