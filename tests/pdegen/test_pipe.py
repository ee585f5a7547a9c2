"""Flow through bent pipes: exact solutions, orders, reference figures, labels, the law."""

from functools import cache

import numpy as np
import pytest
import torch

from pdegen.equations.base import SampleError
from pdegen.equations.pipe.problem import relative_errors
from pdegen.equations.pipe.solver import FLOW_RATE, CentreLine, Pipe, PipeFlow
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from tests.pdegen import small
from tests.pdegen.test_checks import findings
from tests.validation.pipe import errors

NU, LENGTH = 0.005, 10.0
BENT = {  # heights and slopes at the knots
    "A": ([0, 0.5, -0.5, 0.5, 0], [1, -1, 1, -1, 0]),
    "B": ([0, 1, -1, 1, -1], [2, -2, 2, -2, 2]),
    "C": ([0, 1, 1, 1, 1], [0, 0, 0, 0, 0]),
}


def line(case):
    return CentreLine(*(np.array([numbers], float) for numbers in BENT[case]))


@cache
def solved(case, n, gauss=4):
    pipe = Pipe(n, n, LENGTH, NU, gauss)
    centre = line(case)(2 * n + 1)
    return pipe, centre, pipe.solve(centre)


# exact solutions


@pytest.mark.parametrize(("columns", "rows", "nu"), [(8, 8, 0.005), (12, 4, 0.5), (32, 32, 0.005)])
def test_a_straight_pipe_has_the_flow_of_poiseuille(columns, rows, nu):
    pipe = Pipe(columns, rows, LENGTH, nu)
    centre = np.full((1, 2 * columns + 1), 0.3)
    still = pipe.straight(centre)
    still.velocity[:, :, 1:] = 0  # given at the inlet alone
    still.pressure[:] = 0
    flow, residual, _ = pipe.solve(centre, still)
    assert residual[0] < 1e-11
    flow = pipe.improved(centre, flow)  # to round-off
    u, v = flow.velocity[0]
    eta = np.linspace(-0.5, 0.5, 2 * rows + 1)
    np.testing.assert_allclose(u - (0.25 - eta**2), 0, rtol=0, atol=1e-13)
    np.testing.assert_allclose(v, 0, rtol=0, atol=1e-13)
    p = 2 * nu * np.linspace(LENGTH, 0, columns + 1)[:, None]
    np.testing.assert_allclose(flow.pressure[0] - p, 0, rtol=0, atol=1e-13 * max(1, p.max()))


def kovasznay(nu):
    """u, v, p and ∂u/∂x, ∂v/∂x of the flow behind a grid (L. I. G. Kovasznay, 1948)."""
    rate = 1 / (2 * nu) - np.sqrt(1 / (4 * nu**2) + 4 * np.pi**2)

    def field(x, y):
        wave = np.exp(rate * x)
        u, v = 1 - wave * np.cos(2 * np.pi * y), rate / (2 * np.pi) * wave * np.sin(2 * np.pi * y)
        return u, v, -(wave**2) / 2 + 0 * y, rate * (u - 1), rate * v

    return field


