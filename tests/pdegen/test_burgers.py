import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers import solver
from pdegen.equations.burgers.solver import ETDRK4, ColeHopf
from pdegen.numerics.errors import SolveError
from pdegen.sampling.gaussian import PeriodicGaussianField
from tests.oracles.cole_hopf import cole_hopf

pytestmark = pytest.mark.usefixtures("shapes")

VISCOSITY = 0.1 / (2 * np.pi)  # of the benchmark
TIME = 1 / (2 * np.pi)

GRID = PeriodicGrid(512)
SMOOTH = PeriodicGaussianField(sigma=625.0, tau=5.0, alpha=4.0, modes=63)  # std 0.21
ROUGH = PeriodicGaussianField(sigma=25.0, tau=5.0, alpha=2.0, modes=255)  # the benchmark's law

needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="long double is no longer than double here"
)


def relative(u, exact):
    """Relative L² error of every row."""
    return np.linalg.norm(u - exact, axis=-1) / np.linalg.norm(exact, axis=-1)


def smooth(samples=4, grid=GRID):
    return 2 * SMOOTH(grid, 0, range(samples))


def rough(samples=4, grid=GRID):
    return ROUGH(grid, 0, range(samples))


def cosine_solution(grid, t, a=1.25, periods=2, drift=0.0):
    """The solution of φ = a + cos kx, carried by a mean flow."""
    k = 2 * np.pi * periods
    decay = np.exp(-VISCOSITY * k**2 * t)
    phase = k * (grid.x - drift * t)
    return drift + 2 * VISCOSITY * k * decay * np.sin(phase) / (a + decay * np.cos(phase))


each_solver = pytest.mark.parametrize(
    "solver",  # each is accurate to at least 1e-11 on smooth data
    [ColeHopf(GRID, VISCOSITY), ETDRK4(GRID, VISCOSITY, dt=TIME / 400)],
    ids=["cole-hopf", "etdrk4"],
)
each_quick_solver = pytest.mark.parametrize(
    "solver",  # for what does not depend on accuracy
    [ColeHopf(GRID, VISCOSITY), ETDRK4(GRID, VISCOSITY, dt=TIME / 40, tolerance=1.0)],
    ids=["cole-hopf", "etdrk4"],
)


# exact solutions


@pytest.mark.parametrize("drift", [0.0, 1.0, -0.37, 20.0])
@pytest.mark.parametrize(("periods", "t"), [(1, 0.01), (2, TIME), (3, 1.0)])
def test_cole_hopf_meets_the_exact_solution(periods, t, drift):
    u0, exact = (cosine_solution(GRID, s, periods=periods, drift=drift) for s in (0.0, t))
    assert relative(ColeHopf(GRID, VISCOSITY)(u0, t), exact) < 1e-12


@needs_long_double
@pytest.mark.parametrize("viscosity", [0.1, VISCOSITY, 5e-3])
def test_cole_hopf_equals_its_formula_in_extended_precision(viscosity):
    u0 = rough() - 0.5
    exact = cole_hopf(u0, viscosity, 1.0).astype(float)
    # at 5e-3 φ spans exp(50), which costs four digits
    assert relative(ColeHopf(GRID, viscosity)(u0, 1.0), exact).max() < 1e-11


# two ways to one answer


@pytest.mark.parametrize("viscosity", [VISCOSITY, 0.05])
@pytest.mark.parametrize("drift", [0.0, 0.5])
def test_the_two_solvers_agree(viscosity, drift):
    u0 = smooth() + drift
    exact = ColeHopf(GRID, viscosity)(u0, TIME)
    u = ETDRK4(GRID, viscosity, dt=TIME / 400)(u0, TIME)
    assert relative(u, exact).max() < 1e-9


def test_etdrk4_is_of_order_four_in_the_step():
    u0 = smooth()
    exact = ColeHopf(GRID, VISCOSITY)(u0, TIME)
    errors = [
        np.linalg.norm(ETDRK4(GRID, VISCOSITY, dt=TIME / steps)(u0, TIME) - exact)
        for steps in (50, 100, 200)
    ]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders == pytest.approx([4, 4], abs=0.15)  # the next term is a few per cent of it


# what the equation conserves and bounds


@each_solver
@pytest.mark.parametrize("mean", [0.0, 0.75])
def test_the_mean_is_conserved(solver, mean):
    u0 = smooth() + mean
    u = solver(u0, [0.3 * TIME, TIME])
    assert np.abs(u.mean(axis=-1) - u0.mean(axis=-1)[:, None]).max() < 1e-14


# shapes and times


@each_quick_solver
def test_time_zero_returns_the_initial_values_which_are_left_alone(solver):
    u0 = rough(2)
    before = u0.copy()
    np.testing.assert_array_equal(solver(u0, 0.0), before)
    np.testing.assert_array_equal(solver.solve(u0, 0.0).error, 0)
    solver.solve(u0, TIME)
    np.testing.assert_array_equal(u0, before)


