"""The terms of a semilinear equation, as maps between modes on a torus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
from jaxtyping import Complex, Float

from pdegen.numerics.device import Array, constant
from pdegen.numerics.semilinear import Nonlinear, Rows, Semilinear
from pdegen.numerics.spectral import Monomial, Part, Pseudospectral, Symbol, Torus

Numbers = tuple[float, ...]  # one for each component
Powers = tuple[int, ...]  # power of each component


@dataclass(frozen=True)
class Terms:
    """The coefficients of the equation of each component u on a torus of one to three axes.

        uₜ + c·∇u + δ Σ_j ∂_j³u + μ Δ²u + λ u + convection + (g/2)|∇u|² = ν Δu + R(u, v, ...)

    On d > 1 axes, d components form a velocity u = (u_1, ..., u_d). Its convection is b (u·∇)u, or
    (b/2) ∇·(u u) in conservative form. The convection of any other component u is b u Σ_j ∂_j u,
    which equals the conservative form (b/2) Σ_j ∂_j u². R is a sum of monomials, and of Laplacians
    of monomials of degree 2 or more.

    With a projection, the flow is incompressible: the convection of the velocity is projected onto
    the fields of divergence 0, which is what the gradient of a pressure on the right side does.
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
    # in the same form, the monomials of which R has the Laplacian
    laplacians: tuple[tuple[int, float, Powers], ...] = ()
    projection: bool = False  # whether div u = 0
    forced: bool = False  # whether R includes a field f of each sample, which is constant in time

    @property
    def components(self) -> int:
        return len(self.diffusion)

    @property
    def velocity(self) -> bool:
        """Whether the components form a velocity: one for each of two or three axes."""
        return self.components == self.axes > 1

    @cached_property
    def growth(self) -> Numbers:
        """The linear growth rate of each component."""
        rates = [-rate for rate in self.drag]
        for of, coefficient, powers in self.reaction:
            if powers == self._itself(of):
                rates[of] += coefficient
        return tuple(rates)

    @cached_property
    def monomials(self) -> dict[Powers, dict[int, float]]:
        """The reaction, without the linear terms that `growth` includes."""
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

    def laplacian_of(self, component: int) -> Float[np.ndarray, " powers"] | None:
        """Polynomial q, by rising powers, of the term Δq in the equation of a component.

        None if q depends on other components too.
        """
        own = [(c, powers) for of, c, powers in self.laplacians if of == component]
        if any(sum(powers) != powers[component] for _, powers in own):
            return None
        polynomial = np.zeros(2 + max((powers[component] for _, powers in own), default=0))
        for coefficient, powers in own:
            polynomial[powers[component]] += coefficient
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
        laplacians = (sum(powers) for _, c, powers in self.laplacians if c)
        return max(1, 2 * products, *map(sum, self.monomials), *laplacians)

    @property
    def diagonal(self) -> bool:
        """Whether the modes are decoupled, so that v = e^(Lt) v₀."""
        return self.degree == 1 and not self.monomials and not self.forced

    @property
    def odd(self) -> bool:
        """Whether u(x) -> -u(-x) maps solutions to solutions."""
        powers = [*self.monomials, *(p for _, c, p in self.laplacians if c)]
        even = [p for p in powers if sum(p) % 2 == 0]
        return not (np.any(self.advection) or any((*self.dispersion, *self.gradient_norm)) or even)

    def linear(self, torus: Torus) -> Symbol:
        """The factors of the modes that the linear terms apply, shape (components, *modes).

        They are real if no derivative has an odd order.
        """
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
        Among the modes of equal |k|, those along the diagonal of the domain turn the fastest. At
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

    def nonlinear(self, torus: Torus, device: str | None = None) -> Pseudospectral | None:
        """The nonlinear map N of modes; None if the equation is `diagonal`.

        N takes NumPy arrays, or tensors on a device.
        """
        if self.diagonal:
            return None
        sums = _Sums(self, torus)
        if any(self.convection):
            sums.add_rotation() if self.velocity else sums.add_squares(self.convection)
        if any(self.conservative_convection):
            b = self.conservative_convection
            sums.add_fluxes(b[0]) if self.velocity else sums.add_squares(b)
        if any(self.gradient_norm):
            sums.add_slopes()
        sums.add_reaction()
        sums.add_laplacians()
        return sums.nonlinear(device)


