"""Noise study: tests models and classical methods at several noise levels."""

import hashlib
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
from operators.training.files import read
from pdegen.inverse.classical import Estimate
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.config.physics import physics_of
from pipelines.config.registry import InputNoise
from pipelines.runs.data import Source
from pipelines.runs.folder import FolderClaim
from pipelines.runs.predictions import experiment_key, kept_mean
from pipelines.studies.inversions import KNOWN, TUNED_ON, Inversions, Observed
from pipelines.studies.noise_cells import (
    CONSTANT,
    Cell,
    Trained,
    check_classical,
    check_kinds,
    check_levels,
    key,
)
from pipelines.studies.noise_measures import MEASURES, Reconstructed, measured
from pipelines.studies.row import Row
from pipelines.studies.runner import Execution, Study, StudyTraining, content

_HOLDING = FolderClaim("study", "study.json")


@dataclass(frozen=True)
class NoiseStudy(Study[Cell]):
    """A noise study whose results are stored in a folder. The subfolder models/ contains the
    trainings, and cells/ contains the rows.

    Args:
        train_levels: Noise levels or ranges at which models are trained. With a range, each sample
            gets a random level in this range, and the level is an input of the model.
        inversion_samples: Largest number of test samples on which classical methods are tested.
        assumed_levels: Noise levels that classical methods, and models trained on a range, assume.
            Levels are given as multiples of the true level, and include 1.
        only: Names of the classical methods to test; by default all that the equation offers.
        test_kind: Kind of noise on the test samples; by default the kind that the experiment
            declares. All methods assume the declared kind.
        cells: Number of cells along each axis on which classical methods reconstruct the
            coefficient; by default the number of data points.

    Raises:
        SchemaError: If the experiment does not map noisy solutions to the input, or a level is
            impossible. `check` also raises it if the equation does not offer a requested method.
    """

    experiment: Experiment
    store: str
    folder: Path
    train_levels: tuple[Trained, ...]
    test_levels: tuple[float, ...]
    seeds: int
    inversion_samples: int = 100
    assumed_levels: tuple[float, ...] = (1.0,)
    only: tuple[str, ...] = ()
    test_kind: str | None = None
    cells: int | None = None

    def __post_init__(self) -> None:
        data, noise = self.experiment.data, self.experiment.noise
        if (data.input, data.target) != ("u", "a") or noise is None:
            raise SchemaError(
                f"study noise: experiment {self.experiment.name} must learn u -> a and have [noise]"
            )
        for name, levels in (("train", self.train_levels), ("test", self.test_levels)):
            for level in levels:
                self.noise(level)  # raises for an impossible level
            check_levels(name, levels)
        for level in self.train_levels:
            self.training(Cell(level))  # raises if this level cannot be trained
        if self.seeds < 1:
            raise SchemaError(f"seeds must be at least 1, got {self.seeds}")
        check_classical(self.inversion_samples, self.assumed_levels, self.cells)
        check_kinds(noise.kind, self.test_kind)
        for level in self.test_levels:
            self.tested(level)  # raises for an unknown kind

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as JSON, because the classes of operator settings are created at import."""
        rest = (
            self.store, self.folder, self.train_levels, self.test_levels, self.seeds,
            self.inversion_samples, self.assumed_levels, self.only, self.test_kind, self.cells,
        )  # fmt: skip
        return _from_text, (self.experiment.model_dump_json(exclude_none=True), *rest)

    def noise(self, level: Trained) -> InputNoise:
        """The experiment's noise at a given level. Models are trained with this noise, and
        classical methods assume it.
        """
        assert self.experiment.noise is not None
        return self.experiment.noise.replaced({"level": level}, "noise level")

    def tested(self, level: float) -> InputNoise:
        """The noise on the test samples at a given level."""
        noise = self.noise(level)
        if self.test_kind is None:
            return noise
        fields = {"kind": self.test_kind, "level": level, "seed": noise.seed, "fresh": noise.fresh}
        return InputNoise.parse(fields, "test kind")

    @property
    def values(self) -> tuple[float, float] | None:
        """The two values of a two-phase coefficient, smaller one first; None for other targets."""
        physics = physics_of(open_sealed(self.store))
        return physics.phases.get(self.experiment.data.target)

    @property
    def models(self) -> list[Cell]:
        return [Cell(level, seed) for level in self.train_levels for seed in range(self.seeds)]

    @property
    def with_wrong_level(self) -> list[Cell]:
        """A cell for each model trained on a range and each wrong level that it assumes."""
        wrong = [factor for factor in self.assumed_levels if factor != 1]
        ranged = [model for model in self.models if isinstance(model.method, tuple)]
        return [replace(model, assumed_level=factor) for factor in wrong for model in ranged]

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
        """The models whose predictions a classical method corrects.

        The list is empty if no method can start from a prediction.
        """
        if self.inversions.corrector is None:
            return []
        return [Cell(level, corrected=True) for level in self.train_levels]

    def tests(self, method: Cell) -> list[list[Cell]]:
        """The tests of a method, as one list for each test level. The list has one test for each
        seed."""
        seeds = range(1 if isinstance(method.method, str) else self.seeds)
        return [[replace(method, seed=seed, at=at) for seed in seeds] for at in self.test_levels]

    def training(self, cell: Cell) -> StudyTraining:
        changed = {"noise.level": cell.method, "training.seed": cell.seed}
        assert not isinstance(cell.method, str)
        folder = self.folder / "models" / f"level-{key(cell.method)}-seed-{cell.seed}"
        return StudyTraining(self.experiment.with_overrides(changed), self.store, folder)

    # interface of the runner

    def check(self, device: torch.device) -> None:
        self.source.samples("test", noise=None).resident()
        _ = self.inversions.methods  # raises for unknown methods, or if the equation has none

    def claim(self, device: torch.device, resume: bool, overwrite: bool) -> None:
        declared = {
            "experiment": self.experiment.model_dump(mode="json"),
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
        same = ("experiment", "content")
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
            "solved": [TUNED_ON, KNOWN, self.inversion_samples, self.cells],
            "assumed_level": part.assumed_level,
            "method": part.name,
        }
        if not isinstance(part.method, str):
            weights = read(self.training(part).checkpoint)
            parts["weights"] = hashlib.sha256(weights).hexdigest()
        if part.corrected:
            parts["corrector"] = self.inversions.corrector
        return experiment_key(self.experiment, self.store, **parts)

    def kept(self, part: Cell) -> Row | None:
        if part.at is None:
            return None if self.training(part).finished() is None else Row()
        return super().kept(part)

    def keep(self, part: Cell, row: Row) -> None:
        if part.at is not None:
            super().keep(part, row)

    def progress_line(self, part: Cell, row: Row) -> str:
        if isinstance(part.method, str):
            return f"{part.name} at {part.at:g}"
        tested = "" if part.at is None else f", tested at {part.at:g}"
        return f"{part.name}, seed {part.seed}{tested}"

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
        return self.source.samples("test", noise=None).resident().u[..., 0].double().numpy()

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
        return predictions[..., 0].double().numpy()

    def test_pairs_of(self, cell: Cell) -> Samples:
        """The noisy test samples for a model. If the model has the noise level as an input, their
        inputs contain the assumed level.
        """
        assert cell.at is not None
        experiment, assumed_level = self.training(cell).experiment, None
        if cell.assumed_level != 1:
            assumed_level = cell.assumed_level * cell.at
        noise = self.tested(cell.at)
        return (
            Source(self.store, experiment, at=cell.at, assumed_level=assumed_level)
            .samples("test", noise=noise)
            .resident()
        )

    def _constant(self) -> np.ndarray:
        """The mean coefficient of the training samples, repeated for every test sample."""
        mean = kept_mean(self.training(self.models[0]).folder, self.source)
        return np.full_like(self.truth, float(mean.mean()))

    @cached_property
    def inversions(self) -> Inversions:
        return Inversions(self.source, self.only, self.cells)

    def data(self, part: Cell) -> Observed:
        """The data of the first test samples, for a classical method."""
        assert part.at is not None
        pairs, noise = self.test_pairs(part.at), self.noise(part.at)
        return self.inversions.data(pairs, noise, part.assumed_level, self.inversion_samples)

    def weight(self, part: Cell) -> float:
        """Regularisation weight of a classical method, chosen on validation samples with the noise
        that the method assumes.
        """
        assert isinstance(part.method, str)
        assert part.at is not None
        noise = self.noise(part.at)
        validation = self.source.samples("validation", noise=noise).resident()
        data = self.inversions.data(validation, noise, part.assumed_level, TUNED_ON)
        targets = validation.u[:TUNED_ON, ..., 0].double().numpy()
        return self.inversions.weight(part.method, data, targets)

    def model_answers(self, part: Cell, device: torch.device) -> np.ndarray:
        """Predictions of a model that a classical method corrects, for the first test samples."""
        return self.predicted(replace(part, corrected=False), device)[: self.inversion_samples]

    def _inverted(self, part: Cell, device: torch.device) -> Row:
        """The row of a classical method on the first test samples.

        The method runs alone or starts from the predictions of a model.
        """
        data, weight, seconds = self.data(part), None, 0.0
        if isinstance(part.method, str):
            weight = self.weight(part)
            inverted = self.inversions.invert(part.method, weight, data)
        else:
            answers = self.model_answers(part, device)
            inverted = self.inversions.correct(data, answers)
            seconds = self.training(part).seconds(self.test_pairs_of(part), device)
        row = self._scored(part, inverted.fields(self.truth.shape[1]), inverted.estimates)
        row.weight, row.solves = weight, inverted.solves
        row.inference_seconds = seconds + inverted.seconds
        row.solve_seconds = self.inversions.solve_seconds
        return row

    def _scored(self, part: Cell, fields: np.ndarray, estimates: Sequence[Estimate] = ()) -> Row:
        """The row with all measures of the reconstructed fields.

        To compute the misfit, the equation is solved for each field. Classical reconstructions are
        used on the cells of the method. Values of two-phase fields are first limited to the range
        between the phases.
        """
        assert part.at is not None
        count, (low, high) = len(fields), self.values or (-np.inf, np.inf)
        noise, solved = self.tested(part.at), min(count, self.inversion_samples)
        solved_fields = [estimate.a for estimate in estimates] or list(fields[:solved])
        data = self.inversions.data(self.test_pairs(part.at), noise, 1.0, solved)
        misfits = self.inversions.misfits(data, [np.clip(a, low, high) for a in solved_fields])
        cells = self.inversions.truth[:count] if estimates else None
        scores = measured(
            Reconstructed(fields, self.truth[:count], self.values, misfits, estimates, cells)
        )
        return Row(errors=scores.pop("errors"), scores=scores)

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


def _from_text(declared: str, *rest: Any) -> NoiseStudy:
    return NoiseStudy(Experiment.parse(json.loads(declared), "study"), *rest)
