"""Checks of a store of Darcy flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Check,
    Distinct,
    Finding,
    Statistic,
    StoreChecks,
    Values,
)
from pdegen.checks.gaussian import GaussianCheck, block_modes, square_modes
from pdegen.checks.two_phase import TwoPhaseCheck
from pdegen.domains import CellGrid
from pdegen.sampling.gaussian import BlockGaussianField, SquareGaussianField

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


Number = float | str
"""A number, or the name of the variable that has the number of each sample."""


@dataclass(frozen=True)
class PhasesCheck:
    """How a coefficient of several phases follows from a Gaussian field g at each point.

    a = values[j] where thresholds[j-1] <= g < thresholds[j].
    """

    thresholds: tuple[float, ...]
    values: tuple[Number, ...]


@dataclass(frozen=True)
class ScaleCheck:
    """a = scale exp(g) for a Gaussian field g."""

    scale: Number


@dataclass(frozen=True)
class RandomSource:
    """The source f = mean + g, which a store has as the variable `f`."""

    field: SquareGaussianField  # distribution of g
    mean: float


def darcy_checks(
    field: SquareGaussianField | BlockGaussianField,
    grid: CellGrid,
    coefficient: PhasesCheck | ScaleCheck,
    source: Number | RandomSource,
    boundary_value: Number,
    solved: DarcyClaims,
) -> StoreChecks:
    """Checks of a store: the distribution of a and f, limits of residuals, and properties of u.

    Let v = u - boundary_value, which is 0 on the boundary. In each sample, the power of the source
    equals the dissipation of the flow: ∫ f v = ∫ a |∇v|². If u is the solution for another a, the
    two differ by about a half. The check therefore detects exchanged samples, and an exchange of x
    and y in a. It also detects an exchange of the two phases, which no statistic of a alone can
    detect.
    """
    checks = [
        *_of_coefficient(field, grid, coefficient),
        Bound("residual", "the residual", lambda v: (v["residual"], solved.residual)),
        Bound("residual", "minus the residual", lambda v: (-v["residual"], 0.0)),
        *_of_solution(source, boundary_value, solved),
    ]
    if isinstance(source, RandomSource):
        source_field, mean = source.field, source.mean
        checks += [
            GaussianCheck(
                "f", lambda f: f.astype(np.float64) - mean, square_modes(source_field, grid),
                source_field.pointwise_variance(grid), relative=True, mean=mean,
            ),
            Distinct("f"),
        ]  # fmt: skip
    return StoreChecks(tuple(checks))


def _of_each(number: Number, values: Values) -> Float[np.ndarray, "batch 1 1"]:
    """A number for each sample, in float64."""
    if isinstance(number, str):
        return values[number].astype(np.float64)[:, None, None]
    return np.full((len(next(iter(values.values()))), 1, 1), number, np.float64)


def _of_coefficient(
    field: SquareGaussianField | BlockGaussianField,
    grid: CellGrid,
    coefficient: PhasesCheck | ScaleCheck,
) -> Iterator[Check]:
    if isinstance(coefficient, ScaleCheck):
        yield Bound("a", "the number of cells that are not positive",
                    lambda v: (_count(~(v["a"] > 0)), 0.0))  # fmt: skip
        if isinstance(field, BlockGaussianField):
            modes, variance = block_modes(field, grid), np.full((grid.n, grid.n), field.sigma**2)
            width = field.width(grid)

            def uneven(values: Values) -> tuple[np.ndarray, float]:
                first = values["a"][:, ::width, ::width]
                return _count(values["a"] != first.repeat(width, 1).repeat(width, 2)), 0.0

            yield Bound(
                "a", "the number of cells that differ from the first of their block", uneven
            )
        else:
            modes, variance = square_modes(field, grid), field.pointwise_variance(grid)
        check = GaussianCheck("a", lambda g: g, modes, variance, relative=False)
        yield _Computed(check, partial(field_of, coefficient))
        yield Distinct("a")
        return
    assert isinstance(field, SquareGaussianField)  # phases are made of no other field
    phases = coefficient.values
    words = "neither phase" if len(phases) == 2 else "no phase"
    yield Bound("a", f"the number of cells in {words}",
                lambda v: (_count(~_has_one_of(phases, v)), 0.0))  # fmt: skip
    numbers = [np.float32(phase) for phase in phases if not isinstance(phase, str)]
    if len(set(numbers)) < len(numbers):
        return
    checks = [
        TwoPhaseCheck("a", field, grid, partial(_has_one_of, phases[k + 1 :]), threshold)
        for k, threshold in enumerate(coefficient.thresholds)
    ]
    yield from checks
    if any(check.rough for check in checks):
        yield Distinct("a")


def field_of(coefficient: ScaleCheck, values: Values) -> Float[np.ndarray, "batch n n"]:
    """The field log(a/scale) of stored log-normal coefficients."""
    a = np.maximum(values["a"].astype(np.float64), np.finfo(np.float32).tiny)
    return np.log(a / _of_each(coefficient.scale, values))


def uppermost(coefficient: PhasesCheck, values: Values) -> Bool[np.ndarray, "batch n n"]:
    """Mask of the cells in which the field is at least the last threshold."""
    return _has_one_of(coefficient.values[-1:], values)


def interface(upper: Bool[np.ndarray, "batch n n"]) -> Samples:
    """Length of the interface of a phase along the faces of cells, in sides of the square."""
    jumps = (np.sum(a != b, axis=(1, 2)) for a, b in (_neighbours(upper, 1), _neighbours(upper, 2)))
    return sum(jumps) / upper.shape[-1]


def _has_one_of(phases: tuple[Number, ...], values: Values) -> Bool[np.ndarray, "batch n n"]:
    """Mask of the cells in which a is one of these numbers."""
    mask = np.zeros(values["a"].shape, dtype=bool)
    for phase in phases:
        mask |= values["a"] == _of_each(phase, values).astype(np.float32)
    return mask


class _Computed(Check):
    """A check of a quantity that is computed from the values of several variables."""

    def __init__(self, check: Check, quantity: Callable[[Values], np.ndarray]) -> None:
        self.variable, self.subject = check.variable, check.subject
        self._check, self._quantity = check, quantity

    def add(self, numbers: np.ndarray, values: Values) -> None:
        self._check.add(numbers, {self.variable: self._quantity(values)})

    def statistics(self) -> Iterable[Statistic]:
        return self._check.statistics()

    def findings(self) -> Iterable[Finding]:
        return self._check.findings()


def _of_solution(
    source: Number | RandomSource, boundary_value: Number, solved: DarcyClaims
) -> Iterator[Check]:
    def on_walls(values: Values) -> np.ndarray:
        return _of_each(boundary_value, values).astype(np.float32)

    if source == 0:
        yield Bound("u", "the largest |u|, without a source,",
                    lambda v: (abs(v["u"] - on_walls(v)).max(axis=(1, 2)), 0.0))  # fmt: skip
        return
    if solved.positive is not None and not isinstance(source, RandomSource):
        strictly = (
            solved.positive and boundary_value == 0
        )  # else rounding may give the value of the walls

        def wrong(values: Values) -> tuple[np.ndarray, float]:
            u = (values["u"] - on_walls(values)) * np.sign(_of_each(source, values))
            return _count(~(u > 0) if strictly else ~(u >= 0)), 0.0

        yield Bound("u", "the number of cells with the wrong sign", wrong)
    if solved.balance is not None:
        slack = solved.balance

        def imbalance(values: Values) -> tuple[np.ndarray, np.ndarray]:
            shift = _of_each(boundary_value, values)
            a, v = values["a"].astype(np.float64), values["u"].astype(np.float64) - shift
            if isinstance(source, RandomSource):
                f = values["f"].astype(np.float64)
            else:
                f = _of_each(source, values)
            work = (f * v).mean(axis=(1, 2))
            work = np.where(work > 0, work, np.nan)
            flow, rounding = dissipation(a, v, solved.harmonic, shift)
            # the triangle inequality in the norm whose square is the dissipation
            error = 2 * np.sqrt(flow * rounding) + rounding
            return abs(flow / work - 1), slack + error / work

        yield Bound("u", "the relative difference of ∫ a |∇u|² and ∫ f u", imbalance)


def dissipation(
    a: Float[np.ndarray, "batch n n"],
    u: Float[np.ndarray, "batch n n"],
    harmonic: bool,
    shift: Float[np.ndarray, "batch 1 1"] | float = 0.0,
) -> tuple[Samples, Samples]:
    """Returns ∫ a |∇u|², and an upper bound of ∫ a |∇e|² for the rounding errors e of u in float32.

    Both integrals are the finite volume sums Σ a_f (u_i - u_j)² over the faces. u is 0 on the
    walls, which lie half a cell from the outermost centres. The rounded values are u + shift.
    """
    flow, rounding = np.zeros(len(a)), np.zeros(len(a))
    size = abs(u) + abs(shift)
    for axis in (1, 2):
        for k in (0, -1):
            a_k = 2 * np.take(a, k, axis)
            flow += (a_k * np.take(u, k, axis) ** 2).sum(axis=1)
            rounding += (a_k * np.take(size, k, axis) ** 2).sum(axis=1)
        a_i, a_j = _neighbours(a, axis)
        face = 2 * a_i * a_j / (a_i + a_j) if harmonic else (a_i + a_j) / 2
        v, w = _neighbours(u, axis)
        flow += np.einsum("bij,bij,bij->b", face, v - w, v - w)
        v, w = _neighbours(size, axis)
        rounding += np.einsum("bij,bij,bij->b", face, v + w, v + w)
    return flow, EPSILON**2 * rounding


def _neighbours(a: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    return (a[:, 1:], a[:, :-1]) if axis == 1 else (a[:, :, 1:], a[:, :, :-1])


def _count(wrong: np.ndarray) -> Samples:
    return wrong.reshape(len(wrong), -1).sum(axis=1).astype(np.float64)
