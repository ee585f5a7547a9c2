"""Cyclic reduction for many cyclic block-tridiagonal systems at once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def solve_cyclic_tridiagonal(
    matrices: Float[np.ndarray, "batch segments 2*size 2*size"],
    loads: Float[np.ndarray, "batch segments size"],
) -> Float[np.ndarray, "batch segments size"]:
    """Solves Σ_k A_k (u_k, u_{k+1}) = f on a ring of n lines of unknowns, where u_n = u_0.

    Segment k joins the lines k and k + 1. Each reduction eliminates every second line and merges
    the two segments of that line into one, until a single segment joins a line to itself. There is
    no pivoting between lines, so the matrix of the ring must be symmetric and positive definite.

    Args:
        matrices: The A_k, which act on (u_k, u_{k+1}).
        loads: f on each line.

    Raises:
        LinAlgError: If the matrix of a line is singular.

    >>> around = np.array([[[[3.0, -1], [-1, 0]]] * 4])  # 3u_k - u_{k-1} - u_{k+1} = 1
    >>> solve_cyclic_tridiagonal(around, np.ones((1, 4, 1))).ravel()
    array([1., 1., 1., 1.])
    """
    n, b = matrices.shape[1], loads.shape[2]
    if n == 1:
        whole: np.ndarray = matrices.reshape(-1, 2, b, 2, b).sum(axis=(1, 3))
        return np.linalg.solve(whole, loads[:, 0, :, None])[:, None, :, 0]
    half = n // 2
    left, right = matrices[:, 0 : 2 * half : 2], matrices[:, 1 : 2 * half : 2]
    across = np.concatenate([left[..., b:, :b], right[..., :b, b:]], axis=-1)
    middle = loads[:, 1 : 2 * half : 2, :, None]
    inner = np.linalg.solve(
        left[..., b:, b:] + right[..., :b, :b], np.concatenate([across, middle], axis=-1)
    )
    back = np.concatenate([left[..., :b, b:], right[..., b:, :b]], axis=-2)
    change = -back @ inner  # (batch, half, 2b, 2b + 1)
    joined, added = change[..., :-1], change[..., -1]
    joined[..., :b, :b] += left[..., :b, :b]
    joined[..., b:, b:] += right[..., b:, b:]
    reduced = loads[:, ::2].copy()
    reduced[:, :half] += added[..., :b]
    reduced[:, np.arange(1, half + 1) % reduced.shape[1]] += added[..., b:]
    if n % 2:
        joined = np.concatenate([joined, matrices[:, -1:]], axis=1)
    u = np.empty(loads.shape)
    u[:, ::2] = outer = solve_cyclic_tridiagonal(joined, reduced)
    ends = np.concatenate([outer[:, :half], np.roll(outer, -1, axis=1)[:, :half]], axis=-1)
    u[:, 1 : 2 * half : 2] = inner[..., -1] - (inner[..., :-1] @ ends[..., None])[..., 0]
    return u
