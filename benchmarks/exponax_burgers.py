"""Cole-Hopf and ETDRK4 against the Burgers stepper of exponax, for burgers-r10.

    python -m benchmarks.exponax_burgers [--rounds 9]

All solve the same initial values on the recipe's grid, in float64, on one CPU thread. Each stepper
takes the smallest power of two of steps whose relative L2 error against Cole-Hopf is at most 1e-4,
and 1e-6, for every sample. exponax steps in Fourier space, in conservative form, vmapped and
jitted, which is its fastest mode. Coefficients and compilation are not timed. Figures are medians
of processor time, and ratios within interleaved rounds. Transforms alone are timed too: they show
the share of the FFT library in a step.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import cache
from statistics import median
from typing import Any

import numpy as np
from jaxtyping import Float

from benchmarks.extras import needed
from benchmarks.history import show
from benchmarks.timing import interleaved, ratio, rounded
from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.solver import ETDRK4, ColeHopf, SolveError
from pdegen.numerics.device import blocks
from pdegen.recipe import load_recipe

RECIPE = load_recipe("burgers-r10")
PROBLEM = RECIPE.problem
TIME = PROBLEM.times[0]
TOLERANCES = (1e-4, 1e-6)
SAMPLES = 16

Values = Float[np.ndarray, "samples n"]
Solve = Callable[[], Any]  # solves all samples and returns an array with the values of u
Steps = Callable[[int], Solve]  # number of time steps -> solver

_MOST = 2**14  # largest number of steps that is tried
_PAIRS = 256  # pairs of transforms in 64 steps of order 4
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def fewest(stepping: Steps, exact: Values, tolerance: float) -> tuple[int, float, Solve]:
    """Smallest power of two of steps with an error within the tolerance; that error; the solver.

    Raises:
        ValueError: If the error is still too large at the largest number of steps.
    """
    steps = 1
    while steps <= _MOST:
        solve = stepping(steps)
        error = largest_error(solve, exact)
        if error <= tolerance:
            return steps, error, solve
        steps *= 2
    raise ValueError(f"the error is above {tolerance:g} at {_MOST} steps")


def largest_error(solve: Solve, exact: Values) -> float:
    """Relative L2 error of the worst sample; infinite or NaN where steps are unstable."""
    try:
        u = np.asarray(solve()).reshape(exact.shape)
    except SolveError:
        return float("inf")
    error = np.linalg.norm(u - exact, axis=1) / np.linalg.norm(exact, axis=1)
    return float(error.max())


def with_etdrk4(grid: PeriodicGrid, u0: Values) -> Steps:
    def of(steps: int) -> Solve:
        solver = ETDRK4(grid, PROBLEM.viscosity, TIME / steps)
        return lambda: solver(u0, TIME)

    return of


def with_exponax(grid: PeriodicGrid, u0: Values, order: int) -> Steps:
    """The ETDRK stepper of exponax with this order."""
    exponax, jax = needed("exponax", "exponax"), needed("jax", "exponax")
    jax.config.update("jax_enable_x64", True)
    fields = jax.numpy.asarray(u0[:, None])  # (samples, channels, points)

    def of(steps: int) -> Solve:
        stepper = exponax.stepper.Burgers(
            1, 1.0, grid.n, TIME / steps, diffusivity=PROBLEM.viscosity, order=order,
            conservative=True,
        )  # fmt: skip
        march = exponax.repeat(stepper.step_fourier, steps)

        def solution(u: Any) -> Any:
            v = march(exponax.fft(u, num_spatial_dims=1))
            return exponax.ifft(v, num_spatial_dims=1, num_points=grid.n)

        compiled = jax.jit(jax.vmap(solution))
        return lambda: compiled(fields).block_until_ready()

    return of


def transforms(u0: Values) -> dict[str, Solve]:
    """Pairs of rfft and irfft by NumPy, in the blocks of our solvers, and by XLA."""
    jax = needed("jax", "exponax")
    n, rows = u0.shape[1], list(blocks(*u0.shape, at_once=False))
    fields = jax.numpy.asarray(u0[:, None])

    def with_numpy() -> None:
        for block in rows:
            for _ in range(_PAIRS):
                np.fft.irfft(np.fft.rfft(u0[block]), n=n)

    def pair(_: int, u: Any) -> Any:
        return jax.numpy.fft.irfft(jax.numpy.fft.rfft(u), n=n)

    march = jax.jit(lambda u: jax.lax.fori_loop(0, _PAIRS, pair, u))
    return {"NumPy's pairs": with_numpy, "XLA's pairs": lambda: march(fields).block_until_ready()}


def compared(rounds: int) -> dict[str, Any]:
    """Steps, errors and processor time of every solver, by tolerance."""
    grid = PeriodicGrid(PROBLEM.resolution)
    u0 = PROBLEM.initial.build()(grid, RECIPE.seed, range(SAMPLES))
    cole_hopf = ColeHopf(grid, PROBLEM.viscosity)
    solution = cole_hopf.solve(u0, TIME)
    steppers = {
        "ETDRK4": cache(with_etdrk4(grid, u0)),
        "exponax, ETDRK4": cache(with_exponax(grid, u0, 4)),
        "exponax, ETDRK2": cache(with_exponax(grid, u0, 2)),
    }
    chosen = {
        (name, tolerance): fewest(stepping, solution.u[:, 0], tolerance)
        for tolerance in TOLERANCES
        for name, stepping in steppers.items()
    }
    jobs: dict[Any, Solve] = {key: solve for key, (_, _, solve) in chosen.items()}
    jobs |= {"Cole-Hopf": lambda: cole_hopf(u0, TIME), **transforms(u0)}
    seconds = interleaved(jobs, rounds, clock=time.process_time)
    each = {key: rounded(1e3 * median(times) / SAMPLES) for key, times in seconds.items()}
    figures: dict[str, Any] = {
        "points": grid.n,
        "samples": SAMPLES,
        "Cole-Hopf": {
            "estimate of its error": rounded(float(solution.error.max())),
            "ms a sample": each["Cole-Hopf"],
        },
        f"{_PAIRS} pairs of transforms alone": {
            "NumPy, ms a sample": each["NumPy's pairs"],
            "XLA, ms a sample": each["XLA's pairs"],
            "XLA / NumPy": ratio(seconds, "XLA's pairs", "NumPy's pairs"),
        },
    }
    for tolerance in TOLERANCES:
        figures[f"error at most {tolerance:.0e}"] = {
            name: {
                "steps": chosen[name, tolerance][0],
                "error": rounded(chosen[name, tolerance][1]),
                "ms a sample": each[name, tolerance],
                "/ Cole-Hopf": ratio(seconds, (name, tolerance), "Cole-Hopf"),
                "/ ETDRK4": ratio(seconds, (name, tolerance), ("ETDRK4", tolerance)),
            }
            for name in steppers
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    os.environ.update(ONE_THREAD)  # before jax is imported
    needed("exponax", "exponax")
    show("exponax", compared(rounds))


if __name__ == "__main__":
    main()
