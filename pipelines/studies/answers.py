"""Answers to a test set: files of others, classical methods, and trained operators.

The answers of a method are a folder. `method.toml` describes the method. Each condition that it
answers has a file NAME.npz, a Zarr group NAME.zarr, or a file NAME.npy for `a` alone. The arrays
are any of

    a (samples, m, m)            reconstructed coefficient, constant on m x m cells, any m
    draws (members, samples, m, m)   draws of the posterior
    probability (samples, m, m)  probability of the upper phase
    deviation (samples, m, m)    standard deviation of `a`: the probability is that of N(a, s²)
    seconds, solves (samples)    cost
    number (samples)             numbers of the samples, as in the data

A subfolder validation/ with such files of the validation samples calibrates conformal bands.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
import torch
import zarr
from jaxtyping import Float
from pydantic import Field

from operators.api import load_model
from operators.posterior import FlowPosterior
from operators.training.identity import key_of
from pdegen.api import open as open_dataset
from pdegen.files import read
from pdegen.inverse.classical import ALGORITHM, ClassicalMethod, InverseProblem, averages
from pdegen.sampling.noise import SENSORS, Noise, ProductSensors
from pdegen.schema import Count, NonNegative, SchemaError, Strict, read_toml
from pipelines.runs.finished import read_result
from pipelines.runs.predictions import weights_of
from pipelines.runs.score import phases as phase_masks
from pipelines.studies.inversions import (
    CONSTANT,
    KNOWN,
    TUNED_ON,
    Observed,
    chosen_weight,
    inverted,
)
from pipelines.studies.testset import DATA, UNREADABLE, VALIDATION, SensorData, TestSetFolder

METHOD = "method.toml"
_ARRAYS = ("a", "probability", "deviation", "draws", "seconds", "solves", "number")
_KEY = "made_from"  # array of files of ours: a hash of all that determines the answers


class MethodFacts(Strict):
    """The name of a method, what it was told, and its costs.

    Args:
        name: Name in tables. Folders of one name are seeds of one method.
        seed: Seed of the training.
        pooled: Number of seeds that are one method together.
        paper: Publication.
        told: What the method knows beside the data: level and kind of the noise, prior, phases.
        training_samples, training_seconds, parameters, device: Facts about a trained method.
        inversion: Solver and cells of the inversion.
        testset: Digest of the test set that was answered; another one is refused.
    """

    name: Annotated[str, Field(min_length=1)]
    seed: int = 0
    pooled: Count = 1
    paper: str = ""
    told: str = ""
    training_samples: Count | None = None
    training_seconds: NonNegative | None = None
    parameters: Annotated[int, Field(ge=0)] | None = None
    device: str = ""
    inversion: str = ""
    testset: str = ""


@dataclass(frozen=True)
class Answers:
    """Answers to one condition. The first samples of the condition are answered."""

    a: Float[np.ndarray, "samples m m"]
    probability: Float[np.ndarray, "samples m m"] | None = None
    draws: Float[np.ndarray, "members samples k k"] | None = None
    seconds: Float[np.ndarray, " samples"] | None = None
    solves: Float[np.ndarray, " samples"] | None = None
    made_from: str = ""  # hash of all that determines the answers; empty for files of others

    def first(self, samples: int) -> Answers:
        """The answers for the first samples."""
        cut = {
            name: value[:, :samples] if name == "draws" else value[:samples]
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray)
        }
        return replace(self, **cut)


# Folders of answers.


def read_method(folder: Path) -> MethodFacts:
    """The description of the method in a folder. Raises SchemaError if it is absent or invalid."""
    return MethodFacts.parse(read_toml(folder / METHOD), str(folder / METHOD))


def answer_file(folder: Path, condition: str) -> Path | None:
    """The file with the answers to a condition; None if there is none."""
    files = (folder / f"{condition}{suffix}" for suffix in (".npz", ".npy", ".zarr"))
    return next((file for file in files if file.exists()), None)


def read_answers(
    path: Path, data: SensorData, samples: int, phases: tuple[float, float]
) -> Answers:  # fmt: skip
    """Read the answers to the first samples of a condition.

    Args:
        data: The data that were to be answered.
        phases: The two values of the coefficient, smaller one first.

    Raises:
        SchemaError: If samples are missing or not those of the data, a value is not finite, a
            probability is not in [0, 1], or a shape is wrong. The message names file and sample.
    """
    arrays, made_from = _arrays(path)
    unknown = sorted({*arrays} - {*_ARRAYS})
    if unknown:
        raise SchemaError(f"{path}: unknown array {unknown[0]}: known are {', '.join(_ARRAYS)}")
    number = arrays.pop("number", None)
    if number is not None and not np.array_equal(number.ravel()[:samples], data.number[:samples]):
        raise SchemaError(f"{path}: answers of other samples, `number` differs from the data's")
    for name, values in arrays.items():
        _check(path, name, values, len(data.number), samples)
    if not arrays.keys() & {"a", "probability", "draws"}:
        raise SchemaError(f"{path} has no array a, probability or draws")
    if (p := arrays.get("probability")) is not None and (p.min() < 0 or p.max() > 1):
        raise SchemaError(f"{path}: probability must be in [0, 1], got {p.min():g} to {p.max():g}")
    low, high = phases
    if (s := arrays.pop("deviation", None)) is not None:
        if "a" not in arrays or s.shape != arrays["a"].shape or s.min() <= 0 or p is not None:
            raise SchemaError(
                f"{path}: deviation must be > 0 on the cells of a, in place of probability"
            )
        z = (arrays["a"] - (low + high) / 2) / s
        arrays["probability"] = scipy.special.ndtr(z)
    if "a" not in arrays:
        mean = arrays["probability"] if p is not None else None
        a = arrays["draws"].mean(axis=0) if mean is None else low + (high - low) * mean
        arrays["a"] = a
    return Answers(**arrays, made_from=made_from).first(samples)


def _arrays(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a file, in float64, and the hash of what determines them, if there is one."""
    try:
        if path.suffix == ".npy":
            found = {"a": np.load(path, allow_pickle=False)}
        elif path.suffix == ".npz":
            with np.load(io.BytesIO(read(path)), allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
        else:
            group = zarr.open_group(path, mode="r")
            found = dict[str, np.ndarray]()
            for name, array in group.arrays():
                if array.nchunks_initialized < array.nchunks:
                    raise ValueError(f"{name} lacks chunks")
                found[name] = np.asarray(array[...])
        made_from = str(found.pop(_KEY, ""))
        for name, values in found.items():
            if values.dtype.kind not in "biuf":
                raise TypeError(f"{name} must have real numbers, got {values.dtype}")
        return {name: values.astype(np.float64) for name, values in found.items()}, made_from
    except UNREADABLE as error:
        raise SchemaError(f"cannot read {path}: {error}") from None


def _check(path: Path, name: str, values: np.ndarray, every: int, samples: int) -> None:
    """Raise SchemaError if an array has a wrong shape, too few samples, or values that are not
    finite."""
    batch = 1 if name == "draws" else 0
    ndim = batch + (1 if name in ("seconds", "solves") else 3)
    square = ndim == 1 or values.shape[-1:] == values.shape[-2:-1]
    if values.ndim != ndim or not square or 0 in values.shape:
        form = {1: "(samples)", 3: "(samples, m, m)", 4: "(members, samples, m, m)"}[ndim]
        raise SchemaError(f"{path}: {name} must have the shape {form}, got {values.shape}")
    count = values.shape[batch]
    if not samples <= count <= every:
        needed = f"{samples} to {every}" if samples < every else f"{every}"
        raise SchemaError(f"{path}: {name} has {count} samples, expected {needed}")
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argwhere(~finite)[0][batch])
        raise SchemaError(f"{path}: {name} is not finite in row {row}")
    if ndim == 1 and values.min() < 0:
        raise SchemaError(f"{path}: {name} must be >= 0, got {values.min():g}")


