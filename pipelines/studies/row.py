"""What came of one part of a study; the only record of all studies."""

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from statistics import mean, stdev
from typing import Any

from pydantic import BaseModel

from operators.norms import defined, over_defined
from pipelines.studies.cost import Cost

NO_MEMORY = "not enough memory"


class Row(BaseModel):
    """A method, trained with one seed or not trained, on the test samples.

    Args:
        dataset, operator, protocol, seed: Which; the protocol where a table has several.
        best, best_epoch: Mean error of the epoch that is best on the test samples, where the
            protocol watches them.
        errors: Error of each test sample on the training grid, relative in L² or in the measure of
            the dataset; nan where the target is 0, which all means leave out.
        scores: Of each test sample by other measures (`pipelines.studies.noise_measures`).
        means: Mean of the errors on every grid, where the operator can.
        refused: Why it cannot, by grid.
        weight: The weight with which a classical inversion regularises; None of other methods.
        solves: Systems of equations that a classical inversion solved for a sample, in the mean.
        solve_seconds: Processor time of the recipe's solver for a sample.
        training_seconds: Evaluations on the selection samples included.
        tuning_seconds: Of the other trainings of the search.
        inference_seconds: Of one test sample, in a batch of some; measured alone. Of a classical
            inversion: processor time, one sample after another; of a model beside it the same, or
            wall time on a GPU.
        step_seconds, step_bytes, step_flops: `pipelines.studies.cost.Cost`, measured alone.
    """

    made_from: str = ""
    dataset: str = ""
    operator: str = ""
    protocol: str = ""
    seed: int = 0
    chosen: dict[str, Any] = {}
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
    solves: float = 0.0
    solve_seconds: float = 0.0
    training_seconds: float = 0.0
    tuning_seconds: float = 0.0
    inference_seconds: float = 0.0
    step_seconds: float = 0.0
    step_bytes: int = 0
    step_flops: int = 0
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
    def measured(self) -> bool:
        return bool(self.step_seconds and self.inference_seconds)

    @property
    def again(self) -> bool:
        """Whether a study that is resumed makes it again: memory was short."""
        return self.failed.startswith(NO_MEMORY)


def mean_and_spread(rows: Sequence[Row], measure: str = "errors") -> tuple[float, float]:
    """Mean over samples and seeds, and the deviation over the seeds of the means over samples.

    A measure that a row does not have is NaN.

    >>> mean_and_spread([Row(errors=[1, 3]), Row(errors=[3, 5])])
    (3.0, 1.4142135623730951)
    """
    means = [over_defined(mean, row.errors if measure == "errors" else row.scores.get(measure, []))
             for row in rows]  # fmt: skip
    several = len(means) > 1 and all(map(isfinite, means))
    return float(mean(means)), stdev(means) if several else 0.0


def interval(errors: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean over samples, by the normal approximation.

    >>> round(interval([1.0, 3.0] * 50), 3)
    0.197
    """
    kept = defined(errors)
    if not all(map(isfinite, kept)):
        return inf
    return 1.96 * stdev(kept) / len(kept) ** 0.5 if len(kept) > 1 else 0.0


def by_case(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """(dataset, operator, protocol) -> its rows, one for each seed."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.dataset, row.operator, row.protocol), []).append(row)
    return found
