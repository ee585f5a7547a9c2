"""Nonlinear terms whose products are computed at the points of a torus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add, mul

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Complex, Float

from pdegen.numerics.device import Array, constant, empty
from pdegen.numerics.torus import Torus

# a component and the symbol that multiplies its modes; None for the identity
Part = tuple[int, Complex[np.ndarray, "..."] | None]
AtPoints = Float[Array, "batch *points"]
Monomial = tuple[float, tuple[int, ...]]  # a factor, and the fields of the product


@dataclass(frozen=True)
class Pseudospectral:
    """N(v) = Σ_p B_p F m_p(F⁻¹ A_1 v, F⁻¹ A_2 v, ...) + C v + c for the modes v of components.

    The fields A_f v are transformed to points by F⁻¹, polynomials m_p of the fields are evaluated
    there, and F returns to modes.

    Reference: S. A. Orszag, Stud. Appl. Math. 50 (1971), for products at points.

    The convection -u uₓ of one component is -∂ₓ F (u²/2):

    >>> from pdegen.domains import PeriodicGrid
    >>> torus = Torus((PeriodicGrid(16),))
    >>> square = Pseudospectral(torus, [[(0, None)]], [[(-0.5, (0, 0))]], [[(0, torus.d[0])]])
    >>> x = 2 * np.pi * torus.grids[0].x
    >>> change = square(torus.to_modes(np.sin(x))[None, None])
    >>> bool(np.allclose(torus.to_points(change), -2 * np.pi * np.sin(x) * np.cos(x)))
    True

    Args:
        torus: The domain.
        fields: For each field, the parts whose sum it is.
        products: For each polynomial m_p, its monomials.
        terms: For each polynomial, the parts of N to which B_p F m_p is added.
        coupling: Entries (row, column, number) of the matrix C.
        source: The modes c, shape (components, *modes), or with an axis of samples in front; NumPy
            or a tensor on the device.
        device: The device of the tensors v; None for NumPy arrays.
    """

    torus: Torus
    fields: Sequence[Sequence[Part]]
    products: Sequence[Sequence[Monomial]]
    terms: Sequence[Sequence[Part]]
    coupling: Sequence[tuple[int, int, float]] = ()
    source: Complex[Array, "..."] | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if len(self.products) != len(self.terms) or not all(
            (*self.fields, *self.products, *self.terms)
        ):
            raise ValueError("a field, a product and its terms need one part or more")
        factors = {f for p in self.products for _, monomial in p for f in monomial}
        if not factors <= set(range(len(self.fields))):
            raise ValueError(f"expected fields below {len(self.fields)}, got {sorted(factors)}")

    @property
    def components(self) -> set[int]:
        """The components that N reads or changes."""
        parts = {k for parts in (*self.fields, *self.terms) for k, _ in parts}
        return parts | {k for row, column, _ in self.coupling for k in (row, column)}

    @cached_property
    def _like(self) -> Array:
        return empty((0,), np.float64, self.device)

    @cached_property
    def _symbols(self) -> tuple[list[list[Array | float]], ...]:
        """The symbols of fields and terms on the device."""

        def moved(parts: Sequence[Part]) -> list[Array | float]:
            return [1.0 if s is None else constant(s, self._like) for _, s in parts]

        return [moved(parts) for parts in self.fields], [moved(parts) for parts in self.terms]

    @cached_property
    def _constant(self) -> Array | None:
        source = self.source  # a tensor may carry derivatives
        return constant(source, self._like) if isinstance(source, np.ndarray) else source

    def __call__(
        self, v: Complex[Array, "batch components *modes"]
    ) -> Complex[Array, "batch components *modes"]:
        xp = array_namespace(v)
        of_fields, of_terms = self._symbols
        sums = list[list[Array]]([] for _ in range(v.shape[1]))
        if self.products:
            values = self.torus.to_points(xp.stack([
                reduce(add, (s * v[:, k] for (k, _), s in zip(parts, symbols, strict=True)))
                for parts, symbols in zip(self.fields, of_fields, strict=True)
            ], axis=1))  # fmt: skip
            modes = self.torus.to_modes(
                xp.stack([_polynomial(values, p) for p in self.products], axis=1)
            )
            for p, (parts, symbols) in enumerate(zip(self.terms, of_terms, strict=True)):
                for (component, _), symbol in zip(parts, symbols, strict=True):
                    sums[component].append(symbol * modes[:, p])
        for row, column, factor in self.coupling:
            sums[row].append(factor * v[:, column])
        zero = xp.zeros_like(v[:, 0])
        change = xp.stack([reduce(add, parts) if parts else zero for parts in sums], axis=1)
        return change if self._constant is None else change + self._constant


def _polynomial(
    fields: Float[Array, "batch fields *points"], monomials: Sequence[Monomial]
) -> AtPoints:
    """The sum of monomials of the fields at the points."""

    def value(factor: float, factors: tuple[int, ...]) -> Array:
        product = reduce(mul, (fields[:, f] for f in factors))
        return product if factor == 1 else factor * product

    return reduce(add, (value(*monomial) for monomial in monomials))


@dataclass(frozen=True)
class Rates:
    """Rates of change Σ_k Re(conj(g_k) v_k) - Σ_k d_k |v_k|² of watched quantities.

    Args:
        linear: g of each quantity, shape (watched, components, *modes), or with an axis of samples
            in front.
        quadratic: d of each quantity, in the same form.
    """

    linear: Complex[np.ndarray, "..."]
    quadratic: Float[np.ndarray, "..."]

    def __call__(
        self, v: Complex[Array, "batch components *modes"]
    ) -> Float[Array, "batch watched"]:
        xp, v = array_namespace(v), v[:, None]
        g, d = constant(self.linear, v), constant(self.quadratic, v)
        work = xp.real(g) * xp.real(v) + xp.imag(g) * xp.imag(v)
        work = work - d * (xp.real(v) ** 2 + xp.imag(v) ** 2)
        return xp.sum(work, axis=tuple(range(2, work.ndim)))