def integrator(
    terms: Sequence[Terms],
    torus: Torus,
    dt: float,
    tolerance: float,
    device: str | None,
    source: Complex[Array, "batch components *modes"] | None = None,
) -> Semilinear:
    """The time integrator of the equation of samples.

    Args:
        terms: The terms of each sample, which may differ in the coefficients of their linear terms;
            a single entry is that of all samples.
        torus: The torus of the solver.
        dt: Largest time step.
        tolerance: Largest accepted error.
        device: Device of the tensors; None for NumPy arrays.
        source: The modes of f of each sample, if there is such a field.
    """
    by_sample = len(terms) > 1

    def parts(torus: Torus) -> tuple[Symbol, Nonlinear | None]:
        linear = terms[0].linear(torus)
        if by_sample:
            linear = np.stack([of_sample.linear(torus) for of_sample in terms])
        nonlinear = terms[0].nonlinear(torus, device)
        if source is not None and nonlinear is not None:
            f, fixed = torus.padded(source), nonlinear.source
            f = f if fixed is None else f + constant(fixed, f)
            nonlinear = replace(nonlinear, source=f)
        return linear, nonlinear

    def of_rows(rows: Rows) -> Semilinear:
        of_samples = [terms[int(k)] for k in rows] if by_sample else terms
        f = None if source is None else source[rows]
        return integrator(of_samples, torus, dt, tolerance, device, f)

    differ = by_sample or source is not None
    return Semilinear(torus, parts, dt, tolerance, of_rows=of_rows if differ else None)


def _column(numbers: Numbers, axes: int) -> Float[np.ndarray, " components *ones"]:
    """One number for each component, shaped to broadcast over `axes` further axes."""
    return np.reshape(numbers, (-1, *[1] * axes))


def projection(torus: Torus) -> Float[np.ndarray, "axes axes *modes"]:
    """The symbol δ_ij - k_i k_j/|k|² of the projection onto vector fields of divergence 0.

    It is the identity for the mean.

    >>> from pdegen.domains import PeriodicGrid
    >>> torus = Torus((PeriodicGrid(16), PeriodicGrid(12, length=2.0)))
    >>> p = projection(torus)
    >>> bool(np.allclose(sum(d * p[i] for i, d in enumerate(torus.d)), 0, atol=1e-12))
    True
    """
    k = np.stack([np.broadcast_to(k, torus.shape) for k in torus.wave_numbers])
    identity = np.eye(len(k)).reshape(len(k), len(k), *[1] * len(k))
    return identity + k[:, None] * k * torus.inverse_laplacian


