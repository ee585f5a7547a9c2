"""A fast solver of two-phase Darcy flow on coarse cells, with derivatives of the solution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.kernels import (
    add_transposed,
    face_changes,
    face_derivatives,
    stiffness_band,
)

_lapack: Any = scipy.linalg.lapack  # not in its stubs


@dataclass(frozen=True)
class PhaseFlow:
    """The map p -> u for -div(a grad u) = f, u = 0 on the walls, a = α + (β - α) p on n x n cells.

    The finite volumes are those of `FiniteVolume`. A banded Cholesky factorisation solves them.

    >>> flow = PhaseFlow(CellGrid(85), (3.0, 12.0))
    >>> round(float(12 * flow(np.ones((85, 85))).max()), 4)
    0.0737
    """

    grid: CellGrid  # the cells
    phases: tuple[float, float]  # α < β
    source: float = 1.0  # f

    def __post_init__(self) -> None:
        self.grid.check_unit()

    def __call__(self, p: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """u at the cell centres."""
        return self.linearise(p).u

    def linearise(self, p: Float[np.ndarray, "n n"]) -> PhaseFlowAt:
        """u with its derivatives with respect to p."""
        return PhaseFlowAt(self, p)


class PhaseFlowAt:
    """u(p) with its derivatives, from one banded Cholesky factorisation.

    Raises ValueError if the shape of p is wrong, and ArithmeticError if the matrix is not positive
    definite.
    """

    def __init__(self, flow: PhaseFlow, p: Float[np.ndarray, "n n"]) -> None:
        n, (low, high) = flow.grid.n, flow.phases
        if p.shape != (n, n):
            raise ValueError(f"expected p of shape ({n}, {n}), got {p.shape}")
        self._a, self._height = low + (high - low) * p, high - low
        self._factor: np.ndarray
        self._factor, info = _lapack.dpbtrf(stiffness_band(self._a).T, lower=1, overwrite_ab=1)
        if info:
            raise ArithmeticError(f"the flow on {n} x {n} cells is not positive definite")
        self.u = self._solved(np.full((n, n), flow.source / n**2))

    @cached_property
    def _slopes(self) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives ∂a_f/∂p of the coefficients on the inner faces normal to each axis."""
        across = np.ascontiguousarray(self._a.T)
        return self._height * face_derivatives(self._a), self._height * face_derivatives(across)

    @cached_property
    def _jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """Differences of u across the inner faces normal to each axis."""
        return np.diff(self.u, axis=0), np.ascontiguousarray(np.diff(self.u, axis=1).T)

    def jvp(self, dp: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The first-order change of u for a change dp of p; takes one solve."""
        x = face_changes(self._slopes[0], dp) * self._jumps[0]
        y = face_changes(self._slopes[1], np.ascontiguousarray(dp.T)) * self._jumps[1]
        return self._solved(_gains(x, y.T) - _at_walls(2 * self._height * dp * self.u))

    def vjp(self, v: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The gradient with respect to p of a scalar whose gradient with respect to u is v.

        It takes one solve.
        """
        adjoint = self._solved(v)
        gradient = -_at_walls(2 * self._height * adjoint * self.u)
        add_transposed(self._slopes[0], -np.diff(adjoint, axis=0) * self._jumps[0], gradient)
        along_y = np.ascontiguousarray(np.diff(adjoint, axis=1).T)
        gradient_y = np.zeros_like(gradient)
        add_transposed(self._slopes[1], -along_y * self._jumps[1], gradient_y)
        return gradient + gradient_y.T

    def _solved(self, b: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        u: np.ndarray
        u, _ = _lapack.dpbtrs(self._factor, b.ravel(), lower=1)
        return u.reshape(b.shape)


def _gains(x: Float[np.ndarray, "n1 n"], y: Float[np.ndarray, "n n1"]) -> Float[np.ndarray, "n n"]:
    """Net inflow into each cell, from the fluxes through the inner faces normal to x and to y.

    Here a positive flux points against the direction of its axis.
    """
    gains = np.zeros((x.shape[1],) * 2)
    gains[:-1] += x
    gains[1:] -= x
    gains[:, :-1] += y
    gains[:, 1:] -= y
    return gains


def _at_walls(values: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """The value of each cell times the number of its faces on walls."""
    counted = np.zeros_like(values)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        counted[edge] += values[edge]
    return counted
