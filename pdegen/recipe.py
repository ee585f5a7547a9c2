"""Recipes of datasets, read from strict TOML, and their fingerprints."""

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
    """Number of samples in each split. Training has the first samples of the dataset, test the
    last, and validation those just before test.

    Args:
        train, validation, test: Number of samples in this split.
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
        """Numbers of the samples between training and validation, which are in no split."""
        return range(self.train, self.ranges(samples)["validation"][0])

    def scaled(self, samples: int, of: int) -> dict[str, int]:
        """Sizes of the splits for another number of samples.

        Validation and test keep their shares, with at least one sample; training has the rest.

        Args:
            samples: The new number of samples.
            of: The old number of samples.
        """
        validation, test = (max(1, round(n * samples / of)) for n in (self.validation, self.test))
        train = max(1, samples - validation - test)
        return {"train": train, "validation": validation, "test": test}


class Recipe(Strict):
    """Everything that a dataset depends on.

    Args:
        name: Name of the recipe; not part of the fingerprint.
        summary: Template of the headline, in which `{key}` stands for the value of a key of the
            problem (`pdegen.headline`); not part of the fingerprint.
        remark: A remark on the recipe as written, such as the file that it follows; dropped if the
            problem or the number of samples is overridden.
        samples: Number of samples.
        seed: Seed of the random streams; sample i depends only on (seed, i).
        shard: Number of samples in a shard, the unit of work and of writing.
        problem: Equation, law of the inputs, resolution and solver.
        splits: Sizes of train, validation and test.
        codec: Compression of the store: "lz4", "zstd" (smaller, slower) or "none".
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
    def _is_readable(self) -> Self:
        shard = min(self.shard, self.samples)
        check_sizes(self.samples, shard, self.problem.variables())
        return self

    @model_validator(mode="after")
    def _headline_keys_exist(self) -> Self:
        headline(self.summary, self.problem, self.samples)
        return self

    @property
    def headline(self) -> str:
        """Description of the dataset in one line: the summary with its values, and the remark."""
        line = headline(self.summary, self.problem, self.samples)
        return f"{line}; {self.remark}" if self.remark else line

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that the numbers and the layout depend on; 64 hexadecimal digits.

        The code of an equation enters by its number `algorithm`. An equation from a file
        (--equation) also enters by the SHA-256 of the file, so that any change gives a new dataset.
        """
        return fingerprint_of(self.model_dump(mode="json"), self.problem)

    def with_overrides(self, overrides: Mapping[str, Any]) -> Recipe:
        """This recipe with other values at dotted keys, such as {"problem.viscosity": 0.01}.

        The last part of a key is enough if it is unambiguous. With another number of samples,
        validation and test keep their shares and training has the rest, unless splits are
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
    """`Recipe.fingerprint` of a recipe in JSON, as recorded in a store. Recipes of older versions
    may have fewer keys."""
    left_out = {"name", "summary", "remark"}
    if content.get("codec") == "lz4":  # recipes of older versions have no codec
        left_out.add("codec")
    content = {key: value for key, value in content.items() if key not in left_out}
    content["algorithm"] = problem.algorithm
    source = equation_file_of(type(problem))
    if source is not None:  # a user does not raise `algorithm` at each edit of the file
        content["source"] = source.digest
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def default_store(recipe: Recipe) -> str:
    """Default path of the dataset of a recipe, which depends on the fingerprint."""
    return f"data/{recipe.name}-{recipe.fingerprint[:12]}.zarr"


def load_recipe(name: str | Path) -> Recipe:
    """A recipe, from its name or a TOML file. Raises SchemaError on an unknown name (with similar
    names), an unreadable file, an unknown key or an impossible value."""
    path = Path(name)
    if path.suffix != ".toml":
        path = recipe_folder() / f"{name}.toml"
        if str(name) not in recipe_names():
            hint = near(str(name), recipe_names(), lists="pdegen recipes")
            raise SchemaError(f"unknown recipe {brief(str(name))}: {hint}")
    return Recipe.load(path)
