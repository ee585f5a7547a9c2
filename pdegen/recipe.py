"""Recipes of datasets and their fingerprints. Recipes are read from TOML, in which unknown keys are
errors."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from jaxtyping import Float
from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from pdegen.checks.check import StoreChecks, checks_of_selected
from pdegen.equations.base import Problem, RegisteredProblem, SampleError
from pdegen.numerics.device import one_thread
from pdegen.plugins import plugin_of
from pdegen.sampling.coefficients import Finite
from pdegen.sampling.noise import hashed
from pdegen.schema import Count, Name, SchemaError, Strict, brief, flattened, near
from pdegen.shipped import recipe_folder, recipe_names
from pdegen.store.format import SAMPLES
from pdegen.store.layout import check_sizes

# Headlines of recipes. A headline is a template such as "ν = {viscosity}", filled with the values
# of a recipe.


_PLACEHOLDER = re.compile(r"\{([a-z]\w*(?:\.\w+)*)\}")
_DERIVED = ("points", "formula", "samples")


class HeadlineError(ValueError):
    """A headline names a key that the recipe does not have. The message has one line."""


def headline(template: str, problem: Problem, samples: int) -> str:
    """Fill a template with the values of a recipe.

    A template contains keys of the problem in braces, such as `{solver.refinement}`. A table such
    as `{force}` is replaced by a sentence that describes it. `{points}` is replaced by the shape of
    the domain, `{formula}` by the equation, and `{samples}` by the number of samples. Raises
    HeadlineError if a key is unknown.
    """

    def value(match: re.Match[str]) -> str:
        return _printed(match[1], problem, samples)

    return _PLACEHOLDER.sub(value, template)


def keys_of(template: str) -> list[str]:
    """The keys in a template.

    >>> keys_of("u(0) -> u at t = {times} on {points} points, {0, 1}")
    ['times', 'points']
    """
    return _PLACEHOLDER.findall(template)


def _printed(key: str, problem: Problem, samples: int) -> str:
    if key == "samples":
        return f"{samples}"
    if key == "points":
        return " x ".join(map(str, problem.domain.shape))
    if key == "formula":
        return problem.formula
    value: object = problem
    for part in key.split("."):
        value = getattr(value, part, None)
        if value is None:
            keys = [*_DERIVED, *type(problem).model_fields]
            raise HeadlineError(
                f"the headline prints {{{key}}}, which the problem does not have: "
                f"its keys are {', '.join(keys)}, or --set summary=... gives another headline"
            )
    if isinstance(value, BaseModel):
        sentence = problem.physics().sentences.get(key) or getattr(value, "sentence", None)
        if not isinstance(sentence, str):
            raise HeadlineError(f"the headline prints {{{key}}}, a table: name one of its keys")
        return sentence
    if isinstance(value, Sequence) and not isinstance(value, str):
        return listed(list(value))
    return number(value) if isinstance(value, float) else str(value)


def listed(values: Sequence[object]) -> str:
    """A list of values as text. If there are three or more numbers, the text has only the first,
    the last and the count.

    >>> listed([0.5]), listed([1.0, 2.0, 3.0]), listed(["u", "v"])
    ('0.5', '1 ... 3 (3 times)', 'u, v')
    """
    words = [number(value) if isinstance(value, float) else str(value) for value in values]
    if len(words) < 3 or isinstance(values[0], str):
        return ", ".join(words)
    return f"{words[0]} ... {words[-1]} ({len(words)} times)"


def number(value: float) -> str:
    """A number as text with up to six digits. A number that needs more digits is written as a
    multiple of 1/2π, if the factor has at most three digits.

    >>> number(0.1 / (2 * math.pi)), number(1 / (2 * math.pi)), number(1e-5), number(0.3)
    ('0.1/2π', '1/2π', '1e-05', '0.3')
    """
    turns = value * 2 * math.pi
    short = f"{turns:.3g}"
    if float(f"{value:.6g}") != value and math.isclose(turns, float(short), rel_tol=1e-14):
        return f"{short}/2π"
    return f"{value:.6g}"


class Splits(Strict):
    """Number of samples in each split. The split train has the first samples of the dataset, test
    has the last, and validation has those just before test.

    Args:
        train, validation, test: Number of samples in this split.
    """

    train: Count
    validation: Count
    test: Count

    def ranges(self, samples: int) -> dict[str, tuple[int, int]]:
        """Range (start, stop) of the samples in each split."""
        return {
            "train": (0, self.train),
            "validation": (samples - self.test - self.validation, samples - self.test),
            "test": (samples - self.test, samples),
        }

    def left_out(self, samples: int) -> range:
        """Numbers of the samples between the splits train and validation. They are in no split."""
        return range(self.train, self.ranges(samples)["validation"][0])

    def scaled(self, samples: int, of: int) -> dict[str, int]:
        """Sizes of the splits for another number of samples.

        The splits validation and test keep their shares of the samples, but have at least one
        sample. The split train has the rest.

        Args:
            samples: The new number of samples.
            of: The old number of samples.
        """
        validation, test = (max(1, round(n * samples / of)) for n in (self.validation, self.test))
        train = max(1, samples - validation - test)
        return {"train": train, "validation": validation, "test": test}


ATTEMPTS = 1000  # largest number of draws of a selected sample


class Selection(Strict):
    """Selection of samples by a statistic of their input.

    Sample i is the first of its attempts 0, 1, 2, ... whose statistic s has low <= s <= high.
    Attempt 0 is sample i of the recipe without a selection; attempt k has a seed hashed from that
    of the recipe and k. So sample i remains a function of (seed, i) alone, at every resolution.

    Args:
        statistic: Name of the statistic. Two-phase and other phase coefficients of Darcy flow have
            the "share" of the cells where the field is at least the last threshold, and the
            "length" of this phase's interface, along cell faces. Log-normal ones and the initial
            values of Burgers' equation have the "energy", the mean square of the Gaussian field.
        low, high: Bounds of the statistic. [the statistic's]
        outside: Whether the samples outside of the bounds are accepted instead.
    """

    statistic: str
    low: Finite
    high: Finite
    outside: bool = False

    @model_validator(mode="after")
    def _rise(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be less than high, got {self.low:g} and {self.high:g}")
        return self

    @property
    def words(self) -> str:
        """The accepted values in words, such as "share in [0.4, 0.6]"."""
        where = "outside of" if self.outside else "in"
        return f"{self.statistic} {where} [{self.low:g}, {self.high:g}]"

    def distance(self, s: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
        """Distance of a statistic from accepted values; 0 if it is accepted.

        >>> Selection(statistic="share", low=0.4, high=0.6).distance(np.array([0.3, 0.5])).round(9)
        array([0.1, 0. ])
        """
        if self.outside:
            return np.maximum(np.minimum(s - self.low, self.high - s), 0)
        return np.maximum(np.maximum(self.low - s, s - self.high), 0)


class Recipe(Strict):
    """Everything that a dataset depends on.

    Args:
        name: Name of the recipe; not part of the fingerprint.
        summary: Template of the headline, in which `{key}` stands for the value of a key of the
            problem (`pdegen.recipe`); not part of the fingerprint.
        remark: A remark on the recipe, such as the file that it reproduces; dropped if the
            problem, the selection or the number of samples is overridden.
        samples: Number of samples.
        first: Number i of the first sample in its random stream. A store of other test samples
            than those of the recipe begins there.
        seed: Seed of the random streams; sample i depends only on (seed, i).
        shard: Number of samples in a shard, the unit of work and of writing.
        problem: Equation, law of the inputs, resolution and solver.
        splits: Sizes of train, validation and test.
        codec: Compression of the store: "lz4", "zstd" (smaller, slower) or "none".
        select: Bounds of a statistic that all samples have; by default samples have the whole law.
    """

    name: Name
    summary: str
    remark: str = ""
    samples: Annotated[Count, Field(le=SAMPLES)]
    first: Annotated[int, Field(ge=0, le=SAMPLES)] = 0
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    shard: Count
    problem: Annotated[Problem, RegisteredProblem]
    splits: Splits
    codec: Literal["lz4", "zstd", "none"] = "lz4"
    select: Selection | None = None

    @model_validator(mode="after")
    def _has_statistic(self) -> Self:
        if self.select is None or self.select.statistic in self.problem.statistics:
            return self
        equation = self.problem.equation_name
        hint = ", ".join(self.problem.statistics) or "no statistic"
        raise ValueError(
            f"select.statistic: unknown {brief(self.select.statistic)}: {equation} has {hint} here"
        )

    @model_validator(mode="after")
    def _splits_fit(self) -> Self:
        total = self.splits.train + self.splits.validation + self.splits.test
        if total > self.samples:
            raise ValueError(f"splits need {total} samples, got samples = {self.samples}")
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out keys that recipes of older versions do not have, unless they are set."""
        table = content(self)
        return {
            key: value for key, value in table.items() if key not in ("first", "select") or value
        }

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
        """One line that describes the dataset."""
        line = headline(self.summary, self.problem, self.samples)
        if self.select is not None:
            line = f"{line}; {self.select.words}"
        return f"{line}; {self.remark}" if self.remark else line

    def stream(self, sample: int) -> tuple[int, int]:
        """Seed and number of the random stream of a sample. Samples are counted from 0.

        Raises SampleError if no attempt has the statistic that the recipe selects.
        """
        number, select = self.first + sample, self.select
        if select is None:
            return self.seed, number
        drawn = self.problem.statistics[select.statistic].drawn
        for attempt in range(ATTEMPTS):
            seed = hashed(self.seed, "attempt", attempt) if attempt else self.seed
            with one_thread():
                distance = select.distance(np.array([drawn(seed, number)]))
            if not distance.any():
                return seed, number
        raise SampleError(
            sample, f"none of {ATTEMPTS} attempts has a {select.words}: select more probable values"
        )

    def compute(self, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
        """The values of samples by variable (`Problem.compute`). Samples are counted from 0.

        Raises SampleError if a sample cannot be solved or is not finite.
        """
        parts = list[dict[str, np.ndarray]]()
        streams = [self.stream(sample) for sample in samples] if self.select else []
        of_seeds = groupby(streams, key=itemgetter(0)) if self.select else [(self.seed, samples)]
        start = self.first + samples.start
        for seed, group in of_seeds:
            numbers = range(start, start + len(list(group)))
            start = numbers.stop
            try:
                parts.append(self.problem.compute(seed, numbers, device))
            except SampleError as error:
                raise SampleError(error.sample - self.first, error.reason) from error
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def checks(self) -> StoreChecks:
        """New checks of a store of this recipe. Those of selected samples have the bounds of the
        statistic in place of moments (`pdegen.checks.check.checks_of_selected`)."""
        checks, select = self.problem.checks_of_store(), self.select
        if select is None:
            return checks
        stored = self.problem.statistics[select.statistic].stored

        def distance(values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            statistic, slack = stored(values)
            return select.distance(statistic), slack

        variable = self.problem.variables()[0].name
        return checks_of_selected(checks, variable, select.statistic, distance)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that determines the numbers and the layout; see `fingerprint_of`."""
        return fingerprint_of(self.model_dump(mode="json"), self.problem)

    def with_overrides(self, overrides: Mapping[str, Any]) -> Recipe:
        """A copy of this recipe with other values. `overrides` maps dotted keys to values, such as
        {"problem.viscosity": 0.01}. A table stands for its dotted keys
        (`pdegen.schema.flattened`).

        The last part of a key is enough if it is unambiguous. If the number of samples changes and
        no split is overridden, validation and test keep their shares of the samples, and train has
        the rest. Raises SchemaError if a key is unknown or ambiguous, or a value is impossible.
        """
        given = flattened(overrides)
        changes = {self.resolved_key(key, given): value for key, value in given.items()}
        samples = changes.get("samples")
        if type(samples) is int and not any(key.startswith("splits.") for key in changes):
            scaled = self.splits.scaled(samples, self.samples)
            changes |= {f"splits.{name}": n for name, n in scaled.items()}
        changed = self.replaced(changes, f"recipe {self.name}")
        same = all(
            getattr(changed, k) == getattr(self, k) for k in ("problem", "samples", "select")
        )
        if same or "remark" in changes:
            return changed
        return changed.model_copy(update={"remark": ""})


def fingerprint_of(
    content: Mapping[str, Any], problem: Problem, algorithm: int | None = None
) -> str:
    """The fingerprint of a recipe as recorded in a store, in JSON, as 64 hexadecimal digits.

    Recipes of older versions may have fewer keys. `algorithm` is the number of the code of the
    equation; None for this one. For an equation from a file (--plugin), the SHA-256 of the file is
    also included. Any change of the file therefore gives another fingerprint.
    """
    left_out = {"name", "summary", "remark"}
    if content.get("codec") == "lz4":  # recipes of older versions have no codec
        left_out.add("codec")
    content = {key: value for key, value in content.items() if key not in left_out}
    content["algorithm"] = problem.algorithm if algorithm is None else algorithm
    source = plugin_of(type(problem))
    if source is not None:  # a user does not raise `algorithm` at each edit of the file
        content["source"] = source.digest
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def default_store(recipe: Recipe) -> str:
    """Default path of the dataset of a recipe. The path contains the name and the fingerprint."""
    return f"data/{recipe.name}-{recipe.fingerprint[:12]}.zarr"


def load_recipe(name: str | Path) -> Recipe:
    """Load a recipe by its name, or from a TOML file. Raises SchemaError if the name is unknown
    (the message lists similar names), if the file cannot be read, if a key is unknown, or if a
    value is impossible."""
    path = Path(name)
    if path.suffix != ".toml":
        path = recipe_folder() / f"{name}.toml"
        if str(name) not in recipe_names():
            hint = near(str(name), recipe_names(), lists="pdegen recipes")
            raise SchemaError(f"unknown recipe {brief(str(name))}: {hint}")
    return Recipe.load(path)
