"""The viscous equation by derivatives as a dense matrix."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

from tests.pdegen.recomputed.case import Between, Case, Content, Expected, Near, stated
from tests.pdegen.recomputed.fields import derivative, interpolation, on_circle

_POINTS = 65

EXACT: Content = {
    "equation": "burgers", "viscosity": 0.03, "times": [0.1, 0.35], "resolution": 16,
    "initial": {"law": "periodic-gaussian", "sigma": 12.0, "tau": 3.0, "alpha": 2.0, "modes": 3},
    "solver": {"method": "cole-hopf", "resolution": 128},
}  # fmt: skip
STEPS: Content = {
    **EXACT, "solver": {"method": "etdrk4", "resolution": 128, "dt": 0.025, "tolerance": 1e-3},
}  # fmt: skip


def recompute(content: Content, seed: int, samples: range) -> Expected:
    solver, n, times = content["solver"], content["resolution"], content["times"]
    a = np.stack([on_circle(content["initial"], seed, i, np.arange(n) / n) for i in samples])
    x = np.arange(_POINTS) / _POINTS
    u = [_solved(content, on_circle(content["initial"], seed, i, x)) for i in samples]
    u = np.stack(u) @ interpolation(_POINTS, np.arange(n) / n).T
    exact = solver["method"] == "cole-hopf"
    error = stated(0.0, 1e-9)
    if not exact:  # of order four, 1e-5 to 1e-4 at dt = 0.025
        size = (solver["dt"] / 0.025) ** 4
        error = Between(1e-6 * size, 1e-3 * size)
    u = u if len(times) > 1 else u[:, 0]
    return {"a": Near(a, 2e-7), "u": Near(u, 1e-6 if exact else 3e-4), "error": error}


def _solved(content: Content, u0: np.ndarray) -> np.ndarray:
    d, nu, times = derivative(_POINTS, 1.0), content["viscosity"], content["times"]
    second = d @ d

    def rate(_: float, u: np.ndarray) -> np.ndarray:
        return nu * (second @ u) - u * (d @ u)

    return solve_ivp(rate, (0, times[-1]), u0, "DOP853", times, rtol=1e-9, atol=1e-10).y.T


CASE = Case(
    {"exact": EXACT, "steps": STEPS},
    recompute,
    {
        "resolution": ("exact", {"resolution": 32}),
        "viscosity": ("steps", {"viscosity": 0.05}),
        "times": ("steps", {"times": [0.2]}),
        "initial.sigma": ("exact", {"initial.sigma": 8.0}),
        "initial.tau": ("exact", {"initial.tau": 5.0}),
        "initial.alpha": ("exact", {"initial.alpha": 2.2}),
        "initial.modes": ("exact", {"initial.modes": 2}),
        "solver.method": ("exact", {"solver": STEPS["solver"]}),
        "solver.dt": ("steps", {"solver.dt": 0.0025}),
    },
    frozenset({"equation", "initial.law", "solver.resolution", "solver.tolerance",
               "solver.largest_error"}),
)  # fmt: skip
