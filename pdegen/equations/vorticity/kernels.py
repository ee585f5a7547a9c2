"""Compiled loops of the vorticity solver. The mathematics is in `solver.py`."""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True)


@_jit
def velocities(w: np.ndarray, to_u: np.ndarray, to_v: np.ndarray, n: int) -> np.ndarray:
    """The modes i to_u w and i to_v w, (batch, 2, n, K + 1), with zeros where the first axis has
    modes that w, (batch, 2K + 1, K + 1), has not; to_u and to_v are real, (2K + 1, K + 1)."""
    rows, columns = to_u.shape
    top = rows // 2
    flow = np.empty((len(w), 2, n, columns), np.complex128)
    for b in range(len(w)):
        for row in range(n):
            place = row if row <= top else row - n + rows
            if top < row < n - top:
                flow[b, :, row] = 0
            else:
                for column in range(columns):
                    value = w[b, place, column]
                    turned = complex(-value.imag, value.real)
                    flow[b, 0, row, column] = to_u[place, column] * turned
                    flow[b, 1, row, column] = to_v[place, column] * turned
    return flow


@_jit
def products(flow: np.ndarray) -> None:
    """In place of u and v the products u v and v² - u², (batch, 2, n, n)."""
    for b in range(len(flow)):
        for i in range(flow.shape[2]):
            for j in range(flow.shape[3]):
                u, v = flow[b, 0, i, j], flow[b, 1, i, j]
                flow[b, 0, i, j], flow[b, 1, i, j] = u * v, (v - u) * (v + u)


@_jit
def convection(
    bent: np.ndarray, of_uv: np.ndarray, of_squares: np.ndarray, force: np.ndarray
) -> np.ndarray:
    """of_uv times the modes of u v, of_squares times those of v² - u², and the force: (batch, 1,
    2K + 1, K + 1) from all modes of the first axis, (batch, 2, n, K + 1), where of_uv, of_squares
    (real) and the force have the shape (2K + 1, K + 1)."""
    rows, columns = of_uv.shape
    top, n = rows // 2, bent.shape[2]
    change = np.empty((len(bent), 1, rows, columns), np.complex128)
    for b in range(len(bent)):
        for place in range(rows):
            row = place if place <= top else place - rows + n
            for column in range(columns):
                change[b, 0, place, column] = (
                    of_uv[place, column] * bent[b, 0, row, column]
                    + of_squares[place, column] * bent[b, 1, row, column]
                    + force[place, column]
                )
    return change