@each_solver
def test_a_list_of_times_is_each_of_them(solver):
    u0 = smooth(2)
    times = [0.0, 0.25 * TIME, 0.25 * TIME, TIME]
    u = solver(u0, times)
    assert u.shape == (2, 4, GRID.n)
    for i, t in enumerate(times):
        # ETDRK4 cuts another interval into equal steps: its error of order 4
        assert np.abs(u[:, i] - solver(u0, t)).max() < 1e-11


@each_quick_solver
def test_a_sample_is_the_same_bits_in_any_batch(solver):
    u0 = smooth(40)  # more than one block of ETDRK4
    u, error = solver.solve(u0, [TIME])
    for row in (0, 31, 32, 39):
        alone = solver.solve(u0[row : row + 1], [TIME])
        np.testing.assert_array_equal(alone.u[0], u[row])
        np.testing.assert_array_equal(alone.error[0], error[row])


# the error estimate


@needs_long_double
@pytest.mark.parametrize(
    ("viscosity", "t"),
    [(0.1, TIME), (VISCOSITY, TIME), (VISCOSITY, 1.0), (0.01, 1.0), (5e-3, 1.0), (3e-3, 1.0)],
)
def test_the_estimate_of_cole_hopf_bounds_its_error(viscosity, t):
    u0 = rough(8)
    solution = ColeHopf(GRID, viscosity, tolerance=1e-5).solve(u0, t)
    error = relative(solution.u[:, 0], cole_hopf(u0, viscosity, t)).astype(float)
    floor = 4 * np.finfo(float).eps  # the transforms' own round-off, whatever φ spans
    assert (error <= solution.error + floor).all()
    assert (solution.error <= 1e3 * np.maximum(error, floor)).all()


@pytest.mark.parametrize(
    ("viscosity", "steps"), [(0.05, 10), (0.05, 100), (VISCOSITY, 50), (VISCOSITY, 200)]
)
def test_the_estimate_of_etdrk4_bounds_its_error(viscosity, steps):
    u0 = smooth(4)
    solution = ETDRK4(GRID, viscosity, dt=TIME / steps).solve(u0, TIME)
    error = relative(solution.u[:, 0], ColeHopf(GRID, viscosity)(u0, TIME))
    floor = 1e-12  # what the reference and round-off in the steps leave
    # Richardson's estimate is right to leading order: a quarter more covers the rest here
    assert (error <= 1.25 * solution.error + floor).all()
    assert (solution.error <= 1e3 * np.maximum(error, floor)).all()


@pytest.mark.parametrize("n", [32, 64])
def test_the_estimate_of_etdrk4_sees_a_coarse_grid(n):
    coarse, fine = PeriodicGrid(n), PeriodicGrid(1024)
    few = PeriodicGaussianField(SMOOTH.sigma, SMOOTH.tau, SMOOTH.alpha, modes=9)
    u0 = 2 * few(fine, 0, range(6))
    exact = ColeHopf(fine, VISCOSITY)(u0, TIME)
    stride = fine.stride_to(coarse)
    solution = ETDRK4(coarse, VISCOSITY, TIME / 400, tolerance=1.0).solve(u0[:, ::stride], TIME)
    error = relative(solution.u[:, 0], exact[:, ::stride])
    assert error.max() > 1e-4  # it is coarse
    assert (error <= solution.error).all()
    assert (solution.error <= 1e3 * error).all()


@pytest.mark.parametrize("viscosity", [0.02, 0.04])
def test_the_estimate_of_cole_hopf_is_the_span_of_its_exponential(viscosity):
    """u₀ = sin 2πx has φ₀ = exp(cos 2πx/4πν), of the span exp(1/2πν), which is there at first."""
    u0 = np.sin(2 * np.pi * GRID.x)[None]
    (error,) = ColeHopf(GRID, viscosity).solve(u0, 1e-7).error
    expected = np.finfo(float).eps * np.exp(1 / (2 * np.pi * viscosity))
    assert error == pytest.approx(expected, rel=0.1)


# refusals


def test_cole_hopf_refuses_what_double_precision_cannot_carry():
    u0 = rough(3)
    u0[0] = 0
    for viscosity in (1e-3, 1e-4):  # φ underflows; its exponents overflow
        with pytest.raises(SolveError, match=r"sample 1 of the batch: .*etdrk4") as refusal:
            ColeHopf(GRID, viscosity)(u0, TIME)
        assert refusal.value.row == 1
        assert f"viscosity {viscosity:g}" in refusal.value.reason


def test_cole_hopf_refuses_above_its_tolerance():
    u0 = rough(1)
    error = ColeHopf(GRID, VISCOSITY).solve(u0, TIME).error[0]
    ColeHopf(GRID, VISCOSITY, tolerance=1.01 * error)(u0, TIME)
    with pytest.raises(SolveError, match=f"tolerance {0.99 * error:g}, 512 points"):
        ColeHopf(GRID, VISCOSITY, tolerance=0.99 * error)(u0, TIME)


