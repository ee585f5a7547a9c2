"""Noise study: tests models and classical methods at several noise levels."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from operators.data import Samples
from operators.transforms import PhaseValues
from pdegen.domains import Box
from pdegen.equations.base import SampleError
from pdegen.generation.generate import RecipeJob, generate
from pdegen.inverse.classical import ALGORITHM, Estimate
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.objects import Objects
from pdegen.store.reading import StoreError, open_sealed
from pipelines.config.conditions import StudyCondition
from pipelines.config.experiment import Experiment, physics_of
from pipelines.runs.checks import check_applies
from pipelines.runs.data import Source
from pipelines.runs.folder import FolderClaim, RunError, recorded_experiment
from pipelines.runs.predictions import experiment_key, kept_mean, weights_of
from pipelines.runs.score import phases
from pipelines.studies.inversions import (
    CONSTANT,
    KNOWN,
    TUNED_ON,
    Cell,
    ChosenWeight,
    Inversions,
    NoisePlan,
    Observed,
    key,
    recorded_study,
)
from pipelines.studies.runner import Execution, Row, Study, content
from pipelines.studies.scores import MEASURES, ConformalBands, Reconstructed, Stated, measured

TRUTH = "truth"  # as a method, the generation of the test samples of a condition
_HOLDING = FolderClaim("study", "study.json")


@dataclass(frozen=True)
class NoiseStudy(NoisePlan, Study[Cell]):
    """A noise study whose results are stored in a folder. The subfolder models/ contains the
    trainings, and cells/ contains the rows. Arguments are those of `NoisePlan`.
    """

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as JSON, because the classes of operator settings are created at import."""
        rest = (
            self.store, self.folder, self.train_levels, self.test_levels, self.seeds,
            self.inversion_samples, self.assumed_levels, self.only,
            {name: condition.model_dump() for name, condition in self.conditions.items()},
            self.cells,
        )  # fmt: skip
        declared = [
            e.model_dump_json(exclude_none=True) for e in (self.experiment, *self.operators)
        ]
        return _from_texts, (declared, *rest)

    @property
    def values(self) -> tuple[float, float] | None:
        """The two values of a two-phase coefficient, smaller one first; None for other targets."""
        physics = physics_of(open_sealed(self.store))
        return physics.phases.get(self.names[1])

    @property
    def classical(self) -> list[Cell]:
        """A cell for each classical method and each level that it assumes."""
        return [
            Cell(name, assumed_level=factor)
            for factor in self.assumed_levels
            for name, method in self.inversions.methods.items()
            if method.takes_level or factor == 1
        ]

    @property
    def corrected(self) -> list[Cell]:
        """The models whose predictions a classical method corrects."""
        if self.inversions.corrector is None:
            return []
        return [replace(model, corrected=True) for model in self.models if model.seed == 0]

    @property
    def pooled(self) -> list[Cell]:
        """The models whose seeds together are a method, if there are several seeds."""
        if self.seeds == 1:
            return []
        return [replace(model, together=True) for model in self.models if model.seed == 0]

    def tests(self, method: Cell, condition: str = "") -> list[list[Cell]]:
        """The tests of a method under a condition, as one list for each test level. The list has
        one test for each seed."""
        seeds = range(1 if isinstance(method.method, str) or method.together else self.seeds)
        method = replace(method, condition=condition)
        return [[replace(method, seed=seed, at=at) for seed in seeds] for at in self.test_levels]

    # interface of the runner

    def check(self, device: torch.device) -> None:
        if self.source.samples("test", noise=None).resident().masked:
            raise SchemaError(
                f"study noise: samples of {self.store} have different numbers of points"
            )
        for level in self.train_levels:
            self.source.samples("train", "training", noise=self.noise(level))  # raises for channels
        _ = self.inversions.methods  # raises if the equation does not offer a requested method
        _ = self.inversions.equation_digest  # raises if the equation is of another file
        for experiment in self.experiments.values() if self.train_levels else ():
            check_applies(Source(self.store, experiment))
        for condition in self.shifted:
            self._check_truths(self.recipe(condition), f"conditions.{condition}.truth")

    def _check_truths(self, recipe: Recipe, where: str) -> None:
        """Raise SchemaError if truths cannot be drawn or solved here, or have not two phases as
        methods are told."""
        recipe.problem.check_solver()
        try:
            recipe.stream(0)  # raises if no sample can be selected
        except SampleError as error:
            raise SchemaError(f"{where}: {error}") from None
        if self.values is not None and self.names[1] not in recipe.problem.physics().phases:
            raise SchemaError(f"{where}: methods are told two phases, the truths have others")

    def claim(self, device: torch.device, resume: bool, overwrite: bool) -> None:
        recorded = recorded_study(self.folder) if resume else {}
        declared = {
            "experiment": recorded_experiment(self.experiment, recorded.get("experiment")),
            "content": content(self.store),
            "train_levels": self.train_levels,
            "test_levels": self.test_levels,
            "seeds": self.seeds,
            "inversion_samples": self.inversion_samples,
            "assumed_levels": self.assumed_levels,
            "only": self.only,
            "conditions": {name: c.model_dump() for name, c in self.conditions.items()},
            "cells": self.cells,
            "store": self.store,
        }
        operators = dict(recorded.get("operators", {}))
        for name, experiment in self.experiments.items():
            if not name:
                continue
            record = recorded_experiment(experiment, operators.get(name))
            if operators.setdefault(name, record) != record:
                raise RunError(f"{self.folder} holds a study of another {name}")
        if operators:
            declared["operators"] = operators
        same = ("experiment", "content")
        for model in self.models if resume else ():
            self.training(model).check_folder()
        _HOLDING.claim(self.folder, declared, same=same, resume=resume, overwrite=overwrite)

    def stages(self) -> Sequence[Sequence[Cell]]:
        methods = [Cell(CONSTANT), *self.classical]
        corrected = [replace(c, corrected=True) for c in self.models if self.corrected]
        parts = [*self.models, *self.with_wrong_level, *corrected, *methods]
        tested, pooled = (
            [
                replace(part, at=at, condition=condition)
                for condition in ("", *self.conditions)
                for at in self.test_levels
                for part in of
            ]
            for of in (parts, self.pooled)
        )
        truths = {self.truths(name): Cell(TRUTH, condition=name) for name in self.shifted}
        return [[*truths.values(), *self.models], tested, pooled]

    def row_path(self, part: Cell) -> Path:
        if isinstance(part.method, str):
            name = part.method.replace(",", "").replace(" ", "-")
        else:
            what = "corrected" if part.corrected else "model"
            what = f"{part.operator}-{what}" if part.operator else what
            seed = "all-seeds" if part.together else f"seed-{part.seed}"
            name = f"{what}-{key(part.method)}-{seed}"
        name += "" if part.assumed_level == 1 else f"-assumed-{part.assumed_level:g}"
        at = "" if part.at is None else f"-at-{part.at:g}"
        at += f"-under-{part.condition.replace(' ', '-')}" if part.condition else ""
        return self.folder / "cells" / f"{name}{at}.json"

    def digest(self, part: Cell) -> str:
        assert part.at is not None
        noises = self.noise(part.at), self.tested(part.at, part.condition)
        parts: dict[str, Any] = {
            "noise": [noise.model_dump(mode="json") for noise in noises],
            "measures": list(MEASURES),
            "solved": [self.tuned_on, KNOWN, self.inversion_samples, self.cells],
            "assumed_level": part.assumed_level,
            "method": part.name,
        }
        if not isinstance(part.method, str):
            weights = [weights_of(self.training(c).checkpoint) for c in self._members(part)]
            parts["weights"] = weights if part.together else weights[0]
        elif part.method != CONSTANT and part.method in self.inversions.methods:
            parts["tried"] = [ALGORITHM, *self.inversions.methods[part.method].weights]
        if (digest := self.inversions.equation_digest) is not None:
            parts["equation"] = digest
        if part.corrected:
            parts["corrector"] = self.inversions.corrector
        if part.condition in self.shifted:
            parts["truth"] = self.recipe(part.condition).fingerprint
        return experiment_key(self._experiment(part), self.store, **parts)

    def _experiment(self, part: Cell) -> Experiment:
        return self.experiments.get(part.operator, self.experiment)

    def kept(self, part: Cell) -> Row | None:
        if part.method == TRUTH:
            return Row() if self._sealed(part.condition) else None
        if part.at is None:
            return None if self.training(part).finished() is None else Row()
        return super().kept(part)

    def keep(self, part: Cell, row: Row) -> None:
        if part.at is not None:
            super().keep(part, row)

    def progress_line(self, part: Cell, row: Row) -> str:
        if part.method == TRUTH:
            return f"test samples of {part.condition}"
        at = "" if part.at is None else self.word(part.at)
        under = f" under {part.condition}" if part.condition else ""
        if isinstance(part.method, str):
            return f"{part.name} at {at}{under}"
        seed = "" if part.together else f", seed {part.seed}"
        return f"{self.label(part)}{seed}{at and f', tested at {at}'}{under}"

    def make(self, part: Cell, how: Execution) -> Row:
        if part.method == TRUTH:
            url = self.truths(part.condition)
            generate(self.recipe(part.condition), url, resume=Objects(url).exists())
            return Row()
        if part.at is None:
            self.training(part).run(how)
            return Row()
        if part.method == CONSTANT:
            row = self._scored(part, self._constant())
        elif isinstance(part.method, str) or part.corrected:
            row = self._inverted(part, how.device)
        else:
            stated = self._stated(part, how.device)
            if self._experiment(part).training.conformal:
                calibrating = self._stated(part, how.device, calibrating=True)
                stated = replace(stated, bands=ConformalBands.of(calibrating, self.values))
            row = self._scored(part, stated.a, stated=stated)
        row.made_from = self.digest(part)
        return row

    # the matrix

    @cached_property
    def source(self) -> Source:
        return Source(self.store, self.experiment)

    # conditions

    def told(self, method: Cell) -> str:
        """What a method knows of the test data, in words."""
        if method.method == CONSTANT:
            return "training targets"
        words, factor = list[str](), method.assumed_level
        level = "the level" if factor == 1 else f"{factor:g} times the level"
        noise = self.experiment.noise
        assert noise is not None
        if not isinstance(method.method, str):
            words.append(f"training inputs with {noise.kind} noise")
            words += [level] if isinstance(method.method, tuple) else []
        name = self.inversions.corrector if method.corrected else method.method
        if isinstance(name, str):
            of = self.inversions.methods[name]
            unknown = "" if of.knows_law else f" without the law of {self.names[1]}"
            level = level if of.takes_level else "no level"
            words += [f"{noise.kind} noise", level, f"the recipe{unknown}"]
        return ", ".join(words)

    @cached_property
    def shifted(self) -> dict[str, StudyCondition]:
        """The conditions whose test samples have truths of their own."""
        return {name: of for name, of in self.conditions.items() if of.truth}

    def recipe(self, condition: str) -> Recipe:
        """The recipe of the truths of a condition. Raises SchemaError if the store has none, or if
        a key is impossible."""
        store = open_sealed(self.store)
        if store.command != "generate":
            raise SchemaError(f"conditions.{condition}.truth: {self.store} has no recipe")
        return self.conditions[condition].recipe(RecipeJob.of(store).recipe, condition)

    def truths(self, condition: str) -> str:
        """Path of the store of the truths of a condition. Conditions with the same truths share
        it."""
        recipe = self.recipe(condition)
        return str(self.folder / "truths" / f"{recipe.name}-{recipe.fingerprint[:12]}.zarr")

    def _sealed(self, condition: str) -> bool:
        """Whether the store of the truths of a condition is finished."""
        try:
            metadata = open_sealed(self.truths(condition)).metadata
        except StoreError:
            return False
        return metadata.fingerprint == self.recipe(condition).fingerprint

    def tested_source(self, condition: str) -> Source:
        """The data of the experiment, with the test samples of a condition."""
        tests = self.truths(condition) if condition in self.shifted else None
        return replace(self.source, tests=tests)

    def test_pairs(self, level: float, condition: str = "") -> Samples:
        """The test samples with fixed noise of a given level, under a condition."""
        noise = self.tested(level, condition)
        return self.tested_source(condition).samples("test", noise=noise).resident()

    @cached_property
    def truth(self) -> np.ndarray:
        """The true coefficients of the test samples, on the cells of the target."""
        return values_of(self.source.samples("test", noise=None).resident().u)

    def truth_under(self, condition: str) -> np.ndarray:
        """`truth` of the test samples of a condition. The values of two phases are replaced by
        those that methods are told."""
        if condition not in self.shifted:
            return self.truth
        true = self.tested_source(condition).samples("test", noise=None).resident().u
        return self._as_told(values_of(true), condition)

    def _as_told(self, true: np.ndarray, condition: str) -> np.ndarray:
        """True coefficients, or their means over cells, with the phases that methods are told."""
        if self.values is None or condition not in self.shifted:
            return true
        below, above = self.recipe(condition).problem.physics().phases[self.names[1]]
        (low, high), told = self.values, self.values == (below, above)
        return true if told else low + (high - low) / (above - below) * (true - below)

    @property
    def fields_ndim(self) -> int:
        """Number of axes of `truth` if the target has one channel."""
        pairs = self.source.samples("test", noise=None)
        return 1 + len(pairs.domain.shape)

    def predicted(self, cell: Cell, device: torch.device) -> np.ndarray:
        """A model's predictions for noisy test samples, shape (samples, *cells): means of draws if
        it draws from the posterior."""
        return self._drawn(cell, device)[0].mean(axis=0)

    def _drawn(
        self, cell: Cell, device: torch.device, calibrating: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """A model's draws of the posterior, shape (members, samples, *cells), or one member, its
        prediction, if it draws none; and the deviation that it states, if it does. Samples are test
        samples, or validation samples with the training noise if `calibrating`."""
        assert cell.at is not None
        training = self.training(cell)
        if calibrating:
            source = Source(self.store, training.experiment)
            pairs = source.samples("validation").resident()
            folder, noise = training.folder / "validation", ""
        else:
            words = [
                f"at-{cell.at:g}",
                "" if cell.assumed_level == 1 else f"assumed-{cell.assumed_level:g}",
                cell.condition and f"under-{cell.condition.replace(' ', '-')}",
            ]
            folder = training.folder / "-".join(filter(None, words))
            noise = self.tested(cell.at, cell.condition).model_dump_json()
            noise, pairs = f"{noise}, assumed {cell.assumed_level}", self.test_pairs_of(cell)
        draws = training.drawn(pairs, device, folder, noise)
        if draws is not None:
            return np.moveaxis(values_of(draws), 1, 0), None
        stating = training.experiment.training.loss.name == "gaussian"
        u = training.predicted(pairs, device, folder, noise, stating)
        if not stating:
            return values_of(u)[None], None
        mean, deviation = map(values_of, u.chunk(2, dim=-1))
        return mean[None], deviation

    def _members(self, part: Cell) -> list[Cell]:
        """The models of a method, one for each seed that it has."""
        seeds = range(self.seeds) if part.together else [part.seed]
        return [replace(part, seed=seed, together=False) for seed in seeds]

    def test_pairs_of(self, cell: Cell) -> Samples:
        """The noisy test samples for a model. If the model has the noise level as an input, their
        inputs contain the assumed level.
        """
        assert cell.at is not None
        experiment, assumed_level = self.training(cell).experiment, None
        if cell.assumed_level != 1 or (cell.condition and isinstance(cell.method, tuple)):
            assumed_level = cell.assumed_level * cell.at  # the data may have another
        noise = self.tested(cell.at, cell.condition)
        at = None if self.on_targets else cell.at
        tests = self.tested_source(cell.condition).tests
        return (
            Source(self.store, experiment, at=at, assumed_level=assumed_level, tests=tests)
            .samples("test", noise=noise)
            .resident()
        )

    def _constant(self) -> np.ndarray:
        """The mean coefficient of the training samples, repeated for every test sample."""
        mean = kept_mean(self.folder / "models", self.source)
        return np.full_like(self.truth, float(mean.mean()))

    @cached_property
    def inversions(self) -> Inversions:
        return Inversions(self.source, self.only, self.cells)

    def data(self, part: Cell) -> Observed:
        """The data of the first test samples, for a classical method."""
        assert part.at is not None
        pairs, noise = self.test_pairs(part.at, part.condition), self.noise(part.at)
        return self.inversions.data(pairs, noise, part.assumed_level, self.inversion_samples)

    @property
    def tuned_on(self) -> int:
        """Number of validation samples that choose the weight of a classical method."""
        return min(TUNED_ON, self.inversion_samples)

    def choice(self, part: Cell) -> ChosenWeight:
        """Regularisation weight of a classical method, chosen on validation samples with the noise
        that the method assumes.
        """
        assert isinstance(part.method, str)
        assert part.at is not None
        if part.condition and (row := self.kept(replace(part, condition=""))) is not None:
            assert row.weight is not None
            return ChosenWeight(
                row.weight, row.weight_samples, row.weight_at_end, row.weight_unconverged
            )
        noise = self.noise(part.at)
        validation = self.source.samples("validation", noise=noise).resident()
        data = self.inversions.data(validation, noise, part.assumed_level, self.tuned_on)
        targets = validation.u[: self.tuned_on, ..., 0].double().numpy()
        return self.inversions.choice(part.method, data, targets)

    def model_answers(self, part: Cell, device: torch.device) -> np.ndarray:
        """Predictions of a model that a classical method corrects, for the first test samples."""
        return self.predicted(replace(part, corrected=False), device)[: self.inversion_samples]

    def _inverted(self, part: Cell, device: torch.device) -> Row:
        """The row of a classical method on the first test samples."""
        data, choice, seconds = self.data(part), None, 0.0
        if isinstance(part.method, str):
            choice = self.choice(part)
            inverted = self.inversions.invert(part.method, choice.weight, data)
        else:
            answers = self.model_answers(part, device)
            inverted = self.inversions.correct(data, answers)
            seconds = self.training(part).seconds(self.test_pairs_of(part), device)
        row = self._scored(part, inverted.fields(self.truth.shape[1]), inverted.estimates)
        if choice is not None:
            row.weight, row.weight_samples = choice.weight, choice.samples
            row.weight_at_end, row.weight_unconverged = choice.at_end, choice.unconverged
        row.solves, row.iterations = inverted.solves, inverted.iterations
        row.converged = inverted.converged
        row.inference_seconds = seconds + inverted.seconds
        row.solve_seconds = self.inversions.solve_seconds
        return row

    def _stated(self, part: Cell, device: torch.device, calibrating: bool = False) -> Stated:
        """What the models of a method answer for test samples, or for those of the validation split
        if `calibrating`, and what they state: the probabilities of the cross-entropy, the
        deviations of the loss gaussian, or draws. These are those of the loss flow, or the
        predictions of several models."""
        each = [self._drawn(c, device, calibrating) for c in self._members(part)]
        loss, draws = (
            self._experiment(part).training.loss.name,
            np.concatenate([a for a, _ in each]),
        )
        truth = self.truth_under(part.condition)
        if calibrating:
            truth = values_of(self.source.samples("validation", noise=None).resident().u)
        stated = Stated(truth, draws.mean(axis=0))
        if loss == "gaussian":  # of the mixture of all models
            squares = np.mean([s**2 for _, s in each if s is not None], axis=0)
            return replace(stated, deviation=np.sqrt(squares + draws.var(axis=0)))
        if loss == "cross-entropy":
            assert self.values is not None
            share = PhaseValues(*self.values).share(torch.from_numpy(stated.a)).numpy()
            return replace(stated, probability=share)
        if self.values is not None and loss == "flow":
            stated = replace(stated, probability=phases(draws, self.values).mean(axis=0))
        return replace(stated, draws=draws if len(draws) > 1 else None)

    def _scored(
        self, part: Cell, fields: np.ndarray, estimates: Sequence[Estimate] = (),
        stated: Stated | None = None,
    ) -> Row:  # fmt: skip
        """The row with all measures of the reconstructed fields."""
        count, misfits = len(fields), self._misfits(part, fields, estimates)
        truth = self.truth_under(part.condition)
        if estimates:
            true = self.inversions.truth(self.tested_source(part.condition).tests)[:count]
            stated = Stated.of(estimates, self._as_told(true, part.condition), self.values)
        domain = self.source.samples("test", noise=None).domain
        dim = (
            len(domain.shape) if isinstance(domain, Box) and fields.ndim == self.fields_ndim else 0
        )
        scores = measured(Reconstructed(fields, truth[:count], self.values, misfits, stated, dim))
        return Row(errors=scores.pop("errors"), scores=scores)

    def _misfits(
        self, part: Cell, fields: np.ndarray, estimates: Sequence[Estimate]
    ) -> np.ndarray | None:
        assert part.at is not None
        if not self.inversions.has_forward:
            return None
        (low, high), solved = self.values or (-np.inf, np.inf), self.inversion_samples
        solved = min(len(fields), solved)
        solved_fields = [estimate.a for estimate in estimates] or list(fields[:solved])
        noise = self.tested(part.at, part.condition)
        data = self.inversions.data(self.test_pairs(part.at, part.condition), noise, 1.0, solved)
        return self.inversions.misfits(data, [np.clip(a, low, high) for a in solved_fields])

    # costs

    @property
    def solved_samples(self) -> int:
        """Number of training and validation samples that had to be solved for a training."""
        data, count = self.experiment.data, len(self.source.stored("train"))
        if data.stream is not None:
            count = (data.epoch_samples or count) * self.experiment.training.epochs
        return count + len(self.source.stored("validation"))

    def pays_after(self, part: Cell, how: Execution) -> float:
        """Number of inversions after which a corrected model saves time; infinite if it never does.

        N = (T_training + samples t_solve) / (t_alone - t_started)

        t_solve: time of the recipe's solver for a training or validation sample. t_alone: time of
        an inversion without a model. t_started: time of a prediction and of the inversion that
        starts from it.
        """
        assert self.inversions.corrector is not None
        alone = self.row(Cell(self.inversions.corrector, at=part.at), how)
        started = self.row(part, how)
        training = self.training(replace(part, corrected=False))
        spent = sum(epoch.seconds for epoch in training.finished() or ())
        spent += self.solved_samples * started.solve_seconds
        saved = alone.inference_seconds - started.inference_seconds
        return spent / saved if saved > 0 else math.inf


def values_of(fields: torch.Tensor) -> np.ndarray:
    """Fields in float64, without the axis of channels if they have one channel."""
    return (fields[..., 0] if fields.shape[-1] == 1 else fields).double().numpy()


def _from_texts(declared: Sequence[str], *rest: Any) -> NoiseStudy:
    experiment, *operators = [Experiment.parse(json.loads(text), "study") for text in declared]
    *words, tables, cells = rest
    conditions = {name: StudyCondition.parse(table, name) for name, table in tables.items()}
    arguments: list[Any] = [*words, conditions, cells, tuple(operators)]
    return NoiseStudy(experiment, *arguments)
