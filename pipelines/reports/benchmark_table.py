"""Tables of a benchmark: table.csv, and the tables of errors and costs in the report."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from operators.norms import defined
from pipelines.config.benchmark import Case, Entry, TrainingFact
from pipelines.reports.document import Table
from pipelines.reports.studies import Facts, error
from pipelines.reports.wording import duration, plus_minus, scientific
from pipelines.runs.score import NORMS, PARTS
from pipelines.studies.benchmark import EPOCHS, BenchmarkRun
from pipelines.studies.runner import Row, by_case, mean_and_spread, mean_measured

_COLUMNS: tuple[str, ...] = (
    "dataset", "operator", "protocol", "seeds", "parameters", "mean", "spread", "median", "p95",
    "worst", "label error", "trivial", "epoch", "best on test", "best epoch", "published",
    "ratio to published", "training seconds", "tuning seconds", "inference seconds",
    "step seconds", "step MiB", "step GFLOP", "data seconds", "break-even", "chosen", "ended",
    "differs", "failed", "samples", "published parameters", "published GFLOP", "published hours",
    "published seconds / epoch", "published best epoch",
)  # fmt: skip
OUT_OF_TIME = "time spent"  # in the table of a budget whose validation error was not flat
ERRORS = (
    "operator", "mean error", "median", "95 %", "worst", "published protocol", "best on test",
    "published", "parameters", "epoch", "budget",
)  # fmt: skip
COSTS = (
    "operator", "parameters", "s / step", "MiB / step", "GFLOP / step", "ms / sample", "training",
    "tuning", "data", "break-even",
)  # fmt: skip
_FACTS: Mapping[TrainingFact, tuple[str, str]] = {  # column, and the format of published values
    "parameters": ("parameters", ",.0f"),
    "gflop": ("GFLOP", ",.10g"),
    "hours": ("hours", ".10g"),
    "seconds": ("seconds / epoch", ".10g"),
    "epoch": ("best epoch", ".0f"),
}


def csv_file(run: BenchmarkRun, rows: Iterable[Row]) -> str:
    """Text of table.csv, with one line for each case."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line_of(run, Case(*case), of) for case, of in by_case(rows).items())
    return text.getvalue()


def line_of(run: BenchmarkRun, case: Case, rows: list[Row]) -> dict[str, Any]:
    """Values of one case in table.csv, keyed by column. `rows` has a row for each seed."""
    entry, finished = run.benchmark.operators[case.operator], [r for r in rows if not r.failed]
    published = entry.published.get(case.dataset)
    line: dict[str, Any] = {
        "dataset": case.dataset,
        "operator": case.operator,
        "protocol": case.protocol,
        "seeds": len(finished),
        "differs": entry.differs,
        "failed": "; ".join(r.failed for r in rows if r.failed),
        "published": "" if published is None else published,
    }
    facts = entry.published_training.get(case.dataset, {})
    line |= {f"published {_FACTS[kind][0]}": fact for kind, fact in facts.items()}
    if finished:
        first, (error_, spread) = finished[0], mean_and_spread(finished)
        errors = [error for row in finished for error in defined(row.errors)]
        label = run.label_error(case.dataset)
        line |= {
            "parameters": first.parameters,
            "mean": error_,
            "spread": spread if len(finished) > 1 else "",
            "median": median(errors),
            "p95": float(np.quantile(errors, 0.95)),
            "worst": max(errors),
            "samples": len(defined(first.errors)),
            "label error": "" if label is None else label,
            "trivial": min(run.trivial(case.dataset).values()),
            "epoch": " ".join(str(row.epoch) for row in finished),
            "training seconds": mean(row.training_seconds for row in finished),
            "tuning seconds": mean(row.tuning_seconds for row in finished),
            "inference seconds": mean_measured(row.inference_seconds for row in finished) or "",
            "step seconds": mean_measured(row.step_seconds for row in finished) or "",
            "step MiB": mean_measured(row.step_bytes / 2**20 for row in finished) or "",
            "step GFLOP": mean_measured(row.step_flops / 1e9 for row in finished) or "",
            "chosen": json.dumps(first.chosen) if first.chosen else "",
            "ended": first.ended,
        }
        best = [row.best for row in finished if row.best is not None]
        solver = run.solver(case.dataset)
        if solver is not None:
            line["data seconds"] = solver.data_seconds
            if solver.comparable and line["inference seconds"]:
                spent = line["training seconds"] + line["tuning seconds"]
                line["break-even"] = solver.break_even(
                    error_, spent, line["inference seconds"], line["trivial"]
                )
        if best:
            line["best on test"] = mean(best)
            line["best epoch"] = " ".join(str(row.best_epoch) for row in finished)
        if published is not None:  # their epochs too are the best on the test samples
            line["ratio to published"] = (mean(best) if best else error_) / published
    return line