def behind_a_grid(n, bend):
    """Errors of u and p in L² on 0 <= x <= 1, between curves on which the flow is given."""
    nu = 1 / 40
    pipe, exact = Pipe(n, n, 1.0, nu), kovasznay(nu)
    x = np.linspace(0, 1, 2 * n + 1)
    centre = bend * np.sin(np.pi * x)[None] ** 2
    y = centre[0][:, None] + np.linspace(-0.5, 0.5, 2 * n + 1)
    u, v, p, *_ = exact(x[:, None], y)
    start = PipeFlow(np.stack([u, v])[None], 0 * p[None, ::2, ::2])
    start.velocity[:, :, 1:, 1:-1] = 0
    # at the outlet the force ν ∂u/∂x - p of the exact flow, by Gauss points on each edge
    force = np.zeros(start.velocity.shape)
    points, weights = np.polynomial.legendre.leggauss(5)
    t = (points + 1) / 2
    shapes = np.stack([(1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)])
    for e in range(n):
        _, _, p1, u1, v1 = exact(1.0, -0.5 + (e + t) / n)
        nodes = slice(2 * e, 2 * e + 3)
        force[0, 0, -1, nodes] += shapes @ (weights / (2 * n) * (nu * u1 - p1))
        force[0, 1, -1, nodes] += shapes @ (weights / (2 * n) * (nu * v1))
    flow = pipe.solve(centre, start, force).flow
    error, pressure_error, m = 0.0, 0.0, 2 * n - 1
    for i, s in enumerate(t):  # parabolas at Gauss points of each element, s along and t across
        for j, r in enumerate(t):
            along, across = shapes[:, i], shapes[:, j]
            value = sum(
                along[a] * across[b] * flow.velocity[0, :, a : a + m : 2, b : b + m : 2]
                for a in range(3)
                for b in range(3)
            )
            middle = sum(along[a] * centre[0, a : a + m : 2] for a in range(3))
            k = np.arange(n)
            points = (k + s)[:, None] / n, middle[:, None] - 0.5 + (k + r)[None] / n
            u, v, p, *_ = exact(*points)
            q = flow.pressure[0]
            pressure = ((1 - s) * ((1 - r) * q[:-1, :-1] + r * q[:-1, 1:])
                     + s * ((1 - r) * q[1:, :-1] + r * q[1:, 1:]))  # fmt: skip
            weight = weights[i] * weights[j] / (4 * n**2)
            error += weight * ((value[0] - u) ** 2 + (value[1] - v) ** 2).sum()
            pressure_error += weight * ((pressure - p) ** 2).sum()
    return np.sqrt([error, pressure_error])


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_the_orders_are_three_and_two(bend):
    """Orders of velocity and pressure, for Kovasznay's flow between straight and bent walls."""
    flow_errors = np.array([behind_a_grid(n, bend) for n in (8, 16, 32)])
    orders = np.log2(flow_errors[:-1] / flow_errors[1:])
    np.testing.assert_allclose(orders[-1], [3, 2], atol=0.1)


# figures of an independent implementation with three Gauss points, to all of its digits

FIGURES = {  # u at x = 5 and 10 in the middle; largest u; smallest and largest v
    ("A", 16): (0.2446952, 0.2523382, 0.276909, -0.16029, 0.16480),
    ("A", 32): (0.2516606, 0.2508441, 0.272259, -0.15654, 0.15941),
    ("A", 64): (0.2533449, 0.2508298, 0.272139, -0.15659, 0.15954),
    ("B", 16): (0.2311966, 0.2492305, 0.333422, -0.33968, 0.33952),
    ("B", 32): (0.2525696, 0.2466839, 0.317099, -0.32223, 0.32219),
    ("C", 16): (0.2488681, 0.2500603, 0.263162, -0.00497, 0.14483),
    ("C", 32): (0.2500166, 0.2500001, 0.262412, -0.00480, 0.14409),
}
SPREADS = {("A", 16): 1.8e-2, ("A", 32): 3.0e-3, ("A", 64): 4.5e-4, ("B", 16): 8.4e-2,
           ("B", 32): 1.4e-2, ("C", 16): 8.7e-3, ("C", 32): 8.5e-4}  # fmt: skip
DIGITS = np.array([1e-7, 1e-7, 1e-6, 1e-5, 1e-5])


def figures(flow):
    u, v = flow.velocity[0]
    n = u.shape[0] // 2
    return np.array([u[n, n], u[-1, n], u.max(), v.min(), v.max()])


@pytest.mark.parametrize(
    ("case", "n"),
    [pytest.param(*key, marks=[pytest.mark.slow] * (key[1] == 64)) for key in FIGURES],
)
def test_figures_are_those_of_the_independent_implementation(case, n):
    pipe, centre, (flow, residual, iterations) = solved(case, n, gauss=3)
    assert np.all(abs(figures(flow) - FIGURES[case, n]) <= 0.51 * DIGITS)
    rates = pipe.flow_rates(flow)[0]
    assert np.ptp(rates) == pytest.approx(SPREADS[case, n], rel=0.04)
    columns = (rates[:-1:2] + 4 * rates[1::2] + rates[2::2]) / 6
    np.testing.assert_allclose(columns, FLOW_RATE, rtol=0, atol=1e-14)  # exact over a column
    assert abs(pipe.divergence(flow.velocity, centre)).max() < 1e-13
    assert residual[0] < 1e-11
    assert iterations[0] <= 6


def test_exact_integrals_change_less_than_the_mesh():
    for case, n, limit in (("A", 16, 1e-4), ("B", 16, 2e-3), ("A", 32, 2e-6), ("B", 32, 2e-5)):
        assert abs(figures(solved(case, n)[2].flow)[:2] - FIGURES[case, n][:2]).max() < limit


