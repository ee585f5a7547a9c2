"""The classical way from a noisy solution back to the coefficient: total variation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Bool, Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.inverse.observation import (
    After,
    Misfit,
    Observation,
    Sensors,
    Separable,
    interpolation,
)
from pdegen.inverse.setting import Estimate
from pdegen.inverse.variation import Penalty, dirichlet_energy, total_variation


@dataclass(frozen=True)
class TotalVariation:
    """Finds a with α <= a <= β that minimises

        ½ mean ((u(a) - d)/σ)² + λ ∫ |∇a| / (β - α),

    where u(a) solves -div(a grad u) = f, u = 0 on the walls, and d are noisy values of it with
    known deviation σ. The gradient is that of the discrete problem, by one adjoint solve; the
    minimiser is L-BFGS-B, started from the constant (α + β)/2. |∇a| is smoothed as
    √(|∇a|² + ε²), ε = 0.01 (β - α)/h.

    References: T. Chan and X.-C. Tai, Level set and total variation regularization for elliptic
    inverse problems with discontinuous coefficients, J. Comput. Phys. 193 (2003).

    Raises:
        ValueError: On bounds that do not grow, or a weight that is not positive.

    >>> from pdegen.equations.darcy.finite_volume import FiniteVolume
    >>> grid = CellGrid(16)
    >>> a = np.where(grid.x[:, None] + 0 * grid.x < 0.5, 3.0, 12.0)
    >>> d = FiniteVolume(grid)(a[None])[0]
    >>> found = TotalVariation(grid, grid.x, (3.0, 12.0), weight=1e-3)(d, np.full_like(d, 1e-4))
    >>> bool(abs(found - a).mean() < 1)
    True
    """

    grid: CellGrid  # cells of a and of the solver
    # coordinates of the data along each axis; u is interpolated there linearly
    x: Float[np.ndarray, " m"]
    bounds: tuple[float, float]  # α and β, the values of the phases
    weight: float  # λ > 0
    iterations: int = 150  # largest number of steps
    source: float = 1.0  # f
    # points that have data; None where all have. Data are then given at these alone
    seen: Bool[np.ndarray, "m m"] | None = None
    _penalty: ClassVar[Penalty] = staticmethod(total_variation)

    def __post_init__(self) -> None:
        low, high = self.bounds
        if not (0 < low < high and self.weight > 0 and self.iterations >= 1):
            raise ValueError(
                "need 0 < bounds[0] < bounds[1], weight > 0, iterations >= 1, got "
                f"{self.bounds}, {self.weight}, {self.iterations}"
            )

    @cached_property
    def _observation(self) -> Observation:
        matrix = interpolation(self.grid, self.x)
        everywhere = Separable(matrix, matrix)
        return everywhere if self.seen is None else After(everywhere, Sensors(self.seen))

    @cached_property
    def _solver(self) -> FiniteVolume:
        return FiniteVolume(self.grid, rtol=1e-7)

    def __call__(
        self, d: Float[np.ndarray, " *data"], deviation: Float[np.ndarray, " *data"]
    ) -> Float[np.ndarray, "n n"]:
        """The coefficient of one sample.

        Args:
            d: Noisy values of u at the points, indexed [x, y].
            deviation: σ > 0 of their noise.
        """
        return self.estimate(d, deviation).a

    def estimate(
        self, d: Float[np.ndarray, " *data"], deviation: Float[np.ndarray, " *data"]
    ) -> Estimate:
        """The same, with the number of solves."""
        n, (low, high) = self.grid.n, self.bounds
        start = np.full(n * n, (low + high) / 2)

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.objective(flat.reshape(n, n), d, deviation)
            return value, gradient.ravel()

        found = scipy.optimize.minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=[(low, high)] * n**2,
            options={"maxiter": self.iterations, "maxcor": 20, "ftol": 1e-9},
        )  # fmt: skip
        return Estimate(found.x.reshape(n, n), 2 * int(found.nfev))

    def objective(
        self,
        a: Float[np.ndarray, "n n"],
        d: Float[np.ndarray, " *data"],
        deviation: Float[np.ndarray, " *data"],
    ) -> tuple[float, Float[np.ndarray, "n n"]]:
        """Its value, and its gradient with respect to the cells of a."""
        at = self._solver.linearise(a[None], self.source)
        misfit = Misfit(self._observation, d, deviation, axes=d.ndim)
        gradient = at.vjp(misfit.gradient(at.u))[0]
        variation, slope = self._variation(a)
        value = float(misfit(at.u)[0]) + self.weight * variation
        return value, gradient + self.weight * slope

    def _variation(self, a: Float[np.ndarray, "n n"]) -> tuple[float, Float[np.ndarray, "n n"]]:
        """The penalty in units of β - α, and its gradient."""
        height = self.bounds[1] - self.bounds[0]
        value, gradient = self._penalty(a / height)
        return value, gradient / height


@dataclass(frozen=True)
class Tikhonov(TotalVariation):
    """As `TotalVariation`, with λ ∫ ½ |∇a|² / (β - α)²: jumps of a are smoothed."""

    _penalty: ClassVar[Penalty] = staticmethod(dirichlet_energy)
