"""Steady flow of a gas around a section: div(ρu) = 0, div(ρu⊗u) + ∇p = 0, no flow into the wall.

The total enthalpy γ/(γ - 1) p/ρ + |u|²/2 is that of the stream everywhere, also behind shocks: the
third equation is solved exactly, and density and velocity remain.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.equations.airfoil.grid import BASE, OUTWARD, SIDE, WAKE, c_grid
from pdegen.equations.airfoil.mesh import Mesh, topology
from pdegen.equations.airfoil.stream import FarStream
from pdegen.numerics.failure import SolveError

_START, _NEAR, _HIGHEST = 20.0, 50.0, 1e9  # numbers of Courant, the second near a solution
_CHANGE, _TURN = 0.3, 0.4  # of densities, relative, and of velocities, that a step may bring
_SLOWEST = 0.05  # of h: what is left beside the kinetic energy
_GROWTH, _CLOSE = (2, 10), 0.1  # of numbers of Courant, before and after the residual is below
_HALVINGS = 6
_INEXACT, _SWEEPS = 1e-3, 6  # of linear systems, relative, and sweeps of refinement

States = Float[np.ndarray, "cells 3"]


@dataclass(frozen=True)
class Solution:
    """What Newton's method found."""

    q: States  # ρ, u, v of the cells
    residual: float  # its norm, over that of the undisturbed stream
    iterations: int  # linear systems that were solved


