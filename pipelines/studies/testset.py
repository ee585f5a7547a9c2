"""Frozen test sets for inverse problems: truths, noisy data under many conditions, digests.

A set is a folder. Anyone can read it with NumPy:

    set.json                what the set was made from, and the SHA-256 of every array
    data/NAME.npz           data of a condition: values (samples, sensors) float32; row, column,
                            x, y (sensors); sigma (sensors), the deviation of clean data over
                            training samples; number (samples), of the samples in the truth
    validation/NAME.npz     the same of validation samples, with the noise that methods are told
    validation/truth.npz    upper (samples, n, n), whether a cell is in the upper phase
    answers/TRUTH.npz       the same of the test samples; methods must not read it
    stores/                 the stores of all samples, which an interrupted set goes on with
"""

from __future__ import annotations

import hashlib
import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from pdegen.api import generate
from pdegen.api import open as open_dataset
from pdegen.files import FileError, read, read_json, write, write_json
from pdegen.generation.generate import Progress
from pdegen.recipe import Recipe, load_recipe
from pdegen.sampling.noise import SENSORS, Noise, ProductSensors, pointwise_std
from pdegen.schema import Count, SchemaError, Strict, near, read_toml
from pdegen.store.objects import Objects
from pdegen.store.reading import StoreError, open_sealed
from pipelines.runs.folder import FolderClaim

