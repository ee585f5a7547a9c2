"""Training on samples that are solved meanwhile: the share of a step spent waiting for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks.timing import Say, rounded
from operators.data import Batch, Samples
from operators.training.step import Acceleration
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.runs.data import solved_pairs
from pipelines.studies.cost import Clock, Steps, clock_of


@dataclass(frozen=True)
class StreamCase:
    """An experiment on a stream.

    Args:
        experiment, recipe: Names of the experiment and of the recipe.
        batch, steps: Number of samples per step, and of steps per round.
        overrides: Overrides of the experiment.
    """

    experiment: str
    recipe: str
    batch: int
    steps: int
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Experiment:
        given = {"data.stream.recipe": self.recipe, "training.batch": self.batch}
        return load_experiment(self.experiment).with_overrides({**given, **self.overrides})

    def __str__(self) -> str:
        return f"{self.experiment}, stream of {self.recipe}, batch {self.batch}"


@dataclass(frozen=True)
class Streaming:
    """Figures of training on streams.

    Args:
        cases: The trainings to measure.
        rounds: Number of rounds; figures are of the median round.
    """

    cases: tuple[StreamCase, ...] = (
        StreamCase("burgers-gt-512", "burgers-r10", 8, 40),
        StreamCase("burgers-gt-2048", "burgers-r10", 4, 20),
        StreamCase("darcy-gt-85-29", "darcy-85", 4, 12),
    )
    rounds: int = 3

    def __call__(self, device: torch.device, say: Say, trace: Path | None = None) -> dict[str, Any]:
        torch.manual_seed(0)
        figures = {}
        for case in self.cases:
            say(f"stream: {case}")
            figures[str(case)] = self.measured(case, device)
        return figures

    def measured(self, case: StreamCase, device: torch.device) -> dict[str, Any]:
        """Figures of one case."""
        experiment, clock = case.load(), clock_of(device)
        pairs = solved_pairs(experiment, case.steps * case.batch, device)
        steps = Steps(experiment, pairs, Acceleration.chosen(device))
        _training(pairs, steps, case.batch, clock)  # warm-up
        with closing(pairs.batches(0, 0, case.batch)) as batches:
            loaded = list(batches)
        rounds = [
            (*_training(pairs, steps, case.batch, clock), _stepping(loaded, steps, clock))
            for _ in range(self.rounds)
        ]
        whole, waited, _ = sorted(rounds, key=lambda times: times[1] / times[0])[self.rounds // 2]
        return {
            "waited / whole": rounded(waited / whole),
            "epoch / its steps alone": rounded(median(times[0] / times[2] for times in rounds)),
            "step, ms": rounded(1e3 * whole / case.steps),
            "solving alone, ms a step": rounded(
                1e3 * _solving(pairs, case.batch, clock) / case.steps
            ),
            "solving threads": pairs.reader.threads,
        }


def _training(pairs: Samples, steps: Steps, batch: int, clock: Clock) -> tuple[float, float]:
    """Seconds of an epoch, and the seconds in which the host waited for samples."""
    waited, start = 0.0, clock()
    with closing(pairs.batches(0, 0, batch)) as batches:
        while True:
            begun = perf_counter()  # no synchronisation: the device may still be working
            samples = next(batches, None)
            waited += perf_counter() - begun
            if samples is None:
                return clock() - start, waited
            steps(samples)


def _stepping(batches: Sequence[Batch], steps: Steps, clock: Clock) -> float:
    """Seconds of the same steps on samples in memory."""
    start = clock()
    for samples in batches:
        steps(samples)
    return clock() - start


def _solving(pairs: Samples, batch: int, clock: Clock) -> float:
    """Seconds of the same epoch without training."""
    start = clock()
    with closing(pairs.batches(0, 1, batch)) as batches:
        for _ in batches:
            pass
    return clock() - start
