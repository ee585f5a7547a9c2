"""Darcy flow through a random medium: the map from the coefficient to the pressure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import Field

from pdegen.checks.law import Law
from pdegen.domains import Box, CellGrid
from pdegen.equations.base import Problem
from pdegen.equations.darcy.fenicsx import client
from pdegen.equations.darcy.law import darcy_law
from pdegen.equations.darcy.methods import FiniteElementMethod, FiniteVolumeMethod, PublishedMethod
from pdegen.equations.latex import with_value
from pdegen.equations.registry import equation
from pdegen.inverse.classical import ClassicalMethod, Forward, InverseProblem
from pdegen.inverse.observation import Separable, averages, interpolation
from pdegen.numerics.device import Array, first_true
from pdegen.numerics.errors import SolveError
from pdegen.sampling.coefficients import LogNormal, TwoPhase
from pdegen.sampling.gaussian import SquareGaussianField
from pdegen.schema import Count, InverseLength, Positive, SchemaError, Strict
from pdegen.software import versions
from pdegen.store.format import Drawing, Physics
from pdegen.store.variables import Variable, function, scalar

if TYPE_CHECKING:  # solvers are imported only when they are built, since compilation takes a while
    from pdegen.equations.darcy.finite_volume import FiniteVolume, Solution
    from pdegen.equations.guarantee import Guarantee

# largest numbers of float64 arrays of n² and of modes² values in device memory for one sample
_ARRAYS, _SAMPLING = 20, 12
_REFERENCE = 3  # refinement of the reference solution; odd, so that centres coincide


class _Solver(Protocol):
    """Solves -div(a grad u) = f for coefficients that are constant on each cell."""

    def solve(self, a: Array, f: float) -> Solution: ...


class SquareGaussian(Strict):
    """N(0, sigma²(-Δ + tau²)^(-alpha)) on (0,1)² with Neumann or Dirichlet conditions.

    Args:
        law: Name of the law. It states the condition at the walls: the normal derivative is 0
            (Neumann), or the value is 0 (Dirichlet).
        sigma: Scale σ of the covariance operator. [length^(1 − alpha)]
        tau: Inverse correlation length τ; larger values give shorter waves. [1/length]
        alpha: Exponent α, above 1: larger values give smoother functions. [1]
        modes: Modes along each axis, independent of the grid.
    """

    law: Literal["neumann-gaussian", "dirichlet-gaussian"]
    sigma: Positive
    tau: InverseLength
    alpha: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    modes: Annotated[Count, Field(ge=2)]

    @property
    def sentence(self) -> str:
        law = f"N(0, {self.sigma:.6g}²(−Δ + {self.tau:.6g}²)^(−{self.alpha:.6g})) on (0, 1)², "
        walls = {
            "neumann-gaussian": "normal derivative 0 at the walls, without its mean, ",
            "dirichlet-gaussian": "0 at the walls, ",
        }[self.law]
        return f"{law}{walls}{self.modes} modes in each direction"

    def build(self) -> SquareGaussianField:
        boundary: Any = self.law.removesuffix("-gaussian")
        return SquareGaussianField(boundary, self.sigma, self.tau, self.alpha, self.modes)


class TwoPhaseCoefficient(Strict):
    """a = `above` where the field is >= 0, and a = `below` elsewhere.

    Args:
        above: The value of a where the field is at least 0. [permeability]
        below: The value of a elsewhere. [permeability]
    """

    kind: Literal["two-phase"]
    above: Positive
    below: Positive

    @property
    def phases(self) -> tuple[float, float] | None:
        """The smaller and the larger value; None if they are equal."""
        low, high = sorted((self.above, self.below))
        return (low, high) if low < high else None

    @property
    def sentence(self) -> str:
        return (
            f"two phases: a = {self.above:.6g} where the field is ≥ 0, a = {self.below:.6g} "
            "elsewhere"
        )

    def build(self) -> TwoPhase:
        return TwoPhase(self.above, self.below)


class LogNormalCoefficient(Strict):
    """a = scale exp(field).

    Args:
        scale: Median of a. [permeability]
    """

    kind: Literal["log-normal"]
    scale: Positive = 1.0

    phases: ClassVar[None] = None

    @property
    def sentence(self) -> str:
        return f"log-normal: a = {self.scale:.6g} exp(field)"

    def build(self) -> LogNormal:
        return LogNormal(self.scale)


@equation
class Darcy(Problem):
    """-div(a grad u) = source on (0,1)², u = 0 on the boundary: the map a -> u.

    The coefficient is constant on each of the resolution² cells. The values of u are those at the
    cell centres.

    Args:
        source: The source f on the right side. [permeability · pressure/length²]
        resolution: Cells along each axis.
        field: Law of the Gaussian field that the coefficient is made of.
        coefficient: The map from the field to the coefficient.
        solver: The numerical method that computes the solutions.
    """

    algorithm: ClassVar[int] = 2  # 2: sine transforms by FFT on grids where that is faster
    supports_device: ClassVar[bool] = True
    compared_samples: ClassVar[int] = 4
    largest_batch: ClassVar[int] = 4

    equation: Literal["darcy"]
    source: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    resolution: Annotated[Count, Field(ge=4)]
    field: SquareGaussian
    coefficient: Annotated[TwoPhaseCoefficient | LogNormalCoefficient, Field(discriminator="kind")]
    solver: Annotated[
        FiniteVolumeMethod | FiniteElementMethod | PublishedMethod, Field(discriminator="method")
    ]

    @property
    def formula(self) -> str:
        return "-div(a grad u) = source on (0,1)^2, u = 0 on the boundary"

    @property
    def latex(self) -> str:
        return (
            r"-\nabla \cdot (a \nabla u) = f \text{ in } (0, 1)^2,\quad "
            r"u = 0 \text{ on the boundary}" + with_value("f", self.source)
        )

    @property
    def grid(self) -> CellGrid:
        return CellGrid(self.resolution)

    @property
    def domain(self) -> Box:
        return Box.cell(self.resolution, self.resolution)

    def variables(self) -> tuple[Variable, ...]:
        domain = self.domain
        return (
            function(domain, "a", "input", "coefficient a, constant on each cell"),
            function(domain, "u", "target", "solution u at the cell centre", source=self.source),
            scalar("residual", "quality", "relative residual of the discrete equations"),
        )

    def physics(self) -> Physics:
        phases = self.coefficient.phases
        return Physics(
            boundary={"u": 0.0},
            symmetries=("square",),
            loss_weight="a",
            phases={} if phases is None else {"a": phases},
            sentences={"field": self.field.sentence, "coefficient": self.coefficient.sentence},
            drawing={"a": Drawing("a", "phases", log=True), "u": Drawing("u")},
        )

    def inversions(self, setting: InverseProblem) -> dict[str, ClassicalMethod]:
        field, coefficient = self.field.build(), self.coefficient
        if isinstance(coefficient, LogNormalCoefficient):
            from pdegen.equations.darcy.log_inversion import log_inversions

            return log_inversions(setting, field, coefficient.scale, self.source)
        from pdegen.equations.darcy.inversion import inversions

        phases = coefficient.phases
        if phases is None:
            raise SchemaError("darcy inverts coefficients of two phases, got equal ones")
        return inversions(setting, field, phases, self.source)

    def forward(self, x: Float[np.ndarray, " m"]) -> Forward:
        """The map from a coefficient on any number of cells to u at the points x.

        The map averages the coefficient over the cells of the recipe, and solves for u by the
        recipe's method. Finite elements run in another process. For recipes with finite elements,
        the map therefore uses harmonic finite volumes on cells three times finer.
        """
        factor = self.solver.refinement
        if isinstance(self.solver, FiniteElementMethod):
            factor *= _REFERENCE
            solver = _reference_solver(factor * self.resolution)
        else:
            solver = self.solver.build(factor * self.resolution)
        return _forward(solver, factor, self.grid, self.source, x)

    def guarantee(self, inputs: Sequence[str], target: str) -> Guarantee:
        method = self.solver
        if (*inputs,) != ("a",) or target != "u":
            raise SchemaError(
                "darcy bounds the error of u predicted from a, "
                f"got {target} from {', '.join(inputs)}"
            )
        if not isinstance(method, FiniteVolumeMethod) or method.faces != "harmonic":
            raise SchemaError(
                "darcy bounds errors by problem.solver.method finite-volume with harmonic "
                f"faces, got {method.method}{' with arithmetic ones' * hasattr(method, 'faces')}"
            )
        from pdegen.equations.darcy.error_bound import PressureGuarantee

        return PressureGuarantee(self.grid, self.source)

    @property
    def floats_per_sample(self) -> int:
        solving = _ARRAYS * (self.solver.refinement * self.resolution) ** 2
        return max(solving, _SAMPLING * self.field.modes**2)

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        field, coefficient, solver = _built(self)  # pyright: ignore[reportArgumentType]: frozen
        sampled = coefficient(field(self.grid, seed, samples, device))
        xp = array_namespace(sampled)
        a = xp.astype(sampled, xp.float32)  # the solver gets the stored coefficient
        solution = _refined(solver, self.solver.refinement, a, self.source)
        u = xp.astype(solution.u, xp.float32)
        row = first_true(~xp.isfinite(xp.sum(u, axis=(1, 2))))
        if row is not None:
            raise SolveError(row, "u is not finite")
        return {"a": a, "u": u, "residual": solution.residual}

    def software(self, device: str | None = None) -> dict[str, str]:
        """Names and versions of the packages.

        Numba is included for all methods, because it compiles the finite volumes of the reference
        solution.
        """
        packages = super().software(device) | versions("numba")
        return packages | (client.versions() if self.solver.method == "finite-element" else {})

    def law(self) -> Law:
        claims = self.solver.claims(self.resolution)
        return darcy_law(
            self.field.build(), self.grid, self.coefficient.build(), self.source, claims
        )

    def check_solver(self, device: str | None = None) -> None:
        method = self.solver.method
        if device is not None and method != "finite-volume":
            raise SchemaError(
                f"problem.solver.method {method} runs on the CPU only, got device {device!r}: "
                "use cpu, or the method finite-volume"
            )
        if method == "finite-element":
            client.interpreter()
        super().check_solver(device)

    @property
    def reference(self) -> str:
        n = _REFERENCE * self.solver.refinement * self.resolution
        return f"harmonic finite volumes on {n} x {n} cells"

    def label_error(self, seed: int, sample: int) -> float:
        """Relative L² difference between a label and the reference solution.

        The reference solution has the same piecewise constant coefficient. It is computed by
        harmonic finite volumes on cells three times finer than the solver's.
        """
        values = self.compute(seed, range(sample, sample + 1))
        factor = _REFERENCE * self.solver.refinement
        fine = _reference_solver(factor * self.resolution)
        reference = _refined(fine, factor, values["a"], self.source).u
        return float(np.linalg.norm(values["u"] - reference) / np.linalg.norm(reference))


@lru_cache(maxsize=1)
def _reference_solver(n: int) -> FiniteVolume:
    """The solver of reference solutions, cached for the next sample."""
    from pdegen.equations.darcy.finite_volume import FiniteVolume

    return FiniteVolume(CellGrid(n), rtol=1e-9)


@lru_cache(maxsize=4)
def _built(problem: Darcy) -> tuple[SquareGaussianField, TwoPhase | LogNormal, _Solver]:
    """The field, the coefficient and the solver of a problem.

    They are cached, because their set-up takes as long as a small batch on a device.
    """
    n = problem.solver.refinement * problem.resolution
    return problem.field.build(), problem.coefficient.build(), problem.solver.build(n)


def _refined(solver: _Solver, factor: int, a: Array, source: float) -> Solution:
    """The solution on cells finer by an odd factor, at the centres of the original cells.

    Each cell is cut into factor² cells with the same coefficient.
    """
    xp = array_namespace(a)
    fine = xp.astype(a, xp.float64)
    if factor > 1:
        fine = xp.repeat(xp.repeat(fine, factor, axis=1), factor, axis=2)
    solution = solver.solve(fine, source)
    centres = slice(factor // 2, None, factor)
    return solution._replace(u=solution.u[:, centres, centres])


def _forward(
    solver: _Solver, factor: int, grid: CellGrid, source: float, x: Float[np.ndarray, " m"]
) -> Forward:
    """The map from a coefficient on any number of cells to u at the points x.

    The map averages the coefficient over the cells of `grid`. The cells of the solver are finer by
    an odd factor.
    """
    matrix = interpolation(grid, x)
    observation = Separable(matrix, matrix)

    def solution(a: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "m m"]:
        mean = averages(len(a), grid.n)
        return observation(_refined(solver, factor, (mean @ a @ mean.T)[None], source).u[0])

    return solution
