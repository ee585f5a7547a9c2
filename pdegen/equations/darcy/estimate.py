"""Estimates of the error of solutions, from solutions on cells of other sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array

# Factors by which cells three times finer reduce the error: the usual one near rough interfaces,
# the smallest (order 4, elements of degree 2) and the largest (order 0.63) that is believed.
_USUAL, _SMALLEST, _LARGEST = 3.0 ** (-4 / 3), 3.0**-4, 0.5


def compared_refinements(refinement: int) -> tuple[int, ...]:
    """The refinements of the solutions that give the error of one with this refinement.

    The refinements rise by the factor 3. If possible, they are those of coarser cells, which cost
    little. Otherwise the last one is finer.

    >>> compared_refinements(9), compared_refinements(3), compared_refinements(5)
    ((1, 3, 9), (1, 3, 9), (5, 15))
    """
    if refinement % 9 == 0:
        return refinement // 9, refinement // 3, refinement
    if refinement % 3 == 0:
        return refinement // 3, refinement, 3 * refinement
    return refinement, 3 * refinement


def estimated_error(
    solutions: Sequence[Float[Array, "batch n n"]], label: int
) -> Float[Array, " batch"]:
    """Estimate of ‖u_label - u‖ for the exact solution u, as a root of the sum over all points.

    If the error falls by the factor q from each solution to the next, then ‖u_k - u‖ =
    ‖u_k - u_{k-1}‖ q/(1 - q) = ‖u_{k+1} - u_k‖/(1 - q) (Richardson). Three solutions give q =
    ‖u_2 - u_1‖/‖u_1 - u_0‖, which is limited to [1/81, 1/2]. For two solutions q = 3^(-4/3) is
    assumed. The order 4/3 is the usual one of finite volumes near rough interfaces.

    Args:
        solutions: Solutions on cells that become finer by the factor 3, at the same points.
        label: Index of the solution whose error is estimated: the last one or the one before.
    """
    xp = array_namespace(solutions[0])
    steps = [
        xp.sqrt(xp.sum((fine - coarse) ** 2, axis=(1, 2)))
        for coarse, fine in itertools.pairwise(solutions)
    ]
    q = xp.full_like(steps[-1], _USUAL)
    if len(steps) > 1:
        positive = steps[-2] > 0
        ratio = steps[-1] / xp.where(positive, steps[-2], xp.ones_like(q))
        q = xp.where(positive, xp.clip(ratio, _SMALLEST, _LARGEST), q)
    is_last = label == len(solutions) - 1
    return steps[-1] * (q if is_last else xp.ones_like(q)) / (1 - q)
