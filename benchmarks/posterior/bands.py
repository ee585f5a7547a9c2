"""Conformal bands around the largest posterior density, and how often they hold the truth."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from benchmarks.posterior.calibration import ConformalBand, crps, rank_histogram, ranks
from benchmarks.posterior.cases import BLOCKS, KNOWN, LEVEL, NOISE_SEED, PHASES, shares
from benchmarks.posterior.drawing import drawn
from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import grid_models
from pdegen.inverse.calibration import brier, reliability
from pdegen.inverse.classical import InverseProblem
from pdegen.inverse.phases import PhaseInversion
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField

_CELLS = 21  # of an axis, of the phases and of the data


def scalars(p: np.ndarray) -> dict[str, np.ndarray]:
    """Shares of the upper phase, by the size of the blocks."""
    return {name: shares(p, m) for name, m in BLOCKS.items()}


def estimates(noise: float, samples: int) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Phases of samples of the stream, and the probabilities of their largest density."""
    grid = CellGrid(_CELLS)
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 2 * _CELLS)
    p = (field(grid, 0, range(KNOWN + samples)) >= 0).astype(np.float64)
    low, high = PHASES
    a = low + (high - low) * p
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    u = FiniteVolume(CellGrid(3 * _CELLS))(fine)[:, 1::3, 1::3]
    setting = InverseProblem(grid.x, a[:KNOWN], u[:KNOWN])
    method = PhaseInversion(grid_models(setting, field, PHASES, 1.0))
    deviation = noise * setting.u.std(axis=0)
    xi = NormalStream(NOISE_SEED).normals_of(range(KNOWN, KNOWN + samples), _CELLS**2)
    found, seconds = list[np.ndarray](), list[float]()
    for clean, one in zip(u[KNOWN:], xi.reshape(-1, _CELLS, _CELLS), strict=True):
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
