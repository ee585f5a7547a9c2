"""-Δu = a on the unit disc, u = 0 on its boundary, a constant in each sample: u = a (1 - r²)/4. The
points are a cloud of its own in each sample, some with fewer points than others."""

from typing import Literal

import numpy as np

from pdegen.checks.check import Bound, Distinct, StoreChecks
from pdegen.domains import Cloud
from pdegen.equations.base import Problem, equation
from pdegen.sampling.gaussian import NormalStream
from pdegen.store.format import Physics
from pdegen.store.layout import Variable, function, geometry, scalar


@equation
class Disc(Problem):
    """-Δu = a at random points of the unit disc: the map a -> u."""

    equation: Literal["disc"]

    @property
    def formula(self) -> str:
        return "-laplace u = a on the unit disc, u = 0 on its boundary"

    @property
    def domain(self) -> Cloud:
        return Cloud((self.resolution,), 2)

    def variables(self) -> tuple[Variable, ...]:
        return (
            function(self.domain, "a", "input", "source a"),
            function(self.domain, "u", "target", "membrane u"),
            *geometry(self.domain),
            scalar("count", "count", "points that are no padding", dtype="int64"),
        )

    def physics(self) -> Physics:
        return Physics(boundary={"u": 0.0})

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        n = self.resolution
        z = NormalStream(seed).normals_of(samples, 2 * n + 2)
        count = n - np.floor(n / 4 / (1 + np.exp(z[:, -1]))).astype(np.int64)
        there = np.arange(n) < count[:, None]
        x, y = (np.tanh(z[:, k : 2 * n : 2]) / np.sqrt(2) * there for k in (0, 1))
        a = (1 + np.exp(z[:, -2, None] / 4)) * there
        values = {"a": a, "u": a * (1 - x**2 - y**2) / 4, "x": x, "y": y}
        return {**{k: v.astype(np.float32) for k, v in values.items()}, "count": count}

    def checks(self) -> StoreChecks:
        return StoreChecks((Distinct("a"), Bound("u", "the distance from a (1 - r²)/4", distance)))


def distance(values: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
    a, u, x, y = (values[name].astype(float) for name in "auxy")
    return np.abs(u - a * (1 - x**2 - y**2) / 4).max(axis=1), 1e-5