def test_cole_hopf_refuses_above_its_tolerance_at_any_of_several_times():
    """Time 0 is without error, and comes first."""
    u0 = rough(3)
    u0[:2] *= 0.1
    error = ColeHopf(GRID, VISCOSITY).solve(u0, [0.0, TIME]).error
    assert error[2] > 2 * error[:2].max()
    strict = ColeHopf(GRID, VISCOSITY, tolerance=0.5 * float(error[2]))
    with pytest.raises(SolveError) as refusal:
        strict(u0, [0.0, TIME])
    assert refusal.value.row == 2


def test_cole_hopf_refuses_a_grid_that_does_not_resolve_it():
    def steep(grid):
        return 4 * np.sin(2 * np.pi * grid.x)  # φ spans exp(13) only

    coarse, fine = PeriodicGrid(32), PeriodicGrid(128)
    ColeHopf(fine, 0.05)(steep(fine), 0.002)
    with pytest.raises(SolveError, match="or a finer grid"):
        ColeHopf(coarse, 0.05)(steep(coarse), 0.002)


def test_etdrk4_refuses_an_unstable_step():
    u0 = rough(3)
    u0[:2] = 0
    with pytest.raises(SolveError, match=r"dt 0.5 is unstable: use a smaller dt") as refusal:
        ETDRK4(GRID, 1e-4, dt=0.5)(40 * u0, 20.0)
    assert refusal.value.row == 2


def test_etdrk4_refuses_what_it_does_not_resolve():
    u0 = rough(3)
    u0[0] = 0
    with pytest.raises(SolveError, match=r"not resolved: error .* exceeds 1e-05: use") as refusal:
        ETDRK4(PeriodicGrid(512), 5e-4, dt=0.002, tolerance=1e-5).solve(u0, 1.0)
    assert refusal.value.row == 1


@pytest.mark.parametrize("row", [0, 2])
@each_quick_solver
def test_a_value_that_is_no_number_is_refused_by_its_row(solver, row):
    u0 = smooth(3)
    u0[row, 5] = np.nan
    with pytest.raises(SolveError) as refusal:
        solver.solve(u0, TIME)
    assert refusal.value.row == row


@pytest.mark.parametrize("value", [0.0, -1e-3, np.nan, np.inf])
def test_an_impossible_viscosity_or_step_is_refused(value):
    with pytest.raises(ValueError, match=f"viscosity must be positive, got {value}"):
        ColeHopf(GRID, value)
    with pytest.raises(ValueError, match=f"viscosity must be positive, got {value}"):
        ETDRK4(GRID, value, dt=0.01)
    with pytest.raises(ValueError, match=f"dt must be positive, got {value}"):
        ETDRK4(GRID, 0.1, value)


@each_quick_solver
@pytest.mark.parametrize("t", [-0.1, [0.2, 0.1], np.nan, [0.1, np.inf]])
def test_impossible_times_are_refused(solver, t):
    with pytest.raises(ValueError, match="times must be >= 0 and must not decrease"):
        solver(smooth(1), t)


@each_quick_solver
@pytest.mark.parametrize("shape", [(), (511,), (512, 1)])
@pytest.mark.usefixtures("unchecked")
def test_values_of_another_grid_are_refused(solver, shape):
    with pytest.raises(ValueError, match=r"expected initial values of shape \(\*batch, 512\)"):
        solver(np.zeros(shape), TIME)


@pytest.mark.parametrize("solver", [ColeHopf, ETDRK4])
def test_a_circle_of_another_length_scales_the_solution(solver):
    """v(x, t) = u(x/L, t/L) solves the equation of viscosity L ν on the circle of length L."""
    more = {"dt": 0.005} if solver is ETDRK4 else {}
    unit = PeriodicGrid(128)
    u0 = np.sin(2 * np.pi * unit.x)
    u = solver(unit, 0.05, **more)(u0, t=0.5)
    v = solver(PeriodicGrid(128, length=2.0), 0.1, **more)(u0, t=1.0)
    assert v == pytest.approx(u, abs=1e-6)  # the error of ETDRK4's steps


def test_cole_hopf_has_the_viscosities_and_names_the_row_in_any_block(monkeypatch):
    u0, viscosity = rough(5), np.linspace(0.02, 0.06, 5)
    whole = ColeHopf(GRID, viscosity).solve(u0, [TIME, 1.0])
    monkeypatch.setattr(solver, "ARRAY_POINTS", 2 * GRID.n)  # blocks of two rows
    found = ColeHopf(GRID, viscosity).solve(u0, [TIME, 1.0])
    np.testing.assert_allclose(found.u, whole.u, atol=1e-12)
    np.testing.assert_allclose(found.error, whole.error, rtol=1e-6)
    viscosity[3] = 1e-4
    with pytest.raises(SolveError, match=r"sample 3 of the batch: .*viscosity 0\.0001") as refusal:
        ColeHopf(GRID, viscosity)(u0, TIME)
    assert refusal.value.row == 3
