"""Burgers' equation on the circle: the map from the initial value to the solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import Field, model_validator

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    InputStatistic,
    StoreChecks,
    Values,
    stated_error,
    worst_time,
)
from pdegen.checks.evolution import Evolution
from pdegen.checks.gaussian import GaussianCheck, periodic_modes
from pdegen.domains import Box, PeriodicGrid
from pdegen.equations.base import (
    Problem,
    TimesFromStart,
    check_divides,
    check_size,
    check_steps,
    equation,
    squeeze_single_time,
    with_rounding,
)
from pdegen.equations.burgers.solver import ETDRK4, ColeHopf
from pdegen.equations.latex import with_value
from pdegen.inverse.classical import ClassicalMethod, Forward, InverseProblem
from pdegen.numerics.device import Array, first_true
from pdegen.numerics.errors import SolveError
from pdegen.numerics.semilinear import Nonlinear
from pdegen.numerics.spectral import Symbol, Torus, antiderivative_symbol, interpolated
from pdegen.numerics.transforms import provenance
from pdegen.sampling.gaussian import PeriodicGaussianField
from pdegen.sampling.scalars import CoefficientOrLaw, number_of
from pdegen.schema import Count, InverseLength, Positive, SchemaError, Size, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, scalar, times

_UNRESOLVED = 8.0  # deviations: unresolved modes of a exceed them with probability e⁻³² at most


def burgers_checks(
    field: PeriodicGaussianField,
    grid: PeriodicGrid,
    viscosity: float,
    times: Sequence[float],
    tolerance: float,
) -> StoreChecks:
    """Checks of a store: a is a Gaussian field, and u has the properties of a solution.

    The mean of u stays 0, the energy of u decreases from each time to the next, and u stays within
    the range of a (maximum principle). The antiderivatives U of u with mean 0 satisfy
    Uₜ = νuₓ - (u² - ∫u²)/2. Hence ∫|U(t) - U(0)| <= t (∫a² + ν∫|aₓ|). The solution for another
    initial value violates this bound unless t is large.

    The output grid does not resolve the fields completely. The limits therefore include terms for
    the highest modes of the grid, for the modes of a beyond the grid, for rounding, and for the
    solver's error. The range of a is widened by the largest difference between neighbouring values.
    """
    beyond = field.mode_stds[grid.n // 2 :]
    k = 2 * np.pi * np.arange(grid.n // 2 + 1, field.modes + 1)
    physics = _Physics(
        grid, viscosity, np.array(times), _UNRESOLVED * float(np.linalg.norm(beyond)),
        _UNRESOLVED * float(np.linalg.norm(k * beyond)),
    )  # fmt: skip
    evolved = Evolution(
        terms=partial(_terms, viscosity),
        degree=2,
        torus=Torus((grid,), degree=1),
        components=1,
        times=(0.0, *times),
        tolerance=tolerance,
        folded=True,
    )
    return StoreChecks(
        (
            GaussianCheck(
                "a", lambda a: a.astype(np.float64), periodic_modes(field, grid),
                np.full(grid.n, field.pointwise_variance), relative=True,
            ),
            Distinct("a"),
            *stated_error(tolerance),
            Bound("u", "the mean", physics.mean),
            Bound("u", "the growth of the norm since the time before", physics.growth),
            Bound("u", "the excess over the range of a", physics.excess),
            Bound("u", "the distance of the antiderivatives of u and a", physics.distance),
            *evolved.checks(),
        )
    )  # fmt: skip


def _terms(viscosity: float, torus: Torus) -> tuple[Symbol, Nonlinear]:
    """The symbol of νuₓₓ, and the map from the modes of u to the modes of -(u²)ₓ/2."""
    flux = -0.5 * torus.d[0]
    linear = viscosity * torus.laplacian[None]
    return linear, lambda v: flux * torus.to_modes(torus.to_points(v) ** 2)


class _Physics:
    """Methods that return a quantity of each sample, with the upper limit of the quantity.

    `unresolved` is the norm of the part of a that the output grid does not resolve. `slopes` is the
    norm of the derivative of this part.
    """

    def __init__(
        self,
        grid: PeriodicGrid,
        viscosity: float,
        times: Float[np.ndarray, " times"],
        unresolved: float,
        slopes: float,
    ) -> None:
        self._grid, self._viscosity, self._times = grid, viscosity, times
        self._unresolved, self._slopes = unresolved, slopes

    def _over_time(self, values: Values) -> Float[np.ndarray, "batch times n"]:
        """The frames of each sample: first a, then u at all times."""
        a = values["a"].astype(np.float64)[:, None]
        u = values["u"].astype(np.float64).reshape(len(a), len(self._times), -1)
        return np.concatenate([a, u], axis=1)

    def _missing(self, w: Float[np.ndarray, "batch times n"]) -> Float[np.ndarray, "batch times"]:
        """Upper bound of the norm of the part of w that the grid does not resolve."""
        w_hat = np.fft.rfft(w, norm="forward")
        last = w_hat.shape[-1] - 1
        times = np.concatenate([[0.0], self._times])
        decay = np.exp(-self._viscosity * (2 * np.pi * last) ** 2 * times)
        return 2 * np.sqrt(2) * _norm(w_hat[..., last - last // 10 :]) + self._unresolved * decay

    def _error(self, values: Values) -> Float[np.ndarray, " batch"]:
        """The solver's relative error; negative values, which another check reports, count as 0."""
        return np.maximum(values["error"], 0.0)

    def mean(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = self._over_time(values)
        largest = abs(w).max(axis=2)  # the mean of a is 0 up to rounding in float64
        limit = self._missing(w) + EPSILON * largest + np.finfo(float).eps * largest[:, :1]
        return worst_time(abs(w.mean(axis=2))[:, 1:], limit[:, 1:])

    def growth(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = self._over_time(values)
        norm, missing = _norm(w) / np.sqrt(w.shape[2]), self._missing(w)
        before = np.maximum(norm[:, :-1], np.finfo(np.float32).tiny)
        slack = (missing[:, 1:] + missing[:, :-1]) / before
        limit = 1 + slack + 2 * self._error(values)[:, None] + 4 * EPSILON
        return worst_time(norm[:, 1:] / before, limit)

    def excess(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = self._over_time(values)
        a, u = w[:, 0], w[:, 1:]
        above = u.max(axis=2) - a.max(axis=1, keepdims=True)
        below = a.min(axis=1, keepdims=True) - u.min(axis=2)
        between = abs(a - np.roll(a, 1, axis=1)).max(axis=1)  # a may be higher between points
        error = self._error(values) * abs(u).max(axis=(1, 2))
        limit = (between + error + self._unresolved)[:, None]
        return worst_time(np.maximum(above, below), np.broadcast_to(limit, above.shape))

    def distance(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = self._over_time(values)
        a, u = w[:, 0], w[:, 1:]
        difference = np.fft.rfft(u - a[:, None]) * antiderivative_symbol(self._grid)
        observed = abs(np.fft.irfft(difference, self._grid.n)).mean(axis=2)
        slope = abs(a - np.roll(a, 1, axis=1)).sum(axis=1) + self._slopes
        energy = (_norm(a) / np.sqrt(self._grid.n) + self._unresolved) ** 2
        rate = energy + self._viscosity * slope
        missing = self._unresolved + EPSILON * abs(w).max(axis=(1, 2))
        missing = missing + self._error(values) * abs(u).max(axis=(1, 2))
        return worst_time(observed, rate[:, None] * self._times + missing[:, None])


def _norm(w: np.ndarray) -> np.ndarray:
    return np.linalg.norm(w, axis=-1)


# largest numbers of float64 arrays of n points in device memory for one sample
_ARRAYS, _ARRAYS_PER_TIME = 20, 4


class PeriodicGaussian(Strict):
    """N(0, sigma²(-Δ + tau²)^(-alpha)) on the circle of length 1, for functions of mean 0.

    Args:
        sigma: Scale σ of the covariance operator. [velocity · length^(1/2 − alpha)]
        tau: Inverse correlation length τ; larger values give shorter waves. [1/length]
        alpha: Exponent α, above 1/2: larger values give smoother functions. [1]
        modes: Number of Fourier modes, independent of the grid.
    """

    law: Literal["periodic-gaussian"]
    sigma: Size
    tau: InverseLength
    alpha: Annotated[float, Field(gt=0.5, allow_inf_nan=False)]
    modes: Count

    @property
    def sentence(self) -> str:
        return (
            f"N(0, {self.sigma:.6g}²(−Δ + {self.tau:.6g}²)^(−{self.alpha:.6g})) on the circle of "
            f"length 1, without its mean, {self.modes} modes"
        )

    def build(self) -> PeriodicGaussianField:
        return PeriodicGaussianField(self.sigma, self.tau, self.alpha, self.modes)


class ColeHopfMethod(Strict):
    """The exact solution by the transform of Cole and Hopf, without time steps.

    Args:
        resolution: Points of the solver; even, and a multiple of the points of the output.
        largest_error: Largest accepted estimate of the relative error. [1]
    """

    method: Literal["cole-hopf"]
    resolution: Count
    largest_error: Positive = ColeHopf.tolerance

    def build(self, viscosity: float | Float[np.ndarray, " batch"]) -> ColeHopf:
        return ColeHopf(PeriodicGrid(self.resolution), viscosity, self.largest_error)


class ETDRK4Method(Strict):
    """Fourier modes in space, exponential Runge-Kutta steps of order 4 in time.

    Args:
        resolution: Points of the solver; even, and a multiple of the points of the output.
        dt: Largest time step. [time]
        tolerance: Largest accepted estimate of the relative error. [1]
    """

    method: Literal["etdrk4"]
    resolution: Count
    dt: Positive
    tolerance: Positive = 1e-3

    def build(self, viscosity: float | Float[np.ndarray, " batch"]) -> ETDRK4:
        return ETDRK4(PeriodicGrid(self.resolution), viscosity, self.dt, self.tolerance)


@equation
class Burgers(Problem):
    """uₜ + u uₓ = viscosity uₓₓ on the circle of length 1: the map u(0) -> u(times).

    Args:
        viscosity: The viscosity ν. [length²/time]
        times: Times of the output. [time]
        resolution: Points of the output; an even number of at least 4.
        initial: Distribution of the initial values.
        solver: The numerical method that computes the solutions.
    """

    supports_device: ClassVar[bool] = True
    algorithm: ClassVar[int] = 2  # 2: the error includes rounding, that of the mean and to float32
    largest_batch: ClassVar[int] = 16

    equation: Literal["burgers"]
    viscosity: CoefficientOrLaw
    times: TimesFromStart
    resolution: Count
    initial: PeriodicGaussian
    solver: Annotated[ColeHopfMethod | ETDRK4Method, Field(discriminator="method")]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, n in (
            ("resolution", self.resolution),
            ("solver.resolution", self.solver.resolution),
        ):
            if n < 4 or n % 2:
                raise ValueError(f"{name} must be even and >= 4, got {n}")
        solving = self.solver.resolution
        if solving < 2 * self.initial.modes + 2:
            raise ValueError(
                f"initial.modes = {self.initial.modes} need solver.resolution >= "
                f"{2 * self.initial.modes + 2}, got {solving}"
            )
        check_divides(self.resolution, solving)
        if isinstance(self.solver, ETDRK4Method):
            check_steps(self.solver.dt, self.times)
        return self

    @property
    def formula(self) -> str:
        return "u_t + u u_x = viscosity u_xx, x on the circle of length 1"

    @property
    def latex(self) -> str:
        burgers = r"u_t + u u_x = \nu u_{xx},\quad x \in \mathbb{R}/\mathbb{Z}"
        return burgers + with_value(r"\nu", self.viscosity)

    @property
    def domain(self) -> Box:
        return Box.periodic(self.resolution)

    def variables(self) -> tuple[Variable, ...]:
        domain, constants = self.domain, self.constants("viscosity")
        return (
            function(domain, "a", "input", "initial value u(x, 0)", **constants),
            function(domain, "u", "target", "solution u(x, t)", times=self.times, **constants),
            scalar("error", "quality", "estimate of the relative L2 error of u, as it is stored"),
            *self.parameters(),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        return Physics(
            symmetries=("shift", "odd-reflection"),
            sentences={"initial": self.initial.sentence},
            parameters=self.parameter_laws,
            drawing={"a": Drawing("a"), "u": Drawing("u")},
        )

    @property
    def statistics(self) -> Mapping[str, InputStatistic]:
        field = self.initial.build()
        grid = PeriodicGrid(2 * self.initial.modes + 2)  # on which the mean square is exact

        def energy(values: Values) -> tuple[np.ndarray, np.ndarray]:
            energy = np.mean(values["a"].astype(np.float64) ** 2, axis=1)
            return energy, energy / 4  # waves that a coarse grid misses

        def drawn(seed: int, number: int) -> float:
            return float(np.mean(np.asarray(field(grid, seed, [number])) ** 2))

        return {"energy": InputStatistic(drawn, energy)}

    def inversions(self, setting: InverseProblem) -> dict[str, ClassicalMethod]:
        from pdegen.equations.burgers.inversion import inversions

        if len(self.times) != 1 or not self.times[0] > 0:
            raise SchemaError(
                f"burgers inverts u at a single time after 0, got times {list(self.times)}"
            )
        self.refuse_laws("the inversions need")
        viscosity = number_of(self.viscosity)
        return inversions(setting, self.initial.build(), viscosity, self.times[0])

    def forward(self, x: Float[np.ndarray, " m"]) -> Forward | None:
        from pdegen.equations.burgers.inversion import final_value

        (*times,) = self.times
        if len(times) > 1 or self.laws:
            return None
        return final_value(number_of(self.viscosity), times[0], len(x))

    @property
    def floats_per_sample(self) -> int:
        return (_ARRAYS + _ARRAYS_PER_TIME * len(self.times)) * self.solver.resolution

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        """The values of these samples at the points of the output.

        Fields and solutions are computed on the solver's grid, which resolves them.
        """
        return self._solution(seed, samples, device, _built(self)[1])  # pyright: ignore

    def solve_family(
        self, seed: int, samples: range, device: str | None = None
    ) -> dict[str, Array]:
        viscosity = self.parameter_values(seed, samples)["viscosity"]
        return self._solution(seed, samples, device, self.solver.build(viscosity))

    def _solution(
        self, seed: int, samples: range, device: str | None, solver: ColeHopf | ETDRK4
    ) -> dict[str, Array]:
        field = _built(self.typical)[0]  # pyright: ignore[reportArgumentType]: frozen
        stride = solver.grid.stride_to(PeriodicGrid(self.resolution))
        u0 = field(solver.grid, seed, samples, device)
        solution = solver.solve(u0, list(self.times))
        xp = array_namespace(u0)
        row = first_true(~xp.isfinite(xp.sum(u0, axis=1) + xp.sum(solution.u, axis=(1, 2))))
        if row is not None:
            raise SolveError(row, "the solution is not finite")
        check_size(solution.u)
        return {
            "a": xp.astype(u0[:, ::stride], xp.float32),
            "u": squeeze_single_time(xp.astype(solution.u[:, :, ::stride], xp.float32)),
            "error": with_rounding(solution.error),
        }

    @property
    def transforms(self) -> dict[str, str]:
        return provenance((self.solver.resolution,)) if self.compiled else {}

    @property
    def compiled(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return isinstance(self.solver, ETDRK4Method)

    @property
    def input_modes(self) -> int:
        return self.initial.modes

    def target_of_interpolant(self, a: np.ndarray) -> np.ndarray:
        _, solver = _built(self)  # pyright: ignore[reportArgumentType]: frozen
        u = solver.solve(interpolated(a, self.solver.resolution), list(self.times)).u
        return squeeze_single_time(u[:, :, :: solver.grid.stride_to(PeriodicGrid(self.resolution))])

    def checks(self) -> StoreChecks:
        viscosity, grid = number_of(self.viscosity), PeriodicGrid(self.resolution)
        tolerance = self.solver.build(viscosity).tolerance
        return burgers_checks(self.initial.build(), grid, viscosity, self.times, tolerance)


@lru_cache(maxsize=4)
def _built(problem: Burgers) -> tuple[PeriodicGaussianField, ColeHopf | ETDRK4]:
    """The field and the solver of a problem."""
    return problem.initial.build(), problem.solver.build(number_of(problem.viscosity))
