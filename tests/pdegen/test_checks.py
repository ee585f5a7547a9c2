"""Stores that follow the law of their recipe pass; those that do not are found out."""

from collections import defaultdict
from copy import deepcopy

import numpy as np
import pytest
from scipy import stats

from pdegen.checks.check import SIGNIFICANCE, Bound, Check, Distinct, Statistic, StoreChecks
from pdegen.checks.gaussian import GaussianCheck, block_modes, periodic_modes, square_modes
from pdegen.checks.two_phase import TwoPhaseCheck
from pdegen.domains import CellGrid, PeriodicGrid
from pdegen.equations.burgers.problem import _Physics
from pdegen.equations.darcy.checks import DarcyClaims, ScaleCheck, darcy_checks, dissipation
from pdegen.recipe import load_recipe
from pdegen.sampling.coefficients import LogNormal, TwoPhase
from pdegen.sampling.gaussian import BlockGaussianField, PeriodicGaussianField, SquareGaussianField

CIRCLE = PeriodicGaussianField(25.0, 5.0, 2.0, modes=31)
SQUARE = SquareGaussianField("neumann", 3.0, 3.0, 2.0, modes=24)


def findings(law, values, size=50):
    """Findings of a law on values that come in blocks."""
    numbers = np.arange(len(next(iter(values.values()))))
    return law.check(
        (numbers[start : start + size], {k: v[start : start + size] for k, v in values.items()})
        for start in range(0, len(numbers), size)
    )


def on_circle(field, n, samples, seed=0):
    """Samples on a grid that may be coarser than the modes, as they are stored."""
    factor = -(-(2 * field.modes + 2) // n)
    return field(PeriodicGrid(factor * n), seed, range(samples))[:, ::factor].astype(np.float32)


def circle_check(field, n):
    variance = np.full(n, field.pointwise_variance)
    modes = periodic_modes(field, PeriodicGrid(n))
    return GaussianCheck("a", lambda a: a.astype(float), modes, variance, relative=True)


def on_square(field, n, samples, coefficient, seed=0):
    return coefficient(field(CellGrid(n), seed, range(samples))).astype(np.float32)


def log_normal_check(field, n):
    grid = CellGrid(n)
    variance, modes = field.pointwise_variance(grid), square_modes(field, grid)
    return GaussianCheck("a", lambda a: np.log(a.astype(float)), modes, variance, relative=False)


def two_phase_check(field, n):
    return TwoPhaseCheck("a", field, CellGrid(n), lambda v: v["a"] == 12.0)


# the coordinates in which modes are independent


@pytest.mark.parametrize("n", [8, 16, 62, 80])
def test_on_any_circle_the_modes_are_independent_with_the_stated_variances(n):
    x = np.arange(n) / n
    k = 2 * np.pi * np.arange(1, CIRCLE.modes + 1)
    angles, stds = np.outer(x, k), CIRCLE.mode_stds
    basis = np.hstack([np.cos(angles) * stds, np.sin(angles) * stds])
    modes = periodic_modes(CIRCLE, PeriodicGrid(n))
    transformed = modes.transform(basis.T.copy())
    assert transformed.T @ transformed == pytest.approx(np.diag(modes.variances), abs=1e-10)


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize("n", [5, 8, 12, 17])
def test_on_any_square_the_modes_are_independent_with_the_stated_variances(boundary, n):
    field = SquareGaussianField(boundary, 3.0, 3.0, 2.0, modes=12)
    one = field.basis(CellGrid(n))
    basis = np.einsum("ip,jq,pq->pqij", one, one, field.mode_stds).reshape(-1, n, n)
    modes = square_modes(field, CellGrid(n))
    transformed = modes.transform(basis)
    assert transformed.T @ transformed == pytest.approx(np.diag(modes.variances), abs=1e-10)


def test_pairs_of_cells_differ_as_their_correlation_says():
    law, n = two_phase_check(SQUARE, 12), 12
    one = SQUARE.basis(CellGrid(n))
    basis = np.einsum("ip,jq,pq->ijpq", one, one, SQUARE.mode_stds).reshape(n * n, -1)
    covariance = basis @ basis.T
    first, second = law._first, law._second
    variance = np.diag(covariance)
    correlation = covariance[first, second] / np.sqrt(variance[first] * variance[second])
    agree = (1 + 2 / np.pi * np.arcsin(correlation)) / 2
    assert law._probability == pytest.approx(1 - agree, abs=1e-12)
    assert set(second - first) == {1, 2, 4, n, 2 * n, 4 * n}  # cells apart along y and x


# p-values


def p_values(law, values, seeds):
    """The p-values of each statistic over stores of other seeds."""
    found = defaultdict(list)
    for seed in range(seeds):
        check = deepcopy(law)  # one that has seen nothing
        findings(StoreChecks((check,)), {"a": values(seed)})
        for one in check.statistics():
            found[one.name].append(one.p)
    return found


def assert_calibrated(found):
    """Uniform where the law is continuous, and nowhere smaller than that."""
    continuous = [p for name, p in found.items() if "energy of" in name and "small" not in name]
    for p in continuous:
        assert stats.kstest(p, "uniform").pvalue > 1e-5
    everything = np.array(list(found.values()))
    for level in (0.1, 0.01):
        assert (everything <= level).mean() <= 1.2 * level  # they are correlated
    assert (everything.min(axis=0) * len(everything) <= 0.01).mean() <= 0.04


def test_p_values_on_the_circle_are_calibrated_for_few_samples():
    law = circle_check(CIRCLE, 16)
    assert_calibrated(p_values(law, lambda seed: on_circle(CIRCLE, 16, 4, seed), 120))


@pytest.mark.parametrize(
    ("a_law", "coefficient"),
    [(log_normal_check, LogNormal()), (two_phase_check, TwoPhase(12.0, 3.0))],
)
def test_p_values_on_the_square_are_calibrated_for_few_samples(a_law, coefficient):
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, modes=12)
    law = a_law(field, 9)
    assert_calibrated(p_values(law, lambda seed: on_square(field, 9, 5, coefficient, seed), 80))


