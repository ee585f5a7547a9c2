"""Speed of generation, reading and training against lower bounds measured in the same run.

python -m benchmarks train --quick

Each run adds a line of figures to a history, OUT/NAME.jsonl.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks import train
from benchmarks.generate import Generation
from benchmarks.history import RESULTS, append
from benchmarks.read import Reading
from benchmarks.stream import Streaming
from benchmarks.timing import Say
from benchmarks.train import TrainingFigures
from pdegen.recipe import load_recipe

# (device, printer of progress, file for a trace or None) -> figures
Measurement = Callable[[torch.device, Say, Path | None], dict[str, Any]]

FULL: Mapping[str, Callable[[], Measurement]] = {
    "generate": Generation,
    "train": TrainingFigures,
    "read": Reading,
    "stream": Streaming,
}
QUICK: Mapping[str, Callable[[], Measurement]] = {
    "generate": lambda: Generation(
        pipe=load_recipe("pipe-quick"),
        job=512,
        growing=(64, 128, 256),
        darcy_growing=(8, 16, 32),
        memory=(256, 1024),
        rounds=5,
    ),
    "train": lambda: TrainingFigures(
        cases=(*train.BURGERS[:2], train.DARCY[0]), slope=train.SLOPE, rounds=5
    ),
    "read": lambda: Reading(samples=512, shard=64, alone=50, rounds=3),
    "stream": lambda: Streaming(rounds=1),
}
ON_DEVICE: Mapping[str, Callable[[], Measurement]] = {
    "generate": lambda: Generation(
        burgers_samples=2048,
        darcy_samples=2048,
        pipe_samples=60,
        growing=(512, 1024, 2048),
        darcy_growing=(512, 1024, 2048),
        rounds=5,
    ),
}


def measurements(device: torch.device, quick: bool) -> Mapping[str, Callable[[], Measurement]]:
    """Measurements by name, with problem sizes that suit the device."""
    return QUICK if quick else FULL if device.type == "cpu" else {**FULL, **ON_DEVICE}


def lines(figures: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    """Figures as indented lines of text."""
    for key, value in figures.items():
        if isinstance(value, dict):
            yield f"{indent}{key}"
            yield from lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {value}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*FULL, "all"])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="small sizes: a few minutes")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the histories")
    parser.add_argument(
        "--profile", type=Path, help="file to write a Chrome trace of training steps to"
    )
    words = parser.parse_args()
    if words.profile is not None and words.name not in ("train", "all"):
        parser.error("--profile traces training steps: use it with train or all")
    if words.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here: use --device cpu")
    words.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(words.device)
    for name, make in measurements(device, words.quick).items():
        if words.name not in (name, "all"):
            continue
        figures = make()(device, say, words.profile if name == "train" else None)
        path = append(words.out, name, figures, device=device.type, quick=words.quick)
        print(f"{name} ({path})", *lines(figures), sep="\n", flush=True)


if __name__ == "__main__":
    main()
