"""Posterior samples of two phases by one model and by two, and intervals that cover.

`chains` compares Metropolis and Hastings with delayed acceptance on some samples; `coverage` counts
how often intervals hold the truth: conformal bands around the largest posterior density.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from pdegen.domains import CellGrid
from pdegen.equations.darcy.calibrated import CalibratedFlow
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import phase_levels
from pdegen.inverse.calibration import (
    ConformalBand,
    brier,
    central_interval,
    coverage,
    crps,
    rank_histogram,
    ranks,
    reliability,
)
from pdegen.inverse.covariance import ModelError
from pdegen.inverse.diagnostics import bulk_ess, mean_error, split_r_hat
from pdegen.inverse.observation import Separable, averages, interpolation
from pdegen.inverse.phase_posterior import OfFractions, PhasePotential
from pdegen.inverse.phases import Level, PhaseInversion
from pdegen.inverse.posterior import Chain, Metropolis
from pdegen.inverse.prior import Prior
from pdegen.inverse.setting import Setting
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField

PHASES = (3.0, 12.0)
LEVEL = 0.9  # of the intervals
NOISE_SEED, CHAIN_SEED = 1, 2

# chains: phases on 63 x 63 cells, models with their fractions on 21 x 21 and 15 x 15
FINEST, FINE, COARSE = 63, 21, 15
MODES = 20  # of an axis, as the recipe with the fewest has
SENSORS = 7  # of an axis
EVERY = 20  # steps from one that is kept to the next
KNOWN = 300  # samples that give the errors of the models
WIDTHS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.2, 0.12, 0.08)

# coverage
CELLS, BLOCKS = 21, 4


@dataclass(frozen=True)
class Case:
    """Samples with sensors, and a model on some cells for each level, from coarse to fine."""

    phases: np.ndarray
    data: np.ndarray
    deviation: np.ndarray
    levels: tuple[Level, ...]


def case(noise: float, samples: int) -> Case:
    """Noisy data of the samples after those that the models' errors are taken from."""
    grid = CellGrid(FINEST)
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, MODES)
    p = (field(grid, 0, range(KNOWN + samples)) >= 0).astype(np.float64)
    low, high = PHASES
    x = CellGrid(SENSORS).x
    observed = interpolation(grid, x)
    clean = observed @ FiniteVolume(grid)(low + (high - low) * p) @ observed.T
    levels = list[Level]()
    for cells in (COARSE, FINE):
        flow = CalibratedFlow(CellGrid(cells), PHASES)
        forward = OfFractions(flow, averages(FINEST, cells))
        matrix = interpolation(flow.grid, x)
        observation = Separable(matrix, matrix)
        error = ModelError.of(np.stack([
            u - observation(forward.linearise(one).u)
            for one, u in zip(p[:KNOWN], clean[:KNOWN], strict=True)
        ]))  # fmt: skip
        widths = WIDTHS if cells == COARSE else WIDTHS[-3:]
        levels.append(Level(Prior(field, grid), forward, observation, error, widths))
    deviation = noise * clean[:KNOWN].std(axis=0)
    new = range(KNOWN, KNOWN + samples)
    xi = NormalStream(NOISE_SEED).normals_of(new, SENSORS**2).reshape(-1, SENSORS, SENSORS)
    return Case(p[KNOWN:], clean[KNOWN:] + deviation * xi, deviation, tuple(levels))


def watched(p: np.ndarray) -> np.ndarray:
    """Share of the upper phase in the square and in its quarters, then in 7 x 7 blocks."""
    to_blocks, to_quarters = averages(FINEST, 7), averages(FINEST, 2)
    quarters, blocks = (m @ p @ m.T for m in (to_quarters, to_blocks))
    return np.concatenate([[p.mean()], quarters.ravel(), blocks.ravel()])


