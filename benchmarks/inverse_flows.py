"""Inverse problems of flows by noise level: errors, and coverage of intervals.

`burgers` estimates initial values of `burgers-quick` from noisy u(T). `viscosity` estimates ν from
u(0) and u(T), and from u(T) alone. `vorticity` estimates the force of `ns-quick` from two noisy
frames. Noise levels are relative to the standard deviation of the clean data.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.forcing import Forcing, ForcingInversion
from benchmarks.viscosity import ViscosityInversion
from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.inversion import InitialValue, InitialValueInversion
from pdegen.equations.burgers.problem import Burgers
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.equations.vorticity.problem import Vorticity
from pdegen.inverse.calibration import coverage
from pdegen.inverse.classical import half_decades
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import NormalStream

POINTS = 128  # points at which u(T) is observed
TUNED_ON = 16  # samples after the test samples, on which the Tikhonov weight is chosen
WEIGHTS = half_decades(-2, 1)
NINETY = 1.6448536269514722  # a normal variable is within ± this many deviations with 90 %
NOISE_SEED, LAW_SEED = 1, 2
SPREAD = 0.5  # standard deviation of log ν


def noise(samples: int, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers for each sample."""
    xi = NormalStream(NOISE_SEED).normals_of(range(samples), int(np.prod(shape)))
    return xi.reshape(samples, *shape)


def relative(estimate: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(estimate - truth) / np.linalg.norm(truth))


def print_row(**row: object) -> None:
    print(json.dumps(row), flush=True)


def rounded(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def converged(estimates: Sequence[InitialValue] | Sequence[Forcing]) -> int:
    """Number of samples on which the steps ended by their criterion."""
    return sum(estimate.estimate.converged for estimate in estimates)


def quick() -> Burgers:
    problem = load_recipe("burgers-quick").problem
    assert isinstance(problem, Burgers)
    return problem


def burgers(levels: list[float], samples: int) -> None:
    """Initial values of Burgers' equation from noisy u(T)."""
    problem = quick()
    values = problem.compute(0, range(samples + TUNED_ON))
    stride = problem.resolution // POINTS
    a, u = (values[name][:, ::stride].astype(np.float64) for name in ("a", "u"))
    xi, spread = noise(len(u), (POINTS,)), u.std(axis=0)
    field, nu, (t,) = problem.initial.build(), problem.viscosity, problem.times
    method = InitialValueInversion.of_distribution(field, nu, t, POINTS)
    smooth = {
        weight: InitialValueInversion.tikhonov(weight, POINTS // 2 - 1, nu, t, POINTS)
        for weight in WEIGHTS
    }
    for level in levels:
        data, std = u + level * spread * xi, level * spread
        begun = time.process_time()
        estimates = [method(row, std) for row in data[:samples]]
        seconds = (time.process_time() - begun) / samples
        centres = np.stack([estimate.u0 for estimate in estimates])
        spreads = np.stack([estimate.std for estimate in estimates])

        def inverted(weight: float, rows: range, data=data, std=std) -> list[InitialValue]:
            return [smooth[weight](data[i], std) for i in rows]

        def error(found: list[InitialValue], rows: range) -> float:
            pairs = zip(found, rows, strict=True)
            return float(np.mean([relative(one.u0, a[i]) for one, i in pairs]))

        tuned = range(samples, samples + TUNED_ON)
        weight = min(WEIGHTS, key=lambda w: error(inverted(w, tuned), tuned))
        tikhonov = inverted(weight, range(samples))
        errors = [relative(estimate, truth) for estimate, truth in zip(centres, a, strict=False)]
        low, high = centres - NINETY * spreads, centres + NINETY * spreads
        print_row(
            problem="initial value", noise=level, samples=samples, error=rounded(np.mean(errors)),
            interval=rounded(1.96 * np.std(errors, ddof=1) / samples**0.5, 2),
            tikhonov=rounded(error(tikhonov, range(samples))), weight=weight,
            converged=[converged(estimates), converged(tikhonov)],
            coverage=round(coverage(low, high, a[:samples]), 4),
            std=rounded(float(spreads.mean())),
            misfit=rounded(np.mean([estimate.estimate.misfit for estimate in estimates])),
            solves=round(float(np.mean([estimate.estimate.solves for estimate in estimates]))),
            ms=rounded(1e3 * seconds, 3),
        )  # fmt: skip


def viscosity(levels: list[float], samples: int) -> None:
    """Viscosity ν from noisy solutions, for normal log ν of deviation `SPREAD`."""
    problem = quick()
    field, typical, (t,) = problem.initial.build(), problem.viscosity, problem.times
    n = problem.solver.resolution
    u0 = field(PeriodicGrid(n), 0, range(samples))
    z = NormalStream(LAW_SEED).normals_of(range(samples), 1)[:, 0]
    logs = np.log(typical) + SPREAD * z
    u = np.stack([
        ColeHopf(PeriodicGrid(n), float(np.exp(log)), 1e-5)(row, t)
        for log, row in zip(logs, u0, strict=True)
    ])[:, :: n // POINTS]  # fmt: skip
    xi, method = noise(samples, (POINTS,)), ViscosityInversion(typical, SPREAD, t, POINTS)
    for level in levels:
        std = level * np.std(u) * np.ones(POINTS)
        for name in ("u(0) and u(T)", "u(T) alone"):
            begun = time.process_time()
            estimates = [
                method.from_solution(field, row, std)
                if name == "u(T) alone"
                else method.from_both(start, row, std)
                for start, row in zip(u0[:, :: n // 512], u + std * xi, strict=True)
            ]
            seconds = (time.process_time() - begun) / samples
            off = np.array([estimate.log for estimate in estimates]) - logs
            spreads = np.array([estimate.std for estimate in estimates])
            print_row(
                problem="viscosity", known=name, noise=level, samples=samples,
                error=rounded(float(np.sqrt(np.mean(off**2)))), before=SPREAD,
                std=rounded(float(spreads.mean())),
                coverage=round(coverage(-NINETY * spreads, NINETY * spreads, off), 3),
                converged=sum(estimate.converged for estimate in estimates),
                ms=rounded(1e3 * seconds, 3),
            )  # fmt: skip


def vorticity(levels: list[float], samples: int) -> None:
    """The force 0.1 (sin θ + cos θ), θ = 2π(x + y), from frames on 32 x 32 points, t = 0 and 1."""
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
        std = level * float(frames.std())
        begun = time.process_time()
        estimates = [method(row, std) for row in frames + std * xi]
        seconds = (time.process_time() - begun) / samples
        errors = [relative(estimate.force, force) for estimate in estimates]
        starts = [
            relative(estimate.initial, w[0]) for estimate, w in zip(estimates, frames, strict=True)
        ]
        print_row(
            problem="force", noise=level, samples=samples, error=rounded(np.mean(errors)),
            largest=rounded(max(errors)), initial=rounded(np.mean(starts)),
            misfit=rounded(np.mean([estimate.estimate.misfit for estimate in estimates])),
            converged=converged(estimates),
            solves=round(float(np.mean([estimate.estimate.solves for estimate in estimates]))),
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
