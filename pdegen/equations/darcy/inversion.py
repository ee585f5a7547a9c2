"""The classical inversion methods of two-phase Darcy flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Bool, Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import factorised
from pdegen.equations.darcy.kernels import (
    add_transposed,
    face_changes,
    face_derivatives,
    stiffness_band,
)
from pdegen.inverse.classical import (
    KNOWN_PRIOR,
    ClassicalMethod,
    Composition,
    Estimate,
    InverseProblem,
    Inversion,
    Misfit,
    Observation,
    Sensors,
    Separable,
    averages,
    half_decades,
    interpolation,
)
from pdegen.inverse.gaussian import ModelError, Prior
from pdegen.inverse.phases import GridModel, LevelSet, PhaseEstimate, PhaseInversion
from pdegen.inverse.tikhonov import settled
from pdegen.numerics.sines import conjugate_gradients
from pdegen.sampling.gaussian import SquareGaussianField
from pdegen.sampling.noise_law import Filter, NoiseLaw

# A fast solver of two-phase Darcy flow on coarse cells, with derivatives of the solution.


_lapack: Any = scipy.linalg.lapack  # not in its stubs


@dataclass(frozen=True)
class PhaseFlow:
    """The map p -> u for -div(a grad u) = f, u = 0 on the walls, a = α + (β - α) p on n x n cells.

    The finite volumes are those of `FiniteVolume`. A banded Cholesky factorisation solves them.

    >>> flow = PhaseFlow(CellGrid(85), (3.0, 12.0))
    >>> round(float(12 * flow(np.ones((85, 85))).max()), 4)
    0.0737
    """

    grid: CellGrid  # the cells
    phases: tuple[float, float]  # α < β
    source: float = 1.0  # f

    def __post_init__(self) -> None:
        self.grid.check_unit()

    def __call__(self, p: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """u at the cell centres."""
        return self.linearise(p).u

    def linearise(self, p: Float[np.ndarray, "n n"]) -> PhaseFlowAt:
        """u with its derivatives with respect to p."""
        return PhaseFlowAt(self, p)


class PhaseFlowAt:
    """u(p) with its derivatives, from one banded Cholesky factorisation.

    Raises ValueError if the shape of p is wrong, and ArithmeticError if the matrix is not positive
    definite.
    """

    def __init__(self, flow: PhaseFlow, p: Float[np.ndarray, "n n"]) -> None:
        n, (low, high) = flow.grid.n, flow.phases
        if p.shape != (n, n):
            raise ValueError(f"expected p of shape ({n}, {n}), got {p.shape}")
        self._a, self._height = low + (high - low) * p, high - low
        self._factor: np.ndarray
        self._factor, info = _lapack.dpbtrf(stiffness_band(self._a).T, lower=1, overwrite_ab=1)
        if info:
            raise ArithmeticError(f"the flow on {n} x {n} cells is not positive definite")
        self.u = self._solved(np.full((n, n), flow.source / n**2))

    @cached_property
    def _slopes(self) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives ∂a_f/∂p of the coefficients on the inner faces normal to each axis."""
        across = np.ascontiguousarray(self._a.T)
        return self._height * face_derivatives(self._a), self._height * face_derivatives(across)

    @cached_property
    def _jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """Differences of u across the inner faces normal to each axis."""
        return np.diff(self.u, axis=0), np.ascontiguousarray(np.diff(self.u, axis=1).T)

    def jvp(self, dp: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The first-order change of u for a change dp of p; takes one solve."""
        x = face_changes(self._slopes[0], dp) * self._jumps[0]
        y = face_changes(self._slopes[1], np.ascontiguousarray(dp.T)) * self._jumps[1]
        inflow = np.zeros(dp.shape)  # from the fluxes through the inner faces
        inflow[:-1] += x
        inflow[1:] -= x
        inflow[:, :-1] += y.T
        inflow[:, 1:] -= y.T
        return self._solved(inflow - _at_walls(2 * self._height * dp * self.u))

    def vjp(self, v: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The gradient with respect to p of a scalar whose gradient with respect to u is v.

        It takes one solve.
        """
        adjoint = self._solved(v)
        gradient = -_at_walls(2 * self._height * adjoint * self.u)
        add_transposed(self._slopes[0], -np.diff(adjoint, axis=0) * self._jumps[0], gradient)
        along_y = np.ascontiguousarray(np.diff(adjoint, axis=1).T)
        gradient_y = np.zeros_like(gradient)
        add_transposed(self._slopes[1], -along_y * self._jumps[1], gradient_y)
        return gradient + gradient_y.T

    def _solved(self, b: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        u: np.ndarray
        u, _ = _lapack.dpbtrs(self._factor, b.ravel(), lower=1)
        return u.reshape(b.shape)


def _at_walls(values: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """The value of each cell times the number of its faces on walls."""
    counted = np.zeros_like(values)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        counted[edge] += values[edge]
    return counted


# Inversion of noisy solutions with total variation or Tikhonov regularisation.


_sparse: Any = scipy.sparse  # not in its stubs

Field = Float[np.ndarray, "n n"]
Data = Float[np.ndarray, " *data"]

_SMOOTHED = 1e-2  # ε in √(|∇p|² h² + ε²), which replaces |∇p| h
_FEW = 40  # cells along an axis, below which the iteration starts from a constant
_COARSE = 30  # factor of the tolerance on coarse cells
_LINEAR_LIMIT, _LINEAR_RTOL = 200, 0.5  # of the linear system of a step
_SHIFT = 1e-3  # of the preconditioner, over the mean of its diagonal
_ARMIJO, _SHORTEST = 1e-4, 1e-4  # share of the predicted decrease, and the smallest step length
_NOTHING = 1e-12  # decrease of the objective, whose misfit is 1/2 with noise, that counts as none


class Penalised(NamedTuple):
    """A penalty of a field p, with its derivatives."""

    value: float
    gradient: Field
    # xx, xy and yy of W: the Hessian is Dᵀ W D, where D p are the forward differences of p
    tensor: Float[np.ndarray, "3 n n"]


def total_variation(p: Field) -> Penalised:
    """∫ (√(|∇p|² + ε²) - ε), where ε = 0.01/h, with its derivatives.

    Forward differences approximate ∇p. If p has the values 0 and 1 only, the integral is near the
    length of the interface.

    References: L. Rudin, S. Osher and E. Fatemi, Nonlinear total variation based noise removal
    algorithms, Physica D 60 (1992).

    >>> half = np.where(np.arange(50) < 25, 0.0, 1.0)[:, None] + np.zeros(50)
    >>> round(total_variation(half).value, 2)
    0.99
    """
    h, (x, y) = 1 / len(p), _differences(p)
    size = np.sqrt(x**2 + y**2 + _SMOOTHED**2)
    x, y = x / size, y / size
    tensor = h * np.stack([1 - x**2, -x * y, 1 - y**2]) / size
    return Penalised(float(h * (size - _SMOOTHED).sum()), h * _transposed(x, y), tensor)


def dirichlet_energy(p: Field) -> Penalised:
    """∫ ½ |∇p|², computed by forward differences, with its derivatives.

    The integral is Tikhonov's penalty in H¹, which smooths jumps.

    >>> ramp = (np.arange(50) + 0.5)[:, None] / 50 + np.zeros(50)
    >>> round(dirichlet_energy(ramp).value, 2)
    0.49
    """
    x, y = _differences(p)
    tensor = np.stack([np.ones_like(p), np.zeros_like(p), np.ones_like(p)])
    return Penalised(float(0.5 * np.sum(x**2 + y**2)), _transposed(x, y), tensor)


def _differences(p: Field) -> tuple[Field, Field]:
    """D p: forward differences along both axes, 0 at the last cells."""
    x, y = np.zeros_like(p), np.zeros_like(p)
    x[:-1], y[:, :-1] = np.diff(p, axis=0), np.diff(p, axis=1)
    return x, y


def _transposed(x: Field, y: Field) -> Field:
    """Dᵀ (x, y). Values at the last cells along an axis do not count."""
    gradient = np.zeros_like(x)
    gradient[1:] += x[:-1]
    gradient[:-1] -= x[:-1]
    gradient[:, 1:] += y[:, :-1]
    gradient[:, :-1] -= y[:, :-1]
    return gradient


@cache
def _difference_matrices(n: int) -> tuple[Any, Any]:
    """The rows x and y of D as sparse matrices."""
    along = _sparse.diags_array([np.r_[-np.ones(n - 1), 0.0], np.ones(n - 1)], offsets=[0, 1])
    one = _sparse.eye_array(n)
    return _sparse.kron(along, one, format="csr"), _sparse.kron(one, along, format="csr")


@dataclass(frozen=True)
class TotalVariation:
    """Finds p with 0 <= p <= 1 that minimises

        ½ mean ((u(a) - d)/σ)² + λ ∫ |∇p|,   a = α + (β - α) p,

    where u(a) solves -div(a grad u) = f with u = 0 on the walls. The data d are values of u(a) with
    noise of the known deviation σ. |∇p| is smoothed as √(|∇p|² + ε²) with ε = 0.01/h.

    The steps are projected Newton steps, with the Gauss-Newton matrix of the misfit and the
    Hessian of the penalty. Cells at a bound whose gradient points outwards are left out of a step.
    Conjugate gradients solve for the others, preconditioned by the Hessian of the penalty. The
    iteration ends when three steps together decrease the objective by less than `rtol`, or when no
    step decreases it and a whole step would not by more than `rtol` to first order. It starts from
    the minimiser on cells of twice the size, and on the coarsest cells from p = ½.

    References: T. Chan and X.-C. Tai, Level set and total variation regularization for elliptic
    inverse problems with discontinuous coefficients, J. Comput. Phys. 193 (2003); D. Bertsekas,
    Projected Newton methods for optimization problems with simple constraints, SIAM J. Control
    Optim. 20 (1982).

    >>> grid = CellGrid(16)
    >>> a = np.where(grid.x[:, None] + 0 * grid.x < 0.5, 3.0, 12.0)
    >>> d = PhaseFlow(grid, (3.0, 12.0))((a - 3) / 9)
    >>> inversion = TotalVariation(grid, grid.x, (3.0, 12.0), weight=1e-3)
    >>> bool(abs(inversion(d, np.full_like(d, 1e-4)) - a).mean() < 1)
    True
    """

    grid: CellGrid  # cells of a and of the solver
    # coordinates of the data along each axis, to which u is interpolated linearly
    x: Float[np.ndarray, " m"]
    bounds: tuple[float, float]  # α and β, the values of the phases
    weight: float  # λ > 0
    iterations: int = 300  # largest number of steps on each grid
    source: float = 1.0  # f
    # True at the points with data; data then have values at these points only. None if all points
    # have data
    sensors: Bool[np.ndarray, "m m"] | None = None
    rtol: float = 1e-4  # relative decrease of the objective over three steps that ends them
    floor: float = 0.0  # deviation of the data's error besides the noise, added to σ
    blur: Filter | None = None  # K, if the data are noisy values of K u
    _penalty: ClassVar[Callable[[Field], Penalised]] = staticmethod(total_variation)

    @cached_property
    def _observation(self) -> Observation:
        matrix = interpolation(self.grid, self.x)
        everywhere: Observation = Separable(matrix, matrix)
        if self.blur is not None:
            everywhere = Composition(everywhere, self.blur)
        return (
            everywhere if self.sensors is None else Composition(everywhere, Sensors(self.sensors))
        )

    @cached_property
    def _flow(self) -> PhaseFlow:
        return PhaseFlow(self.grid, self.bounds, self.source)

    @cached_property
    def _coarser(self) -> TotalVariation | None:
        """The method on cells of twice the size; None if the cells are few."""
        if self.grid.n < _FEW:
            return None
        return replace(self, grid=CellGrid(-(-self.grid.n // 2)), rtol=_COARSE * self.rtol)

    def __call__(self, d: Data, noise: NoiseLaw | Data) -> Field:
        """The estimated coefficient of one sample.

        Args:
            d: Noisy values of u at the points, indexed [x, y].
            noise: Law of the noise, or the deviation σ > 0 of independent Gaussian noise. A
                variance that depends on prediction and residual is renewed before each step, from
                the estimate with the deviation alone. Correlation is ignored.
        """
        return self.estimate(d, noise).a

    def estimate(self, d: Data, noise: NoiseLaw | Data) -> Estimate:
        """The estimated coefficient of one sample, with the cost and the status of the iteration.

        Arguments are those of a call.
        """
        law = NoiseLaw.of(noise).independent
        if law.observation is not None:
            blurred = replace(self, blur=law.observation)
            return blurred.estimate(d, replace(law, observation=None))
        n, (low, high) = self.grid.n, self.bounds
        p, solves, taken = np.full((n, n), 0.5), 0, 0
        coarser = self._coarser
        if not law.is_fixed:  # from far away all data look like gross errors
            first, to = self.estimate(d, law.std), np.eye(n)
        elif coarser is not None:
            first, to = coarser.estimate(d, law), averages(coarser.grid.n, n)
        else:
            first, to = None, np.eye(n)
        if first is not None:
            p = to @ ((first.a - low) / (high - low)) @ to.T
            solves, taken = first.solves, first.iterations
        at = self.at(p, d, np.sqrt(law.variance()) + self.floor)
        values, correction, solves, converged = [at.value], 0.0, solves + 1, False
        for _ in range(self.iterations):
            if not law.is_fixed:
                predicted = self._observation(at.flow.u)
                sigma = np.sqrt(law.variance(predicted, d - predicted)) + self.floor
                at = replace(at, misfit=replace(at.misfit, std=sigma))
                correction = law.correction(predicted, d - predicted) / d.size
                values[-1] = at.value + correction
            moved, used = self._moved(at)
            solves, taken = solves + used, taken + 1
            if moved is None:
                converged = at.predicted <= self.rtol * at.value + _NOTHING
                break
            at = moved
            values.append(at.value + correction)
            if converged := settled(values, self.rtol):
                break
        return Estimate(low + (high - low) * at.p, solves, taken, converged)

    def at(self, p: Field, d: Data, std: Data | float) -> ObjectiveAt:
        """The objective at p, with its derivatives."""
        misfit = Misfit(self._observation, d, std, axes=d.ndim)
        return ObjectiveAt(p, self._flow.linearise(p), misfit, self._penalty(p), self.weight)

    def _moved(self, at: ObjectiveAt) -> tuple[ObjectiveAt | None, int]:
        """The objective after a step, and the number of solves."""
        step, iterations = at.step
        solves, length = 1 + 2 * iterations, 1.0
        while length >= _SHORTEST:
            p, solves = np.clip(at.p + length * step, 0, 1), solves + 1
            moved = self.at(p, at.misfit.data, at.misfit.std)
            if moved.value < at.value + _ARMIJO * float(np.sum(at.gradient * (p - at.p))):
                return moved, solves
            length /= 2
        return None, solves


@dataclass(frozen=True)
class ObjectiveAt:
    """The objective at p, with its gradient and the projected Newton step."""

    p: Field
    flow: PhaseFlowAt  # u at p
    misfit: Misfit
    penalty: Penalised
    weight: float  # λ

    @cached_property
    def value(self) -> float:
        return float(self.misfit(self.flow.u)) + self.weight * self.penalty.value

    @cached_property
    def gradient(self) -> Field:
        """The gradient with respect to p; takes one solve."""
        of_misfit = self.flow.vjp(self.misfit.gradient(self.flow.u))
        return of_misfit + self.weight * self.penalty.gradient

    @cached_property
    def step(self) -> tuple[Field, int]:
        """The change of p, and the number of iterations, which take two solves each."""
        outwards = np.where(self.gradient > 0, self.p <= 0, self.p >= 1)
        free = ~outwards
        if not free.any():
            return np.zeros_like(self.p), 0
        inverse = self._preconditioner(free)

        def hessian(v: np.ndarray) -> np.ndarray:
            change = free * v[0]
            return (free * (self._of_misfit(change) + self._of_penalty(change)))[None]

        downhill = -(free * self.gradient)[None]
        step, iterations = conjugate_gradients(
            hessian, inverse, downhill, _LINEAR_RTOL, _LINEAR_LIMIT
        )
        return step[0], int(iterations[0])

    @property
    def predicted(self) -> float:
        """The decrease of the objective by a whole step, to first order."""
        change = np.clip(self.p + self.step[0], 0, 1) - self.p
        return -float(np.sum(self.gradient * change))

    def _of_misfit(self, v: Field) -> Field:
        """The product of v with the Gauss-Newton matrix; takes two solves."""
        return self.flow.vjp(self.misfit.curvature(self.flow.jvp(v)))

    def _of_penalty(self, v: Field) -> Field:
        (x, y), (xx, xy, yy) = _differences(v), self.penalty.tensor
        return self.weight * _transposed(xx * x + xy * y, xy * x + yy * y)

    def _preconditioner(self, free: Bool[np.ndarray, "n n"]) -> Callable[[np.ndarray], np.ndarray]:
        """The inverse of the penalty's Hessian on free cells, with a small shift."""
        dx, dy = _difference_matrices(len(self.p))
        xx, xy, yy = (_sparse.diags_array(w.ravel()) for w in self.weight * self.penalty.tensor)
        matrix = dx.T @ xx @ dx + dx.T @ xy @ dy + dy.T @ xy @ dx + dy.T @ yy @ dy
        cells = np.flatnonzero(free)
        matrix = matrix.tocsr()[cells][:, cells]
        shift = _SHIFT * float(matrix.diagonal().mean())
        factors = factorised(matrix + shift * _sparse.eye_array(len(cells)))

        def inverse(r: np.ndarray) -> np.ndarray:
            z = np.zeros(r.size)
            z[cells] = factors.solve(r.ravel()[cells])
            return z.reshape(r.shape)

        return inverse


@dataclass(frozen=True)
class Tikhonov(TotalVariation):
    """`TotalVariation` with the penalty λ ∫ ½ |∇p|², which smooths jumps of a."""

    _penalty: ClassVar[Callable[[Field], Penalised]] = staticmethod(dirichlet_energy)


# Widths of the steps, chosen by trials on 43 x 43 and 85 x 85 points; coarse cells cost little
_FIRST, _SECOND, _THIRD = (1.0, 0.7, 0.5, 0.35, 0.25), (0.25, 0.2), (0.15, 0.1, 0.07)
_LAST = (0.12, 0.08, 0.05, 0.04)
_EXTRA_STEPS = 200  # largest number of further steps on the finest cells
_FEWEST, _MANY = 15, 40  # cells along an axis: of the coarsest grid, and of one with narrow steps
_FLOOR = 1e-3  # smallest deviation of the noise in total variation, relative to that of u
_DIFFERENCE = np.array([1.0, -2.0, 1.0])
_MEDIAN = 0.6744897501960817  # median of |ξ|, ξ ~ N(0, 1)
_ERROR_SAMPLES = 160  # training samples that give the error of each model


def inversions(
    setting: InverseProblem, field: SquareGaussianField, phases: tuple[float, float], source: float
) -> dict[str, ClassicalMethod]:
    """A dictionary from names to the inversion methods of two-phase Darcy flow.

    Arguments are those of `grid_models`.
    """
    problem = _TwoPhases(setting, field, phases, source)
    methods = {
        "total variation": ClassicalMethod(
            "the usual baseline, which knows the two values of the coefficient but no distribution",
            half_decades(-3, 1),
            partial(problem.penalised, TotalVariation),
            model_error=problem.model_error,
        ),
        "Tikhonov": ClassicalMethod(
            "the plainest baseline, and the usual one for coefficients without jumps",
            half_decades(-4, 0),
            partial(problem.penalised, Tikhonov),
            model_error=problem.model_error,
        ),
        "level set": ClassicalMethod(
            "the best one if the distribution of the coefficient is unknown",
            half_decades(-2, 0),
            problem.moved,
            model_error=problem.model_error,
        ),
        "maximum a posteriori": ClassicalMethod(
            KNOWN_PRIOR,
            half_decades(-2, 1),
            problem.largest_density,
            problem.corrected,
            problem.model_error,
            knows_law=True,
        ),
        "maximum a posteriori, level estimated": ClassicalMethod(
            "the same if the noise level is not known, which the data then tell",
            half_decades(-2, 1),
            problem.level_estimated,
            model_error=problem.model_error,
            takes_level=False,
            knows_law=True,
        ),
    }
    if setting.sensors is not None:  # the estimate of the level needs neighbouring points
        del methods["maximum a posteriori, level estimated"]
    return methods


@dataclass(frozen=True)
class _TwoPhases:
    """The inversion methods for one inverse problem. Arguments are those of `grid_models`."""

    setting: InverseProblem
    field: SquareGaussianField
    phases: tuple[float, float]
    source: float

    @cached_property
    def models(self) -> tuple[GridModel, ...]:
        return grid_models(self.setting, self.field, self.phases, self.source)

    def penalised(self, by: type[TotalVariation], weight: float) -> Inversion:
        setting = self.setting
        method = by(
            CellGrid(setting.cells),
            setting.x,
            self.phases,
            weight,
            source=self.source,
            sensors=setting.sensors,
            # the deviation is 0 for clean data, and small near walls
            floor=_FLOOR * float(np.linalg.norm(np.std(setting.u, axis=0))) / len(setting.x),
        )
        return method.estimate

    def moved(self, smoothing: float) -> Inversion:
        method = LevelSet(self.models, smoothing)

        def inversion(data: np.ndarray, noise: NoiseLaw | np.ndarray) -> Estimate:
            shape = method(data, noise)
            status = shape.solves, shape.steps, shape.converged
            return Estimate(self.coefficient(shape.fraction), *status)

        return inversion

    def largest_density(self, weight: float) -> Inversion:
        method = PhaseInversion(self.models, weight)
        return lambda data, noise: self.stated(method(data, noise))

    def level_estimated(self, weight: float) -> Inversion:
        spread, method = self.setting.u.std(axis=0), self.largest_density(weight)
        return lambda data, _: method(data, noise_level(data, spread) * spread)

    def corrected(self, data: np.ndarray, noise: NoiseLaw | np.ndarray, a: np.ndarray) -> Estimate:
        method, (low, high) = PhaseInversion(self.models), self.phases
        return self.stated(method(data, noise, method.start((a - low) / (high - low))))

    def model_error(self) -> float:
        """Root mean square of the finest model's error, relative to the deviation of the data."""
        error = self.models[-1].error
        variance: np.ndarray = np.sum(error.directions**2, axis=0)
        squares = error.mean**2 + variance + error.remainder**2
        std: np.ndarray = self.setting.u.std(axis=0)
        return (float(np.mean(squares)) / float(np.mean(std**2))) ** 0.5

    def coefficient(self, p: np.ndarray) -> np.ndarray:
        low, high = self.phases
        return low + (high - low) * p

    def stated(self, estimate: PhaseEstimate) -> Estimate:
        """The estimate of the coefficient, with its deviation, from an estimate of the phase."""
        p, work, (low, high) = estimate.probability, estimate.work, self.phases
        solves, std = work.linearised + work.derivatives, (high - low) * np.sqrt(p * (1 - p))
        return Estimate(self.coefficient(p), solves, work.steps, estimate.converged, std)


def grid_models(
    setting: InverseProblem, field: SquareGaussianField, phases: tuple[float, float], source: float
) -> tuple[GridModel, ...]:
    """The models of `PhaseInversion` and `LevelSet`: finite volumes on cells from coarse to fine.

    Args:
        setting: The inverse problem. Its cells are those of the finest model. The error of each
            model is estimated from its samples.
        field: Distribution of the Gaussian field whose sign is the phase.
        phases: The values α < β of the coefficient.
        source: The source f.
    """
    n = setting.cells
    upper = (setting.a - phases[0]) / (phases[1] - phases[0])
    fractions, u = upper[:_ERROR_SAMPLES], setting.u[:_ERROR_SAMPLES]
    models = list[GridModel]()
    sizes = [n]
    while sizes[0] > 4 * _FEWEST // 3:
        sizes.insert(0, max(_FEWEST, -(-sizes[0] // 2)))
    for cells in sizes:
        coarse = _FIRST if cells == sizes[0] else _SECOND if cells < _MANY else _THIRD
        widths = (*(_SECOND if len(sizes) < 3 else ()), *_LAST) if cells == n else coarse
        flow = PhaseFlow(CellGrid(cells), phases, source)
        mean = averages(n, cells)
        coarse_fractions = mean @ fractions @ mean.T
        observed, matrix = u, interpolation(flow.grid, setting.x)
        observation: Observation = Separable(matrix, matrix)
        if setting.sensors is not None:
            observation = Composition(observation, Sensors(setting.sensors))
            observed = observed[:, setting.sensors]
        modelled = np.stack([observation(flow(p)) for p in coarse_fractions])
        error = ModelError.from_samples(observed - modelled)
        extra_steps = _EXTRA_STEPS if cells == n else 0
        models.append(
            GridModel(Prior(field, flow.grid), flow, observation, error, widths, extra_steps)
        )
    return tuple(models)


def noise_level(
    data: Float[np.ndarray, "m m"], std: Float[np.ndarray, "m m"]
) -> float:  # fmt: skip
    """Estimates ε from data u(x) + ε σ(x) ξ(x) with independent ξ(x) ~ N(0, 1) at the points.

    The second difference along both axes reduces a smooth u to about h⁴ uₓₓᵧᵧ. The second
    difference of the noise has the variance ε² Σ w² σ², where w are the products of the weights 1,
    -2, 1. The difference of u is larger at interfaces, where u has kinks. The estimate uses the
    median over all points, which few such points do not change.

    Args:
        data: Data on a product grid with equal spacings, at least 3 points along each axis.
        std: σ(x).

    References: D. Donoho and I. Johnstone, Ideal spatial adaptation by wavelet shrinkage,
    Biometrika 81 (1994), section 4.2.

    >>> x = np.linspace(0, 1, 60)
    >>> u, xi = np.outer(np.sin(x), np.cos(x)), np.random.default_rng(0).standard_normal((60, 60))
    >>> round(noise_level(u + 0.1 * xi, np.ones((60, 60))), 2)
    0.1
    """
    differences = _along_both(data, _DIFFERENCE)
    expected = np.sqrt(_along_both(std**2, _DIFFERENCE**2))
    noisy = expected > 0
    return float(np.median(np.abs(differences[noisy]) / expected[noisy]) / _MEDIAN)


def _along_both(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    for axis in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(values, len(weights), axis=axis)
        values = windows @ weights
    return values