def errors_of(
    run: BenchmarkRun, case: Case, rows: list[Row], watched: list[Row]
) -> tuple[str, ...]:
    """Entries for one case in the table of errors. `watched` has the rows of the published
    protocol, and may be empty."""
    line, best, published = line_of(run, case, rows), "", ""
    other = line_of(run, replace(case, protocol="published"), watched) if watched else line
    if "best on test" in other:
        best = f"{scientific(other['best on test'])}, epoch {other['best epoch']}"
    if line["published"] != "":
        published = f"{scientific(line['published'])} (x {other['ratio to published']:.2f})"
    return (
        case.operator,
        error(rows),
        *(scientific(line[name]) for name in ("median", "p95", "worst")),
        error(watched) if watched else "",
        best,
        published,
        f"{line['parameters']:,}",
        line["epoch"],
        budget_of(rows[0]),
    )


def budget_of(row: Row) -> str:
    """Epochs that a budget chose, and why it ended, as text; empty without a budget."""
    if not row.ended:
        return ""
    return f"{row.chosen[EPOCHS]} epochs, {'flat' if row.ended == 'flat' else OUT_OF_TIME}"


def costs_of(run: BenchmarkRun, case: Case, rows: list[Row]) -> tuple[str, ...]:
    """Entries for one case in the table of costs."""
    line = line_of(run, case, rows)
    steps = [line[f"step {what}"] for what in ("seconds", "MiB", "GFLOP")]
    tuning = line["tuning seconds"]
    return (
        case.operator,
        f"{line['parameters']:,}",
        *(f"{v:.3g}" if v else "–" for v in [*steps, 1e3 * (line["inference seconds"] or 0)]),
        duration(line["training seconds"]),
        duration(tuning) if tuning else "",
        duration(line["data seconds"]) if "data seconds" in line else "",
        solves(line["break-even"]) if "break-even" in line else "",
    )


def unfinished(run: BenchmarkRun, rows: Iterable[Row]) -> str:
    """Text that names the trainings without a row; empty if there are none."""
    finished = {(Case(row.dataset, row.operator, row.protocol), row.seed) for row in rows}
    every = [part for stage in run.stages() for part in stage]
    missing = [part for part in every if part not in finished]
    if not missing:
        return ""
    of_datasets = list[str]()
    for dataset in dict.fromkeys(case.dataset for case, _ in missing):
        parts = [part for part in missing if part[0].dataset == dataset]
        seeds = dict[str, list[str]]()
        for case, seed in parts:
            protocol = f" ({case.protocol})" if case.protocol else ""
            seeds.setdefault(case.operator + protocol, []).append(str(seed))
        names = [f"{name}, seed {' and '.join(of)}" if run.benchmark.seeds_on(dataset) > 1 else name
                 for name, of in seeds.items()]  # fmt: skip
        whole = len(parts) == sum(case.dataset == dataset for case, _ in every)
        of_datasets.append(f"{dataset}: {'all' if whole else '; '.join(names)}")
    word = "training is" if len(missing) == 1 else "trainings are"
    return f"{len(missing)} of {len(every)} {word} not finished. {'. '.join(of_datasets)}."


def solves(number: float) -> str:
    """Number of solves after which an operator saves time, as text.

    >>> solves(1234.5), solves(float("inf"))
    ('1,234', '∞')
    """
    return "∞" if math.isinf(number) else f"{number:,.0f}"


def without_empty(rows: Facts, header: tuple[str, ...], name: str = "") -> Table:
    """The table without the columns that are empty in every row."""
    used = [i for i in range(len(header)) if any(line[i] for line in rows)]
    head, *lines = [tuple(line[i] for i in used) for line in [header, *rows]]
    return Table(lines, head, name=name)


