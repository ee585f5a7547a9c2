"""Semilinear equations on the circle, the square and the cube, declared by their terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import BeforeValidator, Field, model_validator

from pdegen.checks.check import StoreChecks
from pdegen.domains import Box, CellGrid, PeriodicGrid
from pdegen.equations.base import (
    Problem,
    TimesFromStart,
    check_divides,
    check_size,
    check_steps,
    equation,
    with_rounding,
)
from pdegen.equations.latex import Named, with_value
from pdegen.equations.latex import number as latex_number
from pdegen.equations.latex import number as number_formulas
from pdegen.equations.semilinear.checks import SemilinearClaims, solved_checks
from pdegen.equations.semilinear.initial import (
    Bounded,
    Gaussian,
    Waves,
    listed,
    number,
    spread,
)
from pdegen.equations.semilinear.solver import Numbers, Terms, integrator, projection
from pdegen.numerics.device import Array, constant
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.spectral import Torus
from pdegen.numerics.transforms import EIGHT, provenance
from pdegen.sampling.gaussian import PeriodicGaussianField, TorusGaussianField
from pdegen.sampling.scalars import ScalarLaw, number_of, number_or_law, with_numbers
from pdegen.schema import Count, Extended, Name, Positive, Size, Strict, Tolerance, brief, near
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, scalar, times

if TYPE_CHECKING:
    from pdegen.equations.semilinear.solver import Powers, Terms


# The coefficients of semilinear equations, as recipes declare them.


def _coefficient(value: object) -> float | ScalarLaw:
    """A number between -1e20 and 1e20, or a law."""  # `pdegen keys` prints this line
    return number_or_law(value, number)


def _coefficients(value: object) -> Coefficients:
    """A number, a law, or a list with one of these per component."""
    several = listed(value)
    return _coefficient(value) if several is None else tuple(map(_coefficient, several))


def _speeds(value: object) -> object:
    """A number or a law, a list with one per axis, or a list of these per component."""
    several = listed(value)
    if several is not None and any(listed(speed) is not None for speed in several):
        return tuple(map(_coefficients, several))
    return _coefficients(value)


Coefficients = float | ScalarLaw | tuple[float | ScalarLaw, ...]
EachOrLaw = Annotated[Coefficients, BeforeValidator(_coefficients)]
Speeds = Annotated[float | ScalarLaw | tuple[Coefficients, ...], BeforeValidator(_speeds)]


class Linear(Strict):
    """Coefficients of the linear terms; a single number or law applies to all components.

    Args:
        advection: Velocity c in the term c·∇u on the left side, one for each axis. [length/time]
        diffusion: Coefficient ν in the term ν Δu on the right side. [length²/time]
        dispersion: Coefficient δ in the term δ Σ ∂_j³u on the left side. [length³/time]
        hyper_diffusion: Coefficient μ in the term μ Δ²u on the left side. [length⁴/time]
        drag: Rate λ in the term λ u on the left side. [1/time]
    """

    advection: Speeds = 0.0
    diffusion: EachOrLaw = 0.0
    dispersion: EachOrLaw = 0.0
    hyper_diffusion: EachOrLaw = 0.0
    drag: EachOrLaw = 0.0


class Monomial(Extended):
    """The term coefficient u^p v^q ... in the equation of the component `of`, or its Laplacian.

    Args:
        of: Name of the component whose equation has the term.
        coefficient: Factor of the term, on the right side. [u^(1 − p − q ...)/time]
        powers: Power of each component.
        laplacian: Whether the term is the Laplacian of the monomial, of degree 2 or more.
    """

    later: ClassVar = ("laplacian",)

    of: Name
    coefficient: Annotated[float | ScalarLaw, BeforeValidator(_coefficient)]
    powers: Annotated[tuple[Annotated[int, Field(ge=0, le=9)], ...], Field(strict=False)]
    laplacian: bool = False


class Nonlinear(Extended):
    """Coefficients of the nonlinear terms, and the reaction.

    Args:
        convection: Factor b in the term b (u·∇)u on the left side. [length/(time · u)]
        conservative_convection: Factor b in the term (b/2) ∇·(u u) on the left side.
            [length/(time · u)]
        gradient_norm: Factor g in the term (g/2) |∇u|² on the left side. [length²/(time · u)]
        reaction: Monomials of the components, a list of tables.
        projection: Whether a pressure keeps the divergence of the velocity at 0 (incompressible
            flow). The initial velocity is the projection of the Gaussian field.
    """

    later: ClassVar = ("projection",)

    convection: EachOrLaw = 0.0
    conservative_convection: EachOrLaw = 0.0
    gradient_norm: EachOrLaw = 0.0
    reaction: Annotated[tuple[Monomial, ...], Field(strict=False)] = ()
    projection: bool = False


# Writes the equations of `Terms` as one line of text, or as LaTeX.


class Notation(NamedTuple):
    """Templates of the terms of an equation.

    {u} is one component, {all} the list of components, {x} an axis. {gradient}, {squares} and
    {third} are sums over the axes: of first derivatives, of those of {u}^2, and of third ones.
    """

    in_time: str  # the derivative in time
    along: str  # the derivative along an axis
    along_square: str  # the derivative of the square along an axis
    third: str  # the third derivative along an axis
    diffusion: str  # the Laplacian
    hyper_diffusion: str  # the square of the Laplacian
    dispersion: str
    convection: str
    flux: str  # convection in conservative form
    slope: str  # |∇u|²/2
    power: str  # a component to the power {p}
    source: str  # the source of one of several components
    size: Callable[[float], str]  # a coefficient
    separator: str  # between the equations of two components


_PLAIN = Notation(
    "{u}_t", "{u}_{x}", "({u}^2)_{x}", "{u}_{x}{x}{x}", "{u}_xx", "{u}_xxxx", "{third}",
    "{u} {gradient}", "{squares}/2", "({u}_x)^2/2", "{u}^{p}", "f_{u}",
    "{:.6g}".format, "; ",
)  # fmt: skip
_PLAIN_SPACE = _PLAIN._replace(
    diffusion="laplace {u}",
    hyper_diffusion="laplace^2 {u}",
    dispersion="({third})",
    convection="{u} ({gradient})",
    flux="({squares})/2",
    slope="|grad {u}|^2/2",
)
_PLAIN_VELOCITY = _PLAIN_SPACE._replace(convection="({all}).grad {u}", flux="div(({all}) {u})/2")
_LATEX = Notation(
    "{u}_t", "{u}_{x}", "({u}^2)_{x}", "{u}_{{{x}{x}{x}}}", "{u}_{{xx}}", "{u}_{{xxxx}}", "{third}",
    "{u} {gradient}", r"\tfrac{{1}}{{2}} {squares}", r"\tfrac{{1}}{{2}} {u}_x^2", "{u}^{{{p}}}",
    "f_{{{u}}}", number_formulas, r",\quad ",
)  # fmt: skip
_LATEX_SPACE = _LATEX._replace(
    diffusion=r"\Delta {u}",
    hyper_diffusion=r"\Delta^2 {u}",
    dispersion="({third})",
    convection="{u} ({gradient})",
    flux=r"\tfrac{{1}}{{2}} ({squares})",
    slope=r"\tfrac{{1}}{{2}} |\nabla {u}|^2",
)
_LATEX_VELOCITY = _LATEX_SPACE._replace(
    convection=r"({all}) \cdot \nabla {u}", flux=r"\tfrac{{1}}{{2}} \nabla \cdot (({all}) {u})"
)


def plain(terms: Terms, names: Sequence[str]) -> str:
    """The equations of all components in one line of text; the text is empty if there are no terms.

    >>> from pdegen.equations.semilinear.solver import Terms
    >>> zero = (0.0,)
    >>> terms = Terms(1, (zero,), zero, (1.0,), zero, zero, (6.0,), zero, zero, ())
    >>> plain(terms, ["u"])
    'u_t = -u_xxx - 6 u u_x'
    """
    line = _PLAIN if terms.axes == 1 else _PLAIN_SPACE
    return _written(terms, names, _PLAIN_VELOCITY if terms.velocity else line)


def latex(terms: Terms, names: Sequence[str]) -> str:
    r"""The equations of all components in LaTeX; names of several letters are set upright.

    >>> from pdegen.equations.semilinear.solver import Terms
    >>> zero = (0.0,)
    >>> terms = Terms(1, (zero,), (1e-5,), (1.0,), zero, zero, (6.0,), zero, zero, ())
    >>> latex(terms, ["u"])
    'u_t = 1 \\cdot 10^{-5} u_{xx} - u_{xxx} - 6 u u_x'
    """
    escaped = [name.replace("_", r"\_") for name in names]
    symbols = [name if len(name) == 1 else rf"\mathrm{{{name}}}" for name in escaped]
    line = _LATEX if terms.axes == 1 else _LATEX_SPACE
    return _written(terms, symbols, _LATEX_VELOCITY if terms.velocity else line)


def _written(terms: Terms, names: Sequence[str], by: Notation) -> str:
    right = [_right(terms, names, by, k) for k in range(terms.components)]
    left = [by.in_time.format(u=u) for u in names]
    equations = [f"{lhs} = {rhs or '0'}" for lhs, rhs in zip(left, right, strict=True)]
    if terms.projection:
        derivatives = (by.along.format(u=u, x=x) for u, x in zip(names, "xyz", strict=False))
        equations.append(f"{' + '.join(derivatives)} = 0")
    return by.separator.join(equations) if any(right) else ""


def _right(terms: Terms, names: Sequence[str], by: Notation, k: int) -> str:
    """The right side of the equation of component k."""
    u, axes = names[k], "xyz"[: terms.axes]
    derivatives = {
        name: " + ".join(template.format(u=u, x=x) for x in axes)
        for name, template in (
            ("gradient", by.along), ("squares", by.along_square), ("third", by.third)
        )
    }  # fmt: skip
    coefficients = [
        (terms.diffusion[k], by.diffusion),
        (-terms.dispersion[k], by.dispersion),
        (-terms.hyper_diffusion[k], by.hyper_diffusion),
        (-terms.drag[k], "{u}"),
        (-terms.convection[k], by.convection),
        (-terms.conservative_convection[k], by.flux),
        (-terms.gradient_norm[k], by.slope),
    ]
    return _sum(
        [
            *(
                (-c, by.along.format(u=u, x=x))
                for c, x in zip(terms.advection[k], axes, strict=True)
            ),
            *(
                (c, text.format(u=u, all=", ".join(names), **derivatives))
                for c, text in coefficients
            ),
            *((c, _monomial(names, powers, by)) for of, c, powers in terms.reaction if of == k),
            *(
                (c, by.diffusion.format(u=f"({_monomial(names, powers, by)})"))
                for of, c, powers in terms.laplacians
                if of == k
            ),
            *([(-1.0, by.along.format(u="p", x=axes[k]))] if terms.projection else []),
            *([(1.0, "f" if len(names) == 1 else by.source.format(u=u))] if terms.forced else []),
        ],
        by,
    )


def _monomial(names: Sequence[str], powers: Powers, by: Notation) -> str:
    pairs = zip(names, powers, strict=True)
    return " ".join(by.power.format(u=u, p=p) if p > 1 else u for u, p in pairs if p)


def _sum(terms: Sequence[tuple[float, str]], by: Notation) -> str:
    """The sum of terms with their signs; terms with the coefficient 0 are left out."""
    text = ""
    for coefficient, factor in terms:
        if coefficient:
            sign = ("-" if coefficient < 0 else "+") if text else ("-" if coefficient < 0 else "")
            size = by.size(abs(coefficient)) if abs(coefficient) != 1 or not factor else ""
            text += f" {sign} " if text else sign
            text += " ".join(part for part in (size, factor) if part)
    return text


_VALUES = 2**22  # float64 values in memory for a block of samples, beside the shard itself
_SPEED_MODES = 256  # lowest modes, which give nearly all of the speed of initial values
# largest numbers of arrays in memory for a component of a sample, and for each time, by dimension
_ARRAYS = {1: (64, 6), 2: (64, 6), 3: (100, 2)}


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
class SemilinearProblem(Extended, Problem):
    """uₜ = L u + N(u) + f on the circle, the square or the cubic torus: the map u(0) -> u(times).

    With a source, the map is (u(0), f) -> u(times). With no-flow walls, the domain is a square, and
    the torus has its even extension.

    Args:
        dimension: Number of space dimensions.
        walls: "none" for the torus, or "no-flow" for a square with ∂u/∂n = 0 on the boundary.
        length: Length of the domain along each axis. [length]
        components: Names of the components of u.
        times: Times of the output. [time]
        resolution: Points of the output along each axis.
        linear, nonlinear: The terms of the equation.
        initial: Distribution of the initial values.
        source: Distribution of f, which is constant in time.
        solver: Resolution, time step and tolerance of the solver.
    """

    later: ClassVar = ("walls", "source")
    supports_device: ClassVar[bool] = True
    algorithm: ClassVar[int] = 3  # 3: the error includes rounding, that of a and to float32

    equation: Literal["semilinear"]
    dimension: Literal[1, 2, 3] = 1
    length: Size = 1.0
    walls: Literal["none", "no-flow"] = "none"
    components: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8, strict=False)] = (
        "u",
    )
    times: TimesFromStart
    resolution: Count
    linear: Linear = Linear()
    nonlinear: Nonlinear = Nonlinear()
    initial: Annotated[Gaussian | Bounded | Waves, Field(discriminator="law")]
    source: Gaussian | None = None
    solver: Discretization

    @property
    def terms(self) -> Terms:
        """The coefficients of the equation; for a law, its median."""
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
            reaction=tuple(self._monomials(laplacian=False)),
            laplacians=tuple(self._monomials(laplacian=True)),
            projection=nonlinear.projection,
            forced=self.source is not None,
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

    def _monomials(self, laplacian: bool) -> Iterator[tuple[int, float, tuple[int, ...]]]:
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
            if monomial.laplacian and sum(powers) < 2:
                raise ValueError(
                    f"{key}: the Laplacian is that of a monomial of degree 2 or more, got "
                    f"{list(powers)}; linear.diffusion is the Laplacian of a component"
                )
            if monomial.laplacian == laplacian:
                yield names.index(name), number_of(monomial.coefficient), powers

    @property
    def torus(self) -> Torus:
        """The torus of the solver, with its modes."""
        return Torus(self._grids(self.solver.resolution), self.terms.degree)

    def _grids(self, n: int) -> tuple[PeriodicGrid, ...]:
        """The torus with the points of n cells or points along each axis of the domain."""
        return (PeriodicGrid(self._sides * n, self._sides * self.length),) * self.dimension

    @property
    def _sides(self) -> int:
        """Sides of the domain in one of the torus."""
        return 2 if self._walled else 1

    @property
    def _walled(self) -> bool:
        return self.walls == "no-flow"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        terms, solving = self.terms, self.solver.resolution
        modes, of = self.initial.modes, "initial"
        if self.source is not None and self.source.modes > modes:
            modes, of = self.source.modes, "source"
        if len(set(self.components)) < len(self.components):
            raise ValueError(f"components has a name twice: {', '.join(self.components)}")
        if terms.projection:
            self._check_projection(terms)
        if not plain(terms, self.components):
            raise ValueError("linear, nonlinear: declare a term of the equation, there is none")
        for name, n in (("resolution", self.resolution), ("solver.resolution", solving)):
            if n < 4 or n % 2:
                raise ValueError(f"{name} must be even and >= 4, got {n}")
        check_divides(self.resolution, solving)
        if self._walled:
            self._check_walls(terms)
        if self._sides * self.resolution < 2 * modes + 2:
            raise ValueError(
                f"{of}.modes = {modes} need resolution >= {(2 * modes + 2) // self._sides}, got "
                f"{self.resolution}"
            )
        least = math.ceil(((terms.degree + 1) * modes + 1) / self._sides)
        if solving < least:
            raise ValueError(
                f"products of {terms.degree} factors of {of}.modes = {modes} need "
                f"solver.resolution >= {least + least % 2}, got {solving}"
            )
        self.initial.check(len(self.components))
        for law in (self.initial, self.source):
            if law is not None:  # raises for an exponent that is too small
                law.field(self.dimension, self._walled)
        if self.source is not None:
            spread(self.source.mean, len(self.components), "source.mean")
        self._check_step(terms)
        return self

    def _check_walls(self, terms: Terms) -> None:
        odd = np.any(terms.advection) or any(terms.dispersion) or terms.transported
        if self.dimension != 2 or odd:
            raise ValueError(
                'walls = "no-flow" needs dimension 2, and terms that reflections do not change: no '
                "advection, dispersion or convection"
            )
        if not self.solver.resolution // self.resolution % 2:
            raise ValueError(
                f"with walls, solver.resolution must be an odd multiple of resolution = "
                f"{self.resolution}, such that centres of cells are centres, got "
                f"{self.solver.resolution}"
            )

    def _check_projection(self, terms: Terms) -> None:
        linear = (terms.advection, terms.diffusion, terms.dispersion, terms.hyper_diffusion)
        others = (terms.conservative_convection, terms.gradient_norm, terms.reaction)
        needs = {
            "one component for each of two or three axes": terms.velocity,
            "the same linear terms in all components": all(
                len(set(numbers)) == 1 for numbers in (*linear, terms.drag)
            ),
            "nonlinear.convection alone": any(terms.convection)
            and not (any(map(np.any, others)) or terms.laplacians),
            'initial.law = "gaussian"': isinstance(self.initial, Gaussian),
            "no source": not terms.forced,
        }
        for need, is_met in needs.items():
            if not is_met:
                raise ValueError(f"nonlinear.projection needs {need}")

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
        if isinstance(self.initial, Waves):
            return self.initial.typical(self.length)
        field = self.initial.field(self.dimension, self._walled)
        field = replace(field, modes=min(field.modes, _SPEED_MODES))
        if isinstance(field, PeriodicGaussianField):
            square = np.arange(1, field.modes + 1) ** 2
        elif isinstance(field, TorusGaussianField):
            square = np.sum(field.wave_vectors**2, axis=1)
        else:
            square = np.sum(np.indices(field.mode_stds.shape) ** 2, axis=0) / 4
        energy = float(np.sum((2 * np.pi / self.length) ** 2 * square * field.mode_stds**2))
        variance = float(np.sum(field.mode_stds**2))
        speed = self.initial.speed(len(self.components), math.sqrt(variance))
        return speed, math.sqrt(energy / self.dimension)

    @property
    def formula(self) -> str:
        laws = "".join(f", {name} {law.sentence}" for name, law in self.laws_by_variable.items())
        equations = plain(self._named.terms, self.components)
        return f"{equations}, x on the {self._where} {self.length:.6g}{laws}"

    @property
    def _where(self) -> str:
        if self._walled:
            return "square with no-flow walls of side"
        return ("circle of length", "square torus of side", "cubic torus of side")[
            self.dimension - 1
        ]

    @property
    def _named(self) -> Self:
        """The problem for formulas, which show laws by names."""
        return with_numbers(self, {key: Named(name) for key, name in self.parameter_names.items()})

    @property
    def latex(self) -> str:
        equations = latex(self._named.terms, self.components)
        named = self.laws_by_variable.items()
        laws = "".join(with_value(latex_number(Named(name)), law) for name, law in named)
        where = rf"x \text{{ on the {self._where} }} {latex_number(self.length)}"
        return rf"{equations},\quad {where}{laws}"

    @property
    def domain(self) -> Box:
        if self._walled:
            return Box((CellGrid(self.resolution, self.length),) * self.dimension)
        return Box(self._grids(self.resolution))

    def variables(self) -> tuple[Variable, ...]:
        domain = self.domain
        channels = self.components if len(self.components) > 1 else ()
        steps = "largest time step: solver.dt, halved until the error met the tolerance"
        source = function(domain, "f", "input", "source f(x)", channels=channels)
        return (
            function(domain, "a", "input", "initial value u(x, 0)", channels=channels),
            *(() if self.source is None else (source,)),
            function(
                domain, "u", "target", "solution u(x, t)", times=self.times, channels=channels
            ),
            scalar("error", "quality", "estimate of the relative L2 error of u, as it is stored"),
            *(() if self.terms.diagonal else (scalar("step", "quality", steps),)),
            *(self.initial.variables() if isinstance(self.initial, Waves) else ()),
            *self.parameters(),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(self.times),)

    def physics(self) -> Physics:
        laws = {
            key: law
            for key, law in (("initial", self.initial), ("source", self.source))
            if law is not None
        }
        symmetries = ("square",) if self._walled else ("shift",)
        odd = self.terms.odd and all(law.symmetric for law in laws.values())
        if odd and not self._walled:
            symmetries = ("shift", "odd-reflection")
        drawn = ("a", "u") if self.source is None else ("a", "f", "u")
        return Physics(
            symmetries=symmetries,
            sentences={key: law.sentence(self._walled) for key, law in laws.items()},
            parameters=self.parameter_laws,
            drawing={name: Drawing(name) for name in drawn},
        )

    @property
    def streams_per_sample(self) -> int:
        count = len(self.components)
        return self.initial.fields(count) + (0 if self.source is None else count)

    @property
    def floats_per_sample(self) -> int:
        points = len(self.components) * math.prod(self.torus.points)
        arrays, for_each_time = _ARRAYS[self.dimension]
        return (arrays + for_each_time * len(self.times)) * points

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        """The values of these samples at the points of the output.

        Initial values and solutions are computed on the solver's grid, which resolves them.
        """
        return self._solution(seed, samples, device, [])

    def solve_family(
        self, seed: int, samples: range, device: str | None = None
    ) -> dict[str, Array]:
        """Samples whose linear coefficients differ are solved together, others one by one."""
        if not all(key.startswith("linear.") for key in self.laws):
            return super().solve_family(seed, samples, device)
        terms = [self.of_sample(seed, sample).terms for sample in samples]
        return self._solution(seed, samples, device, terms)

    @property
    def _dt(self) -> float:
        """The largest step; infinite without steps."""
        return math.inf if self.solver.dt is None else self.solver.dt

    def _solution(
        self, seed: int, samples: range, device: str | None, terms: Sequence[Terms]
    ) -> dict[str, Array]:
        """The values of samples; `terms` are those of each sample if they differ."""
        torus, solver = _built(self, device)  # pyright: ignore[reportArgumentType]: frozen
        stride, count = self.solver.resolution // self.resolution, len(self.components)
        inner = slice((stride - 1) // 2 if self._walled else 0, self.solver.resolution, stride)
        every = (..., *[inner] * self.dimension)
        of_law = (count, seed, samples, device, self._walled)
        u0 = self.initial.values(torus, *of_law)
        v0, finer = torus.to_modes(u0), None
        if self.nonlinear.projection:
            v0 = array_namespace(v0).sum(constant(projection(torus), v0) * v0[:, None], axis=2)
            u0 = torus.to_points(v0)
        if not isinstance(self.initial, Gaussian):  # not a finite Fourier sum
            on_finer = self.initial.values(torus.finer, *of_law)
            finer = torus.finer.to_modes(on_finer)
        values = {"a": u0}
        if self.source is not None:
            values["f"] = self.source.values(torus, *of_law, self.initial.fields(count))
        if terms or "f" in values:
            f = torus.to_modes(values["f"]) if "f" in values else None
            common = terms or [self.terms]
            solver = integrator(common, torus, self._dt, self.solver.tolerance, device, f)
        solution = solver.solve(v0, list(self.times), finer=finer)
        xp = array_namespace(u0)
        values["u"] = torus.to_points(solution.v)
        check_size(values["u"])
        shapes = {v.name: (len(samples), *v.shape) for v in self.variables()}  # without axes of 1
        store = {
            name: xp.reshape(xp.astype(array[every], xp.float32), shapes[name])
            for name, array in values.items()
        }
        store["error"] = with_rounding(xp.max(solution.error, axis=1))
        if isinstance(self.initial, Waves):
            store["z"] = constant(self.initial.numbers(seed, samples), u0)
        return store if self.terms.diagonal else store | {"step": solution.step}

    @property
    def largest_batch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        vector = EIGHT if self.dimension < 3 else 1  # see `has_vectors`
        return vector * max(1, _VALUES // (vector * self.floats_per_sample))

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
            walls=self._walled,
        )
        laws = [*self.initial.checks("a", self.domain, count, self.nonlinear.projection)]
        if self.source is not None:
            laws += self.source.checks("f", self.domain, count, projection=False)
        solver = self.solver
        solved = solved_checks(solver.dt, solver.tolerance)
        return StoreChecks((*laws, *solved, *evolution.checks()))


@lru_cache(maxsize=4)
def _built(problem: SemilinearProblem, device: str | None) -> tuple[Torus, Semilinear]:
    """The torus and the solver of a problem."""
    torus, terms, solver = problem.torus, problem.terms, problem.solver
    return torus, integrator([terms], torus, problem._dt, solver.tolerance, device)  # pyright: ignore
