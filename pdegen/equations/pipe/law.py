"""What a store of flows through pipes claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from pdegen.checks.gaussian import EPSILON
from pdegen.checks.law import Bound, Distinct, Law, Quantity, Values
from pdegen.checks.uniform import UniformLaw
from pdegen.equations.pipe.centre_line import CentreLine
from pdegen.equations.pipe.flow import PipeFlow
from pdegen.equations.pipe.solver import RATE, Pipe

_RESIDUAL, _LOST = 1e-8, 1e-9  # largest residual and weak divergence that the solver leaves
# What the mesh of the points, with 16 elements, makes of a solution of a finer one.
_LOST_FINE, _FORCE_FINE, _BETWEEN_FINE = 2.0, 4.0, 0.5

Built = Callable[[Float[np.ndarray, "batch numbers"]], CentreLine]


def pipe_law(names: Sequence[str], centre: Built, pipe: Pipe, error: float, exact: bool) -> Law:
    """The knots are uniform, the points are those of their pipe, and u, v, p are a flow through it.

    At the inlet the velocity is a parabola, on the walls 0. Tested by the elements whose nodes the
    points are, the velocity has no divergence and the forces are in balance, which determines the
    flow. Where the solution is of a finer mesh, that holds up to the error of the mesh of the
    points.
    """
    physics, coarse = _Physics(centre, pipe), 16 / pipe.rows
    between = 2 * EPSILON if exact else _BETWEEN_FINE * coarse**2
    solver = [
        Bound("error", "the solver's error", lambda v: (v["error"], error)),
        *(
            Bound(name, f"minus {said}", lambda v, name=name: (-v[name], 0.0))
            for name, said in [
                ("error", "the solver's error"), ("error_v", "the solver's error"),
                ("error_p", "the solver's error"), ("iterations", "the number of linear systems"),
            ]
        ),
    ]  # fmt: skip
    return Law(
        (
            UniformLaw("knots", names),
            Distinct("knots"),
            Bound("x", "the distance of the points from equal steps", physics.along),
            Bound("y", "the distance of the points from those of the knots", physics.across),
            Bound("u", "the distance from 1/4 - η² at the inlet, from 0 on the walls",
                  physics.edge("u")),
            Bound("v", "the distance from 0 at the inlet and on the walls", physics.edge("v")),
            Bound("p", "the distance from the means of neighbours, relative to the largest p,",
                  lambda v: (physics.between(v), between)),
            Bound("u", "the weak divergence",
                  physics.lost(None if exact else _LOST_FINE * coarse**2)),
            Bound("p", "the force that is not in balance",
                  physics.force(None if exact else _FORCE_FINE * coarse)),
            Bound("flux", "the distance from the flux of u", physics.flux(exact)),
            Bound("divergence", "the weak divergence", lambda v: (abs(v["divergence"]), _LOST)),
            Bound("residual", "the residual", lambda v: (abs(v["residual"]), _RESIDUAL)),
            Bound("status", "the status", lambda v: (abs(v["status"]), 0.0)),
            *solver,
        )
    )  # fmt: skip


class _Physics:
    """Quantities of each sample that are bounded."""

    def __init__(self, centre: Built, pipe: Pipe) -> None:
        self._centre, self._pipe = centre, pipe
        self._n = 2 * pipe.rows + 1
        self._eta = np.linspace(-0.5, 0.5, self._n)

    def _lines(self, stored: Values) -> Float[np.ndarray, "batch n"]:
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
            off = [abs(values[:, 0] - inlet), abs(values[:, :, 0]), abs(values[:, :, -1])]
            return np.concatenate(off, axis=1).max(axis=1), EPSILON

        return distance

    def between(self, stored: Values) -> np.ndarray:
        p = stored["p"].astype(np.float64)
        off = abs(p - PipeFlow(p, p[:, ::2, ::2]).at_nodes).max(axis=(1, 2))
        return off / abs(p).max(axis=(1, 2))

    def _sizes(self, stored: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """At their largest: the speed, what an element along or across makes of derivatives, for
        each element across, and the pressure."""
        u, v, p = (abs(stored[name].astype(np.float64)).max(axis=(1, 2)) for name in "uvp")
        length = self._pipe.length
        slope = abs(np.diff(self._lines(stored), axis=1)).max(axis=1) * (self._n - 1) / length
        return u + v, 1 + 1 / length + slope, p

    def lost(self, limit: float | None) -> Quantity:
        """At most the limit; without one, what rounding to float32 makes of derivatives."""

        def quantity(stored: Values) -> tuple[np.ndarray, np.ndarray]:
            velocity = self._flow(stored).velocity
            found = abs(self._pipe.divergence(velocity, self._lines(stored))).max(axis=(1, 2))
            speed, steep, _ = self._sizes(stored)
            rounded = EPSILON * self._pipe.rows * speed * steep
            return found, rounded if limit is None else np.full(len(found), limit)

        return quantity

    def force(self, limit: float | None) -> Quantity:
        """At most the limit; without one, what rounding makes of friction, convection, pressure,
        relative to the force 2ν."""

        def quantity(stored: Values) -> tuple[np.ndarray, np.ndarray]:
            off = self._pipe.residual(self._flow(stored), self._lines(stored))
            found = np.linalg.norm(off.reshape(len(off), -1), axis=1)
            (speed, steep, p), n = self._sizes(stored), self._pipe.rows
            carried = (speed**2 + p) * steep / self._pipe.viscosity
            rounded = EPSILON * n * (n * speed * steep**2 + carried)
            return found, rounded if limit is None else np.full(len(found), limit)

        return quantity

    def flux(self, exact: bool) -> Quantity:
        """Of a finer mesh the points have not all sections."""

        def distance(stored: Values) -> tuple[np.ndarray, float]:
            rates = self._pipe.rates(self._flow(stored))
            off = np.ptp(rates, axis=1) / RATE - stored["flux"]
            return (abs(off), 4 * EPSILON) if exact else (off, 1.0)

        return distance
