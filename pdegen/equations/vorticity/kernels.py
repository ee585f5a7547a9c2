"""Compiled loops of the vorticity solver. The mathematics is in `solver.py`."""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True)


@_jit
def velocities(w: np.ndarray, to_u: np.ndarray, to_v: np.ndarray, n: int) -> np.ndarray:
    """The modes i to_u w and i to_v w of the velocity, shape (batch, 2, n, K + 1).

    The result has all n modes along the first axis. Modes that w does not have are 0.

    Args:
        w: Modes of the vorticity, shape (batch, 2K + 1, K + 1).
        to_u, to_v: Real symbols, shape (2K + 1, K + 1).
        n: Number of points along the first axis.
    """
    rows, columns = to_u.shape
    top = rows // 2
    flow = np.empty((len(w), 2, n, columns), np.complex128)
    for b in range(len(w)):
        for row in range(n):
            mode = row if row <= top else row - n + rows
            if top < row < n - top:
                flow[b, :, row] = 0
            else:
                for column in range(columns):
                    value = w[b, mode, column]
                    i_w = complex(-value.imag, value.real)
                    flow[b, 0, row, column] = to_u[mode, column] * i_w
                    flow[b, 1, row, column] = to_v[mode, column] * i_w
    return flow


@_jit
def products(flow: np.ndarray) -> None:
    """Overwrites the velocities u, v in `flow`, shape (batch, 2, n, n), by u v and v² - u²."""
    for b in range(len(flow)):
        for i in range(flow.shape[2]):
            for j in range(flow.shape[3]):
                u, v = flow[b, 0, i, j], flow[b, 1, i, j]
                flow[b, 0, i, j], flow[b, 1, i, j] = u * v, (v - u) * (v + u)


@_jit
def convection(
    products_hat: np.ndarray, of_uv: np.ndarray, of_squares: np.ndarray, force: np.ndarray
) -> np.ndarray:
    """The modes of f - u·∇w, shape (batch, 1, 2K + 1, K + 1).

    Args:
        products_hat: Modes of u v and v² - u², shape (batch, 2, n, K + 1), all n modes along the
            first axis.
        of_uv, of_squares: Real symbols of the operators on u v and on v² - u², shape
            (2K + 1, K + 1).
        force: Modes of f, shape (2K + 1, K + 1).
    """
    rows, columns = of_uv.shape
    top, n = rows // 2, products_hat.shape[2]
    change = np.empty((len(products_hat), 1, rows, columns), np.complex128)
    for b in range(len(products_hat)):
        for mode in range(rows):
            row = mode if mode <= top else mode - rows + n
            for column in range(columns):
                change[b, 0, mode, column] = (
                    of_uv[mode, column] * products_hat[b, 0, row, column]
                    + of_squares[mode, column] * products_hat[b, 1, row, column]
                    + force[mode, column]
                )
    return change
