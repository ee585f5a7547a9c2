"""The table of a noise study: a line for each method and test level, a column for each measure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from csv import writer
from dataclasses import replace
from io import StringIO

import numpy as np

from operators.norms import defined
from pipelines.reports.benchmark_table import without_empty
from pipelines.reports.document import Table
from pipelines.runs.comparison import mean_interval
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import Cell
from pipelines.studies.noise_measures import MEASURES
from pipelines.studies.row import Row, mean_and_spread
from pipelines.studies.runner import Execution

Rows = Mapping[Cell, Sequence[Sequence[Row]]]  # of a method: at each test level, one for each seed

_ROUNDING = 1e-6  # relative; an interval below it is rounding


def results(study: NoiseStudy, rows: Rows, how: Execution) -> Table:
    """Table of measures, averaged over samples and seeds. Columns without any value are omitted."""
    names = [name for name, of in MEASURES.items() if of.column and _is_measured(rows, name)]
    columns = [MEASURES[name].column for name in names]
    header = ("method", "level", *columns, "seconds", "solves", "pays after")
    return without_empty(list(_lines(study, rows, names, how)), header)


def meanings(rows: Rows) -> list[str]:
    """Paragraphs that explain the measures: one for each measure with a column in the table, and
    one for all other measures."""
    measures = [of for name, of in MEASURES.items() if _is_measured(rows, name)]
    others = " ".join(f"{of.title}: {of.meaning}" for of in measures if not of.column)
    return [
        *(f"{of.column}: {of.title}. {of.meaning}" for of in measures if of.column),
        f"measures.csv has these and further measures, with deviations over the seeds. {others}",
    ]


def _is_measured(rows: Rows, measure: str) -> bool:
    every = (seeds for levels in rows.values() for seeds in levels)
    return any(math.isfinite(mean_and_spread(seeds, measure)[0]) for seeds in every)


def _lines(
    study: NoiseStudy, rows: Rows, measures: Sequence[str], how: Execution
) -> Iterator[tuple[str, ...]]:
    for method, levels in rows.items():
        for level, seeds in zip(study.test_levels, levels, strict=True):
            means = {name: mean_and_spread(seeds, name)[0] for name in measures}
            words = ["" if math.isnan(mean) else f"{mean:.3g}" for mean in means.values()]
            half = half_interval(seeds)
            words[0] += f" ± {half:.1g}" if half > _ROUNDING * means["errors"] else ""
            cost = seeds[0]
            seconds = f"{cost.inference_seconds:.2g}" if cost.inference_seconds else ""
            solves = f"{cost.solves:.0f}" if cost.solves else ""
            paid = ""
            if method.corrected:
                number = study.pays_after(replace(method, at=level), how)
                paid = f"{number:,.0f}" if math.isfinite(number) else "never"
            yield study.label(method), f"{level:g}", *words, seconds, solves, paid


def half_interval(seeds: Sequence[Row]) -> float:
    """Half the width of the 95 % confidence interval of the mean error over the test samples, whose
    errors are means over the seeds. 0 if there is none: for a single sample or infinite errors."""
    half = mean_interval(defined(np.mean([row.errors for row in seeds], axis=0).tolist()))[1]
    return half if math.isfinite(half) else 0.0


def csv(study: NoiseStudy, rows: Rows) -> str:
    """Text of measures.csv. It has the mean and the standard deviation over the seeds of each
    measure, for each method and test level."""
    lines = [("method", "level", "measure", "mean", "deviation over seeds")]
    for measure in MEASURES:
        for method, levels in rows.items():
            for level, seeds in zip(study.test_levels, levels, strict=True):
                mean, spread = mean_and_spread(seeds, measure)
                if math.isfinite(mean):
                    lines.append(
                        (study.label(method), f"{level:g}", measure, f"{mean:.6g}", f"{spread:.6g}")
                    )
    text = StringIO()
    writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
