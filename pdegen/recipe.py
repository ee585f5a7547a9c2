"""Strict TOML -> frozen recipe -> fingerprint. A recipe says everything that a dataset depends on."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pdegen.burgers import ETDRK4, BurgersSolver, ColeHopf
from pdegen.grid import PeriodicGrid
from pdegen.random_fields import PeriodicGaussianField

# Enters every fingerprint: raised when a change of this code changes the numbers of a recipe.
ALGORITHM_VERSION = 1

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class RecipeError(ValueError):
    """A recipe or an override that cannot be; one line: what, where, what is allowed."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PeriodicGaussian(Strict):
    """N(0, sigma²(-Δ + tau²)^(-alpha)) on the circle of length 1, without its mean."""

    law: Literal["periodic-gaussian"]
    sigma: Positive
    tau: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    alpha: Annotated[float, Field(gt=0.5, allow_inf_nan=False)]
    modes: Count

    def build(self) -> PeriodicGaussianField:
        return PeriodicGaussianField(self.sigma, self.tau, self.alpha, self.modes)


class ColeHopfMethod(Strict):
    method: Literal["cole-hopf"]
    resolution: Count

    def build(self, viscosity: float) -> BurgersSolver:
        return ColeHopf(PeriodicGrid(self.resolution), viscosity)


class ETDRK4Method(Strict):
    method: Literal["etdrk4"]
    resolution: Count
    dt: Positive
    tolerance: Positive = 1e-3

    def build(self, viscosity: float) -> BurgersSolver:
        return ETDRK4(PeriodicGrid(self.resolution), viscosity, self.dt, self.tolerance)


class Burgers(Strict):
    """uₜ + u uₓ = viscosity uₓₓ on the circle of length 1: the map u(0) -> u(times)."""

    equation: Literal["burgers"]
    viscosity: Positive
    times: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1, strict=False)]
    resolution: Count
    initial: PeriodicGaussian
    solver: Annotated[ColeHopfMethod | ETDRK4Method, Field(discriminator="method")]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, n in (("resolution", self.resolution), ("solver.resolution", self.solver.resolution)):
            if n < 4 or n % 2:
                raise ValueError(f"{name} must be even and >= 4, got {n}")
        solving = self.solver.resolution
        if solving < 2 * self.initial.modes + 2:
            raise ValueError(
                f"initial.modes = {self.initial.modes} need solver.resolution >= "
                f"{2 * self.initial.modes + 2}, got {solving}"
            )
        if solving % self.resolution:
            raise ValueError(
                f"resolution must divide solver.resolution = {solving}, got {self.resolution}"
            )
        if list(self.times) != sorted(set(self.times)):
            raise ValueError(f"times must increase, got {list(self.times)}")
        return self


class Splits(Strict):
    """Samples of each split. Training is taken from the front of the dataset, test from its end,
    validation from just before the test samples."""

    train: Count
    validation: Count
    test: Count

    def ranges(self, samples: int) -> dict[str, tuple[int, int]]:
        """First and one past the last sample of each split."""
        return {
            "train": (0, self.train),
            "validation": (samples - self.test - self.validation, samples - self.test),
            "test": (samples - self.test, samples),
        }

    def scaled(self, factor: float) -> Splits:
        """The same shares of another number of samples, at least one each."""
        return Splits(
            **{name: max(1, round(n * factor)) for name, n in self.model_dump().items()}
        )


