"""The discrete sine transform of type II on a cell grid, by matrix products and by FFTs.

v_j = Σ_k s_jk v̂_k with s_jk = √(2/n) sin(πk(j + ½)/n) for k = 1 ... n, where the last column of s
is divided by √2. The matrix s is orthonormal, so that v̂ = sᵀv.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.numerics.device import Array, constant

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
