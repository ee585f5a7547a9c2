"""What a report says of a benchmark, and its table as CSV and Markdown."""

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
from operators.norms import defined, left_out, rising, undefined
from operators.training.files import write
from operators.transforms import Predictor
from pdegen.store.reading import open_sealed
from pipelines.config.benchmark import Case
from pipelines.config.experiment import Experiment
from pipelines.config.shipped import slug
from pipelines.reports import samples
from pipelines.reports import study_charts as charts
from pipelines.reports.benchmark_pictures import against_costs, learning
from pipelines.reports.benchmark_table import (
    COSTS,
    ERRORS,
    costs_of,
    csv_file,
    errors_of,
    measure_tables,
    without_empty,
)
from pipelines.reports.document import Picture, Report, Section, Table
from pipelines.reports.figures import picture
from pipelines.reports.pictures import Tested, functions_of
from pipelines.reports.studies import Facts, error, of_data, reproduction, write_tables
from pipelines.reports.wording import duration, listed, part_of, points, scientific, settings
from pipelines.runs.baselines import MEAN
from pipelines.runs.measures import MEASURES
from pipelines.runs.reproduction import toml
from pipelines.studies.benchmark import SOME, BenchmarkRun, row_case
from pipelines.studies.row import Row, by_case, mean_and_spread

_CHOSEN = {
    "validation": "The epoch is the one that is best on the validation split; the test split is "
    "read once.",
    "published": "The epoch is the last one; the test samples were watched, as in the published "
    "codes, and the epoch that is best on them is in a column of its own; published "
    "figures are of such epochs, and are compared with that column.",
}
_BOTH = (
    "Both protocols side by side: the columns up to the epoch are of the clean one, whose epoch is "
    "the one that is best on the validation split; under the published protocol the epoch is the "
    "last one, and the test samples are watched as in the published codes, which reported the "
    "epoch that is best on them."
)
_MEANING = {  # of a column of the costs
    "s / step": "A step is what training repeats: forward, loss, backward, clipping and optimizer "
    "on one batch, measured alone after all trainings. MiB: peak of what tensors take in it as "
    "written (on a GPU, of all that PyTorch holds, the samples included). GFLOP: matrix products, "
    "attention and convolutions, counted from their shapes.",
    "ms / sample": "A sample: its prediction, in a batch of {some}.",
    "training": "Training: of one seed.",
    "tuning": "Tuning: the other trainings of the search.",
    "data": "Data: the samples of the splits train and validation, by the solver on one core.",
    "break-even": "Break-even: the number of solves after which data, training and tuning have "
    "paid, beside our own solver coarsened until its error, that of the labels included, is the "
    "operator's; ∞: never, for that solver is as fast, or a predictor that does not learn is as "
    "accurate.",
}
_LABELS = "labels, by what their solver states"
_UNSETTLED = 10.0  # loss of the last epoch / smallest loss


def write_benchmark_report(
    run: BenchmarkRun, device: torch.device, command: str | None = None
) -> Path:
    """Write report.html, report.md, table.csv, table.md, benchmark.toml and pictures, tables of
    finished rows."""
    rows = run.rows()
    write(run.folder / "table.csv", csv_file(run, rows).encode())
    declared = toml(run.benchmark.model_dump(mode="json", exclude_none=True))
    write(run.folder / "benchmark.toml", declared.encode())
    if command is None:
        stores = [word for name, url in run.stores.items() for word in ("--data", f"{name}={url}")]
        command = shlex.join(["pdegen", "benchmark", "benchmark.toml", *stores])
    parts = [_Part(run, name, rows, device) for name in run.benchmark.datasets]
    missing = sum(map(len, run.stages())) - len(rows)
    overview = [_overview(parts)] if len(parts) > 1 else []
    said = "This command runs it again; what it declares is in benchmark.toml, and here."
    report = Report(
        title=f"Benchmark {run.benchmark.name}",
        summary=run.benchmark.summary,
        notice=f"{missing} trainings are not finished yet." if missing else "",
        headline=[part.headline for part in parts if part.found],
        sections=[
            *overview,
            *(section for part in parts for section in part.sections()),
            reproduction(rows, said, command, declared),
        ],
    )
    write_tables(report, run.folder, "All datasets", "errors and costs", "grids")
    return report.write(run.folder)


