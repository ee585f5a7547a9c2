"""Poisson's and Helmholtz' equation: two stencils, the law of the sources, the exact posterior."""

from functools import cache

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import spsolve

from pdegen.equations.poisson.inversion import MEMBERS, SourceInversion, SourcePrior, strided
from pdegen.equations.poisson.problem import PoissonEquation
from pdegen.equations.poisson.solver import SineSolver
from pdegen.generation.generate import generate
from pdegen.inverse.classical import InverseProblem
from pdegen.recipe import load_recipe
from pdegen.sampling.noise import SENSORS
from pdegen.schema import SchemaError
from tests.pdegen.small import problem, samples
from tests.pdegen.test_checks import findings
from tests.stores import objects_of

PUBLISHED = ("poisson-128-published", "helmholtz-128-published")
RNG = np.random.default_rng(0)


def manufactured(n, k):
    """u = x(1-x) y(1-y) e^(x+2y), which is no finite sum of sines, and Δu + k²u."""
    x, y = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n), indexing="ij")
    p, q, e = x * (1 - x), y * (1 - y), np.exp(x + 2 * y)
    u_xx = (p + 2 * (1 - 2 * x) - 2) * q * e
    u_yy = (4 * q + 4 * (1 - 2 * y) - 2) * p * e
    return p * q * e, u_xx + u_yy + k**2 * p * q * e


def matrix(n, k):
    """Five points at the inner nodes and the identity on the walls, as a sparse matrix."""
    inner = np.zeros((n, n), bool)
    inner[1:-1, 1:-1] = True
    second = sparse.diags([1.0, -2.0, 1.0], [-1, 0, 1], shape=(n, n)) * (n - 1) ** 2
    both = sparse.kron(second, sparse.eye(n)) + sparse.kron(sparse.eye(n), second)
    on = sparse.diags(inner.ravel().astype(float))
    return (on @ (both + k**2 * sparse.eye(n * n)) + sparse.eye(n * n) - on).tocsc(), inner


@pytest.mark.parametrize("k", [0.0, 1.0, 12.0])
def test_five_points_are_those_of_a_sparse_elimination(k):
    a, inner = matrix(24, k)
    f = RNG.standard_normal((24, 24))
    expected = spsolve(a, np.where(inner, f, 0).ravel()).reshape(24, 24)
    found = SineSolver(24, k, compact=False)(f)
    # rounding of the elimination times the condition, 24² · 4/π²
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * abs(expected).max())


@pytest.mark.parametrize("k", [0.0, 6.0])
@pytest.mark.parametrize(("compact", "order"), [(False, 2), (True, 4)])
def test_the_order_is_that_of_the_stencil(compact, order, k):
    errors = []
    for n in (17, 33, 65):
        u, f = manufactured(n, k)
        errors.append(abs(SineSolver(n, k, compact)(f) - u).max())
    # the factor of two grids; k = 6 is between two resonances
    assert np.log2(errors[1] / errors[2]) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("compact", [False, True])
def test_the_residual_and_the_transpose_are_those_of_the_map(compact):
    solver = SineSolver(20, 3.0, compact)
    f, v = RNG.standard_normal((2, 3, 20, 20))
    u = solver(f)
    assert abs(solver.residual(u, f)).max() < 1e-11  # h⁻² = 361 times rounding
    assert abs(solver.residual(u, v)).max() > 1
    np.testing.assert_allclose(np.vdot(u, v), np.vdot(f, solver.transposed(v)), rtol=1e-12)


def test_the_solution_has_the_energy_of_its_source():
    """∫ f u + ∫ |∇u|² = 0 for k = 0, by the sums of the five-point stencil."""
    n = 40
    f = RNG.standard_normal((n, n))
    u = SineSolver(n, 0.0, compact=False)(f)
    energy = sum((np.diff(u, axis=axis) ** 2).sum() for axis in (0, 1)) * (n - 1) ** 2
    assert -(f * u).sum() == pytest.approx(energy, rel=1e-12)


def small(name, **changes):
    recipe = load_recipe(name).with_overrides({f"problem.{key}": v for key, v in changes.items()})
    assert isinstance(recipe.problem, PoissonEquation)
    return recipe.problem