def test_a_pipe_does_not_depend_on_its_batch_or_device():
    """Some samples need more steps than others."""
    centre = np.concatenate([line(case)(33) for case in "ABC"])
    pipe = Pipe(16, 16, LENGTH, NU)
    together, device = pipe.solve(centre), pipe.solve(torch.tensor(centre))
    assert len(set(together.iterations.tolist())) > 1
    for row, case in enumerate("ABC"):
        alone = solved(case, 16)[2]
        for batch in (together, device):
            assert batch.iterations[row] == alone.iterations[0]
            for values, expected in zip(batch.flow, alone.flow, strict=True):
                np.testing.assert_allclose(values[row], expected[0], rtol=0, atol=1e-12)


def test_a_finer_mesh_has_the_same_parabolas():
    rng = np.random.default_rng(0)
    flow = PipeFlow(rng.standard_normal((1, 2, 9, 5)), rng.standard_normal((1, 5, 3)))
    fine = flow.refined()
    assert fine.velocity.shape == (1, 2, 17, 9)
    assert fine.pressure.shape == (1, 9, 5)
    np.testing.assert_array_equal(fine.velocity[:, :, ::2, ::2], flow.velocity)
    x = np.linspace(0, 1, 5)
    bent = PipeFlow((x**2 - x)[None, None, :, None] * np.ones((1, 2, 1, 3)), np.zeros((1, 3, 2)))
    finer = np.linspace(0, 1, 9)
    np.testing.assert_allclose(bent.refined().velocity[0, 0, :, 1], finer**2 - finer, atol=1e-15)


def test_a_pipe_that_bends_too_far_is_named():
    bent = np.stack([np.zeros(33), 200 * np.sin(np.arange(33))])
    with pytest.raises(SolveError, match=r"sample 1 of the batch: .*the pipe bends too far"):
        Pipe(16, 16, LENGTH, NU).solve(bent)


@pytest.mark.parametrize("device", [False, True])
def test_the_sample_whose_matrix_is_singular_is_named(device):
    """Without friction nothing holds a fluid at rest."""
    pipe, centre = Pipe(4, 4, LENGTH, 0.0), np.zeros((3, 9))
    velocity, pressure = pipe.straight(centre)
    velocity[1] = 0
    flow = PipeFlow(velocity, pressure)
    if device:
        centre, flow = torch.tensor(centre), PipeFlow(*(torch.tensor(part) for part in flow))
    with pytest.raises(SolveError, match="sample 1 of the batch: a matrix is singular"):
        pipe.improved(centre, flow)


# labels


@pytest.fixture
def quick():
    return small.problem("pipe-quick"), small.samples("pipe-quick")


def test_labels_lie_on_their_pipes(quick):
    problem, labels = quick
    np.testing.assert_allclose(
        labels["x"][:, :, 0], np.linspace(0, 10, 33)[None] + 0 * labels["x"][:, :, 0]
    )
    centre = problem.centre.build(labels["knots"])
    np.testing.assert_allclose(labels["y"][:, 8, 16], centre.heights[:, 1], atol=1e-6)
    np.testing.assert_allclose(labels["y"][:, :, -1] - labels["y"][:, :, 0], 1.0, atol=1e-6)
    weights = problem.domain.at(np.stack([labels["x"][0], labels["y"][0]], axis=-1)).weights
    assert weights.sum() == pytest.approx(10.0, rel=1e-6)
    # of 96 heights and 120 slopes: a deviation of 0.05
    assert centre.heights[:, 1:].std() == pytest.approx(1 / np.sqrt(3), rel=0.2)
    assert centre.slopes.std() == pytest.approx(2 / np.sqrt(3), rel=0.2)
    assert abs(centre.heights).max() <= 1
    assert abs(centre.slopes).max() <= 2


