"""Steady flow of a gas around an airfoil: div(ρu) = 0, div(ρu⊗u) + ∇p = 0, no flow into the wall.

The total enthalpy γ/(γ - 1) p/ρ + |u|²/2 equals that of the stream everywhere, also behind shocks.
The energy equation then holds exactly, and the unknowns are density and velocity.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.equations.airfoil.mesh import (
    NORMAL_CELLS,
    PUBLISHED_CELLS,
    SIDE_CELLS,
    WAKE_CELLS,
    Mesh,
    c_grid,
    topology,
)
from pdegen.numerics.errors import SolveError

# The free stream around an airfoil, and the far-field vortex of its lift.


@dataclass(frozen=True)
class FreeStream:
    """The undisturbed stream, in units in which its density and pressure are 1."""

    mach: float  # Mach number of the stream
    angle: float = 0.0  # angle of attack in degrees: of the stream against the chord
    gamma: float = 1.4  # ratio γ of specific heats

    @property
    def speed(self) -> float:
        """Speed |u| = M γ^½."""
        return self.mach * float(np.sqrt(self.gamma))

    @property
    def direction(self) -> Float[np.ndarray, "2"]:
        """Unit vector in the direction of the velocity."""
        radians = np.deg2rad(self.angle)
        return np.array([np.cos(radians), np.sin(radians)])

    @property
    def state(self) -> Float[np.ndarray, "3"]:
        """The state ρ, u, v of the undisturbed stream."""
        return np.array([1.0, *(self.speed * self.direction)])

    @property
    def enthalpy(self) -> float:
        """Total enthalpy h = γ/(γ - 1) p/ρ + |u|²/2, which is constant in the whole flow."""
        return self.gamma / (self.gamma - 1) + self.speed**2 / 2

    def pressure(self, q: Float[np.ndarray, " *shape 3"]) -> Float[np.ndarray, " *shape"]:
        """Pressure p of states ρ, u, v."""
        rho, u, v = np.moveaxis(q, -1, 0)
        return (self.gamma - 1) / self.gamma * rho * (self.enthalpy - (u * u + v * v) / 2)

    def mach_number(self, q: Float[np.ndarray, " *shape 3"]) -> Float[np.ndarray, " *shape"]:
        """Mach number |u|/c of states ρ, u, v."""
        rho, u, v = np.moveaxis(q, -1, 0)
        return np.sqrt((u * u + v * v) * rho / (self.gamma * self.pressure(q)))

    def with_vortex(
        self, lift: float, points: Float[np.ndarray, "points 2"]
    ) -> Float[np.ndarray, "points 3"]:
        """States ρ, u, v at points far from an airfoil with this lift coefficient.

        The velocity is the sum of the stream and a vortex. The vortex is centred at a quarter of
        the chord and rotates clockwise with the circulation |u| lift/2. The density follows from
        the total enthalpy and the entropy of the stream.

        References: J. L. Thomas and M. D. Salas, Far-field boundary conditions for transonic
        lifting solutions to the Euler equations, AIAA J. 24 (1986).
        """
        x, y = (points - [0.25, 0.0]).T
        cos, sin = self.direction
        squared_distance = x**2 + y**2 - (self.mach * (y * cos - x * sin)) ** 2
        swirl = self.speed * lift / 2 * np.sqrt(1 - self.mach**2) / (2 * np.pi * squared_distance)
        u, v = self.speed * cos + swirl * y, self.speed * sin - swirl * x
        temperature = (self.gamma - 1) / self.gamma * (self.enthalpy - (u**2 + v**2) / 2)
        return np.stack([temperature ** (1 / (self.gamma - 1)), u, v], axis=-1)


# CFL numbers: of the first step, of the first step from a nearby flow, and the largest
_FIRST_CFL, _NEAR_CFL, _LARGEST_CFL = 20.0, 50.0, 1e9
_DENSITY_CHANGE, _VELOCITY_CHANGE = 0.3, 0.4  # largest changes in a step; densities are relative
_LEAST_ENTHALPY = 0.05  # of h that must remain beside the kinetic energy
# largest growth of the CFL number in a step, while the residual is above _CLOSE and below it
_GROWTH, _CLOSE = (2, 10), 0.1
_HALVINGS = 6  # lengths that the line search tries
_INEXACT, _SWEEPS = 1e-3, 6  # relative residual of linear systems, and sweeps of refinement

States = Float[np.ndarray, "cells 3"]


@dataclass(frozen=True)
class Solution:
    """A steady flow, its residual and the number of iterations."""

    q: States  # ρ, u, v of the cells
    residual: float  # norm of the residual, over that of the undisturbed stream
    iterations: int  # number of linear systems solved


@dataclass(frozen=True)
class Euler:
    """Finite-volume discretisation of the steady Euler equations on a mesh.

    The scheme uses Roe's flux with Rieper's correction for low Mach numbers. The MUSCL scheme with
    κ = 0.9 reconstructs the states at a face, and van Albada's limiter acts where the Mach number
    is near or above 1. Newton's method with pseudo-time steps finds the steady flow. Sparse
    elimination solves the linear systems.

    References: P. L. Roe, J. Comput. Phys. 43 (1981); B. van Leer, J. Comput. Phys. 32 (1979);
    F. Rieper, J. Comput. Phys. 230 (2011); W. A. Mulder and B. van Leer, J. Comput. Phys. 59
    (1985), for the pseudo-time step; M. Ceze and K. J. Fidkowski, AIAA 2013-2686, for the line
    search.
    """

    mesh: Mesh  # mesh of the cells
    stream: FreeStream  # the undisturbed gas
    # states ρ, u, v outside the far-field faces; by default the stream with the vortex of the
    # flow's lift
    outside: Float[np.ndarray, "faces 3"] | None = None

    def _arrays(
        self, q: np.ndarray
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """The arguments `faces`, `far` and `wall` of `kernels` for the states q."""
        outside = self.outside
        if outside is None:
            outside = self.stream.with_vortex(self.forces(q)[1], self.mesh.outside)
        return self.mesh.faces, self.mesh.far(outside), self.mesh.wall

    @property
    def _gas(self) -> tuple[float, float]:
        return self.stream.enthalpy, self.stream.gamma

    @property
    def undisturbed(self) -> States:
        """The state of the undisturbed stream, repeated for every cell."""
        return np.tile(self.stream.state, (len(self.mesh.volumes), 1))

    def residual(self, q: States) -> States:
        """Net outflow of mass and momentum from each cell."""
        return self._residual(q)[0]

    def _residual(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from pdegen.equations.airfoil.kernels import residual

        return residual(q, *self._arrays(q), self._gas)

    def jacobian(self, q: States) -> Float[np.ndarray, "entries 3 3"]:
        """Derivatives of `residual` by q: the nonzero blocks, in the order of `Topology.columns`.

        The states outside are treated as constant, although they depend on the lift.
        """
        from pdegen.equations.airfoil.kernels import jacobian

        top = self.mesh.topology
        return jacobian(q, *self._arrays(q), self._gas, top.positions, len(top.columns))

    def _admissible(self, q: np.ndarray) -> bool:
        """Whether all densities are positive and no cell is near a vacuum."""
        rest = self.stream.enthalpy - (q[:, 1] ** 2 + q[:, 2] ** 2) / 2
        return bool((q[:, 0] > 0).all() and (rest > _LEAST_ENTHALPY * self.stream.enthalpy).all())

    def _step(self, q: np.ndarray, residual: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """Solution dq of the linear system (V/dt ∂U/∂q + ∂R/∂q) dq = -R."""
        from scipy.sparse import bsr_array
        from scipy.sparse.linalg import splu

        top, blocks = self.mesh.topology, self.jacobian(q)
        rho, u, v = q.T
        diagonal = top.diagonal  # V/dt ∂U/∂q of U = ρ, ρu, ρv
        blocks[diagonal, 0, 0] += rate
        blocks[diagonal, 1, 0] += rate * u
        blocks[diagonal, 2, 0] += rate * v
        blocks[diagonal, 1, 1] += rate * rho
        blocks[diagonal, 2, 2] += rate * rho
        matrix = bsr_array((blocks, top.columns, top.starts)).tocsc()
        for dtype in (np.float32, np.float64):  # half the memory, if that is enough
            factors = splu(
                matrix.astype(dtype),
                "MMD_AT_PLUS_A",
                diag_pivot_thresh=1e-3,
                options={"SymmetricMode": True},
            )
            change, remainder = np.zeros(residual.size), -residual.ravel()
            limit = _INEXACT * np.linalg.norm(remainder)
            for _ in range(_SWEEPS):
                change += factors.solve(remainder.astype(dtype))
                remainder = -residual.ravel() - matrix @ change
                if np.linalg.norm(remainder) <= limit:
                    break
            else:
                continue
            break
        return change.reshape(q.shape)

    def solve(
        self, start: States, tolerance: float, most: int = 120, courant: float = _FIRST_CFL
    ) -> Solution:
        """The steady flow, computed with pseudo-time steps that grow as the residual falls.

        The first step starts at the state `start` and has the CFL number `courant`. Raises
        SolveError if the residual is above the tolerance after `most` steps.
        """
        scale = float(np.linalg.norm(self.residual(self.undisturbed)))
        q = start
        residual, speed = self._residual(q)
        norm = float(np.linalg.norm(residual)) / scale
        for iteration in range(most):
            if norm <= tolerance:
                return Solution(q, norm, iteration)
            rate = speed / (2 * courant)
            stepped = self._line_search(q, self._step(q, residual, rate), rate, norm * scale)
            if stepped is None:  # a smaller pseudo-time step
                courant = max(courant / 5, 0.1)
                continue
            q, residual, speed, length = stepped
            before, norm = norm, float(np.linalg.norm(residual)) / scale
            if length == 1:
                growth = np.clip(1.5 * before / norm, 1, _GROWTH[0 if norm > _CLOSE else 1])
                courant = min(courant * float(growth), _LARGEST_CFL)
            elif length < 0.1:
                courant /= 2
        raise SolveError(
            0,
            f"the flow is not steady: its residual is {norm:.2g} after {most} steps, at most "
            f"{tolerance:g} is allowed",
        )

    @staticmethod
    def _length(q: np.ndarray, change: np.ndarray) -> float:
        """The largest fraction of a step, at most 1, that changes the states moderately."""
        densities = float(np.abs(change[:, 0] / q[:, 0]).max())
        velocities = float(np.hypot(change[:, 1], change[:, 2]).max())
        return 1 / max(1, densities / _DENSITY_CHANGE, velocities / _VELOCITY_CHANGE)

    def _line_search(
        self, q: np.ndarray, change: np.ndarray, rate: np.ndarray, limit: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float] | None:
        """Line search: halves the step until the norm of V/dt ΔU + R is below `limit`."""
        length, before = self._length(q, change), _conserved(q)
        for _ in range(_HALVINGS):
            new = q + length * change
            if self._admissible(new):
                residual, speed = self._residual(new)
                unsteady = residual + rate[:, None] * (_conserved(new) - before)
                if np.linalg.norm(unsteady) < limit:
                    return new, residual, speed, length
            length /= 2
        return None

    def forces(self, q: States) -> tuple[float, float]:
        """Drag and lift coefficients: forces divided by the chord and ρ|u|²/2 of the stream."""
        cells, weights, normals = self.mesh.wall
        p = np.sum(weights * self.stream.pressure(q)[cells], axis=1)
        x, y = p @ normals / (self.stream.speed**2 / 2)
        cos, sin = self.stream.direction
        return float(x * cos + y * sin), float(y * cos - x * sin)


def _conserved(q: States) -> States:
    """Conserved variables ρ, ρu, ρv, computed from states ρ, u, v."""
    return q * np.stack([np.ones(len(q)), q[:, 0], q[:, 0]], axis=-1)


@dataclass(frozen=True)
class Airfoil:
    """The flow around one morphed airfoil on its C-grid.

    >>> Airfoil(np.zeros(8), FreeStream(0.5)).points(44).shape
    (45, 11, 2)
    """

    design: Float[np.ndarray, "8"]  # displacements of the control points of `grid.displacement`
    stream: FreeStream  # the undisturbed gas
    tolerance: float = 1e-6  # largest residual, over that of the undisturbed stream

    def points(self, resolution: int) -> Float[np.ndarray, "n m 2"]:
        """Nodes of the C-grid with `resolution` cells along i."""
        return c_grid(self.design, resolution)

    def euler(self, resolution: int) -> Euler:
        """The discrete equations on the grid with `resolution` cells along i.

        Raises SolveError if the upper and lower sides of the airfoil cross, or if the grid folds.
        """
        points = self.points(resolution)
        step = resolution // (PUBLISHED_CELLS // 10)
        nose, side = resolution // 2, SIDE_CELLS // 10 * step
        upper, lower = points[nose - side : nose, 0, 1], points[nose + side : nose : -1, 0, 1]
        if (upper[1:] <= lower[1:]).any():
            raise SolveError(0, "the upper and lower sides of the airfoil cross")
        top = topology(resolution, NORMAL_CELLS // 10 * step, WAKE_CELLS // 10 * step)
        mesh = Mesh(top, points)
        if not (mesh.areas > 0).all():
            raise SolveError(0, f"the grid with resolution {resolution} folds")
        return Euler(mesh, self.stream)

    def solve(
        self, resolution: int, near: tuple[Euler, Solution] | None = None
    ) -> tuple[Euler, Solution]:
        """The flow on the grid with `resolution` cells along i, a multiple of 22.

        `near` has the equations and the flow on another grid, from which the solver starts. If
        `near` is None or this start fails, it starts from the undisturbed stream. Raises SolveError
        if the grid is invalid or the solver does not converge.
        """
        euler = self.euler(resolution)
        if near is not None:
            with suppress(SolveError):
                return euler, euler.solve(
                    interpolated(*near, euler.mesh), self.tolerance, courant=_NEAR_CFL
                )
        return euler, euler.solve(euler.undisturbed, self.tolerance)

    def solve_on_two_grids(
        self, resolution: int
    ) -> tuple[tuple[Euler, Solution], tuple[Euler, Solution]]:
        """The flows with `coarser(resolution)` and with `resolution` cells along i.

        Raises SolveError under the conditions of `solve`.
        """
        try:
            coarse = self.solve(coarser(resolution))
        except SolveError:  # the finer grid may converge, and its flow is a good start
            fine = self.solve(resolution)
            return self.solve(coarser(resolution), fine), fine
        return coarse, self.solve(resolution, coarse)


def coarser(resolution: int) -> int:
    """Resolution of the coarse grid for the error estimate.

    It is the largest multiple of 22 that is at most 3/4 of `resolution`. A grid with half as many
    cells does not resolve the trailing edge.
    """
    step = PUBLISHED_CELLS // 10
    return 3 * resolution // (4 * step) * step


def interpolated(euler: Euler, solution: Solution, mesh: Mesh) -> States:
    """States in the cells of `mesh`, interpolated in i and j from a solution on another grid."""
    values = solution.q[euler.mesh.topology.number]
    for axis, count in enumerate(mesh.topology.number.shape):
        n = values.shape[axis]
        position = np.clip((np.arange(count) + 0.5) * n / count - 0.5, 0, n - 1)
        before = np.minimum(position.astype(int), n - 2)
        fraction = (position - before).reshape([-1 if k == axis else 1 for k in range(3)])
        lower, upper = values.take(before, axis), values.take(before + 1, axis)
        values = (1 - fraction) * lower + fraction * upper
    ordered = np.empty((mesh.topology.number.size, 3))
    ordered[mesh.topology.number] = values
    return ordered