@pytest.mark.parametrize("name", ["poisson-quick", *PUBLISHED])
def test_errors_are_those_to_a_much_finer_solution(name):
    one = small(name, resolution=33)
    field, n = one.field.build(), one.resolution
    basis = field.modes_at(one.field.positions(n, finer=8))
    values = one.compute(0, range(5))
    for row in range(5):
        f = basis @ field.coefficients(0, [row])[0] @ basis.T
        exact = SineSolver(8 * (n - 1) + 1, one.wave_number, compact=True)(f)[::8, ::8]
        true = np.linalg.norm(values["u"][row] - exact) / np.linalg.norm(exact)
        # modes that the nodes do not resolve limit the extrapolation
        assert values["error"][row] == pytest.approx(true, rel=0.2)


def test_published_sources_are_values_of_cell_centres_on_nodes():
    poisson, helmholtz = (small(name, resolution=20) for name in PUBLISHED)
    values = poisson.compute(3, range(2))["a"]
    p = np.pi * np.arange(128)
    centres = np.cos(np.outer((np.arange(20) + 0.5) / 20, p)) * np.where(p == 0, 1, np.sqrt(2))
    g = centres @ poisson.field.build().coefficients(3, range(2)) @ centres.T
    np.testing.assert_allclose(values, g, rtol=1e-6, atol=1e-6)
    inside = helmholtz.compute(3, range(2))["a"]
    assert (inside[:, 1:-1, 1:-1] == values[:, 1:-1, 1:-1]).all()
    assert not inside[:, helmholtz.domain.boundary].any()


@pytest.mark.parametrize("name", ["poisson-quick", "helmholtz-128-published"])
@pytest.mark.parametrize(
    ("variable", "changed", "message"),
    [
        ("a", lambda a: a * np.float32(1.5), "statistics of the Gaussian field"),
        ("a", lambda a: a + np.float32(1e-2) * (a != 0), "the residual of the difference"),
        ("a", lambda a: a[[0, 0, *range(2, 8)]], "is the same as sample 0"),
        ("u", lambda u: u[[1, 0, *range(2, 8)]], "the residual of the difference equation"),
        ("u", lambda u: u * np.float32(1.001), "the residual of the difference equation"),
        ("u", lambda u: u + np.float32(1e-6), "on the walls"),
    ],
)
def test_the_law_notices_changed_values(name, variable, changed, message):
    stored = {one: values[:8] for one, values in samples(name).items()}
    assert findings(problem(name).checks(), stored) == []
    report = findings(problem(name).checks(), {**stored, variable: changed(stored[variable])})
    assert any(message in finding.message for finding in report)


def test_two_workers_write_the_bits_of_one(tmp_path):
    recipe = load_recipe("poisson-quick").with_overrides({"samples": 6, "shard": 2})
    one, two = (
        {key: data for key, data in objects_of(store).items() if key[:4] in ("a/c/", "u/c/")}
        for store in (generate(recipe, str(tmp_path / f"{n}"), workers=n) for n in (1, 2))
    )
    assert len(one) == 6  # shards
    assert one == two


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wave_number": 4.4429}, "wave_number = 4.4429 is near a resonance"),
        ({"wave_number": 20.0}, "is near a resonance"),
        ({"wave_number": -1.0}, "wave_number: must be at least 0"),
        ({"field.edges": "zero"}, "field.edges = zero needs solver.stencil = five-point"),
        ({"field.points": "centre"}, "'nodes' or 'centres'"),
        ({"solver.stencil": "nine-point"}, "'compact' or 'five-point'"),
        ({"resolution": 3}, "resolution: must be at least 4"),
    ],
)
def test_what_cannot_be_solved_is_refused(changes, message):
    with pytest.raises(SchemaError, match=message):
        small("poisson-quick", **changes)


# The exact posterior.


def inverse_problem(one, mask, training=40):
    values = one.compute(0, range(training))
    x = np.linspace(0, 1, one.resolution)
    return InverseProblem(x, values["a"].astype(float), values["u"].astype(float), mask)


