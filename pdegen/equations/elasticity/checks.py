"""Checks of stored stretched sheets."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    Quantity,
    StoreChecks,
    Values,
    in_blocks,
    stated_error,
)
from pdegen.checks.gaussian import normal_numbers
from pdegen.equations.elasticity.element import GAUSS, shapes
from pdegen.equations.elasticity.material import von_mises
from pdegen.equations.elasticity.solver import Body, Sheet
from pdegen.numerics.device import SolveError
from pdegen.sampling.coefficients import RandomVoid

_RESIDUAL = 1e-8  # largest residual that the solver accepts
_ROUNDING = 8  # safety factor on the effect of float32 displacements on jumps, slopes and forces
# Limits for the solution of a finer mesh with an error up to 0.01, seen on the mesh of the points
# with 36 elements around the void: of jumps, of stresses and of displacements.
_JUMP, _STRESS, _DISPLACEMENT = 0.03, 0.2, 0.03


def elasticity_checks(
    void: RandomVoid, sheet: Sheet, angles: Float[np.ndarray, " angles"], error: float, exact: bool
) -> StoreChecks:
    """Checks of stretched sheets.

    The numbers theta are normally distributed and define the void. The points are the Gauss points
    of the mesh around this void, and none lies inside the void. In each element, the displacements
    at the nine Gauss points determine a quadratic polynomial. These polynomials are continuous
    across elements and vanish where the sheet is clamped. The von Mises stress of the displacement
    is u. The stresses balance the traction at each free node.

    If `exact` is false, the solution was computed on a finer mesh than that of the points. The
    checks then have larger limits, because the coarser mesh has a discretisation error. Instead of
    the balance of forces, the checks require that the displacement is near the solution on the mesh
    of the points. `error` is the largest error that the solver accepts.
    """
    physics = _Physics(void, sheet, angles, exact)
    bounds: list[tuple[str, str, Quantity]] = [
        ("radius", "the distance from the radius of theta", physics.radius),
        ("x", "the distance of the points from those of theta", physics.points),
        ("x", "the depth of the points inside the void", physics.depth),
        ("weight", "the relative distance from the areas of theta", physics.weight),
        ("residual", "the residual", lambda v: (abs(v["residual"]), _RESIDUAL)),
        ("iterations", "minus the number of linear systems", lambda v: (-v["iterations"], -1.0)),
        ("status", "the status", lambda v: (abs(v["status"]), 0.0)),
        ("displacement", "the jump between elements, over the largest displacement,", physics.jump),
        ("u", "the distance from the stress of the displacement, over the mean,", physics.stress),
        ("displacement", "the force on free nodes, over the load,", physics.force)
        if exact else
        ("displacement", "the distance from the solution on the mesh of the points",
         physics.distance),
    ]  # fmt: skip
    checks = (Bound(name, subject, in_blocks(quantity)) for name, subject, quantity in bounds)
    numbers = normal_numbers("theta", np.full(2 * void.modes, void.sigma**2))
    return StoreChecks((numbers, Distinct("theta"), *stated_error(error), *checks))


class _Physics:
    """Quantities that the checks bound for each sample, and their limits."""

    def __init__(self, void: RandomVoid, sheet: Sheet, angles: np.ndarray, exact: bool) -> None:
        self._void, self._sheet, self._angles, self._exact = void, sheet, angles, exact
        self._stiffness = float(abs(sheet.material.stiffness(np.zeros(4))).max())
        self._to_nodes = np.linalg.inv(shapes(GAUSS))  # from the Gauss points of an element

    def _body(self, stored: Values) -> Body:
        """The sheets whose voids theta defines, on the mesh whose Gauss points are the points."""
        rings = self._sheet.rings
        return Body.of(rings, self._void.radius(stored["theta"], rings.angles))

    def radius(self, stored: Values) -> tuple[np.ndarray, float]:
        expected = self._void.radius(stored["theta"], self._angles)
        return abs(stored["radius"] - expected).max(axis=1), 1e-12

    def points(self, stored: Values) -> tuple[np.ndarray, float]:
        x = np.stack([stored["x"], stored["y"]], axis=-1)
        return abs(x - self._body(stored).points).max(axis=(1, 2)), 2 * EPSILON

    def depth(self, stored: Values) -> tuple[np.ndarray, float]:
        points = np.stack([stored["x"], stored["y"]], axis=-1).astype(np.float64)
        return self._void.depth(stored["theta"], points - 0.5).max(axis=1), 2 * EPSILON

    def weight(self, stored: Values) -> tuple[np.ndarray, float]:
        expected = self._body(stored).weights
        return abs(stored["weight"] / expected - 1).max(axis=1), 2 * EPSILON

    def _parts(self, stored: Values) -> tuple[Body, np.ndarray, np.ndarray]:
        """The sheets, the displacement of each node in each of its elements, and the nodal means.

        A nodal mean is the mean over all elements that share a node, or 0 at a clamped node.
        """
        body = self._body(stored)
        rings = body.rings
        at_points = stored["displacement"].astype(np.float64).swapaxes(1, 2)
        by_element = self._to_nodes @ at_points.reshape(-1, rings.around, rings.across, 9, 2)
        u = rings.assembled(by_element) / rings.assembled(np.ones((1, *by_element.shape[1:])))
        return body, by_element, u * self._sheet.free[..., None]

    def _of_a_finer_mesh(self, stored: Values, limit: float, order: int = 1) -> np.ndarray:
        """`limit`, scaled for solutions that were computed on a finer mesh.

        The result is proportional to a power of the size of the elements, and grows with the stored
        error.
        """
        size = 36 / self._sheet.rings.around
        return limit * size**order * np.maximum(1, 100 * stored["error"])

    def _rounding(self, body: Body, u: np.ndarray) -> np.ndarray:
        """Bound on the error of ∇u that rounding the displacements to float32 causes."""
        steepest = abs(body.elements.derivatives).max(axis=(1, 2, 3, 4, 5))
        return _ROUNDING * EPSILON * abs(u).max(axis=(1, 2, 3)) * steepest

    def jump(self, stored: Values) -> tuple[np.ndarray, float | np.ndarray]:
        body, by_element, u = self._parts(stored)
        jump = abs(by_element - body.rings.elements(u)).max(axis=(1, 2, 3, 4))
        observed = jump / (abs(by_element).max(axis=(1, 2, 3, 4)) + np.finfo(float).tiny)
        if self._exact:
            return observed, 4 * _ROUNDING * EPSILON
        return observed, self._of_a_finer_mesh(stored, _JUMP)

    def stress(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        body, _, u = self._parts(stored)
        expected = von_mises(self._sheet.material.true_stress(body.gradient(u)))
        stress = stored["u"].astype(np.float64)
        negative = np.where((stress < 0).any(axis=1), np.inf, 0.0)
        norm = np.linalg.norm(expected, axis=1)
        distance = np.linalg.norm(stress - expected, axis=1) / norm
        if not self._exact:
            return distance + negative, self._of_a_finer_mesh(stored, _STRESS)
        slope = self._rounding(body, u) * np.sqrt(stress.shape[1])
        return distance + negative, self._stiffness * slope / norm + 4 * EPSILON

    def force(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        body, _, u = self._parts(stored)
        sheet, elements = self._sheet, body.elements
        inner = body.force(sheet.material.stress(body.gradient(u)))
        imbalance = (sheet.free[..., None] * (sheet.load - inner)).reshape(len(u), -1)
        reach = (abs(elements.derivatives).sum(axis=-2) * abs(elements.weights)[..., None]).sum(-2)
        reach = np.linalg.norm(body.rings.assembled(reach[..., None]), axis=(1, 2))[:, 0]
        load_norm = np.linalg.norm(sheet.load)
        limit = self._stiffness * self._rounding(body, u) * reach / load_norm
        return np.linalg.norm(imbalance, axis=1) / load_norm, limit

    def distance(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        body, displacement = self._body(stored), stored["displacement"].swapaxes(1, 2)
        try:
            expected = body.at_points(self._sheet.solve(body).u)
        except SolveError:  # theta is not that of a sample
            return np.full(len(displacement), np.inf), np.zeros(len(displacement))
        difference = (displacement - expected).reshape(len(displacement), -1)
        distance = np.linalg.norm(difference, axis=1)
        distance /= np.linalg.norm(expected.reshape(len(displacement), -1), axis=1)
        return distance, self._of_a_finer_mesh(stored, _DISPLACEMENT, order=2)