@dataclass
class _Sums:
    """The parts of N, in the form of `Pseudospectral`."""

    terms: Terms
    torus: Torus
    fields: list[list[Part]] = field(default_factory=list[list[Part]])
    products: list[list[Monomial]] = field(default_factory=list[list[Monomial]])
    targets: list[list[Part]] = field(default_factory=list[list[Part]])
    coupling: list[tuple[int, int, float]] = field(default_factory=list[tuple[int, int, float]])
    source: Any = None

    def nonlinear(self, device: str | None) -> Pseudospectral:
        return Pseudospectral(
            self.torus, self.fields, self.products, self.targets, self.coupling, self.source, device
        )

    def field_of(self, *parts: Part) -> int:
        """The index of a field, which is added if it is new."""
        known = [[(k, id(symbol)) for k, symbol in old] for old in self.fields]
        key = [(k, id(symbol)) for k, symbol in parts]
        if key not in known:
            self.fields.append(list(parts))
            return len(self.fields) - 1
        return known.index(key)

    def product(self, monomials: list[Monomial], *targets: Part) -> None:
        """Add a polynomial of fields to components of N."""
        self.products.append(monomials)
        self.targets.append(list(targets))

    def values(self) -> list[int]:
        """The fields that are the components themselves."""
        return [self.field_of((k, None)) for k in range(self.terms.components)]

    def add_squares(self, b: Numbers) -> None:
        """The term -(b/2) Σ_j ∂_j u² of each component."""
        along = np.sum(np.broadcast_arrays(*self.torus.d), axis=0)
        for k, strength in enumerate(b):
            if strength:
                u = self.field_of((k, None))
                self.product([(1.0, (u, u))], (k, -0.5 * strength * along))

    def add_fluxes(self, b: float) -> None:
        """The term -(b/2) ∇·(u u_i) for each component u_i of a velocity u."""
        u, d = self.values(), [-0.5 * b * d for d in self.torus.d]
        for i, j in combinations_with_replacement(range(len(u)), 2):
            targets = [(i, d[i])] if i == j else [(i, d[j]), (j, d[i])]
            self.product([(1.0, (u[i], u[j]))], *targets)

    def add_rotation(self) -> None:
        """The convection -b (u·∇)u_i = -b ∂_i|u|²/2 + b Σ_j ω_ij u_j of a velocity u.

        ω_ij = ∂_i u_j - ∂_j u_i is the vorticity. A projection removes the gradient of |u|²/2.
        """
        u, d, b = self.values(), self.torus.d, self.terms.convection[0]
        sums = [list[Monomial]() for _ in u]
        for i, j in combinations(range(len(u)), 2):
            omega = self.field_of((j, b * d[i]), (i, -b * d[j]))
            sums[i].append((1.0, (omega, u[j])))
            sums[j].append((-1.0, (omega, u[i])))
        if self.terms.projection:
            for monomials, symbols in zip(sums, projection(self.torus), strict=True):
                self.product(monomials, *enumerate(symbols))
            return
        squares = [(1.0, (v, v)) for v in u]
        self.product(squares, *((i, -0.5 * b * d[i]) for i in range(len(u))))
        for i, monomials in enumerate(sums):
            self.product(monomials, (i, None))

    def add_slopes(self) -> None:
        """The term -(g/2)|∇u|² of each component."""
        for k, g in enumerate(self.terms.gradient_norm):
            if g:
                slopes = [self.field_of((k, d)) for d in self.torus.d]
                self.product([(-0.5 * g, (slope, slope)) for slope in slopes], (k, None))

    def add_reaction(self) -> None:
        """The monomials of the reaction, without the linear terms that `growth` includes.

        A monomial that several components share is transformed once. The others are added at the
        points, and one transform of the sum for each component returns to modes.
        """
        alone: dict[int, list[Monomial]] = {}
        for powers, coefficients in self.terms.monomials.items():
            degree = sum(powers)
            for component, coefficient in coefficients.items():
                if degree == 0:
                    self._add_constant(component, coefficient)
                elif degree == 1:
                    self.coupling.append((component, powers.index(1), coefficient))
            if degree < 2:
                continue
            product = self._factors(powers)
            if len(coefficients) > 1:
                targets = [(k, np.array(c, complex)) for k, c in coefficients.items()]
                self.product([(1.0, product)], *targets)
            else:
                ((component, coefficient),) = coefficients.items()
                alone.setdefault(component, []).append((coefficient, product))
        for component, monomials in alone.items():
            self.product(monomials, (component, None))

    def add_laplacians(self) -> None:
        """The Laplacians of monomials, with one transform for each component."""
        for component in range(self.terms.components):
            own = [(c, p) for of, c, p in self.terms.laplacians if of == component and c]
            if own:
                monomials = [(c, self._factors(powers)) for c, powers in own]
                self.product(monomials, (component, self.torus.laplacian))

    def _factors(self, powers: Powers) -> tuple[int, ...]:
        """The fields whose product is a monomial."""
        factors = [k for k, power in enumerate(powers) for _ in range(power)]
        return tuple(self.field_of((k, None)) for k in factors)

    def _add_constant(self, component: int, value: float) -> None:
        """A constant source, which acts on the mode 0 only."""
        if self.source is None:
            self.source = np.zeros((self.terms.components, *self.torus.shape))
        self.source[(component, *[0] * self.terms.axes)] += value
