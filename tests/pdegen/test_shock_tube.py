"""The exact Riemann solver: star states, conservation, jump conditions, and the ensemble."""

from functools import lru_cache

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.shock_tube.solver import Gas, ShockTube, State
from pdegen.numerics.failure import SolveError
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError

GAS = Gas(1.4)
SOD = [(1.0, 0.0, 1.0), (0.125, 0.0, 0.1)]

TABLE = [  # z; p*, u*, ρ*_L, ρ*_R, head, tail, shock; digits of the specification
    ([0.5] * 6, "1.4771972 1.282097415 .5150458387 .9914348722 -1.660246899 -.7217300011 "
     "2.149207202"),
    ([0.0] * 6, ".32685256 1.3804321 .14551698 .32082749 -2.0493902 -.39287162 2.00555"),
    ([1.0] * 6, "3.0633264 1.4460089 .97444965 1.8388229 -1.1870833 -.65187257 2.3348269"),
    ([0.1, 0.9, 0.3, 0.7, 0.2, 0.8],
     "1.930716 1.4266838 .27554937 2.5007837 -3.0573494 -1.7053288 1.9173791"),
]  # fmt: skip


def sides(*pairs):
    """Left and right states of problems with these (ρ, u, p) on the left and on the right."""
    return tuple(State(*np.array([pair[k] for pair in pairs]).T) for k in (0, 1))


@lru_cache
def recipe():
    return load_recipe("shock-tube")


# star states


@pytest.mark.parametrize(("z", "expected"), TABLE)
def test_states_between_the_waves_are_those_of_the_table(z, expected):
    left, right, _ = recipe().problem.initial.build(np.array([z]))
    star = GAS.star(left, right)
    found = [star.p, star.u, star.rho_left, star.rho_right, *star.left, star.right[0]]
    for value, digits in zip(found, expected.split(), strict=True):
        after_point = len(digits.split(".")[1])
        assert value[0] == pytest.approx(float(digits), abs=0.51 * 10**-after_point)
    assert star.residual[0] < 1e-15
    assert star.right[0] == star.right[1]  # a shock


def test_sods_problem_has_the_known_star_state():
    star = GAS.star(*sides(SOD))
    assert star.p[0] == pytest.approx(0.30313, abs=5e-6)
    assert star.u[0] == pytest.approx(0.92745, abs=5e-6)


@pytest.mark.parametrize(
    ("pair", "p", "u"),
    [  # Toro, table 4.2: digits as printed there
        ([(1.0, -2.0, 0.4), (1.0, 2.0, 0.4)], 0.00189, 0.0),
        ([(1.0, 0.0, 1000.0), (1.0, 0.0, 0.01)], 460.894, 19.5975),
        ([(1.0, 0.0, 0.01), (1.0, 0.0, 100.0)], 46.0950, -6.19633),
        ([(5.99924, 19.5975, 460.894), (5.99242, -6.19633, 46.0950)], 1691.64, 8.68975),
    ],
)
def test_toros_problems_have_the_printed_star_states(pair, p, u):
    star = GAS.star(*sides(pair))
    assert star.p[0] == pytest.approx(p, rel=2e-5, abs=5e-6)
    assert star.u[0] == pytest.approx(u, abs=2e-5 * max(1, abs(u)))


@pytest.mark.parametrize("gamma", [1.0001, 1.1, 1.4, 5 / 3, 3.0, 20.0])
def test_the_waves_obey_their_relations_for_any_gas(gamma):
    """Rankine and Hugoniot at shocks and contacts; the invariants of rarefactions."""
    rng, gas = np.random.default_rng(0), Gas(gamma)
    rho, u, p = (scale(rng.normal(size=(2, 500))) for scale in (np.exp, np.array, np.exp))
    left, right = (State(rho[k], u[k], p[k]) for k in (0, 1))
    apart = ~gas.vacuum(left, right)
    left, right = left[apart], right[apart]
    star = gas.star(left, right)
    assert star.residual.max() < 1e-12
    for state, rho_star, (head, tail), side in (
        (left, star.rho_left, star.left, -1), (right, star.rho_right, star.right, 1),
    ):  # fmt: skip
        behind = State(rho_star, star.u, star.p)
        shock = star.p > state.p
        jump = np.stack([gas.conserved(s)[:, shock] for s in (behind, state)])
        flux = np.stack([gas.flux(s)[:, shock] for s in (behind, state)])
        size = abs(flux).max() + abs(head[shock] * jump).max()
        assert abs(flux[0] - flux[1] - head[shock] * (jump[0] - jump[1])).max() < 1e-12 * size
        invariants = [
            np.stack([s.u - side * 2 / (gamma - 1) * gas.sound(s), s.p / s.rho**gamma])[:, ~shock]
            for s in (behind, state)
        ]
        np.testing.assert_allclose(*invariants, rtol=1e-9, atol=1e-9 * 2 / (gamma - 1))
        entropy = np.log(star.p / state.p) - gamma * np.log(rho_star / state.rho)
        assert entropy.min() > -1e-11 * gamma  # it rises across shocks
        assert np.all(side * (head - tail) >= 0)


