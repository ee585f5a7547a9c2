"""Vorticity on the torus: the map from w(0) to w at a list of times, under a force."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import Field, model_validator

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Check,
    Distinct,
    Finding,
    Statistic,
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
from pdegen.equations.latex import number, with_value
from pdegen.equations.vorticity.solver import Flow, speed_symbol
from pdegen.numerics.device import Array, constant, empty, first_true
from pdegen.numerics.errors import SolveError
from pdegen.numerics.semilinear import Nonlinear, Seen, Semilinear
from pdegen.numerics.spectral import Symbol, Torus, interpolated
from pdegen.numerics.transforms import provenance
from pdegen.sampling.gaussian import TorusGaussianField
from pdegen.sampling.scalars import CoefficientOrLaw, NumberOrLaw, ScalarLaw, number_of
from pdegen.schema import Count, Extended, InverseLength, Positive, Size, Strict, Tolerance
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, scalar, times


@dataclass(frozen=True)
class VorticityClaims:
    """The accuracy that the solver guarantees."""

    tolerance: float  # largest error at the certified times
    certified: Float[np.ndarray, " times"]  # True at the times when the flow is predictable
    budget: float  # largest relative violation of the budgets of energy and enstrophy
    folded: bool  # whether striding aliases modes of the solver on the output grid
    velocity: bool  # whether a and u are velocities


def vorticity_checks(
    field: TorusGaussianField | None, n: int, solved: VorticityClaims, evolved: Evolution
) -> StoreChecks:
    """Checks of a store: a is a Gaussian field, and u obeys the equation and the energy budget.

    The mean of u stays 0. The energy E = ⟨|∇ψ|²⟩/2 changes by the work of the force minus the
    dissipation and the drag: E(t) = E(0) + ∫(⟨ψf⟩ - ν⟨w²⟩ - 2αE). The solver computes this
    integral, and the store contains it. The budget therefore shows that u is a solution for a, even
    at times when the flow is not predictable. Each frame must follow from the previous frame by the
    equation. The output grid resolves nearly all of the energy, which decays as k⁻³. Aliasing adds
    some of the unresolved energy to lower modes, including the mean.

    Velocities must have no divergence and no mean. The other checks are of the function with the
    modes w/|k|, which has the norm of the velocity and the rounding of its values.

    Args:
        field: Distribution of a, or of this function; None if it is not known: a is the state after
            a burn-in, or striding aliases modes of a.
        n: Points of the output along each axis.
        solved: Accuracy of the solver.
        evolved: The equation and its frames.
    """
    flow = _Stored(evolved.torus, solved)
    gaussian = []
    if field is not None:
        variance = np.full((n, n), field.pointwise_variance)
        modes = torus_modes(field, n)
        gaussian = [GaussianCheck("a", lambda a: a.astype(np.float64), modes, variance, True)]
    of_function = (
        *gaussian,
        Bound("u", "the distance from the budget of energy", flow.energy),
        *evolved.checks(),
    )
    if solved.velocity:
        zero = (Bound("u", "the divergence and the mean", flow.divergence),)
        of_function = tuple(_OfVelocity(check, evolved.torus) for check in of_function)
    else:
        zero = () if solved.folded else (Bound("u", "the mean", flow.mean),)
    return StoreChecks(
        (
            Distinct("a"),
            Bound("error", "the solver's error", flow.error),
            Bound("error", "minus the solver's error", flow.least_error),
            Bound("budget", "the budgets", lambda v: (np.abs(v["budget"]), solved.budget)),
            *zero,
            *of_function,
        )
    )


def curl(torus: Torus, velocity: Array) -> Array:
    """The modes of w = v_x - u_y, from values of (u, v) of the shape (*batch, 2, *points)."""
    modes = torus.to_modes(velocity)
    d_x, d_y = (constant(d, modes) for d in torus.d)
    return d_x * modes[..., 1, :, :] - d_y * modes[..., 0, :, :]


class _OfVelocity(Check):
    """A check of the functions with the modes w/|k|, from the stored velocities."""

    by_sample = True  # as all except the Gaussian one, which has no findings of single samples

    def __init__(self, check: Check, torus: Torus) -> None:
        self.variable, self.subject, self._check, self._torus = (
            check.variable, check.subject, check, torus,
        )  # fmt: skip
        self.by_sample = check.by_sample  # pyright: ignore[reportAttributeAccessIssue]

    def add(self, numbers: np.ndarray, values: Values) -> None:
        torus, converted = self._torus, dict(values)
        for name in "au":
            w = curl(torus, values[name].astype(np.float64))
            converted[name] = torus.to_points(speed_symbol(torus) * w)
        self._check.add(numbers, converted)

    def statistics(self) -> Iterable[Statistic]:
        return self._check.statistics()

    def findings(self) -> Iterable[Finding]:
        return self._check.findings()


class _Stored:
    """Methods that return a quantity of each sample, with the upper limit of the quantity."""

    def __init__(self, torus: Torus, solved: VorticityClaims) -> None:
        self._torus, self._solved, n = torus, solved, torus.points[0]
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

    def divergence(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        """The part of the velocities that is no curl, which is rounding."""
        u, torus = values["u"].astype(np.float64), self._torus
        back = Flow(torus, 1.0).velocity(curl(torus, u))
        rest = abs(torus.to_modes(u) - back).reshape(len(u), -1).max(axis=1)
        return rest, EPSILON * abs(u).reshape(len(u), -1).max(axis=1)

    def energy(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        energy = self._energies(_frames(values))
        start = self._energies(values["a"].astype(np.float64)[:, None])
        expected = start + _rows(values["work"])
        difference = abs(energy - expected) / (energy + start)
        return difference.max(axis=1), np.full(len(difference), self._hidden)

    def _energies(self, w: Float[np.ndarray, "b t n n"]) -> Float[np.ndarray, "b t"]:
        torus = self._torus
        density = torus.weights / 2
        if not self._solved.velocity:
            density = density * -torus.inverse_laplacian
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


class TorusGaussian(Extended):
    """N(0, sigma²(-Δ + tau²)^(-alpha)) on the torus (0, 1)², for functions of mean 0.

    The field is then stretched to the length of the domain. After a burn-in, the flow that starts
    with the field gives the input: its state at the time `burn_in`, with the same wave vectors.
    Labels start from the stored input, in float32.

    Args:
        sigma: Scale σ of the covariance operator. [length^(1 − alpha)/time]
        tau: Inverse correlation length τ; larger values give shorter waves. [1/length]
        alpha: Exponent α, above 1: larger values give smoother functions. [1]
        modes: Radius of the disc of wave vectors, independent of the grid.
        burn_in: Time from the Gaussian field to the input; 0 for none. [time]
    """

    later: ClassVar = ("burn_in",)

    law: Literal["torus-gaussian"]
    sigma: Size
    tau: InverseLength
    alpha: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    modes: Count
    burn_in: Annotated[float, Field(ge=0, le=1e6)] = 0.0

    @property
    def sentence(self) -> str:
        burnt_in = f"{self.burn_in:g} after a flow began with " if self.burn_in else ""
        return (
            f"{'the state at time ' if burnt_in else ''}{burnt_in}"
            f"N(0, {self.sigma:.6g}²(−Δ + {self.tau:.6g}²)^(−{self.alpha:.6g})) on the torus (0, "
            f"1)², without its mean, wave vectors up to |k| = {self.modes}"
        )

    def build(self) -> TorusGaussianField:
        return TorusGaussianField(self.sigma, self.tau, self.alpha, self.modes)


class Force(Extended):
    """f = amplitude (sin θ + cos θ) with θ = 2π(x + y) + phase; w = f/8π²ν is a steady flow.

    On the torus of another length L and with a wave number n, 2π becomes κ = 2πn/L. The kind
    "kolmogorov" is f = -κ amplitude cos(κy + phase); w = f/(κ²ν + drag) is a steady flow.

    Args:
        amplitude: Amplitude of the force f in the equation of the vorticity; for the kind
            "kolmogorov" that of the body force, whose curl is f. [1/time², or length/time²]
        phase: Phase of the force in θ. [rad]
        kind: Direction of the force.
        wave: Wave number n of the force.
    """

    later: ClassVar = ("kind", "wave")
    amplitude: Annotated[Annotated[float, Field(ge=0, le=1e20)] | ScalarLaw, NumberOrLaw]
    phase: Annotated[float, Field(ge=-1e6, le=1e6)] = 0.0  # a larger phase loses the digits of θ
    kind: Literal["diagonal", "kolmogorov"] = "diagonal"
    wave: Count = 1


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
class Vorticity(Extended, Problem):
    """w_t + u·∇w = viscosity Δw - drag w + f on the torus (0, length)²: the map w(0) -> w(times).

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
        length: Side of the torus. [length]
        drag: Linear drag α. [1/time]
        output: Functions of the store: the vorticity, or the two components of the velocity.
    """

    later: ClassVar = ("length", "drag", "output")
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
    length: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    drag: Annotated[Annotated[float, Field(ge=0, le=1e20)] | ScalarLaw, NumberOrLaw] = 0.0
    output: Literal["vorticity", "velocity"] = "vorticity"

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
        if self.restriction == "stride" and self.output == "velocity":
            raise ValueError(
                "output velocity needs restriction fourier: an aliased velocity has a divergence"
            )
        if self.initial.burn_in and 2 * self.initial.modes >= self.resolution:
            raise ValueError(
                f"initial.modes must be below resolution/2 = {self.resolution // 2} with a "
                f"burn-in, whose labels start from stored inputs, got {self.initial.modes}"
            )
        flow = self.typical.flow  # whose torus and stable step are those of every sample
        if self.force.wave > flow.torus.highest[0]:
            raise ValueError(
                f"force.wave must be at most {flow.torus.highest[0]}, the highest mode of "
                f"{solving} points, got {self.force.wave}"
            )
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
        if (burn_in := self.initial.burn_in) > 0:
            check_steps(min(self.solver.dt, burn_in), (burn_in,))
        return self

    @property
    def flow(self) -> Flow:
        """The equation on the solver's grid."""
        torus, force = Torus((PeriodicGrid(self.solver.resolution, self.length),) * 2), self.force
        nu, amplitude, drag = map(number_of, (self.viscosity, force.amplitude, self.drag))
        return Flow(torus, nu, amplitude, force.phase, drag, force.kind, force.wave)

    @property
    def _speed(self) -> float:
        """The root mean square of |u| of the Gaussian field."""
        initial = self.initial.model_copy(update={"modes": min(self.initial.modes, _SPEED_MODES)})
        return float(np.linalg.norm(_SpeedField.of(initial, self.length).mode_stds))

    @property
    def formula(self) -> str:
        drag = " - drag w" if self.drag else ""
        return (
            f"w_t + u·∇w = viscosity Δw{drag} + f, u = (ψ_y, -ψ_x), -Δψ = w, on the torus (0, "
            f"{self.length:g})²"
        )

    @property
    def latex(self) -> str:
        drag = r"- \alpha w " if self.drag else ""
        unit = r"\mathbb{Z}" if self.length == 1 else rf"{number(self.length)}\mathbb{{Z}}"
        return (
            rf"w_t + u \cdot \nabla w = \nu \Delta w {drag}+ f,\quad u = (\psi_y, -\psi_x),\quad "
            rf"-\Delta \psi = w,\quad (x, y) \in (\mathbb{{R}}/{unit})^2"
            + with_value(r"\nu", self.viscosity)
            + (with_value(r"\alpha", self.drag) if self.drag else "")
        )

    @property
    def domain(self) -> Box:
        return Box((PeriodicGrid(self.resolution, self.length),) * 2)

    @property
    def certified(self) -> tuple[bool, ...]:
        """Whether the error must be within the tolerance, for each output time."""
        until = self.solver.certified
        return tuple(until is None or t <= until for t in self.times)

    def variables(self) -> tuple[Variable, ...]:
        domain, keys = self.domain, ("viscosity", "drag") if self.drag else ("viscosity",)
        options: dict[str, Any] = self.constants(*keys)
        symbol, drag = "w", " - 2αE" if self.drag else ""
        if self.output == "velocity":
            symbol, options["channels"] = "(u, v)", ("u", "v")
        what = f"{self.output} {symbol}"
        return (
            function(domain, "a", "input", f"{what}(x, y, 0)", **options),
            function(domain, "u", "target", f"{what}(x, y, t)", times=self.times, **options),
            self._at_times("error", "estimate of the relative L2 error of u, as it is stored"),
            self._at_times("work", f"∫(⟨ψf⟩ - ν⟨w²⟩{drag}) since t = 0, the change of the energy"),
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
        force, amplitude, turns = self.force, self.force.amplitude, self.force.wave / self.length
        law = f", A {amplitude.sentence}" if isinstance(amplitude, ScalarLaw) else ""
        size = "A" if isinstance(amplitude, ScalarLaw) else f"{amplitude:g}"
        kappa = "2π" if turns == 1 else f"{2 * np.pi * turns:g}"
        if force.kind == "kolmogorov":
            sentence = f"−κ · {size} cos(κy + {force.phase:g}), κ = {kappa}{law}"
            symmetries = (f"wave-{force.wave}-shift",)
            if not force.phase and self.output == "vorticity":
                symmetries = (*symmetries, f"wave-{force.wave}-reflection")
        else:
            sentence = f"{size} (sin θ + cos θ), θ = {kappa}(x + y) + {force.phase:g}{law}"
            symmetries = ("diagonal-shift",)
        if not amplitude:
            symmetries = ("shift", *symmetries)
        drawn = Drawing("w" if self.output == "vorticity" else "u", "diverging")
        error = f"relative error at most {self.solver.tolerance:g}"
        return Physics(
            symmetries=symmetries,
            sentences={
                "initial": self.initial.sentence,
                "force": sentence if amplitude else "none",
                "solver": error if until is None else f"{error} until t = {until:g}",
            },
            parameters=self.parameter_laws,
            drawing={"a": drawn, "u": drawn},
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
        like = empty((1,), np.complex128, device)
        solver = flow.solver(like, method.dt, method.tolerance, self.seen)
        return self._solution(seed, samples, device, flow, solver)

    @property
    def seen(self) -> Seen | None:
        """The factor of the modes of w, in errors of u."""
        return speed_symbol if self.output == "velocity" else None

    def _solution(
        self, seed: int, samples: range, device: str | None, flow: Flow, solver: Semilinear
    ) -> dict[str, Array]:
        field, torus = _built(self.typical, device)[0], flow.torus  # pyright: ignore
        w0 = field.coefficients(torus, seed, samples, device)
        a = None
        if self.initial.burn_in:
            disc = torus.numbers[0] ** 2 + torus.numbers[1] ** 2 <= self.initial.modes**2
            state = solver.evolved(w0[:, None], self.initial.burn_in)[:, 0]
            a = self._restricted(torus, state * constant(disc.astype(float), state))
            w0 = self._modes(torus, a)
        solution = solver.solve(w0[:, None], self.times, self.certified)
        u = self._restricted(torus, solution.v[:, :, 0])
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
            "a": self._restricted(torus, w0) if a is None else a,
            "u": squeeze_single_time(u),
            "error": squeeze_single_time(with_rounding(solution.error)),
            "work": squeeze_single_time(solution.integrals[:, :, 0]),
            "budget": violation,
            "step": solution.step,
        }

    def _restricted(self, torus: Torus, w: Array) -> Array:
        """The values of w, or of the velocity, at the output points, in float32."""
        stride, xp = self.solver.resolution // self.resolution, array_namespace(w)
        if self.output == "velocity":
            w = Flow(torus, 1.0).velocity(w)
        if self.restriction == "stride":
            values = torus.to_points(w)[..., ::stride, ::stride]
        else:
            values = torus.to_points(w, (self.resolution,) * 2)
        return xp.astype(values, xp.float32)

    def _modes(self, torus: Torus, a: Array) -> Array:
        """The modes of w on the solver's torus, from stored values with wave numbers below n/2."""
        stored, xp = Torus((PeriodicGrid(self.resolution, self.length),) * 2, 1), array_namespace(a)
        values = xp.astype(a, xp.float64)
        v = curl(stored, values) if self.output == "velocity" else stored.to_modes(values)
        return torus.to_modes(stored.to_points(v, torus.points))

    @property
    def burnt_in(self) -> bool:
        return self.initial.burn_in > 0

    @property
    def input_modes(self) -> int:
        return self.initial.modes

    def target_of_interpolant(self, a: np.ndarray) -> np.ndarray:
        _, flow, solver = _built(self, None)  # pyright: ignore[reportArgumentType]: frozen
        if self.burnt_in or self.output == "velocity":
            w0 = self._modes(flow.torus, a)
        else:
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
            velocity=self.output == "velocity",
        )
        evolved = Evolution(
            terms=self._terms,
            degree=2,
            torus=Torus((PeriodicGrid(n, self.length),) * 2, degree=1),
            components=1,
            times=(0.0, *self.times),
            tolerance=solved.tolerance,
            folded=solved.folded,
        )
        field = None if folded or self.burnt_in else self.initial.build()
        if field is not None and solved.velocity:
            field = _SpeedField.of(self.initial, self.length)
        return vorticity_checks(field, n, solved, evolved)

    def _terms(self, torus: Torus) -> tuple[Symbol, Nonlinear]:
        """The terms of the equation for the modes of w, or of w/|k| for velocities."""
        linear, nonlinear = self.flow.on(torus, np.empty(0))
        if self.seen is None:
            return linear, nonlinear
        seen, k = self.seen(torus), np.sqrt(-torus.laplacian)
        return linear, lambda v: seen * nonlinear(k * v)


