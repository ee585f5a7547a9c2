"""Writes the report of a benchmark, and its tables as CSV and Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from operators.data import Samples
from operators.norms import remarks, rising
from operators.transforms import Predictor
from pdegen.ownership import write
from pdegen.store.reading import open_sealed
from pipelines.config.benchmark import Case
from pipelines.config.experiment import Experiment, without
from pipelines.config.shipped import slug
from pipelines.reports import samples
from pipelines.reports import study_charts as charts
from pipelines.reports.benchmark_facts import protocol_facts
from pipelines.reports.benchmark_pictures import against_costs, learning, looks
from pipelines.reports.benchmark_table import (
    COSTS,
    ERRORS,
    costs_of,
    csv_file,
    errors_of,
    further_tables,
    unfinished,
    without_empty,
)
from pipelines.reports.document import Picture, Report, Section, Table
from pipelines.reports.figures import picture
from pipelines.reports.pictures import Tested, functions_of
from pipelines.reports.studies import Facts, data_section, error, reproduction, write_tables
from pipelines.reports.wording import (
    scientific,
    settings,
)
from pipelines.runs.finished import MEAN
from pipelines.runs.reproduction import toml
from pipelines.runs.score import MEASURES
from pipelines.studies.benchmark import SOME, BenchmarkRun, row_case
from pipelines.studies.runner import Row, by_case, mean_and_spread

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
            reproduction(rows, text, command, declared),
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
    pictures = (against_costs(parts[0].run, drawn),) if drawn else ()
    marked = any(cell.endswith(_SPENT) for row in rows for cell in row)
    text = (f"{_SPENT.strip()}: the time of the budget was spent before the error was flat.",)
    return Section(
        "All datasets: mean errors", text if marked else (), (Table(rows, header),), pictures
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
        """Maps each operator to its rows of the published protocol. Empty unless "published" is the
        second or a later protocol of the benchmark."""
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
        return charts.MEAN_ERROR if self.measure == "l2" else f"mean error ({self.measure})"

    @property
    def headline(self) -> tuple[str, str]:
        name, smallest = next(iter(self.means.items()))
        return f"smallest error on {self.dataset} ({name})", scientific(smallest)

    def sections(self) -> list[Section]:
        if not self.finished:
            return [self._errors()]
        others = [self._other_grids()] if len(self.experiment.resolutions) > 1 else []
        pictures = (*self._curves(), *self._sample())
        last = Section(f"{self.dataset}: pictures", pictures=pictures)
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
        """Table with the model of each operator, its settings, and their differences from
        publications."""
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
        figure = charts.curves(
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
        against = charts.errors_against_costs(
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
        draw = samples.predictions_on_a_line if line else samples.predictions_in_panels
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
            drawn.append(self._picture(charts.couplings(matrices), "couplings", caption))
        return drawn


def _named(row: Row) -> str:
    words = [row.operator, row.protocol and f"protocol {row.protocol}", f"seed {row.seed}"]
    return ", ".join(filter(None, words))


def _jacobian(predictor: Predictor, pairs: Samples) -> np.ndarray:
    """Derivatives ∂u(y)/∂a(x) for a single sample in one dimension.

    The result has a row for each point y, for at most 128 evenly spaced points, and a column for
    each point x. Only the first channels of a and u are used.
    """
    a = pairs.a.clone().requires_grad_(True)
    u = predictor(a, pairs.points, pairs.y)[0, :, 0]
    values = u[:: -(-len(u) // 128)]
    rows = [torch.autograd.grad(value, a, retain_graph=True)[0][0, :, 0] for value in values]
    return torch.stack(rows).cpu().numpy()
