"""Elasticity: the map from the shape of a void in a square sheet to the stress around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

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
from pdegen.domains import Cloud
from pdegen.equations.base import Problem, check_error, equation, with_rounding
from pdegen.equations.elasticity.mesh import GAUSS, PointTransfer, Rings, shapes
from pdegen.equations.elasticity.solver import (
    Body,
    Hooke,
    Material,
    MooneyRivlin,
    Recovery,
    Sheet,
    Solution,
    von_mises,
)
from pdegen.equations.latex import with_value
from pdegen.numerics.device import first_true
from pdegen.numerics.errors import SolveError
from pdegen.sampling.coefficients import RandomVoid
from pdegen.schema import Count, NonNegative, Positive, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Variable, function, geometry, parameters, scalar

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
        """`limit`, scaled for solutions that were computed on a finer mesh."""
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