def test_the_residual_is_relative():
    """The same in other units of velocity; by powers of two, so that rounding is the same."""
    rng, unit = np.random.default_rng(3), 2.0**12
    rho, u, p = (scale(rng.normal(size=(2, 200))) for scale in (np.exp, np.array, np.exp))
    own, other = (
        GAS.star(*(State(rho[k], v * u[k] / 4, v * v * p[k]) for k in (0, 1))) for v in (1, unit)
    )
    assert np.count_nonzero(own.residual) > 100
    for name, size in {"residual": 1, "iterations": 1, "u": unit, "p": unit**2}.items():
        np.testing.assert_array_equal(getattr(other, name), size * getattr(own, name))


def test_newtons_method_needs_few_steps_whatever_the_states():
    rng = np.random.default_rng(1)
    wide = [np.exp(5 * rng.normal(size=2000)) for _ in range(4)]
    left, right = State(wide[0], 3 * rng.normal(size=2000), wide[1]), State(wide[2], 0, wide[3])
    right = State(right.rho, np.zeros(2000), right.p)
    there = ~GAS.vacuum(left, right)
    star = GAS.star(left[there], right[there])
    assert star.iterations.max() <= 12
    assert np.median(star.iterations) <= 5


def test_a_vacuum_is_refused_by_sample():
    with pytest.raises(SolveError, match="sample 1 of the batch: the gases part, and a vacuum"):
        GAS.star(*sides(SOD, [(1.0, -6.0, 0.4), (1.0, 6.0, 0.4)]))
    c = np.sqrt(1.4)
    limit = 2 * 2 * c / 0.4
    parting = (State(*np.array([[1.0], [-limit / 2 * (1 + e)], [1.0]])) for e in (-1e-9, 1e-9))
    still, empty = (
        bool(GAS.vacuum(state, State(state.rho, -state.u, state.p))[0]) for state in parting
    )
    assert (still, empty) == (False, True)


def test_a_gas_is_refused_unless_gamma_exceeds_one():
    with pytest.raises(ValueError, match=r"gamma must be greater than 1, got 1\.0"):
        Gas(1.0)


# cell averages


@lru_cache
def solved(n=2048, samples=2000):
    """The first samples of the law at 0 and at 1.5, in double precision, with their states."""
    problem = recipe().problem
    rng = np.random.default_rng(0)
    jump = problem.initial.build(rng.random((samples, 6)))
    tube = ShockTube(CellGrid(n, 10.0, -5.0), GAS)
    parts = [
        tube.solve(jump.left[rows], jump.right[rows], jump.x0[rows], [0.0, 1.5])
        for rows in (slice(start, start + 50) for start in range(0, samples, 50))
    ]
    star = GAS.star(jump.left, jump.right)
    return jump, star, np.concatenate([averages for _, averages in parts])


def inside(jump, star, t=1.5):
    return (jump.x0 + t * star.left[0] > -5) & (jump.x0 + t * star.right[0] < 5)


def test_contents_change_by_what_flows_through_the_ends():
    jump, star, u = solved()
    content = u.sum(axis=3) * 10 / 2048
    through = 1.5 * (GAS.flux(jump.left) - GAS.flux(jump.right)).T
    change = content[:, 1] - content[:, 0]
    assert abs(change - through)[inside(jump, star)].max() < 1e-12
    right = GAS.flux(jump.right)
    assert not right[0].any()
    np.testing.assert_array_equal(right[1], jump.right.p)  # F_R = (0, p_R, 0)


