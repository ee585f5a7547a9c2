"""Writes the report of a noise study."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from pdegen import __version__
from pdegen.files import write
from pdegen.generation.generate import RecipeJob
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import InputNoise, physics_of
from pipelines.reports.benchmark_report import Facts, data_section, of_data, reproduction_section
from pipelines.reports.document import (
    Formula,
    Report,
    Section,
    Table,
    number_of,
    part_of,
    settings,
    significant,
)
from pipelines.reports.fields import few
from pipelines.reports.noise_pictures import Reconstructions, error_pictures
from pipelines.reports.noise_table import CALIBRATION, UNEXPLAINED, Results, Rows
from pipelines.reports.published import captions, published_section
from pipelines.runs import reproduction
from pipelines.runs.data import InOrder, NoisyTargets
from pipelines.runs.evaluation import provenance
from pipelines.studies.inversions import ALL, CONSTANT, NONE, Cell
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution, Row
from pipelines.studies.scores import BANDS_TEXT, MEASURES


def noise_section(study: NoiseStudy) -> Section:
    """The formula of the noise, and its standard deviation and signal-to-noise ratio at each
    level."""
    levels = study.train_levels if study.on_targets else (*study.test_levels, *study.train_levels)
    single = sorted({level for level in levels if not isinstance(level, tuple)})
    kinds = {"trained and assumed": [study.noise(level) for level in single]}
    for name, condition in study.conditions.items():
        if condition.noise:
            noises = [study.tested(level, name) for level in study.test_levels]
            kinds[f"under {name}"] = list({noise.level: noise for noise in noises}.values())
    formulas, text, tables = list[Formula](), list[str](), list[Table]()
    name = study.names[1 if study.on_targets else 0]
    for role, noises in kinds.items():
        model, which = noises[0].build(), f" ({role})" * (len(kinds) > 1)
        formulas.append(Formula(f"Noise of {name}{which}", model.latex))
        stands = "" if name == "u" else f"u stands for {name}. "
        text.append(f"{stands}ε: the level, in {model.unit}; {model.meaning}.")
        tables.append(Table(*_sizes(study, noises), name=f"{noises[0].kind}{which}"))
    samples = "training targets" if study.on_targets else "test samples"
    text.append(
        f"The standard deviation s of the noise and the signal-to-noise ratio 10 log₁₀(mean u² / "
        f"s²) are measured on the {samples}."
    )
    return Section("Noise", tuple(dict.fromkeys(text)), tuple(tables), formulas=tuple(formulas))


def _sizes(
    study: NoiseStudy, noises: Sequence[InputNoise]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Lines and header of the table of the sizes of noise at each level."""
    name = study.names[1 if study.on_targets else 0]
    arrays = open_sealed(study.store).arrays
    units = arrays[name].metadata.units if name in arrays else ""
    lines = list[tuple[str, ...]]()
    for noise in noises:
        clean, noisy = _values(study, noise)
        size, signal = (float(np.sqrt(np.mean(v**2))) for v in (noisy - clean, clean))
        spread = float(np.std(clean, axis=0).mean())
        ratio = f"{20 * np.log10(signal / size):.1f}" if size > 0 else "∞"
        share = significant(size / spread) if spread > 0 else ""
        lines.append((f"{noise.level:g}", significant(size), share, ratio))
    unit = noises[0].build().unit
    std = "standard deviation s" + (f", {units}" if units and units != "1" else "")
    return lines, (f"level, {unit}", std, "s / mean σ(x)", "signal-to-noise ratio, dB")


