"""Gradients of the Darcy solver: Taylor's remainder and finite differences."""

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.numerics.errors import SolveError
from pdegen.sampling.gaussian import SquareGaussianField

pytestmark = pytest.mark.usefixtures("shapes")

N, BATCH = 20, 3
G = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 40)(CellGrid(N), 0, range(BATCH))
COEFFICIENTS = {
    "two-phase": np.where(G >= 0, 12.0, 3.0),
    "smooth": 3 + 9 / (1 + np.exp(-3 * G / G.std())),
    "contrast 1000": np.where(G >= 0, 1000.0, 1.0),
}
CASES = [("two-phase", "harmonic"), ("smooth", "arithmetic"), ("contrast 1000", "harmonic")]
DA, V = np.random.default_rng(0).standard_normal((2, BATCH, N, N))
F = 1 + V**2


def solver(faces="harmonic", rtol=1e-13):
    return FiniteVolume(CellGrid(N), faces, rtol=rtol)


def linearised(kind, faces="harmonic", f=1.0):
    return solver(faces).linearise(COEFFICIENTS[kind], f)


@pytest.mark.parametrize(("kind", "faces"), CASES)
def test_what_is_left_of_taylors_formula_is_of_order_2(kind, faces):
    a, fine = COEFFICIENTS[kind], solver(faces)
    da = DA * a  # relative, so that no cell is near 0
    slope = (linearised(kind, faces, F).vjp(V) * da).sum()
    steps = np.array([4e-3, 2e-3, 1e-3, 5e-4])
    start = (V * fine(a, F)).sum()
    left = [abs((V * fine(a + t * da, F)).sum() - start - t * slope) for t in steps]
    assert np.log2(np.divide(left[:-1], left[1:])) == pytest.approx(2, abs=0.1)


def test_gradients_are_those_of_central_differences():
    a, fine, h = COEFFICIENTS["smooth"], solver(), 1e-4
    gradient = linearised("smooth", f=F).vjp(V)
    for cell in [(0, 0, 0), (1, 0, 7), (2, N - 1, N - 1), (0, 9, N - 1), (1, 10, 11)]:
        e = np.zeros_like(a)
        e[cell] = h
        # the difference has an error of h², and rounding over h
        slope = (V * (fine(a + e, F) - fine(a - e, F))).sum() / (2 * h)
        assert gradient[cell] == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_a_batch_is_its_samples():
    at = linearised("two-phase")
    gradient = at.vjp(V)
    for row in range(BATCH):
        alone = solver().linearise(COEFFICIENTS["two-phase"][row : row + 1])
        np.testing.assert_array_equal(alone.u[0], at.u[row])
        np.testing.assert_array_equal(alone.vjp(V[row : row + 1])[0], gradient[row])


def test_one_solve_serves_a_gradient():
    solves, at = [], linearised("two-phase")
    inverse = at.inverse
    object.__setattr__(at, "inverse", lambda b: solves.append(b.shape) or inverse(b))
    at.vjp(V)
    assert solves == [V.shape]


def test_no_misfit_has_no_gradient():
    assert abs(linearised("two-phase").vjp(0 * V)).max() == 0


# what is refused


def test_a_direction_of_another_shape_is_refused(unchecked):
    with pytest.raises(ValueError, match=r"expected v of shape \(3, 20, 20\), got \(20, 20\)"):
        linearised("smooth").vjp(V[0])


def test_a_bad_coefficient_names_its_sample():
    a = COEFFICIENTS["smooth"].copy()
    a[1, 2, 3] = 0
    with pytest.raises(SolveError, match="sample 1 of the batch: the coefficient must be positive"):
        solver().linearise(a)
