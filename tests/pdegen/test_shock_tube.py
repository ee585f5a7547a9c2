"""The exact Riemann solver: star states, conservation, jump conditions, and the ensemble."""

from functools import lru_cache

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.shock_tube.solver import Gas, ShockTube, State
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from tests.pdegen.small import problem, samples
from tests.pdegen.test_checks import findings

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
    values = [star.p, star.u, star.rho_left, star.rho_right, *star.left, star.right[0]]
    for value, digits in zip(values, expected.split(), strict=True):
        after_point = len(digits.split(".")[1])
        assert value[0] == pytest.approx(float(digits), abs=0.51 * 10**-after_point)
    assert star.residual[0] < 1e-15
    assert star.right[0] == star.right[1]  # a shock


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
    """The Rankine-Hugoniot conditions at shocks and contacts; the invariants of rarefactions."""
    rng, gas = np.random.default_rng(0), Gas(gamma)
    rho, u, p = (scale(rng.normal(size=(2, 500))) for scale in (np.exp, np.array, np.exp))
    left, right = (State(rho[k], u[k], p[k]) for k in (0, 1))
    joined = ~gas.vacuum(left, right)
    left, right = left[joined], right[joined]
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
    """It does not change with the unit of velocity; powers of two keep the rounding."""
    rng, unit = np.random.default_rng(3), 2.0**12
    rho, u, p = (scale(rng.normal(size=(2, 200))) for scale in (np.exp, np.array, np.exp))
    star, scaled = (
        GAS.star(*(State(rho[k], v * u[k] / 4, v * v * p[k]) for k in (0, 1))) for v in (1, unit)
    )
    assert np.count_nonzero(star.residual) > 100
    for name, size in {"residual": 1, "iterations": 1, "u": unit, "p": unit**2}.items():
        np.testing.assert_array_equal(getattr(scaled, name), size * getattr(star, name))


def test_newtons_method_needs_few_steps_whatever_the_states():
    rng = np.random.default_rng(1)
    wide = [np.exp(5 * rng.normal(size=2000)) for _ in range(4)]
    left, right = State(wide[0], 3 * rng.normal(size=2000), wide[1]), State(wide[2], 0, wide[3])
    right = State(right.rho, np.zeros(2000), right.p)
    joined = ~GAS.vacuum(left, right)
    star = GAS.star(left[joined], right[joined])
    assert star.iterations.max() <= 12
    assert np.median(star.iterations) <= 5


def test_a_vacuum_is_refused_by_sample():
    with pytest.raises(SolveError, match="sample 1 of the batch: the gases move apart, and a"):
        GAS.star(*sides(SOD, [(1.0, -6.0, 0.4), (1.0, 6.0, 0.4)]))
    c = np.sqrt(1.4)
    limit = 2 * 2 * c / 0.4
    parting = (State(*np.array([[1.0], [-limit / 2 * (1 + e)], [1.0]])) for e in (-1e-9, 1e-9))
    joined, empty = (
        bool(GAS.vacuum(state, State(state.rho, -state.u, state.p))[0]) for state in parting
    )
    assert (joined, empty) == (False, True)


def test_a_gas_is_refused_unless_gamma_exceeds_one():
    with pytest.raises(ValueError, match=r"gamma must be greater than 1, got 1\.0"):
        Gas(1.0)


# cell averages


@lru_cache
def solved(n=256, samples=2000):
    """The first samples of the law at 0 and at 1.5, in double precision, with their states."""
    rng = np.random.default_rng(0)
    jump = recipe().problem.initial.build(rng.random((samples, 6)))
    tube = ShockTube(CellGrid(n, 10.0, -5.0), GAS)
    parts = [
        tube.solve(jump.left[rows], jump.right[rows], jump.x0[rows], [0.0, 1.5])
        for rows in (slice(start, start + 50) for start in range(0, samples, 50))
    ]
    star = GAS.star(jump.left, jump.right)
    return jump, star, np.concatenate([averages for _, averages in parts])


