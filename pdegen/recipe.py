"""Strict TOML -> frozen recipe -> fingerprint: all that a dataset depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pdegen.equations.base import Problem
from pdegen.equations.registry import RegisteredProblem, equation_file_of
from pdegen.headline import headline
from pdegen.schema import Count, Name, SchemaError, Strict, brief, near
from pdegen.shipped import recipe_folder, recipe_names
from pdegen.store.arrays import SAMPLES
from pdegen.store.layout import check_sizes


class Splits(Strict):
    """Samples of each split. Training is taken from the front of the dataset, test from its end,
    validation from just before the test samples.

    Args:
        train, validation, test: Number of samples of this split.
    """

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

    def left_out(self, samples: int) -> range:
        """The samples between training and validation, which are in no split."""
        return range(self.train, self.ranges(samples)["validation"][0])

    def scaled(self, samples: int, of: int) -> dict[str, int]:
        """Sizes for another number of samples: validation and test keep their shares, at least one
        sample each, and training has all others."""
        validation, test = (max(1, round(n * samples / of)) for n in (self.validation, self.test))
        train = max(1, samples - validation - test)
        return {"train": train, "validation": validation, "test": test}


class Recipe(Strict):
    """Everything that a dataset depends on.

    Args:
        name: Name of the recipe; not part of the fingerprint.
        summary: A line for people, `{key}` in it stands for the value of that key of the problem
            (`pdegen.headline`); not part of the fingerprint.
        remark: What else holds of the recipe as it is written, such as the file that it follows;
            left out where the problem or the number of samples is overridden.
        samples: Number of samples.
        seed: Seed of the random streams; sample i depends on (seed, i) alone.
        shard: Samples in a shard, the unit of work and of writing.
        problem: Equation, law, resolution and solver.
        splits: Sizes of train, validation and test.
        codec: How a store of it is compressed: "lz4", "zstd" (smaller, slower) or "none".
    """

    name: Name
    summary: str
    remark: str = ""
    samples: Annotated[Count, Field(le=SAMPLES)]
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    shard: Count
    problem: Annotated[Problem, RegisteredProblem]
    splits: Splits
    codec: Literal["lz4", "zstd", "none"] = "lz4"

    @model_validator(mode="after")
    def _splits_fit(self) -> Self:
        total = self.splits.train + self.splits.validation + self.splits.test
        if total > self.samples:
            raise ValueError(f"splits need {total} samples, got samples = {self.samples}")
        return self

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        shard = min(self.shard, self.samples)
        check_sizes(self.samples, shard, self.problem.variables())
        return self

    @model_validator(mode="after")
    def _says_what_it_has(self) -> Self:
        headline(self.summary, self.problem, self.samples)
        return self

    @property
    def headline(self) -> str:
        """What it makes, in a line for people: the summary with its values, and the remark."""
        said = headline(self.summary, self.problem, self.samples)
        return f"{said}; {self.remark}" if self.remark else said

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all that the numbers depend on, and the layout; 64 hexadecimal digits.

        The code of an equation enters by its number `algorithm`; that of one from a file
        (--equation) by the SHA-256 of the file too, so that any change there is another dataset.
        """
        return fingerprint_of(self.model_dump(mode="json"), self.problem)

    def with_overrides(self, overrides: Mapping[str, Any]) -> Recipe:
        """This recipe with other values at dotted keys, such as {"problem.viscosity": 0.01}.

        The last part of a key is enough where it is unambiguous. With another number of samples
        validation and test keep their shares, and training has all other samples; unless splits are
        overridden too. Raises SchemaError on an unknown or ambiguous key, or an impossible value.
        """
        changes = {self.resolved_key(key, overrides): value for key, value in overrides.items()}
        samples = changes.get("samples")
        given = any(key.split(".")[0] == "splits" for key in changes)
        if type(samples) is int and not given:
            scaled = self.splits.scaled(samples, self.samples)
            changes |= {f"splits.{name}": n for name, n in scaled.items()}
        changed = self.replaced(changes, f"recipe {self.name}")
        same = (changed.problem, changed.samples) == (self.problem, self.samples)
        if same or "remark" in changes:
            return changed
        return changed.model_copy(update={"remark": ""})


def fingerprint_of(content: Mapping[str, Any], problem: Problem) -> str:
    """`Recipe.fingerprint` of a recipe in JSON, as a store records it, which may be of a version
    that had fewer keys."""
    left_out = {"name", "summary", "remark"}
    if content.get("codec") == "lz4":  # recipes had no codec once
        left_out.add("codec")
    content = {key: value for key, value in content.items() if key not in left_out}
    content["algorithm"] = problem.algorithm
    source = equation_file_of(type(problem))
    if source is not None:  # nobody raises the number of a file that is being written
        content["source"] = source.digest
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def default_store(recipe: Recipe) -> str:
    """Where a recipe's dataset is kept by default: one place for each fingerprint."""
    return f"data/{recipe.name}-{recipe.fingerprint[:12]}.zarr"


def load_recipe(name: str | Path) -> Recipe:
    """A recipe by its name, or from a TOML file. Raises SchemaError on an unknown name (naming the
    near ones), a file that cannot be read, and on unknown keys or impossible values."""
    path = Path(name)
    if path.suffix != ".toml":
        path = recipe_folder() / f"{name}.toml"
        if str(name) not in recipe_names():
            hint = near(str(name), recipe_names(), lists="pdegen recipes")
            raise SchemaError(f"unknown recipe {brief(str(name))}: {hint}")
    return Recipe.load(path)
