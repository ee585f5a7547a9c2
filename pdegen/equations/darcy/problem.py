"""Darcy flow through a random medium: the map from the coefficient to the pressure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self, cast, get_args

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    TypeAdapter,
    model_validator,
)

from pdegen.checks.check import (
    InputStatistic,
    ScalarsCheck,
    StoreChecks,
    Values,
    stated_error,
)
from pdegen.domains import Box, CellGrid
from pdegen.equations.base import Problem, check_size, equation, with_rounding
from pdegen.equations.darcy.checks import (
    DarcyClaims,
    PhasesCheck,
    RandomSource,
    ScaleCheck,
    darcy_checks,
    field_of,
    interface,
    uppermost,
)
from pdegen.equations.latex import number, with_value
from pdegen.inverse.classical import (
    ClassicalMethod,
    Forward,
    InverseProblem,
    Separable,
    averages,
    interpolation,
)
from pdegen.numerics.device import Array, first_true
from pdegen.numerics.elliptic import EllipticSystem
from pdegen.numerics.errors import SolveError
from pdegen.numerics.fenicsx import client
from pdegen.sampling.coefficients import (
    BlockGaussian,
    Finite,
    LogNormal,
    Phases,
    SquareGaussian,
    TwoPhase,
    check_thresholds,
)
from pdegen.sampling.scalars import NumberOrLaw, ScalarLaw, number_of, number_or_law, stream_of
from pdegen.schema import Count, Extended, Positive, SchemaError, Strict, Tolerance
from pdegen.software import versions
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Variable, function, scalar

if TYPE_CHECKING:
    from pdegen.equations.base import Guarantee
    from pdegen.equations.darcy.bilinear import BilinearElements
    from pdegen.equations.darcy.finite_element import FiniteElement
    from pdegen.equations.darcy.finite_volume import FiniteVolume, Solution
    from pdegen.equations.darcy.published import PublishedScheme


# Estimates of the error of solutions, from solutions on cells of other sizes.


# Factors by which cells three times finer reduce the error: the usual one near rough interfaces,
# the smallest (order 4, elements of degree 2) and the largest (order 0.63) that is believed.
_USUAL, _SMALLEST, _LARGEST = 3.0 ** (-4 / 3), 3.0**-4, 0.5


def compared_refinements(refinement: int) -> tuple[int, ...]:
    """The refinements of the solutions that give the error of one with this refinement.

    The refinements rise by the factor 3. If possible, they are those of coarser cells, which cost
    little. Otherwise the last one is finer.

    >>> compared_refinements(9), compared_refinements(3), compared_refinements(5)
    ((1, 3, 9), (1, 3, 9), (5, 15))
    """
    if refinement % 9 == 0:
        return refinement // 9, refinement // 3, refinement
    if refinement % 3 == 0:
        return refinement // 3, refinement, 3 * refinement
    return refinement, 3 * refinement


def estimated_error(
    solutions: Sequence[Float[Array, "batch n n"]], label: int
) -> Float[Array, " batch"]:
    """Estimate of ‖u_label - u‖ for the exact solution u, as a root of the sum over all points.

    If the error falls by the factor q from each solution to the next, then ‖u_k - u‖ =
    ‖u_k - u_{k-1}‖ q/(1 - q) = ‖u_{k+1} - u_k‖/(1 - q) (Richardson). Three solutions give q =
    ‖u_2 - u_1‖/‖u_1 - u_0‖, which is limited to [1/81, 1/2]. For two solutions q = 3^(-4/3) is
    assumed. The order 4/3 is the usual one of finite volumes near rough interfaces.

    Args:
        solutions: Solutions on cells that become finer by the factor 3, at the same points.
        label: Index of the solution whose error is estimated: the last one or the one before.
    """
    xp = array_namespace(solutions[0])
    steps = [
        xp.sqrt(xp.sum((fine - coarse) ** 2, axis=(1, 2)))
        for coarse, fine in itertools.pairwise(solutions)
    ]
    q = xp.full_like(steps[-1], _USUAL)
    if len(steps) > 1:
        positive = steps[-2] > 0
        ratio = steps[-1] / xp.where(positive, steps[-2], xp.ones_like(q))
        q = xp.where(positive, xp.clip(ratio, _SMALLEST, _LARGEST), q)
    is_last = label == len(solutions) - 1
    return steps[-1] * (q if is_last else xp.ones_like(q)) / (1 - q)


# Declarations of the random inputs of Darcy flow: the coefficient a and the source f.


PositiveOrLaw = Annotated[Positive | ScalarLaw, NumberOrLaw]
FiniteOrLaw = Annotated[Finite | ScalarLaw, NumberOrLaw]


class GaussianSource(SquareGaussian):
    """f = mean + g with a Gaussian field g, independent of that of the coefficient.

    The source is constant on each cell of the output, with the value of f at the centre.

    Args:
        law: Name of the distribution of g. It states the condition at the walls: the normal
            derivative is 0 (Neumann), or the value is 0 (Dirichlet).
        sigma: Scale σ of the covariance operator of g.
            [permeability · pressure · length^(−1 − alpha)]
        tau: Inverse correlation length τ; larger values give shorter waves. [1/length]
        alpha: Exponent α, above 1: larger values give smoother functions. [1]
        modes: Modes along each axis, independent of the grid.
        mean: The mean of f at each point. [permeability · pressure/length²]
    """

    mean: Finite = 0.0

    @property
    def sentence(self) -> str:
        mean = f"{self.mean:.6g} plus " if self.mean else ""
        return f"{mean}a Gaussian field of the law {super().sentence}"

    def values(
        self, grid: CellGrid, seed: int, samples: range, device: str | None
    ) -> Float[Array, "batch n n"]:
        """f at the cell centres, in float64. Sample i depends on (seed, i) alone.

        The random stream is one of its own, so f is independent of all other inputs.
        """
        return self.mean + self.build()(grid, stream_of("source", seed), samples, device)


_number = TypeAdapter[float](Finite)
_scalar_laws = [get_args(law.model_fields["law"].annotation)[0] for law in ScalarLaw.variants()]
_field_laws = [*get_args(GaussianSource.model_fields["law"].annotation)]


def _source(value: object) -> float | ScalarLaw | GaussianSource:
    """A number, its law, or the law of a field."""  # `pdegen keys` prints this line
    if isinstance(value, GaussianSource):
        return value
    if isinstance(value, Mapping):
        value = cast("Mapping[str, Any]", value)
        law = value.get("law")
        if law in _field_laws:
            return GaussianSource.model_validate(value)
        if law not in _scalar_laws:
            raise ValueError(f"law must be one of {', '.join([*_scalar_laws, *_field_laws])}")
    return number_or_law(value, lambda number: _number.validate_python(number, strict=True))


Source = Annotated[float | ScalarLaw | GaussianSource, BeforeValidator(_source)]


def printed(value: float | ScalarLaw) -> str:
    """A number with up to six digits, or a law in words."""
    return value.sentence if isinstance(value, ScalarLaw) else f"{value:.6g}"


def stored(key: str, value: float | ScalarLaw, names: Mapping[str, str]) -> float | str:
    """The number itself, or for a law the name of the variable in which a store keeps the number of
    each sample.

    Args:
        key: Dotted key of the number in a recipe, such as "coefficient.above".
        value: The number or its law.
        names: Names of the variables, by the keys that have laws.
    """
    return names[key] if isinstance(value, ScalarLaw) else value


class TwoPhaseCoefficient(Strict):
    """a = `above` where the field is >= 0, and a = `below` elsewhere.

    Args:
        above: The value of a where the field is at least 0. [permeability]
        below: The value of a elsewhere. [permeability]
    """

    kind: Literal["two-phase"]
    above: PositiveOrLaw
    below: PositiveOrLaw

    @property
    def phases(self) -> tuple[float, float] | None:
        """The smaller and the larger value; None if they are equal, or not the same everywhere."""
        if isinstance(self.above, ScalarLaw) or isinstance(self.below, ScalarLaw):
            return None
        low, high = sorted((self.above, self.below))
        return (low, high) if low < high else None

    @property
    def sentence(self) -> str:
        return (
            f"two phases: a = {printed(self.above)} where the field is ≥ 0, "
            f"a = {printed(self.below)} elsewhere"
        )

    def build(self) -> TwoPhase:
        """The map from the field to a, if both values are numbers."""
        return TwoPhase(number_of(self.above), number_of(self.below))

    def stored(self, names: Mapping[str, str]) -> PhasesCheck:
        """The map from the field to a, with names of stored variables in place of laws."""
        values = (
            stored(f"coefficient.{key}", value, names)
            for key, value in (("below", self.below), ("above", self.above))
        )
        return PhasesCheck((0.0,), tuple(values))


_positive = TypeAdapter[float](Positive)


def _values(value: object) -> object:
    """A list of numbers, or of laws of numbers."""  # `pdegen keys` prints this line
    if not isinstance(value, list | tuple):
        return value
    values: Any = value  # pyright: ignore[reportUnknownVariableType]
    return tuple(
        number_or_law(each, lambda v: _positive.validate_python(v, strict=True)) for each in values
    )


class PhasesCoefficient(Strict):
    """Several phases: a has one of k values, which k - 1 thresholds of the field separate.

    a = values[0] where the field is below thresholds[0], values[j] where it is at least
    thresholds[j-1] but below thresholds[j], and values[k-1] where it is at least thresholds[k-2].
    Interfaces between phases are level sets of the field, so phases that are not neighbours in the
    list never touch.

    Args:
        values: The k values of a, all different. [permeability]
        thresholds: The k - 1 thresholds of the field, in rising order. [1]
    """

    kind: Literal["phases"]
    values: Annotated[
        tuple[float | ScalarLaw, ...],
        Field(strict=False, min_length=2, max_length=16),
        BeforeValidator(_values),
    ]
    thresholds: Annotated[tuple[Finite, ...], Field(strict=False, min_length=1, max_length=15)]

    @property
    def phases(self) -> tuple[float, float] | None:
        """The smaller and the larger of two values; None of more, or if they are not the same
        everywhere."""
        if len(self.values) > 2 or any(isinstance(value, ScalarLaw) for value in self.values):
            return None
        low, high = sorted(map(number_of, self.values))
        return low, high

    @model_validator(mode="after")
    def _separated(self) -> Self:
        check_thresholds(self.thresholds, len(self.values))
        numbers = [value for value in self.values if not isinstance(value, ScalarLaw)]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"values of phases must differ, got {numbers}")
        return self

    @property
    def sentence(self) -> str:
        values = ", ".join(map(printed, self.values))
        at = ", ".join(f"{threshold:.6g}" for threshold in self.thresholds)
        return f"{len(self.values)} phases: a = {values}, separated where the field is {at}"

    def build(self) -> Phases:
        """The map from the field to a, if all values are numbers."""
        return Phases(self.thresholds, tuple(map(number_of, self.values)))

    def stored(self, names: Mapping[str, str]) -> PhasesCheck:
        """The map from the field to a, with names of stored variables in place of laws."""
        values = (
            stored(f"coefficient.values.{k}", value, names) for k, value in enumerate(self.values)
        )
        return PhasesCheck(self.thresholds, tuple(values))


class LogNormalCoefficient(Strict):
    """a = scale exp(field).

    Args:
        scale: Median of a. [permeability]
    """

    kind: Literal["log-normal"]
    scale: PositiveOrLaw = 1.0

    phases: ClassVar[None] = None

    @property
    def sentence(self) -> str:
        if isinstance(self.scale, ScalarLaw):
            return f"log-normal: a = scale · exp(field), scale {self.scale.sentence}"
        return f"log-normal: a = {self.scale:.6g} exp(field)"

    def build(self) -> LogNormal:
        """The map from the field to a, if the scale is a number."""
        return LogNormal(number_of(self.scale))

    def stored(self, names: Mapping[str, str]) -> ScaleCheck:
        """The map from the field to a, with names of stored variables in place of laws."""
        return ScaleCheck(stored("coefficient.scale", self.scale, names))


# Declarations of the numerical methods for Darcy flow.


# Largest relative imbalance of power, times n, for u from a finer grid or finite elements. Observed
# were 0.5 for the phases 12 and 3, 2.7 for 1000 and 1, and 5 for a log-normal a of range exp(±20).
_REFINED = 10.0
_DIRECT = 1e-6  # relative residual after a direct solve of a matrix that may be indefinite


def _odd(factor: int) -> int:
    """An odd number."""  # `pdegen keys` prints this line
    if factor % 2 == 0:
        raise ValueError("a refinement must be odd, so that cell centres stay cell centres")
    return factor


Odd = Annotated[Count, AfterValidator(_odd)]


class FiniteVolumeMethod(Strict):
    """Finite volumes on the output cells or finer ones (`finite_volume.FiniteVolume`).

    Args:
        faces: Mean of the coefficients of two cells on their common face; the published data have
            "arithmetic" means.
        rtol: Largest relative residual; 1e-8 means about 1e-11 in the solution. [1]
        limit: Largest number of iterations; beyond it a direct solver takes over.
        refinement: Cells of the solver for each cell of the output, along each axis.
    """

    method: Literal["finite-volume"]
    faces: Literal["harmonic", "arithmetic"] = "harmonic"
    rtol: Annotated[Tolerance, Field(lt=1)] = 1e-8
    limit: Count = 300
    refinement: Odd = 1

    def build(self, n: int) -> FiniteVolume:
        from pdegen.equations.darcy.finite_volume import FiniteVolume

        return FiniteVolume(CellGrid(n), self.faces, self.rtol, self.limit)

    def claims(self, n: int) -> DarcyClaims:
        """The guaranteed properties of u on n x n cells.

        Without refinement, the discrete equations conserve power up to their residual. With
        refinement, arithmetic means on the finer faces define another coefficient, so power is not
        guaranteed.
        """
        harmonic, balance = self.faces == "harmonic", 2 * self.rtol
        if self.refinement > 1:
            balance = balance + _REFINED / n if harmonic else None
        return DarcyClaims(self.rtol, True, balance, harmonic)


class FiniteElementMethod(Strict):
    """Finite elements (dolfinx) on the output cells or finer ones (`finite_element.FiniteElement`).

    Args:
        element: Continuous elements of degree 1 or 2, on the cells (Q) or on their halves (P).
        linear: "cg", conjugate gradients with algebraic multigrid, or "cholesky", a direct solver.
        rtol: Largest relative residual. [1]
        limit: Largest number of iterations.
        ranks: MPI processes of the worker.
        mode: In "sample" each rank solves its own samples; in "domain" all ranks solve each sample.
        timeout: Largest time for a sample in a worker, set-up included. [s]
        refinement: Cells of the solver for each cell of the output, along each axis.
    """

    method: Literal["finite-element"]
    element: Literal["Q1", "P1", "Q2", "P2"] = "Q1"
    linear: Literal["cg", "cholesky"] = "cg"
    rtol: Annotated[Tolerance, Field(lt=1)] = 1e-9
    limit: Count = 200
    ranks: Count = 1
    mode: Literal["sample", "domain"] = "sample"
    timeout: Positive = 300.0
    refinement: Odd = 1

    def build(self, n: int) -> FiniteElement:
        from pdegen.equations.darcy.finite_element import FiniteElement

        settings = self.model_dump(exclude={"method", "refinement"})
        return FiniteElement(CellGrid(n), **settings)

    def claims(self, n: int) -> DarcyClaims:
        """The guaranteed properties of u on n x n cells.

        u may be 0 in a corner, because all nodes of a triangle there may lie on walls.
        """
        return DarcyClaims(self.rtol, False, 2 * self.rtol + _REFINED / n)


class PublishedMethod(Strict):
    """The scheme of the published data, with splines (`published.PublishedScheme`)."""

    method: Literal["published-splines"]

    refinement: ClassVar[int] = 1

    def build(self, n: int) -> PublishedScheme:
        from pdegen.equations.darcy.published import PublishedScheme

        return PublishedScheme(CellGrid(n))

    def claims(self, n: int) -> DarcyClaims:
        """The guaranteed properties of u: only the bound of the residual.

        In a tenth of 400 samples on 43 x 43 cells, u has the wrong sign somewhere. The balance of
        power is violated by up to a third.
        """
        return DarcyClaims(_DIRECT, None, None)


class BilinearMethod(Strict):
    """Bilinear finite elements with a direct solver (`bilinear.BilinearElements`).

    Args:
        parts: Even number of elements for each cell of the output, along each axis.
    """

    method: Literal["bilinear"]
    parts: Annotated[Count, Field(multiple_of=2)] = 2

    refinement: ClassVar[int] = 1

    def build(self, n: int) -> BilinearElements:
        from pdegen.equations.darcy.bilinear import BilinearElements

        return BilinearElements(CellGrid(n), self.parts)

    def claims(self, n: int) -> DarcyClaims:
        """The guaranteed properties of u on n x n cells: no sign, and power up to the elements'
        error."""
        return DarcyClaims(_DIRECT, None, _REFINED / n)


# Solutions on cells that are finer than those of the output.


class Solver(Protocol):
    """Solves -div(a grad u) = f for coefficients that are constant on each cell."""

    def solve(self, a: Array, f: Array | float) -> Solution: ...


@lru_cache(maxsize=1)
def reference_solver(n: int) -> FiniteVolume:
    """The solver of reference solutions, cached for the next sample."""
    from pdegen.equations.darcy.finite_volume import FiniteVolume

    return FiniteVolume(CellGrid(n), rtol=1e-9)


Method = FiniteVolumeMethod | FiniteElementMethod | PublishedMethod | BilinearMethod


@lru_cache(maxsize=8)
def solver_of(method: Method, n: int) -> Solver:
    """The solver on n x n cells, which is cached: its set-up takes as long as a few samples."""
    return method.build(n)


def refined(solver: Solver, factor: int, a: Array, source: Array | float) -> Solution:
    """The solution on cells finer by an odd factor, at the centres of the original cells.

    Each cell is cut into factor² cells with the same coefficient and the same source.
    """
    f = source if isinstance(source, int | float) else _on_finer(source, factor)
    solution = solver.solve(_on_finer(a, factor), f)
    centres = slice(factor // 2, None, factor)
    return solution._replace(u=solution.u[:, centres, centres])


def _on_finer(cells: Array, factor: int) -> Array:
    """Values on cells in float64, on cells that are finer by a factor."""
    xp = array_namespace(cells)
    fine = xp.astype(cells, xp.float64)
    return fine if factor == 1 else xp.repeat(xp.repeat(fine, factor, axis=1), factor, axis=2)


def forward_map(
    solver: Solver,
    factor: int,
    grid: CellGrid,
    source: float,
    boundary_value: float,
    x: Float[np.ndarray, " m"],
) -> Forward:
    """The map from a coefficient on any number of cells to u at the points x.

    The map averages the coefficient over the cells of `grid`. The cells of the solver are finer by
    an odd factor.
    """
    matrix = interpolation(grid, x)
    observation = Separable(matrix, matrix)

    def solution(a: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "m m"]:
        mean = averages(len(a), grid.n)
        return observation(
            boundary_value + refined(solver, factor, (mean @ a @ mean.T)[None], source).u[0]
        )

    return solution


# largest numbers of float64 arrays of n² and of modes² values in device memory for one sample
_ARRAYS, _SAMPLING = 20, 12
_LARGEST_ERROR = 0.5  # largest estimate of a relative error that a store may have
_LOST = 1e-2  # relative rounding of u - walls that is refused
_REFERENCE = 3  # refinement of the reference solution; odd, so that centres coincide


@equation
class Darcy(Extended, Problem):
    """-div(a grad u) = f on (0,1)², u = walls on the boundary: the map a -> u, or (a, f) -> u.

    The coefficient is constant on each of the resolution² cells, and so is the source. The values
    of u are those at the cell centres.

    Since `walls` is constant, u = walls + v, where v is the solution with v = 0 on the boundary. A
    number f multiplies v.

    Numbers of the coefficient, `source` and `walls` may differ from sample to sample; they are then
    parameters of the sample. Each sample then states an estimate of its relative L² error
    (`estimate.py`). So it does if the source is a field, if there are more than two phases, if the
    coefficient has independent values on blocks, or if the walls have another value than 0.

    Args:
        source: The source f on the right side: a number, or a table with the law of a number or of
            a Gaussian field. [permeability · pressure/length²]
        walls: The value of u on the boundary. [pressure]
        resolution: Cells along each axis.
        field: Distribution of the Gaussian field that the coefficient is made of. The law
            "block-gaussian" is for log-normal coefficients.
        coefficient: The map from the field to the coefficient.
        solver: The numerical method that computes the solutions.
    """

    later: ClassVar = ("walls",)
    algorithm: ClassVar[int] = 2  # 2: sine transforms by FFT on grids where that is faster
    supports_device: ClassVar[bool] = True
    compared_samples: ClassVar[int] = 4
    largest_batch: ClassVar[int] = 4

    equation: Literal["darcy"]
    source: Source = 1.0
    walls: FiniteOrLaw = 0.0
    resolution: Annotated[Count, Field(ge=4)]
    field: Annotated[SquareGaussian | BlockGaussian, Field(discriminator="law")]
    coefficient: Annotated[
        TwoPhaseCoefficient | PhasesCoefficient | LogNormalCoefficient, Field(discriminator="kind")
    ]
    solver: Annotated[Method, Field(discriminator="method")]

    # whether each sample has an estimate of its error; copies with numbers for laws keep it
    _states_error: bool = PrivateAttr(default=False)

    @model_validator(mode="after")
    def _is_solvable(self) -> Self:
        several = isinstance(self.coefficient, PhasesCoefficient)
        blocks = isinstance(self.field, BlockGaussian)
        varied = several or blocks or isinstance(self.source, GaussianSource) or bool(self.laws)
        self._states_error = varied or self.walls != 0
        if self._states_error and isinstance(self.solver, PublishedMethod):
            raise ValueError(
                "solver.method published-splines solves the published problem only: numbers in "
                "place of laws, walls = 0, at most two phases; use finite-volume"
            )
        if isinstance(self.field, BlockGaussian):
            if not isinstance(self.coefficient, LogNormalCoefficient):
                raise ValueError("field.law block-gaussian needs coefficient.kind log-normal")
            if self.resolution % self.field.blocks:
                raise ValueError(
                    f"field.blocks must divide resolution = {self.resolution}, got "
                    f"{self.field.blocks}"
                )
        return self

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
        if isinstance(self.field, BlockGaussian):
            return super().inversions(setting)
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

    def system(self, inputs: Mapping[str, Array]) -> EllipticSystem | None:
        """Finite volumes on the output cells. Their faces are those of the recipe's method if it
        is finite volumes on these cells, and harmonic for labels of any other method."""
        from pdegen.equations.darcy.finite_volume import FiniteVolume

        if {"source", "walls"} & self.laws.keys():
            return None
        xp, faces = array_namespace(inputs["a"]), "harmonic"
        a = xp.astype(inputs["a"], xp.float64)
        f = xp.zeros_like(a) + self._source_of(inputs)
        if isinstance(self.solver, FiniteVolumeMethod) and self.solver.refinement == 1:
            faces = self.solver.faces
        smooth = isinstance(self.coefficient, LogNormalCoefficient)
        solver = FiniteVolume(self.grid, faces)
        return solver.system(a, f, number_of(self.walls), smooth)

    @property
    def floats_per_sample(self) -> int:
        solving = _ARRAYS * (self._refinements[-1] * self.resolution) ** 2
        modes = [declared.modes for declared in (self.field, self.source)
                 if isinstance(declared, SquareGaussian)]  # fmt: skip
        return max(solving, _SAMPLING * max(modes, default=0) ** 2)

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

    @property
    def statistics(self) -> Mapping[str, InputStatistic]:
        declared, field = self.field, self.field.build()
        blocks = isinstance(declared, BlockGaussian)
        grid = CellGrid(declared.blocks if blocks else declared.modes)
        coefficient = self.coefficient.stored(self.parameter_names)
        if isinstance(coefficient, ScaleCheck):

            def energy(values: Values) -> tuple[np.ndarray, np.ndarray]:
                energy = np.mean(field_of(coefficient, values) ** 2, axis=(1, 2))
                return energy, energy / 4  # features that a coarse grid misses

            def drawn(seed: int, number: int) -> float:
                return float(np.mean(np.asarray(field(grid, seed, [number])) ** 2))

            return {"energy": InputStatistic(drawn, energy)}

        def upper(seed: int, number: int) -> np.ndarray:
            return np.asarray(field(grid, seed, [number])) >= coefficient.thresholds[-1]

        def share(values: Values) -> tuple[np.ndarray, np.ndarray]:
            mask = uppermost(coefficient, values)
            return mask.mean(axis=(1, 2)), interface(mask) / mask.shape[-1]  # cells along it

        def length(values: Values) -> tuple[np.ndarray, np.ndarray]:
            length = interface(uppermost(coefficient, values))
            return length, length  # a coarse grid may miss half of it

        return {
            "share": InputStatistic(
                lambda seed, number: float(np.mean(upper(seed, number))), share
            ),
            "length": InputStatistic(
                lambda seed, number: float(interface(upper(seed, number))[0]), length
            ),
        }

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
