"""Checks of stored flows through pipes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    Quantity,
    StoreChecks,
    UniformCheck,
    Values,
    stated_error,
)
from pdegen.equations.pipe.centre_line import CentreLine
from pdegen.equations.pipe.flow import PipeFlow
from pdegen.equations.pipe.solver import FLOW_RATE, Pipe

_RESIDUAL, _DIVERGENCE = 1e-8, 1e-9  # largest residual and weak divergence of the solver
# Limits for the solution of a finer mesh on the mesh of the points with 16 elements: of the weak
# divergence, of the unbalanced force and of the pressure between the corners.
_DIVERGENCE_ON_POINTS, _FORCE_ON_POINTS, _BETWEEN_ON_POINTS = 2.0, 4.0, 0.5

# from the uniform numbers to the centre lines
ToCentreLine = Callable[[Float[np.ndarray, "batch numbers"]], CentreLine]


def pipe_checks(
    names: Sequence[str], centre: ToCentreLine, pipe: Pipe, error: float, exact: bool
) -> StoreChecks:
    """Checks of pipe flows: the knots are uniform, and u, v, p is a flow through the pipe.

    The knots define the pipe, and the points are equally spaced in the pipe. The velocity profile
    is a parabola at the inlet, and the velocity is 0 on the walls. The points are the nodes of
    finite elements. In these elements, the weak divergence is 0 and the forces balance.

    If `exact` is false, the solution was computed on a finer mesh than that of the points. The
    limits are then larger, because the coarser mesh has a discretisation error. `error` is the
    largest error of u that the solver accepts.
    """
    physics, coarse = _Physics(centre, pipe), 16 / pipe.rows
    between = 2 * EPSILON if exact else _BETWEEN_ON_POINTS * coarse**2
    solver = [
        *stated_error(error),
        *stated_error(math.inf, "error_v"),
        *stated_error(math.inf, "error_p"),
        Bound(
            "iterations", "minus the number of linear systems", lambda v: (-v["iterations"], 0.0)
        ),
    ]
    return StoreChecks(
        (
            UniformCheck("knots", names),
            Distinct("knots"),
            Bound("x", "the distance of the points from equal steps", physics.along),
            Bound("y", "the distance of the points from those of the knots", physics.across),
            Bound("u", "the distance from 1/4 - η² at the inlet, from 0 on the walls",
                  physics.edge("u")),
            Bound("v", "the distance from 0 at the inlet and on the walls", physics.edge("v")),
            Bound("p", "the distance from the means of neighbours, relative to the largest p,",
                  lambda v: (physics.between(v), between)),
            Bound("u", "the weak divergence",
                  physics.divergence(None if exact else _DIVERGENCE_ON_POINTS * coarse**2)),
            Bound("p", "the unbalanced force",
                  physics.force(None if exact else _FORCE_ON_POINTS * coarse)),
            Bound("flux", "the distance from the flux of u", physics.flux(exact)),
            Bound("divergence", "the weak divergence",
                  lambda v: (abs(v["divergence"]), _DIVERGENCE)),
            Bound("residual", "the residual", lambda v: (abs(v["residual"]), _RESIDUAL)),
            Bound("status", "the status", lambda v: (abs(v["status"]), 0.0)),
            *solver,
        )
    )  # fmt: skip


class _Physics:
    """Quantities that the checks bound for each sample, and their limits."""

    def __init__(self, centre: ToCentreLine, pipe: Pipe) -> None:
        self._centre, self._pipe = centre, pipe
        self._n = 2 * pipe.rows + 1
        self._eta = np.linspace(-0.5, 0.5, self._n)

    def _lines(self, stored: Values) -> Float[np.ndarray, "batch n"]:
        """Heights of the centre lines at the abscissae of the points."""
        return self._centre(np.nan_to_num(stored["knots"]))(self._n)

    def _flow(self, stored: Values) -> PipeFlow:
        u, v, p = (stored[name].astype(np.float64) for name in "uvp")
        return PipeFlow(np.stack([u, v], axis=1), p[:, ::2, ::2])

    def along(self, stored: Values) -> tuple[np.ndarray, float]:
        expected = np.linspace(0, self._pipe.length, self._n)[:, None]
        return abs(stored["x"] - expected).max(axis=(1, 2)), EPSILON * self._pipe.length

    def across(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        expected = self._lines(stored)[:, :, None] + self._eta
        return (
            abs(stored["y"] - expected).max(axis=(1, 2)),
            EPSILON * abs(expected).max(axis=(1, 2)),
        )

    def edge(self, name: str) -> Quantity:
        inlet = 0.25 - self._eta**2 if name == "u" else 0 * self._eta

        def distance(stored: Values) -> tuple[np.ndarray, float]:
            values = stored[name]
            distances = [abs(values[:, 0] - inlet), abs(values[:, :, 0]), abs(values[:, :, -1])]
            return np.concatenate(distances, axis=1).max(axis=1), EPSILON

        return distance

    def between(self, stored: Values) -> np.ndarray:
        p = stored["p"].astype(np.float64)
        distance = abs(p - PipeFlow(p, p[:, ::2, ::2]).at_nodes).max(axis=(1, 2))
        return distance / abs(p).max(axis=(1, 2))

    def _scales(self, stored: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Largest speed, amplification factor of derivatives, and largest pressure.

        They determine the rounding errors. On a mesh with n elements across the pipe, a derivative
        multiplies rounding errors by about n times the factor.
        """
        u, v, p = (abs(stored[name].astype(np.float64)).max(axis=(1, 2)) for name in "uvp")
        length = self._pipe.length
        slope = abs(np.diff(self._lines(stored), axis=1)).max(axis=1) * (self._n - 1) / length
        return u + v, 1 + 1 / length + slope, p

    def divergence(self, limit: float | None) -> Quantity:
        """Weak divergence of the stored velocity.

        If `limit` is None, the limit is the effect of rounding the velocity to float32.
        """

        def quantity(stored: Values) -> tuple[np.ndarray, np.ndarray]:
            velocity = self._flow(stored).velocity
            observed = abs(self._pipe.divergence(velocity, self._lines(stored))).max(axis=(1, 2))
            speed, derivative, _ = self._scales(stored)
            rounding = EPSILON * self._pipe.rows * speed * derivative
            return observed, rounding if limit is None else np.full(len(observed), limit)

        return quantity

    def force(self, limit: float | None) -> Quantity:
        """Unbalanced force of the stored flow, relative to the pressure force in a straight pipe.

        If `limit` is None, the limit is the effect of rounding velocity and pressure to float32.
        """

        def quantity(stored: Values) -> tuple[np.ndarray, np.ndarray]:
            residual = self._pipe.residual(self._flow(stored), self._lines(stored))
            observed = np.linalg.norm(residual.reshape(len(residual), -1), axis=1)
            (speed, derivative, p), n = self._scales(stored), self._pipe.rows
            convected = (speed**2 + p) * derivative / self._pipe.viscosity
            rounding = EPSILON * n * (n * speed * derivative**2 + convected)
            return observed, rounding if limit is None else np.full(len(observed), limit)

        return quantity

    def flux(self, exact: bool) -> Quantity:
        """Variation of the flow rate along the pipe, minus the stored variable "flux".

        If `exact` is true, the absolute value of this difference is limited by rounding. Otherwise
        the limit is 1, because the points do not cover all sections of the finer mesh.
        """

        def distance(stored: Values) -> tuple[np.ndarray, float]:
            flow_rates = self._pipe.flow_rates(self._flow(stored))
            difference = np.ptp(flow_rates, axis=1) / FLOW_RATE - stored["flux"]
            return (abs(difference), 4 * EPSILON) if exact else (difference, 1.0)

        return distance
