"""Compiled loops of `calibrated.py`: faces of harmonic means times factors of six cells.

The six cells at the face of (i, j) and (i+1, j) are these two, those at j-1 and those at j+1; at
the ends of an axis a cell is its own neighbour.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})


@_jit
def coefficients(p: np.ndarray, low: float, high: float, table: np.ndarray) -> np.ndarray:
    """t of `faces` alone."""
    n, m = p.shape
    height = high - low
    t, q, partial = np.empty((n - 1, m)), np.empty(6), np.empty(64)
    plain = table.min() == table.max()  # nothing is fitted
    for i in range(n - 1):
        for j in range(m):
            a, b = low + height * p[i, j], low + height * p[i + 1, j]
            mean = 2 * a * b / (a + b)
            if plain:
                t[i, j] = mean * table[0]
                continue
            before, after = max(j - 1, 0), min(j + 1, m - 1)
            q[0], q[1] = p[i, j], p[i + 1, j]
            q[2], q[3] = p[i, before], p[i + 1, before]
            q[4], q[5] = p[i, after], p[i + 1, after]
            partial[:] = table
            size = 32
            for k in range(5, -1, -1):
                for s in range(size):
                    partial[s] += q[k] * (partial[s + size] - partial[s])
                size //= 2
            t[i, j] = mean * partial[0]
    return t


@_jit
def band(x: np.ndarray, y: np.ndarray, p: np.ndarray, low: float, high: float) -> np.ndarray:
    """The matrix by its lower diagonals, transposed; y has the axes exchanged, as p has in it."""
    n = len(p)
    diagonals = np.zeros((n * n, n + 1))
    for i in range(n):
        for j in range(n):
            k = i * n + j
            walls = (i == 0) + (i == n - 1) + (j == 0) + (j == n - 1)
            total = walls * 2 * (low + (high - low) * p[i, j])
            if i > 0:
                total += x[i - 1, j]
            if i < n - 1:
                total += x[i, j]
                diagonals[k, n] = -x[i, j]
            if j > 0:
                total += y[j - 1, i]
            if j < n - 1:
                total += y[j, i]
                diagonals[k, 1] = -y[j, i]
            diagonals[k, 0] = total
    return diagonals


@_jit
def faces(
    p: np.ndarray, low: float, high: float, table: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Coefficients t of the inner faces across axis 0, shape (n-1, n), and ∂t/∂p of the six cells,
    (n-1, n, 6). The factor is linear in each of the six p, its corners are the table."""
    n, m = p.shape
    height = high - low
    t, slopes = np.empty((n - 1, m)), np.empty((n - 1, m, 6))
    q, weights, partial = np.empty(6), np.empty(64), np.empty(126)
    for i in range(n - 1):
        for j in range(m):
            before, after = max(j - 1, 0), min(j + 1, m - 1)
            q[0], q[1] = p[i, j], p[i + 1, j]
            q[2], q[3] = p[i, before], p[i + 1, before]
            q[4], q[5] = p[i, after], p[i + 1, after]
            # partial[first : first + size]: the table with the last cells put in, one by one
            first, source = 0, table
            start = 0
            size = 32
            for k in range(5, -1, -1):
                for s in range(size):
                    one, two = source[start + s], source[start + s + size]
                    partial[first + s] = one + q[k] * (two - one)
                source, start = partial, first
                first += size
                size //= 2
            factor = partial[start]
            a, b = low + height * q[0], low + height * q[1]
            mean = 2 * a * b / (a + b)
            t[i, j] = mean * factor
            # and back: weights of the corners of the cells put in so far
            weights[0] = 1.0
            size = 1
            for k in range(6):
                source, start = (table, 0) if k == 5 else (partial, 64 - 4 * size)
                slope = 0.0
                for s in range(size):
                    slope += weights[s] * (source[start + s + size] - source[start + s])
                slopes[i, j, k] = mean * slope
                for s in range(size):
                    weights[s + size] = weights[s] * q[k]
                    weights[s] *= 1 - q[k]
                size *= 2
            slopes[i, j, 0] += factor * 2 * height * (b / (a + b)) ** 2
            slopes[i, j, 1] += factor * 2 * height * (a / (a + b)) ** 2
    return t, slopes


@_jit
def changes(slopes: np.ndarray, dp: np.ndarray) -> np.ndarray:
    """The change of t with p."""
    n, m = dp.shape
    dt = np.empty((n - 1, m))
    for i in range(n - 1):
        for j in range(m):
            before, after, s = max(j - 1, 0), min(j + 1, m - 1), slopes[i, j]
            dt[i, j] = (
                s[0] * dp[i, j] + s[1] * dp[i + 1, j]
                + s[2] * dp[i, before] + s[3] * dp[i + 1, before]
                + s[4] * dp[i, after] + s[5] * dp[i + 1, after]
            )  # fmt: skip
    return dt


@_jit
def add_transposed(slopes: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """out += (∂t/∂p)ᵀ w."""
    n, m = out.shape
    for i in range(n - 1):
        for j in range(m):
            before, after, s, v = max(j - 1, 0), min(j + 1, m - 1), slopes[i, j], w[i, j]
            out[i, j] += s[0] * v
            out[i + 1, j] += s[1] * v
            out[i, before] += s[2] * v
            out[i + 1, before] += s[3] * v
            out[i, after] += s[4] * v
            out[i + 1, after] += s[5] * v


@_jit
def patterns(p: np.ndarray) -> np.ndarray:
    """Of phases 0 and 1: the index of each inner face across axis 0 in the table."""
    n, m = p.shape
    found = np.empty((n - 1, m), np.int64)
    for i in range(n - 1):
        for j in range(m):
            before, after = max(j - 1, 0), min(j + 1, m - 1)
            bits = (
                p[i, j], p[i + 1, j], p[i, before], p[i + 1, before], p[i, after], p[i + 1, after]
            )  # fmt: skip
            index = 0
            for k in range(6):
                index += int(bits[k] > 0.5) << k
            found[i, j] = index
    return found
