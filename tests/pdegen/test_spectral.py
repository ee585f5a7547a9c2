import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.numerics.spectral import antiderivative_symbol, derivative_symbol, wave_numbers

pytestmark = pytest.mark.usefixtures("shapes")


def transform(grid, symbol, values):
    return np.fft.irfft(symbol * np.fft.rfft(values), grid.n)


@pytest.mark.parametrize("k", [1, 5, 31])
def test_the_derivative_of_a_wave_is_exact(k):
    grid = PeriodicGrid(64)
    phase = 2 * np.pi * k * grid.x
    values = np.sin(phase) + 0.3 * np.cos(phase) + 7
    expected = 2 * np.pi * k * (np.cos(phase) - 0.3 * np.sin(phase))
    # round-off of values of size 7, enlarged by wave numbers up to 2π 32: 64 of them add up
    assert np.abs(transform(grid, derivative_symbol(grid), values) - expected).max() < 1e-11


def test_the_antiderivative_inverts_the_derivative_up_to_the_mean():
    grid = PeriodicGrid(64)
    values = np.random.default_rng(0).standard_normal(64)
    u_hat = np.fft.rfft(values)
    u_hat[-1] = 0  # the mode n/2 has no derivative
    values = np.fft.irfft(u_hat, 64)
    both = derivative_symbol(grid) * antiderivative_symbol(grid)
    np.testing.assert_allclose(transform(grid, both, values), values - values.mean(), atol=1e-14)


def test_the_highest_mode_and_the_mean_are_dropped():
    grid = PeriodicGrid(32)
    assert derivative_symbol(grid)[-1] == 0
    assert antiderivative_symbol(grid)[0] == antiderivative_symbol(grid)[-1] == 0
    np.testing.assert_array_equal(wave_numbers(grid), 2 * np.pi * np.arange(17))
