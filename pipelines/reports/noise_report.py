"""Writes the report of a noise study."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from operators.training.files import write
from pdegen.store.reading import open_sealed
from pipelines.config.registry import InputNoise
from pipelines.reports.document import Report, Section, Table
from pipelines.reports.noise_captions import captions
from pipelines.reports.noise_curves import error_pictures
from pipelines.reports.noise_pictures import Reconstructions
from pipelines.reports.noise_table import csv, meanings, results
from pipelines.reports.studies import Facts, of_data, reproduction
from pipelines.reports.wording import part_of, settings
from pipelines.runs import reproduction as again
from pipelines.runs.evaluation import provenance
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import ALL, CONSTANT, Cell, word
from pipelines.studies.noise_measures import MEASURES
from pipelines.studies.row import Row, mean_and_spread
from pipelines.studies.runner import Execution

_MANY = 100  # samples; a mean over fewer is no headline


def write_noise_report(study: NoiseStudy, device: torch.device) -> Path:
    """Write report.html, report.md, pictures, tables and measures.csv of a finished study."""
    part, experiment = _NoiseReport(study, device), study.experiment
    write(study.folder / "measures.csv", csv(study, part.rows).encode())
    whole = [method for method, (seeds, *_) in part.rows.items() if part.is_whole(seeds)]
    errors = part.errors[[list(part.rows).index(method) for method in whole], :, 0]
    report = Report(
        title=f"Noise study of {experiment.name}",
        summary=again.described(experiment),
        notice="",
        headline=part.headline(whole, errors),
        sections=[
            part.setting(),
            part.matrix(),
            part.results(),
            *captions(experiment.name, study.test_levels, part.rows),
            Section("Reconstructions", pictures=Reconstructions(study, device).pictures()),
            part.reproduction(),
        ],
    )
    return report.write(study.folder)


def _of_kind(noise: InputNoise) -> dict[str, Any]:
    return noise.model_dump(mode="json", exclude={"level", "fresh"}, exclude_none=True)


def reported_epoch(study: NoiseStudy) -> str:
    """Text for the epoch whose errors are reported, which the protocol determines."""
    noise = "without noise" if study.on_targets else "with the training noise"
    if study.experiment.training.protocol == "published":
        return f"the last; test samples {noise} were watched during training"
    return f"the best on validation samples {noise}"


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


def _trained(study: NoiseStudy, separator: str = ", ") -> str:
    words = [ALL if isinstance(level, tuple) else f"{level:g}" for level in study.train_levels]
    return separator.join(words)


@dataclass(frozen=True)
class _NoiseReport:
    """Sections of the report of a finished study."""

    study: NoiseStudy
    device: torch.device

    @cached_property
    def rows(self) -> dict[Cell, list[list[Row]]]:
        """Rows of each method. The outer list is over the test levels, the inner list over the
        seeds."""
        study, how = self.study, Execution(self.device)
        return {
            method: [[study.row(c, how) for c in cells] for cells in study.tests(method)]
            for method in (*self.trained, *study.corrected, Cell(CONSTANT), *study.classical)
        }

    def headline(self, whole: Sequence[Cell], errors: np.ndarray) -> list[tuple[str, str]]:
        """The smallest error at each test level, or at each level of noise on training targets.

        Args:
            whole: Methods that are evaluated on all test samples.
            errors: Their mean errors, shape (methods, test levels).
        """
        study = self.study
        if study.on_targets:
            places = [(f"training targets of noise {word(v)}", v) for v in study.train_levels]
            chosen = [(w, [i for i, m in enumerate(whole) if m.method == v], 0) for w, v in places]
        else:
            among = "" if len(whole) == len(self.rows) else " without classical methods"
            chosen = [
                (f"test level {level:g}{among}", list(range(len(whole))), at)
                for at, level in enumerate(study.test_levels)
            ]
        lines = list[tuple[str, str]]()
        for where, rows, at in chosen:
            best = min(rows, key=lambda i, at=at: errors[i, at])
            name = study.label(whole[best])
            lines.append((f"smallest mean error at {where} ({name})", f"{errors[best, at]:.3g}"))
        return lines

    def is_whole(self, seeds: list[Row]) -> bool:
        """Whether the rows of all seeds cover all test samples. The headline compares only such
        methods."""
        return all(len(row.errors) == len(self.study.truth) for row in seeds)

    @property
    def trained(self) -> list[Cell]:
        """Cells of the models of seed 0: first with the true noise level, then with assumed wrong
        levels."""
        return [
            model for model in self.study.models + self.study.with_wrong_level if model.seed == 0
        ]

    @cached_property
    def errors(self) -> np.ndarray:
        """Mean error and its standard deviation over the seeds, shape (methods, levels, 2)."""
        rows = self.rows.values()
        return np.array([[mean_and_spread(seeds) for seeds in levels] for levels in rows])

    @property
    def _few(self) -> int:
        """Number of test samples on which classical methods are evaluated."""
        return min(self.study.inversion_samples, len(self.study.truth))

    def setting(self) -> Section:
        study, experiment = self.study, self.study.experiment
        assert experiment.noise is not None
        fresh, data = experiment.noise.fresh, experiment.data
        points, cells = f"{data.finest_resolution}{self._power} points", "the same points"
        if data.target_resolution is not None:
            cells = f"{data.target_resolution}{self._power} cells"
        input, target = study.names
        learned = f"{input} on {points} → {target} on {cells}"
        seeds = f"{study.seeds} seed{'s' if study.seeds > 1 else ''} each"
        stored = open_sealed(study.store).samples_in("train")
        few = f"; classical methods use the first {self._few}" if study.classical else ""
        samples = f"{part_of(data.samples, stored)}, {experiment.training.epochs} epochs"
        facts: Facts = [
            *of_data(study.store, learned),
            *(
                [("Operators", ", ".join(e.model.name for e in study.operators))]
                if study.operators
                else []
            ),
            ("Noise", settings(_of_kind(experiment.noise))),
            *self._unknown(),
            *self._drawn(fresh),
            ("Trainings", f"levels {_trained(study)}; {seeds}; {samples}"),
            ("Reported epoch", reported_epoch(study)),
            ("Test samples", f"{len(study.truth)}{few}"),
            (CONSTANT.capitalize(), f"predicts the mean of {target} over training samples"),
            *((method.name.capitalize(), self._classical(method)) for method in study.classical),
        ]
        return Section("Setting", tables=(Table(facts),))

    def _drawn(self, fresh: bool) -> Facts:
        """Facts about the draws of the noise."""
        noise = self.study.experiment.noise
        assert noise is not None
        facts = list[tuple[str, ...]]()
        if noise.on_inputs:
            facts += [
                ("Training noise", "new in every epoch" if fresh else "drawn once"),
                ("Validation and test noise", "drawn once, independent of the training noise"),
            ]
        if noise.on_targets:
            facts += [
                ("Noise of the training targets", "drawn once for each sample"),
                ("Validation and test targets", "without noise"),
            ]
        return facts

    def _unknown(self) -> Facts:
        """Facts about the properties of the noise that methods do not know, and about the grids of
        classical methods."""
        study, facts = self.study, list[tuple[str, ...]]()
        level = study.test_levels[0]
        noise = study.noise(level).build()
        if study.test_kind is not None:
            kind = settings(_of_kind(study.tested(level)))
            facts.append(("Noise of the test samples", f"{kind}; no method knows this kind"))
        elif noise.lost and study.classical:
            facts.append(("Unknown to classical methods", noise.lost))
        if not study.classical:
            reason = study.inversions.absent
            return [*facts, ("Classical methods", f"none: {reason}")] if reason else facts
        points, cells = study.experiment.data.finest_resolution, study.inversions.setting.cells
        grid = f"{cells}{self._power} {'points' if study.values is None else 'cells'}"
        facts.append(("Classical methods", f"data on {points}{self._power} points → {grid}"))
        return facts

    @property
    def _power(self) -> str:
        """Exponent to write after the number of points along an axis: "²" in two dimensions."""
        return "" if self.study.source.samples("test", noise=None).dim == 1 else "²"

    def _classical(self, part: Cell) -> str:
        """Text about a classical method: its purpose, its weights, and the error of its forward
        model relative to noise-free data."""
        assert isinstance(part.method, str)
        method, sentences = self.study.inversions.methods[part.method], list[str]()
        if part.assumed_level == 1:
            sentences.append(method.reason)
        if len(method.weights) > 1:
            weights = {row.weight for row, *_ in self.rows[part] if row.weight is not None}
            sentences.append(f"weight {_listed(sorted(weights))}, chosen on validation samples")
        if method.model_error is not None and part.assumed_level == 1:
            share = f"{method.model_error():.2g}"
            sentences.append(
                f"its model differs from noise-free data by {share} of their deviation"
            )
        return ". ".join(f"{words[0].upper()}{words[1:]}" for words in sentences)

    def results(self) -> Section:
        """Section with a single table: measures, seconds and solves of each method at each test
        level."""
        study = self.study
        text = [
            "Means over the test samples and seeds; ± is half of the 95 % interval of the mean "
            "error over the samples.",
            *meanings(self.rows),
            "seconds: processor time of one sample, samples one after another. solves: systems of "
            "equations of any size for one sample, tangents and adjoints included.",
        ]
        if study.classical or study.corrected:
            text.append(
                "Rows of classical methods and of corrected models, and misfits of all methods, "
                f"are over the first {self._few} of the test samples."
            )
        if study.corrected:
            text.append(
                "A corrected model is a model whose prediction starts steps of "
                f"{study.inversions.corrector}; seconds count both, for seed 0. pays after: number "
                "of inversions that save the time of the training and of generating its training "
                "and validation samples."
            )
        if study.classical and self._few < _MANY:
            text.append(
                f"Classical methods have only {self._few} test samples: too few for a headline."
            )
        return Section("Results", tuple(text), (results(study, self.rows, Execution(self.device)),))

    def matrix(self) -> Section:
        """Section about the error of each method at each test level, drawn as a matrix and as
        curves."""
        study, error = self.study, MEASURES["errors"]
        means, spreads = np.moveaxis(self.errors, -1, 0)
        average = "Mean over the test samples and seeds ± deviation over the seeds."
        text = (f"{error.title}: {error.meaning} {average}", *self._lessons(means))
        several = len(study.test_levels) > 1
        title = "Trained at one level, tested at another" if several else "Errors"
        pictures = error_pictures(study, list(self.rows), means, spreads)
        return Section(title, text, pictures=pictures)

    def _lessons(self, means: np.ndarray) -> list[str]:
        """Sentences that compare the errors of the models trained at the lowest level, at the
        highest level and at all levels."""
        tests = self.study.test_levels
        levels = [v for v in self.study.train_levels if not isinstance(v, tuple)]
        ranged = len(levels) < len(self.study.train_levels)
        sentences = [self._of_all(means, name) for name in self.study.experiments if ranged]
        if not levels:
            return []
        worst, first = tests.index(max(tests)), tests.index(min(tests))
        low, high = min(levels), max(levels)
        if low == high:
            return sentences
        for operator in self.study.experiments:
            least, most = (self._row(Cell(level, operator=operator)) for level in (low, high))
            model = self._model(operator)
            if self.study.on_targets:
                ratio = times(means[most, 0] / means[least, 0])
                sentences.append(
                    f"With training targets of noise {high:g}, {model} has {ratio} {model} with "
                    f"training targets of noise {low:g}."
                )
                continue
            at_worst = times(means[least, worst] / means[most, worst])
            at_first = times(means[most, first] / means[least, first])
            sentences.append(
                f"At test level {tests[worst]:g}, {model} trained at {low:g} has {at_worst} "
                f"{model} trained at {high:g}. At test level {tests[first]:g}, {model} trained at "
                f"{high:g} has {at_first} {model} trained at {low:g}."
            )
        return sentences

    def _row(self, method: Cell) -> int:
        """Number of the row of a method in the table of means."""
        return list(self.rows).index(method)

    def _model(self, operator: str) -> str:
        """Words for a model with an operator: its name if there are several operators."""
        several = len(self.study.experiments) > 1
        return self.study.operator(Cell(0.0, operator=operator)) if several else "the model"

    def _of_all(self, means: np.ndarray, operator: str) -> str:
        """Sentence that compares the model trained at all levels with models trained at one
        level."""
        study = self.study
        (every,) = (v for v in study.train_levels if isinstance(v, tuple))
        all_levels = self._row(Cell(every, operator=operator))
        ratios = [
            f"{means[all_levels, at] / means[self._row(Cell(level, operator=operator)), at]:.3g} "
            f"at {level:g}"
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
        text = "This command runs the study again."
        return reproduction(rows, text, command, f"# experiment\n{content}")