@dataclass(frozen=True)
class Euler:
    """Finite volumes on a mesh: Roe's flux with Rieper's factor at slow faces, between states that
    a quadratic through three cells has at the face (MUSCL, κ = 0.9; near sonic flow with van
    Albada's limiter). Newton's method with a pseudo-time step, each system by sparse elimination.

    References: P. L. Roe, J. Comput. Phys. 43 (1981); B. van Leer, J. Comput. Phys. 32 (1979);
    F. Rieper, J. Comput. Phys. 230 (2011); W. A. Mulder and B. van Leer, J. Comput. Phys. 59
    (1985), for the step; M. Ceze and K. J. Fidkowski, AIAA 2013-2686, for the search along it.
    """

    mesh: Mesh  # of the cells
    stream: FarStream  # the gas
    # states ρ, u, v beyond the outer faces; by default those of the stream with the vortex of the
    # lift that a flow has
    outside: Float[np.ndarray, "faces 3"] | None = None

    def _arrays(
        self, q: np.ndarray
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Faces, outer faces and the wall, as `kernels` has them."""
        outside = self.outside
        if outside is None:
            outside = self.stream.with_vortex(self.forces(q)[1], self.mesh.outside)
        return self.mesh.faces, self.mesh.far(outside), self.mesh.wall

    @property
    def _gas(self) -> tuple[float, float]:
        return self.stream.enthalpy, self.stream.gamma

    @property
    def undisturbed(self) -> States:
        """The stream in every cell."""
        return np.tile(self.stream.state, (len(self.mesh.volumes), 1))

    def residual(self, q: States) -> States:
        """Mass and momentum that flow out of each cell."""
        return self._residual(q)[0]

    def _residual(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from pdegen.equations.airfoil.kernels import residual

        return residual(q, *self._arrays(q), self._gas)

    def jacobian(self, q: States) -> Float[np.ndarray, "entries 3 3"]:
        """The derivatives of `residual` by q, in the places of `Topology.columns`, without those of
        the vortex outside: a change of the lift changes it by a thirtieth."""
        from pdegen.equations.airfoil.kernels import jacobian

        top = self.mesh.topology
        return jacobian(q, *self._arrays(q), self._gas, top.places, len(top.columns))

    def _possible(self, q: np.ndarray) -> bool:
        left = self.stream.enthalpy - (q[:, 1] ** 2 + q[:, 2] ** 2) / 2
        return bool((q[:, 0] > 0).all() and (left > _SLOWEST * self.stream.enthalpy).all())

    def _step(self, q: np.ndarray, residual: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """The change dq with (V/dt ∂U/∂q + ∂R/∂q) dq = -R; `rate` is V/dt of each cell."""
        from scipy.sparse import bsr_array
        from scipy.sparse.linalg import splu

        top, blocks = self.mesh.topology, self.jacobian(q)
        rho, u, v = q.T
        at = top.diagonal
        blocks[at, 0, 0] += rate
        blocks[at, 1, 0] += rate * u
        blocks[at, 2, 0] += rate * v
        blocks[at, 1, 1] += rate * rho
        blocks[at, 2, 2] += rate * rho
        matrix = bsr_array((blocks, top.columns, top.starts)).tocsc()
        for dtype in (np.float32, np.float64):  # half the memory, if that is enough
            factors = splu(
                matrix.astype(dtype),
                "MMD_AT_PLUS_A",
                diag_pivot_thresh=1e-3,
                options={"SymmetricMode": True},
            )
            change, left = np.zeros(residual.size), -residual.ravel()
            limit = _INEXACT * np.linalg.norm(left)
            for _ in range(_SWEEPS):
                change += factors.solve(left.astype(dtype))
                left = -residual.ravel() - matrix @ change
                if np.linalg.norm(left) <= limit:
                    break
            else:
                continue
            break
        return change.reshape(q.shape)

    def solve(
        self, start: States, tolerance: float, most: int = 120, courant: float = _START
    ) -> Solution:
        """The steady flow, by pseudo-time steps that grow as the residual falls. Raises SolveError
        if the residual does not fall to the tolerance."""
        unit = float(np.linalg.norm(self.residual(self.undisturbed)))
        q = start
        residual, speed = self._residual(q)
        norm = float(np.linalg.norm(residual)) / unit
        for iteration in range(most):
            if norm <= tolerance:
                return Solution(q, norm, iteration)
            rate = speed / (2 * courant)
            found = self._searched(q, self._step(q, residual, rate), rate, norm * unit)
            if found is None:
                courant = max(courant / 5, 0.1)
                continue
            q, residual, speed, length = found
            before, norm = norm, float(np.linalg.norm(residual)) / unit
            if length == 1:
                growth = np.clip(1.5 * before / norm, 1, _GROWTH[0 if norm > _CLOSE else 1])
                courant = min(courant * float(growth), _HIGHEST)
            elif length < 0.1:
                courant /= 2
        raise SolveError(
            0,
            f"the flow is not steady: its residual is {norm:.2g} after {most} steps, at most "
            f"{tolerance:g} is allowed",
        )

    @staticmethod
    def _length(q: np.ndarray, change: np.ndarray) -> float:
        """The share of a step that changes no state too much."""
        densities = float(np.abs(change[:, 0] / q[:, 0]).max())
        velocities = float(np.hypot(change[:, 1], change[:, 2]).max())
        return 1 / max(1, densities / _CHANGE, velocities / _TURN)

    def _searched(
        self, q: np.ndarray, change: np.ndarray, rate: np.ndarray, limit: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float] | None:
        """The state after the step, its residual and speeds, and what was taken of the step; None
        where V/dt ΔU + R of the new state is not below the limit for any part of it."""
        length, before = self._length(q, change), _conserved(q)
        for _ in range(_HALVINGS):
            new = q + length * change
            if self._possible(new):
                residual, speed = self._residual(new)
                unsteady = residual + rate[:, None] * (_conserved(new) - before)
                if np.linalg.norm(unsteady) < limit:
                    return new, residual, speed, length
            length /= 2
        return None

    def forces(self, q: States) -> tuple[float, float]:
        """Drag and lift of the section, over ρ|u|²/2 of the stream and the chord 1."""
        cells, weights, normals = self.mesh.wall
        p = np.sum(weights * self.stream.pressure(q)[cells], axis=1)
        x, y = p @ normals / (self.stream.speed**2 / 2)
        cos, sin = self.stream.direction
        return float(x * cos + y * sin), float(y * cos - x * sin)


def _conserved(q: States) -> States:
    """U of states ρ, u, v: mass and momentum."""
    return q * np.stack([np.ones(len(q)), q[:, 0], q[:, 0]], axis=-1)


@dataclass(frozen=True)
class Airfoil:
    """The flow around one morphed section on its C-grid.

    >>> Airfoil(np.zeros(8), FarStream(0.5)).points(44).shape
    (45, 11, 2)
    """

    design: Float[np.ndarray, "8"]  # the displacements of `grid.displacement`
    stream: FarStream  # the gas
    tolerance: float = 1e-6  # of the residual

    def points(self, resolution: int) -> Float[np.ndarray, "n m 2"]:
        return c_grid(self.design, resolution)

    def euler(self, resolution: int) -> Euler:
        """The scheme on `resolution` cells around the section. Raises SolveError if the sides of
        the section cross, or the grid folds."""
        points = self.points(resolution)
        step = resolution // (BASE // 10)
        nose, side = resolution // 2, SIDE // 10 * step
        upper, lower = points[nose - side : nose, 0, 1], points[nose + side : nose : -1, 0, 1]
        if (upper[1:] <= lower[1:]).any():
            raise SolveError(0, "the sides of the section cross")
        top = topology(resolution, OUTWARD // 10 * step, WAKE // 10 * step)
        mesh = Mesh(top, points)
        if not (mesh.areas > 0).all():
            raise SolveError(0, f"the grid of {resolution} cells folds")
        return Euler(mesh, self.stream)

    def solve(
        self, resolution: int, near: tuple[Euler, Solution] | None = None
    ) -> tuple[Euler, Solution]:
        """The flow on `resolution` cells around the section, a multiple of 22, from a flow near it
        on another grid, or from the undisturbed stream. Raises SolveError if there is no such grid,
        or no steady flow is found."""
        euler = self.euler(resolution)
        if near is not None:
            with suppress(SolveError):
                return euler, euler.solve(moved(*near, euler.mesh), self.tolerance, courant=_NEAR)
        return euler, euler.solve(euler.undisturbed, self.tolerance)

    def solve_twice(self, resolution: int) -> tuple[tuple[Euler, Solution], tuple[Euler, Solution]]:
        """The flows on `coarser(resolution)` and on `resolution` cells. Raises SolveError as
        `solve`."""
        try:
            coarse = self.solve(coarser(resolution))
        except SolveError:  # the finer grid may be easier, and a good start
            fine = self.solve(resolution)
            return self.solve(coarser(resolution), fine), fine
        return coarse, self.solve(resolution, coarse)


def coarser(resolution: int) -> int:
    """The cells of the flow that another is compared with: three quarters, or a little less, for
    grids have multiples of 22. On half as many the trailing edge is far from resolved."""
    step = BASE // 10
    return 3 * resolution // (4 * step) * step


def moved(euler: Euler, solution: Solution, mesh: Mesh) -> States:
    """A solution in the cells of another grid of the same section, linearly in the numbering."""
    values = solution.q[euler.mesh.topology.number]
    for axis, count in enumerate(mesh.topology.number.shape):
        n = values.shape[axis]
        place = np.clip((np.arange(count) + 0.5) * n / count - 0.5, 0, n - 1)
        before = np.minimum(place.astype(int), n - 2)
        share = (place - before).reshape([-1 if k == axis else 1 for k in range(3)])
        values = (1 - share) * values.take(before, axis) + share * values.take(before + 1, axis)
    found = np.empty((mesh.topology.number.size, 3))
    found[mesh.topology.number] = values
    return found
