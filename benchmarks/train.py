"""Training steps of the published Galerkin Transformers, against their matrix products alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.products import alone, counted, products_of
from benchmarks.timing import Say, Seconds, copy_speed, interleaved, milliseconds, ratio, rounded
from operators.training.step import AS_WRITTEN, Acceleration, Step
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.studies.cost import Steps, clock_of, random_pairs

_TRACED = 3  # steps of a trace
_SHOWN = 8  # operations that take most of a step


@dataclass(frozen=True)
class StepCase:
    """An experiment on another grid, with another batch.

    Args:
        experiment: Its name.
        points: Of each axis.
        batch: Samples in a step.
        overrides: Further ones.
    """

    experiment: str
    points: int
    batch: int
    overrides: tuple[tuple[str, Any], ...] = ()

    def load(self) -> Experiment:
        given = {"data.resolution": self.points, "training.batch": self.batch}
        return load_experiment(self.experiment).with_overrides({**given, **dict(self.overrides)})

    def __str__(self) -> str:
        further = "".join(f", {key.rpartition('.')[2]} {value}" for key, value in self.overrides)
        return f"{self.experiment}, {self.points} points, batch {self.batch}{further}"


BURGERS = tuple(
    StepCase("burgers-gt-8192", n, batch) for n, batch in ((512, 8), (2048, 4), (8192, 4))
)
DARCY = tuple(
    StepCase("darcy-gt-141-43", n, 4, (("model.latent", latent),))
    for n, latent in ((85, 29), (141, 43))
)
SLOPE = tuple(StepCase("burgers-gt-8192", n, 4) for n in (2048, 4096, 8192))


def ways(device: torch.device) -> dict[str, Acceleration]:
    """How steps are run, by what they are called; the first is the slowest."""
    if device.type == "cpu":
        return {"as written": AS_WRITTEN}
    return {
        "as written, float32": AS_WRITTEN,
        "as written, tf32": Acceleration("tf32"),
        **{
            f"compiled, one CUDA graph, {precision}": Acceleration.chosen(device, precision)
            for precision in ("tf32", "bf16")
        },
        "tuned, one CUDA graph, tf32": Acceleration.chosen(device, "tf32", "tuned"),
    }


@dataclass(frozen=True)
class TrainingFigures:
    """Figures of training steps.

    Args:
        cases: What is trained.
        slope: Cases that differ in their points, for the growth of time with them.
        rounds: In which all take turns.
        only: Words of the ways to run that are measured; all by default.
    """

    cases: tuple[StepCase, ...] = (*BURGERS, *DARCY)
    slope: tuple[StepCase, ...] = SLOPE
    rounds: int = 11
    only: str = ""

    def __call__(self, device: torch.device, say: Say, trace: Path | None = None) -> dict[str, Any]:
        torch.manual_seed(0)
        figures: dict[str, Any] = {"copy, GB/s": copy_speed(device)}
        for number, case in enumerate(self.cases):
            say(f"train: {case}")
            figures[str(case)] = self.measured(case, device, trace if number == 0 else None)
        if self.slope:
            say("train: growth with the points")
            figures["slope of log time over log points (at most 1.1)"] = self.growth(device)
        return figures

    def measured(self, case: StepCase, device: torch.device, trace: Path | None) -> dict[str, Any]:
        """Of one case: for every way, milliseconds and memory, and times of the floor."""
        experiment = case.load()
        _forget(device)
        known = {name: way for name, way in ways(device).items() if self.only in name}
        pairs = random_pairs(experiment, device)
        batch = pairs.all[: case.batch]
        jobs: dict[str, Callable[[], object]] = {}
        rows: dict[str, Any] = {}
        notes: dict[str, Step] = {}
        peaks: dict[str, int] = {}
        for name, way in known.items():
            taken = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
            # a graph keeps its memory where it is not seen: the same kernels come one by one first
            steps = Steps(experiment, pairs, replace(way, graphed=False))
            peaks[name] = steps.peak_bytes(batch) - taken
            steps.gradient.acceleration = way
            jobs[name] = lambda steps=steps: steps(batch)
            notes[name] = steps.gradient
            if way.precision in rows:
                continue
            # the same products, however they are launched: noted as written
            plain = Steps(experiment, pairs, replace(way, compiled=False, graphed=False))
            products = products_of(lambda plain=plain: plain(batch))
            floor = replace(way, compiled=False, graphed=device.type == "cuda")
            matrices = [p for p in products if not p.convolves]
            rows[way.precision] = {"matrix products": counted(matrices)}
            jobs[_floor(way)] = alone(matrices, device, floor)
            if len(products) > len(matrices):
                rows[way.precision]["with convolutions"] = counted(products)
                jobs[_floor(way, True)] = alone(products, device, floor)
        seconds = interleaved(jobs, self.rounds, clock=clock_of(device))
        ours = {
            name: {
                **_against(seconds, name, way, rows[way.precision]),
                "peak memory, kernel by kernel, MiB": rounded(peaks[name] / 2**20),
                **({"note": notes[name].note} if notes[name].note else {}),
            }
            for name, way in known.items()
        }
        return {
            **ours,
            "floors": rows,
            "share of a step": traced(jobs[list(known)[-1]], device, trace),
            "batch, MB": rounded(batch.nbytes / 1e6),
        }

    def growth(self, device: torch.device) -> dict[str, Any]:
        """Of the fastest way."""
        _forget(device)
        way, jobs = list(ways(device).values())[-1], {}
        for case in self.slope:
            experiment = case.load()
            pairs = random_pairs(experiment, device)
            steps = Steps(experiment, pairs, way)
            batch = pairs.all[: case.batch]
            jobs[str(case.points)] = lambda steps=steps, batch=batch: steps(batch)
        seconds = interleaved(jobs, self.rounds, clock=clock_of(device))
        points = np.log([case.points for case in self.slope])
        times = np.log([median(times) for times in seconds.values()])
        return {
            "points: ms": {n: milliseconds(times) for n, times in seconds.items()},
            "slope": rounded(float(np.polyfit(points, times, 1)[0])),
        }


def _floor(way: Acceleration, convolutions: bool = False) -> str:
    return f"products{' and convolutions' * convolutions} alone, {way.precision}"


def _against(
    seconds: Seconds, name: str, way: Acceleration, floors: dict[str, Any]
) -> dict[str, float]:
    """A way of running against its floors."""
    found = {"step, ms": milliseconds(seconds[name])}
    for kind, convolutions in (("matrix products", False), ("with convolutions", True)):
        if kind not in floors:
            continue
        floor = _floor(way, convolutions)
        found |= {
            f"{kind} alone, ms": milliseconds(seconds[floor]),
            f"step / {kind}": ratio(seconds, name, floor),
            f"{kind} alone, GFLOP/s": rounded(floors[kind]["GFLOP"] / median(seconds[floor])),
        }
    return found


def _forget(device: torch.device) -> None:
    """Give back memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def traced(job: Callable[[], object], device: torch.device, file: Path | None) -> dict[str, float]:
    """Shares of the operations that take most of a job, with a Chrome trace of a few jobs.

    Args:
        job: A step that ran before.
        device: Whose time it is.
        file: For the trace; None for none.
    """
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as trace:
        for _ in range(_TRACED):
            job()
        clock_of(device)()
    if file is not None:
        trace.export_chrome_trace(str(file))
    times = {
        event.key: event.self_device_time_total if cuda else event.self_cpu_time_total
        for event in trace.key_averages()
    }
    whole = sum(times.values()) or 1.0
    largest = sorted(times, key=lambda key: -times[key])[:_SHOWN]
    return {key: rounded(times[key] / whole) for key in largest}
