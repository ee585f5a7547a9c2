"""Compiled loops of the Darcy solvers.

The mathematics is in `interface.py`, `poisson.py` and `phase_flow.py`. Arrays a, b, u, r, v have
shape (n, m) on the cells [i, j]. A is the matrix of five-point finite volumes times h²:
(A u)_ij = Σ_faces t (u_ij - u_neighbour), where t is the coefficient on the face. u is 0 on the
walls, which lie half a cell from the outermost centres. Each face on a wall therefore adds
2 a_ij u_ij.
"""

from __future__ import annotations

import numpy as np

from pdegen.numerics.compilation import compiled

# sums may be reordered; NaN is not assumed away, so failures stay visible
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_jit, _inner = compiled(fastmath=_FAST), compiled(inner=True, fastmath=_FAST)


@_inner
def face_mean(v: float, w: float, harmonic: bool) -> float:
    """Harmonic or arithmetic mean of the coefficients v and w of the two cells at a face."""
    return 2 * v * w / (v + w) if harmonic else (v + w) / 2


@_jit
def residual(
    a: np.ndarray, harmonic: bool, b: np.ndarray, u: np.ndarray, r: np.ndarray
) -> float:  # fmt: skip
    """Writes r = b - A u and returns ‖r‖²."""
    n, m = a.shape
    total = 0.0
    for i in range(n):
        for j in range(m):
            v, w = a[i, j], u[i, j]
            s = b[i, j]
            # four faces; at a wall the coefficient is that of the cell, the distance half a cell
            s -= face_mean(v, a[i - 1, j], harmonic) * (w - u[i - 1, j]) if i > 0 else 2 * v * w
            s -= face_mean(v, a[i + 1, j], harmonic) * (w - u[i + 1, j]) if i + 1 < n else 2 * v * w
            s -= face_mean(v, a[i, j - 1], harmonic) * (w - u[i, j - 1]) if j > 0 else 2 * v * w
            s -= face_mean(v, a[i, j + 1], harmonic) * (w - u[i, j + 1]) if j + 1 < m else 2 * v * w
            r[i, j] = s
            total += s * s
    return total


@_inner
def face_slope(v: float, w: float, harmonic: bool) -> float:
    """Derivative of `face_mean` with respect to v."""
    return 2 * w * w / (v + w) ** 2 if harmonic else 0.5


@_jit
def sensitivity(
    a: np.ndarray, harmonic: bool, v: np.ndarray, u: np.ndarray, out: np.ndarray
) -> None:
    """Writes out = -(∂(A u - b)/∂a)ᵀ v, the gradient of -vᵀ(A u - b) with respect to a.

    u and v are 0 on the walls.
    """
    n, m = a.shape
    for i in range(n):
        for j in range(m):
            c, w, z = a[i, j], u[i, j], v[i, j]
            # over the four faces: ∂t/∂a (u_neighbour - u)(v - v_neighbour)
            s = 0.0
            if i > 0:
                s += face_slope(c, a[i - 1, j], harmonic) * (u[i - 1, j] - w) * (z - v[i - 1, j])
            else:
                s += 2 * -w * z
            if i + 1 < n:
                s += face_slope(c, a[i + 1, j], harmonic) * (u[i + 1, j] - w) * (z - v[i + 1, j])
            else:
                s += 2 * -w * z
            if j > 0:
                s += face_slope(c, a[i, j - 1], harmonic) * (u[i, j - 1] - w) * (z - v[i, j - 1])
            else:
                s += 2 * -w * z
            if j + 1 < m:
                s += face_slope(c, a[i, j + 1], harmonic) * (u[i, j + 1] - w) * (z - v[i, j + 1])
            else:
                s += 2 * -w * z
            out[i, j] = s


