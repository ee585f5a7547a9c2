"""Vorticity on the torus: the map from w(0) to w at a list of times, under a force."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import Field, model_validator

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    StoreChecks,
    Values,
    error_range,
    worst_time,
)
from pdegen.checks.evolution import Evolution
from pdegen.checks.gaussian import GaussianCheck, torus_modes
from pdegen.domains import Box, PeriodicGrid
from pdegen.equations.base import (
    Problem,
    Times,
    check_size,
    check_steps,
    equation,
    squeeze_single_time,
    with_rounding,
)
from pdegen.equations.latex import with_value
from pdegen.equations.vorticity.solver import Flow
from pdegen.numerics.device import Array, empty, first_true
from pdegen.numerics.errors import SolveError
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.spectral import Torus, interpolated
from pdegen.numerics.transforms import provenance
from pdegen.sampling.gaussian import TorusGaussianField
from pdegen.sampling.scalars import CoefficientOrLaw, NumberOrLaw, ScalarLaw, number_of
from pdegen.schema import Count, InverseLength, Positive, Size, Strict, Tolerance
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, scalar, times


@dataclass(frozen=True)
class VorticityClaims:
    """The accuracy that the solver guarantees."""

    tolerance: float  # largest error at the certified times
    certified: Float[np.ndarray, " times"]  # True at the times when the flow is predictable
    budget: float  # largest relative violation of the budgets of energy and enstrophy
    folded: bool  # whether striding aliases modes of the solver on the output grid


def vorticity_checks(
    field: TorusGaussianField | None, n: int, solved: VorticityClaims, evolved: Evolution
) -> StoreChecks:
    """Checks of a store: a is a Gaussian field, and u obeys the equation and the energy budget.

    The mean of u stays 0. The energy E = ⟨|∇ψ|²⟩/2 changes by the work of the force minus the
    dissipation: E(t) = E(0) + ∫(⟨ψf⟩ - ν⟨w²⟩). The solver computes this integral, and the store
    contains it. The budget therefore shows that u is a solution for a, even at times when the flow
    is not predictable. Each frame must follow from the previous frame by the equation. The output
    grid resolves nearly all of the energy, which decays as k⁻³. Aliasing adds some of the
    unresolved energy to lower modes, including the mean.

    Args:
        field: Distribution of a; None if striding aliases modes of a, which changes it.
        n: Points of the output along each axis.
        solved: Accuracy of the solver.
        evolved: The equation and its frames.
    """
    flow = _Stored(n, solved)
    gaussian = []
    if field is not None:
        variance = np.full((n, n), field.pointwise_variance)
        modes = torus_modes(field, n)
        gaussian = [GaussianCheck("a", lambda a: a.astype(np.float64), modes, variance, True)]
    return StoreChecks(
        (
            *gaussian,
            Distinct("a"),
            Bound("error", "the solver's error", flow.error),
            Bound("error", "minus the solver's error", flow.least_error),
            Bound("budget", "the budgets", lambda v: (np.abs(v["budget"]), solved.budget)),
            *(() if solved.folded else (Bound("u", "the mean", flow.mean),)),
            Bound("u", "the distance from the budget of energy", flow.energy),
            *evolved.checks(),
        )
    )


class _Stored:
    """Methods that return a quantity of each sample, with the upper limit of the quantity."""

    def __init__(self, n: int, solved: VorticityClaims) -> None:
        self._torus, self._solved = Torus((PeriodicGrid(n),) * 2, degree=1), solved
        # share of the energy in modes that the output grid does not resolve, or that alias
        self._hidden = 1 / n if solved.folded else max(1e-3, n**-2)

    def error(self, values: Values) -> tuple[np.ndarray, float]:
        certified = _rows(values["error"])[:, self._solved.certified]
        return certified.max(axis=1, initial=0.0), error_range(self._solved.tolerance)[1]

    def least_error(self, values: Values) -> tuple[np.ndarray, float]:
        return -_rows(values["error"]).min(axis=1), -error_range(self._solved.tolerance)[0]

    def mean(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = _frames(values)
        limit = EPSILON * abs(w).max(axis=(2, 3)) + np.finfo(np.float32).smallest_subnormal
        return worst_time(abs(w.mean(axis=(2, 3))), limit)

    def energy(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        energy = self._energies(_frames(values))
        start = self._energies(values["a"].astype(np.float64)[:, None])
        expected = start + _rows(values["work"])
        difference = abs(energy - expected) / (energy + start)
        return difference.max(axis=1), np.full(len(difference), self._hidden)

    def _energies(self, w: Float[np.ndarray, "b t n n"]) -> Float[np.ndarray, "b t"]:
        torus = self._torus
        density = -torus.inverse_laplacian * torus.weights / 2
        return np.sum(density * np.abs(torus.to_modes(w)) ** 2, axis=(-2, -1))


def _frames(values: Values) -> Float[np.ndarray, "batch times n n"]:
    u = values["u"].astype(np.float64)
    return u if u.ndim == 4 else u[:, None]


def _rows(values: np.ndarray) -> Float[np.ndarray, "batch times"]:
    return values.reshape(len(values), -1)


_SPEED_MODES = 256  # wave vectors up to this length give nearly all of the speed
# largest relative violation of the budgets of energy and enstrophy, whose integrals are sums of
# Simpson's rule over time steps
_BUDGET = 1e-3


class TorusGaussian(Strict):
    """N(0, sigma²(-Δ + tau²)^(-alpha)) on the torus (0, 1)², for functions of mean 0.

    Args:
        sigma: Scale σ of the covariance operator. [length^(1 − alpha)/time]
        tau: Inverse correlation length τ; larger values give shorter waves. [1/length]
        alpha: Exponent α, above 1: larger values give smoother functions. [1]
        modes: Radius of the disc of wave vectors, independent of the grid.
    """

    law: Literal["torus-gaussian"]
    sigma: Size
    tau: InverseLength
    alpha: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    modes: Count

    @property
    def sentence(self) -> str:
        return (
            f"N(0, {self.sigma:.6g}²(−Δ + {self.tau:.6g}²)^(−{self.alpha:.6g})) on the torus (0, "
            f"1)², without its mean, wave vectors up to |k| = {self.modes}"
        )

    def build(self) -> TorusGaussianField:
        return TorusGaussianField(self.sigma, self.tau, self.alpha, self.modes)


class Force(Strict):
    """f = amplitude (sin θ + cos θ) with θ = 2π(x + y) + phase; w = f/8π²ν is a steady flow.

    Args:
        amplitude: Amplitude of the force f in the equation of the vorticity. [1/time²]
        phase: Phase of the force in θ. [rad]
    """

    amplitude: Annotated[Annotated[float, Field(ge=0, le=1e20)] | ScalarLaw, NumberOrLaw]
    phase: Annotated[float, Field(ge=-1e6, le=1e6)] = 0.0  # a larger phase loses the digits of θ


class Method(Strict):
    """Fourier modes |k_j| < resolution/3 and exponential Runge-Kutta steps of order 4.

    Args:
        resolution: Points of the solver along each axis; even, at least 8.
        dt: Largest time step; it is halved for a sample that misses the tolerance. [time]
        tolerance: Largest relative error until the time `certified`. [1]
        certified: Time until which the flow is predictable; by default the last time. [time]
    """

    resolution: Count
    dt: Positive
    tolerance: Tolerance = 1e-5
    certified: Positive | None = None


@equation
class Vorticity(Problem):
    """w_t + u·∇w = viscosity Δw + f on the torus (0, 1)²: the map w(0) -> w(times).

    With `restriction` "fourier", the output consists of the modes of the solution that the output
    grid resolves. With "stride", the output is the solution at every r-th point of the solver's
    grid, as in the published files.

    Args:
        viscosity: The viscosity ν. [length²/time]
        times: Times of the output. [time]
        resolution: Points of the output along each axis; even, at least 8.
        restriction: The map from the solution on the solver's grid to the output.
        initial: Distribution of the initial values.
        force: The force f.
        solver: The numerical method that computes the solutions.
    """

    supports_device: ClassVar[bool] = True
    algorithm: ClassVar[int] = 3  # 3: the error includes rounding, that of a and to float32
    discretization: ClassVar[tuple[str, ...]] = ("resolution", "restriction", "solver")
    largest_batch: ClassVar[int] = 8
    compiled: ClassVar[bool] = True

    equation: Literal["vorticity"]
    viscosity: CoefficientOrLaw
    times: Times
    resolution: Count
    restriction: Literal["fourier", "stride"] = "fourier"
    initial: TorusGaussian
    force: Force
    solver: Method

    @model_validator(mode="after")
    def _fits(self) -> Self:
        solving = self.solver.resolution
        for name, n in (("resolution", self.resolution), ("solver.resolution", solving)):
            if n < 8 or n % 2:
                raise ValueError(f"{name} must be even and >= 8, got {n}")
        until = self.solver.certified
        if until is not None and until < self.times[0]:
            raise ValueError(
                f"solver.certified must be at least the first time {self.times[0]:g}, got {until:g}"
            )
        if self.resolution > solving:
            raise ValueError(
                f"resolution must be at most solver.resolution = {solving}, got {self.resolution}"
            )
        if self.restriction == "stride" and solving % self.resolution:
            raise ValueError(
                f"restriction stride needs a resolution that divides solver.resolution = "
                f"{solving}, got {self.resolution}: use fourier"
            )
        flow = self.typical.flow  # whose torus and stable step are those of every sample
        if self.initial.modes > flow.torus.highest[0]:
            raise ValueError(
                f"initial.modes = {self.initial.modes} need solver.resolution >= "
                f"{3 * self.initial.modes + 1 + (self.initial.modes + 1) % 2}, got {solving}"
            )
        speed = self._speed
        limit = flow.largest_step(speed)
        if self.solver.dt > limit:
            raise ValueError(
                f"solver.dt must be at most {limit:.3g}: at the mean speed {speed:.3g} of initial "
                f"flows a larger step is unstable on {solving} points, got {self.solver.dt}"
            )
        check_steps(self.solver.dt, self.times)
        return self

    @property
    def flow(self) -> Flow:
        """The equation on the solver's grid."""
        torus = Torus((PeriodicGrid(self.solver.resolution),) * 2)
        amplitude = number_of(self.force.amplitude)
        return Flow(torus, number_of(self.viscosity), amplitude, self.force.phase)

    @property
    def _speed(self) -> float:
        """The root mean square of |u| at time 0."""
        field = replace(self.initial.build(), modes=min(self.initial.modes, _SPEED_MODES))
        k = 2 * np.pi * np.linalg.norm(field.wave_vectors, axis=1)
        return float(np.linalg.norm(field.mode_stds / k))

    @property
    def formula(self) -> str:
        return "w_t + u·∇w = viscosity Δw + f, u = (ψ_y, -ψ_x), -Δψ = w, on the torus (0, 1)²"

    @property
    def latex(self) -> str:
        return (
            r"w_t + u \cdot \nabla w = \nu \Delta w + f,\quad u = (\psi_y, -\psi_x),\quad "
            r"-\Delta \psi = w,\quad (x, y) \in (\mathbb{R}/\mathbb{Z})^2"
            + with_value(r"\nu", self.viscosity)
        )

    @property
    def domain(self) -> Box:
        return Box.periodic(self.resolution, self.resolution)

    @property
    def certified(self) -> tuple[bool, ...]:
        """Whether the error must be within the tolerance, for each output time."""
        until = self.solver.certified
        return tuple(until is None or t <= until for t in self.times)

    def variables(self) -> tuple[Variable, ...]:
        domain, constants = self.domain, self.constants("viscosity")
        return (
            function(domain, "a", "input", "vorticity w(x, y, 0)", **constants),
            function(domain, "u", "target", "vorticity w(x, y, t)", times=self.times, **constants),
            self._at_times("error", "estimate of the relative L2 error of u, as it is stored"),
            self._at_times("work", "∫(⟨ψf⟩ - ν⟨w²⟩) since t = 0, the change of the energy"),
            scalar("budget", "quality", "largest violation of the budgets of energy and enstrophy"),
            scalar(
                "step", "quality", "largest time step: solver.dt, halved until the error is met"
            ),
            *self.parameters(),
        )

    def _at_times(self, name: str, long_name: str) -> Variable:
        shape = () if len(self.times) == 1 else (len(self.times),)
        attributes = {"long_name": long_name, "role": "quality", "units": "1"}
        return Variable(name, ("time",) * len(shape), shape, "float64", attributes)

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        until = self.solver.certified
        amplitude = self.force.amplitude
        law = f", A {amplitude.sentence}" if isinstance(amplitude, ScalarLaw) else ""
        size = "A" if isinstance(amplitude, ScalarLaw) else f"{amplitude:g}"
        force = f"{size} (sin θ + cos θ), θ = 2π(x + y) + {self.force.phase:g}{law}"
        error = f"relative error at most {self.solver.tolerance:g}"
        return Physics(
            symmetries=("diagonal-shift",),
            sentences={
                "initial": self.initial.sentence,
                "force": force if self.force.amplitude else "none",
                "solver": error if until is None else f"{error} until t = {until:g}",
            },
            parameters=self.parameter_laws,
            drawing={"a": Drawing("w", "diverging"), "u": Drawing("w", "diverging")},
        )

    @property
    def floats_per_sample(self) -> int:
        return (64 + 4 * len(self.times)) * self.solver.resolution**2

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        """The values of these samples at the points of the output.

        Fields and solutions are computed on the solver's grid and then restricted to the output
        grid.
        """
        _, flow, solver = _built(self, device)  # pyright: ignore[reportArgumentType]: frozen
        return self._solution(seed, samples, device, flow, solver)

    def solve_family(
        self, seed: int, samples: range, device: str | None = None
    ) -> dict[str, Array]:
        numbers, method = self.parameter_values(seed, samples), self.solver
        flow = replace(
            self.typical.flow,
            **{name: numbers[key] for key, name in _FIELDS.items() if key in numbers},
        )
        solver = flow.solver(empty((1,), np.complex128, device), method.dt, method.tolerance)
        return self._solution(seed, samples, device, flow, solver)

    def _solution(
        self, seed: int, samples: range, device: str | None, flow: Flow, solver: Semilinear
    ) -> dict[str, Array]:
        field = _built(self.typical, device)[0]  # pyright: ignore[reportArgumentType]: frozen
        w0 = field.coefficients(flow.torus, seed, samples, device)
        solution = solver.solve(w0[:, None], self.times, self.certified)
        u = self._restricted(flow.torus, solution.v[:, :, 0])
        check_size(u)
        violation = _violation(flow, w0[:, None, None], solution.v, solution.integrals)
        row = first_true(~(violation <= _BUDGET))
        if row is not None:
            raise SolveError(
                row,
                "the budgets of energy and enstrophy are violated by "
                f"{float(violation[row]):.2g}, at most {_BUDGET:g} is allowed: use a smaller dt",
            )
        return {
            "a": self._restricted(flow.torus, w0),
            "u": squeeze_single_time(u),
            "error": squeeze_single_time(with_rounding(solution.error)),
            "work": squeeze_single_time(solution.integrals[:, :, 0]),
            "budget": violation,
            "step": solution.step,
        }

    def _restricted(self, torus: Torus, w: Array) -> Array:
        """The values at the output points, in float32."""
        stride, xp = self.solver.resolution // self.resolution, array_namespace(w)
        if self.restriction == "stride":
            values = torus.to_points(w)[..., ::stride, ::stride]
        else:
            values = torus.to_points(w, (self.resolution,) * 2)
        return xp.astype(values, xp.float32)

    @property
    def input_modes(self) -> int:
        return self.initial.modes

    def target_of_interpolant(self, a: np.ndarray) -> np.ndarray:
        _, flow, solver = _built(self, None)  # pyright: ignore[reportArgumentType]: frozen
        w0 = flow.torus.to_modes(interpolated(a, self.solver.resolution, 2))
        solution = solver.solve(w0[:, None], self.times, self.certified)
        return squeeze_single_time(self._restricted(flow.torus, solution.v[:, :, 0]))

    @property
    def transforms(self) -> dict[str, str]:
        return provenance((self.solver.resolution,) * 2)

    def checks(self) -> StoreChecks:
        stride, n = self.restriction == "stride", self.resolution
        folded = stride and self.initial.modes >= n / 2
        solved = VorticityClaims(
            tolerance=self.solver.tolerance,
            certified=np.array(self.certified),
            budget=_BUDGET,
            folded=stride and self.flow.torus.highest[0] >= n / 2,
        )
        evolved = Evolution(
            terms=lambda torus: self.flow.on(torus, np.empty(0)),
            degree=2,
            torus=Torus((PeriodicGrid(n),) * 2, degree=1),
            components=1,
            times=(0.0, *self.times),
            tolerance=solved.tolerance,
            folded=solved.folded,
        )
        return vorticity_checks(None if folded else self.initial.build(), n, solved, evolved)


_FIELDS = {"viscosity": "viscosity", "force.amplitude": "amplitude"}  # of `Flow`, by keys


@lru_cache(maxsize=4)
def _built(problem: Vorticity, device: str | None) -> tuple[TorusGaussianField, Flow, Semilinear]:
    """The field, the equation and the solver of a problem."""
    flow, method = problem.flow, problem.solver
    solver = flow.solver(empty((1,), np.complex128, device), method.dt, method.tolerance)
    return problem.initial.build(), flow, solver


def _violation(flow: Flow, before: Array, after: Array, integrals: Array) -> Array:
    """The largest relative violation of the budgets of energy and enstrophy."""
    xp = array_namespace(after)
    start, now = flow.energies(before), flow.energies(after)
    return xp.max(xp.abs(now - start - integrals) / (now + start), axis=(1, 2))
