"""The terms of a semilinear equation, as maps between modes on a torus."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array, constant, empty, multiplied
from pdegen.numerics.etdrk import Symbol
from pdegen.numerics.semilinear import Modes, Nonlinear, Rows, Semilinear
from pdegen.numerics.torus import Torus

Numbers = tuple[float, ...]  # one for each component
Powers = tuple[int, ...]  # power of each component


@dataclass(frozen=True)
class Terms:
    """The coefficients of the equation of each component u on a torus of one or two axes.

        uₜ + c·∇u + δ Σ_j ∂_j³u + μ Δ²u + λ u + convection + (g/2)|∇u|² = ν Δu + R(u, v, ...)

    On two axes, two components form a velocity u = (u_1, u_2). Its convection is b (u·∇)u, or
    (b/2) ∇·(u u) in conservative form. The convection of any other component u is b u Σ_j ∂_j u,
    which equals the conservative form (b/2) Σ_j ∂_j u². R is a sum of monomials.
    """

    axes: int  # number of axes of the torus
    advection: tuple[Numbers, ...]  # c of each component, along each axis
    diffusion: Numbers  # ν
    dispersion: Numbers  # δ
    hyper_diffusion: Numbers  # μ
    drag: Numbers  # λ
    convection: Numbers  # b
    conservative_convection: Numbers  # b in conservative form
    gradient_norm: Numbers  # g
    # monomials of R: index of the component, coefficient, and power of each component
    reaction: tuple[tuple[int, float, Powers], ...]

    @property
    def components(self) -> int:
        return len(self.diffusion)

    @property
    def velocity(self) -> bool:
        """Whether the components form a velocity: one component for each of two axes."""
        return self.components == self.axes > 1

    @cached_property
    def growth(self) -> Numbers:
        """The linear growth rate of each component.

        It is minus the drag plus the coefficient of the linear reaction of the component with
        itself.
        """
        rates = [-rate for rate in self.drag]
        for of, coefficient, powers in self.reaction:
            if powers == self._itself(of):
                rates[of] += coefficient
        return tuple(rates)

    @cached_property
    def monomials(self) -> dict[Powers, dict[int, float]]:
        """The reaction, without the linear terms that `growth` includes.

        A key is the tuple of powers of a monomial. The value of a key maps the indices of
        components to the nonzero coefficients of the monomial in the equations of these components.
        """
        sums: dict[Powers, dict[int, float]] = {}
        for of, coefficient, powers in self.reaction:
            if powers != self._itself(of):
                coefficients = sums.setdefault(powers, {})
                coefficients[of] = coefficients.get(of, 0.0) + coefficient
        nonzero = ({k: c for k, c in coefficients.items() if c} for coefficients in sums.values())
        return {
            powers: nonzeros for powers, nonzeros in zip(sums, nonzero, strict=True) if nonzeros
        }

    def reacts_alone(self, component: int) -> bool:
        """Whether the reaction in the equation of a component depends on this component only."""
        return all(
            component not in coefficients or sum(powers) == powers[component]
            for powers, coefficients in self.monomials.items()
        )

    def reaction_of(self, component: int) -> Float[np.ndarray, " powers"]:
        """Polynomial coefficients, by rising powers, of the reaction of a component with itself.

        The linear term that `growth` includes is left out.
        """
        polynomial = np.zeros(2 + max((max(powers) for powers in self.monomials), default=0))
        for powers, coefficients in self.monomials.items():
            if sum(powers) == powers[component]:
                polynomial[powers[component]] += coefficients.get(component, 0.0)
        return polynomial

    @property
    def positive(self) -> bool:
        """Whether the reaction keeps components >= 0: no component decreases where it is 0."""
        return all(
            coefficient >= 0 or powers[component] > 0
            for powers, coefficients in self.monomials.items()
            for component, coefficient in coefficients.items()
        )

    def _itself(self, component: int) -> Powers:
        return tuple(int(k == component) for k in range(self.components))

    @property
    def transported(self) -> bool:
        """Whether there is convection."""
        return any((*self.convection, *self.conservative_convection))

    @property
    def degree(self) -> int:
        """Largest number of factors in a product of components; 1 if there are no products."""
        products = self.transported or any(self.gradient_norm)
        return max(1, 2 * products, *map(sum, self.monomials))

    @property
    def diagonal(self) -> bool:
        """Whether the modes are decoupled, so that v = e^(Lt) v₀."""
        return self.degree == 1 and not self.monomials

    @property
    def odd(self) -> bool:
        """Whether u(x) -> -u(-x) maps solutions to solutions."""
        even = [p for p in self.monomials if sum(p) % 2 == 0]
        return not (np.any(self.advection) or any((*self.dispersion, *self.gradient_norm)) or even)

    def linear(self, torus: Torus) -> Symbol:
        """The symbol of L, shape (components, *modes); real if no derivative has an odd order."""
        even = self._even(torus.laplacian)
        if not np.any(self.advection) and not any(self.dispersion):
            return even
        odd = _column(self.dispersion, self.axes) * sum(d**3 for d in torus.d)
        speeds = [_column(c, self.axes) for c in zip(*self.advection, strict=True)]
        return even - odd - sum(c * d for c, d in zip(speeds, torus.d, strict=True))

    def _even(
        self, laplacian: Float[np.ndarray, " *modes"]
    ) -> Float[np.ndarray, " components *modes"]:
        """The real part of L as a function of the symbol of the Laplacian."""
        diffusion, growth, hyper_diffusion = (
            _column(numbers, laplacian.ndim)
            for numbers in (self.diffusion, self.growth, self.hyper_diffusion)
        )
        return diffusion * laplacian + growth - hyper_diffusion * laplacian**2

    def largest_step(self, torus: Torus, speed: float, slope: float) -> float:
        """The largest stable time step for a speed |u| and a slope |∇u|.

        Runge-Kutta of order 4 is stable on the imaginary axis up to 2√2. The phase of a mode k
        turns at the rate ω = |b u·k| + |g ∇u·k|. Modes with the damping -Re L(k) >= ω are ignored.
        Among the modes of equal |k|, those along the diagonal of the square turn the fastest. At
        most 1,024 of these are evaluated.
        """
        length, highest = torus.grids[0].length, min(torus.highest)
        numbers = np.unique(np.linspace(0, highest, min(highest + 1, 1024)).round())
        k = 2 * np.pi / length * math.sqrt(self.axes) * numbers
        pairs = zip(self.convection, self.conservative_convection, strict=True)
        largest = max(abs(b) + abs(b_conservative) for b, b_conservative in pairs)
        rate = largest * speed * k * (1 if self.velocity else math.sqrt(self.axes))
        rate = rate + max(map(abs, self.gradient_norm)) * slope * k
        damping = -self._even(-(k**2)).max(axis=0)
        fastest = float(np.where(rate > damping, rate, 0.0).max())
        return 2 * math.sqrt(2) / fastest if fastest > 0 else math.inf

    def nonlinear(self, torus: Torus, device: str | None = None) -> Nonlinear | None:
        """The nonlinear map N of modes; None if the equation is `diagonal`.

        N takes NumPy arrays, or tensors on a device. Products that are not differentiated are
        added at the points, and one transform of their sum returns to modes.
        """
        if self.diagonal:
            return None
        like = empty((0,), np.float64, device)
        at_points: list[Part] = []
        in_modes: list[Part] = []
        if any(self.convection) and self.velocity:
            at_points.append(_rotation(self, torus, like))
            in_modes.append(_head(self, torus, like))
        elif any(self.convection):
            in_modes.append(_squares(self, torus, like, self.convection))
        if any(self.conservative_convection):
            flux = _fluxes if self.velocity else _squares
            in_modes.append(flux(self, torus, like, self.conservative_convection))
        if any(self.gradient_norm):
            at_points.append(_slopes(self, torus, like))
        products = {powers: of for powers, of in self.monomials.items() if sum(powers) > 1}
        reacting = {of for coefficients in products.values() for of in coefficients}
        if products and (len(products) < len(reacting) or len(products) == 1):
            in_modes.append(_reaction(products, self.components, torus.to_modes))
        elif products and self.components == 1:
            at_points.append(_polynomial(self.reaction_of(0)))
        elif products:
            at_points.append(_reaction(products, self.components, lambda product: product))
        if len(products) < len(self.monomials):
            in_modes.append(_coupling(self, torus, like))
        needs_values = self.transported or bool(products)

        def of(v: Modes) -> Modes:
            u = torus.to_points(v) if needs_values else v
            parts = [part(v, u) for part in in_modes]
            if at_points:
                parts.append(torus.to_modes(reduce(add, (part(v, u) for part in at_points))))
            return reduce(add, parts)

        return of

    def solver(self, torus: Torus, dt: float, tolerance: float, device: str | None) -> Semilinear:
        """The time integrator of the equation."""

        def terms(torus: Torus) -> tuple[Symbol, Nonlinear | None]:
            return self.linear(torus), self.nonlinear(torus, device)

        return Semilinear(torus, terms, dt, tolerance)


def family_solver(
    terms: Sequence[Terms], torus: Torus, dt: float, tolerance: float, device: str | None
) -> Semilinear:
    """The time integrator of samples that differ in the coefficients of their linear terms.

    Args:
        terms: The terms of each sample. All have the same nonlinear terms.
    """

    def parts(torus: Torus) -> tuple[Symbol, Nonlinear | None]:
        linear = np.stack([of_sample.linear(torus) for of_sample in terms])
        return linear, terms[0].nonlinear(torus, device)

    def of_rows(rows: Rows) -> Semilinear:
        return family_solver([terms[int(k)] for k in rows], torus, dt, tolerance, device)

    return Semilinear(torus, parts, dt, tolerance, of_rows=of_rows)


def _column(numbers: Numbers, axes: int) -> Float[np.ndarray, " components *ones"]:
    """One number for each component, shaped to broadcast over `axes` further axes."""
    return np.reshape(numbers, (-1, *[1] * axes))


Part = Callable[[Modes, Array], Array]  # from modes and values at the points to a part of N


def _squares(terms: Terms, torus: Torus, like: Array, b: Numbers) -> Part:
    """The term -(b/2) Σ_j ∂_j u² of each component."""
    symbol = constant(-0.5 * _column(b, terms.axes) * sum(torus.d), like)
    return lambda v, u: symbol * torus.to_modes(u * u)


def _fluxes(terms: Terms, torus: Torus, like: Array, b: Numbers) -> Part:
    """The term -(b/2) ∇·(u u_i) for each component u_i of a velocity u on the square."""
    dx, dy = (constant(-0.5 * b[0] * d, like) for d in torus.d)

    def part(v: Modes, u: Array) -> Array:
        xp, (u_1, u_2) = array_namespace(u), (u[:, 0], u[:, 1])
        products = torus.to_modes(xp.stack([u_1 * u_1, u_1 * u_2, u_2 * u_2], axis=1))
        first = dx * products[:, 0] + dy * products[:, 1]
        return xp.stack([first, dx * products[:, 1] + dy * products[:, 2]], axis=1)

    return part


def _head(terms: Terms, torus: Torus, like: Array) -> Part:
    """The gradient part -b ∇(|u|²/2) of the convection -b (u·∇)u.

    The identity is (u·∇)u = ∇(|u|²/2) + ω (-u_2, u_1) with ω = ∂_1u_2 - ∂_2u_1.
    """
    gradient = np.stack([np.broadcast_to(d, torus.shape) for d in torus.d])
    symbol = constant(-0.5 * terms.convection[0] * gradient, like)

    def part(v: Modes, u: Array) -> Array:
        u_1, u_2 = u[:, :1], u[:, 1:]
        return symbol * torus.to_modes(u_1 * u_1 + u_2 * u_2)

    return part


def _rotation(terms: Terms, torus: Torus, like: Array) -> Part:
    """The rotational part -b ω (-u_2, u_1) of the convection -b (u·∇)u (see `_head`)."""
    dx, dy = (constant(terms.convection[0] * d, like) for d in torus.d)

    def part(v: Modes, u: Array) -> Array:
        omega = torus.to_points(dx * v[:, 1] - dy * v[:, 0])
        return array_namespace(u).stack([omega * u[:, 1], -omega * u[:, 0]], axis=1)

    return part


def _slopes(terms: Terms, torus: Torus, like: Array) -> Part:
    """The term -(g/2)|∇u|² of each component."""
    g = constant(-0.5 * _column(terms.gradient_norm, terms.axes), like)
    symbols = [constant(d, like) for d in torus.d]
    return lambda v, u: g * reduce(add, (torus.to_points(d * v) ** 2 for d in symbols))


def _product(u: Array, powers: Powers) -> Array:
    """The product of powers of the components at the points; it has two factors or more."""
    first, second, *others = [k for k, power in enumerate(powers) for _ in range(power)]
    product = u[:, first] * u[:, second]
    for k in others:
        product = multiplied(product, u[:, k])
    return product


def _reaction(
    products: Mapping[Powers, Mapping[int, float]],
    components: int,
    transformed: Callable[[Array], Array],
) -> Part:
    """The sum of products in the equation of each component.

    Args:
        products: Coefficients of the products, in the form of `Terms.monomials`.
        components: Number of components.
        transformed: The map that is applied to each product: the transform from values at the
            points to modes, or the identity.
    """

    def part(v: Modes, u: Array) -> Array:
        sums: list[Array | None] = [None] * components
        for powers, coefficients in products.items():
            product = transformed(_product(u, powers))
            for component, coefficient in coefficients.items():
                term, total = coefficient * product, sums[component]
                sums[component] = term if total is None else total + term
        zero = next(0 * total for total in sums if total is not None)
        return array_namespace(u).stack([zero if s is None else s for s in sums], axis=1)

    return part


def _polynomial(coefficients: Float[np.ndarray, " powers"]) -> Part:
    """The reaction R(u) of one component without its constant term.

    Horner's rule evaluates R in place, in one array. `_coupling` adds the constant term.
    """
    *lower, highest = (float(c) for c in np.trim_zeros(coefficients[1:], "b"))

    def part(v: Modes, u: Array) -> Array:
        value = highest * u
        for coefficient in lower[::-1]:
            if coefficient:
                value += coefficient
            value = multiplied(value, u)
        return value

    return part


def _coupling(terms: Terms, torus: Torus, like: Array) -> Part:
    """Constant sources, which act on the mode 0 only, and linear reactions between components."""
    source = np.zeros((terms.components, *torus.shape))
    linear = list[tuple[int, int, float]]()
    for powers, coefficients in terms.monomials.items():
        for component, coefficient in coefficients.items():
            if sum(powers) == 0:
                source[(component, *[0] * terms.axes)] += coefficient
            elif sum(powers) == 1:
                linear.append((component, powers.index(1), coefficient))
    constants = constant(source, like)

    def part(v: Modes, u: Array) -> Array:
        change = array_namespace(v).zeros_like(v) + constants
        for component, reactant, coefficient in linear:
            change[:, component] += coefficient * v[:, reactant]
        return change

    return part
