"""Entropy solutions by the minimum of Hopf and Lax over a dense table of points."""

from __future__ import annotations

import numpy as np

from tests.pdegen.recomputed.case import Case, Content, Expected, Near, pairs, stated

_PER_CELL = 4096  # points y of the table, on length 1

LINE: Content = {
    "equation": "inviscid-burgers", "boundary": "outflow", "times": [0.1, 0.4], "resolution": 16,
    "initial": {"law": "squared-exponential", "length": 0.12, "modes": 5, "sigma": 1.3},
    "solver": {"method": "minimum-principle", "candidates": 1024, "tolerance": 1e-8},
}  # fmt: skip


def recompute(content: Content, seed: int, samples: range) -> Expected:
    law, n = content["initial"], content["resolution"]
    theta, a, u, error = [], [], [], []
    for sample in samples:
        xi, zeta = pairs(seed, sample, law["modes"] + 1)
        theta.append([xi[0], *np.stack([xi[1:], zeta[1:]], axis=1).ravel()])
        k = np.arange(law["modes"] + 1)
        stds = law["sigma"] * np.sqrt(
            np.where(k, 2, 1) * law["length"] * np.sqrt(2 * np.pi)
            * np.exp(-((2 * np.pi * k * law["length"]) ** 2) / 2)
        )  # fmt: skip
        cosines, sines = stds * xi, stds * np.where(k, zeta, 0)

        def potential(y, cosines=cosines, sines=sines, k=k[1:]):
            angle = 2 * np.pi * np.multiply.outer(y, k)
            waves = cosines[1:] * np.sin(angle) - sines[1:] * (np.cos(angle) - 1)
            return cosines[0] * y + (waves / (2 * np.pi * k)).sum(axis=-1)

        edges = np.arange(n + 1) / n
        a.append(np.diff(potential(edges)) * n)
        averages = [
            _averages(content, potential, cosines.sum(), edges, t) for t in content["times"]
        ]
        u.append(averages if len(averages) > 1 else averages[0])
        largest = abs(potential(np.arange(4096) / 4096)).max()
        # the stated error is at least round-off: a difference of two potentials rounds by a quarter
        # of the spacing of float64, over h; the change with half the candidates rounds too
        rounding = 2.0**-54 * (largest + 1) * n * np.sqrt(n)
        error.append(max(rounding / np.linalg.norm(values) for values in averages))
    return {
        "a": Near(a, 2e-7),
        "theta": Near(theta, 1e-13),
        "u": Near(u, 2e-5),
        "error": stated(0.95 * np.array(error), 2 * np.array(error)),
    }


def _averages(content, potential, end, edges, t):
    """Differences of min_y U₀(y) + (x - y)²/2t over h; u₀ continues by `end` or periodically."""
    y = np.arange(-2 * _PER_CELL, 3 * _PER_CELL + 1) / _PER_CELL
    table = potential(y)
    if content["boundary"] == "outflow":
        table = np.where(y < 0, end * y, np.where(y > 1, potential(1.0) + end * (y - 1), table))
    v = []
    for x in edges:
        f = table + (x - y) ** 2 / (2 * t)
        nearest = int(np.argmin(f))
        before, low, after = f[nearest - 1 : nearest + 2]
        v.append(low - (after - before) ** 2 / (8 * (after - 2 * low + before)))  # of a parabola
    return np.diff(v) * (len(edges) - 1)


CASE = Case(
    {"line": LINE, "circle": {**LINE, "boundary": "periodic"}},
    recompute,
    {
        "resolution": ("line", {"resolution": 64}),
        "boundary": ("line", {"boundary": "periodic"}),
        "times": ("line", {"times": [0.25]}),
        "initial.length": ("circle", {"initial.length": 0.2}),
        "initial.modes": ("line", {"initial.modes": 3}),
        "initial.sigma": ("line", {"initial.sigma": 0.8}),
    },
    frozenset({"equation", "initial.law", "solver.method", "solver.candidates",
               "solver.tolerance"}),
)  # fmt: skip
