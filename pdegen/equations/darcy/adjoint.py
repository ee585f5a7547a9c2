"""Derivatives of u(a), where -div(a grad u) = f: the tangent and the adjoint equation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace
from jaxtyping import Float

from pdegen.equations.darcy import kernels
from pdegen.equations.darcy.operator import Diffusion, jumps, outflow, wall_values
from pdegen.numerics.device import Array

Directions = Float[Array, "*directions batch n n"]


class Gradients(NamedTuple):
    """Of a number that depends on u, with respect to a and to f in the cells, each of u's shape."""

    a: Array
    f: Array


@dataclass(frozen=True)
class Linearised:
    """u at a, and the derivatives of the discrete problem R(a, u) = A(a) u - b(a, f) = 0 there.

    R is linear in u, and A is symmetric: so the tangent du = A⁻¹(h² df - ∂R/∂a da) and the adjoint
    λ = A⁻¹ v are one solve each, with the same matrix and the same preconditioner. The gradients of
    a number with the gradient v with respect to u are -(∂R/∂a)ᵀ λ and h² λ. With a_f the
    coefficient on a face, λᵀ ∂R/∂a_c is the sum over the faces of the cell c of ∂a_f/∂a_c times the
    jumps of u and of λ; λ is 0 on the walls, where u has its values.

    Directions have the shape of u, (batch, n, n), or one more leading axis, (k, batch, n, n). They
    are solved to the relative tolerance of u. `FiniteVolume.linearise` builds it.

    References: M. Hinze, R. Pinnau, M. Ulbrich and S. Ulbrich, Optimization with PDE Constraints
    (2009), section 1.6.2.

    >>> from pdegen.domains import CellGrid
    >>> from pdegen.equations.darcy.finite_volume import FiniteVolume
    >>> at = FiniteVolume(CellGrid(8)).linearise(np.ones((1, 8, 8)))
    >>> da = np.ones((1, 8, 8))  # u(a) = u(1)/a for a number a
    >>> bool(np.allclose(at.jvp(da), -at.u))
    True
    >>> bool(np.isclose((at.vjp(at.u) * da).sum(), -(at.u**2).sum()))
    True
    """

    operator: Diffusion  # a(a)
    u: Float[Array, "batch n n"]  # the solution
    walls: Array | float  # its values there, as `FiniteVolume.solve` takes them
    inverse: Callable[[Array], Array]  # a⁻¹ of (k, batch, n, n)

    def jvp(self, da: Directions, df: Array | float = 0.0) -> Directions:
        """du, the change of u with a and with f, to first order; df broadcasts to da."""
        return self._solve(self._tangent(da) + df / self.operator.a.shape[-1] ** 2)

    def adjoint(self, v: Directions) -> Directions:
        """λ with A λ = v."""
        return self._solve(v)

    def gradients(self, v: Directions) -> Gradients:
        """With respect to a and to f, of a number with the gradient v with respect to u."""
        adjoint = self.adjoint(v)
        return Gradients(self._sensitivity(adjoint), adjoint / self.operator.a.shape[-1] ** 2)

    def vjp(self, v: Directions) -> Directions:
        """The gradient with respect to a, of a number with the gradient v with respect to u."""
        return self._sensitivity(self.adjoint(v))

    def _solve(self, b: Directions) -> Directions:
        xp, shape = array_namespace(b), tuple(self.u.shape)
        if tuple(b.shape[-3:]) != shape or b.ndim > 4:
            raise ValueError(f"expected directions of shape (*k, {shape}), got {tuple(b.shape)}")
        return xp.reshape(self.inverse(xp.reshape(b, (-1, *shape))), b.shape)

    def _tangent(self, da: Directions) -> Directions:
        """-∂R/∂a da."""
        if is_numpy_namespace(array_namespace(da)):
            return self._compiled(kernels.tangent, da)
        first_x, second_x, first_y, second_y = self.operator.face_slopes
        x, y = jumps(self.u, self.walls)
        d_x = first_x * da[..., :-1, :] + second_x * da[..., 1:, :]
        d_y = first_y * da[..., :-1] + second_y * da[..., 1:]
        xp = array_namespace(da)
        d_x = xp.concat([2 * da[..., :1, :], d_x, 2 * da[..., -1:, :]], axis=-2)
        d_y = xp.concat([2 * da[..., :1], d_y, 2 * da[..., -1:]], axis=-1)
        return outflow(d_x * x, d_y * y)

    def _sensitivity(self, adjoint: Directions) -> Directions:
        """-(∂R/∂a)ᵀ λ."""
        if is_numpy_namespace(array_namespace(adjoint)):
            return self._compiled(kernels.sensitivity, adjoint)
        first_x, second_x, first_y, second_y = self.operator.face_slopes
        (x, y), (to_x, to_y) = jumps(self.u, self.walls), jumps(adjoint)
        x, y = x * to_x, y * to_y
        gradient = array_namespace(adjoint).zeros_like(adjoint)
        gradient[..., :-1, :] -= first_x * x[..., 1:-1, :]
        gradient[..., 1:, :] -= second_x * x[..., 1:-1, :]
        gradient[..., :-1] -= first_y * y[..., 1:-1]
        gradient[..., 1:] -= second_y * y[..., 1:-1]
        for edge in (0, -1):  # the walls
            gradient[..., edge, :] -= 2 * x[..., edge, :]
            gradient[..., edge] -= 2 * y[..., edge]
        return gradient

    def _compiled(self, kernel: Callable[..., None], directions: np.ndarray) -> np.ndarray:
        """The same sums in one pass, for each direction and sample."""
        a, harmonic = self.operator.a, self.operator.faces == "harmonic"
        walls = np.ascontiguousarray(wall_values(self.walls, self.u))
        directions = np.ascontiguousarray(directions, np.float64)
        result = np.empty_like(directions)
        rows = directions.reshape(-1, *a.shape[1:])
        for i, out in enumerate(result.reshape(rows.shape)):
            row = i % len(a)
            kernel(a[row], harmonic, rows[i], self.u[row], walls, out)
        return result
