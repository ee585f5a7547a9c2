"""Interface Darcy: one sample against other solvers, and iterations by grid and contrast.

python -m benchmarks.darcy
"""

from __future__ import annotations

import time

import numpy as np
import pyamg
from scipy.sparse.linalg import cg, splu
from threadpoolctl import threadpool_limits

from benchmarks.show import show
from pdegen.darcy.finite_volume import FiniteVolume
from pdegen.darcy.operator import Operator
from pdegen.grid import CellGrid
from pdegen.random_fields import SquareGaussianField
from pipelines.bench.timing import interleaved, ratio

RTOL = 1e-8
SAMPLES = 8
PUBLISHED = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 421)  # the law of darcy-421


def two_phase(n: int, samples: int = SAMPLES) -> np.ndarray:
    """Coefficients of the first samples of darcy-421."""
    return np.where(PUBLISHED(CellGrid(n), 0, range(samples)) >= 0, 12.0, 3.0)


def one_sample(n: int) -> dict[str, float]:
    """Milliseconds for a sample, the mean over a few, and how many times as long others take."""
    a = two_phase(n)
    solver = FiniteVolume(CellGrid(n), rtol=RTOL)
    lognormal = np.exp(PUBLISHED(CellGrid(n), 0, range(2)))
    systems = [Operator(a[i : i + 1], "harmonic") for i in range(2)]
    matrices, b = [s.matrix() for s in systems], np.full(n * n, 1 / n**2)

    def direct() -> None:
        for matrix in matrices:
            options = {"SymmetricMode": True}
            factors = splu(matrix, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
            factors.solve(b)

    def algebraic_multigrid() -> None:
        for matrix in matrices:
            hierarchy = pyamg.ruge_stuben_solver(matrix.tocsr())
            _, info = cg(matrix, b, rtol=RTOL, M=hierarchy.aspreconditioner())
            assert info == 0

    jobs = {
        "ours": lambda: solver(a), "ours, log-normal": lambda: solver(lognormal),
        "SuperLU": direct, "pyamg": algebraic_multigrid,
    }  # fmt: skip
    counts = {"ours": SAMPLES, "ours, log-normal": 2, "SuperLU": 2, "pyamg": 2}
    seconds = interleaved(jobs, rounds=5, clock=time.thread_time)
    each = {name: [s / counts[name] for s in times] for name, times in seconds.items()}
    return {
        "ours, ms": round(1e3 * float(np.median(each["ours"])), 1),
        "ours, log-normal, ms": round(1e3 * float(np.median(each["ours, log-normal"])), 1),
        "SuperLU / ours": ratio(each, "SuperLU", "ours"),
        "pyamg CG / ours": ratio(each, "pyamg", "ours"),
    }


def growth() -> dict[str, dict[str, int]]:
    """Largest number of iterations by grid."""
    found = {}
    for n in (85, 211, 421, 841):
        solver = FiniteVolume(CellGrid(n), rtol=RTOL)
        g = PUBLISHED(CellGrid(n), 0, range(4))
        found[str(n)] = {
            "two-phase": int(solver.solve(np.where(g >= 0, 12.0, 3.0)).iterations.max()),
            "log-normal": int(solver.solve(np.exp(g)).iterations.max()),
        }
    return found


def contrasts(n: int = 211) -> dict[str, int]:
    """Iterations at growing contrast of the phases."""
    g = PUBLISHED(CellGrid(n), 0, [0])
    solver = FiniteVolume(CellGrid(n), rtol=RTOL)
    return {
        f"{c:.0e}": int(solver.solve(np.where(g >= 0, c, 1.0)).iterations[0])
        for c in (4.0, 1e2, 1e4, 1e6, 1e8)
    }


def main() -> None:
    with threadpool_limits(1):
        figures = {
            "one 421 x 421 sample, residual 1e-8, one core": one_sample(421),
            "iterations by grid": growth(),
            "iterations by contrast, 211 x 211": contrasts(),
        }
    show("darcy-solvers", figures)


if __name__ == "__main__":
    main()