class Recipe(Strict):
    """Everything that a dataset depends on.

    Args:
        name, summary: For people; not part of the fingerprint.
        samples: Number of samples.
        seed: Seed of the random streams; sample i depends on (seed, i) alone.
        shard: Samples in a shard, the unit of work and of writing.
        problem: Equation, law, resolution and solver.
        splits: Sizes of train, validation and test.
    """

    name: str
    summary: str
    samples: Count
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    shard: Count
    problem: Burgers
    splits: Splits

    @model_validator(mode="after")
    def _splits_fit(self) -> Self:
        total = self.splits.train + self.splits.validation + self.splits.test
        if total > self.samples:
            raise ValueError(f"splits need {total} samples, got samples = {self.samples}")
        return self

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all that the numbers depend on, and the layout; 64 hexadecimal digits."""
        content = self.model_dump(mode="json", exclude={"name", "summary"})
        content["algorithm"] = ALGORITHM_VERSION
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def with_overrides(self, overrides: Mapping[str, Any]) -> Recipe:
        """This recipe with other values at dotted keys, such as {"problem.viscosity": 0.01}.

        The last part of a key is enough where it is unambiguous. With another number of samples
        the splits keep their shares, unless they are overridden too.

        Raises:
            RecipeError: On an unknown or ambiguous key, or an impossible value.
        """
        content = self.model_dump()
        changes = {_full_key(key): value for key, value in overrides.items()}
        samples = changes.get("samples")
        if isinstance(samples, int) and not any(key.startswith("splits.") for key in changes):
            content["splits"] = self.splits.scaled(samples / self.samples).model_dump()
        for key, value in changes.items():
            *parents, last = key.split(".")
            target = content
            for parent in parents:
                target = target[parent]
            target[last] = value
        return _validated(content, f"recipe {self.name}")


def _models(annotation: Any) -> Iterator[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _keys(model: type[Strict]) -> dict[str, None]:
    keys: dict[str, None] = {}
    for name, field in model.model_fields.items():
        inner = list(_models(field.annotation))
        for one in inner:
            keys |= {f"{name}.{key}": None for key in _keys(one)}
        if not inner:
            keys[name] = None
    return keys


def known_keys() -> list[str]:
    """All dotted keys of a recipe."""
    return list(_keys(Recipe))


def _near(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"


def _full_key(key: str) -> str:
    known = known_keys()
    matches = [k for k in known if f".{k}".endswith(f".{key}")]
    depth = min((k.count(".") for k in matches), default=0)
    matches = [k for k in matches if k.count(".") == depth]  # `resolution` is the output's
    if not matches:
        last = {k.rsplit(".", 1)[-1]: k for k in reversed(known)}
        close = difflib.get_close_matches(key.rsplit(".", 1)[-1], list(last), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(last[c] for c in close)}?" if close else _near(key, known)
        raise RecipeError(f"unknown key {key!r}: {hint}")
    if len(matches) > 1:
        raise RecipeError(f"key {key!r} is ambiguous: {' or '.join(matches)}")
    return matches[0]


def _validated(content: Mapping[str, Any], where: str) -> Recipe:
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        tags = {"burgers", "cole-hopf", "etdrk4"}
        key = ".".join(str(part) for part in first["loc"] if part not in tags)
        if first["type"] == "extra_forbidden":
            raise RecipeError(f"{where}: unknown key {key!r}: {_near(key, known_keys())}") from None
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] in ("missing", "value_error"):
            raise RecipeError(f"{where}: {key + ': ' if key else ''}{message}") from None
        raise RecipeError(f"{where}: {key}: {message}, got {first['input']!r}") from None


def recipe_folder() -> Path:
    """The folder of the recipes that come with the project."""
    beside = Path(__file__).parents[1] / "datasets"  # a checkout; in a wheel it is package data
    return beside if beside.is_dir() else Path(str(files("pdegen"))) / "datasets"


def recipe_names() -> list[str]:
    """The recipes that come with the project."""
    return sorted(path.stem for path in recipe_folder().glob("*.toml"))


def load_recipe(name: str | Path) -> Recipe:
    """A recipe by its name, or from a TOML file.

    Raises:
        RecipeError: On an unknown name (naming the near ones), a file that cannot be read, and
            on unknown keys or impossible values.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = recipe_folder() / f"{name}.toml"
        if str(name) not in recipe_names():
            raise RecipeError(f"unknown recipe {str(name)!r}: {_near(str(name), recipe_names())}")
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"cannot read recipe {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path} is not valid TOML: {error}") from None
    return _validated(content, f"recipe {path.stem}")


def parse_recipe(content: Mapping[str, Any]) -> Recipe:
    """A recipe from its dictionary, as a store keeps it."""
    return _validated(content, "recipe")
