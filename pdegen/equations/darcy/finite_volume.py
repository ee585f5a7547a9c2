"""Cell-centred finite volumes for -div(a grad u) = f on the unit square, u given on the walls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from array_api_compat import array_namespace, is_numpy_namespace
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy import kernels
from pdegen.equations.darcy.interface import InterfaceSolver
from pdegen.equations.darcy.operator import Diffusion, Faces
from pdegen.equations.darcy.poisson import Poisson
from pdegen.numerics.device import Array, SolveError, constant, first_true
from pdegen.numerics.sines import by_fft, by_products, conjugate_gradients

Inverse = Callable[[np.ndarray], tuple[np.ndarray, float, int]]  # u, residual, iterations
Iterated = Callable[[np.ndarray, float], tuple[np.ndarray, int]]

_PIECEWISE = 1 / 8  # a counts as piecewise constant below this number of faces at jumps per cell


class Solution(NamedTuple):
    """Discrete solutions of a batch."""

    u: Array  # values at the cell centres, shape (batch, n, n)
    residual: Array  # relative residual ‖b - A u‖/‖b‖, computed from u, shape (batch,)
    iterations: Array  # number of iterations, 0 after a direct solve, shape (batch,)


@dataclass(frozen=True)
class Linearised:
    """The discrete solution u(a) of R(a, u) = A(a) u - b = 0, and its adjoint derivative.

    Since A is symmetric, the adjoint λ = A⁻¹ v takes one solve with the same matrix, preconditioner
    and relative tolerance as u. A gradient v with respect to u becomes the gradient -(∂R/∂a)ᵀ λ
    with respect to a. For a cell c, λᵀ ∂R/∂a_c is the sum over its faces f of ∂a_f/∂a_c times the
    jumps of u and of λ. `FiniteVolume.linearise` builds the object.

    References: M. Hinze, R. Pinnau, M. Ulbrich and S. Ulbrich, Optimization with PDE Constraints
    (2009), section 1.6.2.

    >>> at = FiniteVolume(CellGrid(8)).linearise(np.ones((1, 8, 8)))  # u(a) = u(1)/a for numbers a
    >>> bool(np.isclose(at.vjp(at.u).sum(), -(at.u**2).sum()))
    True
    """

    operator: Diffusion  # A(a)
    u: Float[np.ndarray, "batch n n"]
    inverse: Callable[[np.ndarray], np.ndarray]  # A⁻¹

    def vjp(self, v: Float[np.ndarray, "batch n n"]) -> Float[np.ndarray, "batch n n"]:
        """The gradient with respect to a of a scalar whose gradient with respect to u is v.

        It takes one solve.
        """
        if v.shape != self.u.shape:
            raise ValueError(f"expected v of shape {self.u.shape}, got {v.shape}")
        adjoint, harmonic = self.inverse(v), self.operator.faces == "harmonic"
        gradient = np.empty_like(adjoint)
        for a, z, u, out in zip(self.operator.a, adjoint, self.u, gradient, strict=True):
            kernels.sensitivity(a, harmonic, z, u, out)
        return gradient


@dataclass(frozen=True)
class FiniteVolume:
    """Solves -div(a grad u) = f on (0,1)² with u = g on the walls, on n x n cells.

    The flux through the face between the cells i and j is a_f (u_i - u_j)/h. The walls lie half a
    cell from the outermost centres. With the harmonic mean a_f = 2 a_i a_j/(a_i + a_j), jumps of a
    along faces are treated exactly: a laminate is solved up to rounding. A smooth problem is solved
    to second order.

    Samples of NumPy arrays are solved one by one. If the coefficient is piecewise constant, the
    equations are reduced to its interface (`interface.py`). Other coefficients, and all arrays of
    other libraries (such as torch on a GPU), are solved by preconditioned conjugate gradients. The
    preconditioner is the Laplacian L if a has few jumps, and a^½ L a^½ if a is smooth. The number
    of iterations does not depend on the mesh, and hardly on the contrast: 250 iterations suffice at
    a jump of 1e8. If `limit` iterations do not suffice for a NumPy array, a direct solver takes
    over. At 421 x 421 cells the direct solver costs as much as 100 iterations of conjugate
    gradients on all cells.

    >>> solver = FiniteVolume(CellGrid(85))
    >>> round(float(solver(np.ones((1, 85, 85))).max()), 4)
    0.0737
    """

    grid: CellGrid  # the cells along each axis
    faces: Faces = "harmonic"  # mean on faces: "harmonic", or "arithmetic" as in the published data
    # largest relative residual ‖b - A u‖/‖b‖; 1e-8 means about 1e-11 in the solution
    rtol: float = 1e-8
    limit: int = 300  # largest number of iterations
    # whether sine transforms are FFTs or matrix products; by default the faster one for NumPy
    # arrays, and products for other arrays
    fft: bool | None = None

    def __post_init__(self) -> None:
        self.grid.check_unit()
        if self.faces not in ("harmonic", "arithmetic"):
            raise ValueError(f"faces must be harmonic or arithmetic, got {self.faces!r}")
        if not (0 < self.rtol < 1 and self.limit >= 0):
            raise ValueError(f"need 0 < rtol < 1, limit >= 0, got {self.rtol}, {self.limit}")

    def __call__(
        self, a: Array, f: Array | float = 1.0, boundary_value: Array | float = 0.0
    ) -> Array:
        """u at the cell centres. See `solve`."""
        return self.solve(a, f, boundary_value).u

    def solve(
        self, a: Array, f: Array | float = 1.0, boundary_value: Array | float = 0.0
    ) -> Solution:
        """Solve for a batch of coefficients.

        Args:
            a: Positive coefficients, shape (batch, n, n), indexed [x, y], float64.
            f: Source: a number, (n, n) or (batch, n, n).
            boundary_value: Values on the walls: a number, or (4, n) at the centres of the outer
                faces of x = 0, x = 1, y = 0, y = 1.

        Raises:
            ValueError: If a shape is wrong.
            SolveError: If a coefficient is not positive, or a residual is above `rtol`.
        """
        operator = self._operator(a)
        b = operator.right_hand_side(f, boundary_value)
        on_device = not is_numpy_namespace(array_namespace(a))
        inverse = self._inverse_on_device(operator) if on_device else self._inverses(operator)
        return self._checked(inverse(b), a)

    def linearise(self, a: Float[np.ndarray, "batch n n"], f: Array | float = 1.0) -> Linearised:
        """The solution u(a) with u = 0 on the walls, and its adjoint derivative.

        Arguments and errors are those of `solve`, for NumPy arrays only. Each gradient takes one
        more solve, which may also raise SolveError.
        """
        operator = self._operator(a)
        solve = self._inverses(operator)

        def inverse(b: np.ndarray) -> np.ndarray:
            return self._checked(solve(b), a).u

        return Linearised(operator, inverse(operator.right_hand_side(f)), inverse)

    def _operator(self, a: Array) -> Diffusion:
        n = self.grid.n
        if a.ndim != 3 or tuple(a.shape[1:]) != (n, n):
            raise ValueError(f"expected a of shape (batch, {n}, {n}), got {tuple(a.shape)}")
        check_positive(a)
        return Diffusion(a, self.faces)

    def _checked(self, solution: Solution, a: Array) -> Solution:
        """Returns the solution for `a` unchanged. Raises SolveError if a residual is above
        `rtol`."""
        row = first_true(~(solution.residual <= self.rtol))
        if row is not None:
            iterations = int(solution.iterations[row])
            remedy = "use a larger limit or rtol"
            if iterations < self.limit:
                contrast = float(a[row].max()) / float(a[row].min())
                remedy = (
                    f"rounding stops it, because a varies by a factor of {contrast:.1e}: use a "
                    "smaller contrast or a larger rtol"
                )
            raise SolveError(
                row,
                f"the residual is {float(solution.residual[row]):.1e} after {iterations} "
                f"iterations, above rtol = {self.rtol:g}: {remedy}",
            )
        return solution

    @cached_property
    def _poisson(self) -> Poisson:
        return Poisson(self.grid, self.fft)

    def _inverse(self, a: Float[np.ndarray, "n n"]) -> Inverse:
        """The map from a right-hand side to u, the residual and the number of iterations."""
        harmonic = self.faces == "harmonic"
        crossing = np.count_nonzero(a[1:] != a[:-1]) + np.count_nonzero(a[:, 1:] != a[:, :-1])
        if crossing < _PIECEWISE * a.size:
            iterated = InterfaceSolver(self._poisson, a, harmonic, self.limit)
        else:
            iterated = self._smooth(a)

        def inverse(b: np.ndarray) -> tuple[np.ndarray, float, int]:
            u, iterations = iterated(b, self.rtol)
            residual = _relative_residual(a, harmonic, b, u)
            if not residual <= self.rtol:
                u, iterations = direct_solve(Diffusion(a[None], self.faces), b), 0
                residual = _relative_residual(a, harmonic, b, u)
            return u, residual, iterations

        return inverse

    def _smooth(self, a: Float[np.ndarray, "n n"]) -> Iterated:
        scale = 1 / np.sqrt(a)
        zero, au = np.zeros_like(scale), np.empty_like(scale)

        def operator(u: np.ndarray) -> np.ndarray:
            kernels.residual(a, self.faces == "harmonic", zero, -u[0], au)
            return au[None]

        def preconditioner(r: np.ndarray) -> np.ndarray:
            return (scale * self._poisson(scale * r[0]))[None]

        def iterated(b: np.ndarray, rtol: float) -> tuple[np.ndarray, int]:
            u, iterations = conjugate_gradients(
                operator, preconditioner, b[None], 0.5 * rtol, self.limit
            )
            return u[0], int(iterations[0])

        return iterated

    def _inverses(self, operator: Diffusion) -> Callable[[np.ndarray], Solution]:
        """The map from the right-hand sides of a batch to solutions, solved sample by sample."""
        inverses = [self._inverse(a) for a in operator.a]

        def solve(b: np.ndarray) -> Solution:
            samples = [inverse(row) for inverse, row in zip(inverses, b, strict=True)]
            u, residual, iterations = zip(*samples, strict=True)
            return Solution(np.stack(u), np.array(residual), np.array(iterations))

        return solve

    def _inverse_on_device(self, operator: Diffusion) -> Callable[[Array], Solution]:
        """The map from the right-hand sides of a batch to solutions, for all samples together.

        The preconditioner uses sine transforms along both axes.
        """
        a = operator.a
        xp = array_namespace(a)
        sines = (by_fft if self.fft else by_products)(self.grid, a)
        values = constant(self._poisson.eigenvalues, a)
        weights = 1 / (values[:, None] + values)
        smooth = _crossing_faces(a) >= _PIECEWISE * self.grid.n**2
        scale = None
        if bool(xp.any(smooth)):
            scale = xp.where(smooth[:, None, None], 1 / xp.sqrt(a), xp.ones_like(a))

        def solve(b: Array) -> Solution:
            def preconditioner(r: Array) -> Array:
                hat = sines.forward(r if scale is None else scale * r)
                hat *= weights
                z = sines.backward(hat)
                return z if scale is None else scale * z

            u, iterations = conjugate_gradients(
                operator, preconditioner, b, 0.5 * self.rtol, self.limit
            )
            return Solution(u, operator.relative_residual(u, b), iterations)

        return solve


def check_positive(a: Array) -> None:
    """Raise SolveError for the first sample whose coefficient is not positive and finite."""
    xp = array_namespace(a)
    if not a.shape[0]:
        return
    row = first_true(~((xp.min(a, axis=(1, 2)) > 0) & (xp.max(a, axis=(1, 2)) < float("inf"))))
    if row is not None:
        low, high = float(xp.min(a[row])), float(xp.max(a[row]))
        raise SolveError(
            row, f"the coefficient must be positive and finite, got {low:g} to {high:g}"
        )


def direct_solve(operator: Diffusion, b: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Solves A u = b for the first sample by sparse LU."""
    return factorised(operator.matrix()).solve(b.ravel()).reshape(b.shape)


def factorised(matrix: Any) -> Any:
    """Sparse LU factors of a symmetric positive definite matrix with few entries in each column.

    Symmetric mode, minimum degree ordering and panels of one column are the fastest options of
    SuperLU for such matrices.
    """
    return scipy.sparse.linalg.splu(
        matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, panel_size=1,
        options={"SymmetricMode": True},
    )  # fmt: skip


def _relative_residual(a: np.ndarray, harmonic: bool, b: np.ndarray, u: np.ndarray) -> float:
    size = np.linalg.norm(b)
    return float(np.sqrt(kernels.residual(a, harmonic, b, u, np.empty_like(b))) / (size or 1.0))


def _crossing_faces(a: Array) -> Array:
    xp = array_namespace(a)
    x = xp.sum(xp.astype(a[:, 1:] != a[:, :-1], xp.int64), axis=(1, 2))
    return x + xp.sum(xp.astype(a[:, :, 1:] != a[:, :, :-1], xp.int64), axis=(1, 2))
