"""Training steps of the published Galerkin Transformers against their matrix products alone."""

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

_TRACED = 3  # number of steps in a trace
_SHOWN = 8  # number of slowest operations that are listed


@dataclass(frozen=True)
class StepCase:
    """An experiment on another grid, with another batch.

    Args:
        experiment: Name of the experiment.
        points: Number of points along each axis.
        batch: Number of samples per step.
        overrides: Further overrides of the experiment.
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
    """Execution modes of a step by name; the first is the slowest."""
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
        cases: The trainings to measure.
        slope: Cases that differ in their number of points, for the growth of time.
        rounds: Number of interleaved rounds.
        only: Text in the names of the execution modes to measure; empty for all.
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
        """Figures of one case: time and memory of each execution mode, and of its lower bound."""
        experiment = case.load()
        _forget(device)
        chosen = {name: way for name, way in ways(device).items() if self.only in name}
        pairs = random_pairs(experiment, device)
        batch = pairs.all[: case.batch]
        jobs: dict[str, Callable[[], object]] = {}
        rows: dict[str, Any] = {}
        notes: dict[str, Step] = {}
        peaks: dict[str, int] = {}
        for name, way in chosen.items():
            taken = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
            # memory of a CUDA graph is not reported: measure the same kernels without a graph
            steps = Steps(experiment, pairs, replace(way, graphed=False))
            peaks[name] = steps.peak_bytes(batch) - taken
            steps.gradient.acceleration = way
            jobs[name] = lambda steps=steps: steps(batch)
            notes[name] = steps.gradient
            if way.precision in rows:
                continue
            # the products do not depend on the launches: record them as written
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
            for name, way in chosen.items()
        }
        return {
            **ours,
            "floors": rows,
            "share of a step": traced(jobs[list(chosen)[-1]], device, trace),
            "batch, MB": rounded(batch.nbytes / 1e6),
        }

    def growth(self, device: torch.device) -> dict[str, Any]:
        """Slope of log time over log points in the fastest execution mode."""
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
    """Time of an execution mode over its lower bounds."""
    figures = {"step, ms": milliseconds(seconds[name])}
    for kind, convolutions in (("matrix products", False), ("with convolutions", True)):
        if kind not in floors:
            continue
        floor = _floor(way, convolutions)
        figures |= {
            f"{kind} alone, ms": milliseconds(seconds[floor]),
            f"step / {kind}": ratio(seconds, name, floor),
            f"{kind} alone, GFLOP/s": rounded(floors[kind]["GFLOP"] / median(seconds[floor])),
        }
    return figures


def _forget(device: torch.device) -> None:
    """Free the memory of the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def traced(job: Callable[[], object], device: torch.device, file: Path | None) -> dict[str, float]:
    """Time shares of the slowest operations of a job; optionally writes a Chrome trace.

    Args:
        job: A step that has run before.
        device: Device whose time is measured.
        file: File for the trace of a few steps, or None.
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
