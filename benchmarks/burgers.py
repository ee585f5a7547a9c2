"""Cost of making burgers-r10: against transforms, against writing alone, against ETDRK4.

python -m benchmarks.burgers
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.timing import interleaved, ratio, write_result
from pdegen.burgers import ETDRK4, BurgersSolver, ColeHopf, SolveError
from pdegen.generate import generate
from pdegen.grid import PeriodicGrid
from pdegen.problem import layout
from pdegen.recipe import load_recipe
from pdegen.store import lay_out

RECIPE = load_recipe("burgers-r10")
PROBLEM = RECIPE.problem
TIME = PROBLEM.times[0]
WORKERS = 2


def against_transforms() -> dict[str, float]:
    """One sample, drawn and solved, against one rfft + irfft pair of the same length."""
    field, solver = PROBLEM.initial.build(), PROBLEM.solver.build(PROBLEM.viscosity)
    block = range(16)
    u0 = field(solver.grid, RECIPE.seed, block)
    one = u0[0]
    seconds = interleaved(
        {
            "pairs": lambda: [np.fft.irfft(np.fft.rfft(one), one.size) for _ in block],
            "draw": lambda: field(solver.grid, RECIPE.seed, block),
            "solve": lambda: solver.solve(u0, [TIME]),
        },
        rounds=41,
        clock=time.thread_time,
    )
    draw, solve = ratio(seconds, "draw", "pairs"), ratio(seconds, "solve", "pairs")
    return {
        "draw / pair": round(draw, 2),
        "solve / pair": round(solve, 2),
        "draw and solve / pair (at most 7)": round(draw + solve, 2),
    }


def against_writing() -> dict[str, float]:
    """The whole job with two workers, against writing the same arrays with zarr alone."""
    with tempfile.TemporaryDirectory() as folder:
        store = generate(RECIPE, f"{folder}/first", workers=WORKERS)
        values = {name: store.array(name)[...] for name in store.variables}
        job, write = [], []
        for i in range(5):
            start = time.perf_counter()
            generate(RECIPE, f"{folder}/job{i}", workers=WORKERS)
            job.append(time.perf_counter() - start)
            start = time.perf_counter()
            written = lay_out(f"{folder}/write{i}", layout(RECIPE))
            for name in written.variables:
                array = written.array(name)
                for k in range(written.shards):
                    samples = written.shard_range(k)
                    array[samples.start : samples.stop] = values[name][samples.start : samples.stop]
            write.append(time.perf_counter() - start)
    return {
        "whole job, seconds": round(float(np.median(job)), 2),
        "writing alone, seconds": round(float(np.median(write)), 2),
        "job / writing (at most 4)": round(ratio({"j": job, "w": write}, "j", "w"), 2),
    }


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
    found: dict[str, object] = {}
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
                found[name] = f"n={n}, {steps} steps, error {error:.1e}"
    inputs = {name: u0[:, :: 8192 // solver.grid.n].copy() for name, solver in chosen.items()}
    seconds = interleaved(
        {name: lambda name=name: chosen[name](inputs[name], TIME) for name in chosen},
        rounds=9,
        clock=time.thread_time,
    )
    return {
        **found,
        "ETDRK4 / Cole-Hopf (at least 12)": round(ratio(seconds, "ETDRK4", "Cole-Hopf"), 1),
    }


def peak_memory(samples: int) -> float:
    """Peak resident memory in MB of a process that makes so many samples."""
    code = (
        "import resource, sys; from pdegen.generate import generate; "
        "from pdegen.recipe import load_recipe; "
        "generate(load_recipe('burgers-r10').with_overrides({'samples': int(sys.argv[1])}), "
        "sys.argv[2], workers=2); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, str(samples), str(Path(folder) / "store")]
        return round(float(subprocess.run(command, capture_output=True, check=True).stdout), 1)


def main() -> None:
    figures = {
        "one sample": against_transforms(),
        "whole job": against_writing(),
        "methods": against_steps(),
        "peak memory, MB (at most 1024)": {str(n): peak_memory(n) for n in (512, 2048, 8192)},
    }
    write_result("burgers", figures)


if __name__ == "__main__":
    main()
