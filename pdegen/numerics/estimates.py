"""Parts of error estimates: norms of modes, ratios of distances between runs, relative errors."""

from __future__ import annotations

import math

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
