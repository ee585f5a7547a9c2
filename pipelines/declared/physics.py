"""What a store says of its fields."""

from __future__ import annotations

from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.format import Physics
from pdegen.store.store import Store


def physics_of(store: Store) -> Physics:
    """Boundary values, symmetries, phases, sentences and hints to draw by of a store.

    A store from before equations said them has those of its recipe, where its equation is known.
    """
    recipe = store.attributes.get("recipe", {})
    if "physics" not in store.attributes and "problem" in recipe:
        try:
            return Recipe.parse(recipe, store.url).problem.physics()
        except SchemaError:  # of an equation that is not here
            return Physics()
    return Physics.of(store.attributes)