def chains(noise: float, samples: int, count: int, steps: int, burn_in: int) -> None:
    """Both methods on some samples, with the same number of chains."""
    of = case(noise, samples)
    for number, (p, data) in enumerate(zip(of.phases, of.data, strict=True)):
        coarse, fine = (PhasePotential(level, data, of.deviation) for level in of.levels)
        largest = PhaseInversion(of.levels)(data, of.deviation).coefficients
        kept, truth = dict[str, np.ndarray](), watched(p)
        for name, method in (
            ("one model", Metropolis(fine, None, fine.curvature)),
            ("delayed acceptance", Metropolis(fine, coarse, fine.curvature)),
        ):
            begun, found = time.process_time(), list[Chain]()
            for chain in range(count):
                dispersed = NormalStream(CHAIN_SEED).normals_of([chain], largest.size)
                start = dispersed.reshape(largest.shape) if chain else largest
                found.append(method.run(
                    start, steps, burn_in, CHAIN_SEED, chain + count * number,
                    watch=lambda xi: watched(fine.phase(xi)), every=EVERY,  # noqa: B023
                ))  # fmt: skip
            kept[name] = np.stack([chain.values for chain in found])
            row = summary(name, found, kept[name], time.process_time() - begun)
            low, high = central_interval(kept[name].reshape(-1, len(truth)), LEVEL)
            print(json.dumps({"sample": KNOWN + number, "noise": noise} | row | {
                "true share": round(float(truth[0]), 4),
                "intervals that hold": round(coverage(low, high, truth), 3),
            }), flush=True)  # fmt: skip
        z = agreement(*kept.values())
        print(json.dumps({
            "sample": KNOWN + number, "noise": noise, "quantities": len(z),
            "rms of the differences of means over their errors": round(
                float(np.sqrt(np.mean(z**2))), 2
            ),
            "largest": round(float(np.abs(z).max()), 2),
        }), flush=True)  # fmt: skip


def moving(values: np.ndarray) -> np.ndarray:
    """Of the watched numbers those that every chain changes: others have one phase alone."""
    return np.flatnonzero((values.std(axis=1) > 1e-3).all(axis=0))


def agreement(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Differences of the means of what moves in both, in their standard errors."""
    both = np.intersect1d(moving(one), moving(two))
    return np.array([
        (one[..., k].mean() - two[..., k].mean())
        / np.hypot(mean_error(one[..., k]), mean_error(two[..., k]))
        for k in both
    ])  # fmt: skip


def summary(name: str, found: list[Chain], values: np.ndarray, seconds: float) -> dict[str, Any]:
    """How well the chains of a method mixed, and what they took."""
    some = moving(values)
    r_hats = [split_r_hat(values[..., k]) for k in some]
    sizes = [bulk_ess(values[..., k]) for k in some]
    fine = sum(chain.work.fine for chain in found)
    return {
        "method": name,
        "chains": len(found),
        "quantities": len(some),
        "R-hat, share": round(split_r_hat(values[..., 0]), 3),
        "R-hat, median": round(float(np.median(r_hats)), 3),
        "R-hat, largest": round(max(r_hats), 3),
        "ESS, share": round(bulk_ess(values[..., 0])),
        "ESS, median": round(float(np.median(sizes))),
        "ESS, smallest": round(min(sizes)),
        "mean share": round(float(values[..., 0].mean()), 4),
        "error of it": round(mean_error(values[..., 0]), 4),
        "deviation of share": round(float(values[..., 0].std()), 4),
        "first stage": round(float(np.mean([chain.first_stage for chain in found])), 3),
        "accepted": round(float(np.mean([chain.accepted for chain in found])), 3),
        "step size": round(float(np.mean([chain.beta for chain in found])), 3),
        "fine solves": fine,
        "coarse solves": sum(chain.work.coarse for chain in found),
        "fine solves for a sample": round(fine / float(np.median(sizes))),
        "seconds": round(seconds, 1),
    }


def scalars(p: np.ndarray) -> dict[str, np.ndarray]:
    """Shares of the upper phase in the square, in its quarters and in 4 x 4 blocks."""
    means = {"square": p.mean(axis=(1, 2))[:, None]}
    for name, m in {"quarters": 2, "blocks": BLOCKS}.items():
        to = averages(p.shape[-1], m)
        means[name] = (to @ p @ to.T).reshape(len(p), -1)
    return means


def estimates(noise: float, samples: int) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Phases of samples of the stream, and the probabilities of their largest density."""
    grid = CellGrid(CELLS)
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 2 * CELLS)
    p = (field(grid, 0, range(KNOWN + samples)) >= 0).astype(np.float64)
    low, high = PHASES
    a = low + (high - low) * p
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    u = FiniteVolume(CellGrid(3 * CELLS))(fine)[:, 1::3, 1::3]
    setting = Setting(grid.x, a[:KNOWN], u[:KNOWN])
    method = PhaseInversion(phase_levels(setting, field, PHASES, 1.0))
    deviation = noise * setting.u.std(axis=0)
    xi = NormalStream(NOISE_SEED).normals_of(range(KNOWN, KNOWN + samples), CELLS**2)
    found, seconds = list[np.ndarray](), list[float]()
    for clean, one in zip(u[KNOWN:], xi.reshape(-1, CELLS, CELLS), strict=True):
        begun = time.process_time()
        found.append(method(clean + deviation * one, deviation).probability)
        seconds.append(time.process_time() - begun)
    return p[KNOWN:], np.stack(found), seconds


