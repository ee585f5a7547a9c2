import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.numerics.device import constant
from pdegen.numerics.errors import SolveError
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.spectral import Torus
from pdegen.sampling.gaussian import PeriodicGaussianField

TORUS = Torus((PeriodicGrid(128),))


def burgers(viscosity=0.02, dt=0.01, tolerance=1e-6, torus=TORUS, **options):
    def terms(torus):
        def convection(v):
            return constant(-0.5 * torus.d[0], v) * torus.to_modes(torus.to_points(v) ** 2)

        return viscosity * torus.laplacian[None], convection

    return Semilinear(torus, terms, dt, tolerance, **options)


def waves(count, torus=TORUS):
    x = torus.grids[0].x
    rng = np.random.default_rng(0)
    amplitude, phase = rng.uniform(0.2, 1.0, (count, 1)), rng.uniform(0, 1, (count, 1))
    return torus.to_modes(amplitude * np.sin(2 * np.pi * (x + phase)))[:, None]


def relative(torus, v, reference):
    axes = tuple(range(2, v.ndim))
    size = np.sqrt(np.sum(torus.weights * np.abs(reference) ** 2, axis=axes))
    return np.sqrt(np.sum(torus.weights * np.abs(v - reference) ** 2, axis=axes)) / size


def test_without_a_nonlinear_part_the_solution_is_exact():
    rate = 0.1 * TORUS.laplacian[None] - 0.7 * TORUS.d[0]
    solver = Semilinear(TORUS, lambda _: (rate, None), dt=1.0, tolerance=1e-6)
    found = solver.solve(waves(3), [0.0, 0.5, 3.0])
    for place, t in enumerate([0.0, 0.5, 3.0]):
        np.testing.assert_allclose(found.v[:, place], np.exp(rate * t) * waves(3), rtol=1e-15)
    assert np.isinf(found.step).all()
    # the rounding of the initial value, of which a seventh is left at the time 0.5
    assert found.error[:, :2].max() < 8 * np.finfo(float).eps
    assert found.error.max() < 1e-10  # of the rounding of the mean, beside what has decayed


def test_the_step_is_halved_where_a_sample_needs_it_alone():
    v0, times = waves(8), [0.2, 0.4]
    found = burgers(dt=0.1, tolerance=3e-5).solve(v0, times)
    assert set(found.step) > {0.1}
    assert found.step.min() < 0.1
    assert found.error.max() <= 3e-5
    for row in range(8):
        alone = burgers(dt=0.1, tolerance=3e-5).solve(v0[row : row + 1], times)
        assert np.array_equal(alone.v[0], found.v[row])
        assert alone.step[0] == found.step[row]
        assert np.array_equal(alone.error[0], found.error[row])


def test_a_halved_step_has_the_estimate_of_a_run_with_half_the_dt():
    v0, times = waves(8), [0.4, 0.8]
    found = burgers(dt=0.1, tolerance=3e-5).solve(v0, times)
    halved = found.step == 0.05
    assert halved.any()
    expected = burgers(dt=0.05, tolerance=1.0).solve(v0[halved], times)
    np.testing.assert_array_equal(found.v[halved], expected.v)
    np.testing.assert_array_equal(found.error[halved], expected.error)


def test_a_step_that_blows_up_is_halved_too():
    v0 = 30 * waves(2)
    found = burgers(viscosity=0.5, dt=0.5, tolerance=1e-4).solve(v0, [0.5])
    assert np.isfinite(found.v).all()
    assert found.error.max() <= 1e-4


def test_a_sample_that_stays_beyond_the_tolerance_is_named():
    v0 = waves(5)
    v0[3] *= 40
    with pytest.raises(SolveError, match=r"exceeds 1e-06 .* space .*: use a finer grid") as caught:
        burgers(viscosity=0.1, dt=0.005).solve(v0, [0.05])
    assert caught.value.row == 3


def test_the_tolerance_may_be_asked_at_some_times_alone():
    v0 = 2 * waves(2)
    solver = burgers(viscosity=5e-3, dt=0.01, tolerance=1e-3)
    found = solver.solve(v0, [0.01, 0.2], needed=[True, False])
    assert found.error[:, 0].max() <= 1e-3 < found.error[:, 1].max()


@pytest.mark.parametrize("times", [[], [0.2, 0.1], [-0.1], [np.inf]])
def test_times_that_cannot_be_are_refused(times):
    with pytest.raises(ValueError, match="times must be >= 0 and must not decrease"):
        burgers().solve(waves(1), times)


def rough(torus, count):
    field = PeriodicGaussianField(sigma=20.0, tau=5.0, alpha=2.0, modes=8)
    return torus.to_modes(field(torus.grids[0], 0, range(count)))[:, None]


