"""Two phases from noisy data, by the law of the interface; and the parts that this is made of."""

from dataclasses import replace

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import grid_models, inversions, noise_level
from pdegen.inverse import phases
from pdegen.inverse.classical import InverseProblem
from pdegen.inverse.gaussian import LowRankCovariance, ModelError, Prior
from pdegen.inverse.phases import LevelSet, PhaseInversion
from pdegen.inverse.tikhonov import newton_step
from pdegen.sampling.gaussian import SquareGaussianField

N, PHASES = 21, (3.0, 12.0)
GRID = CellGrid(N)
FIELD = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 42)


def solved(a):
    """On cells finer by 3."""
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    return FiniteVolume(CellGrid(3 * N))(fine)[:, 1::3, 1::3]


@pytest.fixture(scope="module")
def samples():
    """Coefficients and their solutions."""
    a = np.where(FIELD(GRID, 0, range(120)) >= 0, 12.0, 3.0)
    return a, solved(a)


@pytest.fixture(scope="module")
def fractions(samples):
    return (samples[0] - 3) / 9


@pytest.fixture(scope="module")
def u(samples):
    return samples[1]


@pytest.fixture(scope="module")
def setting(samples):
    a, u = samples
    return InverseProblem(GRID.x, a[:100], u[:100])


@pytest.fixture(scope="module")
def std(setting):
    return setting.u.std(axis=0)


@pytest.fixture(scope="module")
def models(setting):
    return grid_models(setting, FIELD, PHASES, 1.0)


@pytest.fixture(scope="module")
def methods(setting):
    return inversions(setting, FIELD, PHASES, 1.0)


def noisy(u, level, std):
    return u + level * std * np.random.default_rng(3).standard_normal(u.shape)


def errors(found, a):
    return np.linalg.norm(found - a, axis=(1, 2)) / np.linalg.norm(a, axis=(1, 2))


# the inversion


@pytest.mark.parametrize("level", [0.0, 0.1])
def test_the_largest_density_beats_total_variation(methods, samples, level, std):
    a, u = (values[100:104] for values in samples)
    data = noisy(u, level, std)

    def error(name, weight):
        inversion = methods[name].with_weight(weight)
        return errors(np.stack([inversion(d, level * std).a for d in data]), a).mean()

    best = min(error("maximum a posteriori", weight) for weight in (1.0, 0.3))
    assert best < error("total variation", 0.3) < 0.3


def test_an_estimated_level_does_as_well_as_a_known_one(methods, samples, std):
    a, u = (values[100:107] for values in samples)
    known, estimated = (
        errors(
            np.stack([
                methods[name].with_weight(0.3)(d, told * std).a
                for d in noisy(u, 0.05, std)
            ]),
            a,
        ).mean()
        for name, told in (
            ("maximum a posteriori", 0.05),
            ("maximum a posteriori, level estimated", 0.5),  # it does not listen
        )
    )  # fmt: skip
    assert estimated == pytest.approx(known, rel=0.1)


@pytest.mark.parametrize(
    "name", ["maximum a posteriori", "maximum a posteriori, level estimated", "level set"]
)
def test_a_method_says_whether_it_is_told_the_level(methods, samples, name, std):
    data, invert = noisy(samples[1][100:101], 0.05, std)[0], methods[name].with_weight(0.3)
    once, thrice = (invert(data, told * std).a for told in (0.05, 0.15))
    assert (not np.array_equal(once, thrice)) == methods[name].takes_level


def test_steps_end_where_the_data_fit(samples, models, std):
    data, std = noisy(samples[1][101], 0.1, std), 0.1 * std
    estimate = PhaseInversion(models)(data, std)
    assert 0.7 < estimate.misfit < 1.2
    few = tuple(replace(model, extra_steps=0) for model in models)

    def derivatives(told):
        return [PhaseInversion(some)(data, told).work.derivatives for some in (models, few)]

    at_once, without = derivatives(3 * std)
    assert at_once == without
    never, without = derivatives(std / 3)
    assert never > without + models[-1].extra_steps


def test_a_start_skips_the_coarse_models(samples, models, std):
    inversion, data = PhaseInversion(models), noisy(samples[1][102], 0.05, std)
    std = 0.05 * std
    first = inversion(data, std)
    again = inversion(data, std, start=first.coefficients)
    assert again.work.linearised < 0.7 * first.work.linearised
    # what it starts from is about as good as what comes out
    assert np.mean(abs(again.probability - first.probability)) < 0.05


def test_coarse_models_have_larger_errors_and_fewer_cells(models):
    assert [model.prior.grid.n for model in models] == [15, 21]
    sizes = [np.sqrt(np.mean(model.error.mean**2) + np.mean(np.sum(model.error.directions**2, 0)))
             for model in models]  # fmt: skip
    assert sizes[1] < 0.6 * sizes[0]


def test_a_start_from_fractions_has_their_phases(samples, models):
    inversion = PhaseInversion(models)
    p = (samples[0][103] - 3) / 9
    g = models[-1].prior.field_of(inversion.start(p))
    assert np.mean((g > 0) == (p > 0.5)) > 0.97
    middle = inversion.start(np.full((5, 5), 0.5))
    assert np.allclose(middle, 0, atol=1e-12)