def _values(study: NoiseStudy, noise: InputNoise) -> tuple[np.ndarray, np.ndarray]:
    """Values without and with noise at the points that have a sensor, shape (samples, ...)."""
    if study.on_targets:
        train = study.source.stored("train").resident()
        numbers = train.ids.tolist()
        add = NoisyTargets(noise, study.source.target_std(train), InOrder.of(noise, numbers))
        clean = train.u.double().numpy()
        return clean, add(clean, numbers, None)
    clean, noisy = (
        study.source.samples("test", noise=of).resident().a[..., 0].double().numpy()
        for of in (None, noise)
    )
    sensors = study.inversions.seen(clean.shape[1:])
    return (clean, noisy) if sensors is None else (clean[:, sensors], noisy[:, sensors])


def setting(results: Results) -> Section:
    """Data, methods and trainings."""
    study, experiment = results.study, results.study.experiment
    seeds = f"{number_of(study.seeds, 'seed')} each"
    stored = open_sealed(study.store).samples_in("train")
    epochs = number_of(experiment.training.epochs, "epoch")
    samples = f"{part_of(experiment.data.samples, stored)}, {epochs}"
    assert experiment.noise is not None
    unstated = {"level", "fresh"}
    kind = experiment.noise.model_dump(mode="json", exclude=unstated, exclude_none=True)
    facts: Facts = [
        *of_data(study.store, learned(study)),
        *(
            [("Operators", ", ".join(e.model.name for e in study.operators))]
            if study.operators
            else []
        ),
        ("Noise", settings(kind)),
        *_unknown(study),
        *_drawn(study),
        *(
            [
                (
                    "Trainings",
                    f"levels {', '.join(map(study.word, study.train_levels))}; {seeds}; {samples}",
                ),
                ("Reported epoch", reported_epoch(study)),
            ]
            if study.train_levels
            else []
        ),
        ("Test samples", f"{len(study.truth)}{_fewer(results)}"),
        (CONSTANT.capitalize(), f"predicts the mean of {study.names[1]} over training samples"),
        *((method.name.capitalize(), _classical(results, method)) for method in study.classical),
    ]
    return data_section("Setting", study.store, facts)


def learned(study: NoiseStudy) -> str:
    """The learned map, such as "u on 29² points → a on 15² cells"."""
    data, power = study.experiment.data, exponent(study)
    input, target = study.names
    cells = "the same points"
    if data.target_resolution is not None:
        cells = f"{data.target_resolution}{power} cells"
    return f"{input} on {data.finest_resolution}{power} points → {target} on {cells}"


def exponent(study: NoiseStudy) -> str:
    """Exponent to write after the number of points along an axis: "²" in two dimensions."""
    return {1: "", 2: "²", 3: "³"}[study.source.samples("test", noise=None).dim]


def reported_epoch(study: NoiseStudy) -> str:
    """Text for the epoch whose errors are reported, which the protocol determines."""
    noise = "without noise" if study.on_targets else "with the training noise"
    if study.experiment.training.protocol == "published":
        return f"the last; test samples {noise} were watched during training"
    half = "the first half of the " * study.experiment.training.conformal
    return f"the best on {half}validation samples {noise}"


def _fewer(results: Results) -> str:
    """Text about methods that are tested on fewer samples."""
    every, fewer = len(results.study.truth), results.groups[-1].samples
    return f"; classical methods use the first {fewer}" if fewer < every else ""


def _drawn(study: NoiseStudy) -> Facts:
    """Facts about the draws of the noise."""
    noise = study.experiment.noise
    assert noise is not None
    facts = list[tuple[str, ...]]()
    if noise.on_inputs:
        facts += [
            ("Training noise", "new in every epoch" if noise.fresh else "drawn once"),
            ("Validation and test noise", "drawn once, independent of the training noise"),
        ]
    if noise.on_targets:
        facts += [
            ("Noise of the training targets", "drawn once for each sample"),
            ("Validation and test targets", "without noise"),
        ]
    return facts


