"""Inversion of noisy solutions with total variation or Tikhonov regularisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Bool, Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.inverse.classical import Estimate
from pdegen.inverse.observation import (
    Composition,
    Misfit,
    Observation,
    Sensors,
    Separable,
    interpolation,
)

Field = Float[np.ndarray, "n n"]

# from a field on the cells of the unit square to a value and its gradient
Penalty = Callable[[Field], tuple[float, Field]]
_SMOOTHED = 1e-2  # ε in √(|∇p|² h² + ε²), which replaces |∇p| h

Data = Float[np.ndarray, " *data"]


def total_variation(p: Field) -> tuple[float, Field]:
    """Returns ∫ (√(|∇p|² + ε²) - ε), where ε = 0.01/h, and the gradient of this integral.

    Forward differences approximate ∇p. If p has the values 0 and 1 only, the integral is near the
    length of the interface.

    References: L. Rudin, S. Osher and E. Fatemi, Nonlinear total variation based noise removal
    algorithms, Physica D 60 (1992).

    >>> half = np.where(np.arange(50) < 25, 0.0, 1.0)[:, None] + np.zeros(50)
    >>> round(total_variation(half)[0], 2)
    0.99
    """
    h = 1 / len(p)
    x, y = np.zeros_like(p), np.zeros_like(p)
    x[:-1], y[:, :-1] = np.diff(p, axis=0), np.diff(p, axis=1)
    size = np.sqrt(x**2 + y**2 + _SMOOTHED**2)
    x, y = x / size, y / size
    gradient = -x - y
    gradient[1:] += x[:-1]
    gradient[:, 1:] += y[:, :-1]
    return float(h * (size - _SMOOTHED).sum()), h * gradient


def dirichlet_energy(p: Field) -> tuple[float, Field]:
    """Returns ∫ ½ |∇p|², computed by forward differences, and the gradient of this integral.

    The integral is Tikhonov's penalty in H¹, which smooths jumps.

    >>> ramp = (np.arange(50) + 0.5)[:, None] / 50 + np.zeros(50)
    >>> round(dirichlet_energy(ramp)[0], 2)
    0.49
    """
    x, y = np.diff(p, axis=0), np.diff(p, axis=1)
    gradient = np.zeros_like(p)
    gradient[1:] += x
    gradient[:-1] -= x
    gradient[:, 1:] += y
    gradient[:, :-1] -= y
    return float(0.5 * (np.sum(x**2) + np.sum(y**2))), gradient


@dataclass(frozen=True)
class TotalVariation:
    """Finds a with α <= a <= β that minimises

        ½ mean ((u(a) - d)/σ)² + λ ∫ |∇a| / (β - α),

    where u(a) solves -div(a grad u) = f with u = 0 on the walls. The data d are values of u(a) with
    noise of the known deviation σ. One adjoint solve gives the exact gradient of the discrete
    objective. L-BFGS-B minimises the objective, starting from the constant (α + β)/2. |∇a| is
    smoothed as √(|∇a|² + ε²) with ε = 0.01 (β - α)/h.

    References: T. Chan and X.-C. Tai, Level set and total variation regularization for elliptic
    inverse problems with discontinuous coefficients, J. Comput. Phys. 193 (2003).

    >>> from pdegen.equations.darcy.finite_volume import FiniteVolume
    >>> grid = CellGrid(16)
    >>> a = np.where(grid.x[:, None] + 0 * grid.x < 0.5, 3.0, 12.0)
    >>> d = FiniteVolume(grid)(a[None])[0]
    >>> inversion = TotalVariation(grid, grid.x, (3.0, 12.0), weight=1e-3)
    >>> bool(abs(inversion(d, np.full_like(d, 1e-4)) - a).mean() < 1)
    True
    """

    grid: CellGrid  # cells of a and of the solver
    # coordinates of the data along each axis, to which u is interpolated linearly
    x: Float[np.ndarray, " m"]
    bounds: tuple[float, float]  # α and β, the values of the phases
    weight: float  # λ > 0
    iterations: int = 150  # largest number of steps
    source: float = 1.0  # f
    # True at the points with data; data then have values at these points only. None if all points
    # have data
    sensors: Bool[np.ndarray, "m m"] | None = None
    _penalty: ClassVar[Penalty] = staticmethod(total_variation)

    @cached_property
    def _observation(self) -> Observation:
        matrix = interpolation(self.grid, self.x)
        everywhere = Separable(matrix, matrix)
        return (
            everywhere if self.sensors is None else Composition(everywhere, Sensors(self.sensors))
        )

    @cached_property
    def _solver(self) -> FiniteVolume:
        return FiniteVolume(self.grid, rtol=1e-7)

    def __call__(self, d: Data, deviation: Data) -> Field:
        """The estimated coefficient of one sample.

        Args:
            d: Noisy values of u at the points, indexed [x, y].
            deviation: Standard deviation σ > 0 of the noise.
        """
        return self.estimate(d, deviation).a

    def estimate(self, d: Data, deviation: Data) -> Estimate:
        """The estimated coefficient of one sample, with the number of solves.

        Arguments are those of a call.
        """
        n, (low, high) = self.grid.n, self.bounds
        start = np.full(n * n, (low + high) / 2)

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.objective(flat.reshape(n, n), d, deviation)
            return value, gradient.ravel()

        result = scipy.optimize.minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=[(low, high)] * n**2,
            options={"maxiter": self.iterations, "maxcor": 20, "ftol": 1e-9},
        )  # fmt: skip
        return Estimate(result.x.reshape(n, n), 2 * int(result.nfev))

    def objective(self, a: Field, d: Data, deviation: Data) -> tuple[float, Field]:
        """The value of the objective, and its gradient with respect to the cell values of a."""
        solution = self._solver.linearise(a[None], self.source)
        misfit = Misfit(self._observation, d, deviation, axes=d.ndim)
        gradient = solution.vjp(misfit.gradient(solution.u))[0]
        variation, slope = self._variation(a)
        value = float(misfit(solution.u)[0]) + self.weight * variation
        return value, gradient + self.weight * slope

    def _variation(self, a: Field) -> tuple[float, Field]:
        """The penalty of a/(β - α), and its gradient with respect to a."""
        height = self.bounds[1] - self.bounds[0]
        value, gradient = self._penalty(a / height)
        return value, gradient / height


@dataclass(frozen=True)
class Tikhonov(TotalVariation):
    """`TotalVariation` with the penalty λ ∫ ½ |∇a|² / (β - α)², which smooths jumps of a."""

    _penalty: ClassVar[Penalty] = staticmethod(dirichlet_energy)
