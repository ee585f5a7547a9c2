"""Semilinear equations: our steps against those of exponax.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install -e '.[exponax]'
    /tmp/peer/bin/python -m benchmarks.exponax_semilinear [--rounds 7] [--only kdv ...]

Both solve the initial values of the recipes on the same points, in float64, on one CPU thread, with
exponential Runge-Kutta of order 4. Each takes the fewest steps, a power of two times the first
number of the case, whose relative L2 error is at most 1e-5 for every sample. The reference is our
solver with eight times as many steps on twice the points. Where the points limit the error of
both, the tolerance is 1.5 times that error, and it is printed. exponax 0.2 uses the real parts of
its coefficients, so it misses the tolerance where L is not real (kdv): there it takes as many
steps as ours, and its error is printed. exponax steps in Fourier space, vmapped and jitted.
Coefficients and compilation are not timed. Figures are medians of processor time, and ratios
within interleaved rounds. "with its estimate" is the cost in a recipe: three runs more, see
`pdegen/numerics/semilinear.py`. In three dimensions, both solve on 32^3 points, and peak memory is
measured too: a process of its own solves one sample, on these points and on 64^3. "before" is the
memory with libraries, initial value and coefficients; "added" is what the first solution adds at
its peak, for exponax with the compilation.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.exponax_burgers import ONE_THREAD
from benchmarks.extras import needed
from benchmarks.history import show
from benchmarks.scale import memory
from benchmarks.timing import interleaved, ratio, rounded
from pdegen.domains import PeriodicGrid
from pdegen.equations.semilinear.solver import integrator, projection
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe

TOLERANCE = 1e-5
_DOUBLINGS = 6
_ESTIMATE = "ours, with its estimate"

Solve = Callable[[], np.ndarray]
Ours = Callable[[int, float], tuple[Torus, Semilinear]]  # (points, time step) -> torus, solver


@dataclass(frozen=True)
class Case:
    """An equation with its initial values.

    Args:
        points: Number of points along each axis.
        time: Time at which solutions are compared.
        steps: Smallest number of steps that is tried.
        values: Map from the number of points to initial values (samples, components, *points).
        ours: Map from the number of points and the time step to our torus and solver.
        stepper: Name of the class in exponax.stepper, and its arguments.
        length: Length of the domain along each axis.
    """

    points: int
    time: float
    steps: int
    values: Callable[[int], np.ndarray]
    ours: Ours
    stepper: tuple[str, dict[str, Any]]
    length: float


def of_recipe(
    name: str,
    time: float,
    steps: int,
    samples: int,
    stepper: str,
    *,
    points: int | None = None,
    **arguments: Any,
) -> Case:
    problem = load_recipe(name).problem
    points = points or problem.solver.resolution

    def finer(n: int) -> Torus:
        grid = PeriodicGrid(n, problem.length)
        return Torus((grid,) * problem.dimension, problem.terms.degree)

    def ours(n: int, dt: float) -> tuple[Torus, Semilinear]:
        return finer(n), integrator([problem.terms], finer(n), dt, math.inf, None)

    def values(n: int) -> np.ndarray:
        torus, count = finer(n), len(problem.components)
        u0 = problem.initial.values(torus, count, 0, range(samples), None)
        if problem.nonlinear.projection:
            u0 = torus.to_points(np.sum(projection(torus) * torus.to_modes(u0)[:, None], axis=2))
        return u0

    return Case(points, time, steps, values, ours, (stepper, arguments), problem.length)


def cases() -> dict[str, Callable[[], Case]]:
    reaction = "reaction."
    return {
        "kdv": lambda: of_recipe(
            "kdv", 0.5, 64, 64, "KortewegDeVries", convection_scale=6.0, hyper_diffusivity=0.0,
            conservative=True,
        ),
        "kuramoto-sivashinsky": lambda: of_recipe(
            "kuramoto-sivashinsky", 10.0, 64, 64, "KuramotoSivashinskyConservative",
            conservative=True,
        ),
        "fisher-kpp": lambda: of_recipe(
            "fisher-kpp", 1.0, 16, 64, f"{reaction}FisherKPP", diffusivity=1e-3, reactivity=5.0
        ),
        "allen-cahn": lambda: of_recipe(
            "allen-cahn", 4.0, 8, 8, f"{reaction}AllenCahn", diffusivity=5e-3
        ),
        "swift-hohenberg": lambda: of_recipe(
            "swift-hohenberg", 4.0, 16, 8, f"{reaction}SwiftHohenberg"
        ),
        "gray-scott": lambda: of_recipe(
            "gray-scott", 40.0, 8, 8, f"{reaction}GrayScott", dealiasing_fraction=0.5
        ),
        "burgers-2d": lambda: of_recipe("burgers-2d", 0.2, 8, 8, "Burgers", diffusivity=0.01),
        "allen-cahn-3d": lambda: of_recipe(
            "allen-cahn-3d", 1.0, 4, 4, f"{reaction}AllenCahn", points=32, diffusivity=1e-2
        ),
        "gray-scott-3d": lambda: of_recipe(
            "gray-scott-3d", 50.0, 4, 4, f"{reaction}GrayScott", points=32,
            dealiasing_fraction=0.5, diffusivity_1=4e-5, diffusivity_2=2e-5,
        ),
        "decaying-3d": lambda: of_recipe(
            "decaying-3d", 0.25, 4, 4, "NavierStokesVelocity", points=32, diffusivity=5e-3
        ),
    }  # fmt: skip


def with_ours(case: Case, u0: np.ndarray, steps: int, estimate: bool = False) -> Solve:
    torus, solver = case.ours(u0.shape[-1], case.time / steps)

    def march() -> np.ndarray:
        v0 = torus.to_modes(u0)
        if estimate:
            return torus.to_points(solver.solve(v0, [case.time]).v[:, 0])
        return torus.to_points(solver.discrete.march(v0, [case.time], solver.dt)[0][:, 0])

    return march


def with_exponax(case: Case, u0: np.ndarray, steps: int) -> Solve:
    exponax, jax = needed("exponax", "exponax"), needed("jax", "exponax")
    jax.config.update("jax_enable_x64", True)
    kind: Any = exponax.stepper
    name, arguments = case.stepper
    for part in name.split("."):
        kind = getattr(kind, part)
    axes, n = u0.ndim - 2, u0.shape[-1]
    stepper = kind(axes, case.length, n, case.time / steps, order=4, **arguments)
    march = exponax.repeat(stepper.step_fourier, steps)

    def solution(u: Any) -> Any:
        v = march(exponax.fft(u, num_spatial_dims=axes))
        return exponax.ifft(v, num_spatial_dims=axes, num_points=n)

    compiled, fields = jax.jit(jax.vmap(solution)), jax.numpy.asarray(u0)
    return lambda: np.asarray(compiled(fields).block_until_ready())


def fewest(
    stepping: Callable[[int], Solve], exact: np.ndarray, first: int, tolerance: float
) -> tuple[int, float, Solve]:
    """The fewest steps whose largest error is within the tolerance, that error, and the solver."""
    for doubling in range(_DOUBLINGS):
        steps = first * 2**doubling
        solve = stepping(steps)
        with np.errstate(all="ignore"):
            error = largest_error(solve(), exact)
        if error <= tolerance:
            return steps, error, solve
    raise ValueError(f"the error is {error:.1e}, above {tolerance:.1e}, at {steps} steps")


def largest_error(u: np.ndarray, exact: np.ndarray) -> float:
    axes = tuple(range(1, u.ndim))
    error = np.sum((u - exact) ** 2, axis=axes) / np.sum(exact**2, axis=axes)
    largest = float(np.sqrt(error.max()))
    return largest if math.isfinite(largest) else math.inf


def print_memory(case: Case, solver: str, steps: int, points: int) -> None:
    """Print the memory of this process in MiB before it solves a sample, and the peak while."""
    u0 = case.values(points)[:1]
    solve = (
        with_exponax(case, u0, steps)
        if solver == "exponax"
        else with_ours(case, u0, steps, solver == _ESTIMATE)
    )
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the peak begins here
    before = memory()
    solve()
    print(before, memory())


def memory_of(name: str, solver: str, steps: int, points: int) -> dict[str, float]:
    """Peak memory in MiB of a process that solves a sample."""
    words = [sys.executable, "-m", "benchmarks.exponax_semilinear", "--only", name]
    words += ["--memory", solver, str(steps), str(points)]
    said = subprocess.run(words, capture_output=True, check=True, text=True).stdout
    before, after = map(float, said.split())
    return {"before": rounded(before), "added": rounded(after - before)}


def compared(name: str, case: Case, rounds: int) -> dict[str, Any]:
    """Steps, errors and processor time of both solvers, and memory in three dimensions."""
    u0 = case.values(case.points)
    every = (..., *[slice(None, None, 2)] * (u0.ndim - 2))
    scout, _, _ = fewest(
        lambda s: with_ours(case, u0, s),
        with_ours(case, u0, case.steps * 2**_DOUBLINGS)(), case.steps, TOLERANCE,
    )  # fmt: skip
    exact = with_ours(case, case.values(2 * case.points), 8 * scout)()[every]
    floor = largest_error(with_ours(case, u0, 8 * scout)(), exact)  # of the points alone
    tolerance = max(TOLERANCE, 1.5 * floor)
    steps, *of_ours = fewest(lambda s: with_ours(case, u0, s), exact, case.steps, tolerance)
    chosen = {"ours": (steps, *of_ours)}
    try:
        exponax_run = fewest(lambda s: with_exponax(case, u0, s), exact, case.steps, tolerance)
    except ValueError:  # the same steps, whatever the error
        solve = with_exponax(case, u0, steps)
        exponax_run = steps, largest_error(solve(), exact), solve
    chosen["exponax"] = exponax_run
    jobs: dict[str, Solve] = {name: solve for name, (_, _, solve) in chosen.items()}
    jobs[_ESTIMATE] = with_ours(case, u0, chosen["ours"][0], estimate=True)
    seconds = interleaved(jobs, rounds, clock=time.process_time)
    each = {solver: 1e3 * median(times) / len(u0) for solver, times in seconds.items()}
    steps_of = {solver: chosen[solver if solver in chosen else "ours"][0] for solver in jobs}
    peaks = {
        f"MiB of a sample, {n}^3 points": {
            solver: memory_of(name, solver, steps, n) for solver, steps in steps_of.items()
        }
        for n in (case.points, 2 * case.points)
        if u0.ndim == 5
    }
    return {
        "points": list(u0.shape[2:]),
        "samples": len(u0),
        "error at most": rounded(tolerance),
        "error of the points alone": rounded(floor),
        **{
            solver: {
                "steps": steps,
                "error": rounded(error),
                "ms a sample": rounded(each[solver]),
                "us a step": rounded(1e3 * each[solver] / steps),
            }
            for solver, (steps, error, _) in chosen.items()
        },
        "exponax / ours": ratio(seconds, "exponax", "ours"),
        f"exponax / {_ESTIMATE}": ratio(seconds, "exponax", _ESTIMATE),
        **peaks,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=list(cases()))
    parser.add_argument("--memory", nargs=3, metavar=("SOLVER", "STEPS", "POINTS"))
    options = parser.parse_args(arguments)
    os.environ.update(ONE_THREAD)  # before jax is imported
    needed("exponax", "exponax")
    all_cases = {name: case for name, case in cases().items() if name in options.only}
    if options.memory:
        solver, steps, points = options.memory
        (case,) = all_cases.values()
        print_memory(case(), solver, int(steps), int(points))
        return
    figures = {name: compared(name, case(), options.rounds) for name, case in all_cases.items()}
    show("exponax-semilinear", figures)


if __name__ == "__main__":
    main()
