"""Draws by a flow against posterior chains: two-phase Darcy, 7 x 7 sensors, noise of 20 %.

An FNO is trained by the loss flow on samples of the law that `benchmarks.posterior` inverts, but on
other ones. Then its draws are compared with those of chains for the same samples: CRPS of the
shares of the upper phase in blocks, and the share of truths whose rank among the draws is in the
middle 90 %. Shares of the truth are those on the solver's 63 x 63 cells, and in a third line those
on the 21 x 21 cells of the draws. A training that was stopped goes on; a finished one is scored.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.posterior.cases import (
    BLOCKS,
    CHAIN_SEED,
    KNOWN,
    LEVEL,
    PHASES,
    Case,
    case,
    shares,
)
from benchmarks.posterior.metropolis import Metropolis
from benchmarks.posterior.walk import PhaseWalk
from operators.api import load_model
from operators.base import generator
from operators.data import Samples
from operators.posterior import FlowPosterior
from operators.registry import build_operator
from operators.symmetries import SquareSymmetries
from operators.training.checkpoint import CheckpointError
from operators.training.fit import Epoch, Settings, fit
from operators.training.losses import FlowMatching
from operators.transforms import Normalizer
from pdegen.domains import Box, CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.inverse.calibration import crps
from pdegen.inverse.classical import interpolation
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField

NOISE = 0.2  # deviation of the noise, relative to that of u at a sensor
CELLS, SENSORS = 21, 7  # along an axis: cells of a draw, and sensors
OWN = "flow, truth on its cells"
_FINE = 63  # cells along an axis of the solver that computes the data, as in `case`
_FIRST = 10**6  # number of the first training sample, beyond those of `case`
_VALIDATION = 200  # samples that choose the epoch
_COARSE = 11  # cells along an axis of the chains' flow
_STEPS, _BURN_IN, _EVERY = 8_000, 2_000, 20  # of the chains, as in `benchmarks.posterior`
_BLOCK = 100  # samples that are solved at a time


@dataclass(frozen=True)
class FreshNoise:
    """Adds noise of the deviation `std`, shape (*grid), anew in every epoch."""

    std: np.ndarray
    channels = 0
    fresh = True

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        random = generator(1, 0 if epoch is None else epoch + 1, samples[0])
        xi = torch.randn(a.shape, generator=random).numpy()
        return a + (self.std[..., None] * xi).astype(a.dtype)


def sampled(fine: np.ndarray) -> np.ndarray:
    """Values at the centres of the cells of a draw, of (batch, n, n) on the solver's cells."""
    every = _FINE // CELLS
    return fine[:, every // 2 :: every, every // 2 :: every]


def pairs(first: int, count: int, std: np.ndarray) -> Samples:
    """Noisy data of the sensors, and the coefficient at the centres of 21 x 21 cells."""
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 20)
    grid, (low, high) = CellGrid(_FINE), PHASES
    observed = interpolation(grid, CellGrid(SENSORS).x)
    solve, a, u = FiniteVolume(grid), list[np.ndarray](), list[np.ndarray]()
    for start in range(first, first + count, _BLOCK):
        numbers = range(start, min(start + _BLOCK, first + count))
        fine = np.where(field(grid, 0, numbers) >= 0, high, low)
        a.append(sampled(fine))
        u.append(observed @ solve(fine) @ observed.T)
    domain, cells = Box.cell(SENSORS, SENSORS), Box.cell(CELLS, CELLS)
    x, y = (torch.as_tensor(box.points.astype(np.float32)) for box in (domain, cells))
    data, truth = (torch.as_tensor(np.concatenate(v)[..., None]).float() for v in (u, a))
    return Samples.of(
        a=data, u=truth, samples=np.arange(first, first + count), x=x, y=y, domain=domain,
        target_domain=cells, source={"url": "benchmarks.flow_posterior"},
    ).with_noise(FreshNoise(std))  # fmt: skip


