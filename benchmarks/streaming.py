"""Training on samples that are solved meanwhile: what of a step is spent waiting for them.

python -m benchmarks.streaming [--device cuda]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import closing

import torch
from torch import Tensor, nn

from benchmarks.timing import write_result
from pipelines.experiment import load_experiment
from pipelines.run import checked_operator
from pipelines.stream import SolvedPairs, solved_pairs

ROUNDS = 3
CASES = (  # experiment, recipe of the stream, batch, steps
    ("burgers-gt-512", "burgers-r10", 8, 40),
    ("burgers-gt-2048", "burgers-r10", 4, 20),
    ("darcy-gt-85-29", "darcy-85", 4, 12),
)


def training(
    pairs: SolvedPairs, batch: int, step: Callable[[Tensor, Tensor], None]
) -> tuple[float, float]:
    """Seconds of the steps of an epoch, and those of them that were spent waiting for samples."""
    waited, start = 0.0, time.perf_counter()
    with closing(pairs.batches(0, 0, batch)) as batches:
        while True:
            asked = time.perf_counter()
            samples = next(batches, None)
            waited += time.perf_counter() - asked
            if samples is None:
                return _now(pairs.device) - start, waited
            step(*samples)
            _now(pairs.device)


def solving(pairs: SolvedPairs, batch: int) -> float:
    """Seconds of another epoch without training, by the same threads."""
    start = time.perf_counter()
    with closing(pairs.batches(0, 1, batch)) as batches:
        for _ in batches:
            pass
    return _now(pairs.device) - start


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def measured(name: str, recipe: str, batch: int, steps: int, device: torch.device) -> dict:
    """Figures of one experiment."""
    experiment = load_experiment(name).with_overrides(
        {"data.stream.recipe": recipe, "training.batch": batch}
    )
    pairs = solved_pairs(experiment, steps * batch, device)
    model = checked_operator(experiment, pairs).train()
    loss, optimizer = experiment.training.loss.build(), torch.optim.Adam(model.parameters(), 1e-4)

    def step(a: Tensor, u: Tensor) -> None:
        optimizer.zero_grad()
        loss(model(a, pairs.x, pairs.y), u, a).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.999)
        optimizer.step()

    training(pairs, batch, step)  # the first calls prepare what later ones have
    rounds = sorted(
        (training(pairs, batch, step) for _ in range(ROUNDS)), key=lambda r: r[1] / r[0]
    )
    whole, waited = rounds[ROUNDS // 2]
    alone = solving(pairs, batch)
    return {
        "waited / whole": round(waited / whole, 4),
        "step, seconds": round(whole / steps, 4),
        "solving alone, seconds a step": round(alone / steps, 4),
        "solving threads": pairs.threads,
        "threads of PyTorch": torch.get_num_threads(),
        "batch": batch,
        "device": device.type,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    torch.manual_seed(0)
    figures = {
        f"{name}, stream of {recipe}": measured(name, recipe, batch, steps, device)
        for name, recipe, batch, steps in CASES
    }
    write_result("streaming" if device.type == "cpu" else f"streaming-{device.type}", figures)


if __name__ == "__main__":
    main()
