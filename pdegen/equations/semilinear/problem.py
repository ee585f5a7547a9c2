"""Semilinear equations on the periodic interval and square, declared by their terms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from pdegen.checks.check import StoreChecks
from pdegen.domains import Box, PeriodicGrid
from pdegen.equations.base import Problem, check_size, with_rounding
from pdegen.equations.latex import Named, with_value
from pdegen.equations.latex import number as latex_number
from pdegen.equations.registry import equation
from pdegen.equations.semilinear.checks import SemilinearClaims, solved_checks
from pdegen.equations.semilinear.coefficients import Linear, Nonlinear
from pdegen.equations.semilinear.formulas import latex, plain
from pdegen.equations.semilinear.initial import (
    Bounded,
    Gaussian,
    spread,
)
from pdegen.equations.semilinear.solver import Numbers, Terms, family_solver
from pdegen.equations.times import TimesFromStart, check_divides, check_steps
from pdegen.numerics.device import Array
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.spectral import Torus
from pdegen.numerics.transforms import EIGHT, provenance
from pdegen.sampling.gaussian import PeriodicGaussianField
from pdegen.sampling.scalars import number_of, with_numbers
from pdegen.schema import Count, Name, Positive, Size, Strict, Tolerance, brief, near
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, scalar, times

_VALUES = 2**22  # float64 values in memory for a block of samples, beside the shard itself
_SPEED_MODES = 256  # lowest modes, which give nearly all of the speed of initial values
# largest numbers of arrays in device memory for a component of a sample
_ARRAYS, _ARRAYS_PER_TIME = 64, 6


class Discretization(Strict):
    """Resolution and tolerance of the solver, and the largest step for nonlinear equations.

    Args:
        resolution: Points of the solver along each axis.
        dt: Largest time step; required for nonlinear equations. [time]
        tolerance: Largest accepted estimate of the relative error. [1]
    """

    resolution: Count
    dt: Positive | None = None
    tolerance: Tolerance = 1e-6


@equation
class SemilinearProblem(Problem):
    """uₜ = L u + N(u) on the circle or the square torus: the map u(0) -> u(times).

    Args:
        dimension: Number of space dimensions.
        length: Length of the domain along each axis. [length]
        components: Names of the components of u.
        times: Times of the output. [time]
        resolution: Points of the output along each axis.
        linear, nonlinear: The terms of the equation.
        initial: Distribution of the initial values.
        solver: Resolution, time step and tolerance of the solver.
    """

    supports_device: ClassVar[bool] = True
    algorithm: ClassVar[int] = 3  # 3: the error includes rounding, that of a and to float32

    equation: Literal["semilinear"]
    dimension: Literal[1, 2] = 1
    length: Size = 1.0
    components: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8, strict=False)] = (
        "u",
    )
    times: TimesFromStart
    resolution: Count
    linear: Linear = Linear()
    nonlinear: Nonlinear = Nonlinear()
    initial: Annotated[Gaussian | Bounded, Field(discriminator="law")]
    solver: Discretization

    @property
    def terms(self) -> Terms:
        """The coefficients of the equation; for a law, its median.

        Raises ValueError if a list has the wrong length.
        """
        if self.laws:
            return self.typical.terms
        count = len(self.components)
        linear, nonlinear = self.linear, self.nonlinear

        def numbers(table: Linear | Nonlinear, name: str) -> Numbers:
            section = type(table).__name__.lower()
            return spread(getattr(table, name), count, f"{section}.{name}")

        terms = Terms(
            axes=self.dimension,
            advection=self._advection(),
            diffusion=numbers(linear, "diffusion"),
            dispersion=numbers(linear, "dispersion"),
            hyper_diffusion=numbers(linear, "hyper_diffusion"),
            drag=numbers(linear, "drag"),
            convection=numbers(nonlinear, "convection"),
            conservative_convection=numbers(nonlinear, "conservative_convection"),
            gradient_norm=numbers(nonlinear, "gradient_norm"),
            reaction=tuple(self._monomials()),
        )
        if terms.velocity and any(
            len(set(b)) > 1 for b in (terms.convection, terms.conservative_convection)
        ):
            raise ValueError("nonlinear: the components of a velocity have one convection")
        return terms

    def _advection(self) -> tuple[Numbers, ...]:
        given = self.linear.advection
        if isinstance(given, tuple) and any(isinstance(speed, tuple) for speed in given):
            rows = list(given)
        else:
            rows = [given] * len(self.components)
        if len(rows) != len(self.components):
            raise ValueError(
                f"linear.advection has {len(rows)} lists, expected {len(self.components)}"
            )
        return tuple(spread(row, self.dimension, "linear.advection") for row in rows)  # pyright: ignore

    def _monomials(self) -> Iterator[tuple[int, float, tuple[int, ...]]]:
        names = list(self.components)
        for index, monomial in enumerate(self.nonlinear.reaction):
            key, name, powers = f"nonlinear.reaction.{index}", monomial.of, monomial.powers
            if name not in names:
                raise ValueError(f"{key}.of: unknown {brief(name)}: {near(name, names)}")
            if len(powers) != len(names):
                raise ValueError(
                    f"{key}.powers has {len(powers)} numbers, expected one for each of "
                    f"{', '.join(names)}"
                )
            yield names.index(name), number_of(monomial.coefficient), powers

    @property
    def torus(self) -> Torus:
        """The torus of the solver, with its modes."""
        return Torus(self._grids(self.solver.resolution), self.terms.degree)

    def _grids(self, n: int) -> tuple[PeriodicGrid, ...]:
        return (PeriodicGrid(n, self.length),) * self.dimension

    @model_validator(mode="after")
    def _fits(self) -> Self:
        terms, solving, modes = self.terms, self.solver.resolution, self.initial.modes
        if len(set(self.components)) < len(self.components):
            raise ValueError(f"components has a name twice: {', '.join(self.components)}")
        if not plain(terms, self.components):
            raise ValueError("linear, nonlinear: declare a term of the equation, there is none")
        for name, n in (("resolution", self.resolution), ("solver.resolution", solving)):
            if n < 4 or n % 2:
                raise ValueError(f"{name} must be even and >= 4, got {n}")
        check_divides(self.resolution, solving)
        if self.resolution < 2 * modes + 2:
            raise ValueError(
                f"initial.modes = {modes} need resolution >= {2 * modes + 2}, got {self.resolution}"
            )
        least = (terms.degree + 1) * modes + 1
        if solving < least:
            raise ValueError(
                f"products of {terms.degree} factors of initial.modes = {modes} need "
                f"solver.resolution >= {least + least % 2}, got {solving}"
            )
        self.initial.check(len(self.components))
        self.initial.field(self.dimension)  # raises for an exponent that is too small
        self._check_step(terms)
        return self

    def _check_step(self, terms: Terms) -> None:
        dt = self.solver.dt
        if terms.diagonal:
            if dt is not None:
                raise ValueError("solver.dt: linear equations are solved without steps: leave it")
            k = 2 * math.pi * self.initial.modes / self.length
            speed, third = np.abs(terms.advection).sum(axis=1).max(), np.abs(terms.dispersion).max()
            rate = speed * k + third * self.dimension * k**3  # a bound of |Im L|
            turned = np.finfo(float).eps * rate * self.times[-1]
            if turned > self.solver.tolerance:
                raise ValueError(
                    f"times: until {self.times[-1]:g} rounding turns the fastest wave by "
                    f"{turned:.2g}, more than solver.tolerance = {self.solver.tolerance:g}"
                )
            return
        if dt is None:
            raise ValueError("solver.dt is missing: it is the largest step in time")
        for name, diffusion, fourth in zip(
            self.components, terms.diffusion, terms.hyper_diffusion, strict=True
        ):
            if fourth < 0 or (fourth == 0 and diffusion < 0):
                lacking = "hyper_diffusion" if fourth < 0 else "diffusion"
                raise ValueError(
                    f"linear.{lacking} of {name} must be >= 0"
                    f"{'' if fourth < 0 else ', or hyper_diffusion > 0'}: the shorter a wave, the "
                    "faster it grows, and no grid and no step resolve that"
                )
            if diffusion < 0:  # waves with k² < -diffusion/hyper_diffusion grow
                k = math.ceil(self.length / (2 * math.pi) * math.sqrt(-diffusion / fourth))
                least = (terms.degree + 1) * k + 1
                if self.solver.resolution < least:
                    raise ValueError(
                        f"waves of {name} up to the mode {k} grow by diffusion < 0: they need "
                        f"solver.resolution >= {least + least % 2}, got {self.solver.resolution}"
                    )
        check_steps(dt, self.times)
        speed, slope = self._speeds()
        largest = terms.largest_step(self.torus, speed, slope)
        if dt > largest:
            raise ValueError(
                f"solver.dt = {dt:g} is unstable for u of size {speed:.3g} on "
                f"{self.solver.resolution} points: use at most {largest:.3g}"
            )

    def _speeds(self) -> tuple[float, float]:
        """A typical value of |u| (`Initial.speed`), and the root mean square of ∂g/∂x."""
        field = self.initial.field(self.dimension)
        field = replace(field, modes=min(field.modes, _SPEED_MODES))
        if isinstance(field, PeriodicGaussianField):
            square = np.arange(1, field.modes + 1) ** 2
        else:
            square = np.sum(field.wave_vectors**2, axis=1)
        energy = float(np.sum((2 * np.pi / self.length) ** 2 * square * field.mode_stds**2))
        speed = self.initial.speed(len(self.components), math.sqrt(field.pointwise_variance))
        return speed, math.sqrt(energy / self.dimension)

    @property
    def formula(self) -> str:
        where = "circle of length" if self.dimension == 1 else "square torus of side"
        laws = "".join(f", {name} {law.sentence}" for name, law in self.laws_by_variable.items())
        equations = plain(self._named.terms, self.components)
        return f"{equations}, x on the {where} {self.length:.6g}{laws}"

    @property
    def _named(self) -> Self:
        """The problem for formulas, which show laws by names."""
        return with_numbers(self, {key: Named(name) for key, name in self.parameter_names.items()})

    @property
    def latex(self) -> str:
        where = ("circle of length", "square torus of side")[self.dimension - 1]
        equations = latex(self._named.terms, self.components)
        named = self.laws_by_variable.items()
        laws = "".join(with_value(latex_number(Named(name)), law) for name, law in named)
        return rf"{equations},\quad x \text{{ on the {where} }} {latex_number(self.length)}{laws}"

    @property
    def domain(self) -> Box:
        return Box(self._grids(self.resolution))

    def variables(self) -> tuple[Variable, ...]:
        domain = self.domain
        channels = self.components if len(self.components) > 1 else ()
        steps = "largest time step: solver.dt, halved until the error met the tolerance"
        return (
            function(domain, "a", "input", "initial value u(x, 0)", channels=channels),
            function(
                domain, "u", "target", "solution u(x, t)", times=self.times, channels=channels
            ),
            scalar("error", "quality", "estimate of the relative L2 error of u, as it is stored"),
            *(() if self.terms.diagonal else (scalar("step", "quality", steps),)),
            *self.parameters(),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        symmetries = ("shift",)
        if self.terms.odd and self.dimension == 1 and self.initial.symmetric:
            symmetries = ("shift", "odd-reflection")
        return Physics(
            symmetries=symmetries,
            sentences={"initial": self.initial.sentence},
            parameters=self.parameter_laws,
            drawing={"a": Drawing("a"), "u": Drawing("u")},
        )

    @property
    def streams_per_sample(self) -> int:
        return self.initial.fields(len(self.components))

    @property
    def floats_per_sample(self) -> int:
        points = len(self.components) * self.solver.resolution**self.dimension
        return (_ARRAYS + _ARRAYS_PER_TIME * len(self.times)) * points

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        """The values of these samples at the points of the output.

        Initial values and solutions are computed on the solver's grid, which resolves them.
        """
        torus, solver = _built(self, device)  # pyright: ignore[reportArgumentType]: frozen
        return self._solution(seed, samples, device, torus, solver)

    def solve_family(
        self, seed: int, samples: range, device: str | None = None
    ) -> dict[str, Array]:
        """Samples whose linear coefficients differ are solved together, others one by one."""
        if not all(key.startswith("linear.") for key in self.laws):
            return super().solve_family(seed, samples, device)
        terms = [self.of_sample(seed, sample).terms for sample in samples]
        solver = family_solver(terms, self.torus, self._dt, self.solver.tolerance, device)
        return self._solution(seed, samples, device, self.torus, solver)

    @property
    def _dt(self) -> float:
        """The largest step; infinite without steps."""
        return math.inf if self.solver.dt is None else self.solver.dt

    def _solution(
        self, seed: int, samples: range, device: str | None, torus: Torus, solver: Semilinear
    ) -> dict[str, Array]:
        stride, count = self.solver.resolution // self.resolution, len(self.components)
        every = (..., *[slice(None, None, stride)] * self.dimension)
        u0 = self.initial.values(torus, count, seed, samples, device)
        finer = None
        if isinstance(self.initial, Bounded):  # not a finite Fourier sum
            on_finer = self.initial.values(torus.finer, count, seed, samples, device)
            finer = torus.finer.to_modes(on_finer)
        solution = solver.solve(torus.to_modes(u0), list(self.times), finer=finer)
        xp = array_namespace(u0)
        values = {"a": u0, "u": torus.to_points(solution.v)}
        check_size(values["u"])
        shapes = {v.name: (len(samples), *v.shape) for v in self.variables()}  # without axes of 1
        store = {
            name: xp.reshape(xp.astype(array[every], xp.float32), shapes[name])
            for name, array in values.items()
        }
        store["error"] = with_rounding(xp.max(solution.error, axis=1))
        return store if self.terms.diagonal else store | {"step": solution.step}

    @property
    def largest_batch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return EIGHT * max(1, _VALUES // (EIGHT * self.floats_per_sample))

    @property
    def compiled(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not self.terms.diagonal

    @property
    def transforms(self) -> dict[str, str]:
        torus = self.torus
        return {} if self.terms.diagonal else provenance(torus.points, torus.finer.points)

    def checks(self) -> StoreChecks:
        grids, count = self._grids(self.resolution), len(self.components)
        evolution = SemilinearClaims(
            terms=self.terms,
            bounds=self.initial.bounds(count),
            solving=self.torus,
            output=Torus(grids, 1),
            times=(0.0, *self.times),
            tolerance=self.solver.tolerance,
        )
        solver = self.solver
        solved = solved_checks(solver.dt, solver.tolerance)
        return StoreChecks((*self.initial.checks(grids, count), *solved, *evolution.checks()))


@lru_cache(maxsize=4)
def _built(problem: SemilinearProblem, device: str | None) -> tuple[Torus, Semilinear]:
    """The torus and the solver of a problem.

    They are cached, because their set-up takes as long as a small batch on a device.
    """
    torus, terms, solver = problem.torus, problem.terms, problem.solver
    return torus, terms.solver(torus, problem._dt, solver.tolerance, device)  # pyright: ignore
