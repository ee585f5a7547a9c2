"""Compares the problem of a store with that of the data on which a model was trained."""

from collections.abc import Iterator, Mapping
from typing import TypeGuard

from pydantic import ValidationError

from pdegen.equations.base import problem_from_table
from pdegen.schema import SchemaError, brief
from pdegen.store.format import Json
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment

_LAW = {"law", "low", "high"}  # keys of the law of a number


def training_problem(experiment: Experiment, store: str | Store) -> Json:
    """The problem of the training samples, as recipes declare it. It is empty for imported data and
    for stores with noise."""
    if experiment.data.stream is not None:
        return experiment.data.stream.load_recipe().problem.model_dump(mode="json")
    return open_sealed(store).metadata.recipe.problem


def differences(description: Json, experiment: Experiment, store: str | Store) -> str:
    """The constants of a store that differ from those of the training data, in one line.

    Keys of the discretisation are not compared. Numbers in the range of a law of the training data
    do not differ from it. The result is empty if no constant differs, or if one of the two problems
    is unknown.

    Args:
        description: Description of the checkpoint.
        experiment: The experiment of the checkpoint.
        store: The store, or its URL.
    """
    metadata = open_sealed(store).metadata
    trained, stored = _trained_problem(description, experiment), metadata.recipe.problem
    if not trained or not stored:
        return ""
    (trained, _), (stored, excluded) = _with_defaults(trained), _with_defaults(stored)
    if stored["equation"] != trained["equation"]:
        return f"equation = {stored['equation']}, trained on {trained['equation']}"
    return "; ".join(
        f"{key} = {_printed(value)}, trained on {_printed(other)}"
        for key, value, other in _differing(stored, trained)
        if not any(f"{key}.".startswith(f"{name}.") for name in excluded)
    )


def _trained_problem(description: Json, experiment: Experiment) -> Json:
    """The problem that a checkpoint records."""
    if "problem" in description:
        return description["problem"]
    try:
        recipe = (experiment.data.stream or experiment.data).load_recipe()
    except SchemaError:
        return {}
    same = recipe.fingerprint == description["data"]["fingerprint"]
    return recipe.problem.model_dump(mode="json") if same else {}


def _with_defaults(table: Json) -> tuple[Json, tuple[str, ...]]:
    """A recorded problem with the keys that earlier versions lack, and the keys of its
    discretisation. The table is unchanged if its equation is not registered."""
    try:
        problem = problem_from_table(table)
    except (ValidationError, SchemaError):
        return table, ("resolution", "solver")
    return problem.model_dump(mode="json"), problem.discretization


def _differing(
    stored: object, trained: object, key: str = ""
) -> Iterator[tuple[str, object, object]]:
    """The dotted keys whose values differ, and both values."""
    if _is_law(trained):
        if not _within(stored, trained):
            yield key, stored, trained
    elif _is_law(stored):
        yield key, stored, trained
    elif isinstance(stored, Mapping) and isinstance(trained, Mapping):
        for name in stored:
            if name in trained:
                inner = f"{key}.{name}" if key else name
                yield from _differing(stored[name], trained[name], inner)
    elif isinstance(stored, list) and isinstance(trained, list) and _have_tables(stored, trained):
        for number, (value, other) in enumerate(zip(stored, trained, strict=True)):
            yield from _differing(value, other, f"{key}.{number}")
    elif stored != trained:
        yield key, stored, trained


def _have_tables(stored: list[object], trained: list[object]) -> bool:
    """Whether two lists have equal length and at least one table, such as a law."""
    tables = any(isinstance(part, Mapping) for part in [*stored, *trained])
    return tables and len(stored) == len(trained)


def _is_law(value: object) -> TypeGuard[Json]:
    return isinstance(value, Mapping) and value.keys() == _LAW


def _within(stored: object, law: Json) -> bool:
    """Whether a number, or the range of a law of numbers, is in the range of a law."""
    if _is_law(stored):
        return law["low"] <= stored["low"] and stored["high"] <= law["high"]
    return isinstance(stored, int | float) and law["low"] <= stored <= law["high"]


def _printed(value: object) -> str:
    if _is_law(value):
        return f"{value['low']} to {value['high']}"
    named = value.get("law") if isinstance(value, Mapping) else value
    return named if isinstance(named, str) else brief(value)
