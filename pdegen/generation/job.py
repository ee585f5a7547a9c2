"""What a store is to hold: the samples of a recipe, or those of another job."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pdegen.equations.registry import equation_file_of
from pdegen.generation.measurements import label_error, sampled_inputs
from pdegen.generation.pools import Pool
from pdegen.generation.recipe_arrays import compute, layout, probe
from pdegen.recipe import Recipe, fingerprint_of
from pdegen.schema import SchemaError
from pdegen.store.arrays import Json
from pdegen.store.format import job_of
from pdegen.store.layout import Layout
from pdegen.store.reading import Store


class Job(ABC):
    """What a store is to hold. It travels to the processes that compute it."""

    device: str | None = None  # of PyTorch, that solves

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of all that the numbers depend on."""

    @property
    def identity(self) -> str:
        """What its records name: all that its bits depend on except versions of the software."""
        return self.fingerprint

    @abstractmethod
    def check(self) -> None:
        """Raise an error where the job cannot be done here."""

    def probe(self, failures: bool) -> None:
        """Raise an error where code of a user is wrong, before anything is written."""
        return

    @abstractmethod
    def layout(self) -> Layout:
        """Variables, coordinates and attributes of the store, `fingerprint` among them."""

    @abstractmethod
    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        """The values of these samples for each variable; `store` is laid out already. Raises
        SampleError if a sample cannot be computed or is not finite."""

    def skipped(self, samples: range) -> Mapping[int, str]:
        """Samples that have no values, which `compute` gives as NaN, and why."""
        return {}

    def measurements(self, workers: Pool) -> Json:
        """Further attributes of the complete store."""
        return {}

    def matches(self, store: Store) -> bool:
        """Whether the store is of this job, so that it may go on there."""
        return store.metadata.job == self.identity

    @abstractmethod
    def difference(self, store: Store) -> str:
        """What to say of a store that is of another job."""


@dataclass(frozen=True)
class RecipeJob(Job):
    """The dataset of a recipe, solved on a device of PyTorch, or with NumPy."""

    recipe: Recipe
    device: str | None

    @classmethod
    def of(cls, store: Store) -> RecipeJob:
        """What made a store. Raises SchemaError if it was not made from a recipe, or not from one
        of this version."""
        if store.command != "generate":
            raise SchemaError(
                f"{store.url} was made from other data, not from a recipe: its samples are made "
                "again by the command that made it, with --resume"
            )
        where, file = f"the recipe of {store.url}", store.metadata.equation_file
        try:
            recipe = Recipe.parse(recorded := store.raw_attributes["recipe"], where)
        except SchemaError as error:
            hint = f"; the store was made with --equation {file}" if file else ""
            raise SchemaError(f"{error}{hint}") from None
        if fingerprint_of(recorded, recipe.problem) != store.metadata.fingerprint:
            raise SchemaError(f"{store.url}: {_other_recipe(recipe, store)}")
        return cls(recipe, store.metadata.provenance.device or None)

    @property
    def fingerprint(self) -> str:
        return self.recipe.fingerprint

    def check(self) -> None:
        self.recipe.problem.check_solver(self.device)

    def probe(self, failures: bool) -> None:
        probe(self.recipe, self.device, failures)

    def layout(self) -> Layout:
        return layout(self.recipe, self.device, self.recipe.problem.software(self.device))

    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        return compute(self.recipe, samples, self.device)

    def measurements(self, workers: Pool) -> Json:
        recipe = self.recipe
        return {**label_error(recipe, workers), **sampled_inputs(recipe, workers)}

    @property
    def identity(self) -> str:
        return job_of(self.fingerprint, self.device)

    def difference(self, store: Store) -> str:
        if store.metadata.fingerprint == self.fingerprint:
            device = store.metadata.provenance.device or "cpu"
            return f"{store.url} was begun with --device {device}: resume it with that"
        there = store.metadata.fingerprint
        own, others = self.recipe.model_dump(mode="json"), store.raw_attributes["recipe"]
        same = {key for key in own if own[key] == others.get(key)}
        if own.keys() - same - {"name", "summary", "remark"} == {"splits"}:
            return (
                f"{store.url} was laid out with other splits "
                f"({json.dumps(others.get('splits'))}, this one {json.dumps(own['splits'])}): "
                "--overwrite starts anew"
            )
        return (
            f"{store.url} was made from another recipe (fingerprint {there[:12]}, this one "
            f"{self.fingerprint[:12]})"
        )


def _other_recipe(recipe: Recipe, store: Store) -> str:
    """Why a recipe has not the fingerprint of the store that says it."""
    made, own = store.metadata.equation_file, equation_file_of(type(recipe.problem))
    word = recipe.problem.equation_name
    if made is not None and (own is None or own.digest != made.sha256):
        there = "" if own is None else f", {own.path} is another version of it"
        return f"its equation {word} is of the file {made}{there}: give that by --equation"
    if made is None and own is not None:
        return (
            f"its equation {word} was registered by an import, not by the file {own.path}: verify "
            "it where that is imported, or generate it by --equation or pdegen.load_equation"
        )
    return "the recipe does not have the store's fingerprint"
