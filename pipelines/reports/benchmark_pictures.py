"""Pictures of a benchmark: learning curves, and errors plotted against costs."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

import numpy as np

from pipelines.reports import study_charts as charts
from pipelines.reports.document import Picture
from pipelines.reports.figures import picture
from pipelines.reports.method_styles import Style, styles
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.runner import Row, mean_and_spread


def learning(run: BenchmarkRun, rows: Mapping[str, list[Row]], watched: str, name: str) -> Picture:
    """Mean and range over the seeds of the error on the watched samples after each epoch."""
    series, bands, seeds = {}, {}, max(map(len, rows.values()))
    for operator, of_seeds in rows.items():
        scores = np.array([[epoch.score for epoch in run.history(row)] for row in of_seeds])
        series[operator] = range(1, scores.shape[1] + 1), scores.mean(axis=0).tolist()
        if len(of_seeds) > 1:
            bands[operator] = scores.min(axis=0).tolist(), scores.max(axis=0).tolist()
    figure = charts.curves(
        series, "epoch", f"relative L² error, {watched}", looks=looks(run, rows), bands=bands,
        band="range over the seeds", markers=False, whole=True,
    )  # fmt: skip
    over = f"curves are means over {seeds} seeds, bands reach from the smallest to the largest"
    return picture(figure, name, f"Learning curves; {over if seeds > 1 else 'seed 0'}.")


def looks(run: BenchmarkRun, names: Iterable[str]) -> dict[str, Style]:
    """Style of each name. An operator has the same style in all charts of its benchmark."""
    names, operators = list(names), list(run.benchmark.operators)
    if not {*names} <= {*operators}:
        return styles(names)
    every = styles(operators)
    return {name: every[name] for name in names}


def times_the_smallest(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Geometric mean over the datasets of value/smallest, for each name.

    `values` has one mapping for each dataset. In it, "smallest" is the smallest positive value of
    any name. Datasets without a value for a name do not enter the mean of this name.

    >>> times_the_smallest([{"a": 1.0, "b": 4.0}, {"a": 2.0, "b": 2.0}, {"b": 5.0}])
    {'a': 1.0, 'b': 1.5874010519681994}
    """
    ratios: dict[str, list[float]] = {}
    for of_dataset in values:
        smallest = _smallest(of_dataset)
        for name, value in of_dataset.items():
            ratios.setdefault(name, []).append(value / smallest)
    return {name: float(np.prod(of) ** (1 / len(of))) for name, of in ratios.items()}


def _smallest(values: Mapping[str, float]) -> float:
    """The smallest positive value; 1 if there is none."""
    return min((value for value in values.values() if value > 0), default=1.0)


def against_costs(
    run: BenchmarkRun, datasets: Sequence[tuple[Mapping[str, Sequence[Row]], float]]
) -> Picture:
    """Picture of errors against costs. Both are relative to the smallest in each dataset and
    averaged over the datasets.

    Args:
        datasets: One pair for each dataset: the rows of each operator, and the error of the
            predictor that returns the mean training target.
    """
    means = [{n: mean_and_spread(of)[0] for n, of in rows.items()} for rows, _ in datasets]
    errors = dict(sorted(times_the_smallest(means).items(), key=lambda item: item[1]))
    trivial = [e / _smallest(of) for of, (_, e) in zip(means, datasets, strict=True)]
    costs = {
        f"{what}, over the smallest": times_the_smallest([
            {name: mean(getattr(row, key) for row in of) for name, of in rows.items()}
            for rows, _ in datasets
        ])
        for what, key in (("parameters", "parameters"), ("training time", "training_seconds"))
    }  # fmt: skip
    counts = {name: sum(name in of for of in means) for name in errors}
    count = len(means)
    named = {n: n if counts[n] == count else f"{n} ({counts[n]} of {count})" for n in errors}
    figure = charts.errors_against_costs(
        {what: {named[n]: value for n, value in of.items()} for what, of in costs.items()},
        {named[n]: value for n, value in errors.items()},
        float(np.prod(trivial) ** (1 / count)),
        "mean error, over the smallest",
        {named[n]: look for n, look in looks(run, errors).items()},
    )
    caption = (
        "Errors against costs, each divided by the smallest of the dataset: the geometric mean "
        "over the datasets of an operator."
    )
    return picture(figure, "all-costs", caption)