# errors of NumPy and of its readers of damaged .npz and .npy files
UNREADABLE = (
    OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, NotImplementedError,
    MemoryError, AttributeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip
_SHIPPED = Path(__file__).parents[1] / "config" / "testsets"
_HOLDING = FolderClaim("test set", "set.json")
DATA, VALIDATION = "data", "validation"  # the parts of a condition, each a folder
_TRAINING = "training"  # the store of training samples
_CORE = "core"  # the truth of the validation samples
_OF_GRID = ("blur", "sensors")  # kinds that are another noise on every grid


def testset_names() -> list[str]:
    """Names of the shipped test sets."""
    return sorted(file.stem for file in _SHIPPED.glob("*.toml"))


class Truth(Strict):
    """Test samples of one law and one solver.

    Args:
        samples: Number of samples, the validation samples included.
        validation: Number of first samples that are for validation.
        overrides: Values of recipe keys that replace those of the set's recipe.
    """

    samples: Count
    validation: int = 0
    overrides: dict[str, Any] = Field(default_factory=dict)


class Condition(Strict):
    """SensorData of a truth: sensors and noise.

    Args:
        sensors: Name of the sensors (`pdegen.sampling.noise.SENSORS`).
        noise: Noise of the data, with its level.
        told: Noise that methods assume; by default that of the data.
        truth: Name of the truth.
    """

    sensors: str
    noise: Noise
    told: Noise | None = None
    truth: str = _CORE

    @property
    def assumed(self) -> Noise:
        return self.told or self.noise

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.sensors not in SENSORS:
            hint = near(self.sensors, list(SENSORS))
            raise ValueError(f"unknown sensors {self.sensors!r}: {hint}")
        scattered = not isinstance(SENSORS[self.sensors], ProductSensors)
        for noise in (self.noise, self.assumed):
            if noise.seed:
                raise ValueError(f"the noise has the seed of the set, got noise.seed={noise.seed}")
            if noise.kind in _OF_GRID or (scattered and noise.kind != "ensemble"):
                raise ValueError(
                    f"{noise.kind} noise depends on the grid and is not for {self.sensors}"
                )
        return self


class TestSet(Strict):
    """Declaration of a test set.

    Args:
        name, summary: Name, and what is to be reconstructed, for people.
        recipe: Recipe of the truths and of the training data.
        input, target: Variables of the data and of the coefficient.
        seed: Seed of the truths and of the noise. Training data have another one.
        known: Number of training samples that give the deviation of the data.
        cells: Number of cells along each axis on which classical methods reconstruct.
        core: Names of the conditions whose ranks are averaged.
        truths, conditions: The truths and the conditions, by name.
    """

    __test__ = False  # no class of tests

    name: str
    summary: str
    recipe: str
    input: str = "u"
    target: str = "a"
    seed: Count
    known: Count
    cells: Count
    core: list[str]
    truths: dict[str, Truth]
    conditions: dict[str, Condition]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if _CORE not in self.truths:
            raise ValueError(f"truths need one of the name {_CORE!r}, for validation samples")
        first = self.truths[_CORE].validation
        for name, truth in self.truths.items():
            if truth.validation != first:  # numbers of validation and of test samples are apart
                raise ValueError(
                    f"truths.{name}: validation must be {first}, as of {_CORE}, got "
                    f"{truth.validation}"
                )
        for name, condition in self.conditions.items():
            if condition.truth not in self.truths:
                hint = near(condition.truth, list(self.truths))
                raise ValueError(f"conditions.{name}: unknown truth {condition.truth!r}: {hint}")
        for name in self.core:
            if name not in self.conditions:
                hint = near(name, list(self.conditions))
                raise ValueError(f"core: unknown condition {name!r}: {hint}")
        return self

    @classmethod
    def load(cls, name: str) -> TestSet:
        """The shipped test set of a name, or that of a TOML file.

        Raises SchemaError if there is none, or if it is not valid.
        """
        file = Path(name) if name.endswith(".toml") else _SHIPPED / f"{name}.toml"
        if not name.endswith(".toml") and name not in testset_names():
            raise SchemaError(f"unknown test set {name!r}: {near(name, testset_names())}")
        declared = cls.parse(read_toml(file), str(file))
        for truth in declared.truths:
            declared.recipe_of(truth)
        return declared

    def recipe_of(self, truth: str) -> Recipe:
        """The recipe of a truth, or of the training samples."""
        recipe = load_recipe(self.recipe)
        samples, changes = self.known, dict[str, Any]()
        if truth != _TRAINING:
            of = self.truths[truth]
            samples, changes = of.samples, {**of.overrides, "seed": self.seed}
        # no reader uses these splits, the set has its own; a recipe needs a sample in each
        splits = {"train": samples - 2, "validation": 1, "test": 1}
        return recipe.with_overrides({**changes, "samples": samples, "splits": splits})

    @property
    def phases(self) -> tuple[float, float]:
        """The two values of the coefficient that methods are told, smaller one first."""
        return load_recipe(self.recipe).problem.physics().phases[self.target]

    def told_phases(self, condition: str) -> bool:
        """Whether methods are told the values of the coefficient."""
        recipe = self.recipe_of(self.conditions[condition].truth)
        return recipe.problem.physics().phases.get(self.target) == self.phases


Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class SensorData:
    """SensorData of a condition.

    Args:
        values: Noisy values at the sensors.
        row, column: Indices of the sensors on the grid of the truth.
        sigma: Standard deviation of clean values over the training samples.
        number: Numbers of the samples in the truth.
        digest: SHA-256 of the values.
    """

    values: Float[np.ndarray, "samples sensors"]
    row: Int[np.ndarray, " sensors"]
    column: Int[np.ndarray, " sensors"]
    sigma: Float[np.ndarray, " sensors"]
    number: Int[np.ndarray, " samples"]
    digest: str


_MARKED = ("values", "sigma", "upper")  # arrays whose marks are shipped; others follow from them
_ROUNDING = 1e-6  # relative; another processor or library rounds otherwise


@dataclass(frozen=True)
class Mark:
    """What tells an array v from others: its SHA-256 (`digest_of`), and two numbers that rounding
    hardly changes.

    Args:
        mean: Mean of v_k cos k over the values in C order, which depends on their order.
        rms: Root mean square of v.
    """

    digest: str
    mean: float
    rms: float

    @classmethod
    def of(cls, values: np.ndarray) -> Mark:
        exact = values.astype(np.float64).ravel()
        mean = float(np.mean(exact * np.cos(np.arange(exact.size))))
        return cls(digest_of(values), mean, float(np.sqrt(np.mean(exact**2))))

    def agrees(self, other: Mark) -> bool:
        """Whether the arrays may differ by rounding alone."""
        differences = abs(self.mean - other.mean), abs(self.rms - other.rms)
        return max(differences) <= _ROUNDING * other.rms


@dataclass(frozen=True)
class TestSetFolder:
    """A generated test set.

    Raises SchemaError if the folder holds no test set.
    """

    __test__ = False

    path: Path
    _content: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            content = read_json(self.path / _HOLDING.file)
        except FileNotFoundError:
            raise SchemaError(
                f"{self.path} holds no test set: pdegen testset NAME --out FOLDER makes one"
            ) from None
        if not {"arrays", "stores", "declared"} <= content.keys():
            raise SchemaError(f"{self.path} is an unfinished test set: continue with --resume")
        object.__setattr__(self, "_content", content)

    @cached_property
    def declared(self) -> TestSet:
        return TestSet.parse(self._content["declared"], str(self.path))

    @property
    def digest(self) -> str:
        """SHA-256 of the declaration and of the digests of all arrays."""
        arrays = sorted(self._content["arrays"].items())
        of = {key: value for key, value in self._content["declared"].items() if key != "recipe"}
        declared = json.dumps(of, sort_keys=True)
        text = declared + "".join(f"\n{key} {value}" for key, value in arrays)
        return hashlib.sha256(text.encode()).hexdigest()

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a file, such as "data/full-0". Raises FileError if one has changed."""
        path = self.path / f"{name}.npz"
        try:
            with np.load(io.BytesIO(read(path)), allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
        except UNREADABLE as error:
            raise FileError(f"{path} is damaged: {error}") from None
        recorded = {
            key.rpartition("/")[2]: value
            for key, value in self._content["arrays"].items()
            if key.rpartition("/")[0] == name
        }
        for key in recorded.keys() | arrays.keys():
            if key not in arrays or digest_of(arrays[key]) != recorded.get(key):
                raise FileError(f"{path} is damaged: {key} has another SHA-256 than set.json says")
        return arrays

    def data(self, condition: str, part: str = DATA) -> SensorData:
        """SensorData of a condition; `part` is `DATA` or `VALIDATION`."""
        arrays = self.arrays(f"{part}/{condition}")
        return SensorData(
            *(arrays[key] for key in ("values", "row", "column", "sigma", "number")),
            digest=digest_of(arrays["values"]),
        )

    def upper(self, condition: str) -> Bool[np.ndarray, "samples n n"]:
        """Whether each cell of the test samples is in the upper phase."""
        return self.arrays(f"answers/{self.declared.conditions[condition].truth}")["upper"]

    @cached_property
    def validation(self) -> Bool[np.ndarray, "samples n n"]:
        """Whether each cell of the validation samples is in the upper phase."""
        return self.arrays("validation/truth")["upper"]

    def faults(self) -> Iterator[str]:
        """What has changed since the set was made; nothing if it is whole."""
        files = {key.rpartition("/")[0] for key in self._content["arrays"]}
        for name in sorted(files):
            try:
                self.arrays(name)
            except (FileError, OSError, ValueError) as error:
                yield str(error)
        for name, content in self._content["stores"].items():
            try:
                found = open_sealed(str(self.path / "stores" / f"{name}.zarr")).metadata.content
            except (StoreError, OSError) as error:
                yield str(error)
                continue
            if found != content:
                yield f"stores/{name}.zarr has other samples than set.json says"

    @property
    def marks(self) -> dict[str, Mark]:
        """Marks of the values, deviations and truths of the set, by the names of the arrays.

        Raises FileError if an array has changed.
        """
        keys = [key for key in self._content["arrays"] if key.rpartition("/")[2] in _MARKED]
        return {
            key: Mark.of(self.arrays(name)[word])
            for key in sorted(keys)
            for name, _, word in [key.rpartition("/")]
        }

    def differing(self) -> tuple[list[str], list[str]] | None:
        """Names of the arrays that differ from those of the shipped set of this name: by rounding,
        and otherwise. None if no set of this name is shipped with marks."""
        try:
            text = (_SHIPPED / f"{self.declared.name}.json").read_text()
        except FileNotFoundError:
            return None
        marks = {key: Mark(*values) for key, values in json.loads(text).items()}
        own = self.marks
        rounded, other = list[str](), sorted(own.keys() ^ marks.keys())
        for key in own.keys() & marks.keys():
            if own[key].digest != marks[key].digest:
                (rounded if own[key].agrees(marks[key]) else other).append(key)
        return sorted(rounded), sorted(other)

    @property
    def training(self) -> str:
        """Path of the store of training samples."""
        return str(self.path / "stores" / f"{_TRAINING}.zarr")


def digest_of(values: np.ndarray) -> str:
    """SHA-256 of the type, the shape and the values of an array, in little-endian order."""
    little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    head = f"{little.dtype.str} {little.shape} ".encode()
    return hashlib.sha256(head + little.tobytes()).hexdigest()


def make_testset(
    declared: TestSet,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    progress: Callable[[str, Progress], None] = lambda name, progress: None,
) -> TestSetFolder:
    """Generate a test set in a folder.

    Args:
        resume: Continue an unfinished set; finished samples are kept.
        workers: Number of threads; by default one for each core.
        progress: Called with the name of a truth after each shard.

    Raises:
        RunError: If the folder holds something else, or another set.
    """
    content = {"declared": declared.model_dump(mode="json", exclude_none=True)}
    _HOLDING.claim(folder, content, same=("declared",), resume=resume, overwrite=overwrite)
    stores, arrays = dict[str, str](), dict[str, str]()
    for name in (_TRAINING, *declared.truths):
        url = str(folder / "stores" / f"{name}.zarr")
        generate(
            declared.recipe_of(name), out=url, workers=workers,
            resume=Objects(url).exists(), overwrite=False,
            progress=lambda step, name=name: progress(name, step),
        )  # fmt: skip
        stores[name] = open_sealed(url).metadata.content
    for name, parts in _files(declared, folder):
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **parts)
        write(folder / f"{name}.npz", buffer.getvalue())
        arrays |= {f"{name}/{key}": digest_of(values) for key, values in parts.items()}
    write_json(folder / _HOLDING.file, {**content, "stores": stores, "arrays": arrays})
    return TestSetFolder(folder)


def _files(declared: TestSet, folder: Path) -> Iterator[tuple[str, Arrays]]:
    """Names and arrays of all files of a set, from its stores."""

    def read_all(name: str, variable: str) -> np.ndarray:
        return open_dataset(folder / "stores" / f"{name}.zarr")[variable].values

    low = declared.phases[0]
    std = pointwise_std([read_all(_TRAINING, declared.input)])
    solved = {name: read_all(name, declared.input) for name in declared.truths}
    for name, of in declared.truths.items():
        upper = read_all(name, declared.target) > low
        if name == _CORE:
            yield "validation/truth", {"upper": upper[: of.validation]}
        yield f"answers/{name}", {"upper": upper[of.validation :]}
    for name, condition in declared.conditions.items():
        first = declared.truths[condition.truth].validation
        yield (
            f"data/{name}",
            _measured(
                declared,
                condition.sensors,
                condition.noise,
                solved[condition.truth],
                first,
                None,
                std,
            ),
        )
        count = declared.truths[_CORE].validation
        yield (
            f"validation/{name}",
            _measured(declared, condition.sensors, condition.assumed, solved[_CORE], 0, count, std),
        )


def _measured(
    declared: TestSet,
    sensors: str,
    noise: Noise,
    u: Float[np.ndarray, "samples n n"],
    first: int,
    last: int | None,
    std: Float[np.ndarray, "n n"],
) -> Arrays:
    """Noisy values at the sensors. The noise of a sample is drawn at all points of the grid, so a
    sensor of two sets has the same noise."""
    shape, part = u.shape[1:], slice(first, last)
    row, column = np.unravel_index(np.sort(SENSORS[sensors].indices), shape)
    numbers = np.arange(len(u))[part]
    noisy = noise.build()(u[part].astype(np.float64), declared.seed, numbers.tolist(), std)
    x = (np.arange(shape[0]) + 0.5) / shape[0]
    return {
        "values": noisy[:, row, column].astype(np.float32),
        "row": row.astype(np.int32), "column": column.astype(np.int32),
        "x": x[row], "y": x[column],
        "sigma": std[row, column], "number": numbers.astype(np.int32),
    }  # fmt: skip


def open_testset(name: str) -> TestSetFolder:
    """The test set in a folder, or that of a shipped name in the folder sets/.

    Raises SchemaError if there is none.
    """
    folder = Path(name)
    if not folder.exists() and name in testset_names():
        folder = Path("sets") / name
    return TestSetFolder(folder)
