"""Darcy flow through a random medium: the map from the coefficient to the pressure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import (
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from pdegen.checks.check import ScalarsCheck, StoreChecks, stated_error
from pdegen.domains import Box, CellGrid
from pdegen.equations.base import Problem, check_size, with_rounding
from pdegen.equations.darcy.checks import RandomSource, darcy_checks
from pdegen.equations.darcy.estimate import compared_refinements, estimated_error
from pdegen.equations.darcy.inputs import (
    FiniteOrLaw,
    GaussianSource,
    LogNormalCoefficient,
    PhasesCoefficient,
    Source,
    SquareGaussian,
    TwoPhaseCoefficient,
    printed,
    stored,
)
from pdegen.equations.darcy.methods import FiniteElementMethod, FiniteVolumeMethod, PublishedMethod
from pdegen.equations.darcy.refinement import forward_map, reference_solver, refined, solver_of
from pdegen.equations.latex import number, with_value
from pdegen.equations.registry import equation
from pdegen.inverse.classical import ClassicalMethod, Forward, InverseProblem
from pdegen.numerics.device import Array, SolveError, first_true
from pdegen.numerics.fenicsx import client
from pdegen.sampling.scalars import ScalarLaw, number_of
from pdegen.schema import Count, SchemaError
from pdegen.software import versions
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Variable, function, scalar

if TYPE_CHECKING:  # solvers are imported only when they are built, since compilation takes a while
    from pdegen.equations.guarantee import Guarantee

# largest numbers of float64 arrays of n² and of modes² values in device memory for one sample
_ARRAYS, _SAMPLING = 20, 12
_LARGEST_ERROR = 0.5  # largest estimate of a relative error that a store may have
_LOST = 1e-2  # relative rounding of u - walls that is refused
_REFERENCE = 3  # refinement of the reference solution; odd, so that centres coincide


@equation
class Darcy(Problem):
    """-div(a grad u) = f on (0,1)², u = walls on the boundary: the map a -> u, or (a, f) -> u.

    The coefficient is constant on each of the resolution² cells, and so is the source. The values
    of u are those at the cell centres.

    Since `walls` is constant, u = walls + v, where v is the solution with v = 0 on the boundary. A
    number f multiplies v.

    Numbers of the coefficient, `source` and `walls` may differ from sample to sample; they are then
    parameters of the sample. Each sample then states an estimate of its relative L² error
    (`estimate.py`). So it does if the source is a field, if there are more than two phases, or if
    the walls have another value than 0.

    Args:
        source: The source f on the right side: a number, or a table with the law of a number or of
            a Gaussian field. [permeability · pressure/length²]
        walls: The value of u on the boundary. [pressure]
        resolution: Cells along each axis.
        field: Distribution of the Gaussian field that the coefficient is made of.
        coefficient: The map from the field to the coefficient.
        solver: The numerical method that computes the solutions.
    """

    algorithm: ClassVar[int] = 2  # 2: sine transforms by FFT on grids where that is faster
    supports_device: ClassVar[bool] = True
    compared_samples: ClassVar[int] = 4
    largest_batch: ClassVar[int] = 4

    equation: Literal["darcy"]
    source: Source = 1.0
    walls: FiniteOrLaw = 0.0
    resolution: Annotated[Count, Field(ge=4)]
    field: SquareGaussian
    coefficient: Annotated[
        TwoPhaseCoefficient | PhasesCoefficient | LogNormalCoefficient, Field(discriminator="kind")
    ]
    solver: Annotated[
        FiniteVolumeMethod | FiniteElementMethod | PublishedMethod, Field(discriminator="method")
    ]

    # whether each sample has an estimate of its error; copies with numbers for laws keep it
    _states_error: bool = PrivateAttr(default=False)

    @model_validator(mode="after")
    def _is_solvable(self) -> Self:
        several = isinstance(self.coefficient, PhasesCoefficient)
        varied = several or isinstance(self.source, GaussianSource) or bool(self.laws)
        self._states_error = varied or self.walls != 0
        if self._states_error and isinstance(self.solver, PublishedMethod):
            raise ValueError(
                "solver.method published-splines solves the published problem only: numbers in "
                "place of laws, walls = 0, at most two phases; use finite-volume"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_default(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `walls` if it is 0, since recipes of older versions have no such key."""
        table = content(self)
        return {key: value for key, value in table.items() if key != "walls" or value != 0}

    @property
    def formula(self) -> str:
        walls = "walls" if self.walls else "0"
        return f"-div(a grad u) = source on (0,1)^2, u = {walls} on the boundary"

    @property
    def latex(self) -> str:
        source, walls = self.source, self.walls
        random = isinstance(source, GaussianSource)
        varied = isinstance(walls, ScalarLaw)
        return (
            r"-\nabla \cdot (a \nabla u) = f \text{ in } (0, 1)^2,\quad "
            rf"u = {'g' if varied else number(walls)} \text{{ on the boundary}}"
            + ("" if random else with_value("f", source))
            + (with_value("g", walls) if varied else "")
        )

    @property
    def grid(self) -> CellGrid:
        return CellGrid(self.resolution)

    @property
    def domain(self) -> Box:
        return Box.cell(self.resolution, self.resolution)

    def variables(self) -> tuple[Variable, ...]:
        domain, varied = self.domain, not isinstance(self.source, int | float)
        source: dict[str, Any] = {} if varied else {"source": self.source}
        variables = [
            function(domain, "a", "input", "coefficient a, constant on each cell"),
            function(domain, "u", "target", "solution u at the cell centre", **source),
            scalar("residual", "quality", "relative residual of the discrete equations"),
        ]
        if isinstance(self.source, GaussianSource):
            f = function(domain, "f", "input", "source f, constant on each cell")
            variables.insert(1, f)
        if self._states_error:
            variables.append(scalar("error", "quality", "estimated relative L2 error of u"))
        return (*variables, *self.parameters())

    def physics(self) -> Physics:
        phases = self.coefficient.phases
        sentences = {
            "field": self.field.sentence,
            "coefficient": self.coefficient.sentence,
        }
        drawing = {"a": Drawing("a", "phases", log=True), "u": Drawing("u")}
        if isinstance(self.source, GaussianSource):
            sentences["source"] = self.source.sentence
            drawing["f"] = Drawing("f", "diverging")
        return Physics(
            boundary={} if isinstance(self.walls, ScalarLaw) else {"u": self.walls},
            symmetries=("square",),
            loss_weight="a",
            phases={} if phases is None else {"a": phases},
            sentences=sentences,
            drawing=drawing,
            parameters=self.parameter_laws,
        )

    def inversions(self, setting: InverseProblem) -> dict[str, ClassicalMethod]:
        self.refuse_laws("the inversions need")
        coefficient, source = self.coefficient, self.source
        if isinstance(coefficient, PhasesCoefficient):
            raise SchemaError(
                "darcy inverts log-normal and two-phase coefficients only, got "
                f"{len(coefficient.values)} phases"
            )
        if isinstance(source, GaussianSource) or self.walls:
            raise SchemaError(
                "darcy inverts u for a source that is a number and walls = 0 only, got "
                + (f"walls = {printed(self.walls)}" if self.walls else "a source field")
            )
        field, f = self.field.build(), number_of(source)
        if isinstance(coefficient, LogNormalCoefficient):
            from pdegen.equations.darcy.log_inversion import log_inversions

            return log_inversions(setting, field, number_of(coefficient.scale), f)
        from pdegen.equations.darcy.inversion import inversions

        if coefficient.phases is None:
            raise SchemaError("darcy inverts coefficients of two phases, got equal ones")
        return inversions(setting, field, coefficient.phases, f)

    def forward(self, x: Float[np.ndarray, " m"]) -> Forward | None:
        """The map from a coefficient on any number of cells to u at the points x.

        The map averages the coefficient over the cells of the recipe, and solves for u by the
        recipe's method. Finite elements run in another process. For recipes with finite elements,
        the map therefore uses harmonic finite volumes on cells three times finer. If the source is
        a field, or a number differs from sample to sample, u is no function of the coefficient
        alone, and the result is None.
        """
        source = self.source
        if isinstance(source, GaussianSource) or self.laws:
            return None
        factor = self.solver.refinement
        if isinstance(self.solver, FiniteElementMethod):
            factor *= _REFERENCE
            solver = reference_solver(factor * self.resolution)
        else:
            solver = self.solver.build(factor * self.resolution)
        return forward_map(solver, factor, self.grid, number_of(source), number_of(self.walls), x)

    def guarantee(self, inputs: Sequence[str], target: str) -> Guarantee:
        self.refuse_laws("bounds of errors need")
        method, field = self.solver, isinstance(self.source, GaussianSource)
        needed = ("a", "f") if field else ("a",)
        if (*inputs,) != needed or target != "u":
            raise SchemaError(
                f"darcy bounds the error of u predicted from {', '.join(needed)}, "
                f"got {target} from {', '.join(inputs)}"
            )
        if not isinstance(method, FiniteVolumeMethod) or method.faces != "harmonic":
            raise SchemaError(
                "darcy bounds errors by problem.solver.method finite-volume with harmonic "
                f"faces, got {method.method}{' with arithmetic ones' * hasattr(method, 'faces')}"
            )
        from pdegen.equations.darcy.error_bound import PressureGuarantee

        source = None if isinstance(self.source, GaussianSource) else number_of(self.source)
        return PressureGuarantee(self.grid, source, number_of(self.walls))

    @property
    def floats_per_sample(self) -> int:
        solving = _ARRAYS * (self._refinements[-1] * self.resolution) ** 2
        modes = [declared.modes for declared in (self.field, self.source)
                 if isinstance(declared, SquareGaussian)]  # fmt: skip
        return max(solving, _SAMPLING * max(modes) ** 2)

    @property
    def _refinements(self) -> tuple[int, ...]:
        """The refinements of all solutions that a sample needs."""
        refinement = self.solver.refinement
        return compared_refinements(refinement) if self._states_error else (refinement,)

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, Array]:
        g = self.field.build()(self.grid, seed, samples, device)
        sampled = self.coefficient.build()(g)
        xp = array_namespace(sampled)
        values = {"a": xp.astype(sampled, xp.float32)}  # the solver gets the stored coefficient
        if isinstance(self.source, GaussianSource):
            f = self.source.values(self.grid, seed, samples, device)
            values["f"] = xp.astype(f, xp.float32)
        method: Any = self.solver  # frozen, so that it can be a key of the cache
        solutions = [
            refined(solver_of(method, factor * self.resolution), factor, values["a"],
                     self._source_of(values))
            for factor in self._refinements
        ]  # fmt: skip
        label = self._refinements.index(self.solver.refinement)
        v, walls = solutions[label].u, number_of(self.walls)
        u = v + walls if walls else v
        values["u"] = xp.astype(u, xp.float32)
        row = first_true(~xp.isfinite(xp.sum(values["u"], axis=(1, 2))))
        if row is not None:
            raise SolveError(row, "u is not finite")
        # float32 stores u = 0, the solution without a source, exactly
        check_size(
            xp.where(xp.all(u == 0, axis=(1, 2), keepdims=True), xp.ones_like(u), u)[:, None]
        )
        if walls:
            self._check_digits(v)
        values["residual"] = solutions[label].residual
        if self._states_error:
            error = estimated_error([solution.u for solution in solutions], label)
            size = xp.sqrt(xp.sum(u**2, axis=(1, 2)))
            relative = error / xp.where(size > 0, size, xp.ones_like(size))
            values["error"] = with_rounding(relative)
        return values

    def _check_digits(self, v: Array) -> None:
        """Raise SolveError if u = walls + v in float32 has no two digits of a solution v ≠ 0."""
        xp, size = array_namespace(v), abs(number_of(self.walls))
        largest = xp.max(xp.abs(v), axis=(1, 2))
        spacing = float(np.finfo(np.float32).eps)
        row = first_true((largest > 0) & (_LOST * largest < spacing * size))
        if row is not None:
            most = _LOST * float(largest[row]) / spacing
            raise SolveError(
                row,
                f"u in float32 keeps no two digits of u - walls beside walls = "
                f"{printed(self.walls)}: |walls| must be at most {most:.2g} here",
            )

    def _source_of(self, values: Mapping[str, Array]) -> Array | float:
        """The source of samples with these stored values: a number, or values on the cells."""
        source = self.source
        return values["f"] if isinstance(source, GaussianSource) else number_of(source)

    def software(self, device: str | None = None) -> dict[str, str]:
        """Names and versions of the packages.

        Numba is included for all methods, because it compiles the finite volumes of the reference
        solution.
        """
        packages = super().software(device) | versions("numba")
        return packages | (client.versions() if self.solver.method == "finite-element" else {})

    def checks(self) -> StoreChecks:
        names, source = self.parameter_names, self.source
        if isinstance(source, GaussianSource):
            source = RandomSource(source.build(), source.mean)
        else:
            source = stored("source", source, names)
        checks = darcy_checks(
            self.field.build(), self.grid, self.coefficient.stored(names), source,
            stored("walls", self.walls, names), self.solver.claims(self.resolution),
        )  # fmt: skip
        if not self._states_error:
            return checks
        return StoreChecks((*checks.each, *stated_error(_LARGEST_ERROR)))

    def checks_of_store(self) -> StoreChecks:
        """A new check of the law of a store. All checks use the numbers of each sample."""
        numbers = [ScalarsCheck(self.laws_by_variable)] if self.laws else []
        return StoreChecks((*numbers, *self.checks().each))

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
        reference = self.finer_solution(values, _REFERENCE)
        return float(np.linalg.norm(values["u"] - reference) / (np.linalg.norm(reference) or 1.0))

    def finer_solution(
        self, values: Mapping[str, np.ndarray], times: int
    ) -> Float[np.ndarray, "batch n n"]:
        """u for stored inputs, in float64, by harmonic finite volumes on finer cells.

        Args:
            values: Stored values of samples, by variable.
            times: Odd factor by which the cells are finer than those of the solver.
        """
        factor = times * self.solver.refinement
        fine = reference_solver(factor * self.resolution)
        return refined(fine, factor, values["a"], self._source_of(values)).u + number_of(self.walls)
