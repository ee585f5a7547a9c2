"""Train at some noise levels, test at others: a matrix of errors, beside classical baselines."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ValidationError

from operators.data import Pairs, averaging_weights
from operators.norms import relative_l2
from operators.training.checkpoint import CheckpointError, check_checkpoint, load_checkpoint
from operators.training.evaluate import predictions
from operators.training.files import DamagedError, read, read_json, write, write_json
from operators.training.fit import Epoch
from pdegen.domains import CellGrid
from pdegen.equations.darcy.inversion import TotalVariation
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.store import open_sealed
from pipelines.declared.experiment import Experiment
from pipelines.declared.models import build_operator
from pipelines.declared.registry import InputNoise
from pipelines.runs.data import Source
from pipelines.runs.folder import RunError, clear
from pipelines.runs.interfaces import hausdorff, intersection_over_union, phases
from pipelines.runs.run import train_part

TOTAL_VARIATION, CONSTANT = "total variation", "constant"
_WEIGHTS = (0.03, 0.3, 3.0)  # of total variation; chosen on validation samples
_TUNED_ON, _INVERTED = 2, 8  # validation and test samples of the classical inversion


class Cell(BaseModel):
    """What one method achieves on noisy test samples: one value for each sample.

    Args:
        made_from: Digest of what it was computed from; another one makes it stale.
        errors: Relative L² error of the coefficient.
        iou: Intersection over union of the phases, the mean of both.
        hausdorff: Hausdorff distance of the interfaces, the side of the square being 1.
        note: What a reader should know, such as a parameter that was chosen.
    """

    made_from: str
    errors: list[float]
    iou: list[float]
    hausdorff: list[float]
    note: str = ""


@dataclass(frozen=True)
class NoiseStudy:
    """A study in its folder; every model and every cell of the matrix is kept as it is finished.

    Args:
        experiment: The inverse problem that is trained, at other noise levels and seeds.
        store: Its data.
        folder: Where models, cells and the report are kept.
        train_levels, test_levels: Noise levels.
        seeds: Number of trainings at each level.

    Raises:
        SchemaError: If the experiment does not learn a two-phase coefficient from noisy data, or a
            level is impossible.
    """

    experiment: Experiment
    store: str
    folder: Path
    train_levels: tuple[float, ...]
    test_levels: tuple[float, ...]
    seeds: int

    def __post_init__(self) -> None:
        data, noise = self.experiment.data, self.experiment.noise
        attributes = open_sealed(self.store).attributes
        problem = attributes["recipe"].get("problem", {})
        if (data.input, data.target) != ("u", "a") or noise is None:
            raise SchemaError(
                f"study noise: experiment {self.experiment.name} must learn u -> a with [noise]"
            )
        if problem.get("coefficient", {}).get("kind") != "two-phase":
            raise SchemaError(
                f"study noise: {self.store} must hold interface Darcy with two phases, it is "
                f"{problem.get('equation', attributes['equation'])}"
            )
        for name, levels in (("train", self.train_levels), ("test", self.test_levels)):
            for level in levels:
                self._noise(level)  # refuses an impossible level
            if not levels or len(set(levels)) < len(levels):
                raise SchemaError(f"{name} levels must differ, and be at least one, got {levels}")
        if self.seeds < 1:
            raise SchemaError(f"seeds must be at least 1, got {self.seeds}")

    def _noise(self, level: float) -> InputNoise:
        assert self.experiment.noise is not None
        return self.experiment.noise.replaced({"level": level}, "noise level")

    @property
    def values(self) -> tuple[float, float]:
        """The smaller and the larger value of the coefficient."""
        recipe = Recipe.parse(open_sealed(self.store).attributes["recipe"], self.store)
        coefficient: Any = recipe.problem.model_dump()["coefficient"]
        low, high = sorted((coefficient["above"], coefficient["below"]))
        return low, high

    @property
    def models(self) -> list[tuple[float, int]]:
        """Level and seed of each training."""
        return [(level, seed) for level in self.train_levels for seed in range(self.seeds)]

    @property
    def methods(self) -> list[str]:
        """The classical methods that every test level is given to."""
        return [CONSTANT, TOTAL_VARIATION]

    def run(
        self,
        device: torch.device,
        *,
        resume: bool = False,
        overwrite: bool = False,
        progress: Callable[[str, int, int], None] = lambda what, done, total: None,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train and evaluate what is not finished yet; with `overwrite` all, from the start.

        Raises:
            DataError: If the store cannot be read as the experiment asks.
            RunError: If the folder holds something else, or is there and not to be resumed.
            Stopped: See `fit`; a model that was stopped goes on with `resume`.
        """
        self.source.clean("test")  # what cannot be read is refused before anything is written
        self._claim(resume, overwrite)
        total = len(self.models) + (len(self.models) + len(self.methods)) * len(self.test_levels)
        done = 0

        def finished(what: str) -> None:
            nonlocal done
            done += 1
            progress(what, done, total)

        for level, seed in self.models:
            folder = self._run_folder(level, seed)
            if not self._is_trained(level, seed):
                train_part(
                    self._variant(level, seed), self.store, folder, device,
                    on_epoch=on_epoch, stop=stop,
                )  # fmt: skip
                write(folder / "done", b"")
            finished(f"trained at {level:g}, seed {seed}")
        for test_level in self.test_levels:
            for level, seed in self.models:
                self.model_cell(level, seed, test_level, device)
                finished(f"trained at {level:g}, seed {seed}, tested at {test_level:g}")
            for method in self.methods:
                self.method_cell(method, test_level)
                finished(f"{method} at {test_level:g}")

    def _claim(self, resume: bool, overwrite: bool) -> None:
        declared = {
            "experiment": self.experiment.model_dump(mode="json"),
            "content": open_sealed(self.store).attributes["content"],
        }
        path = self.folder / "study.json"
        if path.exists() and overwrite:
            clear(self.folder, path.name)
        elif path.exists():
            if not resume:
                raise RunError(f"{self.folder} holds a study: use --resume or --overwrite")
            try:
                there = read_json(path)
            except DamagedError as damage:
                raise RunError(f"{damage}: start again by --overwrite") from None
            for key, value in declared.items():
                if there.get(key) != value:
                    raise RunError(f"{self.folder} holds a study of another {key}")
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise RunError(f"{self.folder} exists and is no study")
        levels = {
            "train_levels": self.train_levels, "test_levels": self.test_levels,
            "seeds": self.seeds, "store": self.store,
        }  # fmt: skip
        write_json(path, {**declared, **levels})

    def _variant(self, level: float, seed: int) -> Experiment:
        return self.experiment.with_overrides({"noise.level": level, "training.seed": seed})

    def _run_folder(self, level: float, seed: int) -> Path:
        return self.folder / "models" / f"level-{level:g}-seed-{seed}"

    def checkpoint(self, level: float, seed: int) -> Path:
        """The reported checkpoint of a training."""
        name = self.experiment.training.reported[0]
        return self._run_folder(level, seed) / f"{name}.safetensors"

    def _is_trained(self, level: float, seed: int) -> bool:
        """Whether a training is finished, and its checkpoint undamaged."""
        try:
            check_checkpoint(self.checkpoint(level, seed))
        except CheckpointError:
            return False
        return (self._run_folder(level, seed) / "done").exists()

    # the matrix

    def model_cell(self, level: float, seed: int, test_level: float, device: torch.device) -> Cell:
        """A model on noisy test samples; read where it was computed before."""
        path = self.checkpoint(level, seed)
        digest = _digest(read(path), self._test_identity(test_level))
        place = self.folder / "cells" / f"model-{level:g}-seed-{seed}-at-{test_level:g}.json"
        return _kept(place, digest, lambda: self._scored(
            self.predicted(level, seed, test_level, device), digest))  # fmt: skip

    def method_cell(self, method: str, test_level: float) -> Cell:
        """A classical method on noisy test samples; read where it was computed before."""
        settings = [method, _WEIGHTS, _TUNED_ON, _INVERTED]
        digest = _digest(json.dumps(settings).encode(), self._test_identity(test_level))
        place = self.folder / "cells" / f"{method.replace(' ', '-')}-at-{test_level:g}.json"
        if method == CONSTANT:
            return _kept(place, digest, lambda: self._scored(self._constant(), digest))
        return _kept(place, digest, lambda: self._inverted(test_level, digest))

    def _test_identity(self, test_level: float) -> bytes:
        content = open_sealed(self.store).attributes["content"]
        return f"{content} {self._noise(test_level).model_dump_json()}".encode()

    @cached_property
    def source(self) -> Source:
        return Source(self.store, self.experiment)

    def test_pairs(self, level: float) -> Pairs:
        """The test samples with frozen noise of a level."""
        return self.source.noisy("test", noise=self._noise(level))

    @cached_property
    def truth(self) -> np.ndarray:
        """The coefficients of the test samples on the target's cells."""
        return self.source.clean("test").u[..., 0].double().numpy()

    def predicted(
        self, level: float, seed: int, test_level: float, device: torch.device
    ) -> np.ndarray:
        """What a model makes of noisy test samples, shape (samples, m, m)."""
        predictor, _ = load_checkpoint(self.checkpoint(level, seed), build_operator)
        found = predictions(predictor.to(device), self.test_pairs(test_level).to(device))
        return found[..., 0].double().cpu().numpy()

    def _constant(self) -> np.ndarray:
        """The mean coefficient of the training samples, whatever the data."""
        blocks = self.source.streamed("train").targets
        sums = [(float(block.sum(dtype=torch.float64)), block.numel()) for block in blocks]
        mean = math.fsum(total for total, _ in sums) / sum(count for _, count in sums)
        return np.full_like(self.truth, mean)

    def _inverted(self, test_level: float, digest: str) -> Cell:
        """Total variation on the first test samples, its weight chosen on validation samples."""
        noise = self._noise(test_level)
        validation = self.source.noisy("validation", noise=noise)
        known = validation.u[:_TUNED_ON, ..., 0].double().numpy()

        def mean_error(weight: float) -> float:
            found = self.inverted(validation, test_level, weight, _TUNED_ON)
            return float(_errors(found, known).mean())

        weight = min(_WEIGHTS, key=mean_error)
        found = self.inverted(self.test_pairs(test_level), test_level, weight, _INVERTED)
        note = f"weight {weight:g}, first {len(found)} test samples"
        return self._scored(found, digest, note)

    def inverted(self, pairs: Pairs, level: float, weight: float, samples: int) -> np.ndarray:
        """Total variation of the first samples, on the cells of the target."""
        deviation = self.source.deviation(pairs)
        floor = 1e-3 * float(np.sqrt(np.mean(deviation**2)))  # of clean data, and next to walls
        grid = CellGrid(pairs.a.shape[1])
        method = TotalVariation(grid, pairs.x[:, 0, 0].double().numpy(), self.values, weight)
        weights = averaging_weights(grid.n, pairs.u.shape[1])
        noisy = pairs.a[:samples, ..., 0].double().numpy()
        return np.stack([weights @ method(u, level * deviation + floor) @ weights.T for u in noisy])

    def _scored(self, found: np.ndarray, digest: str, note: str = "") -> Cell:
        truth = self.truth[: len(found)]
        pairs = [(phases(p, self.values), phases(q, self.values))
                 for p, q in zip(found, truth, strict=True)]  # fmt: skip
        return Cell(
            made_from=digest,
            errors=_errors(found, truth).tolist(),
            iou=[intersection_over_union(p, q) for p, q in pairs],
            hausdorff=[hausdorff(p, q) for p, q in pairs],
            note=note,
        )


def parse_levels(text: str) -> tuple[float, ...]:
    """Noise levels separated by commas.

    >>> parse_levels("0,0.01,0.1")
    (0.0, 0.01, 0.1)
    """
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise SchemaError(f"levels are numbers separated by commas, got {text!r}") from None


def _errors(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return relative_l2(torch.from_numpy(found), torch.from_numpy(truth)).numpy()


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _kept(place: Path, digest: str, make: Callable[[], Cell]) -> Cell:
    """A cell from its file, made where that is absent, damaged or stale."""
    try:
        cell = Cell.model_validate(read_json(place))
    except (FileNotFoundError, DamagedError, ValidationError):
        cell = None
    if cell is None or cell.made_from != digest:
        cell = make()
        write_json(place, cell.model_dump(mode="json"))
    return cell


def mean_and_spread(cells: Sequence[Cell], measure: str) -> tuple[float, float]:
    """Mean over samples and seeds, and the deviation over the seeds of the means over samples."""
    means = np.array([np.mean(getattr(cell, measure)) for cell in cells])
    return float(means.mean()), float(means.std(ddof=1)) if len(means) > 1 else 0.0
