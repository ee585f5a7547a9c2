"""Airfoils: the map from the shape of an airfoil to the steady transonic flow around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    StoreChecks,
    UniformCheck,
    Values,
    stated_error,
)
from pdegen.domains import Curvilinear
from pdegen.equations.airfoil.mesh import NORMAL_CELLS, PUBLISHED_CELLS, WAKE_CELLS, c_grid
from pdegen.equations.airfoil.solver import Airfoil, FreeStream
from pdegen.equations.base import Problem, equation, with_rounding
from pdegen.equations.latex import with_value
from pdegen.sampling.coefficients import Finite, uniforms
from pdegen.schema import Count, Strict
from pdegen.store.format import Drawing, Physics, SurfaceCurve
from pdegen.store.layout import Variable, function, geometry, parameters, scalar

_ROUNDING = 16 * EPSILON  # relative rounding of a quantity computed from a few float32 numbers
_NAMES = tuple(f"d{k}" for k in range(2, 9))

# maps displacements to the uniform numbers in (0, 1) that define them, shape (batch, 7)
ToUniforms = Callable[[Float[np.ndarray, "batch 8"]], Float[np.ndarray, "batch 7"]]


def airfoil_checks(
    stream: FreeStream, resolution: int, to_uniforms: ToUniforms, tolerance: float
) -> StoreChecks:
    """Checks of flows around random airfoils.

    The displacements of the control points are uniform. The nodes are those of the C-grid that the
    displacements define. Density, pressure and velocity describe one flow:

    - The total enthalpy equals that of the stream at all nodes.
    - The entropy ahead of the airfoil equals that of the stream.
    - The Mach number follows from density, pressure and velocity.
    - No gas flows through the wall, and drag and lift follow from the pressure on the wall.
    - Far from the airfoil the state is that of the stream.
    """
    flow = _Flow(stream, resolution)
    return StoreChecks(
        (
            _Uniform(to_uniforms),
            Distinct("design"),
            Distinct("u"),
            Bound(
                "design",
                "the displacement of the fixed control point",
                lambda v: (abs(v["design"][:, 0]), 0.0),
            ),
            Bound("residual", "the residual", lambda v: (abs(v["residual"]), tolerance)),
            Bound("status", "the status", lambda v: (abs(v["status"]).astype(float), 0.0)),
            *stated_error(math.inf),
            Bound("x", "the distance of the nodes from those of the design", flow.nodes),
            Bound("weight", "the distance from the areas of the nodes", flow.areas),
            Bound("density", "the number of nodes without density or pressure", flow.empty),
            Bound("pressure", "the relative deviation of the total enthalpy", flow.enthalpy),
            Bound("u", "the distance from the Mach number of the fields", flow.mach),
            Bound("density", "the change of entropy ahead of the airfoil", flow.entropy),
            Bound("density", "the loss of entropy", flow.entropy_loss),
            Bound("velocity", "the fraction of the velocity through the wall", flow.through),
            Bound("velocity", "the distance from the stream far away", flow.far),
            Bound("lift", "the distance of drag and lift from those of the pressures", flow.forces),
        )
    )


class _Uniform(UniformCheck):
    """The numbers from which the displacements were computed are uniform in (0, 1)."""

    subject = "the displacements"

    def __init__(self, to_uniforms: ToUniforms) -> None:
        super().__init__("design", _NAMES)
        self._to_uniforms = to_uniforms

    def add(self, numbers: np.ndarray, values: Values) -> None:
        super().add(numbers, {"design": self._to_uniforms(values["design"])})


class _Flow:
    """Quantities that the checks bound for each sample, and their limits.

    A limit is several times the largest value that occurred for random designs.
    """

    def __init__(self, stream: FreeStream, resolution: int) -> None:
        self._stream, self._n = stream, resolution
        self._wake = resolution * WAKE_CELLS // PUBLISHED_CELLS

    def _state(self, v: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Density, pressure and velocity, converted to float64."""
        rho, p, u = (v[name].astype(np.float64) for name in ("density", "pressure", "velocity"))
        return rho, p, u

    def _points(self, v: Values) -> Float[np.ndarray, "batch n m 2"]:
        return np.stack([v["x"], v["y"]], axis=-1).astype(np.float64)

    def _wall(self, values: np.ndarray) -> np.ndarray:
        """Values at the nodes on the wall, taken from values (batch, n, m, ...) at all nodes."""
        return values[:, self._wake : self._n - self._wake + 1, 0]

    def nodes(self, v: Values) -> tuple[np.ndarray, np.ndarray]:
        expected = np.array([c_grid(design, self._n) for design in v["design"]])
        distance = abs(self._points(v) - expected.reshape(*v["x"].shape, 2)).max(axis=-1)
        limit = EPSILON * abs(expected).reshape(*v["x"].shape, 2).max(axis=-1)
        return (distance - limit).max(axis=(1, 2)), np.full(len(distance), 1e-12)

    def areas(self, v: Values) -> tuple[np.ndarray, np.ndarray]:
        size = v["x"].shape[1:]
        areas = [Curvilinear(size, 2, points).weights for points in self._points(v)]
        distance = abs(np.array(areas).reshape(v["weight"].shape) - v["weight"])
        return distance.max(axis=(1, 2)), 1e-4 * v["weight"].max(axis=(1, 2))

    def empty(self, v: Values) -> tuple[np.ndarray, float]:
        lacking = ~((v["density"] > 0) & (v["pressure"] > 0))
        return lacking.sum(axis=(1, 2)).astype(np.float64), 0.0

    def enthalpy(self, v: Values) -> tuple[np.ndarray, float]:
        rho, p, u = self._state(v)
        gamma, h = self._stream.gamma, self._stream.enthalpy
        with np.errstate(divide="ignore", invalid="ignore"):  # `empty` reports these nodes
            defect = gamma / (gamma - 1) * p / rho + (u**2).sum(axis=1) / 2 - h
        return abs(defect).max(axis=(1, 2)) / h, _ROUNDING

    def mach(self, v: Values) -> tuple[np.ndarray, float]:
        rho, p, u = self._state(v)
        with np.errstate(divide="ignore", invalid="ignore"):
            mach_number = np.sqrt((u**2).sum(axis=1) * rho / (self._stream.gamma * p))
        return abs(mach_number - v["u"]).max(axis=(1, 2)), _ROUNDING

    def _entropy(self, v: Values) -> Float[np.ndarray, "batch n m"]:
        """Entropy log p/ρ^γ, which is 0 in the undisturbed stream."""
        rho, p, _ = self._state(v)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(p) - self._stream.gamma * np.log(rho)

    def entropy(self, v: Values) -> tuple[np.ndarray, float]:
        ahead = self._entropy(v)[:, self._n // 2, 2 * v["x"].shape[2] // 5 :]
        return abs(ahead).max(axis=1), 1e-3

    def entropy_loss(self, v: Values) -> tuple[np.ndarray, float]:
        return -self._entropy(v).min(axis=(1, 2)), 0.05

    def through(self, v: Values) -> tuple[np.ndarray, float]:
        """Ratio of Σ |u·n| |face| to Σ |u| |face| over the faces on the wall."""
        along = np.diff(self._wall(self._points(v)), axis=1)
        u = self._wall(np.moveaxis(v["velocity"], 1, -1).astype(np.float64))
        u = (u[:, 1:] + u[:, :-1]) / 2
        across = abs(u[..., 0] * along[..., 1] - u[..., 1] * along[..., 0]).sum(axis=1)
        length = np.linalg.norm(along, axis=-1)
        return across / (np.linalg.norm(u, axis=-1) * length).sum(axis=1), 0.05

    def far(self, v: Values) -> tuple[np.ndarray, float]:
        rho, _, u = self._state(v)
        state = np.concatenate([rho[:, None], u], axis=1)[..., -1]
        return abs(state - self._stream.state[:, None]).max(axis=(1, 2)), 0.02

    def forces(self, v: Values) -> tuple[np.ndarray, np.ndarray]:
        p, along = (
            self._wall(v["pressure"].astype(float)),
            np.diff(self._wall(self._points(v)), axis=1),
        )
        p = (p[:, 1:] + p[:, :-1]) / 2 - 1
        # the wall runs from the trailing edge over the upper side: the airfoil is on its left
        x, y = -(p * along[..., 1]).sum(axis=1), (p * along[..., 0]).sum(axis=1)
        cos, sin = self._stream.direction
        dynamic = self._stream.speed**2 / 2  # ρ|u|²/2 of the stream
        drag, lift = (x * cos + y * sin) / dynamic, (y * cos - x * sin) / dynamic
        distance = np.maximum(abs(drag - v["drag"]), abs(lift - v["lift"]))
        return distance, 0.02 + 0.02 * abs(v["lift"])


FREE = 7  # control points that move; the first of the eight is fixed
_ORDER = 2  # order of the scheme


def richardson_error(u: Float[np.ndarray, "n m"], coarse: Float[np.ndarray, "k l"]) -> float:
    """Richardson's estimate of the relative L2 error of u over the nodes.

    The scheme has order 2. If the cells of the coarse grid are r times larger, the error of u is
    about the difference between both solutions, divided by r² - 1. A cubic spline interpolates the
    coarse solution to the nodes.

    >>> u = np.multiply.outer(np.linspace(1, 2, 9), np.ones(9))
    >>> round(richardson_error(u, 1.03 * u[::2, ::2]), 12)  # r = 2: a third of the difference
    0.01
    """
    from scipy.interpolate import RectBivariateSpline

    x, y, i, j = (np.linspace(0, 1, n) for n in (*coarse.shape, *u.shape))
    interpolated = RectBivariateSpline(x, y, coarse)(i, j)
    ratio = (len(u) - 1) / (len(coarse) - 1)
    return float(np.linalg.norm(u - interpolated) / np.linalg.norm(u) / (ratio**_ORDER - 1))


class UniformDesign(Strict):
    """Vertical displacements of seven control points, independent and uniform; the eighth, on the
    lower left, is fixed.

    Args:
        amplitude: Largest displacement of a control point. [chord]
    """

    law: Literal["uniform-design"]
    amplitude: Annotated[float, Field(gt=0, le=0.2, allow_inf_nan=False)]

    @property
    def sentence(self) -> str:
        return (
            "NACA 0012, its points moved up or down by a cubic in x, linear in y, through eight "
            f"control points: d₂ ... d₈ uniform in ±{self.amplitude:.6g}, d₁ = 0"
        )

    def build(self, seed: int, samples: range) -> Float[np.ndarray, "batch 8"]:
        """Vertical displacements of the eight control points of each sample."""
        z = uniforms(seed, samples, FREE)
        return np.concatenate([np.zeros((len(z), 1)), self.amplitude * (2 * z - 1)], axis=1)

    def uniform_numbers(self, design: Float[np.ndarray, "batch 8"]) -> Float[np.ndarray, "batch 7"]:
        """The numbers in (0, 1) from which `build` computes the displacements `design`."""
        return (design[:, 1:] / self.amplitude + 1) / 2


class Steady(Strict):
    """Finite volumes and Newton's method (`solver.Euler`).

    Args:
        tolerance: Largest residual, relative to that of the undisturbed stream. [1]
    """

    tolerance: Annotated[float, Field(ge=1e-10, le=1e-4)] = 1e-6


@equation
class AirfoilFlow(Problem):
    """The steady Euler equations of an ideal gas around morphed airfoils: the map from the nodes of
    a C-grid to the Mach number.

    Args:
        mach: Mach number of the stream far away. [1]
        angle: Angle of attack, measured from the chord to the stream. [degree]
        gamma: Ratio γ of specific heats. [1]
        resolution: Number of cells around the airfoil and along both sides of its wake.
        design: Distribution of the shapes.
        solver: Options of the solver.
    """

    algorithm: ClassVar[int] = 4  # 4: the error includes rounding to float32
    largest_batch: ClassVar[int] = 1
    compiled: ClassVar[bool] = True

    equation: Literal["airfoil"]
    mach: Annotated[float, Field(ge=0.1, le=0.9)]
    angle: Annotated[Finite, Field(ge=-5, le=5)] = 0.0
    gamma: Annotated[float, Field(ge=1.05, le=3)] = 1.4
    resolution: Annotated[Count, Field(ge=176, le=1760, multiple_of=44)]
    design: UniformDesign
    solver: Steady = Steady()

    @property
    def stream(self) -> FreeStream:
        """The undisturbed stream."""
        return FreeStream(self.mach, self.angle, self.gamma)

    @property
    def _dynamic(self) -> float:
        """Dynamic pressure ρ|u|²/2 of the stream, the unit of the pressure coefficient."""
        return self.gamma * self.mach**2 / 2

    @property
    def formula(self) -> str:
        ratio = f"{self.gamma:.6g}/{self.gamma - 1:.6g}"
        return (
            "div(rho u) = 0, div(rho u u) + grad p = 0, div(u (E + p)) = 0, that is "
            f"{ratio} p/rho + |u|^2/2 = {self.stream.enthalpy:.6g}, around a section"
        )

    @property
    def latex(self) -> str:
        return (
            r"\nabla \cdot (\rho u) = 0,\quad \nabla \cdot (\rho u \otimes u) + \nabla p = 0,\quad "
            r"\frac{\gamma}{\gamma - 1} \frac{p}{\rho} + \tfrac{1}{2} |u|^2 = H"
            + with_value("H", self.stream.enthalpy)
            + with_value(r"\gamma", self.gamma)
        )

    @property
    def domain(self) -> Curvilinear:
        return Curvilinear(
            (self.resolution + 1, self.resolution * NORMAL_CELLS // PUBLISHED_CELLS + 1), 2
        )

    def variables(self) -> tuple[Variable, ...]:
        domain = self.domain
        stream: dict[str, Any] = {"mach": self.mach, "angle": self.angle, "gamma": self.gamma}
        design = "displacements of the control points: lower left to right, upper right to left"
        return (
            function(domain, "u", "target", "Mach number", **stream),
            function(domain, "density", "target", "density, 1 far away"),
            function(domain, "pressure", "target", "pressure, 1 far away"),
            function(domain, "velocity", "target", "velocity", channels=("u", "v")),
            *geometry(domain),
            function(domain, "weight", "weight", "area that belongs to each node"),
            parameters("design", "control", 8, design),
            scalar("drag", "quality", "drag over the chord and rho |u|^2/2 of the stream"),
            scalar("lift", "quality", "lift over the chord and rho |u|^2/2 of the stream"),
            scalar("error", "quality", "estimate of the relative L2 error of u over the nodes"),
            scalar("residual", "quality", "of the discrete equations, over that of the stream"),
            scalar("iterations", "quality", "steps of Newton's method", dtype="int64"),
            scalar("status", "quality", "0: steady", dtype="int64"),
        )

    def physics(self) -> Physics:
        return Physics(
            sentences={
                "design": self.design.sentence,
                "stream": f"Mach {self.mach:.6g} at {self.angle:.6g} degrees, rho = p = 1",
                "solver": f"relative residual at most {self.solver.tolerance:g}",
            },
            drawing={
                "u": Drawing("M", contours=True, along=SurfaceCurve("M")),
                "density": Drawing("ρ"),
                "pressure": Drawing("p", along=SurfaceCurve("−c_p", 1.0, -self._dynamic)),
                "velocity": Drawing("u", "diverging"),
            },
            near={"x": (-0.5, 1.5), "y": (-0.5, 0.5)},  # half a chord around the airfoil
        )

    @property
    def floats_per_sample(self) -> int:
        """Number of floats in the factors of the Newton matrix."""
        n, m = self.resolution, self.resolution * NORMAL_CELLS // PUBLISHED_CELLS
        return int(300 * n * m * np.log2(n * m))

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        (design,) = self.design.build(seed, samples)
        airfoil = Airfoil(design, self.stream, self.solver.tolerance)
        (coarse, coarse_solution), (euler, solution) = airfoil.solve_on_two_grids(self.resolution)
        q = euler.mesh.at_nodes(solution.q)
        coarse_q = coarse.mesh.at_nodes(coarse_solution.q)
        u, coarse_u = (self.stream.mach_number(states) for states in (q, coarse_q))
        points = euler.mesh.points
        drag, lift = euler.forces(solution.q)
        fields = {
            "u": u,
            "density": q[..., 0],
            "pressure": self.stream.pressure(q),
            "velocity": np.moveaxis(q[..., 1:], -1, 0),
            "x": points[..., 0],
            "y": points[..., 1],
            "weight": self.domain.at(points).weights,
        }
        values = {
            **{name: values.astype(np.float32) for name, values in fields.items()},
            "design": design,
            "drag": drag,
            "lift": lift,
            "error": with_rounding(np.array(richardson_error(u, coarse_u))),
            "residual": solution.residual,
            "iterations": solution.iterations,
            "status": 0,
        }
        return {name: np.array([value]) for name, value in values.items()}

    def checks(self) -> StoreChecks:
        return airfoil_checks(
            self.stream, self.resolution, self.design.uniform_numbers, self.solver.tolerance
        )
