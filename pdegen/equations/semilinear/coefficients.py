"""The coefficients of semilinear equations, as recipes declare them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from pdegen.equations.semilinear.initial import listed, number
from pdegen.sampling.scalars import ScalarLaw, number_or_law
from pdegen.schema import Name, Strict


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


class Monomial(Strict):
    """The term coefficient u^p v^q ... in the equation of the component `of`.

    Args:
        of: Name of the component whose equation has the term.
        coefficient: Factor of the term, on the right side. [u^(1 − p − q ...)/time]
        powers: Power of each component.
    """

    of: Name
    coefficient: Annotated[float | ScalarLaw, BeforeValidator(_coefficient)]
    powers: Annotated[tuple[Annotated[int, Field(ge=0, le=9)], ...], Field(strict=False)]


class Nonlinear(Strict):
    """Coefficients of the nonlinear terms, and the reaction.

    Args:
        convection: Factor b in the term b (u·∇)u on the left side. [length/(time · u)]
        conservative_convection: Factor b in the term (b/2) ∇·(u u) on the left side.
            [length/(time · u)]
        gradient_norm: Factor g in the term (g/2) |∇u|² on the left side. [length²/(time · u)]
        reaction: Monomials of the components, a list of tables.
    """

    convection: EachOrLaw = 0.0
    conservative_convection: EachOrLaw = 0.0
    gradient_norm: EachOrLaw = 0.0
    reaction: Annotated[tuple[Monomial, ...], Field(strict=False)] = ()
