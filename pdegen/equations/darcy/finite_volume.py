"""Cell-centred finite volumes for -div(a grad u) = f on the unit square, u given on the walls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from array_api_compat import array_namespace, is_numpy_namespace
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy import kernels
from pdegen.equations.darcy.kernels import (
    add_jumps,
    add_transformed,
    evaluate,
    interface_cg,
    residual,
    tridiagonal_solves,
)
from pdegen.numerics import sines
from pdegen.numerics.device import Array, constant, first_true
from pdegen.numerics.elliptic import EllipticSystem
from pdegen.numerics.errors import SolveError
from pdegen.numerics.sines import Linear, by_fft, by_products, conjugate_gradients

# The finite volume operator of -div(a grad u) on square cells, for arrays of any namespace.


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


# The inverse Laplacian on a cell grid: sine transforms along y, tridiagonal solves along x.


@dataclass(frozen=True)
class Poisson:
    """Solves L u = r on a cell grid, (L u)_ij = Σ_faces (u_ij - u_neighbour), u = 0 at the walls.

    L is h² times the negative five-point Laplacian. Walls lie half a cell from the outermost
    centres, so that each face on a wall contributes 2 u_ij. A sine transform diagonalises L along
    y. For each sine, a tridiagonal system along x remains, which takes two sweeps.

    >>> poisson = Poisson(CellGrid(4))
    >>> u = poisson(np.eye(4))
    >>> float((4 * u[1, 1] - u[0, 1] - u[2, 1] - u[1, 0] - u[1, 2]).round(12))
    1.0
    """

    grid: CellGrid  # the cells along each axis
    # whether sine transforms are FFTs or matrix products; by default the faster one
    fft: bool | None = None

    @cached_property
    def _fft(self) -> bool:
        return sines.faster_by_fft(self.grid.n) if self.fft is None else self.fft

    @cached_property
    def sines(self) -> Float[np.ndarray, "n n"]:
        """The orthonormal matrix √(2/n) sin(πk(j + ½)/n) of the DST-II, indexed [j, k-1]."""
        return sines.matrix(self.grid)

    @cached_property
    def eigenvalues(self) -> Float[np.ndarray, " n"]:
        """Eigenvalues λ_k = 4 sin²(πk/2n), k = 1 ... n, of the operator along one axis."""
        n = self.grid.n
        return 4 * np.sin(np.pi * np.arange(1, n + 1) / (2 * n)) ** 2

    @cached_property
    def pivots(self) -> Float[np.ndarray, "n n"]:
        """Inverse pivots of Thomas' algorithm along x for each sine along y, indexed [x, sine]."""
        n = self.grid.n
        diagonal = np.full(n, 2.0)
        diagonal[0] += 1
        diagonal[-1] += 1  # 4 in a single cell
        pivots, last = np.empty((n, n)), np.zeros(n)
        for i in range(n):
            pivots[i] = last = 1 / (diagonal[i] + self.eigenvalues - last)
        return pivots

    def transformed(self, r: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The sine transform of r along y."""
        if self._fft:
            return scipy.fft.dst(r, type=2, norm="ortho", workers=1)
        return r @ self.sines

    def __call__(self, r: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """u with L u = r."""
        return self.from_transformed(self.transformed(r))

    def from_transformed(self, hat: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """u with L u = r, where `hat` is the sine transform of r along y; `hat` is overwritten."""
        tridiagonal_solves(hat, self.pivots)
        if self._fft:
            return scipy.fft.dst(hat, type=3, norm="ortho", overwrite_x=True, workers=1)
        return hat @ self.sines.T


# Conjugate gradients on the interface of a piecewise constant coefficient.


Graph = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray
]  # fmt: skip


@dataclass(frozen=True)
class InterfaceSolver:
    """Solves A u = b for the finite volumes of a piecewise constant coefficient.

    Let Γ be the set of cells at a jump of a, and let L be the Laplacian. The solution is written as
    u = L⁻¹(b/a + σ), where the unknown "charges" σ are 0 outside Γ. Outside Γ, A = a L, so that u
    satisfies the equation for any σ. On Γ the equation is a σ + J L⁻¹(b/a + σ) = 0. Here
    J = A - a L couples the two cells of each face at a jump.

    Conjugate gradients on A, preconditioned by L, solve this equation on Γ. The iterates are stored
    on Γ only. Each iteration applies L⁻¹ from Γ to Γ once, by one tridiagonal sweep and by
    sine transforms that are restricted to the cells of Γ. The number of iterations does not depend
    on the mesh, and hardly on the contrast.

    Quantities that depend on a alone are cached for further right-hand sides.
    """

    poisson: Poisson  # L⁻¹ on the grid
    a: Float[np.ndarray, "n n"]  # coefficient
    harmonic: bool  # whether means on faces are harmonic, not arithmetic
    limit: int  # largest number of iterations

    @cached_property
    def _graph(self) -> Graph:
        return interface_graph(self.a, self.harmonic)

    def __call__(
        self, b: Float[np.ndarray, "n n"], rtol: float
    ) -> tuple[Float[np.ndarray, "n n"], int]:
        """u and the number of iterations.

        If `limit` iterations suffice, then ‖b - A u‖ <= rtol ‖b‖. The right-hand side b includes
        the factor h².
        """
        a, poisson = self.a, self.poisson
        rows, columns, values, first, second, jump1, jump2 = self._graph
        size = float(np.linalg.norm(b))
        u, r, z, iterations = np.zeros_like(b), b, np.empty(len(columns)), 0
        for _ in range(3):  # once; more only if rounding leaves a residual above the tolerance
            hat = poisson.transformed(r / a)
            work = hat.copy()
            tridiagonal_solves(work, poisson.pivots)
            evaluate(rows, columns, poisson.sines, work, z)
            on_interface = np.zeros_like(z)
            add_jumps(first, second, -jump1, -jump2, z, on_interface)
            charges, count = interface_cg(
                rows, columns, values, first, second, jump1, jump2,
                poisson.sines, poisson.pivots, on_interface, 0.5 * rtol * size,
                self.limit - iterations,
            )  # fmt: skip
            add_transformed(rows, columns, charges, poisson.sines, hat)
            u += poisson.from_transformed(hat)
            iterations += count
            r = np.empty_like(b)
            if residual(a, self.harmonic, b, u, r) <= (rtol * size) ** 2:
                break
        return u, iterations


def interface_graph(a: Float[np.ndarray, "n m"], harmonic: bool) -> Graph:
    """The cells at jumps of a, row by row, and the faces at which a jumps.

    Returns:
        start, columns: The cells start[i] <= c < start[i+1] lie in row i. Cell c lies in column
            columns[c].
        values: The coefficient a in these cells.
        first, second: Numbers c and d of the two cells at each face.
        jump1, jump2: a_f - a_c and a_f - a_d, where a_f is the coefficient on the face.
    """
    n, m = a.shape
    faces = np.zeros((n, m, 2), bool)  # below each cell, and to its right
    below, right = faces[:-1, :, 0], faces[:, :-1, 1]
    np.not_equal(a[:-1], a[1:], out=below)
    np.not_equal(a[:, :-1], a[:, 1:], out=right)
    marked = faces[..., 0] | faces[..., 1]
    marked[1:] |= below
    marked[:, 1:] |= right
    cells, coefficients = np.flatnonzero(marked), a.ravel()
    number = np.empty(n * m, np.int64)  # of the marked cells
    number[cells] = np.arange(len(cells))
    jumps = np.flatnonzero(faces)
    cell = jumps >> 1
    neighbour = cell + np.where(jumps & 1, 1, m)
    v, w = coefficients[cell], coefficients[neighbour]
    mean = 2 * v * w / (v + w) if harmonic else (v + w) / 2
    start = np.zeros(n + 1, np.int64)
    np.cumsum(marked.sum(axis=1), out=start[1:])
    ends = number[cell], number[neighbour]
    return start, cells % m, coefficients[cells], *ends, mean - v, mean - w


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
        """Returns the solution for `a` unchanged."""
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
        """The map from the right-hand sides of a batch to solutions, for all samples together."""
        a = operator.a
        xp = array_namespace(a)
        # number of inner faces at which a jumps, for each sample
        jumps = xp.sum(xp.astype(a[:, 1:] != a[:, :-1], xp.int64), axis=(1, 2))
        jumps = jumps + xp.sum(xp.astype(a[:, :, 1:] != a[:, :, :-1], xp.int64), axis=(1, 2))
        smooth = jumps >= _PIECEWISE * self.grid.n**2
        scale = None
        if bool(xp.any(smooth)):
            scale = xp.where(smooth[:, None, None], 1 / xp.sqrt(a), xp.ones_like(a))
        preconditioner = self._preconditioner(a, scale)

        def solve(b: Array) -> Solution:
            u, iterations = conjugate_gradients(
                operator, preconditioner, b, 0.5 * self.rtol, self.limit
            )
            return Solution(u, operator.relative_residual(u, b), iterations)

        return solve

    def _preconditioner(self, a: Array, scale: Array | None) -> Linear:
        """The map r -> s L⁻¹ s r for arrays like a, by sine transforms; s is 1 if None."""
        sines = (by_fft if self.fft else by_products)(self.grid, a)
        values = constant(self._poisson.eigenvalues, a)
        weights = 1 / (values[:, None] + values)

        def preconditioned(r: Array) -> Array:
            hat = sines.forward(r if scale is None else scale * r)
            hat *= weights
            z = sines.backward(hat)
            return z if scale is None else scale * z

        return preconditioned

    def system(self, a: Array, f: Array, walls: float, smooth: bool) -> EllipticSystem:
        """The discrete equations for a batch in float64, for arrays of any namespace.

        The inverse is a^-½ L⁻¹ a^-½ if a is smooth, and L⁻¹ otherwise, with the Laplacian L.
        """
        operator, scale = Diffusion(a, self.faces), None
        if smooth:
            scale = 1 / array_namespace(a).sqrt(a)
        b = operator.right_hand_side(f)
        return EllipticSystem(operator, self._preconditioner(a, scale), b, walls)


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