def trained(out: Path, o: argparse.Namespace) -> Path:
    """Train, or go on with the training in a folder, and return its best checkpoint."""
    begun, std = time.process_time(), case(NOISE, 0, ()).std
    training, validation = (
        pairs(_FIRST, o.samples, std),
        pairs(_FIRST + o.samples, _VALIDATION, std),
    )
    model = {"name": "fno", "width": o.width, "modes": o.modes, "depth": 4}
    described = {"model": model, "in_channels": 3, "out_channels": 1, "dim": 2}
    torch.manual_seed(0)
    input, target = Normalizer.of(training.a), Normalizer.of(training.u)
    flow = FlowPosterior(build_operator(described), input, target, torch.zeros(CELLS, CELLS, 1))
    flow.adapt(training)
    settings = Settings(
        FlowMatching(), o.epochs, 32, lr=2e-3, augment=SquareSymmetries(), average=0.999
    )

    def shown(epoch: Epoch) -> None:
        seconds = round(time.process_time() - begun)
        scores = {k: round(v, 4) for k, v in (("loss", epoch.loss), ("validation", epoch.score))}
        line = {"epoch": epoch.epoch, **scores, "processor seconds": seconds}
        print(json.dumps(line), flush=True)

    out.mkdir(parents=True, exist_ok=True)
    description = {"operator": described, "training": [o.samples, o.epochs]}
    resume = (out / "state.pt").exists()
    fit(flow, training, validation, settings, out, description, resume=resume, on_epoch=shown)
    return out / "best.safetensors"


def chain(problem: Case, number: int) -> np.ndarray:
    """Shares in the states of a chain for a sample, shape (states, blocks); the chain is that of
    `python -m benchmarks.posterior calibrated`."""
    phi, sample = problem.potentials(number)[-1], KNOWN + number
    zero = phi.level.prior.zero
    start = NormalStream(CHAIN_SEED).normals_of([sample], zero.size).reshape(zero.shape)

    def watched(xi: np.ndarray) -> np.ndarray:
        return np.concatenate([shares(phi.phase(xi), m) for m in BLOCKS.values()])

    method = Metropolis(phi.potential, None, phi.curvature, compiled=PhaseWalk(phi))
    return method.run(start, _STEPS, _BURN_IN, CHAIN_SEED, sample, watched, _EVERY).values


def scored(checkpoint: Path, samples: int, members: int) -> None:
    """Print a line for each size of blocks and each method."""
    problem, seconds = case(NOISE, samples, (_COARSE,)), dict[str, float]()
    numbers = [KNOWN + number for number in range(samples)]
    begun = time.process_time()
    data = problem.data.astype(np.float32)[..., None]
    draws = load_model(checkpoint).draw(data, members, 0, numbers)[..., 0]
    upper = (draws > sum(PHASES) / 2).astype(float)
    seconds["flow"] = (time.process_time() - begun) / samples
    begun = time.process_time()
    states = np.stack([chain(problem, number) for number in range(samples)], axis=1)
    seconds["chains"] = (time.process_time() - begun) / samples
    random, first = np.random.default_rng(0), 0
    for name, m in BLOCKS.items():
        own, fine = (shares(p, m) for p in (sampled(problem.phases), problem.phases))
        flow, of_chains = shares(upper, m), states[..., first : first + m * m]
        rows = {"chains": (of_chains, fine), "flow": (flow, fine), OWN: (flow, own)}
        first, reference = first + m * m, float(crps(of_chains, fine).mean())
        for method, (values, true) in rows.items():
            line: dict[str, Any] = {"share in": name, "method": method, "samples": samples}
            mean = float(crps(values, true).mean())
            line |= {"draws": len(values), "CRPS": round(mean, 4)}
            line["CRPS / chains"] = round(mean / reference, 2)
            below, equal = (values < true).sum(axis=0), (values == true).sum(axis=0)
            rank = (below + random.random(true.shape) * (equal + 1)) / (len(values) + 1)
            line["ranks in the middle"] = round(float(np.mean(abs(rank - 0.5) <= LEVEL / 2)), 3)
            line["seconds a sample"] = round(seconds[method.partition(",")[0]], 2)
            print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.flow_posterior", description=__doc__
    )
    parser.add_argument("--out", type=Path, default=Path("runs/flow-posterior"))
    parser.add_argument("--samples", type=int, default=16_000, help="to train on")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--modes", type=int, default=8)
    parser.add_argument("--tests", type=int, default=60, help="samples that are scored")
    parser.add_argument("--members", type=int, default=32, help="draws of each sample")
    o = parser.parse_args()
    try:
        checkpoint = trained(o.out, o)
    except CheckpointError as error:
        parser.error(str(error))
    scored(checkpoint, o.tests, o.members)


if __name__ == "__main__":
    main()
