"""What a store of flows through pipes claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from pdegen.equations.pipe.centre_line import CentreLine
from pdegen.equations.pipe.flow import PipeFlow
from pdegen.equations.pipe.solver import RATE, Pipe
from pdegen.law.check import Bound, Distinct, Law, Values
from pdegen.law.gaussian import EPSILON
from pdegen.law.uniform import UniformLaw

_RESIDUAL, _LOST = 1e-8, 1e-9  # largest residual and weak divergence that the solver leaves
_ERROR = 1.0  # a label that is further off says nothing
# What rounding to float32 makes of the weak divergence, of one element across, and of the residual
# of momentum, for it squared.
_LOST_ROUNDED, _FORCE_ROUNDED = 3e-8, 1e-7
# What the mesh of the points, with 16 elements, makes of a solution of a finer one.
_LOST_FINE, _FORCE_FINE, _BETWEEN_FINE = 2.0, 4.0, 0.5

Built = Callable[[Float[np.ndarray, "batch numbers"]], CentreLine]


def pipe_law(names: Sequence[str], centre: Built, pipe: Pipe, exact: bool) -> Law:
    """The knots are uniform, the points are those of their pipe, and u, v, p are a flow through it.

    At the inlet the velocity is a parabola, on the walls 0. Tested by the elements whose nodes the
    points are, the velocity has no divergence and the forces are in balance, which determines the
    flow. Where the solution is of a finer mesh, that holds up to the error of the mesh of the
    points.

    Args:
        names: Of the knots' numbers.
        centre: From these to the centre lines.
        pipe: The mesh of the points.
        exact: Whether it is the solver's.
    """
    physics, n, coarse = _Physics(centre, pipe), pipe.rows, 16 / pipe.rows
    # the force is relative to 2ν: convection by velocities of 1/4, pressures of 2ν length
    finest = n * max(n, 0.1 / pipe.viscosity, pipe.length)
    lost = _LOST_ROUNDED * n if exact else _LOST_FINE * coarse**2
    force = _FORCE_ROUNDED * finest if exact else _FORCE_FINE * coarse
    between = 2 * EPSILON if exact else _BETWEEN_FINE * coarse**2
    solver = [
        Bound(name, "the solver's error", lambda v, name=name: (v[name], _ERROR))
        for name in ("error", "error_v", "error_p")
    ] + [
        Bound(name, f"minus {said}", lambda v, name=name: (-v[name], 0.0))
        for name, said in [
            ("error", "the solver's error"), ("error_v", "the solver's error"),
            ("error_p", "the solver's error"), ("iterations", "the number of linear systems"),
        ]
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
            Bound("u", "the weak divergence", lambda v: (physics.lost(v), lost)),
            Bound("p", "the force that is not in balance", lambda v: (physics.force(v), force)),
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

    def edge(self, name: str) -> Callable[[Values], tuple[np.ndarray, float]]:
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

    def lost(self, stored: Values) -> np.ndarray:
        velocity = self._flow(stored).velocity
        return abs(self._pipe.divergence(velocity, self._lines(stored))).max(axis=(1, 2))

    def force(self, stored: Values) -> np.ndarray:
        off = self._pipe.residual(self._flow(stored), self._lines(stored))
        return np.linalg.norm(off.reshape(len(off), -1), axis=1)

    def flux(self, exact: bool) -> Callable[[Values], tuple[np.ndarray, float]]:
        """Of a finer mesh the points have not all sections."""

        def distance(stored: Values) -> tuple[np.ndarray, float]:
            rates = self._pipe.rates(self._flow(stored))
            off = np.ptp(rates, axis=1) / RATE - stored["flux"]
            return (abs(off), 4 * EPSILON) if exact else (off, _ERROR)

        return distance
