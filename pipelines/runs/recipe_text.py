"""Text about a recipe for the card of an exported dataset: the TOML and the meaning of its keys."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pdegen.formats.huggingface import RecipeText
from pdegen.recipe import Recipe
from pipelines.config.keys import keys_of
from pipelines.runs.reproduction import toml


def recipe_text(recipe: Mapping[str, Any]) -> RecipeText:
    """Text and key meanings of a recipe for dataset cards. It is empty for imports, stores with
    noise, and equations that are not registered.

    >>> from pdegen.recipe import load_recipe
    >>> text = recipe_text(load_recipe("burgers-quick").model_dump(mode="json"))
    >>> text.meanings["viscosity"]
    'The viscosity ν (length²/time).'
    """
    try:
        declared = Recipe.model_validate(recipe)
    except ValidationError:
        return RecipeText()
    problem = declared.problem.model_dump(mode="json")
    meanings = {
        key.name: f"{key.meaning[:-1]} ({key.unit})." if key.unit else key.meaning
        for key in keys_of(type(declared.problem), problem)
        if not key.when and key.meaning and len(key.choices) != 1  # a single choice says nothing
    }
    return RecipeText(toml(recipe), meanings)