@_jit
def tridiagonal_solves(hat: np.ndarray, pivots: np.ndarray) -> None:
    """Overwrites hat[:, k] by the solution w of (T + λ_k) w = hat[:, k], for every mode k.

    T is the matrix tridiag(-1, d, -1) along axis 0. The pivots of Thomas' algorithm are
    p_i = 1/(d_i + λ_k - p_{i-1}), shape (n, modes).
    """
    n, modes = hat.shape
    row, pivot = hat[0], pivots[0]  # forward elimination
    for k in range(modes):
        row[k] *= pivot[k]
    for i in range(1, n):
        before, row, pivot = hat[i - 1], hat[i], pivots[i]
        for k in range(modes):
            row[k] = (row[k] + before[k]) * pivot[k]
    for i in range(n - 2, -1, -1):  # back substitution
        after, row, pivot = hat[i + 1], hat[i], pivots[i]
        for k in range(modes):
            row[k] += pivot[k] * after[k]


@_jit
def add_transformed(
    start: np.ndarray, columns: np.ndarray, values: np.ndarray, sines: np.ndarray, hat: np.ndarray
) -> None:
    """Adds the sine transform of values at the interface cells to `hat`.

    The sum Σ_c values[c] sines[columns[c]] over the cells start[i] <= c < start[i+1] of row i is
    added to hat[i].
    """
    n, modes = hat.shape
    for i in range(n):
        row, c, end = hat[i], start[i], start[i + 1]
        while c + 3 < end:  # four cells at a time load and store the row once
            s0, s1 = sines[columns[c]], sines[columns[c + 1]]
            s2, s3 = sines[columns[c + 2]], sines[columns[c + 3]]
            v0, v1, v2, v3 = values[c], values[c + 1], values[c + 2], values[c + 3]
            for k in range(modes):
                row[k] += v0 * s0[k] + v1 * s1[k] + v2 * s2[k] + v3 * s3[k]
            c += 4
        while c < end:
            s0, v0 = sines[columns[c]], values[c]
            for k in range(modes):
                row[k] += v0 * s0[k]
            c += 1


@_jit
def evaluate(
    start: np.ndarray, columns: np.ndarray, sines: np.ndarray, hat: np.ndarray, values: np.ndarray
) -> None:
    """Writes the inverse sine transform of `hat` at the interface cells to `values`.

    For each cell c of row i, values[c] = Σ_k hat[i, k] sines[columns[c], k].
    """
    n, modes = hat.shape
    for i in range(n):
        row, c, end = hat[i], start[i], start[i + 1]
        while c + 3 < end:
            s0, s1 = sines[columns[c]], sines[columns[c + 1]]
            s2, s3 = sines[columns[c + 2]], sines[columns[c + 3]]
            v0 = v1 = v2 = v3 = 0.0
            for k in range(modes):
                h = row[k]
                v0 += h * s0[k]
                v1 += h * s1[k]
                v2 += h * s2[k]
                v3 += h * s3[k]
            values[c], values[c + 1], values[c + 2], values[c + 3] = v0, v1, v2, v3
            c += 4
        while c < end:
            s0, v0 = sines[columns[c]], 0.0
            for k in range(modes):
                v0 += row[k] * s0[k]
            values[c] = v0
            c += 1


