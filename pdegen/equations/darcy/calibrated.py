"""Two-phase Darcy on coarse cells whose faces are fitted to a finer solver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.calibrated_kernels import (
    add_transposed,
    band,
    changes,
    coefficients,
    faces,
    patterns,
)

_lapack: Any = scipy.linalg.lapack  # not in its stubs

_PATTERNS = 64  # of the six cells at a face
_STEPS = 3  # of Gauss and Newton in the fit; the second changes the error by less than 3 %


@dataclass(frozen=True)
class CalibratedFlow:
    """u(p) with -div(a grad u) = f, u = 0 on the walls, a = α + (β - α) p on n x n cells.

    The flux through the face of two cells is the harmonic one times a factor that depends on the
    phases of six cells: the two of the face, and their neighbours along it. So the flow around
    corners of the interface, which cells of this size do not resolve, enters as it does in
    numerical upscaling. `fitted` takes the factors from samples of a finer solver: on 43 x 43 cells
    with phases 12 and 3 the difference to 129 x 129 cells falls from 2.7 % of the deviation of u to
    0.5 %. Between 0 and 1 the factor is linear in each of the six p.

    Args:
        grid: The cells.
        phases: α < β.
        source: f.
        factors: Of the patterns of phases; bit k of the index is the phase of the cell k: those of
            the face, their neighbours below, those above. By default 1.

    References: L. Durlofsky, Numerical calculation of equivalent grid block permeability tensors
    for heterogeneous porous media, Water Resour. Res. 27 (1991).

    >>> flow = CalibratedFlow(CellGrid(85), (3.0, 12.0))
    >>> round(float(12 * flow(np.ones((85, 85))).max()), 4)
    0.0737
    """

    grid: CellGrid
    phases: tuple[float, float]
    source: float = 1.0
    factors: Float[np.ndarray, " 64"] | None = None

    def __call__(self, p: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """u at the cell centres."""
        return self.linearise(p).u

    def linearise(self, p: Float[np.ndarray, "n n"]) -> FlowAt:
        """u, and its derivatives with respect to p."""
        return FlowAt(self, p)

    @cached_property
    def table(self) -> Float[np.ndarray, " 64"]:
        """The factors."""
        return np.ones(_PATTERNS) if self.factors is None else self.factors

    def fitted(
        self, p: Float[np.ndarray, "samples n n"], u: Float[np.ndarray, "samples n n"]
    ) -> CalibratedFlow:
        """With the factors for which u(p) is nearest to these u, in the mean square.

        Patterns that are mirror images share a factor. A pattern that no sample has keeps its own.

        Args:
            p: Phases, 0 or 1.
            u: Solutions at the centres of the same cells, of a solver to be trusted.
        """
        flow, of = self, _classes()
        for _ in range(_STEPS):
            normal, right = np.zeros((of.max() + 1,) * 2), np.zeros(of.max() + 1)
            for one, known in zip(p, u, strict=True):
                at = flow.linearise(one)
                columns = at.with_respect_to_factors(of)
                normal += columns @ columns.T
                right += columns @ (known - at.u).ravel()
            ridge = 1e-12 * np.trace(normal) / len(normal)
            normal[np.diag_indices_from(normal)] += ridge
            change = np.linalg.solve(normal, right)
            flow = CalibratedFlow(self.grid, self.phases, self.source, flow.table + change[of])
        return flow


class FlowAt:
    """u at phases p, with its derivatives: one banded Cholesky factorisation serves all of them.

    Args:
        flow, p: As in `CalibratedFlow`.

    Raises:
        ValueError: On another shape.
        ArithmeticError: If the matrix is not positive definite.
    """

    def __init__(self, flow: CalibratedFlow, p: Float[np.ndarray, "n n"]) -> None:
        n, (low, high) = flow.grid.n, flow.phases
        if p.shape != (n, n):
            raise ValueError(f"expected p of shape ({n}, {n}), got {p.shape}")
        self._p, self._across = p, np.ascontiguousarray(p.T)
        self._flow, self._height = flow, high - low
        self._x, self._y = (coefficients(q, low, high, flow.table) for q in (p, self._across))
        self._factor: np.ndarray
        self._factor, info = _lapack.dpbtrf(
            band(self._x, self._y, p, low, high).T, lower=1, overwrite_ab=1
        )
        if info:
            raise ArithmeticError(f"the flow on {n} x {n} cells is not positive definite")
        self.u = self._solved(np.full((n, n), flow.source / n**2))

    @cached_property
    def _slopes(self) -> tuple[np.ndarray, np.ndarray]:
        """∂t/∂p of the faces across each axis."""
        low, high = self._flow.phases
        return faces(self._p, low, high, self._flow.table)[1], faces(
            self._across, low, high, self._flow.table
        )[1]

    @cached_property
    def _jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """Differences of u at the faces across each axis."""
        return np.diff(self.u, axis=0), np.ascontiguousarray(np.diff(self.u, axis=1).T)

    def jvp(self, dp: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The change of u with p, to first order."""
        x = changes(self._slopes[0], dp) * self._jumps[0]
        y = changes(self._slopes[1], np.ascontiguousarray(dp.T)) * self._jumps[1]
        return self._solved(_gains(x, y.T) - _at_walls(2 * self._height * dp * self.u))

    def vjp(self, v: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The gradient with respect to p of a number with the gradient v with respect to u."""
        adjoint = self._solved(v)
        gradient = -_at_walls(2 * self._height * adjoint * self.u)
        add_transposed(self._slopes[0], -np.diff(adjoint, axis=0) * self._jumps[0], gradient)
        along = np.ascontiguousarray(np.diff(adjoint, axis=1).T)
        other = np.zeros_like(gradient)
        add_transposed(self._slopes[1], -along * self._jumps[1], other)
        return gradient + other.T

    def with_respect_to_factors(self, classes: np.ndarray) -> Float[np.ndarray, "classes cells"]:
        """∂u/∂(the factor of all patterns of a class), at phases that are 0 or 1."""
        x, y = patterns(self._p), patterns(self._across)
        table, (n, m) = self._flow.table, self._p.shape
        flux_x, flux_y = self._x / table[x] * self._jumps[0], self._y / table[y] * self._jumps[1]
        count = int(classes.max()) + 1
        gains = np.empty((count, n * m))
        for k in range(count):
            in_x, in_y = np.where(classes[x] == k, flux_x, 0), np.where(classes[y] == k, flux_y, 0)
            gains[k] = _gains(in_x, in_y.T).ravel()
        solved: np.ndarray
        solved, _ = _lapack.dpbtrs(self._factor, gains.T, lower=1)
        return solved.T

    def _solved(self, b: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        u: np.ndarray
        u, _ = _lapack.dpbtrs(self._factor, b.ravel(), lower=1)
        return u.reshape(b.shape)


def _gains(x: Float[np.ndarray, "n1 n"], y: Float[np.ndarray, "n n1"]) -> Float[np.ndarray, "n n"]:
    """What the cells gain by fluxes against the axes through inner faces."""
    gains = np.zeros((x.shape[1],) * 2)
    gains[:-1] += x
    gains[1:] -= x
    gains[:, :-1] += y
    gains[:, 1:] -= y
    return gains


def _at_walls(values: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """The values times the number of walls of a cell."""
    counted = np.zeros_like(values)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        counted[edge] += values[edge]
    return counted


@cache
def _classes() -> np.ndarray:
    """Of each pattern: its number among those that differ by more than a mirror."""
    across, along = (1, 0, 3, 2, 5, 4), (0, 1, 4, 5, 2, 3)
    numbers, classes = dict[tuple[int, ...], int](), np.empty(_PATTERNS, np.int64)
    for index in range(_PATTERNS):
        bits = tuple(index >> k & 1 for k in range(6))
        turned = tuple(bits[k] for k in across)
        images = (bits, turned, *(tuple(one[k] for k in along) for one in (bits, turned)))
        classes[index] = numbers.setdefault(min(images), len(numbers))
    return classes