def encoded(answers: Answers, data: SensorData) -> bytes:
    """The content of an .npz file of answers."""
    values = {k: value for k, value in vars(answers).items() if isinstance(value, np.ndarray)}
    arrays = {name: value.astype(np.float32) for name, value in values.items()}
    arrays["number"] = data.number[: len(answers.a)]
    arrays[_KEY] = np.array(answers.made_from)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


# Classical methods.


@dataclass(frozen=True)
class ClassicalAnswers:
    """Answers by a classical method that the equation of a test set offers, or by the constant.

    The method knows the law of the coefficient, its two values, and the noise that the condition
    tells.
    """

    testset: TestSetFolder
    name: str

    @cached_property
    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients of training samples on the cells of the inversion, and their pressures."""
        declared = self.testset.declared
        dataset = open_dataset(self.testset.training).isel(sample=slice(KNOWN))
        a = dataset[declared.target].values.astype(np.float64)
        to = averages(a.shape[-1], declared.cells)
        return to @ a @ to.T, dataset[declared.input].values.astype(np.float64)

    @lru_cache(maxsize=8)  # noqa: B019 - one object for each command
    def methods(self, points: str) -> tuple[InverseProblem, dict[str, ClassicalMethod]]:
        """The inverse problem for data at these sensors, and its methods by name."""
        a, u = self._known
        where, n = SENSORS[points], u.shape[-1]
        x = (np.arange(n) + 0.5) / n
        if isinstance(where, ProductSensors):
            lines = list(where.lines)
            setting = InverseProblem(x[lines], a, u[:, lines][:, :, lines])
        else:
            mask = np.zeros((n, n), dtype=bool)
            mask.flat[where.indices] = True
            setting = InverseProblem(x, a, u, mask)
        problem = self.testset.declared.recipe_of("core").problem
        return setting, problem.inversions(setting)

    @property
    def names(self) -> list[str]:
        """Names of the methods, those of all sensors."""
        first = next(iter(self.testset.declared.conditions.values()))
        return [CONSTANT, *self.methods(first.sensors)[1]]

    distinction = ""  # no other method has its name

    @property
    def described(self) -> MethodFacts:
        """The description of the method for tables."""
        cells, digest = self.testset.declared.cells, self.testset.digest
        if self.name == CONSTANT:
            return MethodFacts(name=self.name, told="mean of training samples", testset=digest)
        first = next(iter(self.testset.declared.conditions.values()))
        of = self.methods(first.sensors)[1][self.name]
        told = ", ".join(
            ["level"] * of.takes_level + ["kind"] + ["prior"] * of.knows_law + ["phases"]
        )
        inversion = f"finite volumes on {cells} x {cells} cells"
        return MethodFacts(name=self.name, told=told, inversion=inversion, testset=digest)

    def offers(self, condition: str) -> bool:
        """Whether the method inverts the data of a condition."""
        sensors = self.testset.declared.conditions[condition].sensors
        return self.name == CONSTANT or self.name in self.methods(sensors)[1]

    def made_from(self, condition: str) -> str:
        """Hash of all that determines the answers to a condition."""
        return key_of(testset=self.testset.digest, condition=condition, method=self.name,
                      algorithm=ALGORITHM)  # fmt: skip

    def answer(self, condition: str, samples: int, part: str = DATA) -> Answers:
        """Invert the first samples of a condition, or its validation samples. The method's weight
        is chosen on validation samples with the noise that the condition tells."""
        declared, name = self.testset.declared, self.name
        if name == CONSTANT:
            mean = float(self._known[0].mean())
            return Answers(np.full((samples, 1, 1), mean))
        of = declared.conditions[condition]
        setting, methods = self.methods(of.sensors)
        low, high = declared.phases
        validation = self._observed(self.testset.data(condition, VALIDATION), of.assumed, setting)
        known = low + (high - low) * self.testset.validation[:TUNED_ON].astype(np.float64)
        to = averages(known.shape[-1], declared.cells)
        first = Observed(validation.values[:TUNED_ON], validation.laws[:TUNED_ON])
        choice = chosen_weight(methods[name], first, to @ known @ to.T)
        data = self._observed(self.testset.data(condition, part), of.assumed, setting)
        tested = Observed(data.values[:samples], data.laws[:samples])
        result = inverted(methods[name], choice.weight, tested)
        a = np.stack([estimate.a for estimate in result.estimates])
        stated = all(estimate.std is not None for estimate in result.estimates)
        return Answers(
            a, (a - low) / (high - low) if stated else None,
            seconds=np.full(samples, result.seconds),
            solves=np.array([float(estimate.solves) for estimate in result.estimates]),
        )  # fmt: skip

    def _observed(self, data: SensorData, noise: Noise, setting: InverseProblem) -> Observed:
        """Values and the assumed laws of their noise, in the shape that the methods take."""
        shape, seen = setting.u.shape[1:], setting.sensors
        where = np.full(shape, True) if seen is None else seen
        values: np.ndarray = np.zeros((len(data.values), *shape))
        sigma: np.ndarray = np.zeros(shape)
        values[:, where], sigma[where] = data.values, data.sigma
        points = np.stack(np.meshgrid(setting.x, setting.x, indexing="ij"), axis=-1)
        model = noise.build()
        laws = [model.law(d, setting.u, sigma, points) for d in values]
        if seen is None:
            return Observed(values, laws)
        return Observed(values[:, seen], [law.at(seen) for law in laws])


# Trained operators.


@dataclass(frozen=True)
class OperatorAnswers:
    """Answers by the operator of a finished run, to the conditions with its sensors.

    Raises ReportError if the folder is no finished run, SchemaError if its data are not those of
    the test set.
    """

    testset: TestSetFolder
    run: Path

    @cached_property
    def _result(self) -> Any:
        return read_result(self.run)

    def __post_init__(self) -> None:
        data, declared = self._result.experiment.data, self.testset.declared
        learned = self._result.experiment.variables
        if learned != ((declared.input,), (declared.target,)) and learned != (
            declared.input, declared.target,
        ):  # fmt: skip
            raise SchemaError(f"{self.run} does not learn {declared.input} -> {declared.target}")
        if data.recipe != declared.recipe:
            raise SchemaError(
                f"{self.run} was trained on {data.recipe}, the test set needs {declared.recipe}"
            )
        recipes = [
            data.load_recipe(),
            *([] if data.stream is None else [data.stream.load_recipe()]),
        ]
        if declared.seed in [recipe.seed for recipe in recipes]:
            raise SchemaError(f"{self.run} was trained on the samples of the test set")

    @property
    def distinction(self) -> str:
        """Words that tell this run from others of the same operator."""
        return f"seed {self._result.experiment.training.seed} {weights_of(self._checkpoint)[:8]}"

    @property
    def described(self) -> MethodFacts:
        """The description of the operator for tables."""
        experiment, noise = self._result.experiment, self._result.experiment.noise
        told = "training samples without noise"
        if noise is not None:
            ranged, level = isinstance(noise.level, tuple), noise.level
            size = " to ".join(f"{v:g}" for v in (level if isinstance(level, tuple) else (level,)))
            told = f"{'level, ' * ranged}training samples with {noise.kind} noise {size}"
        drawing = ", flow" if experiment.training.loss.name == "flow" else ""
        return MethodFacts(
            name=f"{experiment.model.name}{drawing}",
            seed=experiment.training.seed,
            told=told,
            training_samples=experiment.data.samples or experiment.data.load_recipe().splits.train,
            training_seconds=self._result.scores.training_seconds,
            parameters=self._result.scores.parameters,
            testset=self.testset.digest,
        )

    @property
    def _checkpoint(self) -> Path:
        return self.run / f"{self._result.experiment.training.reported[0]}.safetensors"

    def made_from(self, condition: str) -> str:
        """Hash of all that determines the answers to a condition."""
        return key_of(testset=self.testset.digest, condition=condition,
                      weights=weights_of(self._checkpoint))  # fmt: skip

    def offers(self, condition: str) -> bool:
        """Whether the operator was trained on data of this condition's sensors."""
        sensors = self.testset.declared.conditions[condition].sensors
        noise, where = self._result.experiment.noise, SENSORS[sensors]
        if noise is not None and noise.points is not None:
            return noise.points == sensors
        return isinstance(where, ProductSensors) and where.resolution == self._shape[0]

    @property
    def _shape(self) -> tuple[int, int]:
        return (self._result.experiment.data.finest_resolution,) * 2

    def answer(self, condition: str, samples: int, part: str = DATA) -> Answers:
        """Predict the coefficients of the first samples of a condition, or of its validation
        samples. An operator that was trained by the cross-entropy states probabilities, too, and
        one by the loss flow draws."""
        data = self.testset.data(condition, part)
        values = data.values[:samples].astype(np.float32)
        experiment = self._result.experiment
        if experiment.noise is not None and experiment.noise.points is not None:
            a = np.zeros((samples, *self._shape), np.float32)
            a[:, data.row, data.column] = values
        else:
            a = values.reshape(samples, *self._shape)
        channels = [a]
        scale = None if experiment.noise is None else experiment.noise.levels
        if scale is not None:
            level = self.testset.declared.conditions[condition].assumed.level
            channels.append(np.full_like(a, float(scale.feature(level))))
        model = load_model(self._checkpoint)
        inputs = np.stack(channels, axis=-1)
        if isinstance(model.predictor, FlowPosterior):
            seed = experiment.training.seed  # seeds that are pooled have their own x₀
            draws = model.draw(inputs, seed=seed, samples=data.number[:samples].tolist())[..., 0]
            draws = draws.astype(np.float64)
            upper = phase_masks(draws, self.testset.declared.phases)
            return Answers(draws.mean(0), upper.mean(0), draws)
        u = torch.as_tensor(model.predict(inputs))[..., 0].double()
        phases = model.predictor.phases
        return Answers(u.numpy(), None if phases is None else phases.share(u).numpy())


def conditions_of(
    testset: TestSetFolder, chosen: Sequence[str]
) -> Iterator[str]:  # fmt: skip
    """The conditions of the given names, or all. Raises SchemaError for an unknown name."""
    known = testset.declared.conditions
    for name in chosen:
        if name not in known:
            raise SchemaError(f"unknown condition {name!r}: known: {', '.join(known)}")
    yield from chosen or known
