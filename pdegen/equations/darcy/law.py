"""The law that a store of Darcy flow must satisfy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.checks.gaussian import EPSILON, GaussianLaw
from pdegen.checks.law import Bound, Check, Distinct, Law, Values
from pdegen.checks.modes import square_modes
from pdegen.checks.two_phase import TwoPhaseLaw
from pdegen.domains import CellGrid
from pdegen.sampling.coefficients import LogNormal, TwoPhase
from pdegen.sampling.gaussian import SquareGaussianField

Samples = Float[np.ndarray, " batch"]


@dataclass(frozen=True)
class DarcyClaims:
    """The properties of u that the solver guarantees."""

    residual: float  # largest relative residual
    # whether u has the sign of the source everywhere: strictly (True) or with zeros (False); None
    # if this is not guaranteed
    positive: bool | None
    # largest relative difference, apart from rounding, between ∫ f u and ∫ a |∇u|², where ∇u is a
    # difference of stored values; None if this is not guaranteed
    balance: float | None
    # whether the coefficients on faces in these differences are harmonic means, not arithmetic ones
    harmonic: bool = True


def darcy_law(
    field: SquareGaussianField,
    grid: CellGrid,
    coefficient: TwoPhase | LogNormal,
    source: float,
    solved: DarcyClaims,
) -> Law:
    """The law of a store: the distribution of a, limits of the residuals, and properties of u.

    In each sample, the power of the source equals the dissipation of the flow: ∫ f u = ∫ a |∇u|².
    If u is the solution for another a, the two differ by about a half. The check therefore detects
    exchanged samples, and an exchange of x and y in a. It also detects an exchange of the two
    phases, which no statistic of a alone can detect.
    """
    return Law(
        (
            *_of_coefficient(field, grid, coefficient),
            Bound("residual", "the residual", lambda v: (v["residual"], solved.residual)),
            Bound("residual", "minus the residual", lambda v: (-v["residual"], 0.0)),
            *_of_solution(source, solved),
        )
    )


def _of_coefficient(
    field: SquareGaussianField, grid: CellGrid, coefficient: TwoPhase | LogNormal
) -> Iterator[Check]:
    if isinstance(coefficient, LogNormal):
        yield Bound("a", "the number of cells that are not positive",
                    lambda v: (_count(~(v["a"] > 0)), 0.0))  # fmt: skip
        smallest = np.finfo(np.float32).tiny

        def logarithm(a: np.ndarray) -> np.ndarray:
            return np.log(np.maximum(a.astype(np.float64), smallest) / coefficient.scale)

        variance = field.pointwise_variance(grid)
        yield GaussianLaw("a", logarithm, square_modes(field, grid), variance, relative=False)
        yield Distinct("a")
        return
    phases = np.array([coefficient.above, coefficient.below], dtype=np.float32)
    yield Bound("a", "the number of cells in neither phase",
                lambda v: (_count(~np.isin(v["a"], phases)), 0.0))  # fmt: skip
    if phases[0] != phases[1]:
        signs = TwoPhaseLaw("a", field, grid, coefficient)
        yield signs
        if signs.rough:
            yield Distinct("a")


def _of_solution(source: float, solved: DarcyClaims) -> Iterator[Check]:
    if source == 0:
        yield Bound("u", "the largest |u|, without a source,",
                    lambda v: (abs(v["u"]).max(axis=(1, 2)), 0.0))  # fmt: skip
        return
    if solved.positive is not None:
        strictly = solved.positive

        def wrong(values: Values) -> tuple[np.ndarray, float]:
            u = values["u"] * np.sign(source)
            return _count(~(u > 0) if strictly else ~(u >= 0)), 0.0

        yield Bound("u", "the number of cells with the wrong sign", wrong)
    if solved.balance is not None:
        slack = solved.balance

        def imbalance(values: Values) -> tuple[np.ndarray, np.ndarray]:
            a, u = values["a"].astype(np.float64), values["u"].astype(np.float64)
            work = source * u.mean(axis=(1, 2))
            work = np.where(work > 0, work, np.nan)
            flow, rounding = dissipation(a, u, solved.harmonic)
            # the triangle inequality in the norm whose square is the dissipation
            error = 2 * np.sqrt(flow * rounding) + rounding
            return abs(flow / work - 1), slack + error / work

        yield Bound("u", "the relative difference of ∫ a |∇u|² and ∫ f u", imbalance)


def dissipation(
    a: Float[np.ndarray, "batch n n"], u: Float[np.ndarray, "batch n n"], harmonic: bool
) -> tuple[Samples, Samples]:
    """Returns ∫ a |∇u|², and an upper bound of ∫ a |∇e|² for the rounding errors e of u in float32.

    Both integrals are the finite volume sums Σ a_f (u_i - u_j)² over the faces. u is 0 on the
    walls, which lie half a cell from the outermost centres.
    """
    flow, rounding = np.zeros(len(a)), np.zeros(len(a))
    for axis in (1, 2):
        first, last = (np.take(a, k, axis) * np.take(u, k, axis) ** 2 for k in (0, -1))
        flow += 2 * (first + last).sum(axis=1)
        a_i, a_j = _neighbours(a, axis)
        face = 2 * a_i * a_j / (a_i + a_j) if harmonic else (a_i + a_j) / 2
        v, w = _neighbours(u, axis)
        flow += np.einsum("bij,bij,bij->b", face, v - w, v - w)
        rounding += np.einsum("bij,bij,bij->b", face, abs(v) + abs(w), abs(v) + abs(w))
    return flow, EPSILON**2 * (rounding + flow)


def _neighbours(a: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    return (a[:, 1:], a[:, :-1]) if axis == 1 else (a[:, :, 1:], a[:, :, :-1])


def _count(wrong: np.ndarray) -> Samples:
    return wrong.reshape(len(wrong), -1).sum(axis=1).astype(np.float64)
