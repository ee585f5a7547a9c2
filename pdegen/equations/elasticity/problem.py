"""Elasticity: the map from the shape of a void in a square sheet to the stress around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from pdegen.checks.check import StoreChecks
from pdegen.domains import Cloud
from pdegen.equations.base import Problem, check_error, with_rounding
from pdegen.equations.elasticity.checks import elasticity_checks
from pdegen.equations.elasticity.material import Hooke, Material, MooneyRivlin, von_mises
from pdegen.equations.elasticity.mesh import PointTransfer, Rings
from pdegen.equations.elasticity.recovery import Recovery
from pdegen.equations.elasticity.solver import Body, Sheet, Solution
from pdegen.equations.latex import with_value
from pdegen.equations.registry import equation
from pdegen.numerics.device import SolveError, first_true
from pdegen.sampling.coefficients import RandomVoid
from pdegen.schema import Count, NonNegative, Positive, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Variable, function, geometry, parameters, scalar

ANGLES = np.linspace(0, 2 * np.pi, 42)  # angles at which published files have the radius
_ASPECT = 12  # elements around the void over those across
_MOST_ERROR = 0.5  # largest accepted relative error of u

# moduli and loads for which displacements are float32 numbers
_Size = Annotated[float, Field(ge=1e-12, le=1e12)]


class GaussianRadius(Strict):
    """Radius r(φ) = least + span/(1 + exp g(φ)), with a Gaussian field g (`sampling.void`).

    Args:
        least: Smallest radius of a void, below 0.5. [length]
        span: Difference between the largest and the smallest radius. [length]
        sigma: Scale σ of the covariance σ²(-d²/dφ² + τ²)⁻² of g. [1]
        tau: Inverse correlation angle τ of g. [1/rad]
        modes: Number of Fourier modes of g.
    """

    law: Literal["gaussian-radius"]
    least: Positive
    span: NonNegative
    sigma: Annotated[float, Field(gt=0, le=1e6)]
    tau: Annotated[float, Field(ge=0, le=1e6)]
    modes: Annotated[Count, Field(le=64)]

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.least >= 0.5:
            raise ValueError(
                f"least must be below 0.5, got {self.least}: every void leaves the square"
            )
        return self

    @property
    def sentence(self) -> str:
        return (
            f"radius {self.least:.6g} + {self.span:.6g}/(1 + exp g), g Gaussian with covariance "
            f"{self.sigma:.6g}² (−d²/dφ² + {self.tau:.6g}²)⁻² on the circle of angles φ, "
            f"modes 1 to {self.modes}"
        )

    def build(self) -> RandomVoid:
        return RandomVoid(self.least, self.span, self.sigma, self.tau, self.modes)


class LinearMaterial(Strict):
    """A linear material at small strains (`material.Hooke`).

    Args:
        young: Young's modulus E. [pressure]
        poisson: Poisson's ratio ν. [1]
    """

    law: Literal["linear"]
    young: _Size
    poisson: Annotated[float, Field(ge=0, le=0.5)] = 0.5

    steps: ClassVar[int] = 1

    @property
    def sentence(self) -> str:
        return f"linear, Young's modulus {self.young:.6g}, Poisson's ratio {self.poisson:.6g}"

    @property
    def formula(self) -> str:
        return "sigma = E/(1 - nu^2) ((1 - nu) eps + nu tr(eps))"

    @property
    def latex(self) -> str:
        return (
            r"\sigma = \frac{E}{1 - \nu^2} \left((1 - \nu) \varepsilon + \nu "
            r"\operatorname{tr}(\varepsilon) I\right)"
            + with_value("E", self.young)
            + with_value(r"\nu", self.poisson)
        )

    def build(self) -> Material:
        return Hooke(self.young, self.poisson)


class MooneyRivlinMaterial(Strict):
    """An incompressible material at large strains, W = C₁(I₁ - 3) + C₂(I₂ - 3).

    Args:
        c1: The constant C₁. [pressure]
        c2: The constant C₂. [pressure]
        steps: Number of equal load steps.
    """

    law: Literal["mooney-rivlin"]
    c1: _Size
    c2: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    steps: Annotated[Count, Field(le=1000)] = 5

    @property
    def sentence(self) -> str:
        return f"incompressible, W = {self.c1:.6g} (I₁ − 3) + {self.c2:.6g} (I₂ − 3)"

    @property
    def formula(self) -> str:
        return "incompressible, W = C1 (I1 - 3) + C2 (I2 - 3)"

    @property
    def latex(self) -> str:
        return (
            r"\text{incompressible},\quad W = C_1 (I_1 - 3) + C_2 (I_2 - 3)"
            + with_value("C_1", self.c1)
            + with_value("C_2", self.c2)
        )

    def build(self) -> Material:
        return MooneyRivlin(self.c1, self.c2)


@dataclass(frozen=True)
class _Label:
    """Displacement and von Mises stress at the points of the dataset."""

    displacement: Float[np.ndarray, "batch points 2"]
    stress: Float[np.ndarray, "batch points"]


@equation
class Elasticity(Problem):
    """div σ = 0 in a square sheet with a void, clamped below and pulled above, in plane stress: the
    map from the shape of the void to the von Mises stress.

    The values belong to the Gauss points of a mesh with `resolution` elements around the void. The
    mesh of the solver is `refinement` times finer.

    Args:
        traction: Force on the top per length and thickness. [pressure]
        resolution: Number of elements around the void, 12 times the number from void to side.
        refinement: Number of the solver's elements in each element of the output, per axis.
        grading: Number of times that the solver's elements are halved towards the clamped corners.
        stress: Stress from the displacement at a point ("direct"), or interpolated between points
            at which it has order 3 ("recovered").
        void: Distribution of the shapes.
        material: Material of the sheet.
    """

    algorithm: ClassVar[int] = 2  # 2: the error includes rounding to float32
    discretization: ClassVar[tuple[str, ...]] = (
        "resolution", "refinement", "grading", "stress", "material.steps"
    )  # fmt: skip

    equation: Literal["elasticity"]
    traction: _Size
    resolution: Annotated[Count, Field(ge=_ASPECT, le=1200, multiple_of=_ASPECT)]
    refinement: Annotated[Count, Field(le=8)] = 1
    # left out of fingerprints at these values, which recipes without the keys have
    grading: Annotated[int, Field(ge=0, le=20, exclude_if=lambda g: g == 0)] = 0
    stress: Annotated[
        Literal["direct", "recovered"], Field(exclude_if=lambda method: method == "direct")
    ] = "direct"
    void: GaussianRadius
    material: Annotated[LinearMaterial | MooneyRivlinMaterial, Field(discriminator="law")]

    @model_validator(mode="after")
    def _recoverable(self) -> Self:
        across = self.refinement * self.resolution // _ASPECT + self.grading
        if self.stress == "recovered" and across < 2:
            raise ValueError(
                'stress = "recovered" needs two elements of the solver from the void to the '
                f"side, got {across}: increase refinement or resolution"
            )
        return self

    @property
    def formula(self) -> str:
        return (
            f"div sigma = 0 in plane stress, {self.material.formula}, no displacement below, "
            f"the force (0, {self.traction:.6g}) over the length above, none on the other sides"
        )

    @property
    def latex(self) -> str:
        return (
            rf"\nabla \cdot \sigma = 0,\quad {self.material.latex},\quad "
            r"u = 0 \text{ below},\quad \sigma n = (0, q) \text{ above},\quad "
            r"\sigma n = 0 \text{ elsewhere}" + with_value("q", self.traction)
        )

    @property
    def rings(self) -> Rings:
        """The mesh whose Gauss points are the points of the dataset."""
        return Rings(self.resolution, self.resolution // _ASPECT)

    @property
    def domain(self) -> Cloud:
        """The nine Gauss points of each element, with cells between neighbouring points."""
        rings = self.rings
        return Cloud((9 * rings.around * rings.across,), 2, None, rings.cells)

    def variables(self) -> tuple[Variable, ...]:
        domain, modes = self.domain, self.void.modes
        theta = "numbers of the radius's Gaussian field: of cos φ, sin φ, cos 2φ, sin 2φ ..."
        radius = "radius of the void at equal angles from 0 to 2π, both included"
        return (
            function(domain, "u", "target", "von Mises stress", traction=self.traction),
            function(
                domain, "displacement", "target", "displacement of the points", channels=("x", "y")
            ),
            *geometry(domain),
            function(domain, "weight", "weight", "area that belongs to each point"),
            parameters("theta", "mode", 2 * modes, theta),
            parameters("radius", "angle", len(ANGLES), radius),
            scalar("error", "quality", "estimate of the relative L2 error of u over the points"),
            scalar("residual", "quality", "of the discrete equations, relative to the load"),
            scalar("iterations", "quality", "linear systems solved for u", dtype="int64"),
            scalar("status", "quality", "0: in equilibrium", dtype="int64"),
        )

    def physics(self) -> Physics:
        return Physics(
            sentences={"void": self.void.sentence, "material": self.material.sentence},
            drawing={"u": Drawing("σ"), "displacement": Drawing("u", "diverging")},
        )

    @property
    def largest_batch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 if self.grading else 4

    @property
    def floats_per_sample(self) -> int:
        """Number of floats in the matrices for the finest mesh."""
        finest = PointTransfer(self.rings, 2 * self.refinement, self.grading).fine
        around, across = finest.around, finest.across
        return self.largest_batch * around * (3000 * across + 4 * (3 * (4 * across + 2)) ** 2)

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        return self.labels(self.void.build().theta(seed, samples))

    def labels(self, theta: Float[np.ndarray, "batch 2K"]) -> dict[str, np.ndarray]:
        """Variables of the samples whose voids have the numbers theta.

        Raises SolveError if a void leaves the square or contains a point, if the solver does not
        converge, or if the error of the stress is too large.
        """
        void, r, g = self.void.build(), self.refinement, self.grading
        transfers = [PointTransfer(self.rings, *mesh) for mesh in ((1,), (r, g), (2 * r, g))]
        coarse, fine, finer = (
            Body.of(transfer.fine, void.radius(theta, transfer.fine.angles))
            for transfer in transfers
        )
        coarse.check()  # the solver checks the others
        points = coarse.points
        row = first_true((void.depth(theta, points - 0.5) > 0).any(axis=1))
        if row is not None:  # the finer meshes follow the void and have no values there
            raise SolveError(
                row, "a point lies inside the void, which is too rough for the mesh of the points"
            )
        solution = self.sheet(fine.rings).solve(fine)
        nested = self.material.steps > 1 and not g
        start = fine.rings.halved(solution.u) if nested else None
        reference_solution = self.sheet(finer.rings).solve(finer, start)
        label = self._label(fine, solution, transfers[1], points)
        reference = self._label(finer, reference_solution, transfers[2], points)
        x = points.astype(np.float32)
        difference = np.linalg.norm(label.stress - reference.stress, axis=1)
        error = difference / np.linalg.norm(reference.stress, axis=1)
        check_error(error, _MOST_ERROR, "the void is too rough for its mesh")
        return {
            "u": label.stress.astype(np.float32),
            "displacement": label.displacement.swapaxes(1, 2).astype(np.float32),
            "x": x[..., 0],
            "y": x[..., 1],
            "weight": coarse.weights.astype(np.float32),
            "theta": theta,
            "radius": void.radius(theta, ANGLES),
            "error": with_rounding(error),
            "residual": solution.residual,
            "iterations": solution.iterations,
            "status": np.zeros(len(theta), np.int64),
        }

    def sheet(self, rings: Rings) -> Sheet:
        """The equations of the sheet on the mesh `rings`."""
        return Sheet(rings, self.material.build(), self.traction, self.material.steps)

    def _label(
        self, body: Body, solution: Solution, transfer: PointTransfer, points: np.ndarray
    ) -> _Label:
        """Displacement and stress at the points, interpolated from a solution."""
        if transfer.fine == self.rings:
            u, gradient = body.at_points(solution.u), body.gradient(solution.u)
        else:
            occurrences = transfer.values(body.nodes, points, solution.u)
            u, gradient = (transfer.mean(values) for values in occurrences)
        if self.stress == "recovered":
            places = transfer.places(body.nodes, points)
            gradient = Recovery(body.rings).gradient(body.nodes, solution.u, places)
        stress = von_mises(self.material.build().true_stress(gradient))
        return _Label(u, np.ascontiguousarray(stress))  # its sums have the same bits in any batch

    def checks(self) -> StoreChecks:
        return elasticity_checks(
            self.void.build(), self.sheet(self.rings), ANGLES, _MOST_ERROR,
            exact=(self.refinement, self.grading, self.stress) == (1, 0, "direct"),
        )  # fmt: skip
