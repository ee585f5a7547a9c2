"""Delayed acceptance beside Metropolis and Hastings by the fine model alone, on some samples."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from benchmarks.posterior.calibration import central_interval, coverage
from benchmarks.posterior.cases import CHAIN_SEED, KNOWN, LEVEL, case, shares
from benchmarks.posterior.diagnostics import bulk_ess, mean_error, split_r_hat
from benchmarks.posterior.metropolis import Chain, Metropolis
from benchmarks.posterior.walk import PhaseWalk
from pdegen.inverse.phases import PhaseInversion
from pdegen.sampling.gaussian import NormalStream

SIZES = 11, 15  # cells of an axis of the flow: of the coarse model, and of the fine one
EVERY = 20  # steps from one that is kept to the next


def watched(p: np.ndarray) -> np.ndarray:
    """Share of the upper phase in the square and in its quarters, then in 7 x 7 blocks."""
    return np.concatenate([shares(p, m) for m in (1, 2, 7)])


def chains(noise: float, first: int, samples: int, count: int, steps: int, burn_in: int) -> None:
    """Both methods on some samples, with the same number of chains of the same length."""
    of = case(noise, first - KNOWN + samples, SIZES)
    for number in range(first - KNOWN, first - KNOWN + samples):
        data, truth = of.data[number], watched(of.phases[number])
        coarse, fine = of.potentials(number)
        largest = PhaseInversion(of.levels)(data, of.deviation).coefficients
        said, kept = {"sample": KNOWN + number, "noise": noise}, dict[str, np.ndarray]()
        for name, by in {"one model": None, "delayed acceptance": coarse}.items():
            method = Metropolis(
                fine.potential, by and by.predicted, fine.curvature, compiled=PhaseWalk(fine, by)
            )
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
            print(json.dumps(said | row | {
                "true share": round(float(truth[0]), 4),
                "intervals that hold": round(coverage(low, high, truth), 3),
            }), flush=True)  # fmt: skip
        z = agreement(*kept.values())
        print(json.dumps(said | {
            "quantities": len(z),
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
