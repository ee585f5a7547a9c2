"""What a report says of a noise study."""

import math
import shlex
from collections.abc import Sequence
from csv import writer
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from operators.training.files import write
from pdegen.store.reading import open_sealed
from pipelines.config.registry import InputNoise
from pipelines.reports import study_charts as charts
from pipelines.reports.document import Report, Section, Table
from pipelines.reports.figures import picture
from pipelines.reports.noise_pictures import Reconstructions
from pipelines.reports.studies import Facts, of_data, reproduction
from pipelines.reports.wording import part_of, settings
from pipelines.runs import reproduction as again
from pipelines.runs.evaluation import provenance
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import ALL, CONSTANT, Cell
from pipelines.studies.noise_measures import MEASURES
from pipelines.studies.row import Row, interval, mean_and_spread
from pipelines.studies.runner import Execution

_MANY = 100  # samples, from which on a mean is fit for a headline
_LEVEL = "noise level of the test samples"


def write_noise_report(study: NoiseStudy, device: torch.device) -> Path:
    """Write report.html, report.md, pictures, tables and measures.csv of a finished study."""
    part, experiment = _Part(study, device), study.experiment
    write(study.folder / "measures.csv", part.csv().encode())
    compared = [name for name, (seeds, *_) in part.rows.items() if part.is_whole(seeds)]
    errors = part.pairs("errors")[[list(part.rows).index(name) for name in compared], :, 0]
    best = [compared[i] for i in errors.argmin(axis=0)]
    report = Report(
        title=f"Noise study of {experiment.name}",
        summary=again.described(experiment),
        notice="",
        headline=[
            (f"smallest mean error at test level {level:g} ({name})", f"{mean:.3g}")
            for level, name, mean in zip(study.test_levels, best, errors.min(axis=0), strict=True)
        ],
        sections=[
            part.what(),
            part.matrix(),
            part.measured(),
            part.costs(),
            Section("Reconstructions", pictures=Reconstructions(study, device).pictures()),
            part.reproduction(),
        ],
    )
    return report.write(study.folder)


def _of_kind(noise: InputNoise) -> dict[str, Any]:
    return noise.model_dump(mode="json", exclude={"level", "fresh"}, exclude_none=True)


def _word(pair: list[float]) -> str:
    mean, spread = pair
    return f"{mean:.3g} ± {spread:.2g}" if spread else f"{mean:.3g}"


def times(ratio: float) -> str:
    """How much one error is of another.

    >>> times(1.004), times(2.5)
    ('as much', '2.5 times as much')
    """
    return "as much" if f"{ratio:.2g}" == "1" else f"{ratio:.2g} times as much"


def _listed(levels: Sequence[float], separator: str = ", ") -> str:
    return separator.join(f"{level:g}" for level in levels)


def _trained(study: NoiseStudy, separator: str = ", ") -> str:
    words = [ALL if isinstance(level, tuple) else f"{level:g}" for level in study.train_levels]
    return separator.join(words)


