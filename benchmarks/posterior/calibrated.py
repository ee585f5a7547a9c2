"""Simulation-based calibration: one chain for each of many samples with truths from the prior.

The truth is then a sample of its own posterior. If the chain samples the posterior and the data
follow the model, the rank of the truth among samples of the chain is uniform, and the truth is in
their central 90 % with probability 90 %.

References: S. Talts et al., Validating Bayesian inference algorithms with simulation-based
calibration, arXiv:1804.06788 (2018).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.posterior.cases import BLOCKS, CHAIN_SEED, KNOWN, LEVEL, Case, case, shares
from benchmarks.posterior.diagnostics import bulk_ess
from benchmarks.posterior.metropolis import Chain, Metropolis
from benchmarks.posterior.walk import PhaseWalk
from pdegen.inverse.calibration import central_interval, crps, rank_histogram, ranks
from pdegen.sampling.gaussian import NormalStream

EVERY = 20  # steps between stored states
THINNED = 19  # number of distant draws among which the truth is ranked
_STILL = 1e-3  # deviation below which a share counts as constant


def calibrated(
    settings: dict[str, Any], samples: int, lines: Path, picture: Path | None
) -> None:  # fmt: skip
    """Run one chain per sample, append its results to a file of lines, and print summaries.

    A later run continues with the samples that the file lacks.

    Raises:
        ValueError: If the file has lines of other settings.
    """
    rows = read(lines, settings)
    missing = [number for number in range(samples) if KNOWN + number not in rows]
    if missing:
        problem = case(settings["noise"], samples, (settings["cells"],), settings["own data"])
        with lines.open("a") as file:
            if not rows and not lines.stat().st_size:
                print(json.dumps(settings), file=file, flush=True)
            for number in missing:
                row = judged(problem, number, settings["steps"], settings["burn-in"])
                rows[row["sample"]] = row
                print(json.dumps(row), file=file, flush=True)
    of_samples = [rows[KNOWN + number] for number in range(samples)]
    histograms = dict[str, np.ndarray]()
    for name in BLOCKS:
        summary, histograms[name] = summed(of_samples, name)
        print(json.dumps(settings | summary), flush=True)
    if picture:
        drawn(histograms, picture)


def read(lines: Path, settings: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The line of each sample in the file, by number."""
    if not lines.exists():
        return {}
    first, *others = [json.loads(line) for line in lines.read_text().splitlines()] or [settings]
    if first != settings:
        raise ValueError(f"{lines} has settings {first}, expected {settings}")
    return {row["sample"]: row for row in others}


def chain_of(problem: Case, number: int, steps: int, burn_in: int) -> Chain:
    """A chain that starts from the prior; its values are the shares in blocks of all sizes."""
    sample, phi = KNOWN + number, problem.potentials(number)[-1]
    zero = phi.level.prior.zero
    start = NormalStream(CHAIN_SEED).normals_of([sample], zero.size).reshape(zero.shape)
    return Metropolis(phi.potential, None, phi.curvature, compiled=PhaseWalk(phi)).run(
        start, steps, burn_in, CHAIN_SEED, sample, lambda xi: watched(phi.phase(xi)), EVERY
    )


def judged(problem: Case, number: int, steps: int, burn_in: int) -> dict[str, Any]:
    """Ranks, intervals and scores of the truth by its chain."""
    begun, sample = time.process_time(), KNOWN + number
    chain = chain_of(problem, number, steps, burn_in)
    row = {
        "sample": sample,
        "seconds": round(time.process_time() - begun, 2),
        "accepted": round(chain.accepted, 3),
    }
    uniform = np.random.default_rng(sample).random(sum(m * m for m in BLOCKS.values()))
    truth, first = watched(problem.phases[number]), 0
    for name, m in BLOCKS.items():
        of_name = np.s_[..., first : first + m * m]
        row[name] = quantities(chain.values[of_name], truth[of_name], uniform[of_name])
        first += m * m
    return row


def watched(p: np.ndarray) -> np.ndarray:
    """Shares of the upper phase in blocks of all sizes."""
    return np.concatenate([shares(p, m) for m in BLOCKS.values()])


def quantities(values: np.ndarray, truth: np.ndarray, uniform: np.ndarray) -> dict[str, list[Any]]:
    """Ranks, intervals and scores of the shares that vary in the chain."""
    moving = values.std(axis=0) > _STILL
    values, truth, uniform = values[:, moving], truth[moving], uniform[moving]
    low, high = central_interval(values, LEVEL)
    members = values[np.linspace(0, len(values) - 1, THINNED).round().astype(int)]
    below, equal = (values < truth).sum(axis=0), (values == truth).sum(axis=0)
    rank = (below + uniform * (equal + 1)) / (len(values) + 1)
    return {
        "held": ((low <= truth) & (truth <= high)).astype(int).tolist(),
        # ties are broken at random: a share may be 0 or 1 with positive probability
        "in the middle": (np.abs(rank - 0.5) <= LEVEL / 2).astype(int).tolist(),
        "rank": ranks(members, truth, uniform).tolist(),
        "width": (high - low).round(5).tolist(),
        "error": np.abs(values.mean(axis=0) - truth).round(5).tolist(),
        "crps": crps(values, truth).round(5).tolist(),
        "ess": [round(bulk_ess(draws[None]), 1) for draws in values.T],
    }


def summed(rows: list[dict[str, Any]], name: str) -> tuple[dict[str, Any], np.ndarray]:
    """Summary over all samples for blocks of one size, and the rank histogram."""
    every = {key: np.concatenate([row[name][key] for row in rows]) for key in rows[0][name]}
    histogram = rank_histogram(every["rank"].astype(int), THINNED, THINNED + 1)
    summary = {"samples": len(rows), "share in": name, "intervals": len(every["held"])}
    for key in ("held", "in the middle"):
        mean = every[key].mean()
        # intervals of one sample are dependent, samples are independent
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


def drawn(histograms: dict[str, np.ndarray], path: Path) -> None:
    """Draw rank histograms side by side, relative to the expected counts."""
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