def test_averages_are_those_of_the_solution_at_many_points():
    """By 2001 points in each cell, whatever lies in it."""
    jump, _, _ = solved()
    rows, fine = slice(0, 20), 2001
    tube = ShockTube(CellGrid(32, 10.0, -5.0), GAS)
    left, right, x0 = jump.left[rows], jump.right[rows], jump.x0[rows]
    star, u = tube.solve(left, right, x0, [0.0, 0.3, 1.5])
    x = -5 + 10 * (np.arange(32 * fine) + 0.5) / (32 * fine) - x0[:, None]
    for k, t in enumerate([0.0, 0.3, 1.5]):
        state = tube.state(left[:], right[:], star, x, max(t, 1e-300))
        mean = GAS.conserved(state).reshape(20, 3, 32, fine).mean(axis=3)
        assert abs(u[:, k] - mean).max() < 12 / fine  # a jump in a subcell, times its height


def test_averages_over_coarser_cells_are_averages_of_averages():
    jump, _, u = solved()
    rows = slice(0, 50)
    tube = ShockTube(CellGrid(128, 10.0, -5.0), GAS)
    _, coarse = tube.solve(jump.left[rows], jump.right[rows], jump.x0[rows], [0.0, 1.5])
    np.testing.assert_allclose(coarse, u[rows].reshape(50, 2, 3, 128, 16).mean(axis=4), atol=1e-12)


def test_the_fan_of_sods_problem_is_the_textbooks():
    left, right = sides(SOD)
    tube = ShockTube(CellGrid(8), GAS)
    star = GAS.star(left, right)
    x = np.array([[-0.4]])
    state = tube.state(left, right, star, x, 0.5)
    c = np.sqrt(1.4)
    u = 2 / 2.4 * (c - 0.8)
    assert state.u[0, 0] == pytest.approx(u, rel=1e-13)
    assert state.rho[0, 0] == pytest.approx((1 - 0.2 * u / c) ** 5, rel=1e-13)
    assert state.p[0, 0] == pytest.approx((1 - 0.2 * u / c) ** 7, rel=1e-13)


@pytest.mark.parametrize("gamma", [1.2, 1.4, 5 / 3])
def test_a_mirrored_problem_has_the_mirrored_solution(gamma):
    rng, gas = np.random.default_rng(2), Gas(gamma)
    left, right = (
        State(np.exp(rng.normal(size=200)), rng.normal(size=200), np.exp(rng.normal(size=200)))
        for _ in range(2)
    )
    there, x0 = ~gas.vacuum(left, right), rng.uniform(-1, 1, 200)
    tube = ShockTube(CellGrid(128, 6.0, -3.0), gas)
    _, u = tube.solve(left[there], right[there], x0[there], [0.7])
    mirrored = State(right.rho, -right.u, right.p), State(left.rho, -left.u, left.p)
    _, v = tube.solve(mirrored[0][there], mirrored[1][there], -x0[there], [0.7])
    sign = np.array([1, -1, 1])[:, None]
    np.testing.assert_allclose(v, u[..., ::-1] * sign, atol=1e-9 * abs(u).max())


def test_a_moving_observer_sees_the_solution_moving():
    jump, _, _ = solved()
    rows = slice(0, 50)
    left, right, x0 = jump.left[rows], jump.right[rows], jump.x0[rows]
    grid = CellGrid(100, 10.0, -5.0)
    speed, t = 0.4, 0.5  # two cells
    _, u = ShockTube(grid, GAS).solve(left, right, x0, [t])
    faster = [State(s.rho, s.u + speed, s.p) for s in (left, right)]
    _, v = ShockTube(grid, GAS).solve(*faster, x0, [t])
    rho, m, energy = np.moveaxis(u[:, 0, :, :-2], 1, 0)
    seen = np.stack([rho, m + speed * rho, energy + speed * m + speed**2 / 2 * rho], axis=1)
    np.testing.assert_allclose(v[:, 0, :, 2:], seen, atol=1e-11)


def test_a_scheme_of_finite_volumes_converges_to_it():
    """Rusanov's scheme for Sod's problem, in L1."""
    left, right = sides(SOD)
    errors = []
    for n in (400, 1600):
        tube = ShockTube(CellGrid(n, 2.0, -1.0), GAS)
        _, both = tube.solve(left, right, np.zeros(1), [0.0, 0.4])
        u, exact, t = both[0, 0], both[0, 1], 0.0
        while t < 0.4:
            rho, m, energy = u
            p = 0.4 * (energy - m * m / rho / 2)
            flux = np.stack([m, m * m / rho + p, m / rho * (energy + p)])
            speed = (abs(m / rho) + np.sqrt(1.4 * p / rho)).max()
            dt = min(0.9 * 2 / n / speed, 0.4 - t)
            between = (flux[:, 1:] + flux[:, :-1] - speed * np.diff(u)) / 2
            u = u.copy()
            u[:, 1:-1] -= dt * n / 2 * np.diff(between)
            t += dt
        errors.append(abs(u - exact).mean())
    assert 0.5 < np.log(errors[0] / errors[1]) / np.log(4) < 0.9
    assert errors[1] < 0.02


