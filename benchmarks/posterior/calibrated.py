"""Simulation-based calibration: a chain for each of many samples whose truth is from the prior.

The truth is then a sample of its own posterior: its rank among samples of a chain is uniform, and
it is in the central 90 % of them with 90 %, if the chain samples what it says and the law of the
data is that of the model.

References: S. Talts et al., Validating Bayesian inference algorithms with simulation-based
calibration, arXiv:1804.06788 (2018).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.posterior.calibration import central_interval, crps, rank_histogram, ranks
from benchmarks.posterior.cases import BLOCKS, CHAIN_SEED, KNOWN, LEVEL, Case, case, shares
from benchmarks.posterior.diagnostics import bulk_ess
from benchmarks.posterior.drawing import drawn
from benchmarks.posterior.metropolis import Metropolis
from benchmarks.posterior.walk import PhaseWalk
from pdegen.sampling.gaussian import NormalStream

EVERY = 20  # steps from one that is kept to the next
THINNED = 19  # draws among which the truth has its rank, far from each other
_STILL = 1e-3  # deviation below which a share does not move


def calibrated(
    settings: dict[str, Any], samples: int, lines: Path, picture: Path | None
) -> None:  # fmt: skip
    """A line for each sample, to a file that a second run goes on with; then what they say.

    Raises:
        ValueError: If the file has lines of other settings.
    """
    rows = read(lines, settings)
    missing = [number for number in range(samples) if KNOWN + number not in rows]
    if missing:
        of = case(settings["noise"], samples, (settings["cells"],), settings["own data"])
        with lines.open("a") as file:
            if not rows and not lines.stat().st_size:
                print(json.dumps(settings), file=file, flush=True)
            for number in missing:
                row = judged(of, number, settings["steps"], settings["burn-in"])
                rows[row["sample"]] = row
                print(json.dumps(row), file=file, flush=True)
    kept = [rows[KNOWN + number] for number in range(samples)]
    histograms = dict[str, np.ndarray]()
    for name in BLOCKS:
        summary, histograms[name] = summed(kept, name)
        print(json.dumps(settings | summary), flush=True)
    if picture:
        drawn(histograms, picture)


def read(lines: Path, settings: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Of each sample in the file its line."""
    if not lines.exists():
        return {}
    first, *others = [json.loads(line) for line in lines.read_text().splitlines()] or [settings]
    if first != settings:
        raise ValueError(f"{lines} has lines of {first}, asked for are {settings}")
    return {row["sample"]: row for row in others}


def judged(of: Case, number: int, steps: int, burn_in: int) -> dict[str, Any]:
    """A chain that starts from the prior, and what it says of the truth."""
    begun, sample = time.process_time(), KNOWN + number
    phi = of.potentials(number)[-1]
    zero = phi.level.prior.zero
    start = NormalStream(CHAIN_SEED).normals_of([sample], zero.size).reshape(zero.shape)
    chain = Metropolis(phi.potential, None, phi.curvature, compiled=PhaseWalk(phi)).run(
        start, steps, burn_in, CHAIN_SEED, sample, lambda xi: watched(phi.phase(xi)), EVERY
    )
    row = {
        "sample": sample,
        "seconds": round(time.process_time() - begun, 2),
        "accepted": round(chain.accepted, 3),
    }
    uniform = np.random.default_rng(sample).random(sum(m * m for m in BLOCKS.values()))
    truth, first = watched(of.phases[number]), 0
    for name, m in BLOCKS.items():
        of_name = np.s_[..., first : first + m * m]
        row[name] = quantities(chain.values[of_name], truth[of_name], uniform[of_name])
        first += m * m
    return row


def watched(p: np.ndarray) -> np.ndarray:
    """The shares."""
    return np.concatenate([shares(p, m) for m in BLOCKS.values()])


def quantities(values: np.ndarray, truth: np.ndarray, uniform: np.ndarray) -> dict[str, list[Any]]:
    """Of those that move in the chain."""
    moving = values.std(axis=0) > _STILL
    values, truth, uniform = values[:, moving], truth[moving], uniform[moving]
    low, high = central_interval(values, LEVEL)
    members = values[np.linspace(0, len(values) - 1, THINNED).round().astype(int)]
    below, equal = (values < truth).sum(axis=0), (values == truth).sum(axis=0)
    place = (below + uniform * (equal + 1)) / (len(values) + 1)
    return {
        "held": ((low <= truth) & (truth <= high)).astype(int).tolist(),
        # ties by chance: also where a share is 0 or 1 with some probability
        "in the middle": (np.abs(place - 0.5) <= LEVEL / 2).astype(int).tolist(),
        "rank": ranks(members, truth, uniform).tolist(),
        "width": (high - low).round(5).tolist(),
        "error": np.abs(values.mean(axis=0) - truth).round(5).tolist(),
        "crps": crps(values, truth).round(5).tolist(),
        "ess": [round(bulk_ess(one[None]), 1) for one in values.T],
    }


def summed(rows: list[dict[str, Any]], name: str) -> tuple[dict[str, Any], np.ndarray]:
    """What all samples say of the shares of one size."""
    every = {key: np.concatenate([row[name][key] for row in rows]) for key in rows[0][name]}
    histogram = rank_histogram(every["rank"].astype(int), THINNED, THINNED + 1)
    summary = {"samples": len(rows), "share in": name, "intervals": len(every["held"])}
    for key in ("held", "in the middle"):
        mean = every[key].mean()
        # intervals of one sample depend on each other, samples do not
        off = np.array([np.sum(np.array(row[name][key]) - mean) for row in rows])
        summary |= {
            key: round(float(mean), 4),
            f"error of {key}": round(float(np.sqrt(np.sum(off**2)) / len(every[key])), 4),
        }
    return summary | {
        "mean width": round(float(every["width"].mean()), 4),
        "mean error": round(float(every["error"].mean()), 4),
        "CRPS": round(float(every["crps"].mean()), 4),
        "ESS, median": round(float(np.median(every["ess"]))),
        "ESS, lowest tenth": round(float(np.quantile(every["ess"], 0.1))),
        "ranks": histogram.tolist(),
        "seconds": round(sum(row["seconds"] for row in rows)),
    }, histogram
