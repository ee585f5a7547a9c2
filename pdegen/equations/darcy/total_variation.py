"""Inversion of noisy solutions with total variation or Tikhonov regularisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Bool, Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import factorised
from pdegen.equations.darcy.phase_flow import PhaseFlow, PhaseFlowAt
from pdegen.inverse.classical import (
    Composition,
    Estimate,
    Misfit,
    Observation,
    Sensors,
    Separable,
    averages,
    interpolation,
)
from pdegen.inverse.tikhonov import settled
from pdegen.numerics.sines import conjugate_gradients

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
    _penalty: ClassVar[Callable[[Field], Penalised]] = staticmethod(total_variation)

    @cached_property
    def _observation(self) -> Observation:
        matrix = interpolation(self.grid, self.x)
        everywhere = Separable(matrix, matrix)
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

    def __call__(self, d: Data, std: Data) -> Field:
        """The estimated coefficient of one sample.

        Args:
            d: Noisy values of u at the points, indexed [x, y].
            std: Standard deviation σ > 0 of the noise.
        """
        return self.estimate(d, std).a

    def estimate(self, d: Data, std: Data) -> Estimate:
        """The estimated coefficient of one sample, with the cost and the status of the iteration.

        Arguments are those of a call.
        """
        n, (low, high) = self.grid.n, self.bounds
        p, solves, taken = np.full((n, n), 0.5), 0, 0
        if self._coarser is not None:
            coarse = self._coarser.estimate(d, std)
            to_fine = averages(self._coarser.grid.n, n)
            p = to_fine @ ((coarse.a - low) / (high - low)) @ to_fine.T
            solves, taken = coarse.solves, coarse.iterations
        at = self.at(p, d, std)
        values, solves, converged = [at.value], solves + 1, False
        for _ in range(self.iterations):
            moved, used = self._moved(at, d, std)
            solves, taken = solves + used, taken + 1
            if moved is None:
                converged = at.predicted <= self.rtol * at.value + _NOTHING
                break
            at = moved
            values.append(at.value)
            if converged := settled(values, self.rtol):
                break
        return Estimate(low + (high - low) * at.p, solves, taken, converged)

    def at(self, p: Field, d: Data, std: Data) -> ObjectiveAt:
        """The objective at p, with its derivatives."""
        misfit = Misfit(self._observation, d, std, axes=d.ndim)
        return ObjectiveAt(p, self._flow.linearise(p), misfit, self._penalty(p), self.weight)

    def _moved(self, at: ObjectiveAt, d: Data, std: Data) -> tuple[ObjectiveAt | None, int]:
        """The objective after a step, and the number of solves. The objective is None if no step
        length decreases it."""
        step, iterations = at.step
        solves, length = 1 + 2 * iterations, 1.0
        while length >= _SHORTEST:
            p, solves = np.clip(at.p + length * step, 0, 1), solves + 1
            moved = self.at(p, d, std)
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