@pytest.mark.parametrize("name", ["poisson-quick", "helmholtz-128-published"])
def test_the_posterior_is_that_of_bayes_formula_with_dense_matrices(name):
    """A by sparse elimination or by unit sources, C from the modes one by one."""
    n = 9
    one = small(name, resolution=n, **{"field.modes": 7})
    mask = np.zeros((n, n), bool)
    mask[2:8:2, 1:8:3] = True
    unit = np.eye(n * n).reshape(-1, n, n)
    if one.solver.stencil == "five-point":
        a, inner = matrix(n, one.wave_number)
        forward = np.linalg.solve(a.toarray(), np.diag(inner.ravel().astype(float)))
    else:
        forward = SineSolver(n, 0.0, compact=True)(unit).reshape(n * n, n * n).T
    forward = forward[mask.ravel()]
    field, x = one.field.build(), one.field.positions(n)
    columns = []
    for p in range(7):
        for q in range(7):
            wave = np.outer(np.cos(np.pi * p * x), np.cos(np.pi * q * x))
            columns.append(field.mode_stds[p, q] * np.sqrt(2.0) ** ((p > 0) + (q > 0)) * wave)
    if one.field.edges == "zero":
        for wave in columns:
            wave[one.domain.boundary] = 0
    modes = np.stack([wave.ravel() for wave in columns], axis=1)
    prior = modes @ modes.T
    std = RNG.uniform(0.5, 1.5, mask.sum()) * 1e-3
    gain = prior @ forward.T @ np.linalg.inv(forward @ prior @ forward.T + np.diag(std**2))
    d = RNG.standard_normal(mask.sum()) * 1e-2
    setting = inverse_problem(one, mask)
    estimate = one.inversions(setting)["exact posterior"].with_weight(1.0)(d, std)
    assert (estimate.solves, estimate.converged) == (1 + MEMBERS, True)
    # 1e-12 of the mean square of the data is added to the variance
    np.testing.assert_allclose(estimate.a.ravel(), gain @ d, atol=1e-6 * abs(gain @ d).max())
    covariance = prior - gain @ forward @ prior
    variance = np.maximum(np.diag(covariance), 0)
    np.testing.assert_allclose(estimate.std.ravel() ** 2, variance, atol=1e-7 * variance.max())
    stated = estimate.draws.reshape(MEMBERS, -1)
    z = (stated - gain @ d)[:, variance > 0] / np.sqrt(variance[variance > 0])
    assert abs(np.mean(z**2) - 1) < 0.15  # of dependent points; the spread of 39 draws
    again = one.inversions(setting)["exact posterior"].with_weight(1.0)(d, std)
    np.testing.assert_array_equal(again.draws, estimate.draws)
    inversion = SourceInversion(one.field.prior(n), one._solver, mask, slice(None))
    draws = inversion.draws(d, std, seed=5, members=4000).reshape(4000, -1)
    found = np.cov(draws.T)
    # of 4,000 draws: a deviation of 1/√4000 for the means, √2 times that for the variances
    assert abs(draws.mean(axis=0) - gain @ d).max() < 5 * np.sqrt(variance.max() / 4000)
    assert abs(found - covariance).max() < 8 * variance.max() / np.sqrt(4000)


def test_tikhonov_states_no_deviation_and_errs_more_than_the_exact_posterior():
    one, mask = small("poisson-quick"), RNG.random((33, 33)) < 0.1
    methods = one.inversions(inverse_problem(one, mask))
    tests = one.compute(0, range(40, 60))
    std = np.full(int(mask.sum()), 1e-3 * tests["u"].std())
    errors = {}
    for name, method in methods.items():
        data = tests["u"][:, mask] + std * np.random.default_rng(1).standard_normal((20, len(std)))
        of_weights = []
        for weight in method.weights:
            estimates = [method.with_weight(weight)(d, std) for d in data]
            of_weights.append(np.mean([((e.a - a) ** 2).sum() for e, a in
                                       zip(estimates, tests["a"], strict=True)]))  # fmt: skip
            assert all((e.std is None) == (name == "Tikhonov") for e in estimates)
        errors[name] = min(of_weights)
    assert 1 < errors["Tikhonov"] / errors["exact posterior"] < 3


def test_data_at_coarser_nodes_are_inverted_and_too_many_are_refused():
    one = small("poisson-quick")
    values = one.compute(0, range(3))
    a, u = (values[name][:, ::2, ::2].astype(float) for name in ("a", "u"))
    x = np.linspace(0, 1, 17)
    estimate = one.inversions(InverseProblem(x, a, u))["exact posterior"].with_weight(1.0)(
        u[0], np.zeros((17, 17))
    )
    assert np.linalg.norm(estimate.a - a[0]) < 0.15 * np.linalg.norm(a[0])
    with pytest.raises(SchemaError, match=r"poisson inverts data at nodes of 33, .* got 16"):
        strided(33, 16)
    large = small("poisson-quick", resolution=50)
    with pytest.raises(SchemaError, match=r"at most 2,000 sensors, got 2,500 points"):
        large.inversions(inverse_problem(large, None, training=1))
    names = np.empty((0, 50, 50))
    assert list(large.inversions(InverseProblem(np.linspace(0, 1, 50), names, names))) == [
        "exact posterior", "Tikhonov",
    ]  # fmt: skip


