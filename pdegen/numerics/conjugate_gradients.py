"""Preconditioned conjugate gradients for a batch of symmetric positive definite problems."""

from __future__ import annotations

from collections.abc import Callable

from array_api_compat import array_namespace

from pdegen.numerics.device import Array

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
