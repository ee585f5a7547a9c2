"""Inversions that know the law of the noise, not its deviation alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import Tikhonov, inversions
from pdegen.equations.darcy.log_inversion import log_inversions
from pdegen.inverse.classical import InverseProblem
from pdegen.inverse.gaussian import GaussianInversion, ModelError
from pdegen.inverse.tikhonov import TikhonovInversion
from pdegen.sampling.gaussian import SquareGaussianField
from pdegen.sampling.noise import (
    BlurNoise,
    CorrelatedNoise,
    DriftNoise,
    EnsembleNoise,
    ImpulseNoise,
    MissingNoise,
    StudentNoise,
)
from pdegen.sampling.noise_law import CosineBlur, ImpulseLaw, NoiseLaw, StudentLaw

N, PHASES = 20, (3.0, 12.0)
FIELD = SquareGaussianField("neumann", 3.0, 3.0, 2.0, N)
KNOWN, TESTED = 80, 6


@pytest.fixture(scope="module")
def samples():
    """Two-phase coefficients with their solutions."""
    upper = FIELD(CellGrid(N), 0, range(KNOWN + TESTED)) >= 0
    a = np.where(upper, PHASES[1], PHASES[0])
    return a, FiniteVolume(CellGrid(N))(a)


@pytest.fixture(scope="module")
def methods(samples):
    a, u = samples
    return inversions(InverseProblem(CellGrid(N).x, a[:KNOWN], u[:KNOWN]), FIELD, PHASES, 1.0)


def wrong_cells(method, noise, samples, told):
    """The mean share of wrong cells, where `told` maps a law to what the method gets."""
    a, u = samples
    std = u[:KNOWN].std(axis=0)
    data = noise(u[KNOWN:], 1, range(TESTED), std)
    found = [method(d, told(noise.law(d, u[:KNOWN], std))).a for d in data]
    return np.mean((np.stack(found) > 7.5) != (a[KNOWN:] > 7.5))


@pytest.mark.parametrize(
    ("name", "noise", "ratio"),
    [
        ("maximum a posteriori", CorrelatedNoise(0.1), 0.8),
        ("maximum a posteriori", DriftNoise(0.1), 0.3),
        ("maximum a posteriori", ImpulseNoise(0.02), 0.6),
        ("maximum a posteriori", BlurNoise(0.01), 0.3),
        ("level set", DriftNoise(0.1), 0.5),
        ("level set", ImpulseNoise(0.02), 0.6),
        ("level set", BlurNoise(0.01), 0.5),
        ("total variation", ImpulseNoise(0.02), 0.7),
        ("total variation", BlurNoise(0.01), 0.5),
    ],
)
def test_the_law_of_the_noise_lowers_the_error(methods, samples, name, noise, ratio):
    method = methods[name].with_weight(0.3)
    deviation = wrong_cells(method, noise, samples, lambda law: law.std)
    assert wrong_cells(method, noise, samples, lambda law: law) < ratio * deviation


def test_missing_values_cost_little(methods, samples):
    method = methods["maximum a posteriori"].with_weight(0.3)
    some = wrong_cells(method, MissingNoise(0.05), samples, lambda law: law)
    every = wrong_cells(method, EnsembleNoise(0.05), samples, lambda law: law)
    assert some < 1.5 * every


def test_covariance_of_model_error_and_noise_has_both_directions():
    rng = np.random.default_rng(0)
    error = ModelError(np.zeros(5), rng.standard_normal((2, 5)), 0.3)
    std, directions = np.full(5, 2.0), 0.5 * rng.standard_normal((3, 5))
    found = error.with_noise(NoiseLaw(std=std, directions=directions), 0.0)
    matrix = np.stack([found.inverse(unit) for unit in np.eye(5)])
    both = error.directions.T @ error.directions + directions.T @ directions
    rest = np.diag(std**2 - np.sum(directions**2, axis=0) + 0.3**2)
    assert np.linalg.inv(matrix) == pytest.approx(both + rest)


def test_covariance_follows_the_residual():
    error, law = (
        ModelError(np.zeros(2), np.zeros((0, 2)), 0.5),
        StudentLaw(std=np.ones(2), freedom=3),
    )
    found = error.with_noise(law, 0.0, np.zeros(2), np.array([0.0, 10.0]))
    assert found.std**2 == pytest.approx([0.25 + 0.25, 25.25 + 0.25])
    assert error.with_noise(law, 0.0).std ** 2 == pytest.approx([1.25, 1.25])


@pytest.mark.parametrize("law", [
    StudentLaw(std=np.full(1, 0.7), freedom=4.0),
    ImpulseLaw(std=np.full(1, 2.0), size=np.full(1, 3.0), share=0.1),
])  # fmt: skip
def test_variance_and_correction_majorise_minus_the_logarithm_of_the_density(law):
    """½ r²/v(r) + correction(r) is -log of the density, whose derivative is r/v(r)."""
    zero = np.zeros(1)

    def minus_log(r):
        r = np.full(1, r)
        return 0.5 * float(r @ (r / law.variance(zero, r))) + law.correction(zero, r)

    def density(r):
        if isinstance(law, StudentLaw):
            return stats.t.pdf(r, 4, scale=0.7 * 0.5**0.5)  # s σ
        low = 4 - 0.1 * 9
        parts = (stats.norm.pdf(r, 0, v**0.5) for v in (low, low + 9))
        return np.dot([0.9, 0.1], [*parts])

    for r in (0.1, 1.0, 3.0, 9.0):
        slope = (minus_log(r + 1e-5) - minus_log(r - 1e-5)) / 2e-5
        assert slope == pytest.approx(r / law.variance(zero, np.full(1, r))[0], rel=1e-6)
        expected = np.log(density(0.0)) - np.log(density(r))
        assert minus_log(r) - minus_log(0.0) == pytest.approx(expected)


def test_residuals_that_are_all_large_are_no_noise():
    law = ImpulseLaw(std=np.ones(50), size=np.full(50, 4.0), share=0.05)
    r = np.zeros(50)
    r[:2] = 4
    assert law.explains(np.zeros(50), r)
    assert not law.explains(np.zeros(50), np.full(50, 4.0))


def test_errors_besides_the_noise_add_to_every_law():
    u = np.array([[1.0, 2.0]])
    for noise in (StudentNoise(0.5), ImpulseNoise(0.5), DriftNoise(0.5)):
        law = noise.law(u[0], u, np.ones(2))
        more, extra = law.plus(0.2, np.array([0.1, 0.3])), np.array([0.3, 0.5])
        assert more.std**2 == pytest.approx(law.std**2 + extra)
        assert more.variance() == pytest.approx(law.variance() + extra)
    # far from the prediction, an impulse has its own size and that of the other errors
    assert ImpulseNoise(0.5, size=2.0).law(u[0], u, np.ones(2)).plus(0.2).variance(
        u[0], np.full(2, 50.0)
    ) == pytest.approx(0.25 + 0.2 + 4)


class Matrix:
    """The linear map ξ -> A ξ."""

    def __init__(self, a):
        self.a, self.xi = a, None

    def linearise(self, xi):
        at = Matrix(self.a)
        at.values = self.a @ xi
        return at

    def jvp(self, change):
        return change @ self.a.T

    def vjp(self, v):
        return v @ self.a


@pytest.fixture
def linear():
    """A map of 60 data, noisy data with two gross errors, and the true unknowns."""
    rng = np.random.default_rng(2)
    a, xi = rng.standard_normal((60, 4)), rng.standard_normal(4)
    data = a @ xi + 0.1 * rng.standard_normal(60)
    data[[3, 17]] += 10
    return a, data, xi


def test_gross_errors_do_not_spoil_linear_inversions(linear):
    a, data, xi = linear
    law = StudentLaw(std=np.full(60, 0.1), freedom=3.0)

    def gaussian(noise):
        return GaussianInversion(Matrix(a), added_noise=())(data, noise, np.zeros(4)).coefficients

    def tikhonov(noise):
        method = TikhonovInversion(lambda x: a @ x, (4,), mean=0.0, scale=1.0, weight=1e-3)
        return method(data, noise).a

    for method in (gaussian, tikhonov):
        assert np.linalg.norm(method(law) - xi) < 0.1
        assert np.linalg.norm(method(law.std) - xi) > 0.12


def test_a_filter_is_part_of_the_map():
    """Inversions of K G are those of the matrix K G."""
    rng = np.random.default_rng(2)
    a, data, std = rng.standard_normal((12, 3)), rng.standard_normal(12), np.full(12, 0.1)
    blur = CosineBlur(0.1, (3, 4))
    law = NoiseLaw(std=std, observation=blur)
    both = blur(a.T).T
    found, expected = (
        GaussianInversion(Matrix(m), rtol=1e-10)(data, noise, np.zeros(3)).coefficients
        for m, noise in ((a, law), (both, std))
    )
    assert found == pytest.approx(expected, rel=1e-6)
    found, expected = (
        TikhonovInversion(lambda x, m=m: m @ x, (3,), mean=0.0, scale=1.0, weight=0.1)(
            data, noise
        ).a
        for m, noise in ((a, law), (both, std))
    )
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_filter_is_symmetric_and_keeps_the_mean():
    rng = np.random.default_rng(0)
    blur, (u, v) = CosineBlur(0.2, (6, 5)), rng.standard_normal((2, 6, 5))
    assert np.vdot(blur(u), v) == pytest.approx(np.vdot(u, blur.transposed(v)))
    assert blur(u).mean() == pytest.approx(u.mean())
    assert blur(np.stack([u, v]).reshape(2, 30)) == pytest.approx(
        np.stack([blur(u).ravel(), blur(v).ravel()])
    )


def test_log_normal_flow_is_inverted_from_blurred_data():
    grid = CellGrid(12)
    field = replace(FIELD, modes=12)
    a = np.exp(field(grid, 0, range(KNOWN)))
    u = FiniteVolume(grid)(a)
    std, noise = u.std(axis=0), BlurNoise(0.01, length=0.1)
    data = noise(u[-1:], 0, [0], std)[0]
    methods = log_inversions(InverseProblem(grid.x, a[:-1], u[:-1]), field, 1.0, 1.0)
    invert, law = methods["maximum a posteriori"].with_weight(1.0), noise.law(data, u, std)
    errors = [np.linalg.norm(np.log(invert(data, of).a / a[-1])) for of in (law, law.std)]
    assert errors[0] < 0.7 * errors[1]


def test_tikhonov_with_a_law_that_is_not_fixed_ends(samples):
    _, u = samples
    std = u[:KNOWN].std(axis=0)
    noise = StudentNoise(0.05)
    data = noise(u[-1:], 0, [0], std)[0]
    method = Tikhonov(CellGrid(N), CellGrid(N).x, PHASES, 0.01, floor=1e-5)
    assert method.estimate(data, noise.law(data, u, std)).converged
