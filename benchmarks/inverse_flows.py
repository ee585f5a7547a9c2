"""Inverse problems of flows over noise levels: errors, and how often intervals hold the truth.

`burgers` finds initial values of `burgers-quick` from noisy u(T); `viscosity` finds ν from u(0) and
u(T), and from u(T) alone; `vorticity` finds the force of `ns-quick` from two noisy frames. Noise is
relative to the deviation of the clean data.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from benchmarks.forcing import ForcingInversion
from benchmarks.posterior.calibration import coverage
from benchmarks.viscosity import ViscosityInversion
from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.inversion import InitialValueInversion
from pdegen.equations.burgers.problem import Burgers
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.equations.vorticity.problem import Vorticity
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import NormalStream

POINTS = 128  # of u(T)
TUNED_ON = 8  # samples that choose the weight of Tikhonov, after those of the test
WEIGHTS = (0.01, 0.1, 1.0, 10.0)
NINETY = 1.6448536269514722  # deviations of a normal variable, that hold 90 %
NOISE_SEED, LAW_SEED = 1, 2
SPREAD = 0.5  # of log ν


def noise(samples: int, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal variates of each sample."""
    xi = NormalStream(NOISE_SEED).normals_of(range(samples), int(np.prod(shape)))
    return xi.reshape(samples, *shape)


def relative(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def said(**row: object) -> None:
    print(json.dumps(row), flush=True)


def rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def quick() -> Burgers:
    problem = load_recipe("burgers-quick").problem
    assert isinstance(problem, Burgers)
    return problem


def burgers(levels: list[float], samples: int) -> None:
    """Initial values of the first samples."""
    problem = quick()
    values = problem.compute(0, range(samples + TUNED_ON))
    stride = problem.resolution // POINTS
    a, u = (values[name][:, ::stride].astype(np.float64) for name in ("a", "u"))
    xi, spread = noise(len(u), (POINTS,)), u.std(axis=0)
    field, nu, (t,) = problem.initial.build(), problem.viscosity, problem.times
    method = InitialValueInversion.of_law(field, nu, t, POINTS)
    smooth = {
        weight: InitialValueInversion.tikhonov(weight, POINTS // 2 - 1, nu, t, POINTS)
        for weight in WEIGHTS
    }
    for level in levels:
        data, deviation = u + level * spread * xi, level * spread
        begun = time.process_time()
        found = [method(one, deviation) for one in data[:samples]]
        seconds = (time.process_time() - begun) / samples
        centres, spreads = (np.stack([one[part] for one in found]) for part in (0, 1))

        def error(by: Callable, rows: range, data=data, deviation=deviation) -> list[float]:
            return [relative(by(data[i], deviation).u0, a[i]) for i in rows]

        tuned = range(samples, samples + TUNED_ON)
        weight = min(WEIGHTS, key=lambda w: float(np.mean(error(smooth[w], tuned))))
        errors = [relative(one, truth) for one, truth in zip(centres, a, strict=False)]
        low, high = centres - NINETY * spreads, centres + NINETY * spreads
        said(
            problem="initial value", noise=level, samples=samples, error=rounded(np.mean(errors)),
            interval=rounded(1.96 * np.std(errors, ddof=1) / samples**0.5, 2),
            tikhonov=rounded(np.mean(error(smooth[weight], range(samples)))), weight=weight,
            coverage=round(coverage(low, high, a[:samples]), 4),
            deviation=rounded(float(spreads.mean())),
            misfit=rounded(np.mean([one.estimate.misfit for one in found])),
            solves=round(float(np.mean([one.estimate.solves for one in found]))),
            ms=rounded(1e3 * seconds, 3),
        )  # fmt: skip


def viscosity(levels: list[float], samples: int) -> None:
    """ν of samples whose log ν differs by normal numbers of deviation `SPREAD`."""
    problem = quick()
    field, typical, (t,) = problem.initial.build(), problem.viscosity, problem.times
    n = problem.solver.resolution
    u0 = field(PeriodicGrid(n), 0, range(samples))
    z = NormalStream(LAW_SEED).normals_of(range(samples), 1)[:, 0]
    logs = np.log(typical) + SPREAD * z
    u = np.stack([
        ColeHopf(PeriodicGrid(n), float(np.exp(log)), 1e-5)(one, t)
        for log, one in zip(logs, u0, strict=True)
    ])[:, :: n // POINTS]  # fmt: skip
    xi, method = noise(samples, (POINTS,)), ViscosityInversion(typical, SPREAD, t, POINTS)
    for level in levels:
        deviation = level * np.std(u) * np.ones(POINTS)
        for name in ("u(0) and u(T)", "u(T) alone"):
            begun = time.process_time()
            found = [
                method.from_solution(field, one, deviation)
                if name == "u(T) alone"
                else method.from_both(start, one, deviation)
                for start, one in zip(u0[:, :: n // 512], u + deviation * xi, strict=True)
            ]
            seconds = (time.process_time() - begun) / samples
            off = np.array([one.log for one in found]) - logs
            spreads = np.array([one.deviation for one in found])
            said(
                problem="viscosity", known=name, noise=level, samples=samples,
                error=rounded(float(np.sqrt(np.mean(off**2)))), before=SPREAD,
                deviation=rounded(float(spreads.mean())),
                coverage=round(coverage(-NINETY * spreads, NINETY * spreads, off), 3),
                ms=rounded(1e3 * seconds, 3),
            )  # fmt: skip


def vorticity(levels: list[float], samples: int) -> None:
    """The force 0.1 (sin θ + cos θ), θ = 2π(x + y), of 32 x 32 points at t = 0 and 1."""
    changed = {"times": [1.0], "initial.modes": 10}
    problem = load_recipe("ns-quick").with_overrides(changed).problem
    assert isinstance(problem, Vorticity)
    values = problem.compute(0, range(samples))
    frames = np.stack([values["a"], values["u"]], axis=1).astype(np.float64)
    flow = problem.flow
    force = flow.torus.to_points(flow.force, (problem.resolution,) * 2)
    torus = type(flow.torus)((PeriodicGrid(problem.resolution),) * 2)
    method = ForcingInversion(
        torus, problem.viscosity, 1.0, dt=0.125, initial=problem.initial.build()
    )
    xi = noise(samples, frames.shape[1:])
    for level in levels:
        deviation = level * float(frames.std())
        begun = time.process_time()
        found = [method(one, deviation) for one in frames + deviation * xi]
        seconds = (time.process_time() - begun) / samples
        errors = [relative(one.force, force) for one in found]
        starts = [relative(one.initial, w[0]) for one, w in zip(found, frames, strict=True)]
        said(
            problem="force", noise=level, samples=samples, error=rounded(np.mean(errors)),
            largest=rounded(max(errors)), initial=rounded(np.mean(starts)),
            misfit=rounded(np.mean([one.estimate.misfit for one in found])),
            solves=round(float(np.mean([one.estimate.solves for one in found]))),
            seconds=rounded(seconds, 3),
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    for run, levels, samples in (
        (burgers, [0.0, 0.001, 0.01, 0.05, 0.1], 300),
        (viscosity, [0.001, 0.01, 0.1], 40),
        (vorticity, [0.001, 0.01, 0.1], 5),
    ):
        command = commands.add_parser(run.__name__, help=run.__doc__)
        command.add_argument("--levels", type=float, nargs="+", default=levels)
        command.add_argument("--samples", type=int, default=samples)
        command.set_defaults(run=run)
    options = parser.parse_args()
    options.run(options.levels, options.samples)


if __name__ == "__main__":
    main()
