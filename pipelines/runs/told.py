"""What the card of an exported dataset says of its recipe: TOML, and the meaning of each key."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pdegen.foreign.hugging_card import Told
from pdegen.recipe import Recipe
from pipelines.declared.keys import keys_of
from pipelines.runs.reproduction import toml


def told_of(recipe: Mapping[str, Any]) -> Told:
    """What is said of a recipe; nothing of one that is none here: of an import, of a store with
    noise, of an equation whose file was not given.

    >>> from pdegen.recipe import load_recipe
    >>> told = told_of(load_recipe("burgers-quick").model_dump(mode="json"))
    >>> told.meanings["viscosity"]
    'The viscosity ν (length²/time).'
    """
    try:
        declared = Recipe.model_validate(recipe)
    except ValidationError:
        return Told()
    problem = declared.problem.model_dump(mode="json")
    meanings = {
        key.name: f"{key.meaning[:-1]} ({key.unit})." if key.unit else key.meaning
        for key in keys_of(type(declared.problem), problem)
        if not key.when and key.meaning and len(key.choices) != 1  # else there is no choice
    }
    return Told(toml(recipe), meanings)
