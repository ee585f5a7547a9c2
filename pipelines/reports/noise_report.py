"""Writes the report of a noise study."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from pdegen.ownership import write
from pdegen.store.reading import open_sealed
from pipelines.reports.document import Report, Section
from pipelines.reports.noise_captions import captions
from pipelines.reports.noise_curves import error_pictures
from pipelines.reports.noise_pictures import Reconstructions
from pipelines.reports.noise_setting import learned, noise_section, setting
from pipelines.reports.noise_table import UNEXPLAINED, Results
from pipelines.reports.sheets import few
from pipelines.reports.studies import reproduction
from pipelines.runs import reproduction as again
from pipelines.runs.evaluation import provenance
from pipelines.studies.inversions import ALL, CONSTANT, Cell
from pipelines.studies.noise import MEASURES, NoiseStudy
from pipelines.studies.runner import Execution, Row

_HEADLINES = 4  # largest number of levels in the headline


def write_noise_report(study: NoiseStudy, device: torch.device) -> Path:
    """Write report.html, report.md, pictures, tables and measures.csv of a finished study."""
    part, experiment = _NoiseReport(study, device), study.experiment
    write(study.folder / "measures.csv", part.results.csv.encode())
    report = Report(
        title=f"Noise study of {experiment.name}",
        summary=again.described(experiment, learned(study)),
        notice="",
        headline=part.headline(),
        sections=[
            part.errors(),
            part.measures(),
            Section("Reconstructions", pictures=Reconstructions(study, device).pictures()),
            *captions(experiment.name, study.test_levels, part.results.rows),
            noise_section(study),
            setting(part.results),
            part.reproduction(),
        ],
    )
    return report.write(study.folder)


def times(ratio: float) -> str:
    """Text that compares two errors, given their ratio.

    >>> times(1.004), times(2.5)
    ('nearly the same error as', '2.5 times the error of')
    """
    return (
        "nearly the same error as" if f"{ratio:.2g}" == "1" else f"{ratio:.2g} times the error of"
    )


def _listed(levels: Sequence[float], separator: str = ", ") -> str:
    return separator.join(f"{level:g}" for level in levels)


@dataclass(frozen=True)
class _NoiseReport:
    """Sections of the report of a finished study."""

    study: NoiseStudy
    device: torch.device

    @cached_property
    def results(self) -> Results:
        """Rows of the models of seed 0, first with the true noise level, then with assumed wrong
        levels; of corrected models, the constant and classical methods."""
        study, how = self.study, Execution(self.device)
        models = [model for model in study.models + study.with_wrong_level if model.seed == 0]
        return Results(study, {
            method: [[study.row(c, how) for c in cells] for cells in study.tests(method)]
            for method in (*models, *study.corrected, Cell(CONSTANT), *study.classical)
        })  # fmt: skip

    def headline(self) -> list[tuple[str, str]]:
        """The smallest error at each of a few test levels, or levels of noise on training targets,
        of all methods on the samples that they share."""
        study, results = self.study, self.results
        group = results.groups[-1]
        if study.on_targets:
            trained = {
                level: [m for m in group.methods if m.method == level]
                for level in few(study.train_levels, _HEADLINES)
            }
            return [
                results.headline(
                    f"training targets of noise {study.word(level)}",
                    replace(group, methods=methods), 0,
                )
                for level, methods in trained.items()
            ]  # fmt: skip
        return [
            results.headline(f"test level {study.word(study.test_levels[at])}", group, at)
            for at in few(range(len(study.test_levels)), _HEADLINES)
        ]

    def errors(self) -> Section:
        """Section about the error of each method at each test level: figures, then tables."""
        study, results, error = self.study, self.results, MEASURES["errors"]
        total, groups = len(study.truth), results.groups
        text = [
            f"{error.title}: {error.meaning} Means over the first n test samples, of errors that "
            "are averaged over the seeds; ± is half of Student's 95 % interval of the mean over "
            "the samples, here and in all of this report.",
            *self._lessons(),
            "Differences are paired: the mean, over the same samples, of the error minus that of "
            "the method with the smallest mean error at the level that has not failed.",
        ]
        if study.seeds > 1:
            text.append(
                "seeds: standard deviation, over the seeds, of the mean error over the samples."
            )
        if study.classical or study.corrected:
            text.append(
                "converged: number of samples on which the steps of a method ended by its "
                "criterion; others ended at a limit, or where no step length decreased the "
                "objective."
            )
        if len(groups) > 1:
            text.append(
                f"Classical methods and corrected models are tested on the first "
                f"{groups[1].samples} of the {total} test samples. Figures and a table of their "
                "own compare all methods on these samples."
            )
        failed = results.failure_table()
        if failed is not None:
            text.append(
                "A method failed where its error is larger than that of the constant on the same "
                f"samples. An inversion also failed where its misfit is {UNEXPLAINED:g} or more: "
                "the noise explains 1. A weight that is the smallest or largest of its grid may "
                "have a better one beyond."
            )
        tables = (*map(results.error_table, groups), *([failed] if failed else []))
        return Section("Errors", tuple(text), tables, error_pictures(results), pictures_first=True)

    def measures(self) -> Section:
        """Section about all other measures, and the costs of classical methods."""
        study, results = self.study, self.results
        text = [*results.meanings]
        if study.classical or study.corrected:
            fewest = min(study.inversion_samples, len(study.truth))
            text.append(
                f"Misfits of all methods are over the first {fewest} test samples. seconds: "
                "processor time of one sample, samples one after another. solves: systems of "
                "equations of any size for one sample, tangents and adjoints included."
            )
        if study.corrected:
            text.append(
                "A corrected model is a model whose prediction starts steps of "
                f"{study.inversions.corrector}; seconds count both, for seed 0. pays after: number "
                "of inversions that save the time of the training and of generating its training "
                "and validation samples."
            )
        tables = (results.measure_table(), results.cost_table(Execution(self.device)))
        kept = tuple(table for table in tables if len(table.header) > 3 and table.rows)
        return Section("Other measures and costs", tuple(text), kept)

    def _lessons(self) -> list[str]:
        """Sentences that compare the errors of the models trained at the lowest level, at the
        highest level and at all levels."""
        tests, study = self.study.test_levels, self.study
        levels = [v for v in study.train_levels if not isinstance(v, tuple)]
        ranged = len(levels) < len(study.train_levels)
        sentences = [self._of_all(name) for name in study.experiments if ranged]
        if not levels:
            return []
        worst, first = tests.index(max(tests)), tests.index(min(tests))
        low, high = min(levels), max(levels)
        if low == high:
            return sentences
        lowest, highest = study.word(low), study.word(high)
        for operator in study.experiments:
            least, most = (Cell(level, operator=operator) for level in (low, high))
            model = self._model(operator)
            if study.on_targets:
                sentences.append(
                    f"With training targets of noise {highest}, {model} has "
                    f"{times(self._ratio(most, least, 0))} {model} with training targets of noise "
                    f"{lowest}."
                )
                continue
            sentences.append(
                f"At test level {study.word(tests[worst])}, {model} trained at {lowest} has "
                f"{times(self._ratio(least, most, worst))} {model} trained at {highest}. At test "
                f"level {study.word(tests[first])}, {model} trained at {highest} has "
                f"{times(self._ratio(most, least, first))} {model} trained at {lowest}."
            )
        return sentences

    def _ratio(self, method: Cell, other: Cell, at: int) -> float:
        """Ratio of the mean errors of two methods over all test samples."""
        divisor = self.results.mean(other, at)
        return self.results.mean(method, at) / divisor if divisor else math.nan

    def _model(self, operator: str) -> str:
        """Words for a model with an operator: its name if there are several operators."""
        several = len(self.study.experiments) > 1
        return self.study.operator(Cell(0.0, operator=operator)) if several else "the model"

    def _of_all(self, operator: str) -> str:
        """Sentence that compares the model trained at all levels with models trained at one
        level."""
        study = self.study
        (every,) = (v for v in study.train_levels if isinstance(v, tuple))
        at_all = Cell(every, operator=operator)
        ratios = [
            f"{self._ratio(at_all, Cell(level, operator=operator), at):.3g} at {study.word(level)}"
            for at, level in enumerate(study.test_levels)
            if level in study.train_levels
        ]
        if not ratios:
            return "No level was both trained and tested, so all levels compare with no single one."
        of = f" of {self._model(operator)}" if len(study.experiments) > 1 else ""
        return (
            f"Error of the training{of} at all levels, divided by that of the training at the test "
            f"level: {', '.join(ratios)}."
        )

    def _operators(self) -> list[str]:
        """Options of the command that name the operators, and settings that are not defaults."""
        study = self.study
        words = [word for e in study.operators for word in ("--model", e.model.name)]
        for variant in study.operators:
            if variant.model.name != study.experiment.model.name:
                words += again.operator_changes(study.experiment, variant)
        return words

    def reproduction(self) -> Section:
        study, experiment = self.study, self.study.experiment
        run = again.reproduction(experiment, open_sealed(study.store))
        if study.operators:
            run += f" {shlex.join(self._operators())}"
        options = {
            "--train-levels": ",".join(
                ALL if isinstance(level, tuple) else f"{level:g}" for level in study.train_levels
            ),
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
        text = "This command runs the study again."
        return reproduction(rows, text, command, f"# experiment\n{content}")
