"""The finite volume operator of -div(a grad u) on square cells, for arrays of any namespace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array

Faces = Literal["harmonic", "arithmetic"]

Cells = Float[Array, "*batch n n"]


@dataclass(frozen=True)
class Diffusion:
    """The operator (A u)_i = Σ_faces a_f (u_i - u_j), which approximates -h² div(a grad u).

    u is 0 at the walls, which lie half a cell from the outermost centres. Hence a_f = 2a on the
    walls.
    """

    a: Array  # coefficients of the cells, shape (batch, n, n), indexed [x, y]
    faces: Faces  # mean on inner faces: "harmonic", 2vw/(v + w), or "arithmetic"

    @cached_property
    def faces_x(self) -> Array:
        """Coefficients a_f on all faces normal to x, shape (batch, n+1, n)."""
        a = self.a
        inner = self._mean(a[:, 1:], a[:, :-1])
        return array_namespace(a).concat([2 * a[:, :1], inner, 2 * a[:, -1:]], axis=1)

    @cached_property
    def faces_y(self) -> Array:
        """Coefficients a_f on all faces normal to y, shape (batch, n, n+1)."""
        a = self.a
        inner = self._mean(a[:, :, 1:], a[:, :, :-1])
        return array_namespace(a).concat([2 * a[:, :, :1], inner, 2 * a[:, :, -1:]], axis=2)

    def _mean(self, v: Array, w: Array) -> Array:
        return 2 * v * w / (v + w) if self.faces == "harmonic" else (v + w) / 2

    def __call__(self, u: Array) -> Array:
        """A u, the total flux out of each cell, computed with few passes over memory."""
        x, y = self.faces_x, self.faces_y
        au = array_namespace(u).zeros_like(u)
        au[:, 0] += x[:, 0] * u[:, 0]
        au[:, -1] += x[:, -1] * u[:, -1]
        au[:, :, 0] += y[:, :, 0] * u[:, :, 0]
        au[:, :, -1] += y[:, :, -1] * u[:, :, -1]
        through = u[:, 1:] - u[:, :-1]
        through *= x[:, 1:-1]
        au[:, :-1] -= through
        au[:, 1:] += through
        through = u[:, :, 1:] - u[:, :, :-1]
        through *= y[:, :, 1:-1]
        au[:, :, :-1] -= through
        au[:, :, 1:] += through
        return au

    def fluxes(self, u: Array, boundary_value: Array | float = 0.0) -> tuple[Array, Array]:
        """Total fluxes -h a_f ∂u/∂n through the faces normal to x and through those normal to y.

        A positive flux points in the direction of the axis.
        """
        x, y = jumps(u, boundary_value)
        return -self.faces_x * x, -self.faces_y * y

    def right_hand_side(self, f: Array | float = 1.0, boundary_value: Array | float = 0.0) -> Array:
        """The right-hand side b of A u = b: h² f plus the inflow from the values at the walls."""
        xp = array_namespace(self.a)
        h = 1 / self.a.shape[1]
        f = xp.asarray(f, dtype=self.a.dtype, device=self.a.device)
        b = h * h * xp.broadcast_to(f, self.a.shape)
        if isinstance(boundary_value, (int, float)) and boundary_value == 0:
            return b
        return b - outflow(*self.fluxes(xp.zeros_like(self.a), boundary_value))

    def relative_residual(self, u: Array, b: Array) -> Array:
        """‖b - A u‖/‖b‖ of each sample, or ‖A u‖ if b is 0."""
        xp = array_namespace(u)
        r = xp.sqrt(xp.sum((b - self(u)) ** 2, axis=(1, 2)))
        size = xp.sqrt(xp.sum(b**2, axis=(1, 2)))
        return r / xp.where(size > 0, size, xp.ones_like(size))

    def matrix(self) -> scipy.sparse.csc_array:
        """A of the first sample as a sparse matrix, cells in C order (NumPy arrays only)."""
        return five_point_matrix(self.faces_x[0], self.faces_y[0])


def five_point_matrix(
    faces_x: Float[np.ndarray, "n1 m"], faces_y: Float[np.ndarray, "n m1"]
) -> scipy.sparse.csc_array:
    """The matrix of the map u -> Σ_faces a_f (u_i - u_j) on n x m cells in C order.

    u is 0 beyond the outermost faces.

    Args:
        faces_x: Coefficients a_f on the faces normal to x, shape (n+1, m).
        faces_y: Coefficients a_f on the faces normal to y, shape (n, m+1).
    """
    diagonal = faces_x[1:] + faces_x[:-1] + faces_y[:, 1:] + faces_y[:, :-1]
    n, m = diagonal.shape
    beside = np.concatenate([-faces_y[:, 1:-1], np.zeros((n, 1))], axis=1).ravel()[:-1]
    below = -faces_x[1:-1].ravel()
    matrix = scipy.sparse.dia_array((n * m, n * m))
    for offset, values in ((0, diagonal.ravel()), (1, beside), (m, below)):
        matrix = matrix + scipy.sparse.diags_array(values, offsets=offset)
        if offset:
            matrix = matrix + scipy.sparse.diags_array(values, offsets=-offset)
    return scipy.sparse.csc_array(matrix)


def jumps(
    u: Cells, boundary_value: Array | float = 0.0
) -> tuple[Float[Array, "*batch n1 n"], Float[Array, "*batch n n1"]]:
    """Differences of u between neighbouring cells, along x and along y.

    The first and the last difference along each line of cells are between a wall and a cell.
    """
    xp = array_namespace(u)
    n, batch = u.shape[-1], u.shape[:-2]
    g = boundary_values(boundary_value, u)
    west, east = (xp.broadcast_to(side, (*batch, 1, n)) for side in (g[0], g[1]))
    south, north = (xp.broadcast_to(side[:, None], (*batch, n, 1)) for side in (g[2], g[3]))
    u_x, u_y = xp.concat([west, u, east], axis=-2), xp.concat([south, u, north], axis=-1)
    return u_x[..., 1:, :] - u_x[..., :-1, :], u_y[..., 1:] - u_y[..., :-1]


def outflow(
    through_x: Float[Array, "*batch n1 n"], through_y: Float[Array, "*batch n n1"]
) -> Cells:
    """The total flux out of each cell through its four faces."""
    x = through_x[..., 1:, :] - through_x[..., :-1, :]
    return x + through_y[..., 1:] - through_y[..., :-1]


def boundary_values(boundary_value: Array | float, u: Cells) -> Float[Array, "4 n"]:
    """Values on x = 0, x = 1, y = 0 and y = 1, shape (4, n).

    Raises ValueError if `boundary_value` is neither a number nor an array of this shape.
    """
    xp, n = array_namespace(u), u.shape[-1]
    g = xp.asarray(boundary_value, dtype=u.dtype, device=u.device)
    if g.ndim and tuple(g.shape) != (4, n):
        raise ValueError(
            f"boundary_value must be a number or of shape (4, {n}), got {tuple(g.shape)}"
        )
    return xp.broadcast_to(g, (4, n))
