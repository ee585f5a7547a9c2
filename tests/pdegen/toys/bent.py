"""Δu = a on a bent square, a constant in each sample: u = a (x² + y²)/4. The positions of the nodes
of a structured mesh differ from sample to sample."""

from typing import Literal

import numpy as np

from pdegen.domains import Curvilinear
from pdegen.equations.base import Problem
from pdegen.equations.registry import equation
from pdegen.law.check import Bound, Distinct, Law
from pdegen.sampling.gaussian import NormalStream
from pdegen.store.variables import Variable, function, geometry


@equation
class Bent(Problem):
    """Δu = a on squares whose upper side is bent: the map a -> u."""

    equation: Literal["bent"]

    @property
    def formula(self) -> str:
        return "laplace u = a, on bent squares"

    @property
    def domain(self) -> Curvilinear:
        return Curvilinear((self.resolution, self.resolution // 2 + 1), 2)

    def variables(self) -> tuple[Variable, ...]:
        return (
            function(self.domain, "a", "input", "source a"),
            function(self.domain, "u", "target", "potential u"),
            *geometry(self.domain),
        )

    def solve(self, seed: int, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        n, m = self.domain.shape
        xi, eta = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, m), indexing="ij")
        z = NormalStream(seed).normals_of(samples, 2)[:, :, None, None]
        x = np.broadcast_to(xi, (len(samples), n, m))
        y = eta * (1 + 0.2 * np.tanh(z[:, 0]) * np.sin(np.pi * xi))
        a = np.broadcast_to(1 + np.exp(z[:, 1] / 4), x.shape)
        values = {"a": a, "u": a * (x**2 + y**2) / 4, "x": x, "y": y}
        return {name: value.astype(np.float32) for name, value in values.items()}

    def law(self) -> Law:
        return Law((Distinct("a"), Bound("u", "the distance from a (x² + y²)/4", distance)))


def distance(values: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
    a, u, x, y = (values[name].astype(float) for name in "auxy")
    return np.abs(u - a * (x**2 + y**2) / 4).max(axis=(1, 2)), 1e-5
