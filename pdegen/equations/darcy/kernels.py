"""Compiled loops of the solvers. The mathematics is in `interface.py`, `poisson.py` and
`phase_flow.py`."""

from __future__ import annotations

import numba
import numpy as np

# rounding may be reordered; not a number stays one, so that failures are seen
_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})


@_jit
def face(v: float, w: float, harmonic: bool) -> float:
    """The coefficient on the face of two cells."""
    return 2 * v * w / (v + w) if harmonic else (v + w) / 2


@_jit
def crossing_faces(a: np.ndarray) -> int:
    """The number of inner faces between cells of different values."""
    n, m = a.shape
    count = 0
    for i in range(n):
        for j in range(m):
            if i + 1 < n:
                count += a[i, j] != a[i + 1, j]
            if j + 1 < m:
                count += a[i, j] != a[i, j + 1]
    return count


@_jit
def interface_graph(
    a: np.ndarray, faces: int, harmonic: bool
) -> tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray
]:  # fmt: skip
    """The cells at jumps, by rows, and the faces between them.

    Returns:
        start, columns: Cells start[i] <= c < start[i+1] lie in row i, at columns[c].
        values: Of a in these cells.
        first, second: The cells c, d of each face.
        jump1, jump2: a_f - a_c and a_f - a_d.
    """
    n, m = a.shape
    number = np.full((n, m), -1)
    for i in range(n):
        for j in range(m):
            if i + 1 < n and a[i, j] != a[i + 1, j]:
                number[i, j] = number[i + 1, j] = 0
            if j + 1 < m and a[i, j] != a[i, j + 1]:
                number[i, j] = number[i, j + 1] = 0
    start = np.zeros(n + 1, np.int64)
    columns, values = np.empty(2 * faces, np.int64), np.empty(2 * faces)
    cells = 0
    for i in range(n):
        for j in range(m):
            if number[i, j] == 0:
                number[i, j] = cells
                columns[cells], values[cells] = j, a[i, j]
                cells += 1
        start[i + 1] = cells
    first, second = np.empty(faces, np.int64), np.empty(faces, np.int64)
    jump1, jump2 = np.empty(faces), np.empty(faces)
    f = 0
    for i in range(n):
        for j in range(m):
            for step in range(2):
                p, q = i + 1 - step, j + step
                if p < n and q < m and a[i, j] != a[p, q]:
                    between = face(a[i, j], a[p, q], harmonic)
                    first[f], second[f] = number[i, j], number[p, q]
                    jump1[f], jump2[f] = between - a[i, j], between - a[p, q]
                    f += 1
    return start, columns[:cells], values[:cells], first, second, jump1, jump2


@_jit
def residual(
    a: np.ndarray, harmonic: bool, b: np.ndarray, u: np.ndarray, r: np.ndarray
) -> float:  # fmt: skip
    """r = b - A u, and ‖r‖²."""
    n, m = a.shape
    total = 0.0
    for i in range(n):
        for j in range(m):
            v, w = a[i, j], u[i, j]
            s = b[i, j]
            s -= face(v, a[i - 1, j], harmonic) * (w - u[i - 1, j]) if i > 0 else 2 * v * w
            s -= face(v, a[i + 1, j], harmonic) * (w - u[i + 1, j]) if i + 1 < n else 2 * v * w
            s -= face(v, a[i, j - 1], harmonic) * (w - u[i, j - 1]) if j > 0 else 2 * v * w
            s -= face(v, a[i, j + 1], harmonic) * (w - u[i, j + 1]) if j + 1 < m else 2 * v * w
            r[i, j] = s
            total += s * s
    return total


@_jit
def face_slope(v: float, w: float, harmonic: bool) -> float:
    """The derivative of `face` by v."""
    return 2 * w * w / (v + w) ** 2 if harmonic else 0.5


@_jit
def sensitivity(
    a: np.ndarray, harmonic: bool, v: np.ndarray, u: np.ndarray, out: np.ndarray
) -> None:
    """out = -(∂(A u - b)/∂a)ᵀ v; u and v are 0 on the walls."""
    n, m = a.shape
    for i in range(n):
        for j in range(m):
            c, w, z = a[i, j], u[i, j], v[i, j]
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
    """Solve (T + λ_k) w = hat[:, k] for every k in place, T = tridiag(-1, d, -1) along axis 0.

    The pivots of Thomas' algorithm are p_i = 1/(d_i + λ_k - p_{i-1}).
    """
    n, modes = hat.shape
    row, pivot = hat[0], pivots[0]
    for k in range(modes):
        row[k] *= pivot[k]
    for i in range(1, n):
        before, row, pivot = hat[i - 1], hat[i], pivots[i]
        for k in range(modes):
            row[k] = (row[k] + before[k]) * pivot[k]
    for i in range(n - 2, -1, -1):
        after, row, pivot = hat[i + 1], hat[i], pivots[i]
        for k in range(modes):
            row[k] += pivot[k] * after[k]


@_jit
def add_transformed(
    start: np.ndarray, columns: np.ndarray, values: np.ndarray, sines: np.ndarray, hat: np.ndarray
) -> None:
    """hat[i] += Σ values[c] sines[columns[c]] over the cells start[i] <= c < start[i+1]."""
    n, modes = hat.shape
    for i in range(n):
        row, c, end = hat[i], start[i], start[i + 1]
        while c + 3 < end:  # four at a time: the row is loaded and stored once for them
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
    """values[c] = Σ_k hat[i, k] sines[columns[c], k] for the cells c of each row i."""
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
    """out += J z: over the faces between cells c, d: out_c += j_c (z_c - z_d), and back."""
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
    """Charges σ with ‖r - (A L⁻¹) σ‖ <= tolerance on the interface cells, and the iterations.

    Conjugate gradients on A preconditioned by L, in vectors that live on interface cells alone;
    r is overwritten by the residual.
    """
    cells = len(r)
    hat = np.empty((len(start) - 1, sines.shape[1]))
    z, p, q, charges = np.empty(cells), np.zeros(cells), np.zeros(cells), np.zeros(cells)
    ap = np.empty(cells)
    before = 1.0
    for iteration in range(limit):
        if np.sqrt(np.dot(r, r)) <= tolerance:
            return charges, iteration
        hat[:] = 0.0
        add_transformed(start, columns, r, sines, hat)
        tridiagonal_solves(hat, pivots)
        evaluate(start, columns, sines, hat, z)  # z = L⁻¹ r
        now = np.dot(r, z)
        beta = now / before if iteration else 0.0
        for c in range(cells):
            p[c] = z[c] + beta * p[c]
            q[c] = r[c] + beta * q[c]  # q = L p
            ap[c] = a[c] * q[c]
        add_jumps(first, second, jump1, jump2, p, ap)  # A p = a L p + J p
        alpha = now / np.dot(p, ap)
        for c in range(cells):
            charges[c] += alpha * q[c]
            r[c] -= alpha * ap[c]
        before = now
    return charges, limit


# of `phase_flow.py`: faces with harmonic means, t = 2ab/(a + b)


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