def test_p_values_of_blocks_are_calibrated_for_few_samples():
    field, grid = BlockGaussianField(2.0, blocks=3), CellGrid(9)
    law = GaussianCheck(
        "a", lambda a: np.log(a.astype(float)), block_modes(field, grid), np.full((9, 9), 4.0),
        relative=False,
    )  # fmt: skip
    assert_calibrated(p_values(law, lambda seed: on_square(field, 9, 5, LogNormal(), seed), 80))


def test_rounding_alone_is_no_fault_even_of_a_large_sample():
    field = PeriodicGaussianField(1.0, 0.0, 2.0, modes=1)
    x = np.arange(256) / 256
    large = 5 * field.mode_stds[0] * np.sin(2 * np.pi * x + 0.3)
    law = circle_check(field, 256)
    findings(StoreChecks((law,)), {"a": large[None].astype(np.float32)})
    (small,) = [one for one in law.statistics() if "small as rounding" in one.name]
    assert small.p > 0.1


# stores of the recipes


def test_no_sample_is_no_fault():
    problem = load_recipe("burgers-quick").problem
    for blocks in ([], [(np.array([]), problem.compute(0, range(0)))]):
        assert problem.checks_of_store().check(blocks) == []


# what is wrong is found, at the sizes of the smallest recipes


@pytest.fixture(scope="module")
def burgers():
    problem = load_recipe("burgers-quick").problem
    values = problem.compute(0, range(640))
    assert findings(problem.checks_of_store(), values) == []
    return problem, values


@pytest.fixture(scope="module")
def darcy():
    problem = load_recipe("darcy-quick").problem
    values = problem.compute(0, range(320))
    assert findings(problem.checks_of_store(), values) == []
    return problem, values


