"""(u·∇)u = -∇p + ν Δu, div u = 0: steady flow through bent pipes, by finite elements, batched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float, Int

from pdegen.equations.pipe.elements import TaylorHood
from pdegen.equations.pipe.flow import PipeFlow
from pdegen.numerics.chain import solve_chain
from pdegen.numerics.device import Array, constant, first, singular, zeros
from pdegen.numerics.failure import SolveError

RATE = 1 / 6  # of flow through a section
_MOST = 20  # steps of Newton's method
_FLAT, _SMALL = 1e-11, 1e-8  # relative residual that is enough; where rounding stops its fall
_LARGE = 1e6  # a residual from which Newton's method does not come back

Nodes = Float[Array, "batch 2 lines nodes"]
Centre = Float[Array, "batch lines"]


class Converged(NamedTuple):
    """Flows that satisfy the discrete equations."""

    flow: PipeFlow  # velocity and pressure
    # of the equations, relative to the force of a straight pipe's pressure, in the Euclidean norm
    residual: Float[Array, " batch"]
    iterations: Int[Array, " batch"]  # linear systems that were solved for each sample


@dataclass(frozen=True)
class Pipe:
    """A pipe of height 1 around a centre line, 0 <= x <= length: the velocity is (1/4 - η², 0) at
    x = 0, where η is the distance from the centre line along y; it vanishes on the walls; at the
    outlet ν ∂u/∂n = p n.

    Elements of Taylor and Hood; Newton's method, whose matrices are eliminated along the pipe,
    column after column of elements.

    Through a straight pipe the parabola goes on, and the pressure falls by 2ν per length:

    >>> pipe = Pipe(columns=4, rows=2, length=10.0, viscosity=0.005)
    >>> flow, residual, iterations = pipe.solve(np.zeros((1, 9)))
    >>> float(flow.pressure[0, 0, 0].round(12)), float(flow.velocity[0, 0, -1, 2].round(12))
    (0.1, 0.25)
    """

    # columns, rows: elements along the pipe and across
    columns: int
    rows: int
    length: float  # of the pipe, along x
    viscosity: float  # ν > 0
    # points of quadrature along each axis of an element; with 4 all integrals are exact
    gauss: int = 4

    def solve(
        self, centre: Centre, start: PipeFlow | None = None, force: Nodes | None = None
    ) -> Converged:
        """The flow through pipes with these centre lines: y at x = 0, length/2columns, ... length.
        It begins at a flow near the solution, whose values at the inlet and on the walls are kept,
        or at that of a straight pipe. A force is ∫ f·φ of the functions φ of the nodes. Raises
        SolveError if Newton's method does not converge."""
        xp = array_namespace(centre)
        flow = start or self.straight(centre)
        velocity, pressure = (
            xp.asarray(flow.velocity, copy=True),
            xp.asarray(flow.pressure, copy=True),
        )
        gradients = self.mesh.gradients(centre)
        residual = xp.full_like(centre[:, 0], float("inf"))
        iterations = xp.astype(xp.zeros_like(residual), xp.int64)
        busy = constant(np.arange(len(centre)), centre)
        for step in range(_MOST + 1):
            part = PipeFlow(velocity[busy], pressure[busy])
            off, lack = self._residual(part, gradients[busy])
            if force is not None:
                off += _inside(xp.asarray(force[busy], copy=True))
            found = xp.sqrt(xp.sum(off**2, axis=(1, 2, 3)) + xp.sum(lack**2, axis=(1, 2)))
            found /= self._scale
            lost = first(~(found < _LARGE))
            if lost is not None:
                raise SolveError(
                    int(busy[lost]), "Newton's method diverges: the pipe bends too far"
                )
            stays = (found <= _SMALL) & (found > residual[busy] / 4)
            residual[busy] = found
            going = ~((found <= _FLAT) | stays)
            if not bool(xp.any(going)):
                return Converged(PipeFlow(velocity, pressure), residual, iterations)
            if step < _MOST:
                busy = busy[going]
                part = PipeFlow(velocity[busy], pressure[busy])
                try:
                    change = self._step(part, gradients[busy], off[going], lack[going])
                except SolveError as failure:
                    raise SolveError(int(busy[failure.row]), failure.reason) from failure
                velocity[busy] += change.velocity
                pressure[busy] += change.pressure
                iterations[busy] += 1
        raise SolveError(
            int(busy[0]),
            f"the residual is {float(residual[busy[0]]):.1e} after {_MOST} Newton steps: "
            "the pipe bends too far",
        )

    def improved(self, centre: Centre, flow: PipeFlow) -> PipeFlow:
        """A flow after one step of Newton's method, which squares its distance to the solution.
        Raises SolveError if a matrix is singular."""
        gradients = self.mesh.gradients(centre)
        change = self._step(flow, gradients, *self._residual(flow, gradients))
        return PipeFlow(flow.velocity + change.velocity, flow.pressure + change.pressure)

    def straight(self, centre: Centre) -> PipeFlow:
        """What flows through a straight pipe, for as many samples."""
        eta = np.linspace(-0.5, 0.5, 2 * self.rows + 1)
        velocity = np.zeros((2, 2 * self.columns + 1, 2 * self.rows + 1))
        velocity[0] = 0.25 - eta**2
        left = self.length * (1 - np.arange(self.columns + 1) / self.columns)
        pressure = 2 * self.viscosity * left[:, None] * np.ones(self.rows + 1)
        xp, n = array_namespace(centre), centre.shape[0]
        both = (xp.stack([constant(one, centre)] * n) for one in (velocity, pressure))
        return PipeFlow(*both)

    def rates(self, flow: PipeFlow) -> Centre:
        """The flow through the sections x = const, by Simpson's rule, which is exact."""
        weights = np.full(2 * self.rows + 1, 2.0)
        weights[1::2], weights[[0, -1]] = 4, 1
        return flow.velocity[:, 0] @ constant(weights / (6 * self.rows), flow.velocity)

    def divergence(self, velocity: Nodes, centre: Centre) -> Float[Array, "batch columns+1 rows+1"]:
        """∫ ψ div u of the functions ψ of the pressure, over ∫ψ."""
        batch, n, m = centre.shape[0], self.columns, self.rows
        du = self.mesh.slopes(velocity, self.mesh.gradients(centre))
        parts = -self.mesh.lack(du)
        weight = np.zeros((n + 1, m + 1))
        for a in (0, 1):
            for b in (0, 1):
                weight[a : a + n, b : b + m] += self.mesh.area / 4
        return self.mesh.corners(parts, batch) / constant(weight, centre)

    def residual(self, flow: PipeFlow, centre: Centre) -> Nodes:
        """What is left of the equations of momentum, relative to the norm of the force of a
        straight pipe's pressure."""
        return self._residual(flow, self.mesh.gradients(centre))[0] / self._scale

    @cached_property
    def mesh(self) -> TaylorHood:
        """Its elements."""
        return TaylorHood(self.columns, self.rows, self.length, self.gauss)

    @cached_property
    def _scale(self) -> float:
        """The norm of the force 2ν on the nodes inside."""
        basis = self.mesh.basis(np.zeros(1))
        local = basis.weights @ basis.parabolas
        local = np.broadcast_to(local, (1, self.columns, self.rows, 1, 9))
        force = 2 * self.viscosity * self.mesh.nodes(local, 1)
        return float(np.linalg.norm(_inside(force)))

    def _residual(
        self, flow: PipeFlow, gradients: Array
    ) -> tuple[Nodes, Float[Array, "batch columns+1 rows+1"]]:
        """Right sides of the equations of momentum, where the velocity is free, and of mass."""
        xp, (batch, n, points) = array_namespace(gradients), gradients.shape[:3]
        weights, _, phi, _, _, psi = self.mesh.basis(gradients)
        du = self.mesh.slopes(flow.velocity, gradients)
        u = self.mesh.elements(flow.velocity) @ xp.matrix_transpose(phi)
        p = flow.pressure
        corners = xp.stack([p[:, :-1, :-1], p[:, :-1, 1:], p[:, 1:, :-1], p[:, 1:, 1:]], axis=-1)
        p = corners @ xp.matrix_transpose(psi)  # (batch, columns, rows, points)
        carried = du[..., 0] * u[..., :1, :] + du[..., 1] * u[..., 1:, :]
        stress = self.viscosity * du
        stress[..., 0, :, 0] -= p
        stress[..., 1, :, 1] -= p
        stress = xp.reshape(stress * weights[:, None], (batch, n, self.rows * 2, points * 2))
        local = xp.reshape(
            stress @ xp.reshape(gradients, (batch, n, points * 2, 9)), (batch, n, self.rows, 2, 9)
        )
        local = local + (carried * weights) @ phi
        off = _inside(-self.mesh.nodes(local, batch))
        return off, -self.mesh.corners(self.mesh.lack(du), batch)

    def _matrices(
        self, flow: PipeFlow, gradients: Array
    ) -> Iterator[Float[Array, "batch size size"]]:
        """The matrix of each column."""
        xp, (batch, n, points) = array_namespace(gradients), gradients.shape[:3]
        m, (outer, inner) = self.rows, self.mesh.sizes
        size = 2 * outer + inner
        weights, _, phi, _, _, psi = self.mesh.basis(gradients)
        du = self.mesh.slopes(flow.velocity, gradients)
        u = self.mesh.elements(flow.velocity) @ xp.matrix_transpose(phi)
        pairs = xp.reshape(weights[:, None, None] * phi[:, :, None] * phi[:, None, :], (points, 81))
        places = [tuple(constant(one, u) for one in pair) for pair in self.mesh.places]
        for k in range(n):
            by = gradients[:, k]  # (batch, points, 2, 9)
            whole = xp.reshape(by, (batch, points * 2, 9))
            heavy = xp.reshape(by * weights[:, None, None], (batch, points * 2, 9))
            viscous = self.viscosity * xp.matrix_transpose(whole) @ heavy
            carrying = (weights[:, None] * phi)[:, None, :, None] * by[..., None, :]
            carrying = xp.reshape(carrying, (batch, points * 2, 81))
            speed = xp.reshape(xp.permute_dims(u[:, k], (0, 1, 3, 2)), (batch, m, points * 2))
            carried = xp.reshape(speed @ carrying, (batch, m, 9, 9)) + viscous[:, None]
            bent = xp.permute_dims(du[:, k], (0, 1, 2, 4, 3)) @ pairs  # (batch, rows, 2, 2, 81)
            pushed = -xp.matrix_transpose(
                xp.reshape(xp.permute_dims(by, (0, 1, 3, 2)), (batch, points, 18))
            ) @ (weights[:, None] * psi)
            local = zeros((batch, m, 22, 22), u)
            for i in (0, 1):
                rows = slice(9 * i, 9 * i + 9)
                for j in (0, 1):
                    part = xp.reshape(bent[:, :, i, j], (batch, m, 9, 9))
                    local[:, :, rows, 9 * j : 9 * j + 9] = part + carried if i == j else part
                local[:, :, rows, 18:] = pushed[:, None, i::2]
                local[:, :, 18:, rows] = xp.matrix_transpose(pushed[:, None, i::2])
            local = xp.reshape(local, (batch, -1))
            matrix = zeros((batch, size**2), u)
            for source, target in places:
                matrix[:, target] += local[:, source]
            matrix = xp.reshape(matrix, (batch, size, size))
            if k == 0:  # the velocity at the inlet is given
                rows = constant(np.arange(inner), u)
                matrix[:, :inner, :] = 0
                matrix[:, rows, rows] = 1
            yield matrix

    def _step(self, flow: PipeFlow, gradients: Array, off: Array, lack: Array) -> PipeFlow:
        """What Newton's method adds to the flow."""
        xp, m = array_namespace(off), self.rows
        batch, _, lines, _ = off.shape
        free = xp.reshape(xp.permute_dims(off[..., 1:-1], (0, 2, 1, 3)), (batch, lines, -1))
        ends = xp.concat([free[:, ::2], lack], axis=2)
        try:
            line, middle = solve_chain(self._matrices(flow, gradients), ends, free[:, 1::2])
        except singular(off) as error:
            alone = range(batch) if batch > 1 else ()
            for row in alone:  # by itself the one that is at fault fails
                one = slice(row, row + 1)
                part = PipeFlow(flow.velocity[one], flow.pressure[one])
                try:
                    self._step(part, gradients[one], off[one], lack[one])
                except SolveError as failure:
                    raise SolveError(row, failure.reason) from error
            raise SolveError(0, "a matrix is singular: the pipe bends too far") from error
        _, inner = self.mesh.sizes
        inside = xp.zeros_like(free)
        inside[:, ::2], inside[:, 1::2] = line[..., :inner], middle
        velocity = xp.zeros_like(off)
        inside = xp.reshape(inside, (batch, lines, 2, 2 * m - 1))
        velocity[..., 1:-1] = xp.permute_dims(inside, (0, 2, 1, 3))
        return PipeFlow(velocity, line[..., inner:])


def _inside(values: Array) -> Array:
    """Values (..., lines, nodes), now 0 where the velocity is given."""
    values[..., 0, :] = 0
    values[..., 0] = 0
    values[..., -1] = 0
    return values
