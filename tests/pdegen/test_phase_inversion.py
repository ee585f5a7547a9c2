"""Two phases from noisy data, by the law of the interface; and the parts that this is made of."""

from dataclasses import replace

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import inversions, phase_levels
from pdegen.inverse.covariance import Covariance, ModelError
from pdegen.inverse.gauss_newton import newton_step
from pdegen.inverse.noise_level import noise_level
from pdegen.inverse.phases import PhaseInversion
from pdegen.inverse.prior import Prior
from pdegen.inverse.setting import Setting
from pdegen.sampling.gaussian import SquareGaussianField

N, PHASES = 21, (3.0, 12.0)
GRID = CellGrid(N)
FIELD = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 42)


@pytest.fixture(scope="module")
def samples():
    """Coefficients, and their solutions solved on cells finer by 3."""
    a = np.where(FIELD(GRID, 0, range(120)) >= 0, 12.0, 3.0)
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    return a, FiniteVolume(CellGrid(3 * N))(fine)[:, 1::3, 1::3]


@pytest.fixture(scope="module")
def setting(samples):
    a, u = samples
    return Setting(GRID.x, a[:100], u[:100])


@pytest.fixture(scope="module")
def methods(setting):
    return inversions(setting, FIELD, PHASES, 1.0)


def noisy(u, level, deviation):
    return u + level * deviation * np.random.default_rng(3).standard_normal(u.shape)


def errors(found, a):
    return np.linalg.norm(found - a, axis=(1, 2)) / np.linalg.norm(a, axis=(1, 2))


# the inversion


@pytest.mark.parametrize("level", [0.0, 0.1])
def test_the_largest_density_beats_total_variation(methods, samples, setting, level):
    a, u = (values[100:104] for values in samples)
    deviation = setting.u.std(axis=0)
    data = noisy(u, level, deviation)

    def error(name, weight):
        inversion = methods[name].with_weight(weight)
        return errors(np.stack([inversion(d, level * deviation).a for d in data]), a).mean()

    best = min(error("maximum a posteriori", weight) for weight in (1.0, 0.3))
    assert best < error("total variation", 0.3) < 0.3


