"""Compiled loops of `phase_flow.py`: faces with harmonic means, t = 2ab/(a + b)."""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})


@_jit
def band(a: np.ndarray) -> np.ndarray:
    """The matrix of the coefficient (n, n) by its lower diagonals, transposed."""
    n = len(a)
    diagonals = np.zeros((n * n, n + 1))
    for i in range(n):
        for j in range(n):
            walls = (i == 0) + (i == n - 1) + (j == 0) + (j == n - 1)
            diagonals[i * n + j, 0] = walls * 2 * a[i, j]
    for i in range(n):
        for j in range(n):
            k = i * n + j
            if i < n - 1:
                t = 2 * a[i, j] * a[i + 1, j] / (a[i, j] + a[i + 1, j])
                diagonals[k, n] = -t
                diagonals[k, 0] += t
                diagonals[k + n, 0] += t
            if j < n - 1:
                t = 2 * a[i, j] * a[i, j + 1] / (a[i, j] + a[i, j + 1])
                diagonals[k, 1] = -t
                diagonals[k, 0] += t
                diagonals[k + 1, 0] += t
    return diagonals


@_jit
def faces(a: np.ndarray) -> np.ndarray:
    """∂t/∂a of both cells at the inner faces across axis 0, shape (n-1, n, 2)."""
    n, m = a.shape
    slopes = np.empty((n - 1, m, 2))
    for i in range(n - 1):
        for j in range(m):
            one, other = a[i, j], a[i + 1, j]
            slopes[i, j, 0] = 2 * (other / (one + other)) ** 2
            slopes[i, j, 1] = 2 * (one / (one + other)) ** 2
    return slopes


@_jit
def changes(slopes: np.ndarray, dp: np.ndarray) -> np.ndarray:
    """The change of t with p, slopes being ∂t/∂p."""
    n, m = dp.shape
    dt = np.empty((n - 1, m))
    for i in range(n - 1):
        for j in range(m):
            dt[i, j] = slopes[i, j, 0] * dp[i, j] + slopes[i, j, 1] * dp[i + 1, j]
    return dt


@_jit
def add_transposed(slopes: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """out += (∂t/∂p)ᵀ w."""
    n, m = out.shape
    for i in range(n - 1):
        for j in range(m):
            out[i, j] += slopes[i, j, 0] * w[i, j]
            out[i + 1, j] += slopes[i, j, 1] * w[i, j]
