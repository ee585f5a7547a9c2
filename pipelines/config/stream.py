"""The table `data.stream` of an experiment: samples that are solved during training."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from pdegen.recipe import Recipe, load_recipe
from pdegen.schema import Count, SchemaError, Strict, flattened

_TABLE = "data.stream"
CANDIDATES = 8  # for each drawn sample, by default
RECIPE_KEYS = ("overrides", "coarse")  # tables whose keys are those of a recipe


class Stream(Strict):
    """An unlimited stream of training samples. Each one is solved during training and used once.

    Args:
        recipe: Name of the recipe that generates the samples, or its TOML file.
        overrides: Values of keys of this recipe.
        sampling: "uniform" uses all samples in turn. "tail" draws the samples of each epoch from
            several times as many candidates, more of those with large errors of the current
            weights.
        coarse: Values of keys of the recipe that make cheap solutions. With `sampling = "tail"` the
            errors of candidates are those against these solutions.
        candidates: With `sampling = "tail"`, number of candidates for each drawn sample. More of
            them lower large errors further, and their solutions and predictions take longer.
    """

    recipe: str
    overrides: Annotated[dict[str, Any], Field(default_factory=dict)]
    sampling: Literal["uniform", "tail"] = "uniform"
    coarse: Annotated[dict[str, Any], Field(default_factory=dict)]
    candidates: Annotated[Count, Field(ge=2)] = CANDIDATES

    @model_validator(mode="after")
    def _scored(self) -> Self:
        if self.sampling == "tail" and not self.coarse:
            raise ValueError(
                'sampling = "tail" predicts errors with cheap solutions: set keys of the recipe in '
                'coarse, such as coarse = {"solver.resolution" = 256}'
            )
        if self.sampling != "tail" and self.coarse:
            raise ValueError('coarse is for sampling = "tail": leave it out')
        if self.sampling != "tail" and self.candidates != CANDIDATES:
            raise ValueError('candidates is for sampling = "tail": leave it out')
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys of uniform streams that records of earlier versions do not have."""
        table = content(self)
        if self.sampling == "uniform":
            del table["sampling"], table["coarse"], table["candidates"]
        return table

    @property
    def numbers_per_sample(self) -> int:
        """How many numbers of samples of the recipe each sample of an epoch takes."""
        return self.candidates if self.sampling == "tail" else 1

    def load_recipe(self) -> Recipe:
        return load_recipe(self.recipe).with_overrides(self.overrides)

    def load_coarse(self) -> Recipe:
        """The recipe with cheap solutions. Raises SchemaError if its functions have other points or
        components."""
        recipe = self.load_recipe()
        coarse = recipe.with_overrides(self.coarse)
        shapes = [{v.name: v.shape for v in r.problem.variables()} for r in (recipe, coarse)]
        if coarse.problem.domain != recipe.problem.domain or shapes[0] != shapes[1]:
            raise SchemaError(
                f"{_TABLE}.coarse: samples of {self.recipe} would have other points or components: "
                "change keys of the solver alone"
            )
        keys = [f"problem.{key}" for key in recipe.problem.discretization]
        words = {"name", "summary", "remark"}  # which say nothing of the samples
        dumps = [r.model_dump(mode="json", exclude=words) for r in (recipe, coarse)]
        contents = [_exact(dump, keys) for dump in dumps]
        if contents[0] != contents[1]:
            raise SchemaError(
                f"{_TABLE}.coarse: samples of {self.recipe} would be of another problem: change "
                f"{', '.join(recipe.problem.discretization)} and modes alone"
            )
        return coarse


def _exact(value: object, keys: Collection[str], place: str = "") -> object:
    """A recipe without the keys that change only how well its functions are resolved: the dotted
    `keys` of its discretisation, and the numbers of modes of random fields."""
    if not isinstance(value, Mapping):
        return value
    table = {f"{place}{key}": item for key, item in value.items() if key != "modes"}
    return {key: _exact(item, keys, f"{key}.") for key, item in table.items() if key not in keys}


def overridden(
    recipe: Recipe, overrides: Mapping[str, object], values: Mapping[str, object]
) -> dict[str, object]:
    """Overrides of a recipe, with other values of some keys. A key may be given by a short or the
    full name, or in a table."""
    changed = {recipe.resolved_key(key, values): value for key, value in values.items()}
    kept = flattened(overrides).items()
    return {k: v for k, v in kept if recipe.resolved_key(k, overrides) not in changed} | changed


def change_stream(
    stream: Stream | None,
    changes: dict[str, Any],
    of_recipes: Mapping[str, Mapping[str, Any]],
    where: str,
) -> None:
    """Replace changes of keys below data.stream by a change of the whole table.

    Args:
        stream: The stream before the changes.
        changes: New values by dotted key.
        of_recipes: New values of keys of recipes, for each of `RECIPE_KEYS`.
        where: Name of the experiment in error messages.

    Raises:
        SchemaError: If the table lacks a recipe, or a key of a recipe is unknown.
    """
    below = [key for key in changes if key.startswith(f"{_TABLE}.")]
    recipe = changes.get(f"{_TABLE}.recipe", None if stream is None else stream.recipe)
    if recipe is None:
        for name, values in of_recipes.items():
            if values:
                raise SchemaError(f"{where}: {_TABLE}.{name} needs a stream: set {_TABLE}.recipe")
        return  # other keys are refused as those of a table that is not declared
    if not below and not any(of_recipes.values()):
        return
    table = {"overrides": {}} if stream is None else stream.model_dump()
    given = {key.removeprefix(f"{_TABLE}."): changes.pop(key) for key in below}
    table |= {key: value for key, value in given.items() if value != {}}
    for name, values in of_recipes.items():
        named = {key: table[key] for key in ("recipe", "overrides")}
        loaded = Stream.parse(named, f"{where}, {_TABLE}").load_recipe() if values else None
        if loaded is not None:
            table[name] = overridden(loaded, table.get(name, {}), values)
    changes[_TABLE] = Stream.parse(table, f"{where}, {_TABLE}").model_dump()
