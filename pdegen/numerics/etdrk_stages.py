"""Compiled sums of the stages of exponential Runge-Kutta steps. The mathematics is in `etdrk.py`.

States have the shape (batch, modes). Coefficients have the shape (1, modes), or (batch, modes) if
they differ from sample to sample. Each sum takes one pass over memory. The terms are added in the
order of the array expression in the docstring, so that the bits are those of this expression.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True)


@_jit
def second(
    v: np.ndarray, n_v: np.ndarray, half: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """half v, and half v + q n_v."""
    v_half, a = np.empty_like(v), np.empty_like(v)
    for b in range(v.shape[0]):
        row = min(b, q.shape[0] - 1)
        for k in range(v.shape[1]):
            v_half[b, k] = half[row, k] * v[b, k]
            a[b, k] = v_half[b, k] + q[row, k] * n_v[b, k]
    return v_half, a


@_jit
def third(v_half: np.ndarray, n_a: np.ndarray, q: np.ndarray) -> np.ndarray:
    """v_half + q n_a."""
    stage = np.empty_like(v_half)
    for b in range(v_half.shape[0]):
        row = min(b, q.shape[0] - 1)
        for k in range(v_half.shape[1]):
            stage[b, k] = v_half[b, k] + q[row, k] * n_a[b, k]
    return stage


@_jit
def fourth(
    a: np.ndarray, n_v: np.ndarray, n_b: np.ndarray, half: np.ndarray, q: np.ndarray
) -> np.ndarray:
    """half a + q (2 n_b - n_v)."""
    stage = np.empty_like(a)
    for b in range(a.shape[0]):
        row = min(b, q.shape[0] - 1)
        for k in range(a.shape[1]):
            stage[b, k] = half[row, k] * a[b, k] + q[row, k] * (2 * n_b[b, k] - n_v[b, k])
    return stage


@_jit
def last(
    v: np.ndarray,
    n_v: np.ndarray,
    n_a: np.ndarray,
    n_b: np.ndarray,
    n_c: np.ndarray,
    full: np.ndarray,
    f1: np.ndarray,
    f2: np.ndarray,
    f3: np.ndarray,
) -> np.ndarray:
    """full v + f1 n_v + f2 (n_a + n_b) + f3 n_c."""
    after = np.empty_like(v)
    for b in range(v.shape[0]):
        row = min(b, full.shape[0] - 1)
        for k in range(v.shape[1]):
            after[b, k] = (
                full[row, k] * v[b, k]
                + f1[row, k] * n_v[b, k]
                + f2[row, k] * (n_a[b, k] + n_b[b, k])
                + f3[row, k] * n_c[b, k]
            )
    return after
