"""Pipes: the map from the shape of a bent pipe to the steady flow through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import Field, model_validator

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
from pdegen.domains import Curvilinear
from pdegen.equations.base import Problem, check_error, equation, with_rounding
from pdegen.equations.latex import with_value
from pdegen.equations.pipe.solver import FLOW_RATE, CentreLine, Pipe, PipeFlow
from pdegen.numerics.device import Array, constant, empty
from pdegen.sampling.coefficients import Range, placed, uniforms
from pdegen.schema import Count, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Variable, function, geometry, parameters, scalar

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
        """Largest speed, amplification factor of derivatives, and largest pressure."""
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


_MOST_ERROR = 0.5  # largest accepted relative error of u
_NEGLIGIBLE = 1e-10  # v over u below which the error of v is relative to this part of u
_STEP = 8  # resolution - 1 is a multiple: two intervals an element, elements in each of four cubics


class UniformKnots(Strict):
    """Heights d_1 ... d_4 and slopes m_0 ... m_4 of `CentreLine`, independent and uniform.

    The height at the inlet is 0.

    Args:
        heights: Range of the heights of the centre line; the height of the pipe is 1. [length]
        slopes: Range of the slopes at the knots, multiplied by a quarter of the length. [length]
    """

    law: Literal["uniform-knots"]
    heights: Range
    slopes: Range

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the heights and slopes, in the order of the variable "knots"."""
        return tuple([f"d_{k}" for k in range(1, 5)] + [f"m_{k}" for k in range(5)])

    @property
    def sentence(self) -> str:
        (a, b), (c, d) = self.heights, self.slopes
        return (
            f"four cubics between knots; heights d_1 ... d_4 in [{a:.6g}, {b:.6g}], slopes "
            f"m_0 ... m_4 over a quarter of the pipe in [{c:.6g}, {d:.6g}], independent and "
            "uniform; d_0 = 0"
        )

    def build(self, z: Float[np.ndarray, "batch 9"]) -> CentreLine:
        """Centre lines, computed from uniform numbers z in (0, 1)."""
        numbers = placed(z, [self.heights] * 4 + [self.slopes] * 5).T
        return CentreLine(np.pad(numbers[:, :4], ((0, 0), (1, 0))), numbers[:, 4:])