# the ensemble: statistics of the specification, of 2,000 samples there and of others here


def test_the_ensemble_is_that_of_the_specification():
    """Within three deviations of the mean of 2,000 samples."""
    jump, star, both = solved()
    u = both[:, 1]
    table = [("rho", 0.635, 0.336), ("m", 0.542, 0.507), ("E", 4.32, 2.35)]
    for k, (_, mean, std) in enumerate(table):
        assert u[:, k].mean() == pytest.approx(mean, rel=0.03)
        assert u[:, k].std() == pytest.approx(std, rel=0.03)
    assert u[:, 0].min() == pytest.approx(0.100, abs=1e-3)
    assert 3.2 < u[:, 0].max() < 4.2  # 3.51 there: the largest of the samples
    assert 0 >= u[:, 1].min() > -1e-12
    assert u[:, 2].min() == pytest.approx(0.126, abs=4e-3)
    assert u[:, 2].max() == pytest.approx(12.0, abs=0.2)
    at = u[:, 2].mean(axis=0)[[205, 1024, 1843]]
    assert at == pytest.approx([6.28, 4.12, 1.74], rel=0.03)
    beyond = (jump.x0 + 1.5 * star.left[0] <= -5).mean(), (jump.x0 + 1.5 * star.right[0] >= 5)
    assert beyond[0] == pytest.approx(0.023, abs=0.012)
    assert beyond[1].mean() == pytest.approx(0.065, abs=0.018)
    assert (star.p > jump.left.p).mean() == pytest.approx(0.019, abs=0.01)
    assert np.all(star.p > jump.right.p)  # the right wave is a shock
    assert 0.3 < star.p.min() < star.p.max() < 3.1


def test_the_mean_field_predicts_as_well_as_the_specification_says():
    _, _, both = solved()
    u = both[:, 1]
    error = abs(u - u.mean(axis=0)).sum(axis=2) / abs(u).sum(axis=2)
    assert error.mean(axis=0) == pytest.approx([0.419, 0.659, 0.399], rel=0.03)
    assert np.median(error, axis=0) == pytest.approx([0.330, 0.493, 0.299], rel=0.03)


# recipes


@pytest.fixture(scope="module")
def quick():
    return load_recipe("shock-tube-quick")


def test_the_recipe_has_the_published_sizes_and_ranges():
    problem, splits = recipe().problem, recipe().splits
    assert (recipe().samples, problem.resolution, problem.times) == (1280, 2048, (1.5,))
    assert (splits.train, splits.validation, splits.test) == (1024, 128, 128)
    left, right, x0 = problem.initial.build(np.array([[0.5] * 6]))
    found = [left.rho, right.rho, left.u, right.u, left.p, right.p, x0]
    np.testing.assert_allclose(np.ravel(found), [0.75, 0.4, 0.5, 0, 2.5, 0.375, 0], atol=1e-15)
    assert problem.domain.points[[0, -1], 0].tolist() == [-5 + 5 / 2048, 5 - 5 / 2048]


def test_a_sample_depends_on_its_number_alone(quick):
    values = quick.problem.compute(0, range(40))
    for name, value in quick.problem.compute(0, range(37, 39)).items():
        assert np.array_equal(values[name][37:39], value)


