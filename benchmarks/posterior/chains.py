"""Delayed acceptance against Metropolis-Hastings with the fine model alone."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from benchmarks.posterior.cases import CHAIN_SEED, KNOWN, LEVEL, case, shares
from benchmarks.posterior.diagnostics import bulk_ess, mean_error, split_r_hat
from benchmarks.posterior.metropolis import Chain, Metropolis
from benchmarks.posterior.walk import PhaseWalk
from pdegen.inverse.calibration import central_interval, coverage
from pdegen.inverse.phases import PhaseInversion
from pdegen.sampling.gaussian import NormalStream

SIZES = 11, 15  # cells along an axis of the flow, of the coarse and of the fine model
EVERY = 20  # steps between stored states


def watched(p: np.ndarray) -> np.ndarray:
    """Share of the upper phase in the square and in its quarters, then in 7 x 7 blocks."""
    return np.concatenate([shares(p, m) for m in (1, 2, 7)])


def chains(noise: float, first: int, samples: int, count: int, steps: int, burn_in: int) -> None:
    """Print figures of both methods on some samples, with equally many chains of equal length."""
    problem = case(noise, first - KNOWN + samples, SIZES)
    for number in range(first - KNOWN, first - KNOWN + samples):
        data, truth = problem.data[number], watched(problem.phases[number])
        coarse, fine = problem.potentials(number)
        largest = PhaseInversion(problem.levels)(data, problem.std).coefficients
        sample, values = {"sample": KNOWN + number, "noise": noise}, dict[str, np.ndarray]()
        for name, by in {"one model": None, "delayed acceptance": coarse}.items():
            method = Metropolis(
                fine.potential, by and by.predicted, fine.curvature, compiled=PhaseWalk(fine, by)
            )
            begun, finished_chains = time.process_time(), list[Chain]()
            for chain in range(count):
                dispersed = NormalStream(CHAIN_SEED).normals_of([chain], largest.size)
                start = dispersed.reshape(largest.shape) if chain else largest
                finished_chains.append(method.run(
                    start, steps, burn_in, CHAIN_SEED, chain + count * number,
                    watch=lambda xi: watched(fine.phase(xi)), every=EVERY,  # noqa: B023
                ))  # fmt: skip
            values[name] = np.stack([chain.values for chain in finished_chains])
            row = summary(name, finished_chains, values[name], time.process_time() - begun)
            low, high = central_interval(values[name].reshape(-1, len(truth)), LEVEL)
            print(json.dumps(sample | row | {
                "true share": round(float(truth[0]), 4),
                "intervals that hold": round(coverage(low, high, truth), 3),
            }), flush=True)  # fmt: skip
        z = agreement(*values.values())
        print(json.dumps(sample | {
            "quantities": len(z),
            "rms of the differences of means over their errors": round(
                float(np.sqrt(np.mean(z**2))), 2
            ),
            "largest": round(float(np.abs(z).max()), 2),
        }), flush=True)  # fmt: skip


def moving(values: np.ndarray) -> np.ndarray:
    """Indices of the watched numbers that vary in every chain; others belong to a single phase."""
    return np.flatnonzero((values.std(axis=1) > 1e-3).all(axis=0))


def agreement(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Differences of means over their standard errors, of the numbers that vary in both."""
    both = np.intersect1d(moving(first), moving(second))
    return np.array([
        (first[..., k].mean() - second[..., k].mean())
        / np.hypot(mean_error(first[..., k]), mean_error(second[..., k]))
        for k in both
    ])  # fmt: skip


def summary(
    name: str, finished_chains: list[Chain], values: np.ndarray, seconds: float
) -> dict[str, Any]:
    """Mixing and cost of the chains of a method."""
    moved = moving(values)
    r_hats = [split_r_hat(values[..., k]) for k in moved]
    sizes = [bulk_ess(values[..., k]) for k in moved]
    fine = sum(chain.work.fine for chain in finished_chains)
    return {
        "method": name,
        "chains": len(finished_chains),
        "quantities": len(moved),
        "R-hat, share": round(split_r_hat(values[..., 0]), 3),
        "R-hat, median": round(float(np.median(r_hats)), 3),
        "R-hat, largest": round(max(r_hats), 3),
        "ESS, share": round(bulk_ess(values[..., 0])),
        "ESS, median": round(float(np.median(sizes))),
        "ESS, smallest": round(min(sizes)),
        "mean share": round(float(values[..., 0].mean()), 4),
        "error of it": round(mean_error(values[..., 0]), 4),
        "deviation of share": round(float(values[..., 0].std()), 4),
        "first stage": round(float(np.mean([chain.first_stage for chain in finished_chains])), 3),
        "accepted": round(float(np.mean([chain.accepted for chain in finished_chains])), 3),
        "step size": round(float(np.mean([chain.beta for chain in finished_chains])), 3),
        "fine solves": fine,
        "coarse solves": sum(chain.work.coarse for chain in finished_chains),
        "fine solves for a sample": round(fine / float(np.median(sizes))),
        "seconds": round(seconds, 1),
    }