def test_stated_errors_are_relative_over_the_area(quick):
    """The area is that of the trapezoidal rule; the reference is one step of Newton's method with
    twice as many columns. The error of p leaves out the corners of the inlet."""
    problem, labels = quick
    line = problem.centre.build(labels["knots"][7:8])
    flow = Pipe(16, 16, LENGTH, NU).solve(line(33)).flow
    np.testing.assert_allclose(labels["u"][7], flow.velocity[0, 0], atol=1e-7)
    np.testing.assert_allclose(labels["p"][7, ::2, ::2], flow.pressure[0], atol=1e-7)
    reference = Pipe(32, 16, LENGTH, NU).improved(line(65), flow.refined((1,)))
    for k, name in enumerate(("error", "error_v", "error_p")):
        values, expected = ([*part.velocity[0], part.at_nodes[0]][k] for part in (flow, reference))
        squares, whole = (values - expected[::2]) ** 2, expected[::2] ** 2
        sides = [np.trapezoid(np.trapezoid(part)) for part in (squares, whole)]
        if name == "error_p":
            corners = [(part[0, 0] + part[0, -1]) / 4 for part in (squares, whole)]
            sides = np.subtract(sides, corners)
        assert labels[name][7] == pytest.approx(np.sqrt(sides[0] / sides[1]), rel=1e-6)


