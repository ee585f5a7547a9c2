"""Writes the report of a samples study, which varies the number of training samples."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median

import torch

from operators.norms import defined
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.reports import figures
from pipelines.reports.benchmark_report import (
    Facts,
    data_section,
    error,
    learning,
    of_data,
    reproduction_section,
    write_tables,
)
from pipelines.reports.document import (
    Picture,
    Report,
    Section,
    Table,
    duration,
    listed,
    points,
    scientific,
    settings,
)
from pipelines.reports.figures import picture
from pipelines.runs.finished import MEAN
from pipelines.runs.reproduction import described, toml
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.runner import Row, by_case, mean_and_spread

_TITLE = "Error against the number of samples"


def write_samples_report(run: BenchmarkRun, device: torch.device, command: str) -> Path:
    """Write report.html, report.md, table.md, pictures and tables from the finished rows."""
    rows = [row for row in run.rows() if not row.failed]
    part = _Part(run, {dataset: group for (dataset, *_), group in by_case(rows).items()})
    missing = sum(map(len, run.stages())) - len(rows)
    declared = toml(run.benchmark.model_dump(mode="json", exclude_none=True))
    text = "This command repeats the study; its declaration is below."
    report = Report(
        title=f"Study {run.benchmark.name}",
        summary=f"{part.described}: error against the number of training samples",
        notice=f"{missing} trainings failed or are not finished." if missing else "",
        headline=[
            (f"mean relative L² error, {name}", scientific(e)) for name, e in part.errors.items()
        ],
        sections=[part.main(), part.what(), reproduction_section(rows, text, command, declared)],
    )
    write_tables(report, run.folder, _TITLE)
    return report.write(run.folder)


@dataclass(frozen=True)
class _Part:
    """Sections of the report, computed from the finished rows of each dataset."""

    run: BenchmarkRun
    rows: dict[str, list[Row]]

    @cached_property
    def experiment(self) -> Experiment:
        """Experiment of the first dataset."""
        return next(iter(self.run.benchmark.datasets.values())).load()

    @cached_property
    def numbers(self) -> dict[str, int | None]:
        """Number of distinct training samples, keyed by dataset; None for an unlimited stream."""
        datasets = self.run.benchmark.datasets
        return {name: datasets[name].load().data.samples for name in self.rows}

    @cached_property
    def errors(self) -> dict[str, float]:
        return {name: mean_and_spread(rows)[0] for name, rows in self.rows.items()}

    @property
    def described(self) -> str:
        """Summary of the experiment, or what all datasets change in it."""
        (first, *others), grid = self.run.benchmark.datasets.values(), self._map
        same = {
            key: value
            for key, value in first.overrides.items()
            if all(key in other.overrides and other.overrides[key] == value for other in others)
        }
        return described(load_experiment(first.experiment).with_overrides(same), grid)

    @property
    def _map(self) -> str:
        """The learned map, such as "a → u on 128 points"."""
        inputs, targets = map(listed, self.experiment.variables)
        samples = self.run.source(next(iter(self.run.stores))).samples("test", noise=None)
        resolution = self.experiment.data.finest_resolution
        return f"{inputs} → {targets} on {points(resolution, samples.domain)} points"

    @property
    def steps(self) -> int:
        epoch, training = self.experiment.data.epoch_samples, self.experiment.training
        assert epoch is not None
        return training.epochs * (epoch // training.batch)

    @property
    def seen(self) -> int:
        """Number of samples in all steps together. A sample counts each time it is used."""
        return self.steps * self.experiment.training.batch

    @property
    def stored(self) -> dict[int, float]:
        """Mean errors, keyed by the number of stored samples in ascending order."""
        return dict(sorted((n, self.errors[name]) for name, n in self.numbers.items() if n))

    @property
    def streamed(self) -> float | None:
        """Mean error with an unlimited stream; None if the study has no such dataset."""
        return next((self.errors[name] for name, n in self.numbers.items() if n is None), None)

    def what(self) -> Section:
        store = next(iter(self.run.stores.values()))
        training, model = self.experiment.training, self.experiment.model
        validation, test = map(open_sealed(store).samples_in, ("validation", "test"))
        changed = model.model_dump(mode="json", exclude_defaults=True)
        steps = f"{training.batch} samples per step, evaluated {training.epochs} times"
        same = f"{validation:,} validation and {test:,} test samples of one store"
        facts: Facts = [
            *of_data(store, self._map),
            ("Model", settings({"name": model.name, **changed})),
            ("Steps", f"{self.steps:,} with each number of samples, {steps}"),
            ("Training", settings(training.model_dump(mode="json", exclude={"seed"}))),
            ("The same for all", same),
            (
                "Stored samples",
                "the first ones of the training split, in a new random order in each pass",
            ),
            ("Unlimited", "solved during training, disjoint from the store; each used once"),
            ("Seeds", str(self.run.benchmark.seeds)),
        ]
        return data_section("What was studied", store, facts)

    def main(self) -> Section:
        table: Facts = []
        for name, rows in self.rows.items():
            n, middle = self.numbers[name], median(e for row in rows for e in defined(row.errors))
            which = f"{n:,}" if n else f"unlimited ({self.seen:,})"
            passes = f"{self.seen / n:.3g}" if n else "1"
            loss = scientific(mean(self.run.history(row)[-1].loss for row in rows))
            seconds = duration(mean(row.training_seconds for row in rows))
            table.append((which, error(rows), scientific(middle), loss, passes, seconds))
        if self.rows:
            reference = scientific(self.run.trivial(next(iter(self.rows)))[MEAN])
            table.append(("mean of the targets", reference, "", "", "", ""))
        header = ("distinct samples", "mean error", "median", "last training loss", "passes")
        seeds = ", mean ± deviation over the seeds" if self.run.benchmark.seeds > 1 else ""
        text = (
            "Relative L² error of the test samples, of the checkpoint that the protocol reports"
            f"{seeds}. The training loss ({self.experiment.training.loss.name}) is the mean over "
            "the last epoch."
        )
        tables = (Table(table, (*header, "training")),)
        return Section(_TITLE, (text, *self._lessons()), tables, tuple(self._pictures()))

    def _lessons(self) -> list[str]:
        stored = list(self.stored.items())
        if not stored or self.streamed is None:
            return []
        ratios = {n: f"{e / self.streamed:.2f} times with {n:,} samples" for n, e in stored}
        ends = dict.fromkeys((stored[0][0], stored[-1][0]))
        compared = " and ".join(ratios[n] for n in ends)
        return [f"After the same number of steps, the error is {compared} that of the stream."]

    def _pictures(self) -> list[Picture]:
        if not self.rows:
            return []
        streamed = None if self.streamed is None else (self.seen, self.streamed)
        numbers, errors = list(self.stored), list(self.stored.values())
        figure = figures.error_by_samples(numbers, errors, streamed)
        caption = "Mean test error against the number of distinct samples, at equal steps."
        watched = self.experiment.training.selection_split
        curves = learning(self.run, self.rows, watched, "learning")
        return [picture(figure, "samples", caption), curves]
