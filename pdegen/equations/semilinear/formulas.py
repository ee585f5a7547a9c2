"""Writes the equations of `Terms` as one line of text, or as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pdegen.equations.latex import number

if TYPE_CHECKING:
    from pdegen.equations.semilinear.solver import Powers, Terms


class Notation(NamedTuple):
    """Templates of the terms of an equation; {u} is one component, {all} the list of components."""

    in_time: str  # the derivative in time
    along: str  # the derivative along the axis {x}
    diffusion: str  # the Laplacian
    hyper_diffusion: str  # the square of the Laplacian
    dispersion: str  # the third derivative along the axis {x}
    plane_dispersion: str  # the sum {third} of third derivatives along two axes
    convection: str
    flux: str  # convection in conservative form
    slope: str  # |∇u|²/2
    power: str  # a component to the power {p}
    size: Callable[[float], str]  # a coefficient
    separator: str  # between the equations of two components


def _six_digits(value: float) -> str:
    return f"{value:.6g}"


_PLAIN = Notation(
    "{u}_t", "{u}_{x}", "{u}_xx", "{u}_xxxx", "{u}_{x}{x}{x}", "({third})", "{u} {u}_x",
    "({u}^2)_x/2", "({u}_x)^2/2", "{u}^{p}", _six_digits, "; ",
)  # fmt: skip
_PLAIN_PLANE = _PLAIN._replace(
    diffusion="laplace {u}",
    hyper_diffusion="laplace^2 {u}",
    convection="{u} ({u}_x + {u}_y)",
    flux="(({u}^2)_x + ({u}^2)_y)/2",
    slope="|grad {u}|^2/2",
)
_PLAIN_VELOCITY = _PLAIN_PLANE._replace(convection="({all}).grad {u}", flux="div(({all}) {u})/2")
_LATEX = Notation(
    "{u}_t", "{u}_{x}", "{u}_{{xx}}", "{u}_{{xxxx}}", "{u}_{{{x}{x}{x}}}", "({third})",
    "{u} {u}_x", r"\tfrac{{1}}{{2}} ({u}^2)_x", r"\tfrac{{1}}{{2}} {u}_x^2", "{u}^{{{p}}}",
    number, r",\quad ",
)  # fmt: skip
_LATEX_PLANE = _LATEX._replace(
    diffusion=r"\Delta {u}",
    hyper_diffusion=r"\Delta^2 {u}",
    convection="{u} ({u}_x + {u}_y)",
    flux=r"\tfrac{{1}}{{2}} (({u}^2)_x + ({u}^2)_y)",
    slope=r"\tfrac{{1}}{{2}} |\nabla {u}|^2",
)
_LATEX_VELOCITY = _LATEX_PLANE._replace(
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
    line = _PLAIN if terms.axes == 1 else _PLAIN_PLANE
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
    line = _LATEX if terms.axes == 1 else _LATEX_PLANE
    return _written(terms, symbols, _LATEX_VELOCITY if terms.velocity else line)


def _written(terms: Terms, names: Sequence[str], by: Notation) -> str:
    right = [_right(terms, names, by, k) for k in range(terms.components)]
    left = [by.in_time.format(u=u) for u in names]
    equations = [f"{lhs} = {rhs or '0'}" for lhs, rhs in zip(left, right, strict=True)]
    return by.separator.join(equations) if any(right) else ""


def _right(terms: Terms, names: Sequence[str], by: Notation, k: int) -> str:
    """The right side of the equation of component k."""
    u, axes, every = names[k], "xy"[: terms.axes], ", ".join(names)
    third = " + ".join(by.dispersion.format(u=u, x=x) for x in axes)
    advection = zip(terms.advection[k], axes, strict=True)
    return _sum(
        [
            *((-c, by.along.format(u=u, x=x)) for c, x in advection),
            (terms.diffusion[k], by.diffusion.format(u=u)),
            (-terms.dispersion[k], by.plane_dispersion.format(third=third) if axes[1:] else third),
            (-terms.hyper_diffusion[k], by.hyper_diffusion.format(u=u)),
            (-terms.drag[k], u),
            (-terms.convection[k], by.convection.format(u=u, all=every)),
            (-terms.conservative_convection[k], by.flux.format(u=u, all=every)),
            (-terms.gradient_norm[k], by.slope.format(u=u)),
            *(
                (coefficient, _monomial(names, powers, by))
                for of, coefficient, powers in terms.reaction
                if of == k
            ),
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
