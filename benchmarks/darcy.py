"""Darcy solver: time against other solvers, time and iterations by grid and by contrast.

    python -m benchmarks.darcy [PART ...]

Parts are solvers, grids, jobs, iterations, adjoint and transforms. By default all run except
transforms, which takes minutes: it measures for which sizes FFTs are faster than products.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyamg
from scipy.sparse.linalg import cg, splu
from threadpoolctl import threadpool_limits

from benchmarks.history import show
from benchmarks.hypre import MISSING, hypre
from benchmarks.timing import interleaved, milliseconds, ratio, rounded
from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import Diffusion, FiniteVolume, Poisson
from pdegen.generation.generate import generate
from pdegen.numerics.sines import faster_by_fft
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import SquareGaussianField

RTOL = 1e-8
SAMPLES = 8
GRIDS = (211, 421, 631, 841, 1263, 1681)
SMALL, LARGE = 421, 1681  # the ends between which time grows as a power of n
PUBLISHED = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 421)  # the law of darcy-421


def two_phase(n: int, samples: int = SAMPLES) -> np.ndarray:
    """Coefficients of the first samples of darcy-421."""
    return np.where(PUBLISHED(CellGrid(n), 0, range(samples)) >= 0, 12.0, 3.0)


def one_sample(n: int) -> dict[str, float | str]:
    """Mean milliseconds per sample, and the time of other solvers over that of ours."""
    a = two_phase(n)
    solver = FiniteVolume(CellGrid(n), rtol=RTOL)
    lognormal = np.exp(PUBLISHED(CellGrid(n), 0, range(2)))
    systems = [Diffusion(a[i : i + 1], "harmonic") for i in range(2)]
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

    ways = {
        "ours": lambda: solver(a), "ours, log-normal": lambda: solver(lognormal),
        "SuperLU": direct, "pyamg": algebraic_multigrid,
    }  # fmt: skip
    counts = {"ours": SAMPLES, "ours, log-normal": 2, "SuperLU": 2, "pyamg": 2}
    seconds = interleaved(ways, rounds=5, clock=time.thread_time)
    each = {name: [s / counts[name] for s in times] for name, times in seconds.items()}
    return {
        "ours, ms": round(1e3 * float(np.median(each["ours"])), 1),
        "ours, log-normal, ms": round(1e3 * float(np.median(each["ours, log-normal"])), 1),
        "SuperLU / ours": ratio(each, "SuperLU", "ours"),
        "pyamg CG / ours": ratio(each, "pyamg", "ours"),
        "hypre CG / ours": against_hypre(matrices, b, partial(solver, a[: len(matrices)])),
    }


def against_hypre(
    matrices: Sequence[Any], b: np.ndarray, ours: Callable[[], object]
) -> float | str:
    """Processor time of hypre over that of our solver for the same systems.

    hypre runs in its own process, in turns with this one.
    """
    with hypre(matrices, b, RTOL) as theirs:
        if theirs is None:
            return MISSING
        ratios = []
        for _ in range(6):
            answer, start = theirs(), time.thread_time()
            ours()
            ratios.append(answer["seconds"] / (time.thread_time() - start))
            assert answer["residual"] <= 2 * RTOL, answer  # as much as ours
    return rounded(float(np.median(ratios[1:])))  # the first warms both


def grids() -> dict[str, Any]:
    """Milliseconds per two-phase sample by grid, and slopes of log time over log n.

    Sine transforms are computed as the solver chooses, as matrix products, and by FFT.
    """
    figures: dict[str, Any] = {}
    for n in GRIDS:
        a = two_phase(n, 1)
        ways = {
            name: partial(FiniteVolume(CellGrid(n), rtol=RTOL, fft=fft), a)
            for name, fft in {"chosen": None, "products": False, "FFT": True}.items()
        }
        seconds = interleaved(ways, rounds=7, repeats=max(1, SMALL // n), clock=time.process_time)
        figures[str(n)] = {
            "chosen": "FFT" if faster_by_fft(n) else "products",
            "ms": milliseconds(seconds["chosen"]),
            "products, ms": milliseconds(seconds["products"]),
            "products / chosen": ratio(seconds, "products", "chosen"),
            "FFT / chosen": ratio(seconds, "FFT", "chosen"),
        }
    for name in ("ms", "products, ms"):
        times = [figures[str(n)][name] for n in (SMALL, LARGE)]
        slope = np.log(times[1] / times[0]) / np.log(LARGE / SMALL)
        figures[f"slope from {SMALL} to {LARGE}, {name}"] = rounded(float(slope))
    return figures


def transforms(sizes: range = range(8, 601)) -> dict[str, Any]:
    """Time of sine transforms by products over that by FFT, by size, and the worst choices."""
    rng, ratios = np.random.default_rng(0), dict[int, float]()
    for n in sizes:
        r = rng.standard_normal((n, n))
        ways = {
            name: partial(Poisson(CellGrid(n), fft=fft), r)
            for name, fft in {"products": False, "FFT": True}.items()
        }
        repeats = max(1, int(2e6 / n**2.5))
        ratios[n] = ratio(
            interleaved(ways, rounds=5, repeats=repeats, clock=time.thread_time), "products", "FFT"
        )
    chosen = {n: value for n, value in ratios.items() if faster_by_fft(n)}
    others = {n: value for n, value in ratios.items() if not faster_by_fft(n)}
    slow = min(chosen, key=chosen.__getitem__)
    missed = max(others, key=others.__getitem__)
    return {
        "products / FFT": {str(n): value for n, value in ratios.items()},
        "least where FFTs are chosen": {str(slow): chosen[slow]},
        "largest where products are": {str(missed): others[missed]},
        "FFTs chosen": len(chosen),
        "of them slower by 5 % and more": sum(value < 0.95 for value in chosen.values()),
    }


def jobs(samples: int = 32) -> dict[str, float]:
    """Processor time of jobs of darcy-421 over that of drawing and solving their samples.

    A job goes from the recipe to the sealed store. The label error of the recipe is known in
    advance; with another source the workers measure it.
    """
    recipe = load_recipe("darcy-421").with_overrides({"samples": samples})
    changed = recipe.with_overrides({"source": 1.5})
    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/store"
        seconds = interleaved(
            {
                "samples": partial(recipe.problem.solve, recipe.seed, range(samples)),
                "job": partial(generate, recipe, url, workers=2, overwrite=True),
                "measuring": partial(generate, changed, url, workers=2, overwrite=True),
            },
            rounds=7,
            clock=time.process_time,
        )
    return {
        "samples alone, seconds": rounded(float(np.median(seconds["samples"]))),
        "job / samples alone": ratio(seconds, "job", "samples"),
        "job that measures its label error / samples alone": ratio(seconds, "measuring", "samples"),
    }


def growth() -> dict[str, dict[str, int]]:
    """Largest number of iterations by grid."""
    iterations = {}
    for n in (85, 211, 421, 841):
        solver = FiniteVolume(CellGrid(n), rtol=RTOL)
        g = PUBLISHED(CellGrid(n), 0, range(4))
        iterations[str(n)] = {
            "two-phase": int(solver.solve(np.where(g >= 0, 12.0, 3.0)).iterations.max()),
            "log-normal": int(solver.solve(np.exp(g)).iterations.max()),
        }
    return iterations


def contrasts(n: int = 211) -> dict[str, int]:
    """Iterations at growing contrast of the phases."""
    g = PUBLISHED(CellGrid(n), 0, [0])
    solver = FiniteVolume(CellGrid(n), rtol=RTOL)
    return {
        f"{c:.0e}": int(solver.solve(np.where(g >= 0, c, 1.0)).iterations[0])
        for c in (4.0, 1e2, 1e4, 1e6, 1e8)
    }


def adjoint() -> dict[str, Any]:
    """Time of the gradient of ½ Σ u² over the time of one solve.

    "u and gradient, less u" solves for u as well and subtracts the time of one solve.
    """
    figures: dict[str, Any] = {}
    for n in (43, 85, SMALL):
        smooth = 3 + 9 / (1 + np.exp(-3 * PUBLISHED(CellGrid(n), 0, [0])))
        for kind, a in {"two-phase": two_phase(n, 1), "smooth": smooth}.items():
            figures[f"{n}, {kind}"] = _gradients(FiniteVolume(CellGrid(n), rtol=RTOL), a)
    return figures


def _gradients(solver: FiniteVolume, a: np.ndarray) -> dict[str, float]:
    linearised = solver.linearise(a)
    v = linearised.u
    jobs = {
        "solve": partial(solver, a),
        "u and gradient": lambda: solver.linearise(a).vjp(v),
        "gradient": partial(linearised.vjp, v),
    }
    repeats = max(1, 4 * SMALL // solver.grid.n)
    seconds = interleaved(jobs, rounds=7, clock=time.thread_time, repeats=repeats)
    return {
        "solve, ms": milliseconds(seconds["solve"]),
        "u and gradient, less u": rounded(ratio(seconds, "u and gradient", "solve") - 1),
        "gradient": rounded(ratio(seconds, "gradient", "solve")),
    }


PARTS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "solvers": ("one 421 x 421 sample, residual 1e-8, one core", lambda: one_sample(421)),
    "grids": ("one sample by grid, residual 1e-8, one core", grids),
    "jobs": ("32 samples of darcy-421, processor time", jobs),
    "iterations": (
        "iterations",
        lambda: {"by grid": growth(), "by contrast, 211 x 211": contrasts()},
    ),
    "adjoint": ("gradients over one solve, residual 1e-8, one core", adjoint),
    "transforms": ("sines of a field forth and back, with sweeps between", transforms),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and iterations of the Darcy solver.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    part_names = parser.parse_args().parts or ["solvers", "grids", "jobs", "iterations", "adjoint"]
    if unknown := [part_name for part_name in part_names if part_name not in PARTS]:
        parser.error(f"unknown part {unknown[0]}: {', '.join(PARTS)}")
    figures = {}
    with threadpool_limits(1):
        for part_name in part_names:
            name, part = PARTS[part_name]
            figures[name] = part()
    show("darcy-solvers", figures)


if __name__ == "__main__":
    main()
