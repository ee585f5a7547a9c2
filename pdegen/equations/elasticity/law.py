"""What a store of stretched sheets claims."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from pdegen.checks.gaussian import EPSILON, GaussianLaw
from pdegen.checks.law import LEAST_ERROR, Bound, Distinct, Law, Quantity, Values, in_blocks
from pdegen.checks.modes import Modes
from pdegen.equations.elasticity.element import GAUSS, shapes
from pdegen.equations.elasticity.material import von_mises
from pdegen.equations.elasticity.solver import Body, Sheet
from pdegen.equations.elasticity.void import RandomVoid
from pdegen.numerics.failure import SolveError

_RESIDUAL = 1e-8  # largest one that the solver accepts
_ROUNDING = 8  # times as much as rounding displacements to float32 makes of jumps, slopes, forces
# What the mesh of the points, with 36 elements around the void, makes of a solution of a finer one
# whose own error is a hundredth at most.
_JUMP, _SLOPE, _OFF = 0.03, 0.2, 0.03


def elasticity_law(
    void: RandomVoid, sheet: Sheet, angles: Float[np.ndarray, " angles"], error: float, exact: bool
) -> Law:
    """theta is normal, the points are those of its void, and u is the stress of a displacement that
    is in equilibrium.

    Nine displacements at the Gauss points of an element determine its parabolas. These meet at the
    nodes, vanish where the sheet is clamped, have the von Mises stress u, and their stresses are in
    balance with the traction at each free node. Where the solution is of a finer mesh, all that
    holds up to the error of the mesh of the points, and in place of the balance the displacement is
    near the solution on that mesh.
    """
    physics = _Physics(void, sheet, angles, exact)
    bounds: list[tuple[str, str, Quantity]] = [
        ("radius", "the distance from the radius of theta", physics.radius),
        ("x", "the distance of the points from those of theta", physics.points),
        ("weight", "the relative distance from the areas of theta", physics.weight),
        ("error", "the solver's error", lambda v: (v["error"], error)),
        ("error", "minus the solver's error", lambda v: (-v["error"], -LEAST_ERROR)),
        ("residual", "the residual", lambda v: (abs(v["residual"]), _RESIDUAL)),
        ("iterations", "minus the number of linear systems", lambda v: (-v["iterations"], -1.0)),
        ("status", "the status", lambda v: (abs(v["status"]), 0.0)),
        ("displacement", "the jump between elements, over the largest displacement,", physics.jump),
        ("u", "the distance from the stress of the displacement, over the mean,", physics.stress),
        ("displacement", "the force on free nodes, over the load,", physics.force)
        if exact else
        ("displacement", "the distance from the solution on the mesh of the points", physics.off),
    ]  # fmt: skip
    checks = (Bound(name, said, in_blocks(quantity)) for name, said, quantity in bounds)
    return Law((_normal(void), Distinct("theta"), *checks))


def _normal(void: RandomVoid) -> GaussianLaw:
    """θ ~ N(0, σ²), independent."""
    count = 2 * void.modes
    variances = np.full(count, void.sigma**2)
    bands = {f"number {k + 1}": np.arange(count) == k for k in range(count)}
    modes = Modes(lambda theta: theta, variances, bands | {"all numbers": np.ones(count, bool)})
    return GaussianLaw("theta", lambda theta: theta, modes, variances, relative=True)


class _Physics:
    """Quantities of each sample that are bounded."""

    def __init__(self, void: RandomVoid, sheet: Sheet, angles: np.ndarray, exact: bool) -> None:
        self._void, self._sheet, self._angles, self._exact = void, sheet, angles, exact
        self._stiffness = float(abs(sheet.material.stiffness(np.zeros(4))).max())
        self._to_nodes = np.linalg.inv(shapes(GAUSS))  # from the Gauss points of an element

    def _body(self, stored: Values) -> Body:
        rings = self._sheet.rings
        return Body.of(rings, self._void.radius(stored["theta"], rings.angles))

    def radius(self, stored: Values) -> tuple[np.ndarray, float]:
        expected = self._void.radius(stored["theta"], self._angles)
        return abs(stored["radius"] - expected).max(axis=1), 1e-12

    def points(self, stored: Values) -> tuple[np.ndarray, float]:
        x = np.stack([stored["x"], stored["y"]], axis=-1)
        return abs(x - self._body(stored).points).max(axis=(1, 2)), 2 * EPSILON

    def weight(self, stored: Values) -> tuple[np.ndarray, float]:
        expected = self._body(stored).weights
        return abs(stored["weight"] / expected - 1).max(axis=1), 2 * EPSILON

    def _parts(self, stored: Values) -> tuple[Body, np.ndarray, np.ndarray]:
        """Displacements of the nodes, as elements have them, and their mean."""
        body = self._body(stored)
        rings = body.rings
        at_points = stored["displacement"].astype(np.float64).swapaxes(1, 2)
        parts = self._to_nodes @ at_points.reshape(-1, rings.around, rings.across, 9, 2)
        u = rings.assembled(parts) / rings.assembled(np.ones((1, *parts.shape[1:])))
        return body, parts, u * self._sheet.free[..., None]

    def _of_a_finer_mesh(self, stored: Values, limit: float) -> np.ndarray:
        """A limit that grows with the error that is stated."""
        return limit * 36 / self._sheet.rings.around * np.maximum(1, 100 * stored["error"])

    def _rounding(self, body: Body, u: np.ndarray) -> np.ndarray:
        """Largest slope that rounding displacements can make in an element."""
        steepest = abs(body.elements.derivatives).max(axis=(1, 2, 3, 4, 5))
        return _ROUNDING * EPSILON * abs(u).max(axis=(1, 2, 3)) * steepest

    def jump(self, stored: Values) -> tuple[np.ndarray, float | np.ndarray]:
        body, parts, u = self._parts(stored)
        off = abs(parts - body.rings.elements(u)).max(axis=(1, 2, 3, 4))
        observed = off / (abs(parts).max(axis=(1, 2, 3, 4)) + np.finfo(float).tiny)
        if self._exact:
            return observed, 4 * _ROUNDING * EPSILON
        return observed, self._of_a_finer_mesh(stored, _JUMP)

    def stress(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        body, _, u = self._parts(stored)
        expected = von_mises(self._sheet.material.true_stress(body.gradient(u)))
        found = stored["u"].astype(np.float64)
        negative = np.where((found < 0).any(axis=1), np.inf, 0.0)
        size = np.linalg.norm(expected, axis=1)
        off = np.linalg.norm(found - expected, axis=1) / size
        if not self._exact:
            return off + negative, self._of_a_finer_mesh(stored, _SLOPE)
        slope = self._rounding(body, u) * np.sqrt(found.shape[1])
        return off + negative, self._stiffness * slope / size + 4 * EPSILON

    def force(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        body, _, u = self._parts(stored)
        sheet, elements = self._sheet, body.elements
        inner = body.force(sheet.material.stress(body.gradient(u)))
        off = (sheet.free[..., None] * (sheet.load - inner)).reshape(len(u), -1)
        reach = (abs(elements.derivatives).sum(axis=-2) * abs(elements.weights)[..., None]).sum(-2)
        reach = np.linalg.norm(body.rings.assembled(reach[..., None]), axis=(1, 2))[:, 0]
        size = np.linalg.norm(sheet.load)
        limit = self._stiffness * self._rounding(body, u) * reach / size
        return np.linalg.norm(off, axis=1) / size, limit

    def off(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        body, found = self._body(stored), stored["displacement"].swapaxes(1, 2)
        try:
            expected = body.at_points(self._sheet.solve(body).u)
        except SolveError:  # for numbers theta that are no sample
            return np.full(len(found), np.inf), np.zeros(len(found))
        off = np.linalg.norm((found - expected).reshape(len(found), -1), axis=1)
        off /= np.linalg.norm(expected.reshape(len(found), -1), axis=1)
        return off, self._of_a_finer_mesh(stored, _OFF)
