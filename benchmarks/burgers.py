"""Cole-Hopf against time steps, for burgers-r10.

python -m benchmarks.burgers
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.history import show
from benchmarks.timing import interleaved, ratio
from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.solver import ETDRK4, BurgersSolver, ColeHopf, SolveError
from pdegen.recipe import load_recipe

RECIPE = load_recipe("burgers-r10")
PROBLEM = RECIPE.problem
TIME = PROBLEM.times[0]


def _worst_error(solver: BurgersSolver, u0: np.ndarray, exact: np.ndarray) -> float:
    stride = len(exact[0]) // solver.grid.n
    try:
        u = solver(u0[:, ::stride], TIME)
    except SolveError:
        return float("inf")
    error = np.linalg.norm(u - exact[:, ::stride], axis=1)
    return float((error / np.linalg.norm(exact[:, ::stride], axis=1)).max())


def against_steps() -> dict[str, object]:
    """Cole-Hopf against ETDRK4, each on its cheapest grid and step with error below 1e-6."""
    fine = PeriodicGrid(8192)
    u0 = PROBLEM.initial.build()(fine, RECIPE.seed, range(8))
    exact = ColeHopf(fine, PROBLEM.viscosity)(u0, TIME)
    chosen: dict[str, BurgersSolver] = {}
    settings: dict[str, object] = {}
    for n in (1024, 2048, 4096, 8192):
        grid = PeriodicGrid(n)
        candidates: list[tuple[str, BurgersSolver]] = [
            ("Cole-Hopf", ColeHopf(grid, PROBLEM.viscosity))
        ]
        candidates += [
            ("ETDRK4", ETDRK4(grid, PROBLEM.viscosity, TIME / steps))
            for steps in (25, 50, 100, 200)
        ]
        for name, solver in candidates:
            error = _worst_error(solver, u0, exact)
            if name not in chosen and error <= 1e-6:
                chosen[name] = solver
                steps = round(TIME / solver.dt) if isinstance(solver, ETDRK4) else 0
                settings[name] = f"n={n}, {steps} steps, error {error:.1e}"
    inputs = {name: u0[:, :: 8192 // solver.grid.n].copy() for name, solver in chosen.items()}
    seconds = interleaved(
        {name: lambda name=name: chosen[name](inputs[name], TIME) for name in chosen},
        rounds=9,
        clock=time.thread_time,
    )
    return {
        **settings,
        "ETDRK4 / Cole-Hopf (at least 12)": ratio(seconds, "ETDRK4", "Cole-Hopf"),
    }


def main() -> None:
    show("burgers-methods", against_steps())


if __name__ == "__main__":
    main()
