"""Pictures of a benchmark: how its operators learned, and on all datasets errors against costs."""

from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np

from pipelines.reports import study_charts as charts
from pipelines.reports.document import Picture
from pipelines.reports.figures import picture
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.row import Row, mean_and_spread


def learning(run: BenchmarkRun, found: Mapping[str, list[Row]], watched: str, name: str) -> Picture:
    """Errors of the watched samples after each epoch: the mean over the seeds, and their range."""
    series, bands, seeds = {}, {}, max(map(len, found.values()))
    for of, own in found.items():
        scores = np.array([[epoch.score for epoch in run.history(row)] for row in own])
        series[of] = range(1, scores.shape[1] + 1), scores.mean(axis=0).tolist()
        if len(own) > 1:
            bands[of] = scores.min(axis=0).tolist(), scores.max(axis=0).tolist()
    words = f"relative L² error, {watched}"
    figure = charts.curves(series, "epoch", words, bands=bands, markers=False, whole=True)
    over = f"the mean over {seeds} seeds, and the range from the smallest to the largest"
    return picture(figure, name, f"Learning curves, {over if seeds > 1 else 'seed 0'}.")


def times_the_smallest(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Geometric mean of value / smallest positive one of a dataset, over the datasets that have the
    name.

    >>> times_the_smallest([{"a": 1.0, "b": 4.0}, {"a": 2.0, "b": 2.0}, {"b": 5.0}])
    {'a': 1.0, 'b': 1.5874010519681994}
    """
    ratios: dict[str, list[float]] = {}
    for of in values:
        smallest = _smallest(of)
        for name, value in of.items():
            ratios.setdefault(name, []).append(value / smallest)
    return {name: float(np.prod(of) ** (1 / len(of))) for name, of in ratios.items()}


def _smallest(values: Mapping[str, float]) -> float:
    """The smallest positive value; 1 where there is none."""
    return min((value for value in values.values() if value > 0), default=1.0)


def against_costs(datasets: Sequence[tuple[Mapping[str, Sequence[Row]], float]]) -> Picture:
    means = [{n: mean_and_spread(own)[0] for n, own in found.items()} for found, _ in datasets]
    errors = dict(sorted(times_the_smallest(means).items(), key=lambda item: item[1]))
    trivial = [e / _smallest(of) for of, (_, e) in zip(means, datasets, strict=True)]
    costs = {
        f"{what}, over the smallest": times_the_smallest([
            {name: mean(getattr(row, key) for row in own) for name, own in found.items()}
            for found, _ in datasets
        ])
        for what, key in (("parameters", "parameters"), ("training time", "training_seconds"))
    }  # fmt: skip
    counts = {name: sum(name in of for of in means) for name in errors}
    every = len(means)
    named = {n: n if counts[n] == every else f"{n} ({counts[n]} of {every})" for n in errors}
    figure = charts.errors_against_costs(
        {what: {named[n]: value for n, value in of.items()} for what, of in costs.items()},
        {named[n]: value for n, value in errors.items()},
        float(np.prod(trivial) ** (1 / every)),
        "mean error, over the smallest",
    )
    caption = (
        "Errors against costs: each over the smallest that an operator has on the dataset, the "
        "geometric mean over the datasets that it is on."
    )
    return picture(figure, "all-costs", caption)