def test_times_are_an_axis_and_components_are_channels(quick):
    problem = quick.with_overrides({"problem.times": [0.5, 1.0, 1.5]}).problem
    values = problem.compute(0, range(3))
    shapes = {v.name: v.shape for v in problem.variables()}
    assert {name: value.shape[1:] for name, value in values.items()} == shapes
    assert shapes["u"] == (3, 3, 256)
    assert problem.variables()[1].attributes["channels"] == ["rho", "m", "E"]
    one = quick.problem.compute(0, range(3))
    assert np.array_equal(one["u"], values["u"][:, 2])
    assert np.array_equal(one["a"], values["a"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"initial.u_left": [-30.0, 1.0]}, "a vacuum develops where u_right - u_left is 6.70461"),
        ({"initial.u_right": 9.0}, "and the ranges go up to 9: raise initial.u_left"),
        ({"times": [0.0]}, "times.0: must be greater than 0, got 0.0"),
        ({"times": [1.0, 1.0]}, "times: must increase, got [1.0, 1.0]"),
        ({"gamma": 1.0}, "gamma: must be greater than 1, got 1.0"),
        ({"interval": [1.0, 1.0]}, "interval must have a length, got [1.0, 1.0]"),
        ({"initial.x0": [-6.0, 0.0]}, "initial.x0 must lie in the interval [-5.0, 5.0]"),
        ({"initial.p_left": [4.1, 0.9]}, "a range is two numbers that do not fall"),
        ({"initial.rho_right": [0.0, 1.0]}, "initial.rho_right.0: must be greater than 0"),
        ({"initial.roh_right": [0.1, 1.0]}, "did you mean problem.initial.rho_right"),
    ],
)
def test_impossible_recipes_are_refused(quick, changed, said):
    with pytest.raises(SchemaError) as error:
        quick.with_overrides({f"problem.{key}": value for key, value in changed.items()})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_recipe_next_to_a_vacuum_is_solved(quick):
    overrides = {"problem.initial.u_left": [-6.7, -6.6], "problem.interval": [-40.0, 40.0]}
    values = quick.with_overrides(overrides).problem.compute(0, range(50))
    assert values["residual"].max() < 1e-14
    assert values["u"][:, 0].min() > 0


# the law

VARIANTS = {
    "quick": {},
    "fine": {"resolution": 2048},
    "trajectory": {"times": [0.1, 0.5, 1.5, 4.0]},
    "coarse": {"resolution": 12},
    "other gas": {"gamma": 5 / 3, "initial.u_left": [-3.0, 3.0]},
    "hot on the right": {"initial.p_right": [0.05, 20.0], "initial.rho_right": [0.1, 20.0]},
}


@lru_cache
def variant(name):
    changes = {f"problem.{key}": value for key, value in VARIANTS[name].items()}
    problem = load_recipe("shock-tube-quick").with_overrides(changes).problem
    return problem, problem.compute(0, range(150))


def findings(name, **changed):
    problem, stored = variant(name)
    numbers = np.arange(len(stored["z"]))
    return [one.what for one in problem.law().check([(numbers, {**stored, **changed})])]


@pytest.mark.parametrize("name", VARIANTS)
def test_samples_follow_the_law(name):
    assert findings(name) == []


def scaled(channel, factor):
    factors = np.ones(3, np.float32)
    factors[channel] = factor
    return lambda u: u * factors[:, None]


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("z", lambda z: z / 2, "statistics of the uniform numbers"),
        ("z", lambda z: z[[0, *range(149)]], "is the same as sample 0"),
        ("a", lambda a: a * np.float32(1.00001), "the distance from the jump of z"),
        ("a", lambda a: np.roll(a, 1, axis=2), "the distance from the jump of z"),
        ("residual", lambda r: r + 1e-9, "the residual is"),
        ("u", lambda u: u + 1e-4 * (abs(np.arange(256) - 128) < 9), "the change of contents"),
        ("u", scaled(1, 1.001), "the violation of Rankine and Hugoniot"),
        ("u", scaled(0, -1), "cells without density or pressure"),
        ("u", lambda u: u - 0.1 * np.array([0, 0, 1], "f")[:, None], "the lack of entropy"),
        ("u", lambda u: np.roll(u, 2, axis=2), "cells between the right shock and its place"),
        ("u", lambda u: np.concatenate([u[..., :4], u[..., 8:], u[..., -4:]], axis=2),
         "the change of contents"),
    ],
)  # fmt: skip
def test_the_law_sees_other_values(name, changed, said):
    value = variant("quick")[1][name]
    assert any(said in what for what in findings("quick", **{name: changed(value)}))


def test_the_law_sees_a_solution_for_another_gas_or_another_left_state():
    problem, stored = variant("quick")
    numbers = np.arange(len(stored["z"]))
    for changed, said in (
        ({"gamma": 1.41}, "the distance from the jump of z"),
        ({"initial": problem.initial.model_copy(update={"p_left": (0.901, 4.101)})},
         "the distance in velocity from the wave on the left"),
    ):  # fmt: skip
        law = problem.model_copy(update=changed).law()
        assert any(said in one.what for one in law.check([(numbers, stored)]))
