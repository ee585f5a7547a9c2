"""The heat equation with a random source on the circle: the map from the source f to u(time), where
uₜ = diffusivity uₓₓ + f and u(0) = 0. Mode k has the solution f_k (1 - e^(-λt))/λ, λ = D(2πk)²."""

from typing import Literal

import numpy as np

from pdegen.checks.check import Bound, Distinct, StoreChecks
from pdegen.checks.gaussian import GaussianCheck, periodic_modes
from pdegen.domains import Box
from pdegen.equations.base import Problem, equation
from pdegen.inverse.classical import Forward
from pdegen.sampling.gaussian import PeriodicGaussianField
from pdegen.schema import Count, Positive
from pdegen.store.format import Physics
from pdegen.store.layout import Coordinate, Variable, function, times


@equation
class Heat(Problem):
    """uₜ = diffusivity uₓₓ + f on the circle of length 1, u(0) = 0: the map f -> u(time).

    Args:
        diffusivity: The diffusivity D. [length²/time]
        time: Time of the output. [time]
        modes: Number of Fourier modes of the source, whatever the grid."""

    equation: Literal["heat"]
    diffusivity: Positive
    time: Positive
    modes: Count

    @property
    def formula(self) -> str:
        return "u_t = diffusivity u_xx + f, u(0) = 0, x on the circle of length 1"

    @property
    def domain(self) -> Box:
        return Box.periodic(self.resolution)

    @property
    def source(self) -> PeriodicGaussianField:
        return PeriodicGaussianField(sigma=50.0, tau=7.0, alpha=2.0, modes=self.modes)

    def variables(self) -> tuple[Variable, ...]:
        return (
            function(self.domain, "a", "input", "source f(x)"),
            function(self.domain, "u", "target", "temperature u(x, time)", times=[self.time]),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times([self.time]),)

    def physics(self) -> Physics:
        return Physics(symmetries=("shift",))

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        f = self.source(self.domain.grids[0], seed, samples)
        return {"a": f.astype(np.float32), "u": self.solution(f).astype(np.float32)}

    def solution(self, f: np.ndarray) -> np.ndarray:
        rate = self.diffusivity * (2 * np.pi * np.arange(1, f.shape[-1] // 2 + 1)) ** 2
        growth = np.concatenate([[self.time], -np.expm1(-rate * self.time) / rate])
        return np.fft.irfft(growth * np.fft.rfft(f), f.shape[-1])

    def forward(self, x: np.ndarray) -> Forward:
        """The map from f to u at the points x of f: `pdegen study noise` inverts it."""
        return self.solution

    def checks(self) -> StoreChecks:
        grid, source = self.domain.grids[0], self.source
        modes, variance = periodic_modes(source, grid), np.full(grid.n, source.pointwise_variance)
        return StoreChecks(
            (
                GaussianCheck("a", lambda f: f.astype(float), modes, variance, relative=True),
                Distinct("a"),
                Bound("u", "the distance from the solution of the stored source", self.distance),
            )
        )

    def distance(self, values: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
        u, exact = values["u"], self.solution(values["a"].astype(float))
        return np.abs(u - exact).max(axis=-1) / np.abs(exact).max(axis=-1), 1e-5
