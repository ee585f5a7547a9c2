"""uₜ = diffusivity Δu - v, vₜ = diffusivity Δv + u on a torus of lengths 1 and 2: a complex field
w = u + iv whose mode k is multiplied by e^((i - D|k|²)t). Two channels at three times."""

from typing import Literal

import numpy as np

from pdegen.checks.check import Bound, Distinct, StoreChecks
from pdegen.domains import Box, PeriodicGrid
from pdegen.equations.base import Problem, equation
from pdegen.sampling.gaussian import NormalStream
from pdegen.schema import Positive
from pdegen.store.format import Drawing, Physics
from pdegen.store.layout import Coordinate, Variable, function, times

TIMES, MODES = (0.1, 0.2, 0.4), 3


@equation
class Turning(Problem):
    """w_t = diffusivity Δw + iw on a torus: the map from (u, v) at 0 to (u, v) at three times."""

    equation: Literal["turning"]
    diffusivity: Positive

    @property
    def formula(self) -> str:
        return "w_t = diffusivity laplace w + i w, w = u + i v, on a torus"

    @property
    def domain(self) -> Box:
        n = self.resolution
        return Box((PeriodicGrid(n), PeriodicGrid(n // 2, length=2.0)))

    def variables(self) -> tuple[Variable, ...]:
        domain, channels = self.domain, ("u", "v")
        return (
            function(domain, "a", "input", "w at t = 0", channels=channels),
            function(domain, "u", "target", "w at t", channels=channels, times=TIMES),
        )

    def coordinates(self) -> tuple[Coordinate, ...]:
        return (times(TIMES),)

    def physics(self) -> Physics:
        return Physics(drawing={name: Drawing("w", "diverging") for name in "au"})

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        z = NormalStream(seed).pairs_of(samples, MODES**2).reshape(-1, MODES, MODES)
        spectrum = np.zeros((len(samples), *self.domain.shape), complex)
        spectrum[:, :MODES, :MODES] = z / (1 + np.add.outer(np.arange(MODES), np.arange(MODES)))
        w = np.fft.ifft2(spectrum, norm="forward")
        return {"a": parts(w), "u": np.stack([parts(self.at(w, t)) for t in TIMES], axis=1)}

    def at(self, w: np.ndarray, t: float) -> np.ndarray:
        k = [2 * np.pi * np.fft.fftfreq(grid.n, grid.spacing) for grid in self.domain.grids]
        decay = self.diffusivity * np.add.outer(k[0] ** 2, k[1] ** 2)
        return np.fft.ifft2(np.fft.fft2(w) * np.exp((1j - decay) * t))

    def checks(self) -> StoreChecks:
        return StoreChecks(
            (Distinct("a"), Bound("u", "the distance from the solution", self.distance))
        )

    def distance(self, values: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
        w = values["a"][:, 0] + 1j * values["a"][:, 1].astype(complex)
        exact = np.stack([parts(self.at(w, t)) for t in TIMES], axis=1)
        return np.abs(values["u"] - exact).max(axis=(1, 2, 3, 4)), 1e-4


def parts(w: np.ndarray) -> np.ndarray:
    return np.stack([w.real, w.imag], axis=1).astype(np.float32)
