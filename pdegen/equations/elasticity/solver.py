"""A clamped square sheet with a void, pulled at its upper side: finite elements, batched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from pdegen.equations.elasticity.element import GAUSS, Elements, shapes
from pdegen.equations.elasticity.material import Material
from pdegen.equations.elasticity.mesh import Rings
from pdegen.numerics.failure import SolveError
from pdegen.numerics.ring import solve_ring

_MOST = 25  # steps of Newton's method at a load
_ROUGH = 1e-2  # relative residual that is enough before the load is whole
_SMALL, _FLAT = 1e-8, 1e-11  # then: enough where rounding lets it fall no further; enough

Nodes = Float[np.ndarray, "batch lines places 2"]


@dataclass(frozen=True)
class Body:
    """Meshed sheets with their voids."""

    rings: Rings  # the mesh
    nodes: Nodes  # positions of its nodes
    elements: Elements  # its quadrilaterals

    @classmethod
    def of(cls, rings: Rings, radius: Float[np.ndarray, "batch lines"]) -> Body:
        """The sheets with voids of these radii along the lines of the mesh."""
        nodes = rings.nodes(radius)
        return cls(rings, nodes, Elements.of(rings.elements(nodes)))

    def check(self) -> None:
        """Raise SolveError where a void leaves the square, or the mesh folds."""
        sound = (self.weights > 0).all(axis=1)
        leaving = np.abs(self.nodes[:, :, 0] - 0.5).max(axis=(1, 2)) >= 0.5
        for row in np.flatnonzero(leaving | ~sound):
            why = "the void leaves the cell" if leaving[row] else "the mesh folds beside the void"
            raise SolveError(int(row), why)

    @property
    def points(self) -> Float[np.ndarray, "batch points 2"]:
        """Positions of the Gauss points."""
        return self.at_points(self.nodes)

    @property
    def weights(self) -> Float[np.ndarray, "batch points"]:
        """Areas that belong to them."""
        return self.elements.weights.reshape(len(self.nodes), -1)

    def at_points(
        self, values: Float[np.ndarray, "batch lines places k"]
    ) -> Float[np.ndarray, "batch points k"]:
        """Values at the nodes -> at the Gauss points."""
        found = shapes(GAUSS) @ self.rings.elements(values)
        return found.reshape(len(values), -1, values.shape[-1])

    def gradient(self, u: Nodes) -> Float[np.ndarray, "batch points 4"]:
        """∂u_i/∂x_j as (xx, xy, yx, yy) at the Gauss points."""
        return self.elements.gradient(self.rings.elements(u)).reshape(len(u), -1, 4)

    def force(self, stress: Float[np.ndarray, "batch points 4"]) -> Nodes:
        """∫ P_ij ∂φ/∂x_j of the functions φ of the nodes."""
        parts = stress.reshape(*self.elements.weights.shape, 4)
        return self.rings.assembled(self.elements.force(parts))

    def rows(self, rows: Int[np.ndarray, " rows"]) -> Body:
        """Some samples of the batch."""
        if len(rows) == len(self.nodes):
            return self
        elements = Elements(self.elements.derivatives[rows], self.elements.weights[rows])
        return Body(self.rings, self.nodes[rows], elements)


@dataclass(frozen=True)
class Solution:
    """Sheets in equilibrium."""

    u: Nodes  # displacements of the nodes
    # of the discrete equations over the load, in the Euclidean norm
    residual: Float[np.ndarray, " batch"]
    iterations: Int[np.ndarray, " batch"]  # linear systems that were solved for each sample


@dataclass(frozen=True)
class Sheet:
    """The unit square around a void: u = 0 at the bottom, the force (0, traction) on the top over
    its length and thickness, no force on the other sides and on the void.

    -div P(∇u) = 0 in plane stress, by quadrilaterals of nine nodes with nine Gauss points, and
    Newton's method where P is not linear.
    """

    rings: Rings  # the mesh
    material: Material  # P(∇u)
    traction: float  # of the undeformed length
    steps: int = 1  # equal ones in which the load grows; one where P is linear

    def solve(self, body: Body, start: Nodes | None = None) -> Solution:
        """The displacements of sheets that are meshed by the rings. From `start`, near the
        solution, the whole load is put on at once. Raises SolveError if a void leaves the square,
        the mesh folds, or Newton's method does not converge."""
        body.check()
        u = np.zeros(body.nodes.shape) if start is None else start.copy()
        iterations = np.zeros(len(u), np.int64)
        parts = np.arange(1, self.steps + 1) / self.steps if start is None else np.ones(1)
        residual = np.zeros(len(u))
        for part in parts:
            enough = _FLAT if part == parts[-1] else _ROUGH
            residual = self._equilibrate(body, u, part * self.load, enough, iterations)
        return Solution(u, residual, iterations)

    @property
    def load(self) -> Float[np.ndarray, "lines places 2"]:
        """The force of the traction on each node: Simpson's rule on the edges at the top."""
        n, m = self.rings.around, self.rings.across
        load = np.zeros((2 * n, 2 * m + 1, 2))
        first, past = self.rings.top.start, self.rings.top.stop
        edge = self.traction / (past - first)
        lines = np.arange(2 * first, 2 * past, 2)
        for shift, part in enumerate((1 / 6, 4 / 6, 1 / 6)):
            load[lines + shift, -1, 1] += part * edge
        return load

    @property
    def free(self) -> Bool[np.ndarray, "lines places"]:
        """Nodes that are not clamped."""
        free = np.ones((2 * self.rings.around, 2 * self.rings.across + 1), bool)
        free[self.rings.bottom, -1] = False
        return free

    def _equilibrate(
        self,
        body: Body,
        u: Nodes,
        load: Float[np.ndarray, "lines places 2"],
        enough: float,
        iterations: Int[np.ndarray, " batch"],
    ) -> Float[np.ndarray, " batch"]:
        """Newton's method under a load. Replaces u, counts the steps, and gives the residuals; a
        sample that is done rests, so that none depends on the others."""
        residual, busy = np.full(len(u), np.inf), np.arange(len(u))
        for step in range(_MOST + 1):
            part = body.rows(busy)
            gradient = part.gradient(u[busy])
            self._check(gradient, busy)
            off = self.free[..., None] * (load - part.force(self.material.stress(gradient)))
            found = np.linalg.norm(off.reshape(len(off), -1), axis=1) / np.linalg.norm(load)
            stays = (found <= _SMALL) & (found > residual[busy] / 4)
            residual[busy] = found
            going = np.flatnonzero(~((found <= enough) | stays))
            if not len(going):
                return residual
            if step < _MOST:
                busy, part, gradient = busy[going], part.rows(going), gradient[going]
                tangent = self.material.stiffness(gradient.reshape(*part.elements.weights.shape, 4))
                u[busy] += self._solved(part.elements.stiffness(tangent), off[going])
                iterations[busy] += 1
        raise SolveError(
            int(busy[0]), f"the residual is {residual[busy[0]]:.1e} after {_MOST} Newton steps"
        )

    def _solved(
        self, stiffness: Float[np.ndarray, "batch around across 9 2 2 9"], load: np.ndarray
    ) -> np.ndarray:
        """The displacements of a load on the nodes: the middle line of each column of elements is
        eliminated, and then the columns, which form a ring."""
        batch, n, m = len(stiffness), self.rings.around, self.rings.across
        places = 2 * m + 1
        columns = np.zeros((batch, n, 3, places, 2, 3, places, 2))
        parts = stiffness.reshape(batch, n, m, 3, 3, 2, 2, 3, 3)
        parts = np.moveaxis(parts, 6, -1)  # nodes, component; nodes, component
        for k in range(m):
            here = slice(2 * k, 2 * k + 3)
            columns[:, :, :, here, :, :, here] += parts[:, :, k]
        fixed = np.flatnonzero(~self.free[:, -1])
        for a in range(3):  # a clamped node has the equation u = 0
            held = np.isin((2 * np.arange(n) + a) % (2 * n), fixed)
            columns[:, held, a, -1] = 0
            columns[:, held, :, :, :, a, -1] = 0
            for i in (0, 1):
                columns[:, held, a, -1, i, a, -1, i] = 1
        b = 2 * places
        matrix = columns.reshape(batch, n, 3, b, 3, b)
        ends = [0, 2]
        to_middle = matrix[:, :, 1][:, :, :, ends].reshape(batch, n, b, 2 * b)
        f = load.reshape(batch, n, 2, b)
        inner = np.linalg.solve(
            matrix[:, :, 1, :, 1], np.concatenate([to_middle, f[:, :, 1, :, None]], axis=-1)
        )
        from_middle = matrix[:, :, :, :, 1][:, :, ends].reshape(batch, n, 2 * b, b)
        change = from_middle @ inner
        both = matrix[:, :, ends][:, :, :, :, ends].reshape(batch, n, 2 * b, 2 * b)
        outer = f[:, :, 0] - change[:, :, :b, -1] - np.roll(change[:, :, b:, -1], 1, axis=1)
        line = solve_ring(both - change[..., :-1], outer)
        pair = np.concatenate([line, np.roll(line, -1, axis=1)], axis=-1)
        middle = inner[..., -1] - (inner[..., :-1] @ pair[..., None])[..., 0]
        return np.stack([line, middle], axis=2).reshape(batch, 2 * n, places, 2)

    def _check(self, gradient: Float[np.ndarray, "rows points 4"], rows: np.ndarray) -> None:
        sound = self.material.admissible(gradient).all(axis=1)
        if not sound.all():
            row = int(rows[np.argmin(sound)])
            raise SolveError(row, "the sheet turns over under its load: put it on in more steps")
