"""Compiled steps of eight samples against steps by whole arrays, and N against its definition."""

import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.numerics import lane_steps
from pdegen.numerics.lane_steps import LaneMarch, march
from pdegen.numerics.semilinear import Discrete
from pdegen.numerics.spectral import Pseudospectral, Rates, Step, Torus
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


@pytest.mark.parametrize("points", [(28,), (24, 22), (22, 24)])
def test_points_with_other_factors_are_stepped_by_whole_arrays(points):
    on = torus(*points)
    nonlinear, linear, v = burgers(on), (0.01 * on.laplacian)[None], modes(on, 3, 1)
    after, _ = Discrete(on, linear, nonlinear).advanced(v, 2e-3, 5)
    step = Step.of(linear, 2e-3)
    for _ in range(5):
        v = step(v, nonlinear)
    np.testing.assert_array_equal(after, v)


def test_many_factors_and_single_fields_are_those_of_whole_arrays():
    """More products than fields, monomials of one to five factors, and a real source."""
    on = torus(20, 12, degree=5)
    source = np.zeros((2, *on.shape))
    source[1, 0, 0] = 0.3
    nonlinear = Pseudospectral(
        on,
        [[(0, None)], [(1, None)]],
        [
            [(0.5, (1,)), (0.2, (0, 1, 0, 1)), (-0.1, (1, 1, 1, 0, 0))],
            [(1.0, (0, 0, 0, 1, 1)), (-0.4, (0,))],
            [(0.3, (0, 1))],
            [(1.0, (1, 1))],
        ],
        [[(0, None)], [(1, on.d[0])], [(0, on.d[1]), (1, None)], [(1, on.d[0] * on.d[1])]],
        source=source,
    )
    linear, v = np.stack([0.02 * on.laplacian] * 2), modes(on, 9, 2)
    expected, _ = by_whole_arrays(nonlinear, Step.of(linear, 1e-3), v, 5)
    after, _ = LaneMarch(nonlinear, Step.of(linear, 1e-3), 1e-3)(v, 5)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12 * abs(v).max())


def by_whole_arrays(nonlinear, step, v, count):
    before = v
    for _ in range(count):
        v = step(v, nonlinear)
    assert abs(v - before).max() > 1e-4 * abs(before).max()
    return v, None


def test_complex_coefficients_of_each_sample_are_those_of_whole_arrays():
    """Some coefficients differ by sample, the source and the rates do not."""
    on, rows = torus(20, 12), 8
    source = 0.1 * on.to_modes(RNG.standard_normal((1, *on.points)))
    speed = RNG.random((rows, 1, 1, 1))
    linear = np.broadcast_to(0.01 * on.laplacian - speed * on.d[0], (rows, 1, *on.shape))
    step, v, nonlinear = Step.of_each(linear, 1e-3), modes(on, rows, 1), burgers(on, source)
    g = RNG.standard_normal((2, 1, *on.shape)) + 1j * RNG.standard_normal((2, 1, *on.shape))
    rates = Rates(g, RNG.random((2, 1, *on.shape)))
    values, expected = [rates(v)], v
    for _ in range(2):
        expected = step(expected, nonlinear)
        values.append(rates(expected))
    after, integrals = LaneMarch(nonlinear, step, 1e-3, rates)(v, 2)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12 * abs(v).max())
    simpson = (values[0] + 4 * values[1] + values[2]) * (1e-3 / 3)
    np.testing.assert_allclose(integrals, simpson, rtol=1e-10)


def test_a_block_whose_samples_have_all_blown_up_is_left(monkeypatch):
    on, marched = torus(48), []
    monkeypatch.setattr(lane_steps, "march", lambda *args: marched.append(args[-2]) or march(*args))
    step = Step.of((0.01 * on.laplacian)[None], 0.01)
    after, _ = LaneMarch(burgers(on), step, 0.01)(1e4 * modes(on, 9, 1), 64 * 5)
    assert not np.isfinite(after).any(axis=(1, 2)).all()
    assert marched == [64, 64]


def test_numbers_of_other_types_and_sizes_are_not_read_as_float64():
    on = torus(24)
    linear, v = (0.01 * on.laplacian)[None], modes(on, 9, 1).astype(np.complex64)
    expected, _ = LaneMarch(burgers(on), Step.of(linear, 2e-3), 2e-3)(v.astype(complex), 4)
    rates = Rates(np.ones((1, 1, *on.shape), np.float32), np.ones((1, 1, *on.shape), int))
    after, _ = LaneMarch(burgers(on), Step.of(linear, 2e-3), 2e-3, rates)(v, 4)
    np.testing.assert_array_equal(after, expected)
    single = linear.astype(np.float32)
    after, _ = LaneMarch(burgers(on), Step.of(single, 2e-3), 2e-3)(v, 4)
    np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-7)
    one, _ = LaneMarch(burgers(on), Step.of_each(linear[None], 2e-3), 2e-3)(v, 4)
    np.testing.assert_array_equal(one, expected)
    with pytest.raises(ValueError, match="coefficients of 3 samples do not fit 9"):
        LaneMarch(burgers(on), Step.of_each([linear] * 3, 2e-3), 2e-3)(v, 4)


def test_a_linear_part_that_is_repeated_for_all_components_steps_all_of_them():
    on = torus(24)
    nonlinear = Pseudospectral(
        on, [[(0, None)]], [[(1.0, (0, 0))]], [[(1, None)]], [(0, 1, -1.0)]
    )  # fmt: skip
    linear, v = (0.01 * on.laplacian)[None], modes(on, 3, 2)
    after, _ = Discrete(on, linear, nonlinear).advanced(v, 2e-3, 4)
    expected, _ = Discrete(on, np.repeat(linear, 2, axis=0), nonlinear).advanced(v, 2e-3, 4)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12 * abs(v).max())


@pytest.mark.parametrize(
    ("fields", "products", "terms", "coupling"),
    [
        ([[(0, None)]], [[(1.0, (0, 1))]], [[(0, None)]], []),
        ([[(0, None)]], [[(1.0, (0, -1))]], [[(0, None)]], []),
        ([[]], [], [], []),
        ([[(0, None)]], [[]], [[(0, None)]], []),
        ([[(0, None)]], [[(1.0, (0, 0))]], [], []),
        ([[(1, None)]], [[(1.0, (0, 0))]], [[(0, None)]], []),
        ([[(0, None)]], [[(1.0, (0, 0))]], [[(-1, None)]], []),
        ([], [], [], [(0, 1, 1.0)]),
    ],
)
def test_places_outside_an_array_are_refused(fields, products, terms, coupling):
    on = torus(24)
    with pytest.raises(ValueError, match=r"expected fields|act on components|one part or more"):
        LaneMarch(
            Pseudospectral(on, fields, products, terms, coupling),
            Step.of((0.01 * on.laplacian)[None], 2e-3), 2e-3,
        )  # fmt: skip