# its parts


def test_the_prior_is_the_law_of_the_field():
    prior = Prior(FIELD, GRID)
    rng = np.random.default_rng(0)
    g = prior.field_of(rng.standard_normal((4000, N, N)))
    # 4000 samples: the deviation of a deviation is 1.1 %
    assert np.allclose(g.std(axis=0), prior.std, rtol=0.06)
    assert np.allclose(prior.std**2, FIELD.pointwise_variance(GRID), rtol=0.02)


def test_the_prior_has_its_transpose_and_goes_to_other_grids():
    prior, coarse = Prior(FIELD, GRID), Prior(FIELD, CellGrid(7))
    xi, v = np.random.default_rng(1).standard_normal((2, N, N))
    assert np.sum(prior.field_of(xi) * v) == pytest.approx(np.sum(xi * prior.transposed(v)))
    low = coarse.transferred(xi)
    assert low.shape == (7, 7)
    # every third centre of 21 cells is the centre of one of 7
    assert np.allclose(
        prior.field_of(prior.transferred(low))[1::3, 1::3], coarse.field_of(low), atol=1e-12
    )


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_the_nearest_coefficients_are_the_most_likely(boundary):
    field = SquareGaussianField(boundary, 3.0, 3.0, 2.0, 6)
    prior, rng = Prior(field, CellGrid(8)), np.random.default_rng(0)
    g, std = rng.standard_normal((8, 8)), 0.3
    columns = np.stack([prior.field_of(e.reshape(6, 6)).ravel() for e in np.eye(36)], axis=1)
    normal = columns.T @ columns / std**2 + np.eye(36)
    expected = np.linalg.solve(normal, columns.T @ g.ravel() / std**2)
    assert np.allclose(prior.nearest(g, std).ravel(), expected, atol=1e-10)


def test_the_covariance_is_inverted():
    rng = np.random.default_rng(2)
    std, directions = rng.uniform(0.5, 2, 30), rng.standard_normal((4, 30))
    r = rng.standard_normal(30)
    dense = np.diag(std**2) + directions.T @ directions
    found = LowRankCovariance(std, directions).inverse(r)
    assert np.allclose(found, np.linalg.solve(dense, r), rtol=1e-10)


def test_a_model_error_has_the_covariance_of_its_samples():
    rng = np.random.default_rng(3)
    errors = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40)) + 5.0
    law = ModelError.from_samples(errors)
    covariance = law.directions.reshape(-1, 40).T @ law.directions.reshape(-1, 40)
    assert np.allclose(covariance, np.cov(errors.T, bias=True), atol=1e-10)
    assert np.allclose(law.mean, errors.mean(axis=0))
    assert law.remainder < 1e-10
    noise = law.with_noise(np.full(40, 0.3), size=2.0)
    assert noise.std == pytest.approx(0.3, rel=1e-6)
    assert law.with_noise(np.zeros(40), size=2.0).std.min() > 1e-6


def test_the_newton_step_solves_to_its_tolerance():
    rng = np.random.default_rng(4)
    root = rng.standard_normal((30, 30))
    matrix, g = np.eye(30) + root @ root.T, rng.standard_normal(30)
    for rtol in (1e-2, 1e-9):
        step = newton_step(lambda v: matrix @ v, g, 60, rtol)
        assert np.linalg.norm(matrix @ step - g) <= rtol * np.linalg.norm(g)
    assert np.array_equal(newton_step(lambda v: matrix @ v, np.zeros(30), 60, 0.1), np.zeros(30))


@pytest.mark.parametrize(("level", "rel"), [(0.02, 0.5), (0.05, 0.15), (0.1, 0.1)])
def test_the_noise_level_is_found(samples, level, rel):
    """On 21 x 21 points there are many interface cells: small noise looks larger."""
    std = samples[1].std(axis=0)
    found = [noise_level(noisy(u, level, std), std) for u in samples[1][100:]]
    assert np.mean(found) == pytest.approx(level, rel=rel)


# sensors, and what is stated


def test_scattered_sensors_are_enough(samples, setting, std):
    """A third of the points; the others hold nothing that is read."""
    seen = np.random.default_rng(5).random((N, N)) < 1 / 3
    found = inversions(replace(setting, sensors=seen), FIELD, PHASES, 1.0)
    assert "maximum a posteriori, level estimated" not in found
    a, u = (values[100:103] for values in samples)
    data = noisy(u, 0.01, std)[:, seen]
    for name, weight, most in (("maximum a posteriori", 1.0, 0.15), ("total variation", 0.3, 0.3)):
        method = found[name].with_weight(weight)
        one = np.stack([method(d, 0.01 * std[seen]).a for d in data])
        assert errors(one, a).mean() < most


def test_a_stated_deviation_is_that_of_the_stated_probability(methods, samples, std):
    u = samples[1][100]
    found = methods["maximum a posteriori"].with_weight(1.0)(u, 0.1 * std)
    p = (found.a - 3) / 9
    # a rounds what p is where p is near 0 or 1
    assert found.std == pytest.approx(9 * np.sqrt(p * (1 - p)), abs=1e-6)
    assert methods["Tikhonov"].with_weight(0.03)(u, 0.1 * std).std is None


