"""Elimination around a ring, beside a dense solve."""

import numpy as np
import pytest

from pdegen.numerics.sines import solve_cyclic_tridiagonal


def of_ring(n, size, batch=3, seed=0):
    """Random symmetric segments whose sum is positive definite, and the matrix of the ring."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((batch, n, 2 * size, 2 * size))
    parts = roots @ np.swapaxes(roots, -1, -2) + 0.1 * np.eye(2 * size)
    whole = np.zeros((batch, n * size, n * size))
    for k in range(n):
        lines = [size * k + np.arange(size), size * ((k + 1) % n) + np.arange(size)]
        lines = np.concatenate(lines)
        for i, line in enumerate(lines):
            whole[:, line, lines[:size]] += parts[:, k, i, :size]
            whole[:, line, lines[size:]] += parts[:, k, i, size:]
    return parts, whole, rng.standard_normal((batch, n, size))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 9, 36])
@pytest.mark.parametrize("size", [1, 4])
def test_a_ring_is_solved_as_a_dense_matrix(n, size):
    parts, whole, load = of_ring(n, size)
    expected = np.linalg.solve(whole, load.reshape(3, -1, 1)).reshape(load.shape)
    np.testing.assert_allclose(solve_cyclic_tridiagonal(parts, load), expected, rtol=0, atol=1e-10)


def test_its_arguments_stay_as_they_are():
    parts, _, load = of_ring(5, 2)
    copies = parts.copy(), load.copy()
    solve_cyclic_tridiagonal(parts, load)
    assert np.array_equal(parts, copies[0])
    assert np.array_equal(load, copies[1])