@dataclass(frozen=True)
class _SpeedField(TorusGaussianField):
    """The field with the modes w/|k|, whose mean square is that of the velocity."""

    length: float = 1.0  # of the torus to which w is stretched

    @classmethod
    def of(cls, initial: TorusGaussian, length: float) -> Self:
        return cls(initial.sigma, initial.tau, initial.alpha, initial.modes, length=length)

    @cached_property
    def mode_stds(self) -> Float[np.ndarray, " K"]:
        k = 2 * np.pi / self.length * np.linalg.norm(self.wave_vectors, axis=1)
        return super().mode_stds / k


# of `Flow`, by keys
_FIELDS = {"viscosity": "viscosity", "force.amplitude": "amplitude", "drag": "drag"}


@lru_cache(maxsize=4)
def _built(problem: Vorticity, device: str | None) -> tuple[TorusGaussianField, Flow, Semilinear]:
    """The field, the equation and the solver of a problem."""
    flow, method = problem.flow, problem.solver
    like = empty((1,), np.complex128, device)
    solver = flow.solver(like, method.dt, method.tolerance, problem.seen)
    return problem.initial.build(), flow, solver


def _violation(flow: Flow, before: Array, after: Array, integrals: Array) -> Array:
    """The largest relative violation of the budgets of energy and enstrophy."""
    xp = array_namespace(after)
    start, now = flow.energies(before), flow.energies(after)
    return xp.max(xp.abs(now - start - integrals) / (now + start), axis=(1, 2))