@pytest.mark.parametrize("time", [0.01, 0.3, 10.0])
def test_the_error_in_space_is_what_was_lost_on_the_way(time):
    """Of shocks that diffusion has smoothed again, and of many modes soon after the start."""
    found, exact = (
        burgers(2e-3, dt, 1e9, torus).solve(rough(torus, 6), [time])
        for torus, dt in (
            (Torus((PeriodicGrid(64),)), min(time, 0.01)),
            (Torus((PeriodicGrid(512),)), min(time, 0.01) / 2),
        )
    )
    fine = Torus((PeriodicGrid(512),))
    true = relative(fine, fine.padded(found.v), exact.v)[:, 0]
    ratio = found.error[:, 0] / true
    assert true.min() > 1e-9
    assert np.mean((ratio > 1 / 3) & (ratio < 3)) >= 0.8, ratio


def test_the_error_in_space_is_that_of_all_modes_at_the_start():
    """v₀ may lack some of them."""
    torus = Torus((PeriodicGrid(32),))
    fine = torus.finer.to_modes(np.exp(3 * np.sin(2 * np.pi * torus.finer.grids[0].x)))[None, None]
    v0 = torus.to_modes(np.exp(3 * np.sin(2 * np.pi * torus.grids[0].x)))[None, None]
    off = relative(torus.finer, torus.finer.padded(v0)[:, None], fine[:, None])
    heat = Semilinear(torus, lambda torus: (0 * torus.laplacian[None], None), 1.0, 1.0)
    for solver in (burgers(1e-9, 1e-6, 1.0, torus), heat):
        found = solver.solve(v0, [0.0, 1e-6], finer=fine)
        np.testing.assert_allclose(found.error, np.repeat(off, 2, axis=1), rtol=0.1)
        assert solver.solve(v0, [1e-6]).error < 0.2 * off


@pytest.mark.parametrize("n", [8, 14, 16])
def test_the_error_in_space_is_seen_where_all_modes_are_odd(n):
    def terms(torus):
        return 0 * torus.laplacian[None] + 1, lambda v: -torus.to_modes(torus.to_points(v) ** 3)

    torus = Torus((PeriodicGrid(n),), degree=3)
    with pytest.raises(SolveError, match=r"space 0\.\d+\): use a finer grid"):
        Semilinear(torus, terms, dt=0.02, tolerance=1e-6).solve(waves(2, torus), [1.0])


def test_a_march_ends_where_no_sample_is_finite():
    calls = []

    def terms(torus):
        def square(v):
            calls.append(len(v))
            return torus.to_modes(torus.to_points(v) ** 2)

        return 0 * torus.laplacian[None], square

    solver = Semilinear(TORUS, terms, dt=1e-2, tolerance=1e-3)
    with pytest.raises(SolveError, match=r"not finite with .* the solution itself blows up"):
        solver.solve(1 + waves(2), [0.5, 1000.0])
    assert len(calls) < 1e5  # four a step, and a hundred steps to t = 1


def test_of_many_lengths_of_steps_few_are_kept():
    solver = burgers(tolerance=1.0)
    solver.solve(waves(1), list(np.cumsum(np.linspace(1e-4, 2e-4, 200))))
    assert len(solver.discrete._steps) <= 64


def test_another_thread_may_clear_the_cached_steps():
    class Cleared(dict):
        def __setitem__(self, h, step):
            super().__setitem__(h, step)
            self.clear()

    solver = burgers(tolerance=1.0)
    expected = solver.solve(waves(1), [0.1]).v
    object.__setattr__(solver.discrete, "_steps", Cleared())
    np.testing.assert_array_equal(solver.solve(waves(1), [0.1]).v, expected)


def test_the_error_in_time_is_that_of_the_order_that_is_seen():
    """Waves of Korteweg and de Vries that turn far within a step."""
    torus = Torus((PeriodicGrid(64, length=2.0),))

    def terms(torus):
        def convection(v):
            return constant(0.5 * torus.d[0], v) * torus.to_modes(torus.to_points(v) ** 2)

        even = 1.7e-4 * torus.laplacian
        return (even - 1.36 * torus.d[0] - 3.2e-3 * torus.d[0] ** 3)[None], convection

    field = PeriodicGaussianField(sigma=0.86, tau=4.6, alpha=2.9, modes=5)
    v0 = torus.to_modes(field(PeriodicGrid(64), 3, range(4)))[:, None]
    found = Semilinear(torus, terms, 1.0, 1e-3).solve(v0, [8.4, 16.7])
    exact = Semilinear(torus, terms, 0.01, 1e-3).solve(v0, [8.4, 16.7])
    true = relative(torus, found.v, exact.v)
    assert true.max() < 1e-3
    assert (found.error > true / 2).all()