def test_the_map_to_the_data_takes_sources_at_fewer_nodes():
    one = small("poisson-quick")
    values = one.compute(0, range(2))
    forward = one.forward(np.linspace(0, 1, 17))
    assert forward is not None
    for a, u in zip(values["a"].astype(float), values["u"], strict=True):
        size = np.abs(u).max()
        # rounding to float32; then the interpolation of a rough source from nodes twice as far
        assert abs(forward(a) - u[::2, ::2]).max() < 1e-6 * size
        assert 1e-4 * size < abs(forward(a[::2, ::2]) - u[::2, ::2]).max() < 2e-2 * size


def test_priors_state_their_modes():
    with pytest.raises(ValueError, match="5 modes"):
        SourcePrior(np.ones((9, 5)), np.ones((4, 4)))


@cache
def sparse_published(name):
    """The inversion of 500 sensors, and 100 samples."""
    one = small(name)
    sensors = SENSORS["diffusionpde"]
    mask = np.zeros(128 * 128, bool)
    mask[sensors.indices] = True
    mask = mask.reshape(128, 128)
    values = one.compute(0, range(100))
    inversion = SourceInversion(one.field.prior(128), one._solver, mask, slice(None))
    return inversion, values["a"].astype(float), values["u"][:, mask].astype(float)


@pytest.mark.parametrize(
    ("name", "relative", "squares"),
    [
        ("poisson-128-published", 0.054, {0.0: 3.186, 0.01: 15.25, 0.1: 54.8}),
        ("helmholtz-128-published", 0.051, {0.0: 2.845}),
    ],
)
def test_the_exact_mean_errs_as_much_as_its_covariance_states(name, relative, squares):
    """100 samples, 500 sensors; noise 1e-6, 0.01 and 0.1 of the root mean square of the data.

    The squares of Poisson's equation are those of a separate prototype.
    """
    inversion, a, u = sparse_published(name)
    xi = np.random.default_rng(2).standard_normal(u.shape)
    size = np.sqrt(np.mean(np.diag(inversion.covariance)))
    for level, expected in squares.items():
        std = np.full(u.shape[1], level * size)
        posterior = inversion.posterior(std)
        mean = posterior.mean(u + std * xi)
        square = ((mean - a) ** 2).sum(axis=(1, 2))
        analytic = (posterior.deviation**2).sum()
        # the standard error of 100 samples is 0.8 % without noise, 1.3 % at 0.1
        assert square.mean() == pytest.approx(analytic, rel=0.02 if level < 0.1 else 0.03)
        assert analytic == pytest.approx(expected, rel=0.02)
        if level == 0:
            errors = np.sqrt(square / (a**2).sum(axis=(1, 2)))
            assert errors.mean() == pytest.approx(relative, abs=0.006)


def test_the_truth_is_a_draw_of_its_posterior():
    """Ranks of 16 block means of 100 samples among 39 draws: the middle 90 % hold 90 %."""
    one = small("poisson-quick")
    mask = np.random.default_rng(0).random((33, 33)) < 0.05
    values = one.compute(0, range(200, 300))
    size = float(values["u"].std())
    inversion = SourceInversion(one.field.prior(33), one._solver, mask, slice(None))
    std = np.full(int(mask.sum()), 0.02 * size)
    xi = np.random.default_rng(1).standard_normal((100, len(std)))

    def blocks(f):
        return f[..., :32, :32].reshape(*f.shape[:-2], 4, 8, 4, 8).mean(axis=(-3, -1))

    ranks = []
    for sample, (a, u) in enumerate(zip(values["a"], values["u"], strict=True)):
        draws = inversion.draws(u[mask] + std * xi[sample], std, seed=sample, members=39)
        ranks.append((blocks(draws) < blocks(a)).sum(axis=0))
    middle = np.mean((np.array(ranks) >= 2) & (np.array(ranks) <= 37))
    assert middle == pytest.approx(0.9, abs=0.02)