@pytest.mark.parametrize(
    "wrong",
    [{"sigma": 27.5}, {"sigma": 22.5}, {"tau": 6.5}, {"tau": 3.5}, {"alpha": 2.01},
     {"modes": 127}, {"tau": 10 * np.pi}],
)  # fmt: skip
def test_another_law_on_the_circle_is_found(wrong):
    declared = {"sigma": 25.0, "tau": 5.0, "alpha": 2.0, "modes": 1023}
    values = on_circle(PeriodicGaussianField(**{**declared, **wrong}), 256, 640)
    (found,) = findings(
        StoreChecks((circle_check(PeriodicGaussianField(**declared), 256),)), {"a": values}
    )
    assert found.variable == "a"
    assert "of the Gaussian field are beyond chance" in found.message


@pytest.mark.parametrize(
    ("a_law", "coefficient", "modes", "wrong"),
    [*((log_normal_check, LogNormal(), 24, wrong) for wrong in (
        {"sigma": 3.3}, {"tau": 4.0}, {"tau": 2.0}, {"alpha": 2.1}, {"modes": 12},
        {"boundary": "dirichlet"}, {"tau": 6 * np.pi})),
     *((two_phase_check, TwoPhase(12.0, 3.0), 85, wrong) for wrong in (
        {"tau": 4.0}, {"tau": 1.5}, {"alpha": 2.2}, {"alpha": 1.9}, {"modes": 21},
        {"boundary": "dirichlet"}, {"tau": 6 * np.pi}))],
)  # fmt: skip
def test_another_law_of_a_coefficient_is_found(a_law, coefficient, modes, wrong):
    declared = {"boundary": "neumann", "sigma": 3.0, "tau": 3.0, "alpha": 2.0, "modes": modes}
    field, n = SquareGaussianField(**{**declared, **wrong}), 24 if modes == 24 else 43
    law = StoreChecks((a_law(SquareGaussianField(**declared), n),))
    assert findings(law, {"a": on_square(field, n, 320, coefficient)})


def test_values_that_are_not_gaussian_are_found():
    uniform = np.random.default_rng(0).uniform(-np.sqrt(3), np.sqrt(3), (640, 2, CIRCLE.modes))
    x = 2 * np.pi * np.outer(np.arange(1, 32), np.arange(64) / 64)
    cosines, sines = (uniform * CIRCLE.mode_stds).transpose(1, 0, 2)
    values = (cosines @ np.cos(x) + sines @ np.sin(x)).astype(np.float32)
    law = circle_check(CIRCLE, 64)
    (found,) = findings(StoreChecks((law,)), {"a": values})
    assert "eighth" in found.message
    assert all(one.p > 1e-9 for one in law.statistics() if "energy of" in one.name)


def test_a_field_that_is_not_stationary_is_found():
    values = on_circle(CIRCLE, 64, 640)
    envelope = np.sqrt(1 + 0.5 * np.cos(2 * np.pi * np.arange(64) / 64))
    assert findings(
        StoreChecks((circle_check(CIRCLE, 64),)), {"a": (values * envelope).astype(np.float32)}
    )