def measure_tables(
    rows_of: Mapping[str, Sequence[Row]], operators: Mapping[str, Entry], dataset: str
) -> list[Table]:
    """Mean errors of each operator in the measures that all rows have.

    The first table has errors in different norms, the second has parts of the error. With several
    seeds, the standard deviation over the seeds is added.
    """
    tables, every = list[Table](), [row for rows in rows_of.values() for row in rows]
    for what, measures in (("norms", ("l2", *NORMS)), ("parts of the error", PARTS)):
        names = [name for name in measures if all(name in row.measures for row in every)]
        lines = [line for label, rows in rows_of.items()
                 for line in _lines(label, rows, names, operators[label], dataset)]  # fmt: skip
        tables += [Table(lines, ("operator", *names), name=what)] if names and lines else []
    return tables


def _lines(
    label: str, rows: Sequence[Row], names: Sequence[str], operator: Entry, dataset: str
) -> list[tuple[str, ...]]:
    """Lines of one operator: a line of measured errors and, if available, a line of published
    errors."""
    means = {name: _mean_and_spread([row.measures[name] for row in rows]) for name in names}
    figures = {str(k): v for k, v in operator.published_measures.get(dataset, {}).items()}
    published = {name: scientific(figures[name]) for name in names if name in figures}
    return [
        (title, *(words.get(name, "") for name in names))
        for title, words in ((label, means), (f"{label}, published", published))
        if words
    ]


def _mean_and_spread(values: Sequence[float]) -> str:
    """The mean over the seeds as text, with the standard deviation if there are several."""
    words = scientific(mean(values))
    return plus_minus(words, stdev(values)) if len(values) > 1 else words


def further_tables(
    run: BenchmarkRun,
    dataset: str,
    finished: Mapping[str, Sequence[Row]],
    watched: Mapping[str, Sequence[Row]],
) -> list[Table]:
    """Tables of one dataset with errors in other measures, and with published facts of trainings.

    Args:
        finished: Rows of the first protocol, by operator.
        watched: Rows of the published protocol, if that is another one. Published facts stand
            beside these.
    """
    rows_of = {**finished, **watched}
    return [
        *measure_tables(finished, run.benchmark.operators, dataset),
        *_training_tables(run, {Case(dataset, name): rows for name, rows in rows_of.items()}),
    ]


def _training_tables(run: BenchmarkRun, cases: Mapping[Case, Sequence[Row]]) -> list[Table]:
    """Table of the published facts of trainings beside the measured ones.

    The list is empty if nothing is published. Each kind of fact has two columns; the header of the
    second one names the place in the publication.
    """
    published: dict[Case, Mapping[TrainingFact, float]] = {
        case: run.benchmark.operators[case.operator].published_training.get(case.dataset, {})
        for case in cases
    }
    kinds: list[TrainingFact] = [
        kind for kind in _FACTS if any(kind in facts for facts in published.values())
    ]
    if not kinds:
        return []
    header, lines = ["operator"], list[tuple[str, ...]]()
    for kind in kinds:
        name = _FACTS[kind][0]
        header += [f"{name}, ours", f"{name}, published: {run.benchmark.sources[kind]}"]
    for case, rows in cases.items():
        line = [case.operator]
        for kind in kinds:
            fact = published[case].get(kind)
            line += [_fact(run, kind, rows), "" if fact is None else format(fact, _FACTS[kind][1])]
        lines.append(tuple(line))
    return [Table(lines, tuple(header), name="published trainings")]


def _fact(run: BenchmarkRun, kind: TrainingFact, rows: Sequence[Row]) -> str:
    """A measured fact of the trainings of a case, as text; a mean over the seeds."""
    if kind == "parameters":
        return f"{rows[0].parameters:,}"
    if kind == "gflop":
        flops = mean(row.step_flops for row in rows)
        return f"{flops / 1e9:.4g}" if flops else "–"
    if kind == "epoch":  # the published ones are the best on the test samples
        return " ".join(str(row.epoch if row.best is None else row.best_epoch) for row in rows)
    spent = mean(row.training_seconds for row in rows)
    if kind == "hours":
        return f"{spent / 3600:.3g}"
    return f"{spent / run.training_of(rows[0]).experiment.training.epochs:.3g}"
