"""Conformal bands around the maximum a posteriori estimate, and their coverage."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from benchmarks.posterior.cases import BLOCKS, KNOWN, LEVEL, NOISE_SEED, PHASES, shares
from benchmarks.posterior.drawing import drawn
from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import grid_models
from pdegen.inverse.calibration import (
    ConformalBand,
    brier,
    crps,
    rank_histogram,
    ranks,
    reliability,
)
from pdegen.inverse.classical import InverseProblem
from pdegen.inverse.phases import PhaseInversion
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField

_CELLS = 21  # cells along each axis, of the phases and of the data


def scalars(p: np.ndarray) -> dict[str, np.ndarray]:
    """Shares of the upper phase in blocks, by the size of the blocks."""
    return {name: shares(p, m) for name, m in BLOCKS.items()}


def estimates(noise: float, samples: int) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """True phases, probabilities of the upper phase by the estimate, and seconds per sample."""
    grid = CellGrid(_CELLS)
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 2 * _CELLS)
    p = (field(grid, 0, range(KNOWN + samples)) >= 0).astype(np.float64)
    low, high = PHASES
    a = low + (high - low) * p
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    u = FiniteVolume(CellGrid(3 * _CELLS))(fine)[:, 1::3, 1::3]
    setting = InverseProblem(grid.x, a[:KNOWN], u[:KNOWN])
    method = PhaseInversion(grid_models(setting, field, PHASES, 1.0))
    std = noise * setting.u.std(axis=0)
    xi = NormalStream(NOISE_SEED).normals_of(range(KNOWN, KNOWN + samples), _CELLS**2)
    probabilities, seconds = list[np.ndarray](), list[float]()
    for clean, noise_of_sample in zip(u[KNOWN:], xi.reshape(-1, _CELLS, _CELLS), strict=True):
        begun = time.process_time()
        probabilities.append(method(clean + std * noise_of_sample, std).probability)
        seconds.append(time.process_time() - begun)
    return p[KNOWN:], np.stack(probabilities), seconds


def covered(noise: float, calibration: int, tests: int, picture: Path | None) -> None:
    """Print the coverage of 90 % bands: calibrated on the first samples, tested on the others."""
    p, probabilities, seconds = estimates(noise, calibration + tests)
    truths, means, spreads = (
        scalars(p),
        scalars(probabilities),
        scalars(probabilities * (1 - probabilities)),
    )
    print(json.dumps({
        "noise": noise, "calibration": calibration, "tests": tests,
        "ms a sample": round(1e3 * float(np.median(seconds)), 1),
        "misclassified": round(
            float(np.mean((probabilities[calibration:] >= 0.5) != p[calibration:])), 4
        ),
        "Brier score": round(brier(probabilities[calibration:], p[calibration:]), 4),
        "Brier score of p >= 1/2": round(
            brier((probabilities[calibration:] >= 0.5).astype(float), p[calibration:]), 4
        ),
        "reliability": reliability(probabilities[calibration:], p[calibration:]).round(3).tolist(),
    }), flush=True)  # fmt: skip
    histograms = dict[str, np.ndarray]()
    for name, truth in truths.items():
        # deviation of a mean of independent cells, up to a factor that the quantile q absorbs
        scale = np.sqrt(spreads[name]) + np.sqrt(spreads[name][:calibration].mean())
        scores = (truth - means[name]) / scale
        band = ConformalBand.of(np.abs(scores[:calibration]), LEVEL)
        low, high = band.interval(means[name][calibration:], scale[calibration:])
        covers = (low <= truth[calibration:]) & (truth[calibration:] <= high)
        members = means[name][None, calibration:] + scale[None, calibration:] * scores[
            : calibration // 20 * 20 - 1, None
        ]  # fmt: skip
        uniform = np.random.default_rng(0).random(members.shape[1:])
        histograms[name] = rank_histogram(
            ranks(members, truth[calibration:], uniform), len(members), 20
        )
        error = np.abs(truth - means[name])[calibration:].mean()
        by_quantity = covers.mean(axis=0)
        print(json.dumps({
            "noise": noise, "quantity": name, "intervals": int(covers.size),
            "coverage": round(float(covers.mean()), 4),
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
