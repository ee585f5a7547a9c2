"""Writes the report of a benchmark, and its tables as CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import torch

from operators.data import Samples
from operators.norms import defined, remarks, rising
from operators.transforms import Predictor
from pdegen.files import write
from pdegen.store.card import citation
from pdegen.store.reading import open_sealed
from pipelines.config.benchmark import Case, Entry, Profile, StepCost, TrainingFact
from pipelines.config.experiment import Experiment, without
from pipelines.config.shipped import records, slug
from pipelines.reports import figures, pictures
from pipelines.reports.document import (
    Formula,
    Picture,
    Report,
    Section,
    Table,
    duration,
    listed,
    markdown,
    part_of,
    plus_minus,
    scientific,
    settings,
    trained_points,
)
from pipelines.reports.figures import Style, picture, styles
from pipelines.reports.pictures import Tested, functions_of
from pipelines.reports.report import equation, quality
from pipelines.runs.finished import MEAN
from pipelines.runs.reproduction import toml
from pipelines.runs.score import MEASURES, NORMS, PARTS
from pipelines.studies.benchmark import EPOCHS, SOME, BenchmarkRun, ProfileRun, row_case
from pipelines.studies.runner import LEARNED, Row, by_case, mean_and_spread, mean_measured


def learning(run: BenchmarkRun, rows: Mapping[str, list[Row]], watched: str, name: str) -> Picture:
    """Mean and range over the seeds of the error on the watched samples after each epoch."""
    series, bands, seeds = {}, {}, max(map(len, rows.values()))
    for operator, of_seeds in rows.items():
        scores = np.array([[epoch.score for epoch in run.history(row)] for row in of_seeds])
        series[operator] = range(1, scores.shape[1] + 1), scores.mean(axis=0).tolist()
        if len(of_seeds) > 1:
            bands[operator] = scores.min(axis=0).tolist(), scores.max(axis=0).tolist()
    figure = figures.curves(
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
    figure = figures.errors_against_costs(
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


Facts = list[tuple[str, ...]]


def error(rows: Sequence[Row]) -> str:
    """Mean error over the seeds as text. With several rows, the standard deviation is added.

    >>> error([Row(errors=[0.1, 0.3]), Row(errors=[0.2])])
    '2.00e-1 ± 0.00e-1'
    """
    mean, spread = mean_and_spread(rows)
    return plus_minus(scientific(mean), spread) if len(rows) > 1 else scientific(mean)


def of_data(store: str, learned: str) -> Facts:
    """Facts about the data of a study. `learned` is a description of the learned map."""
    metadata = open_sealed(store).metadata
    problem = metadata.recipe.problem
    numbers = {
        k: v for k, v in problem.items() if isinstance(v, int | float | str) and k != "equation"
    }
    sizes = {name: stop - start for name, (start, stop) in metadata.splits.items()}
    return [
        ("Data", f"{metadata.recipe.name}: {metadata.title}"),
        *([("Problem", settings(numbers))] if numbers else []),
        *quality(open_sealed(store)),
        ("Fingerprint", metadata.fingerprint),
        ("Content digest", metadata.content),
        ("Samples of the store", settings(sizes)),
        ("Map", learned),
    ]


def data_section(title: str, store: str, facts: Facts) -> Section:
    """Section of facts about a study on a store, with the equation and the citation of the data."""
    opened = open_sealed(store)
    cited = opened.metadata.imported is None
    return Section(
        title,
        tables=(Table(facts),),
        formulas=(Formula("Equation", equation(opened)),),
        listings=(("Citation of the data", citation(opened.metadata)),) if cited else (),
    )


def reproduction_section(rows: Sequence[Row], text: str, command: str, declared: str) -> Section:
    """Section about reproduction: the machines that computed the rows, the command and the
    declaration."""
    machines = dict.fromkeys(settings(row.provenance) for row in rows if row.provenance)
    facts = (Table([("Run", machine) for machine in machines]),)
    listings = (("Declaration", declared),)
    return Section("How to reproduce it", (text,), facts, code=(command,), listings=listings)


def write_tables(report: Report, folder: Path, *words: str) -> None:
    """Write table.md, with the text and the tables of all sections whose title contains one of
    `words`."""
    chosen = [s for s in report.sections if any(word in s.title for word in words)]
    tables = [Section(s.title, s.text, s.tables) for s in chosen]
    text = markdown(Report(report.title, report.summary, report.notice, report.headline, tables))
    write(folder / "table.md", text.encode())


_PROFILE = ("operator", "parameters", "seconds / step", "steps / s", "peak MiB", "GFLOP")
_HELD = {"cuda": "memory of the device", "cpu": "memory of the process"}


def write_profile_report(run: ProfileRun, command: str) -> Path:
    """Write report.html, report.md and table.csv of a finished profile. The report quotes
    `command`, which repeats the profile."""
    profile, measured = run.profile, run.rows()
    kind = _HELD[measured[0].provenance["device"].split()[0]]
    header = (*_PROFILE, f"{kind}, MiB")
    rows = [
        (
            row.operator,
            f"{row.parameters}",
            f"{row.step_seconds:.4g}",
            f"{1 / row.step_seconds:.4g}",
            f"{row.step_bytes / 2**20:.4g}",
            f"{row.step_flops / 1e9:.4g}",
            f"{row.step_held_bytes / 2**20:.4g}" if row.step_held_bytes else "–",
        )
        for row in measured
    ]
    published = _published_costs(profile, measured, kind)
    words = [(label, entry.differs) for label, entry in profile.operators.items() if entry.differs]
    csv = Table(rows, header)
    for table in published:
        lines = [row + line[1:] for row, line in zip(rows, table.rows, strict=True)]
        csv = Table(lines, header + table.header[1:])
    write(run.folder / "table.csv", csv.csv.encode())
    fastest = min(measured, key=lambda row: row.step_seconds)
    what = (
        f"{profile.points} points, batch {profile.batch}: forward, relative L2 loss, backward and "
        "Adam, in float32, not compiled. GFLOP: matrix products, attention and convolutions, "
        "counted from their shapes. Peak MiB: all tensors. Memory of the device: what PyTorch "
        "reserves on a GPU; of the process, on a CPU: its resident memory, libraries included."
    )
    differs = [Table(words, ("operator", "differs"), words=True, name="differs")] if words else []
    costs = Section(
        "Costs of a training step",
        (what, *([profile.differs.strip()] if profile.differs else [])),
        (Table(rows, header), *published, *differs),
    )
    declared, text = toml(profile.model_dump(mode="json")), "This command measures it again."
    report = Report(
        title=f"Profile {profile.name}",
        summary=profile.summary,
        notice="",
        headline=[(f"seconds / step, fastest ({fastest.operator})", f"{fastest.step_seconds:.3g}")],
        sections=[costs, reproduction_section(measured, text, command, declared)],
    )
    return report.write(run.folder)


def _published_costs(profile: Profile, measured: Sequence[Row], held: str) -> list[Table]:
    """Table of the published costs beside the measured ones, which are in the same units."""
    if not any(entry.published for entry in profile.operators.values()):
        return []
    ours: dict[StepCost, tuple[str, str, Callable[[Row], float]]] = {
        "speed": ("steps / s", "steps / s", lambda row: 1 / row.step_seconds),
        "gflop": ("GFLOP", "GFLOP", lambda row: row.step_flops / 1e9),
        "memory": (
            f"{held}, GB", "memory of the device, GB", lambda row: row.step_held_bytes / 1e9
        ),
        "allocated": ("peak of tensors, GB", "CUDA mem, GB", lambda row: row.step_bytes / 1e9),
    }  # fmt: skip
    header, lines = ["operator"], list[tuple[str, ...]]()
    for here, there, _ in ours.values():
        header += [f"{here}, ours", f"{there}, published: {profile.source}"]
    for row in measured:
        line, published = [row.operator], profile.operators[row.operator].published
        for key, (_, _, value) in ours.items():
            line += [f"{value(row):.3g}" if value(row) else "–"]
            line += [f"{published[key]:.10g}" if key in published else ""]
        lines.append(tuple(line))
    return [Table(lines, tuple(header), name="published")]


def protocol_facts(run: BenchmarkRun, dataset: str) -> Facts:
    """Settings that all operators share."""
    experiment, store = run.benchmark.datasets[dataset].load(), run.stores[dataset]
    data, benchmark = experiment.data, run.benchmark
    tried = {**benchmark.search, "factor of the width": benchmark.widths}
    searched = [f"{key} from {', '.join(map(str, of))}" for key, of in tried.items() if of]
    number = max(len(benchmark.searched(case)) for case in run.cases)
    by = f"; {number} trainings per operator, chosen by the validation error of seed 0"
    stored = open_sealed(store).samples_in("train")
    training = experiment.training.model_dump(mode="json", exclude_none=True)
    training |= {"protocol": " and ".join(benchmark.protocols) or training["protocol"]}
    inputs, targets = map(listed, experiment.variables)
    grid = trained_points(data.training_resolutions, run.source(dataset).stored("test").domain)
    return [
        *of_data(store, f"{inputs} → {targets} on {grid} points"),
        ("Trained on", part_of(data.samples, stored)),
        ("Training", settings(training)),
        ("Normalisation", settings(experiment.normalization.model_dump(exclude_none=True))),
        (
            "Searched",
            " x ".join(searched) + by
            if searched
            else "nothing: all operators have the same settings",
        ),
        *_record(run, dataset),
        *_budget(run, dataset),
        ("Seeds", str(benchmark.seeds_on(dataset))),
        *_solver(run, dataset),
    ]


def _record(run: BenchmarkRun, dataset: str) -> Facts:
    """The smallest published error on the dataset, in benchmarks that have published figures."""
    experiment = run.benchmark.datasets[dataset].load()
    recipe, forward = experiment.data.recipe, experiment.variables[1] == "u"
    published = any(entry.published for entry in run.benchmark.operators.values())
    if not (published and forward and recipe in records()):
        return []
    return [("Smallest published error", records()[recipe].sentence)]


def _budget(run: BenchmarkRun, dataset: str) -> Facts:
    """The rule by which the epochs of each operator are chosen."""
    budget = run.benchmark.budget
    if budget is None:
        return []
    rule = (
        f"{run.benchmark.datasets[dataset].load().training.epochs}, doubled until the validation "
        f"error of seed 0 is below {LEARNED} times that of the best predictor without learning and "
        f"falls by less than {budget.flat:.0%}, or until {budget.seconds:g} s are spent on all "
        "trainings of an operator"
    )
    return [("Epochs", rule)]


def _solver(run: BenchmarkRun, dataset: str) -> Facts:
    """Costs of the numerical solver, from which the break-even is computed."""
    cost = run.solver(dataset)
    if cost is None:
        coarser = run.benchmark.datasets[dataset].coarser
        if coarser and not run.has_coarser_solver(dataset):
            return [("Solver", "not measured: the store was not made by a recipe")]
        return []
    first, *coarser = cost.solves
    words = [f"labels {duration(first.seconds)} a sample"]
    for solve in coarser:
        changed = {key.removeprefix("problem."): v for key, v in solve.overrides.items()}
        spent = f"{duration(solve.seconds)}, error {scientific(solve.error)}"
        words.append(f"{settings(changed)}: {spent}")
    return [("Solver, at several resolutions", "; ".join(words))]


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
    """Lines of measured and of published errors of one operator."""
    means = dict[str, str]()
    for name in names:
        errors = [row.measures[name] for row in rows]
        means[name] = scientific(mean(errors))
        if len(errors) > 1:  # several seeds
            means[name] = plus_minus(means[name], stdev(errors))
    stated = {str(k): v for k, v in operator.published_measures.get(dataset, {}).items()}
    published = {name: scientific(stated[name]) for name in names if name in stated}
    return [
        (title, *(words.get(name, "") for name in names))
        for title, words in ((label, means), (f"{label}, published", published))
        if words
    ]


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
    """Table of the published facts of trainings beside the measured ones."""
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


_CHOSEN = {
    "validation": "The reported epoch is the best on the validation split; the test split is "
    "evaluated once.",
    "published": "The reported epoch is the last; the test samples were watched during training, "
    "as in the published codes. The column of the best epoch on the test samples is the one to "
    "compare with published figures, which are of such epochs.",
}
_BOTH = (
    "Both protocols side by side. Under the clean protocol, of the columns up to the epoch, the "
    "reported epoch is the best on the validation split. Under the published protocol it is the "
    "last, and the test samples are watched during training, as in the published codes, which "
    "report the best epoch on them."
)
_MEANING = {  # column of the costs: what it contains
    "s / step": "A step is what training repeats: forward, loss, backward, clipping and optimizer "
    "on one batch, measured alone after all trainings. MiB: peak memory of its tensors "
    "without compilation (on a GPU: all that PyTorch holds, samples included). GFLOP: matrix "
    "products, attention and convolutions, counted from their shapes.",
    "ms / sample": "ms / sample: time of a prediction, in a batch of {some}.",
    "training": "Training: mean over the seeds.",
    "tuning": "Tuning: the other trainings of the search.",
    "data": "Data: generation of the training and validation samples by the solver on one core.",
    "break-even": "Break-even: number of solves after which data, training and tuning have paid "
    "off. The comparison is our own solver, coarsened until its error (that of the labels "
    "included) is the operator's. ∞: never, as that solver is as fast, or a predictor that does "
    "not learn is as accurate.",
}
_LABELS = "labels, as stated by their solver"
_SPENT = " *"  # marks an error whose budget ended by its time
_UNSETTLED = 10.0  # loss of the last epoch / smallest loss


def write_benchmark_report(
    run: BenchmarkRun, device: torch.device, command: str | None = None
) -> Path:
    """Write the report and tables of a benchmark from its finished rows: report.html, report.md,
    table.csv, table.md, benchmark.toml, and the folders of pictures and tables."""
    rows = run.rows()
    write(run.folder / "table.csv", csv_file(run, rows).encode())
    declared = toml(run.benchmark.model_dump(mode="json", exclude_none=True))
    write(run.folder / "benchmark.toml", declared.encode())
    if command is None:
        stores = [word for name, url in run.stores.items() for word in ("--data", f"{name}={url}")]
        command = shlex.join(["pdegen", "benchmark", "benchmark.toml", *stores])
    parts = [_DatasetReport(run, name, rows, device) for name in run.benchmark.datasets]
    overview = [_overview(parts)] if len(parts) > 1 else []
    text = "This command runs the benchmark again; its declaration is benchmark.toml, shown here."
    report = Report(
        title=f"Benchmark {run.benchmark.name}",
        summary=run.benchmark.summary,
        notice=unfinished(run, rows),
        headline=[part.headline for part in parts if part.finished],
        sections=[
            *overview,
            *(section for part in parts for section in part.sections()),
            *(part.protocol() for part in parts),
            reproduction_section(rows, text, command, declared),
        ],
    )
    write_tables(report, run.folder, "All datasets", "errors and costs", "grids")
    return report.write(run.folder)


def _overview(parts: Sequence[_DatasetReport]) -> Section:
    """Mean errors of all operators on all datasets."""
    names = {name: None for part in parts for name in part.finished}
    rows: Facts = [(name, *(_cell(part, name) for part in parts)) for name in names]
    for name in dict.fromkeys(name for part in parts for name in part.references):
        errors = (part.references.get(name) for part in parts)
        rows.append((name, *("" if value is None else scientific(value) for value in errors)))
    header = ("operator", *(part.dataset for part in parts))
    drawn = [(part.finished, part.references[MEAN]) for part in parts if part.finished]
    chart = (against_costs(parts[0].run, drawn),) if drawn else ()
    marked = any(cell.endswith(_SPENT) for row in rows for cell in row)
    text = (f"{_SPENT.strip()}: the time of the budget was spent before the error was flat.",)
    return Section(
        "All datasets: mean errors", text if marked else (), (Table(rows, header),), chart
    )


def _cell(part: _DatasetReport, name: str) -> str:
    """The mean error of an operator as text. Empty if the operator is not on the dataset."""
    if rows := part.finished.get(name, []):
        return error(rows) + (_SPENT if rows[0].ended == "time" else "")
    failed = {row.operator for row in part.rows if row.dataset == part.dataset and row.failed}
    cases = {(case.dataset, case.operator) for case in part.run.cases}
    if (part.dataset, name) not in cases:
        return ""
    return "failed" if name in failed else "unfinished"


@dataclass(frozen=True)
class _DatasetReport:
    """Sections of the report about one dataset."""

    run: BenchmarkRun
    dataset: str
    rows: Sequence[Row]
    device: torch.device

    @cached_property
    def experiment(self) -> Experiment:
        return self.run.benchmark.datasets[self.dataset].load()

    @cached_property
    def finished(self) -> dict[str, list[Row]]:
        """Maps each operator to its rows of the first protocol, sorted by mean error."""
        rows = self._at(next(iter(self.run.benchmark.protocols), ""))
        return dict(sorted(rows.items(), key=lambda item: mean_and_spread(item[1])[0]))

    @cached_property
    def watched(self) -> dict[str, list[Row]]:
        """Maps each operator to its rows of the published protocol."""
        return self._at("published") if "published" in self.run.benchmark.protocols[1:] else {}

    def _at(self, protocol: str) -> dict[str, list[Row]]:
        rows = [row for row in self.rows if row.dataset == self.dataset and not row.failed]
        return {name: of for (_, name, at), of in by_case(rows).items() if at == protocol}

    def case(self, operator: str) -> Case:
        return row_case(self.finished[operator][0])

    @cached_property
    def means(self) -> dict[str, float]:
        return {name: mean_and_spread(rows)[0] for name, rows in self.finished.items()}

    @property
    def measure(self) -> str:
        return self.run.benchmark.datasets[self.dataset].measure

    @cached_property
    def references(self) -> dict[str, float]:
        """Errors of the trivial predictors and of the labels, keyed by name."""
        if not self.finished:
            return {}
        label = self.run.label_error(self.dataset)
        name = _LABELS if self.measure in ("l2", "points") else f"{_LABELS} (relative L² error)"
        return self.run.trivial(self.dataset) | ({} if label is None else {name: label})

    @property
    def _axis(self) -> str:
        """Label of axes that show errors in the measure of the dataset."""
        return figures.MEAN_ERROR if self.measure == "l2" else f"mean error ({self.measure})"

    @property
    def headline(self) -> tuple[str, str]:
        name, smallest = next(iter(self.means.items()))
        return f"smallest error on {self.dataset} ({name})", scientific(smallest)

    def sections(self) -> list[Section]:
        if not self.finished:
            return [self._errors()]
        others = [self._other_grids()] if len(self.experiment.resolutions) > 1 else []
        drawn = (*self._curves(), *self._sample())
        last = Section(f"{self.dataset}: pictures", pictures=drawn)
        return [self._errors(), last, *others]

    def protocol(self) -> Section:
        """Section about the data and the settings that all operators share."""
        facts = protocol_facts(self.run, self.dataset)
        return data_section(f"{self.dataset}: protocol", self.run.stores[self.dataset], facts)

    def _picture(self, figure: Any, name: str, caption: str) -> Picture:
        return picture(figure, f"{slug(self.dataset)}-{name}", caption)

    def _errors(self) -> Section:
        run, benchmark = self.run, self.run.benchmark
        errors: Facts = [
            errors_of(run, self.case(name), rows, self.watched.get(name, []))
            for name, rows in self.finished.items()
        ]
        errors += [
            (name, scientific(value), *[""] * (len(ERRORS) - 2))
            for name, value in self.references.items()
        ]
        costs: Facts = [costs_of(run, self.case(n), rows) for n, rows in self.finished.items()]
        several = benchmark.seeds_on(self.dataset) > 1
        over = " ± deviation over the seeds." if several else ", one seed."
        chosen = _BOTH if self.watched else _CHOSEN[self._protocol_shown]
        sheets = (without_empty(errors, ERRORS, "errors"), without_empty(costs, COSTS, "costs"))
        some = (
            min(SOME, len(next(iter(self.finished.values()))[0].errors)) if self.finished else SOME
        )
        meaning = [_MEANING[name] for name in sheets[1].header if name in _MEANING]
        text = (
            f"Mean {MEASURES.get(self.measure, 'relative L² error')} of the test samples{over} "
            f"{chosen} {' '.join(meaning).format(some=some)}".rstrip(),
            *([benchmark.differs.strip()] if benchmark.differs else []),
            *self._notes(),
        )
        tables = (
            *sheets,
            *further_tables(run, self.dataset, self.finished, self.watched),
            self._differences(),
        )
        return Section(f"{self.dataset}: errors and costs", text, tables)

    @property
    def _protocol_shown(self) -> str:
        return next(iter(self.run.benchmark.protocols), self.experiment.training.protocol)

    def _notes(self) -> list[str]:
        """Sentences about omitted samples, failed trainings and unstable trainings."""
        rows = [row for row in self.rows if row.dataset == self.dataset]
        notes = self._remarks()
        notes += [f"{_named(row)}: {row.failed}" for row in rows if row.failed]
        for row in (row for row in rows if not row.failed):
            losses = [epoch.loss for epoch in self.run.history(row)]
            ratio = losses[-1] / min(losses)
            if ratio > _UNSETTLED:
                notes.append(
                    f"{_named(row)}: the training was unstable; the loss of its last epoch is "
                    f"{ratio:.3g} times its smallest."
                )
        return notes

    def _remarks(self) -> list[str]:
        """Sentences about test samples without a relative error, or with most of all errors."""
        first = next((rows[0] for rows in self.finished.values()), None)
        if first is None or not remarks(range(len(first.errors)), first.errors):
            return []
        numbers = self.run.source(self.dataset).stored("test").ids.tolist()
        return remarks(numbers, first.errors)

    def _differences(self) -> Table:
        """Settings of each operator, and their differences from publications."""
        rows: Facts = []
        for name, (row, *_) in self.finished.items():
            entry = self.run.benchmark.operators[name]
            model = self.run.benchmark.model(self.case(name), row.chosen)
            searched = {k: v for k, v in row.chosen.items() if not k.startswith("model.")}
            changes = without(entry.overrides, searched) | searched
            overrides = ", ".join(f"{key} {value}" for key, value in changes.items())
            given = settings(model.model_dump(exclude_defaults=True, exclude={"name"}))
            note = "; ".join(part for part in (overrides, entry.differs) if part)
            rows.append((name, f"{model.name} {given}".strip(), note))
        header = ("operator", "model and settings that are not defaults", "differs")
        columns = 3 if any(note for _, _, note in rows) else 2
        return Table([row[:columns] for row in rows], header[:columns], words=True, name="models")

    def _other_grids(self) -> Section:
        grids, data = sorted(self.experiment.resolutions), self.experiment.data
        means, table, reasons = {}, list[tuple[str, ...]](), []
        for name, rows in self.finished.items():
            evaluated = [n for n in grids if all(n in row.means for row in rows)]
            means[name] = {n: mean(row.means[n] for row in rows) for n in evaluated}
            entry = self.run.benchmark.operators[name]
            published = dict(entry.published_grids.get(self.dataset, {}))
            if published and self.dataset in entry.published:
                published[data.finest_resolution] = entry.published[self.dataset]
            for label, errors, absent in ((name, means[name], "–"), ("", published, "")):
                if errors:
                    words = (scientific(errors[n]) if n in errors else absent for n in grids)
                    table.append((label or f"{name}, published", *words))
            refused = [pair for row in rows for pair in row.refused.items()]
            for reason in dict.fromkeys(why for _, why in refused):
                at = ", ".join(map(str, sorted({n for n, why in refused if why == reason})))
                reasons.append(f"{name} at {at}: {reason}")
        circle = self.run.source(self.dataset).stored("test").dim == 1
        what = "points" if circle else "points of each axis"
        trained = " or ".join(map(str, data.training_resolutions))
        text = f"Trained on {trained} {what}; the same functions on all grids."
        figure = figures.curves(
            {name: (list(of), list(of.values())) for name, of in means.items()},
            what, self._axis, looks=looks(self.run, means), ticks={n: str(n) for n in grids},
            trained=data.finest_resolution, log=True,
        )  # fmt: skip
        return Section(
            f"{self.dataset}: other grids without training again",
            (text, *reasons),
            (Table(table, ("operator", *map(str, grids))),),
            (self._picture(figure, "grids", "Mean error on each grid."),),
        )

    def _curves(self) -> list[Picture]:
        watched = "test" if self._protocol_shown == "published" else "validation"
        costs = {
            "parameters": {name: float(of[0].parameters) for name, of in self.finished.items()},
            "seconds of training": {
                name: mean(row.training_seconds for row in of) for name, of in self.finished.items()
            },
        }
        against = figures.errors_against_costs(
            costs, self.means, self.references[MEAN], self._axis, looks(self.run, self.means)
        )
        caption = "Mean error against parameters and against training time."
        curves = learning(self.run, self.finished, watched, f"{slug(self.dataset)}-learning")
        return [self._picture(against, "costs", caption), curves]

    def _sample(self) -> list[Picture]:
        """Pictures of one test sample: predictions, and in one dimension also ∂u(y)/∂a(x)."""
        every = self.run.source(self.dataset).samples("test").resident()
        order = rising(next(iter(self.finished.values()))[0].errors)
        number = order[len(order) // 2]
        sample = every.rows(slice(number, number + 1))
        store = open_sealed(self.run.stores[self.dataset])
        truth = functions_of(Tested(self.experiment, store, sample))[1]
        line, predicted, matrices = truth.domain.dim == 1, {}, {}
        for name, rows in self.finished.items():
            training = self.run.training_of(rows[0])
            predicted[name] = training.predicted(every, self.device)[number].numpy()
            if line:
                predictor = training.predictor(self.device)
                matrices[name] = _jacobian(predictor, sample.to(self.device))
        draw = pictures.predictions_on_a_line if line else pictures.predictions_in_panels
        caption = (
            f"Test sample {sample.ids[0]}, the median of the operator with the smallest "
            "error; seed 0."
        )
        drawn = [self._picture(draw(truth, predicted), "predictions", caption)]
        if matrices:
            caption = (
                "How the trained operators couple points: derivative of the predicted u(y) by "
                "a(x) at that sample, y upwards, x to the right."
            )
            drawn.append(self._picture(figures.couplings(matrices), "couplings", caption))
        return drawn


def _named(row: Row) -> str:
    words = [row.operator, row.protocol and f"protocol {row.protocol}", f"seed {row.seed}"]
    return ", ".join(filter(None, words))


def _jacobian(predictor: Predictor, pairs: Samples) -> np.ndarray:
    """Derivatives ∂u(y)/∂a(x) for a single sample in one dimension."""
    a = pairs.a.clone().requires_grad_(True)
    u = predictor(a, pairs.points, pairs.y)[0, :, 0]
    values = u[:: -(-len(u) // 128)]
    rows = [torch.autograd.grad(value, a, retain_graph=True)[0][0, :, 0] for value in values]
    return torch.stack(rows).cpu().numpy()