@equation
class BentPipe(Problem):
    """(u·∇)u = -∇p + viscosity Δu, div u = 0 in a pipe of height 1 around a random centre line: the
    map from its shape to velocity and pressure.

    The output has `resolution` points along the pipe and as many across. They are equally spaced
    in x, and in y between the walls. The points are the nodes of the solver's mesh, or every r-th
    node if `refinement` is r.

    Args:
        viscosity: The viscosity ν. [length²/time]
        length: Length of the pipe along x; its height is 1. [length]
        resolution: Nodes along the pipe and across; one more than a multiple of 8.
        refinement: Number of the solver's intervals in each interval of the output, per axis.
        centre: Distribution of the centre lines.
    """

    supports_device: ClassVar[bool] = True
    algorithm: ClassVar[int] = 3  # 3: the error includes rounding to float32
    discretization: ClassVar[tuple[str, ...]] = ("resolution", "refinement")
    largest_batch: ClassVar[int] = 1

    equation: Literal["pipe"]
    viscosity: Annotated[float, Field(ge=1e-12, le=1e6)]
    length: Annotated[float, Field(ge=1, le=1e4)] = 10.0
    resolution: Annotated[Count, Field(ge=33, le=1025)]
    refinement: Annotated[Count, Field(le=8)] = 1
    centre: UniformKnots

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.resolution % _STEP != 1:
            raise ValueError(
                f"resolution must be one more than a multiple of {_STEP} (two intervals for each "
                "element, as many elements for each of the four cubics), got "
                f"{self.resolution}"
            )
        return self

    @property
    def formula(self) -> str:
        return (
            "u . grad u = -grad p + viscosity laplace u, div u = 0 in a bent pipe of height 1, "
            "u = (1/4 - eta^2, 0) at the inlet, 0 on the walls, viscosity du/dn = p n at the outlet"
        )

    @property
    def latex(self) -> str:
        return (
            r"u \cdot \nabla u = -\nabla p + \nu \Delta u,\quad \nabla \cdot u = 0,\quad "
            r"u = (\tfrac{1}{4} - \eta^2, 0) \text{ at the inlet},\quad "
            r"u = 0 \text{ on the walls},\quad "
            r"\nu \frac{\partial u}{\partial n} = p n \text{ at the outlet}"
            + with_value(r"\nu", self.viscosity)
        )

    @property
    def domain(self) -> Curvilinear:
        return Curvilinear((self.resolution, self.resolution), 2)

    @property
    def elements(self) -> int:
        """Number of elements of the solver's mesh along each axis."""
        return self.refinement * (self.resolution - 1) // 2

    def variables(self) -> tuple[Variable, ...]:
        domain, nu = self.domain, self.viscosity
        names = ", ".join(self.centre.names)
        return (
            function(domain, "u", "target", "horizontal velocity", viscosity=nu),
            function(domain, "v", "target", "vertical velocity", viscosity=nu),
            function(domain, "p", "target", "pressure", viscosity=nu),
            *geometry(domain),
            parameters(
                "knots", "number", len(self.centre.names), f"place of {names} in their ranges"
            ),
            scalar("error", "quality", "estimate of the relative L2 error of u over the points"),
            scalar("error_v", "quality", "estimate of the relative L2 error of v over the points"),
            scalar(
                "error_p", "quality", "estimate of the relative L2 error of p, corners left out"
            ),
            scalar("flux", "quality", "largest less smallest flow through a section, over 1/6"),
            scalar("divergence", "quality", "largest weak divergence of the velocity"),
            scalar("residual", "quality", "of the discrete equations, relative"),
            scalar("iterations", "quality", "linear systems solved on the mesh", dtype="int64"),
            scalar("status", "quality", "0: Newton's method converged", dtype="int64"),
        )

    def physics(self) -> Physics:
        return Physics(
            sentences={"centre": self.centre.sentence},
            drawing={"u": Drawing("u"), "v": Drawing("v", "diverging"), "p": Drawing("p")},
        )

    @property
    def floats_per_sample(self) -> int:
        """Number of floats in the matrices for the error estimate, which has the finest mesh."""
        n = self.elements
        return 2 * n * 45 * n**2 + 2000 * n**2

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        """The variables of these samples.

        Newton's method starts from the flow on a mesh with half as many elements along each axis.
        For the error estimate, one more Newton step is made on a mesh with twice as many elements
        along the pipe.
        """
        z = uniforms(seed, samples, len(self.centre.names))
        line, n, nu = self.centre.build(z), self.elements, self.viscosity
        like = empty((1,), np.float64, device)
        xp = array_namespace(like)
        meshes = [(n // 2, n // 2), (n, n), (2 * n, n)]
        coarse, pipe, long = (Pipe(*mesh, self.length, nu) for mesh in meshes)
        coarse_centre, centre, fine_centre = (
            constant(line(2 * mesh[0] + 1), like) for mesh in meshes
        )
        start = coarse.solve(coarse_centre).flow.refined()
        flow, residual, iterations = pipe.solve(centre, start)
        improved = long.improved(fine_centre, flow.refined((1,)))
        fields, references = self._values(flow), self._values(improved, along=2)
        errors = relative_errors(fields, references)
        check_error(errors[0], _MOST_ERROR, "the pipe bends too far for its mesh")
        flow_rates = pipe.flow_rates(flow)
        divergence = xp.abs(pipe.divergence(flow.velocity, centre))
        single = [xp.astype(values, xp.float32) for values in fields]
        x = constant(np.linspace(0, self.length, self.resolution).astype(np.float32), like)
        y = constant(self.heights(z).astype(np.float32), like)
        return {
            **dict(zip("uvp", single, strict=True)),
            "x": xp.broadcast_to(x[:, None], y.shape),
            "y": y,
            "knots": constant(z, like),
            **dict(zip(("error", "error_v", "error_p"), map(with_rounding, errors), strict=True)),
            "flux": (xp.max(flow_rates, axis=1) - xp.min(flow_rates, axis=1)) / FLOW_RATE,
            "divergence": xp.max(xp.reshape(divergence, (len(z), -1)), axis=1),
            "residual": residual,
            "iterations": iterations,
            "status": xp.zeros_like(iterations),
        }

    def heights(self, z: Float[np.ndarray, "batch 9"]) -> Float[np.ndarray, "batch n n"]:
        """Heights y of the points, computed from uniform numbers z in (0, 1)."""
        line = self.centre.build(z)(self.resolution)
        return line[:, :, None] + np.linspace(-0.5, 0.5, self.resolution)

    def _values(self, flow: PipeFlow, along: int = 1) -> list[Array]:
        """u, v and p at the points. The mesh of `flow` is `along` times finer along the pipe."""
        r = self.refinement
        points = (slice(None), slice(None, None, along * r), slice(None, None, r))
        velocity, pressure = flow.velocity, flow.at_nodes
        return [values[points] for values in (velocity[:, 0], velocity[:, 1], pressure)]

    def checks(self) -> StoreChecks:
        elements = (self.resolution - 1) // 2
        pipe = Pipe(elements, elements, self.length, self.viscosity)
        return pipe_checks(
            self.centre.names, self.centre.build, pipe, _MOST_ERROR, exact=self.refinement == 1
        )


def relative_errors(fields: list[Array], references: list[Array]) -> list[Float[Array, " batch"]]:
    """Relative L² differences between u, v, p and reference fields, by the trapezoidal rule.

    The difference of p excludes the two corners of the inlet. If the centre line has a slope at the
    inlet, the boundary values contradict div u = 0 in the corners. The pressure there grows like
    the logarithm of the number of elements.
    """
    xp, n = array_namespace(fields[0]), fields[0].shape[1]
    ends = np.ones(n)
    ends[[0, -1]] = 0.5
    area = np.outer(ends, ends)
    without_corners = area.copy()
    without_corners[0, [0, -1]] = 0

    def norm(values: Array, weights: np.ndarray) -> Float[Array, " batch"]:
        return xp.sqrt(xp.sum(constant(weights, values) * values**2, axis=(1, 2)))

    weights = (area, area, without_corners)
    norms = [norm(values, weight) for values, weight in zip(references, weights, strict=True)]
    norms[1] = xp.maximum(norms[1], _NEGLIGIBLE * norms[0])
    parts = zip(fields, references, weights, norms, strict=True)
    return [norm(u - reference, weight) / size for u, reference, weight, size in parts]