CHANGES = {
    "points in another order": lambda v: {**v, "a": v["a"][:, np.random.default_rng(0).permutation(
        v["a"].shape[1])]},
    "samples along another axis": lambda v: {**v, "a": np.moveaxis(v["a"], 0, 1).reshape(
        v["a"].shape)},
    "another sample's solution": lambda v: {**v, "u": np.roll(v["u"], 1, axis=0)},
    "a mirrored": lambda v: {**v, "a": v["a"][:, ::-1]},
    "the same samples twice": lambda v: {
        k: np.concatenate([x[:100], x[:64], x[164:]]) for k, x in v.items()},
    "another sign": lambda v: {**v, "u": -v["u"]},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("store", ["burgers", "darcy"])
def test_a_store_that_was_mixed_up_is_found(store, change, request):
    problem, values = request.getfixturevalue(store)
    assert findings(problem.checks_of_store(), CHANGES[change](values))


def test_phases_and_axes_that_do_not_belong_to_u_are_found(darcy):
    problem, values = darcy
    for wrong in (15 - values["a"], values["a"].transpose(0, 2, 1)):
        found = findings(problem.checks_of_store(), {**values, "a": wrong})
        assert [one.variable for one in found] == ["u"]
        assert "∫ a |∇u|²" in found[0].message


@pytest.mark.parametrize(
    ("store", "variable", "value", "said"),
    [
        ("burgers", "error", 2e-7, "the solver's error is 2e-07, at most 1.04"),
        ("burgers", "error", -1e-9, "minus the solver's error is 1e-09"),
        ("burgers", "error", np.nan, "is nan"),
        ("darcy", "residual", 2e-8, "the residual is 2e-08, at most 1e-08"),
        ("darcy", "residual", np.inf, "is inf"),
    ],
)
def test_a_residual_beyond_what_is_declared_names_the_sample(store, variable, value, said, request):
    problem, values = request.getfixturevalue(store)
    wrong = values[variable].copy()
    wrong[7] = value
    found = [f for f in findings(problem.checks_of_store(), {**values, variable: wrong})
             if f.variable == variable]  # fmt: skip
    assert found[0].sample == 7
    assert found[0].message.startswith("sample 7: ")
    assert any(said in one.message for one in found)


def test_a_sample_that_comes_twice_names_both():
    a = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    assert not findings(StoreChecks((Distinct("a"),)), {"a": a}, size=6)
    a[13] = a[2]
    (found,) = findings(StoreChecks((Distinct("a"),)), {"a": a}, size=6)
    assert (found.variable, found.sample) == ("a", 13)
    assert found.message == "sample 13 is the same as sample 2"


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_bound_is_at_fault_beyond_its_limit_and_not_before(factor):
    limits = np.array([1.0, 2.0, 1e-7])
    bound = Bound("u", "it", lambda v: (v["u"], limits[: len(v["u"])]))
    for column, limit in enumerate(limits):
        u = np.zeros(3)
        u[column] = factor * limit
        found = StoreChecks((deepcopy(bound),)).check([(np.arange(3), {"u": u})])
        assert [one.sample for one in found] == ([column] if factor > 1 else [])


def test_bounds_of_burgers_are_those_of_their_formulas():
    """Of a sine and its later values by formula, with limits that are written out again here."""
    n, viscosity, times = 64, 0.01, np.array([0.2, 0.4])
    grid, x = PeriodicGrid(n), PeriodicGrid(n).x
    physics = _Physics(grid, viscosity, times, unresolved=0.0, slopes=0.0)
    a = np.sin(2 * np.pi * x)
    u = np.stack([0.9 * a, 0.7 * a])[None]
    values = {"a": a[None].astype(np.float32), "u": u.astype(np.float32), "error": np.zeros(1)}
    observed, limit = physics.distance(values)
    # ∫|U(t) - U(0)| = (1 - r) ∫|cos 2πx|/2π = (1 - r)/π²; ∫a² = 1/2, ∫|aₓ| = 4
    assert observed == pytest.approx(0.1 / np.pi**2, rel=2e-3)  # the first time is nearer to it
    assert limit == pytest.approx(0.2 * (0.5 + 4 * viscosity), rel=1e-3)
    observed, limit = physics.growth(values)
    assert observed == pytest.approx(0.9, rel=1e-6)
    assert limit == pytest.approx(1, abs=1e-5)
    observed, limit = physics.excess({**values, "u": (1.3 / 0.9) * values["u"]})
    assert observed == pytest.approx(0.3, rel=1e-5)
    assert limit == pytest.approx(abs(np.diff(a)).max(), rel=1e-5)
    observed, limit = physics.mean({**values, "u": values["u"] + np.float32(1e-3)})
    assert observed == pytest.approx(1e-3, rel=1e-3)
    assert limit < 1e-6


def test_a_value_that_the_equations_forbid_names_the_sample(burgers, darcy):
    problem, values = burgers
    for change, said in (
        (lambda u: u + np.float32(1e-5), "the mean"),
        (lambda u: 2 * u, "the growth of the norm"),
        (lambda u: np.where(np.arange(256) == 9, 5, u).astype(np.float32), "the excess"),
        (lambda u: u[::-1], "the distance"),
    ):
        u = values["u"].copy()
        u[31] = change(u[31])
        found = findings(problem.checks_of_store(), {**values, "u": u})
        assert any(said in one.message and one.sample == 31 for one in found)
    problem, values = darcy
    for name, value, said in (("a", 5, "in neither phase"), ("u", -1e-9, "the wrong sign")):
        wrong = values[name].copy()
        wrong[300, 4, 2] = value
        (found,) = findings(problem.checks_of_store(), {**values, name: wrong})
        assert found.sample == 300
        assert said in found.message


def test_a_coefficient_that_is_not_positive_is_found():
    law = darcy_checks(SQUARE, CellGrid(9), ScaleCheck(1.0), 1.0, 0.0, DarcyClaims(1e-8, True, 1.0))
    a = on_square(SQUARE, 9, 4, LogNormal())
    a[2, 0, 0] = -1
    u, residual = np.full_like(a, 0.02), np.zeros(4)
    found = findings(law, {"a": a, "u": u, "residual": residual})
    assert any(f.sample == 2 and "not positive" in f.message for f in found)


def test_power_is_in_balance_to_rounding_on_the_solver_s_own_cells():
    problem = load_recipe("darcy-quick").with_overrides({"refinement": 1}).problem
    values = problem.compute(0, range(4))
    assert findings(problem.checks_of_store(), values) == []
    (found,) = findings(problem.checks_of_store(), {**values, "u": 1.001 * values["u"]})
    assert "∫ a |∇u|² and ∫ f u is 0.001" in found.message


# how it is fed


def test_samples_keep_their_numbers_where_others_were_skipped():
    check = Distinct("a")
    rows = np.array([[1.0], [2.0], [1.0]], dtype=np.float32)
    found = StoreChecks((check,)).check([(np.array([4, 9]), {"a": rows[:2]}),
                                 (np.array([70]), {"a": rows[2:]})])  # fmt: skip
    assert [one.message for one in found] == ["sample 70 is the same as sample 4"]


def test_findings_do_not_depend_on_how_samples_come(darcy):
    problem, values = darcy
    wrong = {**values, "a": np.roll(values["a"], 7, axis=1)}
    whole, pieces = (findings(problem.checks_of_store(), wrong, size) for size in (320, 33))
    assert whole == pieces
    assert len(whole) == 2


class Improbable(Check):
    """Statistics of given p-values, of which the first is the smallest."""

    variable, subject = "a", "chance"

    def __init__(self, *p):
        self._p = p

    def add(self, numbers, values):
        pass

    def statistics(self):
        return [Statistic(f"number {k}", 1.0, 0.0, p) for k, p in enumerate(self._p)]


@pytest.mark.parametrize(("others", "found"), [(0, 1), (9, 1), (99, 0)])
def test_chance_is_corrected_for_the_number_of_statistics(others, found):
    """p = 2e-11 is beyond chance among 10 statistics, of one part of the law or of two."""
    one = Improbable(0.02 * SIGNIFICANCE, *[0.5] * others)
    two = Improbable(0.02 * SIGNIFICANCE), Improbable(*[0.5] * others)
    for checks in ((one,), two):
        faults = StoreChecks(checks).check([])
        assert len(faults) == found
        assert all("number 0 is 1" in fault.message for fault in faults)


@pytest.mark.parametrize("wall", [0.0, 1000.0])
def test_the_balance_of_energy_allows_for_the_rounding_of_all_values(wall):
    """Also where a large value on the boundary has rounded most of the differences away."""
    a = on_square(SQUARE, 9, 4, LogNormal())
    v = np.random.default_rng(0).uniform(0, 0.05, a.shape)
    stored = (v + wall).astype(np.float32).astype(float) - wall
    flow, rounding = dissipation(a, v, True, wall)
    energy, _ = dissipation(a, stored, True, wall)
    assert (dissipation(a, stored - v, True)[0] <= rounding).all()
    assert (abs(energy - flow) <= 2 * np.sqrt(flow * rounding) + rounding).all()
