"""The inviscid Burgers equation: the map from the initial value to the entropy solution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, field_validator, model_validator

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    StoreChecks,
    Values,
    in_blocks,
    stated_error,
    worst_time,
)
from pdegen.checks.gaussian import GaussianCheck, circle_modes
from pdegen.domains import Box, CellGrid, PeriodicGrid
from pdegen.equations.base import (
    Problem,
    Times,
    check_size,
    equation,
    squeeze_single_time,
    with_rounding,
)
from pdegen.sampling.gaussian import (
    SquaredExponentialField,
    antiderivative,
    averages,
    values,
)
from pdegen.schema import Coefficient, Count, Positive, Size, Strict, near
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, parameters, scalar, times

if TYPE_CHECKING:
    from pdegen.equations.inviscid_burgers.solver import MinimumPrinciple


_POINTS = 4096  # points at which u(x, 0) and its antiderivative are evaluated
_INTERVALS = 16  # intervals at whose ends the potential is compared

Edges = Float[np.ndarray, "batch edges"]


def inviscid_burgers_checks(
    field: SquaredExponentialField, n: int, periodic: bool, times: Sequence[float], tolerance: float
) -> StoreChecks:
    """Checks of entropy solutions: theta defines the initial value a, and u solves the equation.

    At each time the following holds:

    - u stays within the range of u(·, 0) (maximum principle).
    - The total variation of u does not exceed that of u(·, 0).
    - u rises by at most h/t from cell to cell (Oleinik's condition).
    - The integral of u from x₁ to x₂ is V(x₂) - V(x₁) with V(x) = min_y U₀(y) + (x - y)²/2t. The
      check takes the minimum over 4096 points y.
    - On the circle, the mean of u is constant in time and the mean square does not increase.
    """
    physics = _Physics(field, n, periodic, np.array(times))
    k = np.arange(field.modes + 1)
    variances = (field.stds * np.sinc(k / n)) ** 2
    gaussian = [] if n % 2 else [
        GaussianCheck(
            "a", lambda a: a.astype(np.float64), circle_modes(variances, n),
            np.full(n, variances.sum()), relative=True,
        )
    ]  # fmt: skip
    on_the_circle = [
        Bound("u", "the distance of the means of u and a", physics.mean),
        Bound("u", "the mean square over that of the time before", in_blocks(physics.growth)),
    ]
    return StoreChecks(
        (
            *gaussian,
            Distinct("theta"),
            Bound("a", "the distance from the averages of theta", in_blocks(physics.initial)),
            *stated_error(tolerance),
            Bound("u", "the excess over the range of u at t = 0", in_blocks(physics.excess)),
            Bound("u", "the total variation", in_blocks(physics.variation)),
            Bound("u", "t over h times the largest rise of u between cells", physics.rise),
            Bound(
                "u", "the distance of its integral from the minimum", in_blocks(physics.potential)
            ),
            *(on_the_circle if periodic else ()),
        )
    )


class _Physics:
    """Quantities that the checks bound for each sample. Their limits allow for rounding."""

    def __init__(
        self,
        field: SquaredExponentialField,
        n: int,
        periodic: bool,
        times: Float[np.ndarray, " times"],
    ) -> None:
        self._field, self._n, self._periodic, self._times = field, n, periodic, times
        self._wave_numbers = 2 * np.pi * np.arange(field.modes + 1)

    def _u(self, stored: Values) -> Float[np.ndarray, "batch times n"]:
        """The solution at the output times, converted to float64."""
        u = stored["u"].astype(np.float64)
        return u.reshape(len(u), len(self._times), self._n)

    def _u0(self, stored: Values) -> tuple[Float[np.ndarray, "batch points"], np.ndarray]:
        """u(·, 0) at many points, and a bound for its values between these points."""
        c = self._field.coefficients(stored["theta"])
        u0 = values(c, _POINTS)
        between = abs(c) @ self._wave_numbers**2 / (8 * _POINTS**2)
        return u0, between + 2 * EPSILON * abs(u0).max(axis=1)

    def initial(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        a = averages(self._field.coefficients(stored["theta"]), self._n)
        return abs(stored["a"] - a).max(axis=1), 2 * EPSILON * abs(a).max(axis=1)

    def excess(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u, (u0, between) = self._u(stored), self._u0(stored)
        above = u.max(axis=(1, 2)) - u0.max(axis=1)
        below = u0.min(axis=1) - u.min(axis=(1, 2))
        return np.maximum(above, below), between

    def variation(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u, (u0, between) = self._u(stored), self._u0(stored)
        observed = np.max([_variation(v, self._periodic) for v in np.moveaxis(u, 1, 0)], axis=0)
        # a mode may have an extremum between two points, and rounding adds one to each cell
        turns = 4 * self._field.modes * between + 2 * self._n * EPSILON * abs(u).max(axis=(1, 2))
        return observed, _variation(u0, self._periodic) + turns

    def rise(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u = self._u(stored)
        if self._periodic:
            u = np.concatenate([u, u[..., :1]], axis=2)
        per_rise = self._n * self._times
        observed = np.diff(u).max(axis=2, initial=0.0) * per_rise
        limit = 1 + 4 * EPSILON * abs(u).max(axis=2) * per_rise
        return worst_time(observed, limit)

    def potential(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        c = self._field.coefficients(stored["theta"])
        edges = np.unique(np.arange(_INTERVALS + 1) * self._n // _INTERVALS)
        u = self._u(stored)
        integral = np.concatenate([u[..., :1] * 0, np.cumsum(u, axis=2)], axis=2) / self._n
        minimum = _on_circle if self._periodic else _on_line
        v = np.stack([minimum(c, t, edges / self._n) for t in self._times], axis=1)
        observed = abs(integral[..., edges] - (v - v[..., :1])).max(axis=2)
        # a minimum lies half a spacing from a point at most
        slope = abs(c) @ self._wave_numbers
        nearest = (slope[:, None] + 1 / self._times) / (8 * _POINTS**2)
        return worst_time(observed, 2 * nearest + 2 * EPSILON * abs(u).mean(axis=2) + 1e-9)

    def mean(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u, a = self._u(stored), stored["a"].astype(np.float64)
        observed = abs(u.mean(axis=2) - a.mean(axis=1, keepdims=True)).max(axis=1)
        return observed, 2 * EPSILON * (abs(a).mean(axis=1) + abs(u).mean(axis=2).max(axis=1))

    def growth(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u, (u0, _) = self._u(stored), self._u0(stored)
        squares = np.concatenate(
            [np.square(u0).mean(axis=1, keepdims=True), np.square(u).mean(axis=2)], axis=1
        )
        return (squares[:, 1:] / squares[:, :-1]).max(axis=1), np.array(1 + 8 * EPSILON)


def _variation(u: Float[np.ndarray, "batch n"], periodic: bool) -> Float[np.ndarray, " batch"]:
    """Total variation of u: on the circle if `periodic`, else on the line."""
    if periodic:
        u = np.concatenate([u, u[:, :1]], axis=1)
    return abs(np.diff(u)).sum(axis=1)


def _minimum(
    table: Float[np.ndarray, "batch points"],
    distance: Callable[[Float[np.ndarray, " batch"]], np.ndarray],
    t: float,
    x: Edges,
) -> Edges:
    """The minimum of U(y) + distance(x)²/2t at each edge x, over the points y of the table."""
    return np.stack([(table + distance(at) ** 2 / (2 * t)).min(axis=1) for at in x.T], axis=1)


def _on_circle(c: np.ndarray, t: float, edges: np.ndarray) -> Edges:
    """V = min_y U₀(y) + (x - y)²/2t at the edges, on the circle."""
    mean, y = np.real(c[:, :1]), np.arange(_POINTS) / _POINTS
    fluctuation = np.concatenate([0 * c[:, :1], c[:, 1:]], axis=1)
    table = antiderivative(fluctuation, _POINTS)[:, :-1]

    def nearest(x: np.ndarray) -> np.ndarray:
        return (x[:, None] - y + 0.5) % 1 - 0.5

    return _minimum(table, nearest, t, edges - mean * t) + mean * edges


def _on_line(c: np.ndarray, t: float, edges: np.ndarray) -> Edges:
    """V = min_y U₀(y) + (x - y)²/2t at the edges, on the line."""
    y, end = np.arange(_POINTS + 1) / _POINTS, np.real(c).sum(axis=1)[:, None]
    table = antiderivative(c, _POINTS)
    x = np.broadcast_to(edges, (len(c), len(edges)))
    v = _minimum(table, lambda at: at[:, None] - y, t, x)
    for start, inside in ((0.0, x - t * end < 0), (1.0, x - t * end > 1)):
        u0 = table[:, -1:] * start + end * (x - start)
        v = np.where(inside, np.minimum(v, u0 - t * end**2 / 2), v)
    return v


_BOUNDARIES = ("periodic", "outflow")


class SquaredExponential(Strict):
    """Gaussian field with the covariance sigma² exp(-r²/2 length²) on the circle of length 1.

    Args:
        length: Correlation length. [length]
        modes: Number of Fourier modes without the constant; it does not depend on the grid.
        sigma: Standard deviation at each point. [velocity]
    """

    law: Literal["squared-exponential"]
    length: Coefficient
    modes: Count
    sigma: Size = 1.0

    @property
    def sentence(self) -> str:
        return (
            f"Gaussian with covariance {self.sigma:.6g}² exp(−r²/(2·{self.length:.6g}²)) on the "
            f"circle of length 1, the constant and {self.modes} more modes"
        )

    def build(self) -> SquaredExponentialField:
        return SquaredExponentialField(self.length, self.modes, self.sigma)


class MinimumPrincipleMethod(Strict):
    """The exact solution from the minimum principle of Hopf and Lax (`solver.MinimumPrinciple`).

    Args:
        candidates: Number of points y in the search for minima; at least 8 (initial.modes + 1).
        tolerance: Largest accepted estimate of the relative error. [1]
    """

    method: Literal["minimum-principle"]
    candidates: Annotated[Count, Field(multiple_of=2)] = 4096
    tolerance: Positive = 1e-8

    def build(self, n: int, boundary: Any) -> MinimumPrinciple:
        from pdegen.equations.inviscid_burgers.solver import MinimumPrinciple

        return MinimumPrinciple(n, boundary, self.candidates, self.tolerance)


@equation
class InviscidBurgers(Problem):
    """uₜ + (u²/2)ₓ = 0 on (0, 1): the map u(0) -> u(times), as averages over `resolution` cells.

    Args:
        boundary: Boundary condition: "periodic", or "outflow" (uₓ = 0).
        times: Times of the output. [time]
        resolution: Cells of the output.
        initial: Distribution of the initial values.
        solver: Options of the solver.
    """

    algorithm: ClassVar[int] = 2  # 2: the error includes rounding to float32
    largest_batch: ClassVar[int] = 16
    compiled: ClassVar[bool] = True

    equation: Literal["inviscid-burgers"]
    boundary: str
    times: Times
    resolution: Annotated[Count, Field(ge=2)]
    initial: SquaredExponential
    solver: MinimumPrincipleMethod

    @field_validator("boundary")
    @classmethod
    def _recognised(cls, word: str) -> str:
        if word not in _BOUNDARIES:
            raise ValueError(f"unknown {word!r}: {near(word, [*_BOUNDARIES])}")
        return word

    @model_validator(mode="after")
    def _fits(self) -> Self:
        least = 8 * (self.initial.modes + 1)
        if self.solver.candidates < least:
            raise ValueError(
                f"initial.modes = {self.initial.modes} needs solver.candidates >= {least}, "
                f"got {self.solver.candidates}"
            )
        return self

    @property
    def formula(self) -> str:
        where = {"periodic": "x on the circle of length 1", "outflow": "u_x = 0 at x = 0 and x = 1"}
        return f"u_t + (u^2/2)_x = 0, {where[self.boundary]}"

    @property
    def latex(self) -> str:
        where = {
            "periodic": r"x \in \mathbb{R}/\mathbb{Z}",
            "outflow": r"u_x = 0 \text{ at } x = 0 \text{ and } x = 1",
        }
        return rf"u_t + \left(\tfrac{{1}}{{2}} u^2\right)_x = 0,\quad {where[self.boundary]}"

    @property
    def domain(self) -> Box:
        """The grid of cells, on a circle if the boundary is periodic, else on an interval."""
        n = self.resolution
        return Box((CellGrid(n) if self.boundary == "outflow" else PeriodicGrid(n, 1.0, 0.5 / n),))

    def variables(self) -> tuple[Variable, ...]:
        domain, modes = self.domain, self.initial.modes
        theta = "standard normal numbers of u(x, 0): of the constant, cos 2πx, sin 2πx, cos 4πx ..."
        return (
            function(domain, "a", "input", "cell averages of the initial value u(x, 0)"),
            function(
                domain, "u", "target", "cell averages of the solution u(x, t)", times=self.times
            ),
            parameters("theta", "mode", 2 * modes + 1, theta),
            scalar("error", "quality", "estimate of the relative L2 error of u, as it is stored"),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        shift = ("shift",) if self.boundary == "periodic" else ()
        return Physics(
            symmetries=(*shift, "odd-reflection"),
            sentences={"initial": self.initial.sentence},
            drawing={"a": Drawing("u₀"), "u": Drawing("u")},
        )

    @property
    def floats_per_sample(self) -> int:
        return 6 * len(self.times) * self.resolution + 10 * self.solver.candidates

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        field, n = self.initial.build(), self.resolution
        solver = self.solver.build(n, self.boundary)
        theta = field.normals(seed, samples)
        u0 = field.coefficients(theta)
        u, error = solver.solve(u0, self.times)
        check_size(u)
        return {
            "a": averages(u0, n).astype(np.float32),
            "u": squeeze_single_time(u.astype(np.float32)),
            "theta": theta,
            "error": with_rounding(error),
        }

    def checks(self) -> StoreChecks:
        periodic = self.boundary == "periodic"
        return inviscid_burgers_checks(
            self.initial.build(), self.resolution, periodic, self.times, self.solver.tolerance
        )