def _overview(parts: Sequence[_Part]) -> Section:
    """Mean errors of all operators on all datasets."""
    every = {name: None for part in parts for name in part.found}
    rows: Facts = [
        (name, *(error(part.found[name]) if name in part.found else "" for part in parts))
        for name in every
    ]
    for name in dict.fromkeys(name for part in parts for name in part.references):
        known = (part.references.get(name) for part in parts)
        rows.append((name, *("" if value is None else scientific(value) for value in known)))
    header = ("operator", *(part.dataset for part in parts))
    made = [(part.found, part.references[MEAN]) for part in parts if part.found]
    pictures = (against_costs(made),) if made else ()
    return Section("All datasets: mean errors", tables=(Table(rows, header),), pictures=pictures)


@dataclass(frozen=True)
class _Part:
    """What a report says of one dataset."""

    run: BenchmarkRun
    dataset: str
    rows: Sequence[Row]
    device: torch.device

    @cached_property
    def experiment(self) -> Experiment:
        return self.run.benchmark.datasets[self.dataset].load()

    @cached_property
    def found(self) -> dict[str, list[Row]]:
        protocol = next(iter(self.run.benchmark.protocols), "")
        found = self._at(protocol)
        return dict(sorted(found.items(), key=lambda item: mean_and_spread(item[1])[0]))

    @cached_property
    def watched(self) -> dict[str, list[Row]]:
        """The same of the published protocol, where it stands beside another."""
        return self._at("published") if "published" in self.run.benchmark.protocols[1:] else {}

    def _at(self, protocol: str) -> dict[str, list[Row]]:
        rows = [row for row in self.rows if row.dataset == self.dataset and not row.failed]
        return {operator: own for (_, operator, at), own in by_case(rows).items() if at == protocol}

    def case(self, operator: str) -> Case:
        return row_case(self.found[operator][0])

    @cached_property
    def means(self) -> dict[str, float]:
        return {name: mean_and_spread(own)[0] for name, own in self.found.items()}

    @property
    def measure(self) -> str:
        return self.run.benchmark.datasets[self.dataset].measure

    @cached_property
    def references(self) -> dict[str, float]:
        """Errors that no operator of the table has, by what they are of."""
        if not self.found:
            return {}
        label = self.run.label_error(self.dataset)
        return self.run.trivial(self.dataset) | ({} if label is None else {_LABELS: label})

    @property
    def headline(self) -> tuple[str, str]:
        name, smallest = next(iter(self.means.items()))
        return f"smallest error on {self.dataset} ({name})", scientific(smallest)

    def sections(self) -> list[Section]:
        protocol = Section(f"{self.dataset}: protocol", tables=(Table(self._protocol()),))
        if not self.found:
            return [protocol, self._errors()]
        others = [self._other_grids()] if len(self.experiment.resolutions) > 1 else []
        pictures = (*self._curves(), *self._sample())
        last = Section(f"{self.dataset}: pictures", pictures=pictures)
        return [protocol, self._errors(), *others, last]

    def _picture(self, figure: Any, name: str, caption: str) -> Picture:
        return picture(figure, f"{slug(self.dataset)}-{name}", caption)

    def _protocol(self) -> Facts:
        """What holds for all operators."""
        experiment, store = self.experiment, self.run.stores[self.dataset]
        data, benchmark = experiment.data, self.run.benchmark
        tried = {**benchmark.search, "width / its own": benchmark.widths}
        searched = [f"{key} of {', '.join(map(str, of))}" for key, of in tried.items() if of]
        number = max(len(benchmark.searched(case)) for case in self.run.cases)
        by = f"; {number} trainings of each operator, by the validation error of seed 0"
        start, stop = open_sealed(store).metadata.splits["train"]
        training = experiment.training.model_dump(mode="json", exclude_none=True)
        training |= {"protocol": " and ".join(benchmark.protocols) or training["protocol"]}
        inputs, targets = map(listed, experiment.variables)
        grid = points(data.resolution, self.run.source(self.dataset).stored("test").domain)
        return [
            *of_data(store, f"{inputs} → {targets} on {grid} points"),
            ("Trained on", part_of(data.samples, stop - start)),
            ("Training", settings(training)),
            ("Normalisation", settings(experiment.normalization.model_dump(exclude_none=True))),
            (
                "Searched",
                " x ".join(searched) + by if searched else "nothing: the same settings for all",
            ),
            ("Seeds", str(benchmark.seeds)),
            *self._solver(),
        ]

    def _solver(self) -> Facts:
        """What the break-even is compared with."""
        cost = self.run.solver(self.dataset)
        if cost is None:
            if self.run.benchmark.datasets[self.dataset].coarser and not self.run.solved(
                self.dataset
            ):
                return [("Solver", "not measured: no recipe made the store")]
            return []
        first, *coarser = cost.solves
        words = [f"labels {duration(first.seconds)} a sample"]
        for one in coarser:
            own = {key.removeprefix("problem."): value for key, value in one.overrides.items()}
            spent = f"{duration(one.seconds)}, off by {scientific(one.error)}"
            words.append(f"{settings(own)}: {spent}")
        return [("Solver, coarser and coarser", "; ".join(words))]

    def _errors(self) -> Section:
        run, benchmark = self.run, self.run.benchmark
        errors: Facts = [
            errors_of(run, self.case(name), own, self.watched.get(name, []))
            for name, own in self.found.items()
        ]
        errors += [
            (name, "", scientific(error_), *[""] * (len(ERRORS) - 3))
            for name, error_ in self.references.items()
        ]
        costs: Facts = [costs_of(run, self.case(name), own) for name, own in self.found.items()]
        over = " ± deviation over the seeds." if benchmark.seeds > 1 else ", one seed."
        chosen = _BOTH if self.watched else _CHOSEN[self._protocol_shown]
        sheets = (without_empty(errors, ERRORS, "errors"), without_empty(costs, COSTS, "costs"))
        some = min(SOME, len(next(iter(self.found.values()))[0].errors)) if self.found else SOME
        meaning = [_MEANING[name] for name in sheets[1].header if name in _MEANING]
        text = (
            f"Mean {MEASURES.get(self.measure, 'relative L² error')} of the test samples{over} "
            f"{chosen} {' '.join(meaning).format(some=some)}".rstrip(),
            *([benchmark.differs.strip()] if benchmark.differs else []),
            *self._notes(),
        )
        tables = (
            *sheets,
            *measure_tables(self.found, self.run.benchmark.operators, self.dataset),
            self._differences(),
        )
        return Section(f"{self.dataset}: errors and costs", text, tables)

    @property
    def _protocol_shown(self) -> str:
        return next(iter(self.run.benchmark.protocols), self.experiment.training.protocol)

    def _notes(self) -> list[str]:
        """Trainings that failed, and those that lost what they had reached."""
        own = [row for row in self.rows if row.dataset == self.dataset]
        notes = [left_out(self._left_out())] if self._left_out() else []
        notes += [f"{_named(row)}: {row.failed}" for row in own if row.failed]
        for row in (row for row in own if not row.failed):
            losses = [epoch.loss for epoch in self.run.history(row)]
            ratio = losses[-1] / min(losses)
            if ratio > _UNSETTLED:
                notes.append(
                    f"{_named(row)}: the training was unstable, the loss of its "
                    f"last epoch is {ratio:.3g} times its smallest."
                )
        return notes

    def _left_out(self) -> list[int]:
        """The numbers of the test samples that have no error."""
        first = next((own[0] for own in self.found.values()), None)
        if first is None or len(defined(first.errors)) == len(first.errors):
            return []
        numbers = self.run.source(self.dataset).stored("test").samples.tolist()
        return undefined(numbers, first.errors)

    def _differences(self) -> Table:
        """What each operator has of its own, and what differs from publications."""
        rows: Facts = []
        for name in self.found:
            entry = self.run.benchmark.operators[name]
            model = self.run.benchmark.model(self.case(name))
            own = ", ".join(f"{key} {value}" for key, value in entry.overrides.items())
            given = settings(model.model_dump(exclude_defaults=True, exclude={"name"}))
            note = "; ".join(part for part in (own, entry.differs) if part)
            rows.append((name, f"{model.name} {given}".strip(), note))
        header = ("operator", "model, where not its defaults", "differs")
        columns = 3 if any(note for _, _, note in rows) else 2
        return Table([row[:columns] for row in rows], header[:columns], words=True, name="models")

    def _other_grids(self) -> Section:
        grids, data = sorted(self.experiment.resolutions), self.experiment.data
        means, table, cannot = {}, list[tuple[str, ...]](), []
        for name, own in self.found.items():
            can = [n for n in grids if all(n in row.means for row in own)]
            means[name] = {n: mean(row.means[n] for row in own) for n in can}
            entry = self.run.benchmark.operators[name]
            published = dict(entry.published_grids.get(self.dataset, {}))
            if published and self.dataset in entry.published:
                published[data.resolution] = entry.published[self.dataset]
            for label, known, absent in ((name, means[name], "–"), ("", published, "")):
                if known:
                    words = (scientific(known[n]) if n in known else absent for n in grids)
                    table.append((label or f"{name}, published", *words))
            refused = [pair for row in own for pair in row.refused.items()]
            for reason in dict.fromkeys(why for _, why in refused):
                at = ", ".join(map(str, sorted({n for n, why in refused if why == reason})))
                cannot.append(f"{name} at {at}: {reason}")
        what = f"Trained on {data.resolution} points of each axis; the same functions on all grids."
        figure = charts.curves(
            {name: (list(of), list(of.values())) for name, of in means.items()},
            "points of each axis (dotted: the grid of training)",
            ticks={n: str(n) for n in grids},
            trained=data.resolution,
            log=True,
        )
        return Section(
            f"{self.dataset}: other grids without training again",
            (what, *cannot),
            (Table(table, ("operator", *map(str, grids))),),
            (self._picture(figure, "grids", "Error on each grid."),),
        )

    def _curves(self) -> list[Picture]:
        found = self.found.items()
        watched = "test" if self._protocol_shown == "published" else "validation"
        seconds = {name: mean(row.training_seconds for row in own) for name, own in found}
        costs = {
            "parameters": {name: float(own[0].parameters) for name, own in found},
            "seconds of training": seconds,
        }
        against = charts.errors_against_costs(costs, self.means, self.references[MEAN])
        said = "Error against parameters and against training time."
        curves = learning(self.run, self.found, watched, f"{slug(self.dataset)}-learning")
        return [self._picture(against, "costs", said), curves]

    def _sample(self) -> list[Picture]:
        """Predictions of one test sample, and on a line how each depends on the input."""
        every = self.run.source(self.dataset).samples("test").resident()
        order = rising(next(iter(self.found.values()))[0].errors)
        number = order[len(order) // 2]
        one = every.rows(slice(number, number + 1))
        store = open_sealed(self.run.stores[self.dataset])
        truth = functions_of(Tested(self.experiment, store, one))[1]
        predicted, matrices = {}, {}
        for name, own in self.found.items():
            training = self.run.training_of(own[0])
            predicted[name] = training.predicted(every, self.device)[number].numpy()
            if truth.domain.dim == 1:
                matrices[name] = _jacobian(training.predictor(self.device), one.to(self.device))
        line = truth.domain.dim == 1
        draw = samples.predictions_on_a_line if line else samples.predictions_in_panels
        which = "the median of the operator with the smallest error; seed 0."
        found = draw(truth, predicted), "predictions", f"Test sample {one.samples[0]}, {which}"
        if not matrices:
            return [self._picture(*found)]
        caption = (
            "How the trained operators couple points: derivative of the predicted u(y) by a(x) at "
            "that sample, y upwards, x to the right."
        )
        coupled = charts.couplings(matrices), "couplings", caption
        return [self._picture(*found), self._picture(*coupled)]


def _named(row: Row) -> str:
    words = [row.operator, row.protocol and f"protocol {row.protocol}", f"seed {row.seed}"]
    return ", ".join(filter(None, words))


def _jacobian(predictor: Predictor, pairs: Samples) -> np.ndarray:
    """∂u(y)/∂a(x) of the first channels at a sample on a line, [y, x]; at 128 points y or fewer."""
    a = pairs.a.clone().requires_grad_(True)
    u = predictor(a, pairs.points, pairs.y)[0, :, 0]
    values = u[:: -(-len(u) // 128)]
    rows = [torch.autograd.grad(value, a, retain_graph=True)[0][0, :, 0] for value in values]
    return torch.stack(rows).cpu().numpy()
