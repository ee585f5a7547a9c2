"""The discrete sine transform of type II on a cell grid, by matrix products and by FFTs.

v_j = Σ_k s_jk v̂_k with s_jk = √(2/n) sin(πk(j + ½)/n) for k = 1 ... n, where the last column of s
is divided by √2. The matrix s is orthonormal, so that v̂ = sᵀv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.numerics.device import Array, constant

# Block elimination for block-tridiagonal systems on a chain of segments.


def solve_block_tridiagonal(
    matrices: Iterable[Float[Array, "batch size size"]],
    ends: Float[Array, "batch segments+1 outer"],
    inner: Float[Array, "batch segments inner"],
) -> tuple[Float[Array, "batch segments+1 outer"], Float[Array, "batch segments inner"]]:
    """Solves Σ_k A_k (u_k, v_k, u_{k+1}) = (f, g). The matrices A_k are overwritten.

    The segments k - 1 and k share the unknowns u_k. The unknowns v_k belong to segment k alone.
    One dense factorisation with pivoting eliminates both u_k and v_k. The matrices may therefore be
    indefinite. Each matrix is used only once, so `matrices` may be a generator.

    Args:
        matrices: The A_k in order, which act on (u_k, v_k, u_{k+1}). The function changes these
            arrays in place.
        ends: f, the loads on u.
        inner: g, the loads on v.

    Raises:
        LinAlgError: If a block is singular.

    >>> import numpy as np
    >>> spring = np.array([[[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]]])  # u, v, u: two springs
    >>> held = spring + np.diag([1.0, 0, 0])
    >>> loads = np.array([[[0.0], [0.0], [1.0]]])
    >>> u, v = solve_block_tridiagonal([held, spring], loads, np.zeros((1, 2, 1)))
    >>> u.ravel().round(12), v.ravel().round(12)
    (array([1., 3., 5.]), array([2., 4.]))
    """
    xp, outer = array_namespace(ends), ends.shape[2]
    cut = outer + inner.shape[2]
    carried, load = xp.zeros_like(ends[:, :1, :1]), ends[:, 0]
    solved = list[Array]()
    for k, matrix in enumerate(matrices):
        matrix[:, :outer, :outer] += carried
        right = xp.concat([load, inner[:, k]], axis=1)[..., None]
        columns = xp.concat([matrix[:, :cut, cut:], right], axis=2)
        solved.append(xp.linalg.solve(matrix[:, :cut, :cut], columns))
        below = matrix[:, cut:, :cut] @ solved[-1]
        carried = matrix[:, cut:, cut:] - below[..., :-1]
        load = ends[:, k + 1] - below[..., -1]
    u, v = [xp.linalg.solve(carried, load[..., None])[..., 0]], list[Array]()
    for part in reversed(solved):
        both = part[..., -1] - (part[..., :-1] @ u[-1][..., None])[..., 0]
        u.append(both[:, :outer])
        v.append(both[:, outer:])
    return xp.stack(u[::-1], axis=1), xp.stack(v[::-1], axis=1)


# Preconditioned conjugate gradients for a batch of symmetric positive definite problems.


Linear = Callable[[Array], Array]


def conjugate_gradients(
    operator: Linear, preconditioner: Linear, b: Array, rtol: float, limit: int
) -> tuple[Array, Array]:
    """Solves A u = b for each sample; returns u and the number of iterations.

    If `limit` iterations suffice, then ‖b - A u‖ <= rtol ‖b‖ for each sample.

    Args:
        operator: The map u -> A u for arrays of the shape of b.
        preconditioner: An approximation of A⁻¹, symmetric and positive definite. It must return a
            new array.
        b: Right-hand sides, shape (batch, n, n).
        rtol: Relative tolerance; a sample that meets the tolerance does not change any more.
        limit: Largest number of iterations.

    >>> import numpy as np
    >>> b = np.arange(1.0, 5.0).reshape(1, 2, 2)
    >>> u, iterations = conjugate_gradients(lambda v: 2 * v, np.copy, b, rtol=1e-12, limit=10)
    >>> u.ravel().tolist(), iterations.tolist()
    ([0.5, 1.0, 1.5, 2.0], [1])
    """
    xp = array_namespace(b)

    def dot(v: Array, w: Array) -> Array:
        return xp.sum(v * w, axis=(1, 2), keepdims=True)

    def ratio(v: Array, w: Array) -> Array:  # 0/0 for a sample solved exactly: gives 0
        return v / xp.where(w == 0, xp.ones_like(w), w)

    goal = rtol**2 * dot(b, b)
    u, r = xp.zeros_like(b), xp.asarray(b, copy=True)
    p = xp.zeros_like(b)
    before, iterations = xp.zeros_like(goal), xp.zeros_like(goal)
    for iteration in range(limit):
        running = xp.astype(dot(r, r) > goal, b.dtype)
        # the only value that waits for a device: far cheaper than a useless iteration of the batch
        if not bool(xp.any(running > 0)):
            break
        z = preconditioner(r)
        now = dot(r, z)
        if iteration:
            p *= ratio(now, before)
            p += z
        else:
            p = z
        q = operator(p)
        alpha = running * ratio(now, dot(p, q))
        u += alpha * p
        r -= alpha * q
        before = now
        iterations += running
    return u, xp.astype(xp.reshape(iterations, (-1,)), xp.int64)


# Cyclic reduction for many cyclic block-tridiagonal systems at once.


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


# Grids on which FFTs are faster than products: `python -m benchmarks.darcy transforms` compares
# both at all n from 8 to 600 and prints the worst choices. FFTs are faster wherever they are
# chosen. They would be twice as fast at 128, which takes 0.1 ms, and up to 1.5 times as fast at
# some n from 431 to 549.
_FEW_FACTORS = 130  # cells from which FFTs are faster if n >= 3 times its largest prime factor
_ANY = 550  # cells from which FFTs are faster for every n


class Sines(NamedTuple):
    """The sine transform and its inverse along the last two axes of an array."""

    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]


def matrix(grid: CellGrid) -> Float[np.ndarray, "n n"]:
    """The matrix s_jk of the transform.

    >>> s = matrix(CellGrid(5))
    >>> bool(np.allclose(s.T @ s, np.eye(5)))
    True
    """
    n = grid.n
    sines = np.sqrt(2 / n) * np.sin(np.pi * np.outer(grid.x, np.arange(1, n + 1)))
    sines[:, -1] /= np.sqrt(2)
    return sines


def faster_by_fft(n: int) -> bool:
    """Whether an FFT of n real numbers on a CPU is faster than a product with n x n sines.

    A large prime factor p costs p operations per number, or several FFTs by Bluestein's algorithm.

    >>> [n for n in (85, 129, 211, 421, 423, 631, 841, 1681) if faster_by_fft(n)]
    [423, 631, 841, 1681]
    """
    return n >= _ANY or (n >= _FEW_FACTORS and n >= 3 * _largest_prime(n))


def by_products(grid: CellGrid, like: Array) -> Sines:
    """The two-dimensional transform by matrix products, for arrays on the device of `like`."""
    s = constant(matrix(grid), like)
    return Sines(lambda v: s.T @ v @ s, lambda v: s @ v @ s.T)


def by_fft(grid: CellGrid, like: Array) -> Sines:
    """The two-dimensional transform by FFTs, for arrays on the device of `like`.

    Along each axis, let t have the entries (-1)^j v_j: first those of even j, then those of odd j
    in reverse order. Let T = rfft(t). Then z_m = √(2/n) e^(-iπm/2n) T_m has the real part v̂_(n-m)
    and the imaginary part -v̂_m.

    References: J. Makhoul, A fast cosine transform in one and two dimensions, IEEE Trans. ASSP 28
    (1980).
    """
    n, xp = grid.n, array_namespace(like)
    half = n // 2
    order = np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)[::-1]])
    rotation = np.sqrt(2 / n) * np.exp(-0.5j * np.pi * np.arange(half + 1) / n)
    rotation[0] /= np.sqrt(2)
    to, back = constant(order, like), constant(np.argsort(order), like)
    signs, turn = constant((-1.0) ** order, like), constant(rotation, like)

    def forward(v: Array) -> Array:
        z = turn * xp.fft.rfft(v[..., to] * signs)
        cosines = xp.concat([z.real, -xp.flip(z.imag[..., 1 : (n + 1) // 2], axis=-1)], axis=-1)
        return xp.flip(cosines, axis=-1)

    def backward(v: Array) -> Array:
        real = xp.flip(v[..., n - 1 - half :], axis=-1)
        imaginary = xp.concat([xp.zeros_like(v[..., :1]), -v[..., :half]], axis=-1)
        return (xp.fft.irfft((real + 1j * imaginary) / turn, n=n) * signs)[..., back]

    return Sines(lambda v: forward(forward(v).mT).mT, lambda v: backward(backward(v).mT).mT)


def _largest_prime(n: int) -> int:
    largest, prime = 1, 2
    while n > 1:
        if n % prime:
            prime += 1
        else:
            n, largest = n // prime, prime
    return largest
