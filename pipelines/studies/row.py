"""The record of the result of one part of a study. All studies use the same record."""

from collections.abc import Iterable, Sequence
from math import isfinite
from statistics import mean, stdev
from typing import Any

from pydantic import BaseModel

from operators.norms import over_defined
from pipelines.studies.budget import Ended
from pipelines.studies.cost import Cost

NO_MEMORY = "not enough memory"


class Row(BaseModel):
    """Errors and costs of a method on the test samples, for one seed if the method is trained.

    Args:
        made_from: Hash of everything that the row is computed from.
        dataset, operator, protocol, seed: Identify the training. The protocol is empty unless the
            benchmark has several.
        chosen: Settings that the search or the budget chose.
        ended: Why the budget did not double the epochs again; see `pipelines.studies.budget`.
        best, best_epoch: Mean error and number of the epoch with the smallest test error. They are
            None and 0 unless the protocol evaluates the test samples after each epoch.
        errors: Error of each test sample on the training grid, in the measure of the dataset (by
            default the relative L² error). It is NaN where it is undefined, for example because the
            target is 0; means omit NaN.
        scores: Other scores of each test sample, keyed by measure
            (`pipelines.studies.noise_measures`).
        means: Mean error, keyed by resolution, on the grids on which the operator can be evaluated.
        measures: Means over the test samples of other error measures, keyed by measure.
        refused: Reason why the operator cannot be evaluated on a grid, keyed by resolution.
        weight: Regularisation weight of a classical inversion; None for other methods.
        weight_samples, weight_at_end, weight_unconverged: How the weight was chosen; see
            `pipelines.studies.inversions.ChosenWeight`.
        converged: Number of test samples on which the iteration of a classical inversion ended by
            its criterion, of as many as have an error; None for other methods.
        iterations: Mean number of steps of a classical inversion per sample.
        solves: Mean number of systems of equations that a classical inversion solves per sample.
        solve_seconds: Processor time of the recipe's solver per sample.
        training_seconds: Time of the training, including evaluations on the selection samples.
        tuning_seconds: Total time that the search spent on trainings whose settings it did not
            choose.
        inference_seconds: Time per test sample of a prediction in a batch, with no other load. For
            a classical inversion it is the processor time per sample, with samples inverted one
            after another. In tables with classical inversions, the times of models are also
            processor times (wall times on a GPU).
        step_seconds, step_bytes, step_flops: See `pipelines.studies.cost.Cost`.
        step_held_bytes: Memory that the process holds during a training step
            (`pipelines.studies.cost.held_bytes`). Only profiles measure it.
        failed: Reason why the training failed; empty if it did not.
    """

    made_from: str = ""
    dataset: str = ""
    operator: str = ""
    protocol: str = ""
    seed: int = 0
    chosen: dict[str, Any] = {}
    ended: Ended = ""
    parameters: int = 0
    epoch: int = 0
    best: float | None = None
    best_epoch: int = 0
    errors: list[float] = []
    scores: dict[str, list[float]] = {}
    means: dict[int, float] = {}
    measures: dict[str, float] = {}
    refused: dict[int, str] = {}
    weight: float | None = None
    weight_samples: int = 0
    weight_at_end: bool = False
    weight_unconverged: int = 0
    converged: int | None = None
    iterations: float = 0.0
    solves: float = 0.0
    solve_seconds: float = 0.0
    training_seconds: float = 0.0
    tuning_seconds: float = 0.0
    inference_seconds: float = 0.0
    step_seconds: float = 0.0
    step_bytes: int = 0
    step_flops: int = 0
    step_held_bytes: int = 0
    failed: str = ""
    provenance: dict[str, Any] = {}

    @property
    def mean(self) -> float:
        return over_defined(mean, self.errors)

    @property
    def cost(self) -> Cost:
        return Cost(self.step_seconds, self.step_bytes, self.step_flops)

    @cost.setter
    def cost(self, cost: Cost) -> None:
        self.step_seconds, self.step_bytes = cost.seconds, cost.peak_bytes
        self.step_flops = cost.flops

    @property
    def has_costs(self) -> bool:
        """Whether the costs of a training step and of a prediction are measured."""
        return bool(self.step_seconds and self.inference_seconds)

    @property
    def lacked_memory(self) -> bool:
        """Whether the training ran out of memory. A resumed study computes such a row again."""
        return self.failed.startswith(NO_MEMORY)


def mean_measured(costs: Iterable[float]) -> float:
    """Mean of the measured costs. A cost that could not be measured is 0. If there are no others,
    the mean is 0."""
    measured = [cost for cost in costs if cost]
    return mean(measured) if measured else 0.0


def mean_and_spread(rows: Sequence[Row], measure: str = "errors") -> tuple[float, float]:
    """Mean over samples and seeds, and the spread between seeds.

    For each seed, the mean over the samples is computed; the spread is the standard deviation of
    these means. The mean is NaN if a row does not have the measure.

    >>> mean_and_spread([Row(errors=[1, 3]), Row(errors=[3, 5])])
    (3.0, 1.4142135623730951)
    """
    means = [over_defined(mean, row.errors if measure == "errors" else row.scores.get(measure, []))
             for row in rows]  # fmt: skip
    several = len(means) > 1 and all(map(isfinite, means))
    return float(mean(means)), stdev(means) if several else 0.0


def by_case(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """The rows of each (dataset, operator, protocol), with one row per seed."""
    cases: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row.dataset, row.operator, row.protocol), []).append(row)
    return cases
