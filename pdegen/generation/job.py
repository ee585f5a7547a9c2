"""Jobs that fill a store with the samples of a recipe or of another source."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pdegen.equations.base import Problem
from pdegen.generation.measurements import label_error, sampled_inputs
from pdegen.generation.pools import Pool
from pdegen.generation.recipe_arrays import compute, layout, probe
from pdegen.plugins import plugin_of
from pdegen.recipe import Recipe, fingerprint_of
from pdegen.schema import SchemaError
from pdegen.store.format import Json, job_of
from pdegen.store.layout import Layout
from pdegen.store.reading import Store


class Job(ABC):
    """A job that fills a store with samples. Jobs are pickled and sent to worker processes."""

    device: str | None = None  # PyTorch device of the solver; None for NumPy

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of everything that the numbers depend on."""

    @property
    def identity(self) -> str:
        """Identity of the job. All records of its shards contain it. It depends on everything that
        determines the bits of the samples, except software versions."""
        return self.fingerprint

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the job cannot run on this machine."""

    def probe(self, failures: bool) -> None:
        """Test the code of a user's equation before anything is written. Raises an error if the
        code fails.

        Args:
            failures: Whether samples that cannot be computed are allowed.
        """
        return

    @abstractmethod
    def layout(self) -> Layout:
        """Variables, coordinates and attributes of the store. The attributes include the
        fingerprint."""

    @abstractmethod
    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        """Compute the values of samples. Returns a dictionary that maps the names of variables to
        arrays. The store must be laid out already. Raises SampleError if a sample cannot be
        computed or is not finite."""

    def skipped(self, samples: range) -> Mapping[int, str]:
        """The reasons why samples have no values. Keys are numbers of samples. `compute` returns
        NaN for these samples."""
        return {}

    def measurements(self, workers: Pool) -> Json:
        """Attributes that workers measure on the samples of the complete store, and that are then
        added to the store."""
        return {}

    def matches(self, store: Store) -> bool:
        """Whether the store belongs to this job. If so, the job can be resumed there."""
        return store.metadata.job == self.identity

    @abstractmethod
    def difference(self, store: Store) -> str:
        """The error message about a store that belongs to another job."""


@dataclass(frozen=True)
class RecipeJob(Job):
    """The job of a recipe, which is solved on a PyTorch device or with NumPy."""

    recipe: Recipe
    device: str | None

    @classmethod
    def of(cls, store: Store) -> RecipeJob:
        """The job that generated a store. Raises SchemaError if the store was not generated from a
        recipe, or if this version cannot read its recipe."""
        if store.command != "generate":
            raise SchemaError(
                f"{store.url} was made from other data, not from a recipe: its samples are "
                "restored by the command that made it, with --resume"
            )
        where, file = f"the recipe of {store.url}", store.metadata.equation_file
        try:
            recipe = Recipe.parse(recorded := store.raw_attributes["recipe"], where)
        except SchemaError as error:
            hint = f"; the store was made with --plugin {file}" if file else ""
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
        recipe, stored = self.recipe.model_dump(mode="json"), store.raw_attributes["recipe"]
        same = {key for key in recipe if recipe[key] == stored.get(key)}
        if recipe.keys() - same - {"name", "summary", "remark"} == {"splits"}:
            return (
                f"{store.url} was laid out with other splits "
                f"({json.dumps(stored.get('splits'))}, not {json.dumps(recipe['splits'])}): "
                "--overwrite starts again"
            )
        return (
            f"{store.url} was made from another recipe (fingerprint "
            f"{store.metadata.fingerprint[:12]}, not {self.fingerprint[:12]})"
        )


def _other_recipe(recipe: Recipe, store: Store) -> str:
    """The reason why a recipe that was read from a store has another fingerprint than the store."""
    problem, recorded = recipe.problem, store.raw_attributes["recipe"]
    if fault := other_equation(problem, store):
        return fault
    for number in range(1, problem.algorithm):
        if fingerprint_of(recorded, problem, number) == store.metadata.fingerprint:
            return (
                f"version {number} of the equation {problem.equation_name} made it, this is "
                f"version {problem.algorithm}, with other values: generate it again"
            )
    return "the recipe does not have the store's fingerprint"


def other_equation(problem: Problem, store: Store) -> str | None:
    """Why an equation is not of the file that a store was made with; None if it is."""
    stored, loaded = store.metadata.equation_file, plugin_of(type(problem))
    word = problem.equation_name
    if stored is not None and (loaded is None or loaded.digest != stored.sha256):
        version = "" if loaded is None else f", {loaded.path} is another version of it"
        return f"equation {word} comes from the file {stored}{version}: name that file by --plugin"
    if stored is None and loaded is not None:
        return (
            f"its equation {word} was registered by an import, not by the file {loaded.path}: "
            "verify it in a program with that import, or generate it again with --plugin or "
            "pdegen.load_plugin"
        )
    return None