def _unknown(study: NoiseStudy) -> Facts:
    """What methods do not know about the noise, and the grids of classical methods."""
    facts = list[tuple[str, ...]]()
    level = study.test_levels[0]
    noise = study.noise(level).build()
    facts += [
        (f"Condition {name}", f"{condition.words}; no method is told")
        for name, condition in study.conditions.items()
    ]
    if noise.lost and study.classical:
        facts.append(("Unknown to classical methods", noise.lost))
    if not study.classical:
        reason = study.inversions.absent
        return [*facts, ("Classical methods", f"none: {reason}")] if reason else facts
    points = f"{study.experiment.data.finest_resolution}{exponent(study)} points"
    facts.append(("Classical methods", f"data on {points} → {_inversion_grid(study)}"))
    return facts


def _inversion_grid(study: NoiseStudy) -> str:
    """The grid on which classical methods reconstruct, such as "43² cells"."""
    where = "points" if study.values is None else "cells"
    return f"{study.inversions.setting.cells}{exponent(study)} {where}"


def _classical(results: Results, part: Cell) -> str:
    """Purpose and weights of a classical method, and the error of its forward model."""
    assert isinstance(part.method, str)
    study, sentences = results.study, list[str]()
    method = study.inversions.methods[part.method]
    if part.assumed_level == 1:
        sentences.append(method.reason)
    if len(method.weights) > 1:
        sentences.append(_weights([row for row, *_ in results.rows[part]], method.weights))
    if method.model_error is not None and part.assumed_level == 1:
        share = f"{method.model_error():.2g}"
        sentences.append(f"its model differs from noise-free data by {share} of their deviation")
    return ". ".join(f"{words[0].upper()}{words[1:]}" for words in sentences)


def _weights(rows: Sequence[Row], grid: Sequence[float]) -> str:
    """Text about the weights that a classical method has at the test levels."""
    chosen = sorted({row.weight for row in rows if row.weight is not None})
    (samples,) = {row.weight_samples for row in rows}
    words, of = (", ".join(f"{weight:g}" for weight in sorted(w)) for w in (chosen, grid))
    text = f"weight {words}, chosen on {samples} validation samples from {of}"
    unconverged = sum(row.weight_unconverged for row in rows)
    note = f"; {unconverged} inversions for this choice did not converge"
    return text + note * bool(unconverged)


_HEADLINES = 4  # largest number of levels in the headline


def write_noise_report(study: NoiseStudy, device: torch.device) -> Path:
    """Write report.html, report.md, pictures, tables, measures.csv and samples.csv of a finished
    study."""
    part, experiment = _NoiseReport(study, device), study.experiment
    write(study.folder / "measures.csv", part.results.csv.encode())
    write(study.folder / "samples.csv", part.results.sample_csv.encode())
    report = Report(
        title=f"Noise study of {experiment.name}",
        summary=reproduction.described(experiment, learned(study)),
        notice="",
        headline=part.headline(),
        sections=[
            part.errors(),
            *published_section(part.results),
            *captions(experiment.name, study.test_levels, part.results.rows),
            Section("Errors against the level", pictures=error_pictures(part.results)),
            *part.calibration(),
            *part.robustness(),
            *part.costs(),
            *part.measures(),
            Section("Reconstructions", pictures=Reconstructions(part.results, device).pictures()),
            noise_section(study),
            setting(part.results),
            part.protocol(),
            part.reproduction(),
        ],
    )
    return report.write(study.folder)


