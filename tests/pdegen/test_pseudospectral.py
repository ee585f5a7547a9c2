"""Compiled steps of eight samples against steps by whole arrays, and N against its definition."""

import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.numerics.etdrk import Step
from pdegen.numerics.lane_march import LaneMarch
from pdegen.numerics.pseudospectral import Pseudospectral, Rates
from pdegen.numerics.semilinear import Discrete
from pdegen.numerics.torus import Torus
from pdegen.numerics.transforms import has_vectors

RNG = np.random.default_rng(5)


def torus(*points, degree=2):
    lengths = (1.0, 1.7)
    grids = zip(points, lengths, strict=False)
    return Torus(tuple(PeriodicGrid(n, length=length) for n, length in grids), degree)


def modes(on, rows, components):
    """Smooth random functions without symmetry."""
    v = on.to_modes(RNG.standard_normal((rows, components, *on.points)))
    return v / (1 + abs(on.laplacian) / 300)


def burgers(on, source=None):
    return Pseudospectral(
        on, [[(0, None)]], [[(1.0, (0, 0))]], [[(0, -0.5 * on.d[0])]], source=source
    )


def reaction(on):
    """Two components, with a shared cubic product, coupling, a source and several monomials."""
    source = np.zeros((2, *on.shape), complex)
    source[0, *[0] * len(on.points)] = 0.3
    return Pseudospectral(
        on,
        [[(0, None)], [(1, None)], [(1, on.d[-1]), (0, 0.5 * on.d[0])]],
        [[(1.0, (0, 1, 1))], [(0.7, (2, 2)), (-0.2, (0, 0, 0)), (0.1, (1, 2))]],
        [[(0, np.array(-1.0 + 0j)), (1, None)], [(1, None)]],
        [(0, 1, 0.4), (1, 0, -0.6)],
        source,
    )


CASES = {
    "circle, real L": lambda: (burgers(on := torus(48)), (0.01 * on.laplacian)[None]),
    "circle, complex L": lambda: (
        burgers(on := torus(60)), (0.01 * on.laplacian - 1e-4 * on.d[0] ** 3)[None],
    ),
    "circle, system": lambda: (
        reaction(on := torus(40, degree=3)), np.stack([0.02 * on.laplacian, 0.01 * on.laplacian]),
    ),
    "square, real L": lambda: (
        burgers(on := torus(24, 20)), (0.02 * on.laplacian)[None],
    ),
    "square, complex L": lambda: (
        reaction(on := torus(20, 32, degree=3)),
        np.stack([0.02 * on.laplacian - on.d[1], 0.01 * on.laplacian + 0.5 * on.d[0]]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("word", CASES)
def test_compiled_steps_are_those_of_whole_arrays(word):
    nonlinear, linear = CASES[word]()
    assert has_vectors(nonlinear.torus.points)
    v = modes(nonlinear.torus, 11, len(linear))
    step = Step.of(linear, 2e-3)
    expected = v
    for _ in range(70):  # more than the steps between two tests for a blow-up
        expected = step(expected, nonlinear)
    after, _ = LaneMarch(nonlinear, step, 2e-3)(v, 70)
    assert abs(expected - v).max() > 1e-2 * abs(v).max()
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12 * abs(v).max())
    alone, _ = LaneMarch(nonlinear, step, 2e-3)(v[9:10], 70)
    np.testing.assert_array_equal(alone[0], after[9])


def test_coefficients_of_each_sample_are_those_of_the_sample_alone():
    on, rows = torus(24, 20), 11
    source = 0.1 * on.to_modes(RNG.standard_normal((rows, 1, *on.points)))
    nu = 0.01 + 0.01 * RNG.random(rows)
    linear = nu[:, None, None, None] * on.laplacian
    linear_rate, quadratic = RNG.standard_normal((2, rows, 2, 1, *on.shape))
    rates = Rates(linear_rate + 0j, quadratic)
    v = modes(on, rows, 1)
    march = LaneMarch(burgers(on, source), Step.of_each(linear, 1e-3), 1e-3, rates)
    after, integrals = march(v, 8)
    for k in (0, 7, 8, 10):
        alone = LaneMarch(
            burgers(on, source[k]), Step.of(linear[k], 1e-3), 1e-3,
            Rates(linear_rate[k] + 0j, quadratic[k]),
        )  # fmt: skip
        expected, integral = alone(v[k : k + 1], 8)
        np.testing.assert_array_equal(after[k], expected[0])
        np.testing.assert_array_equal(integrals[k], integral[0])


def test_integrals_are_those_of_simpsons_rule():
    on = torus(48)
    nonlinear, linear, v = burgers(on), (0.01 * on.laplacian)[None], modes(on, 3, 1)
    g = RNG.standard_normal((2, 1, *on.shape)) + 1j * RNG.standard_normal((2, 1, *on.shape))
    rates, step, h = Rates(g, RNG.random((2, 1, *on.shape))), Step.of(linear, 2e-3), 2e-3
    values = [rates(v)]
    state = v
    for _ in range(130):
        state = step(state, nonlinear)
        values.append(rates(state))
    weights = np.array([1, *[4, 2] * 64, 4, 1]) * (h / 3)
    expected = np.einsum("t,tbw->bw", weights, np.array(values))
    _, integrals = LaneMarch(nonlinear, step, h, rates)(v, 130)
    np.testing.assert_allclose(integrals, expected, rtol=1e-11)


def test_a_sample_that_blows_up_leaves_the_others():
    on = torus(48)
    nonlinear, step = burgers(on), Step.of((0.01 * on.laplacian)[None], 0.01)
    v = modes(on, 3, 1)
    wild = v.copy()
    wild[1] *= 1e4
    after, _ = LaneMarch(nonlinear, step, 0.01)(wild, 200)
    calm, _ = LaneMarch(nonlinear, step, 0.01)(v, 200)
    assert np.isfinite(after[[0, 2]]).all()
    assert not np.isfinite(after[1]).all()
    np.testing.assert_array_equal(after[[0, 2]], calm[[0, 2]])


@pytest.mark.parametrize("points", [(28,), (24, 22)])
def test_points_with_other_factors_are_stepped_by_whole_arrays(points):
    on = torus(*points)
    nonlinear, linear, v = burgers(on), (0.01 * on.laplacian)[None], modes(on, 3, 1)
    after, _ = Discrete(on, linear, nonlinear).advanced(v, 2e-3, 5)
    step = Step.of(linear, 2e-3)
    for _ in range(5):
        v = step(v, nonlinear)
    np.testing.assert_array_equal(after, v)
