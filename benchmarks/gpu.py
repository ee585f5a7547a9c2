"""Measure one figure of `benchmarks/gpu.sh` and append it to OUT/gpu.jsonl.

python -m benchmarks.gpu NAME --device cuda --out OUT [--quick]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.__main__ import ON_DEVICE, QUICK
from benchmarks.generate import Generation
from benchmarks.history import append
from benchmarks.stream import Streaming
from benchmarks.timing import copy_speed
from benchmarks.train import BURGERS, DARCY, SLOPE, StepCase, TrainingFigures

STEPS = {
    "burgers-8192": BURGERS[2], "burgers-512": BURGERS[0], "darcy-141-43": DARCY[1],
    "burgers-2048": BURGERS[1], "darcy-85-29": DARCY[0],
}  # fmt: skip
Measure = Callable[[torch.device], Any]


def say(text: str) -> None:
    print(text, flush=True)


def steps(case: StepCase, only: str, quick: bool) -> Measure:
    bench = TrainingFigures((case,), (), rounds=3 if quick else 11, only=only)
    return lambda device: bench(device, say)


def generation(quick: bool) -> dict[str, Measure]:
    """The parts of `Generation`, each as a measurement."""
    bench = (QUICK if quick else ON_DEVICE)["generate"]()
    assert isinstance(bench, Generation)

    def on(device: torch.device) -> str | None:
        return None if device.type == "cpu" else str(device)

    return {
        "generate/burgers": lambda device: bench.burgers_alone(on(device)),
        "generate/darcy": lambda device: bench.darcy_alone(on(device)),
        "generate/pipe": lambda device: bench.pipe_alone(on(device)),
        "generate/burgers-job": lambda device: bench.whole(
            bench.burgers, bench.job, on(device), bench.rounds
        ),
        "generate/darcy-job": lambda device: bench.whole(
            bench.darcy.with_overrides({"samples": 4, "shard": 4}) if quick else bench.darcy,
            4 if quick else bench.job, on(device), 1,
        ),
        "generate/growth": lambda device: bench.growth(on(device)),
    }  # fmt: skip


def streams(quick: bool) -> dict[str, Measure]:
    def measure(case: Any) -> Measure:
        return lambda device: Streaming((case,), 1 if quick else 3)(device, say)

    return {f"streams/{case.experiment}": measure(case) for case in Streaming().cases}


def growth(device: torch.device) -> Any:
    return TrainingFigures((), SLOPE).growth(device)


def device_versions(device: torch.device) -> dict[str, Any]:
    """Versions of CUDA and cuDNN, and properties of the device with its copy speed."""
    versions: dict[str, Any] = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        versions |= {
            "capability": f"{properties.major}.{properties.minor}",
            "GB": round(properties.total_memory / 1e9, 1),
            "multiprocessors": properties.multi_processor_count,
            "copied GB/s": copy_speed(device),
        }
    return versions


def measures(quick: bool) -> Mapping[str, Measure]:
    """All measurements by name. On a CPU, steps run only as written."""
    return {
        "versions": device_versions,
        **{f"steps/{name}": steps(case, "compiled", quick) for name, case in STEPS.items()},
        **{f"written/{name}": steps(case, "as written", quick) for name, case in STEPS.items()},
        "written/growth": growth,
        **generation(quick),
        **streams(quick),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=measures(True), metavar="NAME")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    figures = measures(options.quick)[options.name](torch.device(options.device))
    say(json.dumps({options.name: figures}))
    append(options.out, "gpu", {options.name: figures}, device=options.device, quick=options.quick)


if __name__ == "__main__":
    main()