def test_an_estimated_level_does_as_well_as_a_known_one(methods, samples, setting):
    a, u = (values[100:107] for values in samples)
    deviation = setting.u.std(axis=0)
    known, estimated = (
        errors(
            np.stack([
                methods[name].with_weight(0.3)(d, told * deviation).a
                for d in noisy(u, 0.05, deviation)
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
def test_a_method_says_whether_it_is_told_the_level(methods, samples, setting, name):
    deviation = setting.u.std(axis=0)
    data, invert = noisy(samples[1][100:101], 0.05, deviation)[0], methods[name].with_weight(0.3)
    once, thrice = (invert(data, told * deviation).a for told in (0.05, 0.15))
    assert (not np.array_equal(once, thrice)) == methods[name].told


def test_steps_end_where_the_data_fit(samples, setting):
    levels = phase_levels(setting, FIELD, PHASES, 1.0)
    deviation = 0.1 * setting.u.std(axis=0)
    data = noisy(samples[1][101], 0.1, setting.u.std(axis=0))
    estimate = PhaseInversion(levels)(data, deviation)
    assert 0.7 < estimate.misfit < 1.2
    few = tuple(replace(level, more=0) for level in levels)

    def derivatives(told):
        return [PhaseInversion(some)(data, told).work.derivatives for some in (levels, few)]

    at_once, without = derivatives(3 * deviation)
    assert at_once == without
    never, without = derivatives(deviation / 3)
    assert never > without + levels[-1].more


def test_a_start_skips_the_coarse_levels(samples, setting):
    levels = phase_levels(setting, FIELD, PHASES, 1.0)
    inversion, deviation = PhaseInversion(levels), 0.05 * setting.u.std(axis=0)
    data = noisy(samples[1][102], 0.05, setting.u.std(axis=0))
    first = inversion(data, deviation)
    again = inversion(data, deviation, start=first.coefficients)
    assert again.work.linearised < 0.7 * first.work.linearised
    # what it starts from is about as good as what comes out
    assert np.mean(abs(again.probability - first.probability)) < 0.05


def test_coarse_levels_have_larger_errors_and_fewer_cells(setting):
    levels = phase_levels(setting, FIELD, PHASES, 1.0)
    assert [level.prior.grid.n for level in levels] == [15, 21]
    sizes = [np.sqrt(np.mean(level.error.mean**2) + np.mean(np.sum(level.error.directions**2, 0)))
             for level in levels]  # fmt: skip
    assert sizes[1] < 0.6 * sizes[0]


def test_a_start_from_fractions_has_their_phases(samples, setting):
    levels = phase_levels(setting, FIELD, PHASES, 1.0)
    inversion = PhaseInversion(levels)
    p = (samples[0][103] - 3) / 9
    g = levels[-1].prior.field_of(inversion.start(p))
    assert np.mean((g > 0) == (p > 0.5)) > 0.97
    middle = inversion.start(np.full((5, 5), 0.5))
    assert np.allclose(middle, 0, atol=1e-12)


# its parts


def test_the_prior_is_the_law_of_the_field():
    prior = Prior(FIELD, GRID)
    rng = np.random.default_rng(0)
    g = prior.field_of(rng.standard_normal((4000, N, N)))
    # 4000 samples: the deviation of a deviation is 1.1 %
    assert np.allclose(g.std(axis=0), prior.deviation, rtol=0.06)
    assert np.allclose(prior.deviation**2, FIELD.pointwise_variance(GRID), rtol=0.02)


def test_the_prior_has_its_transpose_and_goes_to_other_grids():
    prior, coarse = Prior(FIELD, GRID), Prior(FIELD, CellGrid(7))
    xi, v = np.random.default_rng(1).standard_normal((2, N, N))
    assert np.sum(prior.field_of(xi) * v) == pytest.approx(np.sum(xi * prior.transposed(v)))
    low = coarse.taken_over(xi)
    assert low.shape == (7, 7)
    # every third centre of 21 cells is the centre of one of 7
    assert np.allclose(
        prior.field_of(prior.taken_over(low))[1::3, 1::3], coarse.field_of(low), atol=1e-12
    )


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_the_nearest_coefficients_are_the_most_likely(boundary):
    field = SquareGaussianField(boundary, 3.0, 3.0, 2.0, 6)
    prior, rng = Prior(field, CellGrid(8)), np.random.default_rng(0)
    g, deviation = rng.standard_normal((8, 8)), 0.3
    columns = np.stack([prior.field_of(e.reshape(6, 6)).ravel() for e in np.eye(36)], axis=1)
    normal = columns.T @ columns / deviation**2 + np.eye(36)
    expected = np.linalg.solve(normal, columns.T @ g.ravel() / deviation**2)
    assert np.allclose(prior.nearest(g, deviation).ravel(), expected, atol=1e-10)


def test_the_covariance_is_inverted():
    rng = np.random.default_rng(2)
    deviation, directions = rng.uniform(0.5, 2, 30), rng.standard_normal((4, 30))
    r = rng.standard_normal(30)
    dense = np.diag(deviation**2) + directions.T @ directions
    found = Covariance(deviation, directions).inverse(r)
    assert np.allclose(found, np.linalg.solve(dense, r), rtol=1e-10)


def test_a_model_error_has_the_covariance_of_its_samples():
    rng = np.random.default_rng(3)
    errors = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40)) + 5.0
    law = ModelError.of(errors)
    covariance = law.directions.reshape(-1, 40).T @ law.directions.reshape(-1, 40)
    assert np.allclose(covariance, np.cov(errors.T, bias=True), atol=1e-10)
    assert np.allclose(law.mean, errors.mean(axis=0))
    assert law.rest < 1e-10
    noise = law.with_noise(np.full(40, 0.3), size=2.0)
    assert noise.deviation == pytest.approx(0.3, rel=1e-6)
    assert law.with_noise(np.zeros(40), size=2.0).deviation.min() > 1e-6


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
    deviation = samples[1].std(axis=0)
    found = [noise_level(noisy(u, level, deviation), deviation) for u in samples[1][100:]]
    assert np.mean(found) == pytest.approx(level, rel=rel)


def test_points_without_deviation_do_not_count():
    deviation = np.ones((30, 30))
    deviation[:5] = 0
    data = 0.1 * deviation * np.random.default_rng(0).standard_normal((30, 30))
    assert noise_level(data, deviation) == pytest.approx(0.1, rel=0.1)


# sensors, and what is stated


def test_scattered_sensors_are_enough(samples, setting):
    """A third of the points; the others hold nothing that is read."""
    seen = np.random.default_rng(5).random((N, N)) < 1 / 3
    found = inversions(replace(setting, seen=seen), FIELD, PHASES, 1.0)
    assert "maximum a posteriori, level estimated" not in found
    a, u = (values[100:103] for values in samples)
    deviation = setting.u.std(axis=0)
    data = noisy(u, 0.01, deviation)[:, seen]
    for name, weight, most in (("maximum a posteriori", 1.0, 0.15), ("total variation", 0.3, 0.3)):
        method = found[name].with_weight(weight)
        one = np.stack([method(d, 0.01 * deviation[seen]).a for d in data])
        assert errors(one, a).mean() < most


def test_a_stated_deviation_is_that_of_the_stated_probability(methods, samples, setting):
    u, deviation = samples[1][100], setting.u.std(axis=0)
    found = methods["maximum a posteriori"].with_weight(1.0)(u, 0.1 * deviation)
    p = (found.a - 3) / 9
    # a rounds what p is where p is near 0 or 1
    assert found.deviation == pytest.approx(9 * np.sqrt(p * (1 - p)), abs=1e-6)
    assert methods["Tikhonov"].with_weight(0.03)(u, 0.1 * deviation).deviation is None


def test_methods_say_what_their_model_misses(methods, samples, setting):
    (missed,) = {method.missed() for method in methods.values()}
    a, u = (values[:100] for values in samples)
    error = np.sqrt(np.mean((u - FiniteVolume(GRID)(a)) ** 2))
    assert missed == pytest.approx(error / np.sqrt(np.mean(setting.u.std(axis=0) ** 2)), rel=1e-6)
