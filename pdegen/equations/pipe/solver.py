"""Finite elements for steady flow through bent pipes: (u·∇)u = -∇p + ν Δu, div u = 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float, Int

from pdegen.numerics.device import Array, constant, first_true, singular_matrix_error, zeros
from pdegen.numerics.errors import SolveError
from pdegen.numerics.sines import solve_block_tridiagonal
from pdegen.numerics.spectral import with_midpoints

# Centre lines of pipes: piecewise cubic polynomials with given heights and slopes at knots.


CUBICS = 4  # cubic pieces along a pipe


@dataclass(frozen=True)
class CentreLine:
    """Heights y(x) of the centre lines of pipes for 0 <= x <= length.

    Knot e has the height d_e and the slope m_e = dy/dt, where t = 4x/length - e. For 0 <= t <= 1,
    y = d_e (1 - 3t² + 2t³) + m_e (t - 2t² + t³) + d_{e+1} (3t² - 2t³) + m_{e+1} (t³ - t²).

    >>> line = CentreLine(np.array([[0.0, 1, 0, 0, 0]]), np.zeros((1, 5)))
    >>> line(9).tolist()
    [[0.0, 0.5, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """

    heights: Float[np.ndarray, "batch 5"]  # heights d_0 ... d_4 at the five knots
    slopes: Float[np.ndarray, "batch 5"]  # slopes m_0 ... m_4 = dy/dt at the knots

    def __call__(self, n: int) -> Float[np.ndarray, "batch n"]:
        """Heights y at n equally spaced x, including both ends."""
        position = np.arange(n) * CUBICS / (n - 1)
        e = np.minimum(position.astype(int), CUBICS - 1)
        t = position - e
        falling, rising = 1 - 3 * t**2 + 2 * t**3, 3 * t**2 - 2 * t**3
        d, m = self.heights, self.slopes
        return (
            d[:, e] * falling
            + m[:, e] * (t - 2 * t**2 + t**3)
            + d[:, e + 1] * rising
            + m[:, e + 1] * (t**3 - t**2)
        )


# Taylor-Hood elements in a bent pipe: shape functions, element values and assembly.


class Basis(NamedTuple):
    """Shape functions at the Gauss points of an element.

    Points, nodes and corners are numbered line by line along x, and along y on each line.
    """

    weights: Float[Array, " points"]  # quadrature weights times the area of the element
    position: Float[Array, " points"]  # position along the element, 0 to 1
    parabolas: Float[Array, "points 9"]  # shape functions of the nine nodes
    # along, across: their derivatives by x at constant distance from the centre line, and by y
    along: Float[Array, "points 9"]
    across: Float[Array, "points 9"]
    lines: Float[Array, "points 4"]  # bilinear shape functions of the four corners


@dataclass(frozen=True)
class TaylorHood:
    """Taylor-Hood elements on rectangles that are sheared in the direction of y.

    In each element, the velocity is biquadratic, the pressure bilinear, and the centre line
    quadratic in x. The nodes lie on lines x = const. All elements have the area
    length/columns/rows. Arrays of element values have the axes (batch, column, row, ...).

    References: C. Taylor and P. Hood, Comput. Fluids 1 (1973).
    """

    # columns, rows: elements along the pipe and across
    columns: int
    rows: int
    length: float  # length of the pipe along x
    gauss: int  # quadrature points along each axis of an element; with 4 all integrals are exact

    @property
    def area(self) -> float:
        """Area of an element."""
        return self.length / self.columns / self.rows

    @cached_property
    def _basis(self) -> Basis:
        """The shape functions, as NumPy arrays."""
        x, w = np.polynomial.legendre.leggauss(self.gauss)
        t, w = (x + 1) / 2, w / 2
        parabolas = np.stack([(1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)], axis=-1)
        slopes = np.stack([4 * t - 3, 4 - 8 * t, 4 * t - 1], axis=-1)
        lines = np.stack([1 - t, t], axis=-1)

        def product(along: np.ndarray, across: np.ndarray) -> np.ndarray:
            return np.einsum("xa,yb->xyab", along, across).reshape(self.gauss**2, -1)

        return Basis(
            self.area * np.multiply.outer(w, w).ravel(),
            np.repeat(t, self.gauss),
            product(parabolas, parabolas),
            product(slopes, parabolas) * self.columns / self.length,
            product(parabolas, slopes) * self.rows,
            product(lines, lines),
        )

    def basis(self, like: Array) -> Basis:
        """The shape functions, copied to the device of the array `like`."""
        return Basis(*(constant(values, like) for values in self._basis))

    def gradients(self, centre: Array) -> Float[Array, "batch columns points 2 9"]:
        """Derivatives ∂φ/∂x and ∂φ/∂y of the nine shape functions φ at the Gauss points.

        Let η be the distance in y from the centre line. Then ∂φ/∂x is the derivative of φ by x at
        constant η, minus the slope of the centre line times ∂φ/∂y. `centre` (batch, lines) has the
        heights of the centre line at the lines of nodes.
        """
        xp = array_namespace(centre)
        _, t, _, along, across, _ = self.basis(centre)
        y0, y1, y2 = centre[:, :-1:2, None], centre[:, 1::2, None], centre[:, 2::2, None]
        slope = ((4 * t - 3) * y0 + (4 - 8 * t) * y1 + (4 * t - 1) * y2) * self.columns
        slope = slope[..., None] / self.length
        return xp.stack(xp.broadcast_arrays(along - slope * across, across), axis=-2)

    def elements(self, values: Array) -> Float[Array, "batch columns rows k 9"]:
        """Values at the nine nodes of each element, from values (batch, k, lines, nodes)."""
        xp, n, m = array_namespace(values), self.columns, self.rows
        parts = [
            values[:, :, a : a + 2 * n - 1 : 2, b : b + 2 * m - 1 : 2]
            for a in range(3)
            for b in range(3)
        ]
        return xp.permute_dims(xp.stack(parts, axis=-1), (0, 2, 3, 1, 4))

    def nodes(self, parts: Array, batch: int) -> Float[Array, "batch k lines nodes"]:
        """Sums the values of all elements at each node: the transpose of `elements`."""
        xp, n, m, k = array_namespace(parts), self.columns, self.rows, parts.shape[3]
        parts = xp.permute_dims(parts, (0, 3, 1, 2, 4))
        total = zeros((batch, k, 2 * n + 1, 2 * m + 1), parts)
        for i in range(9):
            a, b = divmod(i, 3)
            total[:, :, a : a + 2 * n - 1 : 2, b : b + 2 * m - 1 : 2] += parts[..., i]
        return total

    def corners(self, parts: Array, batch: int) -> Float[Array, "batch columns+1 rows+1"]:
        """Sums the values (batch, columns, rows, 4) of all elements at each corner."""
        n, m = self.columns, self.rows
        total = zeros((batch, n + 1, m + 1), parts)
        for i in range(4):
            a, b = divmod(i, 2)
            total[:, a : a + n, b : b + m] += parts[..., i]
        return total

    def slopes(self, velocity: Array, gradients: Array) -> Float[Array, "b c r 2 points 2"]:
        """Derivatives ∂u_i/∂x_j at the Gauss points. The last axes are i, point and j."""
        xp, (batch, n, points) = array_namespace(velocity), gradients.shape[:3]
        local = xp.reshape(self.elements(velocity), (batch, n, self.rows * 2, 9))
        by = xp.matrix_transpose(xp.reshape(gradients, (batch, n, points * 2, 9)))
        return xp.reshape(local @ by, (batch, n, self.rows, 2, points, 2))

    def mass_defect(self, slopes: Array) -> Float[Array, "batch columns rows 4"]:
        """-∫ ψ div u over each element, for the bilinear shape functions ψ of its corners."""
        basis = self.basis(slopes)
        divergence = slopes[..., 0, :, 0] + slopes[..., 1, :, 1]
        return -divergence @ (basis.weights[:, None] * basis.lines)

    # the unknowns of a column of elements: u, v, p on its left line, u, v on its middle line, and
    # u, v, p on its right line

    @property
    def unknowns(self) -> tuple[int, int]:
        """Numbers of unknowns on a line between two columns, and on the middle line of a column."""
        inside = 2 * (2 * self.rows - 1)
        return inside + self.rows + 1, inside

    @cached_property
    def scatter(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Indices for the assembly of the matrix of a column from its element matrices."""
        m, (outer, inner) = self.rows, self.unknowns
        size = 2 * outer + inner
        line = np.array([0, outer, outer + inner])
        element = np.arange(m)[:, None, None, None]
        component, a, b = np.meshgrid(np.arange(2), np.arange(3), np.arange(3), indexing="ij")
        node = 2 * element + b - 1
        number = line[a] + component * (2 * m - 1) + node
        number = np.where((node >= 0) & (node < 2 * m - 1), number, -1).reshape(m, 18)
        corner = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        pressure = line[2 * corner[0]] + inner + np.arange(m)[:, None] + corner[1]
        unknown = np.concatenate([number, pressure], axis=1)  # (rows, 22), -1 on walls
        entry = (unknown[:, :, None] * size + unknown[:, None, :]).reshape(m, -1)
        free = ((unknown >= 0)[:, :, None] & (unknown >= 0)[:, None, :]).reshape(m, -1)
        pairs = list[tuple[np.ndarray, np.ndarray]]()
        for parity in (0, 1):
            chosen = free & (np.arange(m) % 2 == parity)[:, None]
            pairs.append((np.flatnonzero(chosen), entry[chosen]))
        return pairs


# Velocity and pressure at the nodes of a mesh, and their interpolation to a finer mesh.


class PipeFlow(NamedTuple):
    """Velocity and pressure at the nodes of a mesh."""

    # velocity (u, v) at the nodes; lines have constant x
    velocity: Float[Array, "batch 2 lines nodes"]
    pressure: Float[Array, "batch columns+1 rows+1"]  # at the corners of the elements

    def refined(self, axes: tuple[int, ...] = (1, 2)) -> PipeFlow:
        """The flow, interpolated to a mesh that is twice as fine along the given axes.

        Axis 1 is along the pipe, and axis 2 across it.
        """
        velocity, pressure = self
        for axis in axes:
            velocity, pressure = with_midpoints(velocity, axis + 1), _with_midpoints(pressure, axis)
        return PipeFlow(velocity, pressure)

    @property
    def at_nodes(self) -> Float[Array, "batch lines nodes"]:
        """The pressure, interpolated to the nodes of the velocity."""
        return _with_midpoints(_with_midpoints(self.pressure, 1), 2)


def _with_midpoints(values: Array, axis: int) -> Array:
    """Inserts the means of neighbouring values between them, along an axis."""
    xp = array_namespace(values)
    v = xp.moveaxis(values, axis, 0)
    parts = xp.stack([v[:-1], (v[:-1] + v[1:]) / 2], axis=1)
    joined = xp.concat([xp.reshape(parts, (-1, *v.shape[1:])), v[-1:]])
    return xp.moveaxis(joined, 0, axis)


FLOW_RATE = 1 / 6  # flow through a section
_MOST_STEPS = 20  # largest number of Newton steps
# the relative residual to reach, and the one accepted if rounding stops its fall
_CONVERGED, _STAGNANT = 1e-11, 1e-8
_DIVERGED = 1e6  # residual from which Newton's method does not recover

Nodes = Float[Array, "batch 2 lines nodes"]
Centre = Float[Array, "batch lines"]


class Converged(NamedTuple):
    """Flows that satisfy the discrete equations."""

    flow: PipeFlow  # velocity and pressure
    # Euclidean norm of the residual, relative to the pressure force in a straight pipe
    residual: Float[Array, " batch"]
    iterations: Int[Array, " batch"]  # number of linear systems solved, for each sample


@dataclass(frozen=True)
class Pipe:
    """Steady flow through a pipe of height 1 around a centre line, 0 <= x <= length.

    At the inlet x = 0 the velocity is (1/4 - η², 0), where η is the distance in y from the centre
    line. The velocity is 0 on the walls, and ν ∂u/∂n = p n at the outlet. Taylor-Hood elements
    discretise the equations. Newton's method solves them. Block elimination solves its linear
    systems, one column of elements after another along the pipe.

    In a straight pipe the velocity does not depend on x, and the pressure falls by 2ν per length:

    >>> pipe = Pipe(columns=4, rows=2, length=10.0, viscosity=0.005)
    >>> flow, residual, iterations = pipe.solve(np.zeros((1, 9)))
    >>> float(flow.pressure[0, 0, 0].round(12)), float(flow.velocity[0, 0, -1, 2].round(12))
    (0.1, 0.25)
    """

    # columns, rows: elements along the pipe and across
    columns: int
    rows: int
    length: float  # length of the pipe along x
    viscosity: float  # viscosity ν > 0
    # quadrature points along each axis of an element; with 4 all integrals are exact
    gauss: int = 4

    def solve(
        self, centre: Centre, start: PipeFlow | None = None, force: Nodes | None = None
    ) -> Converged:
        """The flow through pipes with these centre lines.

        `centre` has the heights of the centre lines at 2 columns + 1 equally spaced x. Newton's
        method starts from the flow `start` and keeps the velocity of `start` at the inlet and on
        the walls. Without `start`, it starts from the flow through a straight pipe. `force` is
        ∫ f φ for a body force f and the shape function φ of each node. Raises SolveError if
        Newton's method does not converge.
        """
        xp = array_namespace(centre)
        flow = start or self.straight(centre)
        velocity, pressure = (
            xp.asarray(flow.velocity, copy=True),
            xp.asarray(flow.pressure, copy=True),
        )
        gradients = self.mesh.gradients(centre)
        residual = xp.full_like(centre[:, 0], float("inf"))
        iterations = xp.astype(xp.zeros_like(residual), xp.int64)
        active = constant(np.arange(len(centre)), centre)
        for step in range(_MOST_STEPS + 1):
            part = PipeFlow(velocity[active], pressure[active])
            momentum, mass = self._residual(part, gradients[active])
            if force is not None:
                momentum += _inside(xp.asarray(force[active], copy=True))
            norm = xp.sqrt(xp.sum(momentum**2, axis=(1, 2, 3)) + xp.sum(mass**2, axis=(1, 2)))
            norm /= self._scale
            diverged = first_true(~(norm < _DIVERGED))
            if diverged is not None:
                raise SolveError(
                    int(active[diverged]), "Newton's method diverges: the pipe bends too far"
                )
            stagnant = (norm <= _STAGNANT) & (norm > residual[active] / 4)
            residual[active] = norm
            unconverged = ~((norm <= _CONVERGED) | stagnant)
            if not bool(xp.any(unconverged)):
                return Converged(PipeFlow(velocity, pressure), residual, iterations)
            if step < _MOST_STEPS:
                active = active[unconverged]
                part = PipeFlow(velocity[active], pressure[active])
                try:
                    change = self._step(
                        part, gradients[active], momentum[unconverged], mass[unconverged]
                    )
                except SolveError as failure:
                    raise SolveError(int(active[failure.row]), failure.reason) from failure
                velocity[active] += change.velocity
                pressure[active] += change.pressure
                iterations[active] += 1
        raise SolveError(
            int(active[0]),
            f"the residual is {float(residual[active[0]]):.1e} after {_MOST_STEPS} Newton steps: "
            "the pipe bends too far",
        )

    def improved(self, centre: Centre, flow: PipeFlow) -> PipeFlow:
        """The flow after one step of Newton's method that starts from `flow`.

        Raises SolveError if a matrix is singular.
        """
        gradients = self.mesh.gradients(centre)
        change = self._step(flow, gradients, *self._residual(flow, gradients))
        return PipeFlow(flow.velocity + change.velocity, flow.pressure + change.pressure)

    def straight(self, centre: Centre) -> PipeFlow:
        """The flow through a straight pipe, repeated once for each centre line."""
        eta = np.linspace(-0.5, 0.5, 2 * self.rows + 1)
        velocity = np.zeros((2, 2 * self.columns + 1, 2 * self.rows + 1))
        velocity[0] = 0.25 - eta**2
        remaining = self.length * (1 - np.arange(self.columns + 1) / self.columns)
        pressure = 2 * self.viscosity * remaining[:, None] * np.ones(self.rows + 1)
        xp, n = array_namespace(centre), centre.shape[0]
        batches = (xp.stack([constant(values, centre)] * n) for values in (velocity, pressure))
        return PipeFlow(*batches)

    def flow_rates(self, flow: PipeFlow) -> Centre:
        """Flow rates through the sections at the lines of nodes. Simpson's rule is exact here."""
        weights = np.full(2 * self.rows + 1, 2.0)
        weights[1::2], weights[[0, -1]] = 4, 1
        return flow.velocity[:, 0] @ constant(weights / (6 * self.rows), flow.velocity)

    def divergence(self, velocity: Nodes, centre: Centre) -> Float[Array, "batch columns+1 rows+1"]:
        """Weak divergence ∫ ψ div u / ∫ ψ for the shape functions ψ of the pressure."""
        batch, n, m = centre.shape[0], self.columns, self.rows
        du = self.mesh.slopes(velocity, self.mesh.gradients(centre))
        parts = -self.mesh.mass_defect(du)
        weight = np.zeros((n + 1, m + 1))
        for a in (0, 1):
            for b in (0, 1):
                weight[a : a + n, b : b + m] += self.mesh.area / 4
        return self.mesh.corners(parts, batch) / constant(weight, centre)

    def residual(self, flow: PipeFlow, centre: Centre) -> Nodes:
        """Residual of the momentum equations, relative to the pressure force in a straight pipe."""
        return self._residual(flow, self.mesh.gradients(centre))[0] / self._scale

    @cached_property
    def mesh(self) -> TaylorHood:
        """The finite elements of the pipe."""
        return TaylorHood(self.columns, self.rows, self.length, self.gauss)

    @cached_property
    def _scale(self) -> float:
        """Norm of the nodal forces of the pressure gradient 2ν in a straight pipe."""
        basis = self.mesh.basis(np.zeros(1))
        local = basis.weights @ basis.parabolas
        local = np.broadcast_to(local, (1, self.columns, self.rows, 1, 9))
        force = 2 * self.viscosity * self.mesh.nodes(local, 1)
        return float(np.linalg.norm(_inside(force)))

    def _residual(
        self, flow: PipeFlow, gradients: Array
    ) -> tuple[Nodes, Float[Array, "batch columns+1 rows+1"]]:
        """Negative residuals of the momentum equations and of the mass equation."""
        xp, (batch, n, points) = array_namespace(gradients), gradients.shape[:3]
        weights, _, phi, _, _, psi = self.mesh.basis(gradients)
        du = self.mesh.slopes(flow.velocity, gradients)
        u = self.mesh.elements(flow.velocity) @ xp.matrix_transpose(phi)
        p = flow.pressure
        corners = xp.stack([p[:, :-1, :-1], p[:, :-1, 1:], p[:, 1:, :-1], p[:, 1:, 1:]], axis=-1)
        p = corners @ xp.matrix_transpose(psi)  # (batch, columns, rows, points)
        convection = du[..., 0] * u[..., :1, :] + du[..., 1] * u[..., 1:, :]
        stress = self.viscosity * du
        stress[..., 0, :, 0] -= p
        stress[..., 1, :, 1] -= p
        stress = xp.reshape(stress * weights[:, None], (batch, n, self.rows * 2, points * 2))
        local = xp.reshape(
            stress @ xp.reshape(gradients, (batch, n, points * 2, 9)), (batch, n, self.rows, 2, 9)
        )
        local = local + (convection * weights) @ phi
        momentum = _inside(-self.mesh.nodes(local, batch))
        return momentum, -self.mesh.corners(self.mesh.mass_defect(du), batch)

    def _matrices(
        self, flow: PipeFlow, gradients: Array
    ) -> Iterator[Float[Array, "batch size size"]]:
        """Yields the Newton matrix of each column of elements, starting at the inlet."""
        xp, (batch, n, points) = array_namespace(gradients), gradients.shape[:3]
        m, (outer, inner) = self.rows, self.mesh.unknowns
        size = 2 * outer + inner
        weights, _, phi, _, _, psi = self.mesh.basis(gradients)
        du = self.mesh.slopes(flow.velocity, gradients)
        u = self.mesh.elements(flow.velocity) @ xp.matrix_transpose(phi)
        pairs = xp.reshape(weights[:, None, None] * phi[:, :, None] * phi[:, None, :], (points, 81))
        scatter = [tuple(constant(index, u) for index in pair) for pair in self.mesh.scatter]
        for k in range(n):
            gradient = gradients[:, k]  # (batch, points, 2, 9)
            derivatives = xp.reshape(gradient, (batch, points * 2, 9))
            weighted = xp.reshape(gradient * weights[:, None, None], (batch, points * 2, 9))
            # ν ∫∇φ·∇φ
            viscous = self.viscosity * xp.matrix_transpose(derivatives) @ weighted
            # ∫ φ (u·∇)φ
            transport = (weights[:, None] * phi)[:, None, :, None] * gradient[..., None, :]
            transport = xp.reshape(transport, (batch, points * 2, 81))
            speed = xp.reshape(xp.permute_dims(u[:, k], (0, 1, 3, 2)), (batch, m, points * 2))
            diagonal_block = xp.reshape(speed @ transport, (batch, m, 9, 9)) + viscous[:, None]
            # ∫ φ φ ∂u_i/∂x_j
            reaction = xp.permute_dims(du[:, k], (0, 1, 2, 4, 3)) @ pairs  # (batch, rows, 2, 2, 81)
            # -∫ ψ ∂φ/∂x_i
            pressure_block = -xp.matrix_transpose(
                xp.reshape(xp.permute_dims(gradient, (0, 1, 3, 2)), (batch, points, 18))
            ) @ (weights[:, None] * psi)
            local = zeros((batch, m, 22, 22), u)  # u and v at nine nodes, p at four corners
            for i in (0, 1):
                rows = slice(9 * i, 9 * i + 9)
                for j in (0, 1):
                    part = xp.reshape(reaction[:, :, i, j], (batch, m, 9, 9))
                    local[:, :, rows, 9 * j : 9 * j + 9] = part + diagonal_block if i == j else part
                local[:, :, rows, 18:] = pressure_block[:, None, i::2]
                local[:, :, 18:, rows] = xp.matrix_transpose(pressure_block[:, None, i::2])
            local = xp.reshape(local, (batch, -1))
            matrix = zeros((batch, size**2), u)
            for source, target in scatter:
                matrix[:, target] += local[:, source]
            matrix = xp.reshape(matrix, (batch, size, size))
            if k == 0:  # the velocity at the inlet is given
                rows = constant(np.arange(inner), u)
                matrix[:, :inner, :] = 0
                matrix[:, rows, rows] = 1
            yield matrix

    def _step(self, flow: PipeFlow, gradients: Array, momentum: Array, mass: Array) -> PipeFlow:
        """The change of the flow in one step of Newton's method."""
        xp, m = array_namespace(momentum), self.rows
        batch, _, lines, _ = momentum.shape
        free = xp.reshape(xp.permute_dims(momentum[..., 1:-1], (0, 2, 1, 3)), (batch, lines, -1))
        ends = xp.concat([free[:, ::2], mass], axis=2)
        try:
            line, middle = solve_block_tridiagonal(
                self._matrices(flow, gradients), ends, free[:, 1::2]
            )
        except singular_matrix_error(momentum) as error:
            for row in range(batch) if batch > 1 else ():  # find the sample that fails alone
                rows = slice(row, row + 1)
                sample = PipeFlow(flow.velocity[rows], flow.pressure[rows])
                try:
                    self._step(sample, gradients[rows], momentum[rows], mass[rows])
                except SolveError as failure:
                    raise SolveError(row, failure.reason) from error
            raise SolveError(0, "a matrix is singular: the pipe bends too far") from error
        _, inner = self.mesh.unknowns
        inside = xp.zeros_like(free)
        inside[:, ::2], inside[:, 1::2] = line[..., :inner], middle
        velocity = xp.zeros_like(momentum)
        inside = xp.reshape(inside, (batch, lines, 2, 2 * m - 1))
        velocity[..., 1:-1] = xp.permute_dims(inside, (0, 2, 1, 3))
        return PipeFlow(velocity, line[..., inner:])


def _inside(values: Array) -> Array:
    """Sets the values (..., lines, nodes) at the inlet and on the walls to 0, in place."""
    values[..., 0, :] = 0
    values[..., 0] = 0
    values[..., -1] = 0
    return values
