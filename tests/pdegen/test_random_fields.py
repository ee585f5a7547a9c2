from typing import ClassVar

import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.sampling.gaussian import NormalStream, PeriodicGaussianField

pytestmark = pytest.mark.usefixtures("shapes")

FIELD = PeriodicGaussianField(sigma=25.0, tau=5.0, alpha=2.0, modes=31)


# the law


def test_the_deviation_of_a_mode_is_the_root_of_the_covariance_operator():
    k = np.arange(1, 32)
    expected = np.sqrt(2 * 625.0 * ((2 * np.pi * k) ** 2 + 25) ** -2.0)
    np.testing.assert_allclose(FIELD.mode_stds, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("sigma", "tau", "alpha", "std"),
    [
        (25.0, 5.0, 2.0, 0.59357),  # burgers_data_R10.mat
        (625.0, 5.0, 4.0, 0.21434),  # the data of PINO
        (49.0, 7.0, 2.5, 0.27410),  # burgers_v1000
    ],
)
def test_the_pointwise_deviation_is_the_published_one(sigma, tau, alpha, std):
    field = PeriodicGaussianField(sigma, tau, alpha, modes=4095)
    assert np.sqrt(field.pointwise_variance) == pytest.approx(std, abs=5e-6)  # 5 digits


def test_a_sample_is_the_series_with_the_coefficients_of_its_stream():
    grid, k = PeriodicGrid(96), 2 * np.pi * np.arange(1, 32)
    pairs = NormalStream(5).pairs(3, 31) * FIELD.mode_stds
    phase = grid.x[:, None] * k
    expected = np.cos(phase) @ pairs.real - np.sin(phase) @ pairs.imag
    np.testing.assert_allclose(FIELD(grid, 5, [3])[0], expected, atol=1e-14)


# sample i is a function of (seed, i) alone


def test_a_sample_is_the_same_function_on_every_grid():
    field = PeriodicGaussianField(25.0, 5.0, 2.0, modes=255)
    coarse, fine = PeriodicGrid(512), PeriodicGrid(8192)
    samples = [0, 1, 2047]
    difference = field(fine, 3, samples)[:, ::16] - field(coarse, 3, samples)
    assert np.abs(difference).max() < 1e-12


# the stream


def test_the_stream_is_box_and_muller_on_the_words_of_philox():
    seed, sample, count = 12345678901234567890, 42, 500
    words = np.random.Philox(key=np.array([seed, sample], np.uint64)).random_raw(2 * count)
    first, second = (((words >> np.uint64(11)) + 0.5) * 2.0**-53).reshape(count, 2).T
    expected = np.sqrt(-2 * np.log(first)) * np.exp(-2j * np.pi * second)
    # e^(-2πiU) by way of tan πU: a few roundings of a value of size 8 at most
    np.testing.assert_allclose(NormalStream(seed).pairs(sample, count), expected, atol=1e-13)


def test_uniform_numbers_are_midpoints_so_that_every_word_has_a_finite_logarithm():
    class Words:
        state: ClassVar[dict] = {}

        def random_raw(self, count):
            return np.array([0, 2**64 - 1], dtype=np.uint64)[:count]

    stream = NormalStream(0)
    stream._philox = Words()
    assert stream.uniforms_of([0], 2, None).tolist() == [[2.0**-54, 1.0]]  # 1 - 2⁻⁵⁴ rounds up
    assert np.isfinite(stream.pairs(0, 1)).all()


# refusals


@pytest.mark.parametrize(
    "change",
    [{"sigma": 0.0}, {"sigma": -1.0}, {"tau": -1.0}, {"alpha": 0.5}, {"modes": 0}],
)
def test_an_impossible_law_is_refused(change):
    values = {"sigma": 1.0, "tau": 1.0, "alpha": 2.0, "modes": 8} | change
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=f"need sigma > 0.*{name}={value}"):
        PeriodicGaussianField(**values)


def test_a_grid_too_coarse_for_the_modes_is_refused():
    with pytest.raises(ValueError, match="31 modes need a grid of at least 64 points, got 62"):
        FIELD(PeriodicGrid(62), 0, [0])
