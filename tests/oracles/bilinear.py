"""Bilinear elements for -div(a grad u) = f from their 4 x 4 matrix, solved by SciPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import spsolve

# of ∫ ∇φᵢ·∇φⱼ over a square of any size, corners in the order (0,0), (0,1), (1,0), (1,1)
_STIFFNESS = np.array([[4, -1, -1, -2], [-1, 4, -2, -1], [-1, -2, 4, -1], [-2, -1, -1, 4]]) / 6


def bilinear_solution(
    a: np.ndarray, f: np.ndarray, walls: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """u at the centres of n x n cells, indexed [x, y], from cell values a and f, shape (n, n)."""
    n = len(a)
    nodes = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    corners = [nodes[:-1, :-1], nodes[:-1, 1:], nodes[1:, :-1], nodes[1:, 1:]]
    matrix = sparse.csr_array((nodes.size, nodes.size))
    b = np.zeros(nodes.size)
    for i in range(4):
        np.add.at(b, corners[i], f / (4 * n * n))
        for j in range(4):
            entry = (_STIFFNESS[i, j] * a).ravel(), (corners[i].ravel(), corners[j].ravel())
            matrix = matrix + sparse.csr_array(entry, shape=matrix.shape)
    x = np.arange(n + 1) / n
    u = np.asarray(walls(x[:, None], x)).ravel()
    inner = nodes[1:-1, 1:-1].ravel()
    outer = np.setdiff1d(nodes, inner)
    rows = matrix[inner]
    u[inner] = spsolve(sparse.csc_array(rows[:, inner]), b[inner] - rows[:, outer] @ u[outer])
    return sum(u[corner] for corner in corners) / 4
