"""Discrete Fourier transforms of eight samples at once, in place, for compiled loops.

A complex number is two vectors of `lanes`, the real and the imaginary part. `to_points` takes modes
in their natural order and leaves the points in an order that depends on the factors of n only;
`to_modes` takes points in this order. Products of functions at the points do not depend on it.

References: W. M. Gentleman and G. Sande, Fast Fourier transforms: for fun and profit, AFIPS 1966
(decimation in frequency, `to_points`); J. W. Cooley and J. W. Tukey, Math. Comp. 19 (1965)
(decimation in time, `to_modes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdegen.numerics.lanes import addressed, call, inline, integer, load, number, store
from pdegen.numerics.transforms import has_plan

_SIN_60 = float(np.sin(np.pi / 3))
_COS_72, _COS_144 = float(np.cos(2 * np.pi / 5)), float(np.cos(4 * np.pi / 5))
_SIN_72, _SIN_144 = float(np.sin(2 * np.pi / 5)), float(np.sin(4 * np.pi / 5))


@inline
def _times(re, im, roots, at):
    """The complex number times the root at an index."""
    w_re, w_im = number(roots, at), number(roots, at + 1)
    return w_re * re - w_im * im, w_re * im + w_im * re


# sums b_j = Σ_k e^(2πi jk/r) a_k of r = 2, 3, 4, 5 complex numbers


@inline
def _two(a, b, c, d):
    return a + c, b + d, a - c, b - d


@inline
def _three(a_re, a_im, b_re, b_im, c_re, c_im):
    sum_re, sum_im = b_re + c_re, b_im + c_im
    turn_re, turn_im = _SIN_60 * (c_im - b_im), _SIN_60 * (b_re - c_re)
    half_re, half_im = a_re - 0.5 * sum_re, a_im - 0.5 * sum_im
    return (
        a_re + sum_re, a_im + sum_im,
        half_re + turn_re, half_im + turn_im,
        half_re - turn_re, half_im - turn_im,
    )  # fmt: skip


@inline
def _four(a_re, a_im, b_re, b_im, c_re, c_im, d_re, d_im):
    s_re, s_im, t_re, t_im = a_re + c_re, a_im + c_im, a_re - c_re, a_im - c_im
    u_re, u_im, v_re, v_im = b_re + d_re, b_im + d_im, b_re - d_re, b_im - d_im
    return (
        s_re + u_re, s_im + u_im, t_re - v_im, t_im + v_re,
        s_re - u_re, s_im - u_im, t_re + v_im, t_im - v_re,
    )  # fmt: skip


@inline
def _five(a_re, a_im, b_re, b_im, c_re, c_im, d_re, d_im, e_re, e_im):
    s_re, s_im, t_re, t_im = b_re + e_re, b_im + e_im, c_re + d_re, c_im + d_im
    u_re, u_im, v_re, v_im = b_re - e_re, b_im - e_im, c_re - d_re, c_im - d_im
    p_re = a_re + (_COS_72 * s_re + _COS_144 * t_re)
    p_im = a_im + (_COS_72 * s_im + _COS_144 * t_im)
    q_re = a_re + (_COS_144 * s_re + _COS_72 * t_re)
    q_im = a_im + (_COS_144 * s_im + _COS_72 * t_im)
    y_re, y_im = _SIN_72 * u_re + _SIN_144 * v_re, _SIN_72 * u_im + _SIN_144 * v_im
    z_re, z_im = _SIN_144 * u_re - _SIN_72 * v_re, _SIN_144 * u_im - _SIN_72 * v_im
    return (
        a_re + (s_re + t_re), a_im + (s_im + t_im),
        p_re - y_im, p_im + y_re, q_re - z_im, q_im + z_re,
        q_re + z_im, q_im - z_re, p_re + y_im, p_im - y_re,
    )  # fmt: skip


# Passes over all numbers. `real` is 0 for Σ e^(2πi jk/n); with `real` = 1 the parts change places,
# which gives Σ e^(-2πi jk/n). Numbers are multiplied by the roots before the sums, or after them.


@inline
def _loaded(x, i, real):
    """The complex number whose parts are the vectors i and i + 1."""
    return load(x, i + real), load(x, i + 1 - real)


@inline
def _put(x, i, real, re, im):
    store(x, i + real, re)
    store(x, i + 1 - real, im)


def _pass_of_two(x, blocks, m, roots, real, before):
    for block in range(blocks):
        for p in range(m):
            i = 2 * (2 * m * block + p)
            j, w = i + 2 * m, 2 * p
            a_re, a_im = _loaded(x, i, real)
            b_re, b_im = _loaded(x, j, real)
            if before:
                b_re, b_im = _times(b_re, b_im, roots, w)
            a_re, a_im, b_re, b_im = _two(a_re, a_im, b_re, b_im)
            if not before:
                b_re, b_im = _times(b_re, b_im, roots, w)
            _put(x, i, real, a_re, a_im)
            _put(x, j, real, b_re, b_im)


def _pass_of_three(x, blocks, m, roots, real, before):
    for block in range(blocks):
        for p in range(m):
            i = 2 * (3 * m * block + p)
            j, k, w = i + 2 * m, i + 4 * m, 4 * p
            a_re, a_im = _loaded(x, i, real)
            b_re, b_im = _loaded(x, j, real)
            c_re, c_im = _loaded(x, k, real)
            if before:
                b_re, b_im = _times(b_re, b_im, roots, w)
                c_re, c_im = _times(c_re, c_im, roots, w + 2)
            a_re, a_im, b_re, b_im, c_re, c_im = _three(a_re, a_im, b_re, b_im, c_re, c_im)
            if not before:
                b_re, b_im = _times(b_re, b_im, roots, w)
                c_re, c_im = _times(c_re, c_im, roots, w + 2)
            _put(x, i, real, a_re, a_im)
            _put(x, j, real, b_re, b_im)
            _put(x, k, real, c_re, c_im)


def _pass_of_four(x, blocks, m, roots, real, before):
    for block in range(blocks):
        for p in range(m):
            i = 2 * (4 * m * block + p)
            j, k, n, w = i + 2 * m, i + 4 * m, i + 6 * m, 6 * p
            a_re, a_im = _loaded(x, i, real)
            b_re, b_im = _loaded(x, j, real)
            c_re, c_im = _loaded(x, k, real)
            d_re, d_im = _loaded(x, n, real)
            if before:
                b_re, b_im = _times(b_re, b_im, roots, w)
                c_re, c_im = _times(c_re, c_im, roots, w + 2)
                d_re, d_im = _times(d_re, d_im, roots, w + 4)
            a_re, a_im, b_re, b_im, c_re, c_im, d_re, d_im = _four(
                a_re, a_im, b_re, b_im, c_re, c_im, d_re, d_im
            )
            if not before:
                b_re, b_im = _times(b_re, b_im, roots, w)
                c_re, c_im = _times(c_re, c_im, roots, w + 2)
                d_re, d_im = _times(d_re, d_im, roots, w + 4)
            _put(x, i, real, a_re, a_im)
            _put(x, j, real, b_re, b_im)
            _put(x, k, real, c_re, c_im)
            _put(x, n, real, d_re, d_im)


def _pass_of_five(x, blocks, m, roots, real, before):
    for block in range(blocks):
        for p in range(m):
            i = 2 * (5 * m * block + p)
            j, k, n, o, w = i + 2 * m, i + 4 * m, i + 6 * m, i + 8 * m, 8 * p
            a_re, a_im = _loaded(x, i, real)
            b_re, b_im = _loaded(x, j, real)
            c_re, c_im = _loaded(x, k, real)
            d_re, d_im = _loaded(x, n, real)
            e_re, e_im = _loaded(x, o, real)
            if before:
                b_re, b_im = _times(b_re, b_im, roots, w)
                c_re, c_im = _times(c_re, c_im, roots, w + 2)
                d_re, d_im = _times(d_re, d_im, roots, w + 4)
                e_re, e_im = _times(e_re, e_im, roots, w + 6)
            a_re, a_im, b_re, b_im, c_re, c_im, d_re, d_im, e_re, e_im = _five(
                a_re, a_im,
                b_re, b_im, c_re, c_im, d_re, d_im, e_re, e_im,
            )  # fmt: skip
            if not before:
                b_re, b_im = _times(b_re, b_im, roots, w)
                c_re, c_im = _times(c_re, c_im, roots, w + 2)
                d_re, d_im = _times(d_re, d_im, roots, w + 4)
                e_re, e_im = _times(e_re, e_im, roots, w + 6)
            _put(x, i, real, a_re, a_im)
            _put(x, j, real, b_re, b_im)
            _put(x, k, real, c_re, c_im)
            _put(x, n, real, d_re, d_im)
            _put(x, o, real, e_re, e_im)


def _transform(x, plan, to_modes):
    """The transform of a plan (`TransformPlan.table`), in place."""
    passes = integer(plan, 1)
    for count in range(passes):
        row = 2 + 4 * (passes - 1 - count if to_modes else count)
        blocks, m, roots = integer(plan, row + 1), integer(plan, row + 2), integer(plan, row + 3)
        call(integer(plan, row), (x, blocks, m, roots, to_modes, to_modes))


def _halves(z, half, h, highest, roots):
    """Convert modes k = 0 ..."""
    re = load(half, 0)  # the mean is real
    store(z, 0, re)
    store(z, 1, re)
    zero = re - re
    for k in range(1, h // 2 + 1):
        mirror = h - k
        a_re, a_im, b_re, b_im = zero, zero, zero, zero
        if k <= highest:
            a_re, a_im = load(half, 2 * k), load(half, 2 * k + 1)
        if mirror <= highest:
            b_re, b_im = load(half, 2 * mirror), load(half, 2 * mirror + 1)
        s_re, s_im = a_re + b_re, a_im - b_im
        t_re, t_im = _times(a_re - b_re, a_im + b_im, roots, 2 * k)
        store(z, 2 * k, s_re - t_im)
        store(z, 2 * k + 1, s_im + t_re)
        store(z, 2 * mirror, s_re + t_im)
        store(z, 2 * mirror + 1, t_re - s_im)


def _joined(half, z, h, highest, roots):
    """Compute twice the modes of 2h real numbers from the modes of h numbers (see `_halves`)."""
    re = load(z, 0) + load(z, 1)
    store(half, 0, re + re)
    store(half, 1, re - re)
    for k in range(1, h // 2 + 1):
        mirror = h - k
        a_re, a_im, b_re, b_im = (
            load(z, 2 * k), load(z, 2 * k + 1), load(z, 2 * mirror), load(z, 2 * mirror + 1),
        )  # fmt: skip
        s_re, s_im = a_re + b_re, a_im - b_im
        u_im, u_re = _times(a_im + b_im, a_re - b_re, roots, 2 * k)  # conj(w) D
        if k <= highest:
            store(half, 2 * k, s_re + u_im)
            store(half, 2 * k + 1, s_im - u_re)
        if mirror <= highest:
            store(half, 2 * mirror, s_re - u_im)
            store(half, 2 * mirror + 1, -1.0 * (s_im + u_re))


_PASSES = {
    2: addressed(_pass_of_two), 3: addressed(_pass_of_three), 4: addressed(_pass_of_four),
    5: addressed(_pass_of_five),
}  # fmt: skip
_TRANSFORM = addressed(_transform)
HALVES, JOINED = addressed(_halves), addressed(_joined)


@dataclass(frozen=True)
class TransformPlan:
    """Factors of n and roots of unity for transforms of n complex numbers.

    Raises ValueError if n has a prime factor other than 2, 3 and 5.
    """

    n: int

    def __post_init__(self) -> None:
        if not has_plan(self.n):
            raise ValueError(f"transforms of vectors need factors 2, 3 and 5 only, got {self.n}")

    @cached_property
    def passes(self) -> list[tuple[int, int, int, np.ndarray]]:
        """Radix, blocks, numbers m of a part of a block and roots e^(2πi jp/(r m)) of each pass."""
        passes, blocks, m = list[tuple[int, int, int, np.ndarray]](), 1, self.n
        for radix in (4, 2, 3, 5):
            while m % radix == 0:
                m //= radix
                turns = np.outer(np.arange(m), np.arange(1, radix)) / (radix * m)
                passes.append((radix, blocks, m, np.exp(2j * np.pi * turns)))
                blocks *= radix
        return passes

    @cached_property
    def table(self) -> np.ndarray:
        """The addresses and numbers that compiled transforms read."""
        table = [_TRANSFORM, len(self.passes)]
        for radix, blocks, m, roots in self.passes:
            table += [_PASSES[radix], blocks, m, roots.ctypes.data]
        return np.array(table, np.int64)

    @cached_property
    def turns(self) -> np.ndarray:
        """e^(2πik/2n) for k <= n/2, for real transforms of 2n numbers."""
        return np.exp(1j * np.pi * np.arange(self.n // 2 + 1) / self.n)
