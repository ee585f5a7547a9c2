"""The integrator on each of the equations that are shipped, against exact and other solutions."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import fsolve

from pdegen.equations.semilinear.problem import SemilinearProblem
from pdegen.numerics.semilinear import Semilinear
from pdegen.recipe import load_recipe

# overrides under which the time steps make the error, and 40 samples are solved within a second
SMALL = {
    "kdv": {"dt": 0.004, "problem.solver.resolution": 256, "times": [0.4]},
    "kuramoto-sivashinsky": {"dt": 0.1, "times": [2.0, 4.0]},
    "allen-cahn": {"dt": 0.2, "problem.resolution": 32, "problem.solver.resolution": 64,
                   "diffusion": 0.02, "times": [1.0, 2.0]},
    "fisher-kpp": {"dt": 0.05, "times": [0.2, 0.4]},
    "swift-hohenberg": {"dt": 0.1, "modes": 5, "problem.resolution": 32,
                        "problem.solver.resolution": 64, "length": 20.0, "times": [1.0, 2.0]},
    "gray-scott": {"dt": 4.0, "problem.resolution": 32, "problem.solver.resolution": 64,
                   "length": 0.35, "times": [20.0, 40.0]},
    "burgers-2d": {"dt": 0.04, "problem.resolution": 32, "problem.solver.resolution": 64,
                   "diffusion": 0.05, "times": [0.1, 0.2]},
}  # fmt: skip

# steps that are small enough for the order to be seen; Swift-Hohenberg has modes that decay within
# a step, of which the order is less until steps are short
SHORT = {"kdv": 0.004, "swift-hohenberg": 0.0125, "gray-scott": 2.5, "burgers-2d": 0.0125}


def small(name, **overrides):
    return load_recipe(name).with_overrides({**SMALL[name], "tolerance": 1e3, **overrides}).problem


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
    return problem.terms.solver(problem.torus, solver.dt or np.inf, solver.tolerance, None)


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
    u0 = problem.initial.values(problem.torus, len(problem.components), 0, samples, None)
    return problem.torus.to_modes(u0), solver_of(problem)


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


# each term, at the points


def waves(problem, seed=0):
    """A smooth function of each component, and its derivatives along the axes, exactly."""
    rng, x = np.random.default_rng(seed), points(problem)
    u = np.zeros((1, len(problem.components), *x[0].shape))
    slopes = [np.zeros_like(u) for _ in x]
    for component in range(u.shape[1]):
        for _ in range(4):
            k = 2 * np.pi / problem.length * rng.integers(-2, 3, len(x))
            phase = sum(a * b for a, b in zip(k, x, strict=True)) + rng.uniform(0, 6)
            size = rng.uniform(-0.5, 0.5)
            u[0, component] += size * np.cos(phase)
            for slope, a in zip(slopes, k, strict=True):
                slope[0, component] -= size * a * np.sin(phase)
    return u, slopes


def rate(problem, u):
    torus = problem.torus
    return torus.to_points(problem.terms.nonlinear(torus)(torus.to_modes(u)))


PLANE = {"dimension": 2, "resolution": 32, "length": 3.0,
         "solver": {"resolution": 32, "dt": 1e-4}}  # fmt: skip
PAIR = {**PLANE, "components": ["u", "v"]}


def test_a_velocity_is_convected_by_itself():
    problem = declared(**PAIR, nonlinear={"convection": 1.5})
    u, (dx, dy) = waves(problem)
    np.testing.assert_allclose(rate(problem, u), -1.5 * (u[:, :1] * dx + u[:, 1:] * dy), atol=1e-12)


def test_a_velocity_in_conservative_form_is_half_the_divergence_of_its_products():
    problem = declared(**PAIR, nonlinear={"conservative_convection": 1.5})
    u, (dx, dy) = waves(problem)
    divergence = dx[:, :1] + dy[:, 1:]
    expected = -0.75 * (u[:, :1] * dx + u[:, 1:] * dy + u * divergence)
    np.testing.assert_allclose(rate(problem, u), expected, atol=1e-12)


@pytest.mark.parametrize("term", ["convection", "conservative_convection"])
def test_a_component_alone_is_convected_along_the_diagonal(term):
    problem = declared(**PLANE, nonlinear={term: 1.5})
    u, (dx, dy) = waves(problem)
    np.testing.assert_allclose(rate(problem, u), -1.5 * u * (dx + dy), atol=1e-12)


def test_the_gradient_norm_of_each_component():
    problem = declared(**PAIR, nonlinear={"gradient_norm": [1.5, -2.0]})
    u, (dx, dy) = waves(problem)
    factor = np.reshape([-0.75, 1.0], (1, 2, 1, 1))
    np.testing.assert_allclose(rate(problem, u), factor * (dx**2 + dy**2), atol=1e-12)


REACTION = [
    {"of": "u", "coefficient": 0.3, "powers": [0, 0]},
    {"of": "u", "coefficient": -2.0, "powers": [0, 1]},
    {"of": "u", "coefficient": 1.5, "powers": [2, 1]},
    {"of": "v", "coefficient": -0.5, "powers": [2, 1]},
]


@pytest.mark.parametrize("more", [[], [{"of": "v", "coefficient": 0.7, "powers": [0, 3]}]])
def test_a_reaction_of_monomials(more):
    problem = declared(
        **PAIR, nonlinear={"reaction": [*REACTION, *more], "gradient_norm": [0, 1.0]}
    )
    values, (dx, dy) = waves(problem)
    u, v = values[:, 0], values[:, 1]
    expected = np.stack([0.3 - 2 * v + 1.5 * u**2 * v, -0.5 * u**2 * v + 0.7 * len(more) * v**3], 1)
    expected[:, 1] -= 0.5 * (dx**2 + dy**2)[:, 1]
    np.testing.assert_allclose(rate(problem, values), expected, atol=1e-12)


def test_what_is_linear_in_its_component_is_integrated_exactly():
    growth = [{"of": "u", "coefficient": 0.7, "powers": [1]}]
    problem = declared(nonlinear={"reaction": growth}, solver={"resolution": 32})
    assert problem.terms.diagonal
    assert problem.torus.degree == 1
    u0 = waves(problem)[0]
    u = solved(problem, u0)[0][:, 0]
    np.testing.assert_allclose(u, np.exp(0.7) * u0, rtol=1e-13)


# exact solutions


@pytest.mark.parametrize(
    ("term", "coefficient", "factor"),
    [
        ("advection", 0.4, lambda k: -0.4j * k),
        ("diffusion", 0.03, lambda k: -0.03 * k**2),
        ("dispersion", 0.002, lambda k: 0.002j * k**3),
        ("hyper_diffusion", 1e-4, lambda k: -1e-4 * k**4),
        ("drag", 0.5, lambda k: -0.5 + 0 * k),
    ],
)
def test_a_linear_term_acts_on_each_mode_with_the_sign_that_is_said(term, coefficient, factor):
    problem = declared(linear={term: coefficient}, length=2.0, solver={"resolution": 32})
    (x,), k = points(problem), 3 * np.pi
    u = solved(problem, np.cos(k * x)[None, None], [0.7])[0]
    exact = np.real(np.exp(factor(k) * 0.7 + 1j * k * x))
    np.testing.assert_allclose(u[0, 0, 0], exact, atol=1e-13)


def test_the_square_is_advected_along_both_axes_at_their_speeds():
    lists = [[1.0, -0.5], [0.0, 2.0]]
    problem = declared(**(PAIR | {"solver": {"resolution": 32}}), linear={"advection": lists})
    x, y = points(problem)

    def wave(x, y):
        return np.sin(2 * np.pi * (x + 2 * y) / 3)

    u = solved(problem, np.stack([wave(x, y)] * 2)[None], [0.6])[0][0, 0]
    np.testing.assert_allclose(u[0], wave(x - 0.6, y + 0.3), atol=1e-13)
    np.testing.assert_allclose(u[1], wave(x, y - 1.2), atol=1e-13)


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


def attractor(length, points, samples, times):
    """Mean energy <u²>/2, production <u_x²> and dissipation <u_xx²>, over samples and times, and
    the standard error of the first."""
    overrides = {"length": length, "problem.solver.resolution": points,
                 "problem.resolution": points, "modes": 8, "sigma": 100.0, "tau": 20.0,
                 "tolerance": 1e9, "dt": 0.1}  # fmt: skip
    problem = load_recipe("kuramoto-sivashinsky").with_overrides(overrides).problem
    v0, solver = started(problem, range(samples))
    torus = problem.torus
    square = torus.weights * np.abs(solver.solve(v0, times).v[:, :, 0]) ** 2
    energy = np.sum(square, axis=2) / 2
    means = [float(np.sum(square * (-torus.laplacian) ** p, axis=2).mean()) for p in (1, 2)]
    return energy.mean(), *means, energy.mean(axis=1).std() / np.sqrt(samples)


def test_the_attractor_of_kuramoto_and_sivashinsky_is_in_balance():
    """What is produced is dissipated in the mean; the energy is between those of the equilibria of
    two and three waves. 40 samples of t = 100 to 300 have the mean 0.699, standard error 0.005."""
    energy, production, dissipation, deviation = attractor(22.0, 64, 40, np.arange(100.0, 300.0, 2))
    assert production == pytest.approx(dissipation, rel=0.01)
    assert energy == pytest.approx(0.699, abs=5 * max(deviation, 0.005))


def fisher(rate, diffusion, **tables):
    reaction = [{"of": "u", "coefficient": rate, "powers": [1]},
                {"of": "u", "coefficient": -rate, "powers": [2]}]  # fmt: skip
    linear = {"diffusion": diffusion}
    return declared(linear=linear, nonlinear={"reaction": reaction}, **tables)


def test_the_front_of_fisher_and_kpp_approaches_twice_the_root_of_rate_and_diffusion():
    """v(τ)/2√(rD) = 1 - 3/4τ + 3√π/4τ^(3/2) + O(τ^-2), τ = rt (Bramson 1983; Ebert and van
    Saarloos, Physica D 146, 2000): at τ = 24 the speed is still 3 % less than its limit, which the
    fit of the last term gives. Later the rounding of u = 0 ahead of the front has grown by e^τ."""
    rate, diffusion, length, fine, dt = 4.0, 0.25, 75.0, 2**15, 0.0125
    solver = {"resolution": 1024, "dt": dt, "tolerance": 1e-3}
    problem = fisher(rate, diffusion, length=length, solver=solver)
    (x,) = points(problem)
    tau = np.arange(12.0, 25.0, 2.0)
    times = np.stack([tau / rate - 2 * dt, tau / rate + 2 * dt], axis=1).ravel()
    _, found = solved(problem, np.exp(-4 * (x - length / 2) ** 2)[None, None], times)
    front = []
    for right in problem.torus.to_points(found.v, (fine,))[0, :, 0, fine // 2 :]:
        place = np.flatnonzero(right < 0.5)[0]
        front.append(place - (0.5 - right[place]) / (right[place - 1] - right[place]))
    speed = (np.array(front[1::2]) - front[::2]) * length / fine / (4 * dt)
    speed /= 2 * np.sqrt(rate * diffusion)
    known = -3 / (4 * tau) + 3 * np.sqrt(np.pi) / (4 * tau**1.5)
    _, limit = np.polyfit(tau**-2, speed - known, 1)
    assert speed[-1] < 0.975
    assert limit == pytest.approx(1, abs=0.005)


def test_a_front_of_fisher_and_kpp_that_is_known_exactly():
    """u = (1 + e^(z/√6))^-2, z = x - 5t/√6 (Ablowitz and Zeppetella 1979), on both sides."""
    solver = {"resolution": 1024, "dt": 0.01, "tolerance": 1e-7}
    problem = fisher(1.0, 1.0, length=240.0, solver=solver)
    (x,) = points(problem)

    def fronts(t):
        way = 60.0 + 5 * t / np.sqrt(6)
        return (1 + np.exp((np.abs(x - 120) - way) / np.sqrt(6))) ** -2

    u, _ = solved(problem, fronts(0.0)[None, None], [4.0])
    np.testing.assert_allclose(u[0, 0, 0], fronts(4.0), atol=1e-8)


def test_fronts_between_the_two_stable_states_move_at_the_exact_speed():
    """u_t = u_xx + u(1 - u)(u - 1/4): u = 1/(1 + e^(z/√2)), z = x - t (1 - 2/4)/√2."""
    reaction = [{"of": "u", "coefficient": c, "powers": [p]}
                for p, c in ((1, -0.25), (2, 1.25), (3, -1.0))]  # fmt: skip
    problem = declared(
        length=160.0, linear={"diffusion": 1.0}, nonlinear={"reaction": reaction},
        solver={"resolution": 512, "dt": 0.05, "tolerance": 1e-6},
    )  # fmt: skip
    (x,) = points(problem)

    def fronts(way):
        left, right = (1 / (1 + np.exp(s * (x - 80) / np.sqrt(2) - way)) for s in (-1, 1))
        return left * right

    start, speed = 40 / np.sqrt(2), (1 - 2 / 4) / 2
    u, _ = solved(problem, fronts(start)[None, None], [8.0])
    np.testing.assert_allclose(u[0, 0, 0], fronts(start + 8 * speed), atol=2e-8)


@pytest.mark.parametrize("across", [2, 3, 4])
def test_small_waves_of_swift_and_hohenberg_grow_as_the_linear_theory_says(across):
    problem = small("swift-hohenberg", dt=0.1)
    x, y = points(problem)
    k = 2 * np.pi * across / problem.length
    wave = 1e-7 * np.cos(k * x) + 0 * y
    _, found = solved(problem, wave[None, None], [2.0])
    growth = np.log(found.v[0, 0, 0, across, 0].real / 0.5e-7) / 2.0
    assert growth == pytest.approx(0.7 - (1 - k**2) ** 2, abs=1e-6)


@pytest.mark.parametrize("name", ["allen-cahn", "swift-hohenberg"])
def test_the_functional_of_a_gradient_flow_falls(name):
    problem = small(name)
    times = np.arange(1, 20) * problem.times[-1] / 4
    v0, solver = started(problem, range(3))
    v, torus = solver.solve(v0, list(times)).v, problem.torus
    u = torus.to_points(v)
    linear = problem.terms.linear(torus)
    quartic, cubic = u**4 / 4, u**3 / 3 * (name == "swift-hohenberg")
    energy = (quartic - cubic).mean(axis=(2, 3, 4))
    energy -= np.sum(torus.weights * linear * np.abs(v) ** 2, axis=(2, 3, 4)) / 2
    assert (np.diff(energy, axis=1) < 0).all()


def test_gray_and_scott_without_space_is_an_ordinary_equation():
    problem = small("gray-scott", dt=0.25, tolerance=1e-6)
    u0, v0 = 0.6, 0.3
    start = np.ones((1, 2, *problem.torus.points)) * np.reshape([u0, v0], (1, 2, 1, 1))

    def of(t, w):
        u, v = w
        return [0.04 * (1 - u) - u * v**2, u * v**2 - 0.1 * v]

    exact = solve_ivp(of, (0, 50.0), [u0, v0], rtol=1e-11, atol=1e-12).y[:, -1]
    u, _ = solved(problem, start, [50.0])
    np.testing.assert_allclose(u[0, 0, :, 0, 0], exact, rtol=1e-7)
    assert np.ptp(u, axis=(3, 4)).max() < 1e-14


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


def test_a_potential_velocity_is_that_of_cole_and_hopf():
    """u = -2ν∇φ/φ solves uₜ + (u·∇)u = νΔu where φ solves the heat equation."""
    nu, t = 0.02, 0.5
    problem = declared(
        dimension=2, components=["u", "v"], linear={"diffusion": nu},
        nonlinear={"convection": 1.0}, solver={"resolution": 64, "dt": 0.01, "tolerance": 1e-7},
    )  # fmt: skip
    x, y = points(problem)
    k = 2 * np.pi

    def velocity(t):
        one, two = np.exp(-nu * k**2 * t), 0.5 * np.exp(-2 * nu * k**2 * t)
        phi = 3 + one * (np.cos(k * x) + np.sin(k * y)) + two * np.cos(k * (x + y))
        dx = -k * one * np.sin(k * x) - k * two * np.sin(k * (x + y))
        dy = k * one * np.cos(k * y) - k * two * np.sin(k * (x + y))
        return -2 * nu * np.stack([dx, dy]) / phi

    u, found = solved(problem, velocity(0.0)[None], [t])
    assert np.linalg.norm(u[0, 0] - velocity(t)) < 2e-8 * np.linalg.norm(velocity(t))
    assert found.error.max() < 1e-7