def inside(jump, star, t=1.5):
    return (jump.x0 + t * star.left[0] > -5) & (jump.x0 + t * star.right[0] < 5)


def test_contents_change_by_the_flow_through_the_ends():
    jump, star, u = solved()
    content = u.mean(axis=3) * 10
    through = 1.5 * (GAS.flux(jump.left) - GAS.flux(jump.right)).T
    change = content[:, 1] - content[:, 0]
    assert abs(change - through)[inside(jump, star)].max() < 1e-12
    right = GAS.flux(jump.right)
    assert not right[0].any()
    np.testing.assert_array_equal(right[1], jump.right.p)  # F_R = (0, p_R, 0)


def test_averages_over_coarser_cells_are_averages_of_averages():
    jump, _, u = solved()
    rows = slice(0, 50)
    tube = ShockTube(CellGrid(16, 10.0, -5.0), GAS)
    _, coarse = tube.solve(jump.left[rows], jump.right[rows], jump.x0[rows], [0.0, 1.5])
    np.testing.assert_allclose(coarse, u[rows].reshape(50, 2, 3, 16, 16).mean(axis=4), atol=1e-12)


# statistics of the specification, over 2,000 samples there and others here


def test_the_ensemble_is_that_of_the_specification():
    """Means lie within three standard deviations of the mean of 2,000 samples."""
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
    at = u[:, 2].mean(axis=0)[[25, 128, 230]]
    assert at == pytest.approx([6.28, 4.12, 1.74], rel=0.03)
    beyond = (jump.x0 + 1.5 * star.left[0] <= -5).mean(), (jump.x0 + 1.5 * star.right[0] >= 5)
    assert beyond[0] == pytest.approx(0.023, abs=0.012)
    assert beyond[1].mean() == pytest.approx(0.065, abs=0.018)
    assert (star.p > jump.left.p).mean() == pytest.approx(0.019, abs=0.01)
    assert np.all(star.p > jump.right.p)  # the right wave is a shock
    assert 0.3 < star.p.min() < star.p.max() < 3.1


# the law


def scaled(channel, factor):
    factors = np.ones(3, np.float32)
    factors[channel] = factor
    return lambda u: u * factors[:, None]


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("z", lambda z: z / 2, "statistics of the uniform numbers"),
        ("z", lambda z: z[[0, *range(149)]], "is the same as sample 0"),
        ("a", lambda a: a * np.float32(1.00001), "the distance from the jump of z"),
        ("a", lambda a: np.roll(a, 1, axis=2), "the distance from the jump of z"),
        ("residual", lambda r: r + 1e-9, "the residual is"),
        ("u", lambda u: u + 1e-4 * (abs(np.arange(256) - 128) < 9), "the change of contents"),
        ("u", scaled(1, 1.001), "the violation of Rankine-Hugoniot"),
        ("u", scaled(0, -1), "cells without density or pressure"),
        ("u", lambda u: u - 0.1 * np.array([0, 0, 1], "f")[:, None], "the lack of entropy"),
        ("u", lambda u: np.roll(u, 2, axis=2), "cells between the right shock and its position"),
        ("u", lambda u: np.concatenate([u[..., :4], u[..., 8:], u[..., -4:]], axis=2),
         "the change of contents"),
    ],
)  # fmt: skip
def test_the_law_notices_changed_values(name, changed, message):
    stored = samples("shock-tube-quick")
    values = {**stored, name: changed(stored[name])}
    assert any(
        message in finding.message
        for finding in findings(problem("shock-tube-quick").checks(), values)
    )


def test_the_law_notices_another_gas_or_another_left_state():
    tube = problem("shock-tube-quick")
    for changed, message in (
        ({"gamma": 1.41}, "the distance from the jump of z"),
        ({"initial": tube.initial.model_copy(update={"p_left": (0.901, 4.101)})},
         "the distance in velocity from the left wave"),
    ):  # fmt: skip
        law = tube.model_copy(update=changed).checks()
        assert any(
            message in finding.message for finding in findings(law, samples("shock-tube-quick"))
        )
