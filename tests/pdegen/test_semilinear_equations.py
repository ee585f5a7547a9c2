"""The integrator on each of the equations that are shipped, against exact and other solutions."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import fsolve

from pdegen.equations.semilinear.problem import SemilinearProblem
from pdegen.equations.semilinear.solver import integrator, projection
from pdegen.numerics.semilinear import Semilinear
from pdegen.recipe import load_recipe
from tests.pdegen.small import SEMILINEAR

# steps that are small enough for the order to be seen; Swift-Hohenberg has modes that decay within
# a step, of which the order is less until steps are short
SHORT = {"kdv": 0.004, "swift-hohenberg": 0.0125, "gray-scott": 2.5, "burgers-2d": 0.0125}


def small(name, **overrides):
    overrides = {**SEMILINEAR[name], "tolerance": 1e3, **overrides}
    return load_recipe(name).with_overrides(overrides).problem


def declared(**tables):
    """A problem that is declared by its terms; what is not said does not matter to the test."""
    content = {
        "equation": "semilinear",
        "times": [1.0],
        "resolution": 32,
        "initial": {"law": "gaussian", "sigma": 1.0, "tau": 1.0, "alpha": 2.0, "modes": 2},
        **tables,
    }
    return SemilinearProblem.parse(content, "problem")


def solver_of(problem) -> Semilinear:
    solver = problem.solver
    dt = solver.dt or np.inf
    return integrator([problem.terms], problem.torus, dt, solver.tolerance, None)


def solved(problem, u0, times=None):
    """Values of u at the times, from values at the points of the solver, and the trajectory."""
    torus = problem.torus
    found = solver_of(problem).solve(
        torus.to_modes(u0), list(problem.times if times is None else times)
    )
    return torus.to_points(found.v), found


def points(problem):
    return np.meshgrid(*[grid.x for grid in problem.torus.grids], indexing="ij")


def started(problem, samples):
    """Modes of the initial values, and the solver."""
    torus, walled = problem.torus, problem.walls == "no-flow"
    u0 = problem.initial.values(torus, len(problem.components), 0, samples, None, walled)
    v0 = torus.to_modes(u0)
    if problem.nonlinear.projection:
        v0 = np.einsum("ij...,bj...->bi...", projection(torus), v0)
    return v0, solver_of(problem)


def distance(torus, v, w):
    """Relative L² distance of all components, at each time."""
    axes = tuple(range(2, v.ndim))
    size = np.sum(torus.weights * np.abs(w) ** 2, axis=axes)
    return np.sqrt(np.sum(torus.weights * np.abs(v - w) ** 2, axis=axes) / size)


# the integrator: dispersion, growing waves, two components with a reaction, and a velocity


@pytest.mark.parametrize("name", SHORT)
def test_the_order_in_time_is_four(name):
    found = []
    for factor in (1, 2, 8):
        problem = small(name, dt=SHORT[name] / factor)
        v0, solver = started(problem, range(3))
        found.append(solver.solve(v0, list(problem.times)).v)
    errors = [distance(problem.torus, v, found[2])[:, -1] for v in found[:2]]
    assert errors[1].max() > 1e-11  # not round-off
    assert np.median(np.log2(errors[0] / errors[1])) == pytest.approx(4, abs=0.3)


@pytest.mark.parametrize("name", SHORT)
def test_the_error_estimate_is_within_a_factor_of_three(name):
    """Of the difference to a solution that is twice as fine in space and time."""
    problem = small(name)
    fine = problem.solver.resolution * 2
    finer = small(name, **{"dt": problem.solver.dt / 2, "problem.solver.resolution": fine})
    v0, solver = started(problem, range(16))
    found = solver.solve(v0, list(problem.times))
    v0, solver = started(finer, range(16))
    reference = solver.solve(v0, list(problem.times)).v
    on_fine = finer.torus.to_modes(problem.torus.to_points(found.v, finer.torus.points))
    error = distance(finer.torus, on_fine, reference)
    ratio = found.error.max(axis=1) / error.max(axis=1)
    assert np.mean((ratio > 1 / 3) & (ratio < 3)) >= 0.9, np.sort(ratio)


def test_what_is_linear_in_its_component_is_integrated_exactly():
    growth = [{"of": "u", "coefficient": 0.7, "powers": [1]}]
    problem = declared(nonlinear={"reaction": growth}, solver={"resolution": 32})
    assert problem.terms.diagonal
    assert problem.torus.degree == 1
    (x,) = points(problem)
    u0 = 2 + np.sin(2 * np.pi * x)[None, None]
    u = solved(problem, u0)[0][:, 0]
    np.testing.assert_allclose(u, np.exp(0.7) * u0, rtol=1e-13)


# exact solutions


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_a_soliton_of_korteweg_and_de_vries(speed):
    """u = (c/2) sech²(√c (x - ct)/2); on a circle of 40 the next one is e^(-40√c/2) away."""
    terms = {"linear": {"dispersion": 1.0}, "nonlinear": {"convection": 6.0}}
    problem = declared(
        **terms, length=40.0, solver={"resolution": 512, "dt": 1e-3, "tolerance": 1e-8}
    )

    def soliton(x):
        return speed / 2 / np.cosh(np.sqrt(speed) / 2 * ((x + 20) % 40 - 20)) ** 2

    (x,) = points(problem)
    u, found = solved(problem, soliton(x - 15.0)[None, None], [1.0])
    exact = soliton(x - 15.0 - speed)
    error = np.linalg.norm(u[0, 0, 0] - exact) / np.linalg.norm(exact)
    assert error < 1e-8
    if speed > 1:
        assert found.error.max() == pytest.approx(error, rel=0.5)


def test_the_equilibria_of_kuramoto_and_sivashinsky():
    """The energies <u²>/2 on a circle of 22, of table 1 of Cvitanovic, Davidchack and Siminos,
    SIAM J. Appl. Dyn. Syst. 9 (2010): 0.2609, 0.4382, 1.5876, of one, two and three waves."""
    overrides = {"length": 22.0, "problem.solver.resolution": 64, "problem.resolution": 64}
    problem = load_recipe("kuramoto-sivashinsky").with_overrides(overrides).problem
    torus, nonlinear = problem.torus, problem.terms.nonlinear(problem.torus)
    linear = problem.terms.linear(torus)

    def of(c):  # odd functions have imaginary modes
        v = np.concatenate([[0], 1j * c])[None, None]
        return (linear * v + nonlinear(v))[0, 0, 1:].imag

    rng, found = np.random.default_rng(0), set()
    for trial in range(30):
        c = 0.1 * rng.normal(size=torus.highest[0]) * (np.arange(torus.highest[0]) < 6)
        c[trial % 3] -= rng.uniform(0.3, 1.2)
        c, _, converged, _ = fsolve(of, c, full_output=True)
        if converged == 1 and np.abs(of(c)).max() < 1e-10:
            found.add(round(float(np.sum(c**2)), 4))
    assert found - {0.0} == {0.2609, 0.4382, 1.5876}


@pytest.mark.parametrize("across", [2, 3, 4])
def test_small_waves_of_swift_and_hohenberg_grow_as_the_linear_theory_says(across):
    problem = small("swift-hohenberg", dt=0.1)
    x, y = points(problem)
    k = 2 * np.pi * across / problem.length
    wave = 1e-7 * np.cos(k * x) + 0 * y
    _, found = solved(problem, wave[None, None], [2.0])
    growth = np.log(found.v[0, 0, 0, across, 0].real / 0.5e-7) / 2.0
    assert growth == pytest.approx(0.7 - (1 - k**2) ** 2, abs=1e-6)


def test_gray_and_scott_in_space_agrees_with_another_integrator():
    """Explicit Runge-Kutta of order 8 on the values at the points, whose products are aliased."""
    old = load_recipe("gray-scott").problem
    problem = declared(
        components=["u", "v"], length=0.5, linear=old.linear.model_dump(),
        nonlinear={"reaction": [m.model_dump() for m in old.nonlinear.reaction]},
        solver={"resolution": 256, "dt": 0.25, "tolerance": 1e-5},
    )  # fmt: skip
    (x,), n = points(problem), 256
    bump = np.exp(-(((x - 0.25) / 0.08) ** 2))
    start = np.stack([1 - 0.5 * bump, 0.3 * bump * (1 + 0.2 * np.sin(4 * np.pi * x))])
    square = (2 * np.pi * np.arange(n // 2 + 1) / 0.5) ** 2
    coefficients = np.array([[2e-5], [1e-5]])

    def of(t, w):
        u, v = w.reshape(2, n)
        diffused = np.fft.irfft(-square * coefficients * np.fft.rfft(w.reshape(2, n)), n=n)
        reaction = np.stack([0.04 * (1 - u) - u * v**2, u * v**2 - 0.1 * v])
        return (diffused + reaction).ravel()

    exact = solve_ivp(of, (0, 100.0), start.ravel(), "DOP853", rtol=1e-10, atol=1e-12).y[:, -1]
    u, _ = solved(problem, start[None], [100.0])
    np.testing.assert_allclose(u[0, 0], exact.reshape(2, n), atol=1e-7)