def times(ratio: float) -> str:
    """Text that compares two errors, given their ratio; NaN if the second is 0.

    >>> times(1.004), times(2.5), times(math.nan)
    ('nearly the same error as', '2.5 times the error of', 'no multiple of the error of')
    """
    if math.isnan(ratio):
        return "no multiple of the error of"
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
        levels; of all seeds together, corrected models, the constant and classical methods."""
        study, how = self.study, Execution(self.device)
        models = [model for model in study.models + study.with_wrong_level if model.seed == 0]
        methods = (*models, *study.pooled, *study.corrected, Cell(CONSTANT), *study.classical)

        def rows(condition: str) -> Rows:
            return {
                method: [[study.row(c, how) for c in cells]
                         for cells in study.tests(method, condition)]
                for method in methods
            }  # fmt: skip

        return Results(study, rows(""), {name: rows(name) for name in study.conditions})

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
        """Section about the error of each method at each test level."""
        study, results = self.study, self.results
        total, groups = len(study.truth), results.groups
        error, renamed = MEASURES[results.primary], results.primary != "errors"
        text = [
            f"{error.title}{', here called error' * renamed}: {error.meaning} Means over the first "
            "n test samples, of errors that are averaged over the seeds; ± is half of Student's "
            "95 % interval of the mean over the samples, here and in all of this report.",
            *(
                f"{MEASURES[name].column}: {MEASURES[name].title}. {MEASURES[name].meaning}"
                for name in ("crps", "errors")
                if name in results.measured and name != results.primary
            ),
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
                f"{groups[1].samples} of the {total} test samples. A table and figures of their "
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
        return Section("Errors", tuple(text), tables)

    def calibration(self) -> list[Section]:
        """Section about the uncertainty that methods state; none if no method states any."""
        stated, bands = self.results.calibration_table(), self.results.band_table()
        if not stated.rows and not bands.rows:
            return []
        used = [name for name in CALIBRATION if name in self.results.measured]
        text = [
            f"{MEASURES[name].column or MEASURES[name].title}: {MEASURES[name].meaning}"
            for name in used
        ]
        if bands.rows:
            text += [
                BANDS_TEXT,
                "They are calibrated on the second half of the validation samples, with the noise "
                "of each operator's training; the first half chose its epoch.",
            ]
        tables = tuple(table for table in (stated, bands) if table.rows)
        return [Section("Calibration", tuple(text), tables)]

    def costs(self) -> list[Section]:
        """Section about the weights and costs of classical methods; none without them."""
        study, table = self.study, self.results.cost_table(Execution(self.device))
        if not table.rows:
            return []
        text = [
            "seconds: processor time of one sample, samples one after another. solves: systems of "
            "equations of any size for one sample, tangents and adjoints included."
        ]
        if study.corrected:
            text.append(
                "A corrected model is a model whose prediction starts steps of "
                f"{study.inversions.corrector}; seconds count both, for seed 0. pays after: number "
                "of inversions that save the time of the training and of generating its training "
                "and validation samples."
            )
        return [Section("Weights and costs", tuple(text), (table,))]

    def robustness(self) -> list[Section]:
        """Section about the errors under each condition; none without conditions."""
        study, results = self.study, self.results
        if not study.conditions:
            return []
        text = [
            "Data of a condition differ from those of the experiment, and from what methods are "
            "told: their recipe, noise and level remain those of the experiment. Ratios are to the "
            "same method and level on the test samples of the experiment.",
            *(f"{name}: {condition.words}." for name, condition in study.conditions.items()),
        ]
        if study.shifted:
            text.append(
                "Other truths have the numbers of the test samples in the random stream, which no "
                "training or validation sample has. Statistics, such as σ(x), are those of the "
                "training samples."
            )
        if study.values is not None and study.shifted:
            text.append(
                "Truths of two phases count as phases: other values are replaced by those that "
                "methods are told, and the phases of a reconstruction are separated halfway "
                "between these."
            )
        names = [name for name in ("misclassified", "errors") if name in results.measured]
        return [Section("Conditions", tuple(text), tuple(map(results.robustness_table, names)))]

    def measures(self) -> list[Section]:
        """Section about the measures of no other section."""
        study, results = self.study, self.results
        text, table = [*results.meanings], results.measure_table()
        if "misfit" in results.measured:
            fewest = min(study.inversion_samples, len(study.truth))
            text.append(f"Misfits of all methods are over the first {fewest} test samples.")
        shown = len(table.header) > 3 and table.rows
        return [Section("Other measures", tuple(text), (table,) if shown else ())]

    def protocol(self) -> Section:
        """A paragraph that a paper can take over."""
        study, results = self.study, self.results
        store, experiment = open_sealed(study.store), study.experiment
        assert experiment.noise is not None
        input, target = study.names
        law = "; ".join(physics_of(store).sentences.values())
        job = RecipeJob.of(store).recipe if store.command == "generate" else None
        levels = study.train_levels if study.on_targets else study.test_levels
        single = [level for level in levels if not isinstance(level, tuple)]
        sizes = "; ".join(
            f"ε = {level}: s/σ {share}, {ratio} dB"
            for level, _, share, ratio in _sizes(study, [study.noise(e) for e in single])[0]
        )
        sentences = [
            job.headline if job is not None else f"Data of {study.store}",
            law,
            f"Map: {learned(study)}",
            f"Noise of {target if study.on_targets else input}: {experiment.noise.kind}, level and "
            f"size {sizes}, with the standard deviations s of the noise and σ of the data over "
            "samples",
        ]
        if study.train_levels:
            names = ", ".join(study.operator(Cell(0.0, operator=o)) for o in study.experiments)
            stored = part_of(experiment.data.samples, store.samples_in("train"))
            trained = ", ".join(map(study.word, study.train_levels))
            sentences.append(
                f"Operators ({names}) are trained on {stored} with noise {trained}, "
                f"{number_of(study.seeds, 'seed')} each; the reported epoch is "
                f"{reported_epoch(study)}"
            )
        if study.classical:
            told = dict[str, list[str]]()
            for method in (method for method in study.classical if method.assumed_level == 1):
                told.setdefault(study.told(method), []).append(method.name)
            methods = "; ".join(
                f"{', '.join(names)} (told {words})" for words, names in told.items()
            )
            sentences.append(
                f"Classical methods reconstruct on {_inversion_grid(study)}, and their weights are "
                f"chosen on {number_of(study.tuned_on, 'validation sample')}: {methods}"
            )
        scores = [results.primary, *(["crps"] if "crps" in results.measured else [])]
        sentences += [
            f"{len(study.truth)} test samples{_fewer(results)}",
            *(f"{MEASURES[name].title}: {MEASURES[name].meaning.rstrip('.')}" for name in scores),
            f"Digest of the data: {store.metadata.content[:16]}; pdegen {__version__}",
        ]
        return Section("Protocol", (". ".join(filter(None, sentences)) + ".",))

    def _lessons(self) -> list[str]:
        """Compares the models of the lowest level, of the highest level and of all levels."""
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
        """Compares the model trained at all levels with models trained at one level."""
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
                words += reproduction.operator_changes(study.experiment, variant)
        return words

    def reproduction(self) -> Section:
        study, experiment = self.study, self.study.experiment
        run = reproduction.reproduction(experiment, open_sealed(study.store))
        if study.operators:
            run += f" {shlex.join(self._operators())}"
        options = {
            "--train-levels": ",".join(
                ALL if isinstance(level, tuple) else f"{level:g}" for level in study.train_levels
            )
            or NONE,
            "--test-levels": _listed(study.test_levels, ","),
            "--seeds": str(study.seeds),
            "--inversion-samples": str(study.inversion_samples),
            "--assumed-level": _listed(study.assumed_levels, ","),
            **({} if study.cells is None else {"--cells": str(study.cells)}),
        }
        chosen = [word for name in study.only for word in ("--method", name)]
        chosen += reproduction.conditions(experiment, study.conditions)
        words = shlex.join([*(word for pair in options.items() for word in pair), *chosen])
        command = f"{run.replace('pdegen run', 'pdegen study noise', 1)} {words}"
        content = reproduction.toml(
            experiment.model_dump(mode="json", exclude_none=True)
            | {"conditions": {name: c.model_dump() for name, c in study.conditions.items()}}
        )
        rows = [Row(provenance=provenance(self.device))]
        text = "This command runs the study again."
        return reproduction_section(rows, text, command, f"# experiment\n{content}")
