"""Recipes of the toy equations, and where their code is."""

from pathlib import Path

from pdegen.plugins import load_plugin
from pdegen.recipe import Recipe

TOYS = {"disc": {}, "turning": {"diffusivity": 0.01}}


def file_of(name: str) -> str:
    return str(Path(__file__).parent / f"{name}.py")


def recipe_of(name: str, **changed: object) -> Recipe:
    """A small recipe; its equation is registered."""
    load_plugin(file_of(name))
    content = {
        "name": name,
        "summary": f"the toy equation {name}",
        "samples": 24,
        "seed": 0,
        "shard": 8,
        "problem": {"equation": name, "resolution": 16, **TOYS[name]},
        "splits": {"train": 16, "validation": 4, "test": 4},
    }
    return Recipe.parse({**content, **changed}, name)
