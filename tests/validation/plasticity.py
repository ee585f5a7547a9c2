"""Figures of forged blocks that take minutes: `python -m tests.validation.plasticity WHAT`.

errors: the stated errors of the first samples beside the distances to blocks with twice as many
points along each side.
statistics: figures of a store, generated or imported, beside those known of the published arrays.
failures: which of the first samples fail, and the time of a sample.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicSpline

from pdegen.equations.base import SampleError
from pdegen.equations.plasticity.problem import Plasticity
from pdegen.equations.plasticity.solver import Frames, centred
from pdegen.recipe import load_recipe
from pdegen.store.reading import open_sealed


def ratios(
    resolution: int, samples: range, compared: str
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields the number of a sample, its two true errors, and its two estimates."""
    coarse, fine = (_problem(n) for n in (resolution, 2 * resolution - 1))
    for sample in samples:
        frames, reference = _frames(coarse, sample), _frames(fine, sample)
        forging = coarse.forging
        other = forging.finer() if compared == "finer" else forging.coarser()
        other_frames = other(coarse.dies(0, range(sample, sample + 1))[0])
        true = [forging.difference(frames.u, reference.u),
                forging.difference(centred(frames), centred(reference))]  # fmt: skip
        estimate = forging.estimates(frames, other_frames)
        yield sample, np.array(true), np.array(estimate)


def _problem(resolution: int) -> Plasticity:
    problem = load_recipe("plasticity").with_overrides({"resolution": resolution}).problem
    assert isinstance(problem, Plasticity)
    return problem


def _frames(problem: Plasticity, sample: int) -> Frames:
    return problem.forging(problem.dies(0, range(sample, sample + 1))[0])


def errors(options: argparse.Namespace) -> None:
    quotients = list[np.ndarray]()
    samples = range(options.first, options.first + options.samples)
    for sample, true, estimate in ratios(options.resolution, samples, options.compared):
        quotients.append(estimate / true)
        print(f"sample {sample}: error {true[0]:.4f}, estimate {estimate[0]:.4f}; "
              f"without drift {true[1]:.4f}, {estimate[1]:.4f}", flush=True)  # fmt: skip
    for name, ratio in zip(("with drift", "without"), np.stack(quotients, axis=1), strict=True):
        near = ((ratio >= 0.5) & (ratio <= 2)).sum()
        print(f"{name}: estimate over error {ratio.min():.2f} to {ratio.max():.2f}, median "
              f"{np.median(ratio):.2f}; {near} of {len(ratio)} within a factor of 2")  # fmt: skip


# Figures of the published arrays, in mm, where known; their floor is at -0.1.
PUBLISHED = {
    "largest displacement": "up to 5.4",
    "root mean square of the displacement": "about 1",
    "largest displacement, without drift": "",
    "root mean square, without drift": "",
    "ends of the bottom move apart, each by": "1 to 2",
    "drift at the end, either way": "",
    "lowest point of the die over the floor": "15.0 to 15.2",
    "highest point of the die over the floor": "up to about 24",
    "turns of the die": "6 to 9 humps",
    "largest distance of the top above the die": "0.0445",
}


def figures(
    die: Float[np.ndarray, " nx"], u: Float[np.ndarray, "frames 2 nx ny"], x: np.ndarray
) -> list[float]:
    """Figures of one sample in the order of `PUBLISHED`; x is the top at rest, 15 mm high."""
    bottom = u[:, 0, :, 0]
    drift = (bottom[:, 1:] + bottom[:, :-1]).mean(axis=1) / 2
    rest = u - np.stack([drift, 0 * drift], axis=1)[..., None, None]
    sizes = [
        f(np.hypot(*np.moveaxis(v, 1, 0))) for v in (u, rest) for f in (np.max, _root_mean_square)
    ]
    surface = CubicSpline(x, die)
    above = [15 + v - (surface(np.clip(x + w, x[0], x[-1])) - 0.3 * k)
             for k, (w, v) in enumerate(u[..., -1]) if k]  # fmt: skip
    inside = abs(x + u[1:, 0, :, -1]) <= x[-1]
    turns = (np.diff(np.sign(np.diff(die))) != 0).sum()
    return [
        *sizes, (bottom[-1, -1] - bottom[-1, 0]) / 2, abs(drift[-1]), die.min(), die.max(), turns,
        np.stack(above)[inside].max(),
    ]  # fmt: skip


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))


def statistics(options: argparse.Namespace) -> None:
    store = open_sealed(options.store)
    samples = range(min(options.samples, store.samples))
    x = np.linspace(-25, 25, store.array("u").shape[3])
    rows = list[list[float]]()
    for i in samples:
        (die,), (u,) = (store.values(name, range(i, i + 1)).astype(float) for name in "au")
        rows.append(figures(die[:, 0], u, x))
    print(f"{len(rows)} samples on {len(x)} points along the block: mean, smallest, largest")
    for (name, published), column in zip(PUBLISHED.items(), np.array(rows).T, strict=True):
        beside = f"; published {published}" if published else ""
        print(f"{name}: {column.mean():.3f}, {column.min():.3f}, {column.max():.3f}{beside}")


def failures(options: argparse.Namespace) -> None:
    problem, seconds, failed = _problem(options.resolution), list[float](), 0
    problem.compute(0, range(1))  # compiles
    for sample in range(options.first, options.first + options.samples):
        start = time.process_time()
        try:
            problem.compute(0, range(sample, sample + 1))
        except SampleError as error:
            failed += 1
            print(error, flush=True)
        seconds.append(time.process_time() - start)
    print(f"{failed} of {len(seconds)} fail; {np.mean(seconds):.1f} s of processor time a sample, "
          f"{min(seconds):.1f} to {max(seconds):.1f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for function in (errors, failures):
        command = commands.add_parser(function.__name__)
        command.add_argument("--resolution", type=int, default=101)
        command.add_argument("--samples", type=int, default=20)
        command.add_argument("--first", type=int, default=0)
        command.add_argument("--compared", choices=["coarser", "finer"], default="coarser")
        command.set_defaults(run=function)
    command = commands.add_parser("statistics")
    command.add_argument("store")
    command.add_argument("--samples", type=int, default=987)
    command.set_defaults(run=statistics)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