def test_methods_say_what_their_model_misses(methods, samples, std):
    (missed,) = {method.model_error() for method in methods.values()}
    a, u = (values[:100] for values in samples)
    error = np.sqrt(np.mean((u - FiniteVolume(GRID)(a)) ** 2))
    assert missed == pytest.approx(error / np.sqrt(np.mean(std**2)), rel=1e-6)


# the level-set method


def wrong(estimate, p):
    """Share of cells in the wrong phase."""
    return float(np.mean((estimate.fraction > 0.5) != (p > 0.5)))


def test_the_shape_derivative_is_that_of_the_misfit(models, u, std):
    motion = phases._Motion(models[-1], 0.1, noisy(u[101], 0.05, std), 0.05 * std)
    rng = np.random.default_rng(0)
    phi = motion.smoothed(rng.standard_normal((N, N)))
    phi /= 4 * abs(phi).max()  # |φ| up to some cells, so that the interface is a part of them
    w = rng.standard_normal((N, N))

    def value(step):
        r = motion.residual(phi + step * motion.smoothed(w))
        return 0.5 * np.sum(r * motion.errors.weighted(r))

    fraction, delta = motion.fraction(phi)
    at = models[-1].forward.linearise(fraction)
    down = motion.gradient(motion.residual(phi), lambda v: delta * at.vjp(v))
    slope = (value(1e-6) - value(-1e-6)) / 2e-6
    assert -np.sum(down * w) == pytest.approx(slope, rel=1e-4)
    assert abs(slope) > 1


@pytest.mark.parametrize("factor", [1.0, 7.0, -1.0])
def test_a_step_that_fits_no_better_is_halved_until_it_does(models, u, std, monkeypatch, factor):
    """One that never does, such as an uphill one, is left out."""
    motion = phases._Motion(models[-1], 0.1, noisy(u[101], 0.01, std), 0.01 * std)
    start, step, changes = motion.run(np.zeros((N, N)), 3), motion.step, []

    def scaled(*arguments):
        changes.append(factor * step(*arguments))
        return changes[-1]

    monkeypatch.setattr(motion, "step", scaled)
    moved = motion.run(start, 1)
    misfits = {
        length: motion.errors.misfit(motion.residual(start + length * changes[0]))
        for length in (1, 0.5, 0.25, 0.125, 0)
    }
    length = next((one for one in misfits if misfits[one] < misfits[0]), 0)
    np.testing.assert_array_equal(moved, start + length * changes[0])
    assert {1.0: length == 1, 7.0: 0 < length < 1, -1.0: length == 0}[factor]


def test_steps_end_at_the_noise_that_is_told(models, u, std):
    """From above: the step that reaches it may go below, but not to what fits the noise."""
    data = noisy(u[100:104], 0.05, std)
    less, right, more = (
        [LevelSet(models)(d, told * 0.05 * std) for d in data] for told in (1 / 3, 1, 3)
    )
    assert all(0.5 < one.misfit <= phases._FITS for one in right)
    assert all(0.2 < one.misfit <= phases._FITS for one in more)  # 1/9 is the noise alone
    assert all(one.misfit > 2 for one in less)  # 9 is the noise alone
    for few, some, many in zip(more, right, less, strict=True):
        assert 10 < few.solves < some.solves < many.solves < 1500


def test_phases_are_found_from_nearly_clean_data(models, fractions, u, std):
    found = [LevelSet(models)(noisy(one, 0.01, std), 0.01 * std) for one in u[100:106]]
    shares = [wrong(one, p) for one, p in zip(found, fractions[100:106], strict=True)]
    assert np.mean(shares) < 0.02


def test_a_shape_of_no_law_is_found(models, std):
    x, y = np.meshgrid(GRID.x, GRID.x, indexing="ij")
    ring = (abs(np.hypot(x - 0.5, y - 0.45) - 0.25) < 0.1).astype(float)
    data = noisy(solved(3 + 9 * ring[None])[0], 0.01, std)
    assert wrong(LevelSet(models)(data, 0.01 * std), ring) < 0.06


def test_the_law_of_the_field_is_not_used(models, u, std):
    other = SquareGaussianField("dirichlet", 1.0, 20.0, 3.0, 9)
    without = tuple(replace(one, prior=Prior(other, one.prior.grid)) for one in models)
    data = noisy(u[101], 0.05, std)
    first, again = (LevelSet(of)(data, 0.05 * std) for of in (models, without))
    assert np.array_equal(first.level_set, again.level_set)


def test_data_that_no_phases_explain_end_without_an_interface(models, std):
    """Values far above every solution leave one phase, in which no change moves anything."""
    found = LevelSet(models)(np.full((N, N), 0.5), 1e-3 * std)
    assert np.all(np.isfinite(found.fraction))
    assert not found.converged


def test_impossible_smoothing_is_refused(models):
    with pytest.raises(ValueError, match=r"smoothing must be positive, got 0\.0"):
        LevelSet(models, 0.0)
