"""Checks of stored flows around inclusions."""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    Quantity,
    StoreChecks,
    Values,
    in_blocks,
    stated_error,
)
from pdegen.checks.gaussian import normal_numbers
from pdegen.domains import CellGrid
from pdegen.equations.darcy_inclusion.shape import RandomInclusion

_RESIDUAL = 1e-10  # largest residual that the solver accepts
# Finite volumes on n x n cells move the boundary of the inclusion by up to half a cell; their
# relative error is about |inside/outside - 1|/n near it. This factor is twice the largest one seen.
_DEVIATION = 0.3


def inclusion_checks(
    shape: RandomInclusion, grid: CellGrid, phases: tuple[float, float], source: float,
    angles: Float[np.ndarray, " angles"], error: float,
) -> StoreChecks:  # fmt: skip
    """Checks of flows around inclusions.

    The numbers z are independent and standard normal, and define centre, radius, depth and a. The
    solution is positive (maximum principle), and is near that of finite volumes with the stored
    coefficient, whose cells do not fit the inclusion.

    Args:
        shape: The distribution of the inclusions.
        grid: The cells along each axis.
        phases: The coefficients outside and inside.
        source: The source.
        angles: Angles of the stored radius.
        error: Largest error that the solver accepts.
    """
    outside, inside = phases

    def centre(v: Values) -> tuple[np.ndarray, float]:
        return abs(v["centre"] - shape.centre(v["z"])).max(axis=1), 1e-12

    def radius(v: Values) -> tuple[np.ndarray, float]:
        return abs(v["radius"] - shape.radius(v["z"], angles)).max(axis=1), 1e-12

    def depth(v: Values) -> tuple[np.ndarray, float]:
        return abs(v["depth"] - shape.depth(v["z"], grid)).max(axis=(1, 2)), 2 * EPSILON

    def coefficient(v: Values) -> tuple[np.ndarray, float]:
        expected = np.where(shape.depth(v["z"], grid) > 0, inside, outside)
        return abs(v["a"] / expected - 1).max(axis=(1, 2)), 2 * EPSILON

    def negative(v: Values) -> tuple[np.ndarray, float]:
        return -v["u"].min(axis=(1, 2)), 0.0

    def distance(v: Values) -> tuple[np.ndarray, float]:
        u = np.stack([finite_volumes(a.astype(np.float64), source) for a in v["a"]])
        difference = np.sqrt(((v["u"] - u) ** 2).sum(axis=(1, 2)) / (u**2).sum(axis=(1, 2)))
        jump = max(inside / outside, outside / inside) - 1
        return difference, _DEVIATION * min(jump, 1.0) / grid.n + 4 / grid.n**2

    bounds: list[tuple[str, str, Quantity]] = [
        ("centre", "the distance from the centre of z", centre),
        ("radius", "the distance from the radius of z", radius),
        ("depth", "the distance from the depth of z", depth),
        ("a", "the relative distance from the coefficient of z", coefficient),
        ("u", "minus the smallest u", negative),
        ("u", "the relative distance from finite volumes", distance),
        ("residual", "the residual", lambda v: (abs(v["residual"]), _RESIDUAL)),
    ]
    checks = (Bound(name, subject, in_blocks(quantity)) for name, subject, quantity in bounds)
    numbers = normal_numbers("z", np.ones(shape.count))
    return StoreChecks((numbers, Distinct("z"), *stated_error(error), *checks))


def finite_volumes(a: Float[np.ndarray, "n n"], source: float) -> Float[np.ndarray, "n n"]:
    """u of -div(a grad u) = source with u = 0 on the walls, by finite volumes on n x n cells.

    The flux through a face is the harmonic mean of a times the difference of u; the walls lie half
    a cell from the outermost centres. A direct solver is fast enough for a check.
    This is not `FiniteVolume` of the equation darcy, since equations do not import each other.

    >>> round(float(finite_volumes(np.ones((16, 16)), 1.0).max()), 4)
    0.0734
    """
    n = len(a)
    number = np.arange(n * n).reshape(n, n)
    diagonal = np.zeros((n, n))
    rows, columns, values = [number], [number], [diagonal]
    for axis in (0, 1):
        low, high = (np.moveaxis(part, axis, 0) for part in (a, number))
        face = 2 * low[1:] * low[:-1] / (low[1:] + low[:-1])
        rows += [high[1:], high[:-1]]
        columns += [high[:-1], high[1:]]
        values += [-face, -face]
        ends = np.moveaxis(diagonal, axis, 0)  # a view
        ends[1:] += face
        ends[:-1] += face
        ends[0] += 2 * low[0]
        ends[-1] += 2 * low[-1]
    parts = [np.concatenate([part.ravel() for part in lists]) for lists in (values, rows, columns)]
    matrix = scipy.sparse.csc_matrix((parts[0], (parts[1], parts[2])), shape=(n * n, n * n))
    u = scipy.sparse.linalg.spsolve(matrix, np.full(n * n, source / n**2))
    return np.asarray(u).reshape(n, n)
