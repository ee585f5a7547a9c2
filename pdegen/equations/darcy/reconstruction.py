"""Continuous fields, reconstructed from cell-centre values, and their exact integrals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

_NORMS = (1.0, 1 / 3, 1 / 5)  # ½ ∫ P² over [-1, 1] of the Legendre polynomials of degree 0, 1, 2


@dataclass(frozen=True)
class Biquadratic:
    """A function v in H¹₀((0,1)²): biquadratic on each cell, continuous, 0 on the walls."""

    # values at corners, midpoints of faces and centres of the n x n cells, indexed [x, y], shape
    # (batch, 2n+1, 2n+1)
    nodes: Float[np.ndarray, "batch m m"]

    @classmethod
    def of(cls, a: np.ndarray, p: np.ndarray) -> Biquadratic:
        """The reconstruction p_h of cell-centre values p, for a piecewise constant coefficient.

        At the midpoint of a face p_h is (a₁p₁ + a₂p₂)/(a₁ + a₂), for which the fluxes from both
        centres are equal. At a corner p_h is Σ a p / Σ a over the four cells. Like the solution,
        p_h has kinks at the jumps of a. For a laminate these kinks are exact.

        Args:
            a: Positive coefficients, shape (batch, n, n).
            p: Values at the centres, shape (batch, n, n).

        >>> a, p = np.array([[[3.0, 1.0]] * 2]), np.ones((1, 2, 2))
        >>> Biquadratic.of(a, p).nodes[0].astype(int).tolist()[1:-1]
        [[0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0]]
        """
        n = p.shape[1]
        nodes, ap = np.zeros((p.shape[0], 2 * n + 1, 2 * n + 1)), a * p
        nodes[:, 1::2, 1::2] = p
        nodes[:, 2:-1:2, 1::2] = (ap[:, 1:] + ap[:, :-1]) / (a[:, 1:] + a[:, :-1])
        nodes[:, 1::2, 2:-1:2] = (ap[:, :, 1:] + ap[:, :, :-1]) / (a[:, :, 1:] + a[:, :, :-1])
        nodes[:, 2:-1:2, 2:-1:2] = _around_corners(ap) / _around_corners(a)
        return cls(nodes)

    @property
    def centres(self) -> np.ndarray:
        """Values at the centres of the cells, shape (batch, n, n)."""
        return self.nodes[:, 1::2, 1::2]

    def on_finer(self, factor: int) -> Biquadratic:
        """The same function, represented on cells that are finer by `factor`."""
        if factor == 1:
            return self
        v, x = self.nodes, np.arange(2 * factor) / factor - 1
        basis = np.stack([x * (x - 1) / 2, 1 - x**2, x * (x + 1) / 2])
        for axis in (1, 2):
            v = np.moveaxis(v, axis, -1)
            parts = np.stack([v[..., :-1:2], v[..., 1::2], v[..., 2::2]], axis=-1) @ basis
            inner = parts.reshape(*parts.shape[:2], -1)
            v = np.moveaxis(np.concatenate([inner, v[..., -1:]], axis=-1), -1, axis)
        return Biquadratic(v)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean values over the cells, shape (batch, n, n)."""
        return _legendre(_legendre(self.nodes, 1)[0], 2)[0]

    @cached_property
    def squared_gradient(self) -> np.ndarray:
        """∫ |∇v|² over each cell, shape (batch, n, n)."""
        total = np.zeros(1)
        for axis in (1, 2):
            for norm, slope in zip(_NORMS, _slopes(self.nodes, axis), strict=False):
                total = total + norm * _squares(_legendre(slope, 3 - axis))
        return total

    def energy(self, a: np.ndarray) -> np.ndarray:
        """∫ a |∇v|² of each sample, where a is constant on each cell."""
        return _sum(a * self.squared_gradient)

    @property
    def squared_norm(self) -> np.ndarray:
        """∫ v² of each sample."""
        columns, n = _legendre(self.nodes, 1), self.nodes.shape[1] // 2
        squares = (_squares(_legendre(column, 2)) for column in columns)
        terms = (norm * s for norm, s in zip(_NORMS, squares, strict=True))
        return _sum(sum(terms, np.zeros(1))) / n**2


def _around_corners(c: np.ndarray) -> np.ndarray:
    return c[:, 1:, 1:] + c[:, 1:, :-1] + c[:, :-1, 1:] + c[:, :-1, :-1]


def _squares(coefficients: Iterable[np.ndarray]) -> np.ndarray:
    """Mean square of Σ c_k P_k over a cell, with the Legendre polynomials P_k."""
    return sum((norm * c**2 for norm, c in zip(_NORMS, coefficients, strict=True)), np.zeros(1))


def _sum(v: np.ndarray) -> np.ndarray:
    return np.sum(v, axis=(1, 2))


def _parts(v: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values at the lower ends, the middles and the upper ends of the cells along an axis."""
    before = (slice(None),) * axis
    lower, middle = v[(*before, slice(None, -1, 2))], v[(*before, slice(1, None, 2))]
    return lower, middle, v[(*before, slice(2, None, 2))]


def _legendre(v: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Legendre coefficients of the parabolas through the three nodes of each cell.

    They are the coefficients of P₀, P₁ and P₂.
    """
    lower, middle, upper = _parts(v, axis)
    return (lower + 4 * middle + upper) / 6, (upper - lower) / 2, (lower - 2 * middle + upper) / 3


def _slopes(v: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Legendre coefficients (P₀, P₁) of h times the derivatives of the parabolas of `_legendre`."""
    lower, middle, upper = _parts(v, axis)
    return upper - lower, 2 * (lower - 2 * middle + upper)
