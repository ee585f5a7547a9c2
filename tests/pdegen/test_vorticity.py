import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.equations.base import SampleError
from pdegen.equations.vorticity.problem import Vorticity
from pdegen.equations.vorticity.solver import Flow
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe
from tests.pdegen.small import FLOW
from tests.pdegen.test_checks import findings
from tests.validation.vorticity import initial


def square(n):
    return Torus((PeriodicGrid(n),) * 2)


def followed(flow, v, times, dt, tolerance=1e-3):
    found = flow.solver(v, dt, tolerance).solve(v, times)
    return flow.torus.to_points(found.v[0, :, 0]), found


# figures of an independent solver (integrating factor, Runge-Kutta of order 4, float64)

FIGURES = [  # viscosity, points, dt, then t, rms of w, w(0, 0), w(1/4, 1/2)
    pytest.param(1e-3, 64, 0.02, 1, 0.301238344, 0.46029421, 0.49492940, 5e-9),
    pytest.param(1e-3, 64, 0.02, 10, 0.692252776, 0.71948640, -0.67411576, 5e-9),
    pytest.param(1e-4, 128, 0.02, 1, 0.362959475, 0.56472856, 0.59022000, 5e-9),
    *(pytest.param(*figures, marks=pytest.mark.slow) for figures in (
        (1e-3, 64, 0.02, 30, 1.115145987, 1.43228520, -1.18008283, 5e-9),
        (1e-3, 64, 0.02, 50, 0.933870651, 1.69761807, -1.37992488, 5e-9),
        (1e-4, 128, 0.01, 10, 0.988324609, 1.35166542, -0.77946171, 5e-9),
        (1e-4, 128, 0.01, 20, 1.726005613, 2.472522, -1.968867, 5e-7))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("viscosity", "n", "dt", "t", "rms", "corner", "inside", "digits"), FIGURES
)
def test_the_flow_has_the_figures_of_an_independent_solver(
    viscosity, n, dt, t, rms, corner, inside, digits
):
    flow = Flow(square(n), viscosity, amplitude=0.1)
    (frame,), _ = followed(flow, initial(flow.torus), [t], dt)
    assert np.sqrt(np.mean(frame**2)) == pytest.approx(rms, abs=1.5e-9)
    assert frame[0, 0] == pytest.approx(corner, abs=digits * 1.5)
    assert frame[n // 4, n // 2] == pytest.approx(inside, abs=digits * 1.5)


def test_without_viscosity_and_force_energy_and_enstrophy_are_kept():
    flow = Flow(square(48), 1e-13)
    v = initial(flow.torus)
    _, found = followed(flow, v, [0.5, 1.0], 0.005)
    before, after = flow.energies(v[:, None]), flow.energies(found.v)
    np.testing.assert_allclose(after, np.broadcast_to(before, after.shape), rtol=1e-9)


def test_energy_and_enstrophy_follow_their_budgets():
    flow = Flow(square(64), 1e-3, amplitude=0.1)
    v = initial(flow.torus)
    errors = []
    for dt in (0.04, 0.02):
        _, found = followed(flow, v, [1.0, 2.0], dt)
        change = flow.energies(found.v) - flow.energies(v[:, None])
        errors.append(np.abs(change - found.integrals).max())
    assert errors[1] < 1e-8
    assert np.log2(errors[0] / errors[1]) > 3.5  # Simpson's rule is of order 4


def test_a_flow_of_several_forces_and_viscosities_is_that_of_each_alone(monkeypatch):
    monkeypatch.setattr(  # as if the samples did not fit in the cache together
        "pdegen.numerics.semilinear.blocks",
        lambda count, *_: [slice(k, min(k + 2, count)) for k in range(0, count, 2)],
    )
    amplitude, viscosity = np.array([0.1, 0.3, -0.2]), np.array([1e-3, 4e-3, 2e-3])
    torus = square(24)
    v = np.repeat(initial(torus), 3, axis=0)
    together = Flow(torus, viscosity, amplitude).solver(v, 0.05, 1.0).solve(v, [0.5])
    for k in range(3):
        flow = Flow(torus, float(viscosity[k]), float(amplitude[k]))
        alone = flow.solver(v[:1], 0.05, 1.0).solve(v[:1], [0.5])
        np.testing.assert_array_equal(together.v[k], alone.v[0])
        np.testing.assert_array_equal(together.integrals[k], alone.integrals[0])


def test_the_order_in_time_is_four():
    flow = Flow(square(32), 1e-3, amplitude=0.1)
    v = initial(flow.torus)
    last = [followed(flow, v, [1.0], dt)[0][0] for dt in (1 / 8, 1 / 16, 1 / 32, 1 / 64)]
    errors = [np.abs(w - last[-1]).max() for w in last[:-1]]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.3)


# the recipe's problem

SMALL = {
    "equation": "vorticity",
    "viscosity": 1e-3,
    "times": [0.5, 1.0, 2.0],
    "resolution": 32,
    "initial": {
        "law": "torus-gaussian", "sigma": 26.2, "tau": 7.0, "alpha": 2.5, "modes": 15,
    },
    "force": {"amplitude": 0.1},
    "solver": {"resolution": 48, "dt": 0.05, "tolerance": 5e-4},
}  # fmt: skip


def problem(**changes):
    content = {**SMALL, **{k: v for k, v in changes.items() if k not in ("solver", "initial")}}
    for table in ("solver", "initial"):
        content[table] = {**SMALL[table], **changes.get(table, {})}
    return Vorticity.parse(content, "problem")


@pytest.mark.parametrize("restriction", ["fourier", "stride"])
def test_a_finer_output_samples_the_same_flow(restriction):
    coarse = problem(resolution=24, initial={"modes": 11}, restriction=restriction)
    fine = problem(resolution=48, initial={"modes": 11}, restriction=restriction)
    found, refined = (p.solve(0, range(2)) for p in (coarse, fine))
    for name in "au":
        # the flow soon has modes that 24 points do not hold: Fourier restriction leaves them out
        atol = 1e-6 if restriction == "stride" or name == "a" else 2e-2
        np.testing.assert_allclose(found[name], refined[name][..., ::2, ::2], atol=atol)


@pytest.mark.parametrize("samples", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_the_error_estimate_is_near_the_error(samples):
    """Against twice the points and half the step, at three times."""
    field, times = problem().initial.build(), [1.0, 2.0, 4.0]

    def followed(n, dt):
        flow = Flow(square(n), 1e-3, amplitude=0.1)
        v = field.coefficients(flow.torus, 0, range(samples))[:, None]
        found = flow.solver(v, dt, 1e-2).solve(v, times)
        return flow.torus.to_points(found.v[:, :, 0], (96, 96)), found.error

    (w, estimate), (exact, _) = followed(48, 0.05), followed(96, 0.025)
    error = np.linalg.norm(w - exact, axis=(2, 3)) / np.linalg.norm(exact, axis=(2, 3))
    ratio = estimate / error
    assert np.mean((ratio > 1 / 3) & (ratio < 3)) >= 0.95


def values(**changes):
    return problem(**changes), problem(**changes).solve_in_blocks(0, range(40))


def test_the_law_accepts_its_own_samples_and_refuses_others():
    one, found = values()
    assert not findings(one.checks(), found)
    for name, change in {
        "u": lambda v: np.roll(v, 1, axis=0),  # of another sample
        "a": lambda v: 1.1 * v,
        "error": lambda v: v + 1e-3,
        "budget": lambda v: v + 1e-2,
        "work": lambda v: -v,
    }.items():
        assert findings(one.checks(), {**found, name: change(found[name])}), name
    assert findings(one.checks(), {**found, "u": found["u"] + 1e-3})


def test_the_law_asks_for_no_certificate_where_the_flow_is_not_predictable():
    changes = {"solver": {"tolerance": 4e-4, "certified": 1.0}}
    one, found = values(**changes)
    found["error"][:, 2] = 0.5
    assert not findings(one.checks(), found)
    found["error"][0, 1] = 0.5
    assert findings(one.checks(), found)


def test_the_sample_that_violates_a_budget_is_named(monkeypatch):
    violation = np.array([1e-4, 2e-3, 3e-3])
    monkeypatch.setattr("pdegen.equations.vorticity.problem._violation", lambda *_: violation)
    with pytest.raises(SampleError, match=r"sample 6: the budgets .* are violated by 0\.002"):
        problem().compute(0, range(5, 8))


def test_a_sample_that_misses_the_tolerance_is_named():
    with pytest.raises(SampleError, match=r"sample 7: the error exceeds 1e-12 .*finer grid"):
        problem(solver={"tolerance": 1e-12}).solve_in_blocks(0, range(7, 8))


@pytest.mark.parametrize("shift", [1e-3, -1e-3])
def test_a_mean_of_either_sign_is_found(shift):
    problem = load_recipe("ns-1e-3").with_overrides(FLOW).problem
    values = problem.compute(0, range(2))
    assert findings(problem.checks_of_store(), values) == []
    moved = {**values, "u": values["u"] + np.float32(shift)}
    assert any("mean" in one.message for one in findings(problem.checks_of_store(), moved))