def test_the_pressure_has_no_limit_at_the_corners_of_the_inlet_and_its_error_has_one():
    """A slow flow into a short sloping pipe, where the corners weigh most."""
    line = CentreLine(np.array([[0, 0.1, 0, 0.1, 0]]), np.array([[0.5, 0.2, -0.1, 0.1, 0]]))

    def at_points(columns, rows):
        flow = Pipe(columns, rows, 3.0, 1.0).solve(line(2 * columns + 1)).flow
        values = [flow.velocity[:, 0], flow.velocity[:, 1], flow.at_nodes]
        return [field[:, :: columns // 8, :: rows // 8] for field in values]

    coarse, fine, finest = at_points(8, 8), at_points(16, 16), at_points(32, 32)
    corner = [values[2][0, 0, 0] for values in (coarse, fine, finest)]
    assert corner[2] - corner[1] > 0.8 * (corner[1] - corner[0]) > 0.1 * corner[0]
    long = at_points(16, 8)
    stated = relative_errors(coarse, long)[2][0]
    coarse[2][:, 0, [0, -1]], long[2][:, 0, [0, -1]] = -7.0, 9.0  # corners do not count
    assert relative_errors(coarse, long)[2][0] == stated
    assert stated / relative_errors(coarse, finest)[2][0] == pytest.approx(1, abs=0.3)


def test_a_straight_pipe_has_no_error():
    """Not even of the vertical velocity, which is 0 up to rounding."""
    recipe = load_recipe("pipe-quick").with_overrides({"problem.resolution": 33})
    straight = recipe.with_overrides({"heights": [0.0, 0.0], "slopes": [0.0, 0.0]}).problem
    labels = straight.compute(0, range(1))
    for name in ("error", "error_v", "error_p"):
        assert labels[name][0] < 1e-4  # rounding, over 1e-10 of the speed


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize(
    ("overrides", "samples", "message"),
    [
        ({"heights": [-300.0, 300.0]}, range(3, 5), "sample 3: .*the pipe bends too far"),
        ({"heights": [-8.0, 8.0]}, range(3, 8), "sample 5: the error of u is"),
        # slow flow through a steep pipe converges, whatever the mesh
        ({"viscosity": 1e3, "heights": [-10.0, 10.0]}, range(3),
         r"sample 0: the error of u is 1\.\d, at most 0.5 is allowed"),
    ],
)  # fmt: skip
def test_a_sample_that_cannot_be_solved_is_named(overrides, samples, message, device, monkeypatch):
    monkeypatch.setattr("pdegen.equations.base.samples_at_once", lambda values: 2)
    recipe = load_recipe("pipe-quick").with_overrides({"problem.resolution": 33})
    with pytest.raises(SampleError, match=message):
        recipe.with_overrides(overrides).problem.compute(0, samples, device)


def test_stated_errors_are_true_ones():
    """Against solutions twice as fine along the pipe and across."""
    ratio = np.concatenate([stated / true for stated, true in errors(33, [*range(3)], steps=3)])
    np.testing.assert_array_less(abs(np.log(ratio)), np.log(1.5))


def test_refinement_keeps_the_points_and_lowers_the_errors(quick):
    problem, labels = quick
    fine = problem.model_copy(update={"refinement": 2}).compute(0, range(3))
    for name in ("x", "y", "knots"):
        assert np.array_equal(fine[name], labels[name][:3])
    for name, error in (("u", "error"), ("v", "error_v"), ("p", "error_p")):
        assert np.all(fine[error] < labels[error][:3] / 2)
        difference = np.linalg.norm((fine[name] - labels[name][:3]).reshape(3, -1), axis=1)
        difference /= np.linalg.norm(fine[name].reshape(3, -1), axis=1)
        np.testing.assert_allclose(difference, labels[error][:3], rtol=0.4)


# the law


def at_point(change):
    where = np.zeros((33, 33), bool)
    where[11, 20] = True
    return lambda values: np.where(where, change(values), values)


CHANGES = {
    "u scaled": ("u", lambda v: v * np.float32(1.0001)),
    "u of a neighbour": ("u", lambda v: np.roll(v, 1, axis=0)),
    "u at one point": ("u", at_point(lambda v: v * np.float32(1.001))),
    "u mirrored": ("u", lambda v: v[:, :, ::-1]),
    "v scaled": ("v", lambda v: v * np.float32(1.001)),
    "v reversed": ("v", lambda v: -v),
    "p shifted": ("p", lambda v: v + np.float32(1e-4)),
    "p scaled": ("p", lambda v: v * np.float32(1.001)),
    "p at one point": ("p", at_point(lambda v: v + np.float32(1e-5))),
    "a point moved": ("y", at_point(lambda v: v + np.float32(1e-5))),
    "u at a wall": ("u", lambda v: np.where(np.arange(33) == 32, v + np.float32(1e-5), v)),
    "points moved along": ("x", lambda v: v + np.float32(1e-5)),
    "points moved": ("y", lambda v: v + np.float32(1e-5)),
    "knots of a neighbour": ("knots", lambda v: np.roll(v, 1, axis=0)),
    "knots outside": ("knots", lambda v: v + 0.5),
    "knots without number": ("knots", lambda v: np.where(np.arange(9) == 3, np.nan, v)),
    "error": ("error", lambda v: -v),
    "error of u": ("error", lambda v: v + 0.5),
    "error of v": ("error_v", lambda v: v * np.nan),
    "error of p": ("error_p", lambda v: -v),
    "flux": ("flux", lambda v: v + 1e-5),
    "divergence": ("divergence", lambda v: v + 1e-8),
    "residual": ("residual", lambda v: v + 1e-7),
    "iterations": ("iterations", lambda v: v - 100),
    "status": ("status", lambda v: v + 1),
}


@pytest.mark.parametrize("name", ["u", "v"])
@pytest.mark.parametrize("place", [(0, 8), (8, 0), (8, -1)], ids=["inlet", "lower", "upper"])
def test_a_velocity_at_the_inlet_or_on_a_wall_is_noticed_by_its_own_bound(quick, name, place):
    problem, values = quick
    changed = values[name].copy()
    changed[:, *place] += np.float32(1e-5)
    (bound,) = (check for check in problem.checks().each
                if check.variable == name and "on the walls" in check.subject)  # fmt: skip
    observed, limit = bound._quantity({**values, name: changed})
    assert (observed > limit).all()
    observed, limit = bound._quantity(values)
    assert (observed <= limit).all()


def test_stated_qualities_are_those_of_the_mesh_and_its_largest_divergence(monkeypatch):
    some = np.random.default_rng(3).standard_normal((1, 17, 17))
    solved, solve = {}, Pipe.solve

    def solving(pipe, *arguments):
        solved[pipe.columns] = solve(pipe, *arguments)
        return solved[pipe.columns]

    monkeypatch.setattr(Pipe, "solve", solving)
    monkeypatch.setattr(Pipe, "divergence", lambda pipe, velocity, centre: some)
    problem = load_recipe("pipe-quick").with_overrides({"problem.resolution": 33}).problem
    values = problem.compute(0, range(1))
    _, residual, iterations = solved[16]
    assert values["divergence"] == [max(map(abs, some.flat))]
    assert (values["residual"], values["iterations"]) == (residual, iterations)


@pytest.mark.parametrize("change", CHANGES)
def test_the_law_notices(quick, change):
    problem, values = quick
    name, changed = CHANGES[change]
    report = findings(problem.checks(), {**values, name: changed(values[name])})
    also = {"knots": {"y"}, "v": {"u", "p"}, "u": {"p"}}.get(name, set())
    assert {finding.variable for finding in report} & {name, *also}


def test_the_law_of_a_finer_solution_notices_other_ones(quick):
    problem, _ = quick
    fine = problem.model_copy(update={"refinement": 2})
    values = fine.compute(0, range(2))
    assert findings(fine.checks(), values) == []
    changed = values["u"].copy()
    changed[:, 8:24, 8:24] *= 1.5
    assert findings(fine.checks(), {**values, "u": changed})
    assert findings(problem.checks(), values)  # no solution on the mesh of the points
