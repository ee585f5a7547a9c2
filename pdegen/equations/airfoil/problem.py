"""Airfoils: the map from the shape of an airfoil to the steady transonic flow around it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from pdegen.checks.check import StoreChecks
from pdegen.domains import Curvilinear
from pdegen.equations.airfoil.checks import airfoil_checks
from pdegen.equations.airfoil.grid import NORMAL_CELLS, PUBLISHED_CELLS
from pdegen.equations.airfoil.solver import Airfoil
from pdegen.equations.airfoil.stream import FreeStream
from pdegen.equations.base import Problem, with_rounding
from pdegen.equations.latex import with_value
from pdegen.equations.registry import equation
from pdegen.sampling.coefficients import Finite, uniforms
from pdegen.schema import Count, Strict
from pdegen.store.format import Drawing, Physics, SurfaceCurve
from pdegen.store.layout import Variable, function, geometry, parameters, scalar

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
        """Number of floats in the factors of the Newton matrix.

        The fill-in per cell grows like the logarithm of the number of cells.
        """
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
