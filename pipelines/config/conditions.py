"""Conditions of an experiment: test data that differ from what methods are told."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from pdegen.recipe import Recipe
from pdegen.schema import SchemaError, Strict, flattened

EVERY = "all"  # as the only name of a condition, it stands for all of an experiment
_KEY = re.compile(r"(?P<name>.+?)\.(?P<table>truth|noise)\.(?P<key>.+)")
_OF_TRAINING = ("on", "fresh")  # keys of noise that say nothing of test data


class StudyCondition(Strict):
    """Test data that differ from what methods are told: the recipe and the noise of the experiment.

    Args:
        truth: Values of keys of the recipe, for the test samples alone.
        noise: Values of keys of the table noise, for the test inputs alone. Another kind keeps
            only the level and the seed of the noise of the experiment.
    """

    truth: Annotated[dict[str, Any], Field(default_factory=dict)]
    noise: Annotated[dict[str, Any], Field(default_factory=dict)]

    @field_validator("truth", "noise")
    @classmethod
    def _flat(cls, table: dict[str, Any]) -> dict[str, Any]:
        return flattened(table)

    @model_validator(mode="after")
    def _differs(self) -> Self:
        if not self.truth and not self.noise:
            raise ValueError("needs keys of truth or of noise")
        for key in (key for key in _OF_TRAINING if key in self.noise):
            raise ValueError(f"noise.{key} is for training samples, a condition is for test data")
        return self

    def recipe(self, of: Recipe, name: str) -> Recipe:
        """The recipe of the truths of the condition `name`.

        Its test samples have the numbers of those of the recipe `of` in the random stream. They
        are thus other functions of the same random numbers, which no training or validation sample
        has.

        Raises SchemaError if a key is unknown, if it changes more than the law, the equation or the
        solver, or if nothing changes.
        """
        where = f"conditions.{name}.truth"
        try:
            changed = of.with_overrides(self.truth)
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from None
        fixed = {"samples", "first", "seed", "shard", "splits", "codec", "name", "summary"}
        for key in sorted(fixed):
            if getattr(changed, key) != getattr(of, key):
                raise SchemaError(f"{where}: {key} is that of the recipe {of.name}: leave it out")
        shapes = [{v.name: v.shape for v in each.problem.variables()} for each in (of, changed)]
        if changed.problem.domain != of.problem.domain or any(
            shapes[1].get(key) != shape for key, shape in shapes[0].items()
        ):
            raise SchemaError(f"{where}: samples have other points than those of {of.name}")
        if changed.fingerprint == of.fingerprint:
            raise SchemaError(f"{where}: methods are told these values: leave them out")
        test = of.splits.test  # a recipe has a sample in each split
        numbers = {"samples": test + 2, "first": of.first + of.samples - test - 2}
        return changed.with_overrides(
            {**numbers, "splits": {"train": 1, "validation": 1, "test": test}}
        )

    @property
    def words(self) -> str:
        """The values in which the data differ, as text."""
        tables = {"truth": self.truth, "noise": self.noise}
        return ", ".join(f"{t}.{k} = {json.dumps(v)}" for t in tables for k, v in tables[t].items())


def changed(
    declared: Mapping[str, StudyCondition], values: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Tables of conditions in which values such as {"NAME.noise.kind": "correlated"} replace
    others. A name that is not declared adds a condition. Raises SchemaError for other keys."""
    tables = {name: condition.model_dump() for name, condition in declared.items()}
    for key, value in values.items():
        if (match := _KEY.fullmatch(key)) is None:
            raise SchemaError(
                f"unknown key 'conditions.{key}': keys are conditions.NAME.truth.KEY of the recipe "
                "and conditions.NAME.noise.KEY"
            )
        table = tables.setdefault(match["name"], {"truth": {}, "noise": {}})[match["table"]]
        table.pop(match["key"], None)  # the last of several values counts
        table[match["key"]] = value
    return tables
