"""Noise study: tests models and classical methods at several noise levels."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from operators.data import Samples
from pdegen.inverse.classical import ALGORITHM, Estimate
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment, physics_of
from pipelines.runs.data import Source
from pipelines.runs.folder import FolderClaim, RunError, recorded_experiment
from pipelines.runs.predictions import experiment_key, kept_mean, weights_of
from pipelines.runs.score import agreement, phases
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

Truth = Float[np.ndarray, " *shape"]


def brier(probability: Truth, phase: Truth) -> float:
    """Brier score: the mean of (p - y)², where p is the predicted probability that y = 1.

    >>> brier(np.array([0.5, 1.0]), np.array([1.0, 1.0]))
    0.125
    """
    return float(np.mean((probability - phase) ** 2))


def reliability(probability: Truth, phase: Truth, bins: int = 10) -> Float[np.ndarray, "bins 3"]:
    """Reliability table: a row (mean of p, fraction with y = 1, count) for each bin of p.

    p is the predicted probability that y = 1. In empty bins the mean and the fraction are NaN.

    >>> reliability(np.array([0.1, 0.2, 0.9]), np.array([0.0, 1.0, 1.0]), bins=2).round(2).tolist()
    [[0.15, 0.5, 2.0], [0.9, 1.0, 1.0]]
    """
    bin_of = np.minimum((probability.ravel() * bins).astype(int), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    divisor = np.where(count > 0, count, np.nan)
    sums = (np.bincount(bin_of, weights=w.ravel(), minlength=bins) for w in (probability, phase))
    mean_p, share = (total / divisor for total in sums)
    return np.stack([mean_p, share, count], axis=1)


LEVEL = 0.9  # stated probability of the sets and intervals whose coverage is counted
HALF = NormalDist().inv_cdf((1 + LEVEL) / 2)  # half an interval, in standard deviations
Scores = Float[np.ndarray, " samples"]


@dataclass(frozen=True)
class Reconstructed:
    """Fields that a method reconstructs for some samples, such as coefficients, and the true
    fields.

    Args:
        fields, truth: Reconstructed and true values on the cells of the target.
        values: The two values of a two-phase coefficient, smaller one first; None for other fields.
        misfits: Misfit of each field to the data, see `Inversions.misfits`; None if there is no
            noise or no solver.
        estimates: Estimates of a classical method, with standard deviations if the method computes
            them; empty for models.
        cells: True values on the grid of the estimates.
    """

    fields: Float[np.ndarray, " samples *cells"]
    truth: Float[np.ndarray, " samples *cells"]
    values: tuple[float, float] | None
    misfits: Scores | None = None
    estimates: Sequence[Estimate] = ()
    cells: Float[np.ndarray, " samples *finer"] | None = None

    @cached_property
    def agreement(self) -> tuple[Scores | None, Scores | None]:
        """Intersection over union and Hausdorff distance of the phases; None without phases."""
        if self.values is None:
            return None, None
        return agreement(self.fields, self.truth, self.values)

    @property
    def misclassified(self) -> Scores | None:
        """Fraction of cells that get the wrong phase; None without phases."""
        if self.values is None:
            return None
        wrong = phases(self.fields, self.values) != phases(self.truth, self.values)
        return np.mean(wrong, axis=(1, 2))

    @cached_property
    def stated(self) -> tuple[Float[np.ndarray, "samples n n"], Bool[np.ndarray, "samples n n"]]:
        """The estimated probability of the upper phase in each cell, and the mask of the cells that
        are truly in the upper phase.

        Both arrays have zero samples if the method gives no probabilities.
        """
        if self.cells is None or self.values is None or not self._stating:
            return np.empty((0, 1, 1)), np.empty((0, 1, 1), dtype=bool)
        low, high = self.values
        p = np.stack([(estimate.a - low) / (high - low) for estimate in self.estimates])
        return p, phases(self.cells, self.values)

    @property
    def _stating(self) -> bool:
        """Whether every estimate has a standard deviation."""
        return all(estimate.std is not None for estimate in self.estimates)

    @property
    def covered(self) -> Scores | None:
        """Fraction of the points whose true value is in the credible set of probability LEVEL: a
        set of phases for two-phase fields, otherwise an interval."""
        if self.values is not None or self.cells is None or not self._stating:
            return self.each_stated(covered)
        off = abs(self.cells - np.stack([estimate.a for estimate in self.estimates]))
        spread = np.stack([np.asarray(estimate.std) for estimate in self.estimates])
        return np.mean(off <= HALF * spread, axis=tuple(range(1, off.ndim)))

    def by_norm(self, order: int) -> Scores:
        """Relative error in L¹ or L² for order 1 or 2; NaN where the truth is 0, infinite where
        the reconstruction is not finite."""
        axes, power = tuple(range(1, self.truth.ndim)), 1 / order
        error = (abs(self.fields - self.truth) ** order).sum(axis=axes) ** power
        size = (abs(self.truth) ** order).sum(axis=axes) ** power
        return np.where(np.isfinite(error), error, np.inf) / np.where(size > 0, size, np.nan)

    def each_stated(self, score: Callable[[np.ndarray, np.ndarray], float]) -> Scores | None:
        """A score of the estimated probabilities of each sample; None if the method gives no
        probabilities."""
        p, true = self.stated
        return np.array(list(map(score, p, true))) if len(p) else None


@dataclass(frozen=True)
class Measure:
    """A measure that gives a score for each sample.

    Args:
        column: Header of the column in the table of the report; empty for measures that are in
            measures.csv only.
    """

    column: str
    title: str
    meaning: str
    of: Callable[[Reconstructed], Scores | None]


def covered(p: np.ndarray, true: np.ndarray) -> float:
    """Fraction of the cells whose true phase is in the smallest set of phases with probability
    LEVEL. `p` is the estimated probability of the upper phase, and `true` masks the
    cells that are truly in it.

    >>> covered(np.array([0.95, 0.95, 0.5, 0.5]), np.array([True, False, True, False]))
    0.75
    """
    return float(np.mean(np.where(true, p, 1 - p) > 1 - LEVEL))


def miscalibration(p: np.ndarray, true: np.ndarray) -> float:
    """Mean over the cells of |estimated probability - true fraction|, computed in ten bins of the
    estimated probability.

    >>> round(miscalibration(np.array([0.75, 0.75]), np.array([True, False])), 12)
    0.25
    """
    mean, share, count = reliability(p, true.astype(float)).T
    return float(np.nansum(abs(mean - share) * count) / p.size)


_STATED = "For methods that state a probability q of the upper phase on each cell of their grid:"
MEASURES = {
    "errors": Measure(
        "L² error", "Relative L² error",
        "‖p − a‖/‖a‖ of the reconstruction p, on the cells or points of the target a.",
        lambda of: of.by_norm(2),
    ),
    "l1": Measure("", "Relative L¹ error", "‖p − a‖/‖a‖ in the L¹ norm.", lambda of: of.by_norm(1)),
    "iou": Measure(
        "IoU", "Intersection over union",
        "|P ∩ Q|/|P ∪ Q| of the predicted and the true region of a phase, mean of both phases.",
        lambda of: of.agreement[0],
    ),
    "misclassified": Measure(
        "area", "Misclassified area",
        "Share of the target's cells in the wrong phase; phases are separated halfway between "
        "their values.",
        lambda of: of.misclassified,
    ),
    "hausdorff": Measure(
        "Hausdorff", "Hausdorff distance of the interfaces",
        "In units of the side of the square; √2 where the reconstruction has no interface.",
        lambda of: of.agreement[1],
    ),
    "misfit": Measure(
        "misfit", "Misfit of the data in units of their noise",
        "Root mean square of (d − H u(p))/σ, with u by the recipe's solver; two-phase p is first "
        "limited to the values of the phases. The noise explains 1; less than 1 fits the noise.",
        lambda of: of.misfits,
    ),
    "brier": Measure(
        "", "Brier score", f"{_STATED} mean (q − y)², with y = 1 in the upper phase, else 0.",
        lambda of: of.each_stated(brier),
    ),
    "coverage": Measure(
        "coverage", f"Coverage of sets of {LEVEL:.0%}",
        f"{_STATED} share of cells whose phase is in the smallest set stated with {LEVEL:g}; "
        f"at least {LEVEL:g} if the probabilities hold. Without phases: share of points within "
        f"{HALF:.3g} stated deviations; {LEVEL:g} if the stated Gaussian posterior is right.",
        lambda of: of.covered,
    ),
    "miscalibration": Measure(
        "", "Error of stated probabilities",
        f"{_STATED} |stated − true share|, in ten classes for each sample, mean over the cells.",
        lambda of: of.each_stated(miscalibration),
    ),
}  # fmt: skip


def measured(reconstructed: Reconstructed) -> dict[str, list[float]]:
    """All measures that can be computed from the reconstructions, with one number per sample."""
    scores = {name: measure.of(reconstructed) for name, measure in MEASURES.items()}
    return {name: values.tolist() for name, values in scores.items() if values is not None}


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
            self.inversion_samples, self.assumed_levels, self.only, self.test_kind, self.cells,
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

    def tests(self, method: Cell) -> list[list[Cell]]:
        """The tests of a method, as one list for each test level. The list has one test for each
        seed."""
        seeds = range(1 if isinstance(method.method, str) else self.seeds)
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
            "test_kind": self.test_kind,
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
        tested = [replace(c, at=at) for at in self.test_levels for c in parts]
        return [self.models, tested]

    def row_path(self, part: Cell) -> Path:
        if isinstance(part.method, str):
            name = part.method.replace(",", "").replace(" ", "-")
        else:
            what = "corrected" if part.corrected else "model"
            what = f"{part.operator}-{what}" if part.operator else what
            name = f"{what}-{key(part.method)}-seed-{part.seed}"
        name += "" if part.assumed_level == 1 else f"-assumed-{part.assumed_level:g}"
        at = "" if part.at is None else f"-at-{part.at:g}"
        return self.folder / "cells" / f"{name}{at}.json"

    def digest(self, part: Cell) -> str:
        assert part.at is not None
        noises = self.noise(part.at), self.tested(part.at)
        parts: dict[str, Any] = {
            "noise": [noise.model_dump(mode="json") for noise in noises],
            "measures": list(MEASURES),
            "solved": [self.tuned_on, KNOWN, self.inversion_samples, self.cells],
            "assumed_level": part.assumed_level,
            "method": part.name,
        }
        if not isinstance(part.method, str):
            parts["weights"] = weights_of(self.training(part).checkpoint)
        elif part.method != CONSTANT and part.method in self.inversions.methods:
            parts["tried"] = [ALGORITHM, *self.inversions.methods[part.method].weights]
        if (digest := self.inversions.equation_digest) is not None:
            parts["equation"] = digest
        if part.corrected:
            parts["corrector"] = self.inversions.corrector
        experiment = self.experiments.get(part.operator, self.experiment)
        return experiment_key(experiment, self.store, **parts)

    def kept(self, part: Cell) -> Row | None:
        if part.at is None:
            return None if self.training(part).finished() is None else Row()
        return super().kept(part)

    def keep(self, part: Cell, row: Row) -> None:
        if part.at is not None:
            super().keep(part, row)

    def progress_line(self, part: Cell, row: Row) -> str:
        at = "" if part.at is None else self.word(part.at)
        if isinstance(part.method, str):
            return f"{part.name} at {at}"
        return f"{self.label(part)}, seed {part.seed}{at and f', tested at {at}'}"

    def make(self, part: Cell, how: Execution) -> Row:
        if part.at is None:
            self.training(part).run(how)
            return Row()
        if part.method == CONSTANT:
            row = self._scored(part, self._constant())
        elif isinstance(part.method, str) or part.corrected:
            row = self._inverted(part, how.device)
        else:
            row = self._scored(part, self.predicted(part, how.device))
        row.made_from = self.digest(part)
        return row

    # the matrix

    @cached_property
    def source(self) -> Source:
        return Source(self.store, self.experiment)

    def test_pairs(self, level: float) -> Samples:
        """The test samples with fixed noise of a given level."""
        return self.source.samples("test", noise=self.tested(level)).resident()

    @cached_property
    def truth(self) -> np.ndarray:
        """The true coefficients of the test samples, on the cells of the target."""
        return values_of(self.source.samples("test", noise=None).resident().u)

    @property
    def fields_ndim(self) -> int:
        """Number of axes of `truth` if the target has one channel."""
        pairs = self.source.samples("test", noise=None)
        return 1 + len(pairs.domain.shape)

    def predicted(self, cell: Cell, device: torch.device) -> np.ndarray:
        """A model's predictions for noisy test samples, shape (samples, *cells)."""
        assert cell.at is not None
        training = self.training(cell)
        words = [
            f"at-{cell.at:g}",
            "" if cell.assumed_level == 1 else f"assumed-{cell.assumed_level:g}",
            self.test_kind or "",
        ]
        folder = training.folder / "-".join(filter(None, words))
        noise = f"{self.tested(cell.at).model_dump_json()}, assumed {cell.assumed_level}"
        predictions = training.predicted(self.test_pairs_of(cell), device, folder, noise)
        return values_of(predictions)

    def test_pairs_of(self, cell: Cell) -> Samples:
        """The noisy test samples for a model. If the model has the noise level as an input, their
        inputs contain the assumed level.
        """
        assert cell.at is not None
        experiment, assumed_level = self.training(cell).experiment, None
        if cell.assumed_level != 1:
            assumed_level = cell.assumed_level * cell.at
        noise, at = self.tested(cell.at), None if self.on_targets else cell.at
        return (
            Source(self.store, experiment, at=at, assumed_level=assumed_level)
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
        pairs, noise = self.test_pairs(part.at), self.noise(part.at)
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

    def _scored(self, part: Cell, fields: np.ndarray, estimates: Sequence[Estimate] = ()) -> Row:
        """The row with all measures of the reconstructed fields."""
        count, misfits = len(fields), self._misfits(part, fields, estimates)
        cells = self.inversions.truth[:count] if estimates else None
        scores = measured(
            Reconstructed(fields, self.truth[:count], self.values, misfits, estimates, cells)
        )
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
        noise = self.tested(part.at)
        data = self.inversions.data(self.test_pairs(part.at), noise, 1.0, solved)
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
    return NoiseStudy(experiment, *rest, operators=tuple(operators))