@dataclass(frozen=True)
class _Part:
    """What a report says of a finished study."""

    study: NoiseStudy
    device: torch.device

    @cached_property
    def rows(self) -> dict[str, list[list[Row]]]:
        study, how = self.study, Execution(self.device)
        return {
            method.name: [[study.row(c, how) for c in cells] for cells in study.tests(method)]
            for method in (*self.trained, *study.corrected, Cell(CONSTANT), *study.classical)
        }

    def is_whole(self, seeds: list[Row]) -> bool:
        """Whether rows are of all test samples; a headline compares no others with them."""
        return all(len(row.errors) == len(self.study.truth) for row in seeds)

    @property
    def trained(self) -> list[Cell]:
        """The trainings of seed 0; those that know the level also as they are told another one."""
        return [model for model in self.study.models + self.study.misled if model.seed == 0]

    def pairs(self, measure: str) -> np.ndarray:
        rows = self.rows.values()
        return np.array([[mean_and_spread(seeds, measure) for seeds in row] for row in rows])

    def what(self) -> Section:
        study, experiment = self.study, self.study.experiment
        assert experiment.noise is not None
        fresh, data = experiment.noise.fresh, experiment.data
        count = min(study.inversion_samples, len(study.truth))
        points, cells = f"{data.resolution}{self._power} points", "the same"
        if data.target_resolution is not None:
            cells = f"{data.target_resolution}{self._power} cells"
        learned = f"{data.input} on {points} → {data.target} on {cells}"
        seeds = f"{study.seeds} seed{'s' if study.seeds > 1 else ''} each"
        start, stop = open_sealed(study.store).metadata.splits["train"]
        samples = f"{part_of(data.samples, stop - start)}, {experiment.training.epochs} epochs"
        facts: Facts = [
            *of_data(study.store, learned),
            ("Noise", settings(_of_kind(experiment.noise))),
            *self._told(),
            ("In training", "fresh in every epoch" if fresh else "frozen: drawn once"),
            ("In validation and test", "frozen, of other samples than the training noise"),
            ("Trainings", f"levels {_trained(study)}, {seeds}, on {samples}"),
            ("Epoch reported", "chosen on validation samples with the noise of training"),
            ("Test samples", f"{len(study.truth)}; classical methods on the first {count}"),
            (CONSTANT.capitalize(), f"the mean of {data.target} over the training samples"),
            *((method.name.capitalize(), self._classical(method)) for method in study.classical),
        ]
        return Section("What was studied", tables=(Table(facts),))

    def _told(self) -> Facts:
        """What methods are not told of the noise, and where they find the coefficient."""
        study, facts = self.study, list[tuple[str, ...]]()
        level = study.test_levels[0]
        told = study.noise(level).build()
        if study.test_kind is not None:
            said = f"{settings(_of_kind(study.tested(level)))}: another kind than all methods know"
            facts.append(("Noise in test", said))
        elif told.lost:
            facts.append(("Not told of it", f"to classical methods: {told.lost}"))
        points, cells = study.experiment.data.resolution, study.inversions.setting.cells
        found = f"{cells}{self._power} {'points' if study.values is None else 'cells'}"
        facts.append(("Classical methods", f"data on {points}{self._power} points → {found}"))
        return facts

    @property
    def _power(self) -> str:
        """Of the dimension, on numbers of points of an axis."""
        return "" if self.study.source.samples("test", noise=None).dim == 1 else "²"

    def _classical(self, part: Cell) -> str:
        """Why one would take a method, its weights, and how far its model is from the data."""
        assert isinstance(part.method, str)
        method, said = self.study.inversions.methods[part.method], list[str]()
        if part.assumed_level == 1:
            said.append(method.why)
        if len(method.weights) > 1:
            weights = {row.weight for row, *_ in self.rows[part.name] if row.weight is not None}
            said.append(f"weight {_listed(sorted(weights))}: chosen on validation samples")
        if method.missed is not None and part.assumed_level == 1:
            said.append(f"its model misses known data by {method.missed():.2g} of their deviation")
        return ". ".join(f"{one[0].upper()}{one[1:]}" for one in said)

    def costs(self) -> Section:
        """Errors, seconds and solves of the classical methods, alone and after a model."""
        study, how = self.study, Execution(self.device)
        said = (
            "Means over the test samples, with half of the 95 % interval of the mean error. "
            "Seconds are of one processor, one sample after another; solves count systems of "
            "equations of any size, tangents and adjoints included."
        )
        if study.corrected:
            said += (
                f" A corrected model is the start of steps of {study.inversions.corrector}; the "
                "seconds are of its answer and these steps, seed 0. It has paid after so many "
                "inversions: the seconds of its training, and of solving its training and "
                "validation samples, over those that an inversion saves."
            )
        few = min(study.inversion_samples, len(study.truth))
        if few < _MANY:
            said += f" Only {few} samples: too few for a headline."
        table = list[tuple[str, ...]]()
        for method in (*study.corrected, *study.classical):
            for level, (row, *_) in zip(study.test_levels, self.rows[method.name], strict=True):
                error = f"{row.mean:.3g} ± {interval(row.errors):.1g}"
                seconds, solves = f"{row.inference_seconds:.2g}", f"{row.solves:.0f}"
                paid = ""
                if method.corrected:
                    number = study.pays_after(replace(method, at=level), how)
                    paid = f"{number:.3g}" if math.isfinite(number) else "never"
                table.append((method.name, f"{level:g}", error, seconds, solves, paid))
        header = (
            "method",
            "level",
            "error",
            "seconds a sample",
            "solves a sample",
            "pays after inversions",
        )
        return Section(
            "Classical methods, alone and after a model", (said,), (Table(table, header),)
        )

    def matrix(self) -> Section:
        error = MEASURES["errors"]
        means, spreads = np.moveaxis(self.pairs("errors"), -1, 0)
        words, names = [f"{level:g}" for level in self.study.test_levels], list(self.rows)
        said = "Mean over the test samples and seeds ± deviation over the seeds."
        text = (f"{error.title}: {error.meaning} {said}", *self._lessons(means))
        if len(words) == 1:
            figure = charts.dots(dict(zip(names, means[:, 0], strict=True)), spreads[:, 0].tolist())
            caption = f"Mean relative L² error at noise level {words[0]}, the only one tested."
            return Section("Errors", text, pictures=(picture(figure, "levels", caption),))
        places = range(len(words))
        series = {name: (places, row) for name, row in zip(names, means.tolist(), strict=True)}
        ticks = dict(zip(places, words, strict=True))
        figure = charts.curves(series, _LEVEL, ticks=ticks, spreads=spreads.tolist())
        heat = charts.heat_map(means, spreads, names, words, _LEVEL)
        return Section(
            "Trained at one level, tested at another",
            text,
            pictures=(
                picture(heat, "matrix", "Mean relative L² error by training and test level."),
                picture(figure, "levels", "The same against the noise level of the test samples."),
            ),
        )

    def _lessons(self, means: np.ndarray) -> list[str]:
        """Sentences that the numbers themselves give."""
        tests = self.study.test_levels
        levels = [v for v in self.study.train_levels if not isinstance(v, tuple)]
        found = [self._of_all(means)] if len(levels) < len(self.study.train_levels) else []
        if not levels:
            return []
        worst, first = tests.index(max(tests)), tests.index(min(tests))
        least, most = (self.study.train_levels.index(level) for level in (min(levels), max(levels)))
        if least == most:
            return found
        return [
            *found,
            f"Tested at {tests[worst]:g}, the model trained at {levels[least]:g} errs "
            f"{times(means[least, worst] / means[most, worst])} as the one trained at "
            f"{levels[most]:g}; tested at {tests[first]:g}, the latter errs "
            f"{times(means[most, first] / means[least, first])} as the former.",
        ]

    def _of_all(self, means: np.ndarray) -> str:
        """How one training at all levels compares with one at each."""
        study, names = self.study, list(self.rows)
        (every,) = (Cell(v).name for v in study.train_levels if isinstance(v, tuple))
        said = [
            f"{means[names.index(every), at] / means[names.index(Cell(level).name), at]:.3g} "
            f"at {level:g}"
            for at, level in enumerate(study.test_levels)
            if level in study.train_levels
        ]
        where = f": {', '.join(said)}" if said else ": no level was trained for and tested"
        return (
            f"Error of the one training at all levels, by that of the training at a level{where}."
        )

    def measured(self) -> Section:
        """All measures beside the error, of the methods that have them."""
        table, meanings = list[tuple[str, ...]](), list[str]()
        for name, measure in MEASURES.items():
            rows = [
                (measure.title, method, *map(_word, pairs))
                for method, pairs in zip(self.rows, self.pairs(name).tolist(), strict=True)
                if name != "errors" and any(math.isfinite(mean) for mean, _ in pairs)
            ]
            table += rows
            meanings += [f"{measure.title}: {measure.meaning}"] if rows else []
        header = ("measure", "method", *(f"at {level:g}" for level in self.study.test_levels))
        return Section("Other measures", (*meanings,), (Table(table, header),))

    def csv(self) -> str:
        """Every measure of every method at every level: mean, and deviation over the seeds."""
        lines = [("method", "level", "measure", "mean", "deviation over seeds")]
        for measure in MEASURES:
            for name, row in zip(self.rows, self.pairs(measure).tolist(), strict=True):
                for level, (mean, spread) in zip(self.study.test_levels, row, strict=True):
                    if math.isfinite(mean):
                        lines.append((name, f"{level:g}", measure, f"{mean:.6g}", f"{spread:.6g}"))
        text = StringIO()
        writer(text, lineterminator="\n").writerows(lines)
        return text.getvalue()

    def reproduction(self) -> Section:
        study, experiment = self.study, self.study.experiment
        run = again.reproduction(experiment, open_sealed(study.store))
        options = {
            "--train-levels": _trained(study, ","),
            "--test-levels": _listed(study.test_levels, ","),
            "--seeds": str(study.seeds),
            "--inversion-samples": str(study.inversion_samples),
            "--assumed-level": _listed(study.assumed_levels, ","),
            **({} if study.test_kind is None else {"--test-kind": study.test_kind}),
            **({} if study.cells is None else {"--cells": str(study.cells)}),
        }
        chosen = [word for name in study.only for word in ("--method", name)]
        words = shlex.join([*(word for pair in options.items() for word in pair), *chosen])
        command = f"{run.replace('pdegen run', 'pdegen study noise', 1)} {words}"
        content = again.toml(experiment.model_dump(mode="json", exclude_none=True))
        rows = [Row(provenance=provenance(self.device))]
        said = "This command runs it again."
        return reproduction(rows, said, command, f"# experiment\n{content}")
