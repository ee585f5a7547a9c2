"""Darcy flow around an inclusion: the map from the shape of the inclusion to the pressure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import scipy
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
from pdegen.domains import Box, CellGrid
from pdegen.equations.base import Problem, check_error, equation, with_rounding
from pdegen.equations.darcy_inclusion.solver import FittedElement
from pdegen.equations.latex import with_value
from pdegen.numerics.errors import SolveError
from pdegen.numerics.fenicsx import client
from pdegen.sampling.coefficients import RandomVoid
from pdegen.sampling.gaussian import NormalStream
from pdegen.schema import Count, NonNegative, Positive, SchemaError, Strict
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Variable, function, parameters, scalar

# Random inclusions: star-shaped, with a smooth boundary and a random centre.


_FINE = 4096  # angles at which the length of a boundary is measured


@dataclass(frozen=True)
class RandomInclusion:
    """Inclusions |x - c| < r(φ), with the angle φ of x - c.

    The numbers z are independent and standard normal. The centre is c = (½, ½) + shift (2Φ(z) - 1)
    with the first two of them, uniform in a square. The radius is that of `outline` for the other
    numbers, θ = σ z.
    """

    outline: RandomVoid
    shift: float  # largest distance of the centre from (½, ½) along each axis

    @property
    def count(self) -> int:
        """Number of random numbers of a sample."""
        return 2 + 2 * self.outline.modes

    def numbers(self, seed: int, samples: range) -> Float[np.ndarray, "batch count"]:
        """The numbers z of these samples. More modes append numbers."""
        return NormalStream(seed).normals_of(samples, self.count)

    def centre(self, z: Float[np.ndarray, "batch count"]) -> Float[np.ndarray, "batch 2"]:
        """The centres c."""
        return 0.5 + self.shift * (2 * scipy.special.ndtr(z[:, :2]) - 1)

    def radius(
        self, z: Float[np.ndarray, "batch count"], angles: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "batch n"]:
        """The radii r(φ) at these angles."""
        return self.outline.radius(self.outline.sigma * z[:, 2:], angles)

    def depth(
        self, z: Float[np.ndarray, "batch count"], grid: CellGrid
    ) -> Float[np.ndarray, "batch n n"]:
        """r(φ) - |x - c| at the cell centres, positive inside, indexed [x, y]."""
        x = np.stack(np.meshgrid(grid.x, grid.x, indexing="ij"), axis=-1).reshape(-1, 2)
        depths = []
        for row, centre in zip(z, self.centre(z), strict=True):
            dx, dy = (x - centre).T
            r = self.radius(row[None], np.arctan2(dy, dx))[0]
            depths.append((r - np.hypot(dx, dy)).reshape(grid.n, grid.n))
        return np.stack(depths)

    def curve(self, z: Float[np.ndarray, " count"], n: int) -> Float[np.ndarray, "points 2"]:
        """Points on the boundary of one inclusion for elements of size about 1/n.

        There are an even number of points at equal distances along the curve, twice as many as
        edges of elements. Twice n doubles the number.
        """
        angles = np.arange(_FINE + 1) * (2 * np.pi / _FINE)
        fine = self._points(z, angles)
        length = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(fine, axis=0), axis=1)))
        edges = max(12, int(np.ceil(8 * length[-1]))) * n // 8
        at = np.interp(np.arange(2 * edges) * (length[-1] / (2 * edges)), length, angles)
        return self._points(z, at)

    def _points(
        self, z: Float[np.ndarray, " count"], angles: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n 2"]:
        r = self.radius(z[None], angles)[0, :, None]
        return self.centre(z[None])[0] + r * np.stack([np.cos(angles), np.sin(angles)], axis=1)


_RESIDUAL = 1e-10  # largest residual that the solver accepts
# Finite volumes on n x n cells move the boundary of the inclusion by up to half a cell; their
# relative error is about |inside/outside - 1|/n near it. This factor is twice the largest one seen.
_DEVIATION = 0.3


def inclusion_checks(
    shape: RandomInclusion, grid: CellGrid, phases: tuple[float, float], source: float,
    angles: Float[np.ndarray, " angles"], error: float,
) -> StoreChecks:  # fmt: skip
    """Checks of flows around inclusions.

    The numbers z are independent and standard normal, and define centre, radius, depth and a. The
    solution is positive (maximum principle), and is near that of finite volumes with the stored
    coefficient, whose cells do not fit the inclusion.

    Args:
        shape: The distribution of the inclusions.
        grid: The cells along each axis.
        phases: The coefficients outside and inside.
        source: The source.
        angles: Angles of the stored radius.
        error: Largest error that the solver accepts.
    """
    outside, inside = phases

    def centre(v: Values) -> tuple[np.ndarray, float]:
        return abs(v["centre"] - shape.centre(v["z"])).max(axis=1), 1e-12

    def radius(v: Values) -> tuple[np.ndarray, float]:
        return abs(v["radius"] - shape.radius(v["z"], angles)).max(axis=1), 1e-12

    def depth(v: Values) -> tuple[np.ndarray, float]:
        return abs(v["depth"] - shape.depth(v["z"], grid)).max(axis=(1, 2)), 2 * EPSILON

    def coefficient(v: Values) -> tuple[np.ndarray, float]:
        expected = np.where(shape.depth(v["z"], grid) > 0, inside, outside)
        return abs(v["a"] / expected - 1).max(axis=(1, 2)), 2 * EPSILON

    def negative(v: Values) -> tuple[np.ndarray, float]:
        return -v["u"].min(axis=(1, 2)), 0.0

    def distance(v: Values) -> tuple[np.ndarray, float]:
        u = np.stack([finite_volumes(a.astype(np.float64), source) for a in v["a"]])
        difference = np.sqrt(((v["u"] - u) ** 2).sum(axis=(1, 2)) / (u**2).sum(axis=(1, 2)))
        jump = max(inside / outside, outside / inside) - 1
        return difference, _DEVIATION * min(jump, 1.0) / grid.n + 4 / grid.n**2

    bounds: list[tuple[str, str, Quantity]] = [
        ("centre", "the distance from the centre of z", centre),
        ("radius", "the distance from the radius of z", radius),
        ("depth", "the distance from the depth of z", depth),
        ("a", "the relative distance from the coefficient of z", coefficient),
        ("u", "minus the smallest u", negative),
        ("u", "the relative distance from finite volumes", distance),
        ("residual", "the residual", lambda v: (abs(v["residual"]), _RESIDUAL)),
    ]
    checks = (Bound(name, subject, in_blocks(quantity)) for name, subject, quantity in bounds)
    numbers = normal_numbers("z", np.ones(shape.count))
    return StoreChecks((numbers, Distinct("z"), *stated_error(error), *checks))


def finite_volumes(a: Float[np.ndarray, "n n"], source: float) -> Float[np.ndarray, "n n"]:
    """u of -div(a grad u) = source with u = 0 on the walls, by finite volumes on n x n cells.

    The flux through a face is the harmonic mean of a times the difference of u; the walls lie half
    a cell from the outermost centres. A direct solver is fast enough for a check.
    This is not `FiniteVolume` of the equation darcy, since equations do not import each other.

    >>> round(float(finite_volumes(np.ones((16, 16)), 1.0).max()), 4)
    0.0734
    """
    n = len(a)
    number = np.arange(n * n).reshape(n, n)
    diagonal = np.zeros((n, n))
    rows, columns, values = [number], [number], [diagonal]
    for axis in (0, 1):
        low, high = (np.moveaxis(part, axis, 0) for part in (a, number))
        face = 2 * low[1:] * low[:-1] / (low[1:] + low[:-1])
        rows += [high[1:], high[:-1]]
        columns += [high[:-1], high[1:]]
        values += [-face, -face]
        ends = np.moveaxis(diagonal, axis, 0)  # a view
        ends[1:] += face
        ends[:-1] += face
        ends[0] += 2 * low[0]
        ends[-1] += 2 * low[-1]
    parts = [np.concatenate([part.ravel() for part in lists]) for lists in (values, rows, columns)]
    matrix = scipy.sparse.csc_matrix((parts[0], (parts[1], parts[2])), shape=(n * n, n * n))
    u = scipy.sparse.linalg.spsolve(matrix, np.full(n * n, source / n**2))
    return np.asarray(u).reshape(n, n)


ANGLES = np.linspace(0, 2 * np.pi, 65)  # angles at which a store has the radius
_MOST_ERROR = 0.05  # largest accepted relative error of u
_WALL = 0.05  # smallest distance between inclusion and boundary

# ratios for which the law's limits hold
_Coefficient = Annotated[float, Field(ge=1e-6, le=1e6)]


class StarShape(Strict):
    """Star-shaped inclusions with a smooth random boundary (`shape.RandomInclusion`).

    The radius is r(φ) = least + span/(1 + exp g(φ)) with a Gaussian field g on the circle. The
    centre is uniform in a square.

    Args:
        least: Smallest radius. [length]
        span: Difference between the largest and the smallest radius; 0 makes discs. [length]
        sigma: Scale σ of the covariance σ²(-d²/dφ² + τ²)⁻² of g. [1]
        tau: Inverse correlation angle τ of g. [1/rad]
        modes: Number of Fourier modes of g.
        shift: Largest distance of the centre from (½, ½) along each axis. [length]
    """

    law: Literal["star"]
    least: Positive
    span: NonNegative
    sigma: Annotated[float, Field(gt=0, le=1e3)]
    tau: Annotated[float, Field(ge=0, le=1e3)]
    modes: Annotated[Count, Field(le=16)]
    shift: NonNegative = 0.0

    @model_validator(mode="after")
    def _inside(self) -> Self:
        reach = self.least + self.span + self.shift
        if reach > 0.5 - _WALL:
            raise ValueError(
                f"least + span + shift must be at most {0.5 - _WALL}, got {reach:.6g}: the "
                "inclusion comes too near to the boundary"
            )
        return self

    @property
    def sentence(self) -> str:
        return (
            f"radius {self.least:.6g} + {self.span:.6g}/(1 + exp g), g Gaussian with covariance "
            f"{self.sigma:.6g}² (−d²/dφ² + {self.tau:.6g}²)⁻² on the circle of angles φ, "
            f"modes 1 to {self.modes}; centre uniform within {self.shift:.6g} of (½, ½) along "
            "each axis"
        )

    def build(self) -> RandomInclusion:
        outline = RandomVoid(self.least, self.span, self.sigma, self.tau, self.modes)
        return RandomInclusion(outline, self.shift)


@equation
class DarcyInclusion(Problem):
    """-div(a ∇u) = source on (0,1)², u = 0 on the boundary, where a jumps across the boundary of an
    inclusion: the map from its shape to u.

    The mesh of each sample follows the inclusion (`solver.FittedElement`). The stored error is the
    relative L² difference over the cell centres to the solution on a mesh with edges half as long.

    Args:
        source: The source. [1]
        outside: Coefficient outside the inclusion. [1]
        inside: Coefficient inside the inclusion. [1]
        resolution: Cells of the output along each axis.
        elements: Number of edges of elements along each side of the square.
        inclusion: Distribution of the shapes.
    """

    algorithm: ClassVar[int] = 2  # 2: the error includes rounding to float32
    discretization: ClassVar[tuple[str, ...]] = ("resolution", "elements")
    largest_batch: ClassVar[int] = 1

    equation: Literal["darcy-inclusion"]
    source: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    outside: _Coefficient
    inside: _Coefficient
    resolution: Annotated[Count, Field(ge=4, le=4096)]
    elements: Annotated[Count, Field(ge=8, le=256, multiple_of=8)] = 32
    inclusion: StarShape

    @property
    def formula(self) -> str:
        return (
            f"-div(a grad u) = {self.source:.6g} on (0,1)^2, u = 0 on the boundary, a = "
            f"{self.inside:.6g} in the inclusion and {self.outside:.6g} outside"
        )

    @property
    def latex(self) -> str:
        return (
            r"-\nabla \cdot (a \nabla u) = f \text{ on } (0,1)^2,\quad u = 0 \text{ on the "
            r"boundary},\quad a = a_1 \text{ in the inclusion},\ a_0 \text{ outside}"
            + with_value("f", self.source)
            + with_value("a_0", self.outside)
            + with_value("a_1", self.inside)
        )

    @property
    def grid(self) -> CellGrid:
        """The cells along each axis."""
        return CellGrid(self.resolution)

    @property
    def domain(self) -> Box:
        return Box.cell(self.resolution, self.resolution)

    def variables(self) -> tuple[Variable, ...]:
        domain, count = self.domain, self.inclusion.build().count
        z = "normal numbers of the inclusion: two of the centre, those of g for cos φ, sin φ ..."
        return (
            function(domain, "a", "input", "coefficient a at the cell centre"),
            function(domain, "depth", "input", "δ = radius minus distance from the centre"),
            function(domain, "u", "target", "solution u at the cell centre", source=self.source),
            parameters("z", "number", count, z),
            parameters("centre", "axis", 2, "centre of the inclusion"),
            parameters("radius", "angle", len(ANGLES), "radius at equal angles from 0 to 2π"),
            scalar("error", "quality", "estimate of the relative L2 error of u over the cells"),
            scalar("residual", "quality", "relative residual of the discrete equations"),
        )

    def physics(self) -> Physics:
        return Physics(
            boundary={"u": 0.0},
            symmetries=("square",),
            loss_weight="a",
            phases={"a": (min(self.outside, self.inside), max(self.outside, self.inside))},
            sentences={"inclusion": self.inclusion.sentence},
            drawing={
                "a": Drawing("a", "phases", log=True),
                "depth": Drawing("δ", "diverging"),
                "u": Drawing("u"),
            },
        )

    @property
    def floats_per_sample(self) -> int:
        """Number of floats in the matrices on the finer mesh, and of those that locate points."""
        return 1000 * (2 * self.elements) ** 2 + 200 * self.resolution**2

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        return self.labels(self.inclusion.build().numbers(seed, samples))

    def labels(self, z: Float[np.ndarray, "batch count"]) -> dict[str, np.ndarray]:
        """Variables of the samples whose inclusions have the numbers z.

        Raises SolveError if a sample cannot be meshed or solved, or if its error is too large.
        """
        shape = self.inclusion.build()
        depth = shape.depth(z, self.grid)
        u, finer, residual = np.empty_like(depth), np.empty_like(depth), np.empty(len(z))
        for row, numbers in enumerate(z):
            try:
                u[row], residual[row] = self._solution(shape, numbers, self.elements)
                finer[row], _ = self._solution(shape, numbers, 2 * self.elements)
            except SolveError as failure:
                raise SolveError(row, failure.reason) from failure
        norms = [np.sqrt(np.sum(v**2, axis=(1, 2))) for v in (u - finer, finer)]
        error = norms[0] / norms[1]
        check_error(error, _MOST_ERROR, "use more elements")
        return {
            "a": np.where(depth > 0, self.inside, self.outside).astype(np.float32),
            "depth": depth.astype(np.float32),
            "u": u.astype(np.float32),
            "z": z,
            "centre": shape.centre(z),
            "radius": shape.radius(z, ANGLES),
            "error": with_rounding(error),
            "residual": residual,
        }

    def _solution(
        self, shape: RandomInclusion, z: np.ndarray, n: int
    ) -> tuple[Float[np.ndarray, "n n"], float]:
        solver = FittedElement(n, self.outside, self.inside)
        return solver.solve(shape.curve(z, n), self.grid, self.source)

    def checks(self) -> StoreChecks:
        return inclusion_checks(
            self.inclusion.build(), self.grid, (self.outside, self.inside), self.source, ANGLES,
            _MOST_ERROR,
        )  # fmt: skip

    def software(self, device: str | None = None) -> dict[str, str]:
        return super().software(device) | client.meshing_versions()

    def check_solver(self, device: str | None = None) -> None:
        if device is not None:
            raise SchemaError(
                f"darcy-inclusion is solved by dolfinx on the CPU only, got device {device!r}: "
                "use cpu"
            )
        client.meshing_interpreter()
        super().check_solver(device)