def covered(noise: float, calibration: int, tests: int, picture: Path | None) -> None:
    """Bands of 90 % by the first samples, on the others."""
    p, found, seconds = estimates(noise, calibration + tests)
    truths, means, spreads = scalars(p), scalars(found), scalars(found * (1 - found))
    print(json.dumps({
        "noise": noise, "calibration": calibration, "tests": tests,
        "ms a sample": round(1e3 * float(np.median(seconds)), 1),
        "misclassified": round(float(np.mean((found[calibration:] >= 0.5) != p[calibration:])), 4),
        "Brier score": round(brier(found[calibration:], p[calibration:]), 4),
        "Brier score of p >= 1/2": round(
            brier((found[calibration:] >= 0.5).astype(float), p[calibration:]), 4
        ),
        "reliability": reliability(found[calibration:], p[calibration:]).round(3).tolist(),
    }), flush=True)  # fmt: skip
    histograms = dict[str, np.ndarray]()
    for name, truth in truths.items():
        # the deviation of a mean of independent cells, up to a factor that q holds
        scale = np.sqrt(spreads[name]) + np.sqrt(spreads[name][:calibration].mean())
        scores = (truth - means[name]) / scale
        band = ConformalBand.of(np.abs(scores[:calibration]), LEVEL)
        low, high = band.interval(means[name][calibration:], scale[calibration:])
        held = (low <= truth[calibration:]) & (truth[calibration:] <= high)
        members = means[name][None, calibration:] + scale[None, calibration:] * scores[
            : calibration // 20 * 20 - 1, None
        ]  # fmt: skip
        uniform = np.random.default_rng(0).random(members.shape[1:])
        histograms[name] = rank_histogram(
            ranks(members, truth[calibration:], uniform), len(members), 20
        )
        error = np.abs(truth - means[name])[calibration:].mean()
        by_quantity = held.mean(axis=0)
        print(json.dumps({
            "noise": noise, "quantity": name, "intervals": int(held.size),
            "coverage": round(float(held.mean()), 4),
            "lowest and highest of a place": [
                round(float(by_quantity.min()), 3), round(float(by_quantity.max()), 3)
            ],
            "mean width": round(float((high - low).mean()), 4),
            "mean absolute error": round(float(error), 4),
            "CRPS": round(float(crps(members, truth[calibration:]).mean()), 4),
            "deviation of the truth": round(float(truth.std(axis=0).mean()), 4),
            "ranks": histograms[name].tolist(),
        }), flush=True)  # fmt: skip
    if picture:
        drawn(histograms, picture)


def drawn(histograms: dict[str, np.ndarray], path: Path) -> None:
    """The rank histograms beside each other."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(histograms), figsize=(9, 2.4), sharey=True)
    for ax, (name, counts) in zip(axes, histograms.items(), strict=True):
        ax.bar(np.arange(len(counts)), counts / counts.mean(), width=1.0, edgecolor="white")
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set(title=name, xlabel="rank of the truth", xticks=[])
    axes[0].set_ylabel("count / expected")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    first = commands.add_parser("chains")
    first.add_argument("--noise", type=float, default=0.2)
    first.add_argument("--samples", type=int, default=5)
    first.add_argument("--chains", type=int, default=4)
    first.add_argument("--steps", type=int, default=12_000)
    first.add_argument("--burn-in", type=int, default=4_000)
    second = commands.add_parser("coverage")
    second.add_argument("--noise", type=float, default=0.05)
    second.add_argument("--calibration", type=int, default=1000)
    second.add_argument("--samples", type=int, default=2000)
    second.add_argument("--picture", type=Path)
    o = parser.parse_args()
    if o.what == "chains":
        chains(o.noise, o.samples, o.chains, o.steps, o.burn_in)
    else:
        covered(o.noise, o.calibration, o.samples, o.picture)


if __name__ == "__main__":
    main()
