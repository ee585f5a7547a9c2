"""Parts of error estimates: norms, ratios of distances between runs, relative errors, rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Complex, Float

from pdegen.numerics.device import Array, constant
from pdegen.numerics.torus import Torus

_ORDER = 4


def norms(torus: Torus, v: Complex[Array, "b t components *modes"]) -> Float[Array, "b t"]:
    """The L² norm of all components together, for each sample and time."""
    xp = array_namespace(v)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = constant(torus.weights, v) * (xp.real(v) ** 2 + xp.imag(v) ** 2)
        return xp.sqrt(xp.sum(squares, axis=tuple(range(2, v.ndim))))


def contraction(change: Array, difference: Array) -> Array:
    """The ratio of the distances between runs before and after a step is halved, within [2, 2⁴]."""
    xp = array_namespace(difference)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = change / (difference + np.finfo(float).tiny)
    most = xp.full_like(ratio, 2.0**_ORDER)
    return xp.clip(xp.where(xp.isfinite(ratio), ratio, most), 2.0, 2.0**_ORDER)


def relative(difference: Array, size: Array) -> Array:
    """The difference divided by the norm of the solution; infinite if this is not finite."""
    xp = array_namespace(difference)
    with np.errstate(over="ignore", invalid="ignore"):
        error = difference / (size + np.finfo(float).tiny)
    return xp.where(xp.isfinite(error), error, xp.full_like(error, math.inf))


def rounding(
    before: Float[Array, " b"],
    size: Float[Array, "b t"],
    times: Sequence[float],
    slowest: float | Float[np.ndarray, " b"],
) -> Float[Array, "b t"]:
    """Relative error of states at some times by the rounding of earlier states.

    The rounding of a state, ε times its norm, is in all modes. It decays like the mode that decays
    the slowest: the mean does not decay without drag, even if it should be 0. Growth is left out,
    because nonlinear terms limit it; equations without these have `grown_rounding`.

    Args:
        before: The norm of each sample at time 0.
        size: The norms at the times.
        times: The times.
        slowest: The rate r <= 0 of the slowest decay e^(rt), a number or one for each sample.
    """
    xp, eps, tiny = array_namespace(size), np.finfo(float).eps, np.finfo(float).tiny
    amount, now, shares = eps * before, 0.0, list[Array]()
    for k, t in enumerate(times):
        amount = amount * constant(np.asarray(np.exp(slowest * (t - now))), size)
        amount, now = xp.maximum(amount, eps * size[:, k]), t
        vanished = (size[:, k] < tiny) & (before > 0)
        shares.append(xp.where(vanished, xp.ones_like(before), relative(amount, size[:, k])))
    return xp.stack(shares, axis=1)


def grown_rounding(
    torus: Torus,
    linear: Complex[np.ndarray, "*batch components *modes"]
    | Float[np.ndarray, "*batch components *modes"],
    before: Float[Array, "b 1"],
    size: Float[Array, "b t"],
    times: Sequence[float],
) -> Float[Array, "b t"]:
    """Relative error of e^(Lt) v₀ at some times by the rounding of v₀.

    Rounding errors of v₀ are spread over all modes, and the error of each mode grows by e^(Lt).

    Args:
        torus: The torus.
        linear: The symbol L, with an axis of samples in front if it differs from sample to sample.
        before: The norms of v₀.
        size: The norms at the times.
        times: The times.
    """
    xp, eps, weights = array_namespace(size), np.finfo(float).eps, torus.weights
    t = np.reshape(times, (-1, *[1] * weights.ndim))

    def growth(linear: np.ndarray) -> Float[np.ndarray, " times"]:
        rates = np.reshape(np.max(np.real(linear), axis=0), (1, *weights.shape))
        squares = np.sum(weights * np.exp(2 * rates * t), axis=tuple(range(1, rates.ndim)))
        return np.sqrt(squares / weights.sum())

    with np.errstate(over="ignore", invalid="ignore"):
        by_sample = linear.ndim > weights.ndim + 1
        grown = np.stack([*map(growth, linear)]) if by_sample else growth(linear)
        error = eps * constant(grown, size) * before / (size + np.finfo(float).tiny)
        error = xp.where(error > 2 * eps, error, xp.full_like(size, eps))
        overflow = ~xp.isfinite(error + size)
    return xp.where(overflow, xp.full_like(error, math.inf), error)