@_jit
def add_jumps(
    first: np.ndarray, second: np.ndarray, jump1: np.ndarray, jump2: np.ndarray,
    z: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Adds J z to `out`.

    Each face with the cells c, d and the jumps j_c, j_d adds j_c (z_c - z_d) to out[c] and
    j_d (z_d - z_c) to out[d].
    """
    for f in range(len(first)):
        c, d = first[f], second[f]
        difference = z[c] - z[d]
        out[c] += jump1[f] * difference
        out[d] -= jump2[f] * difference


@_jit
def interface_cg(
    start: np.ndarray, columns: np.ndarray, a: np.ndarray,
    first: np.ndarray, second: np.ndarray, jump1: np.ndarray, jump2: np.ndarray,
    sines: np.ndarray, pivots: np.ndarray, r: np.ndarray, tolerance: float, limit: int,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Charges σ such that ‖r - A L⁻¹ σ‖ <= tolerance, and the number of iterations.

    The method is conjugate gradients on A, preconditioned by L. All vectors, including the
    charges, are stored at the interface cells only. The function overwrites r by the residual.
    After `limit` iterations the residual may still exceed the tolerance. In the code p is the
    search direction, and σ is a linear combination of the vectors q = L p.
    """
    cells = len(r)
    hat = np.empty((len(start) - 1, sines.shape[1]))
    z, p, q, charges = np.empty(cells), np.zeros(cells), np.zeros(cells), np.zeros(cells)
    ap = np.empty(cells)
    previous_product = 1.0
    for iteration in range(limit):
        if np.sqrt(np.dot(r, r)) <= tolerance:
            return charges, iteration
        # z = L⁻¹ r at the interface: sines along y, tridiagonal solves along x, and back
        hat[:] = 0.0
        add_transformed(start, columns, r, sines, hat)
        tridiagonal_solves(hat, pivots)
        evaluate(start, columns, sines, hat, z)
        product = np.dot(r, z)
        beta = product / previous_product if iteration else 0.0
        for c in range(cells):
            p[c] = z[c] + beta * p[c]
            q[c] = r[c] + beta * q[c]  # q = L p
            ap[c] = a[c] * q[c]
        add_jumps(first, second, jump1, jump2, p, ap)  # A p = a L p + J p
        alpha = product / np.dot(p, ap)
        for c in range(cells):
            charges[c] += alpha * q[c]
            r[c] -= alpha * ap[c]
        previous_product = product
    return charges, limit


# loops of `phase_flow.py`: faces have harmonic means t = 2ab/(a + b) of their cells


@_jit
def stiffness_band(a: np.ndarray) -> np.ndarray:
    """Lower diagonals of the matrix A for the coefficient a, transposed, shape (n², n + 1).

    a has the shape (n, n). Row i n + j has the diagonal entry at index 0, the entry for the
    neighbour [i, j + 1] at index 1, and the entry for [i + 1, j] at index n.
    """
    n = len(a)
    diagonals = np.zeros((n * n, n + 1))
    # walls: a face half a cell away counts 2a; a corner cell has two
    for i in range(n):
        for j in range(n):
            walls = (i == 0) + (i == n - 1) + (j == 0) + (j == n - 1)
            diagonals[i * n + j, 0] = walls * 2 * a[i, j]
    # inner faces: t on the diagonal of both cells, -t between them
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
def face_derivatives(a: np.ndarray) -> np.ndarray:
    """Derivatives of t with respect to a in both cells of each inner face across axis 0.

    The result has the shape (n - 1, m, 2).
    """
    n, m = a.shape
    slopes = np.empty((n - 1, m, 2))
    for i in range(n - 1):
        for j in range(m):
            before, after = a[i, j], a[i + 1, j]
            slopes[i, j, 0] = 2 * (after / (before + after)) ** 2
            slopes[i, j, 1] = 2 * (before / (before + after)) ** 2
    return slopes


@_jit
def face_changes(slopes: np.ndarray, dp: np.ndarray) -> np.ndarray:
    """First-order changes of t on the inner faces across axis 0, for a change dp of p.

    `slopes` are the derivatives ∂t/∂p.
    """
    n, m = dp.shape
    dt = np.empty((n - 1, m))
    for i in range(n - 1):
        for j in range(m):
            dt[i, j] = slopes[i, j, 0] * dp[i, j] + slopes[i, j, 1] * dp[i + 1, j]
    return dt


@_jit
def add_transposed(slopes: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """Adds the transposed derivative of transmissibilities, applied to w, to `out`.

    w are values on the inner faces across axis 0. `slopes` are the derivatives ∂t/∂p of the
    transmissibilities t of these faces by the phase p of the cells beside them.
    """
    n, m = out.shape
    for i in range(n - 1):
        for j in range(m):
            out[i, j] += slopes[i, j, 0] * w[i, j]
            out[i + 1, j] += slopes[i, j, 1] * w[i, j]
