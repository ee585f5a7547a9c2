"""Where the pictures of the gallery lie, and which of them `draw.py` draws."""

from __future__ import annotations

from pathlib import Path

from pdegen.recipe import recipe_names

PICTURES = Path(__file__).parents[1] / "pictures"
SMALL = "-quick"  # ends the name of the small form of a recipe
# Solved more coarsely than the recipe says, which takes minutes; the card says so.
COARSER = {
    "ns-1e-4": {"problem.solver.dt": 0.025, "problem.solver.tolerance": 0.5},
    "ns-1e-5": {
        "problem.solver.resolution": 200,
        "problem.solver.dt": 0.01,
        "problem.solver.tolerance": 0.5,
        "problem.solver.certified": 1.0,
    },
}


def of_recipe(name: str) -> Path | None:
    """The picture of a recipe, or of the one that it is a small form of."""
    for one in (name, name.removesuffix(SMALL)):
        for place in (PICTURES / f"{one}.png", PICTURES / "recipes" / f"{one}.png"):
            if place.exists():
                return place
    return None


def of_operator(name: str) -> Path:
    """The picture of an operator."""
    return PICTURES / "operators" / f"{name}.png"


def recipes() -> list[str]:
    """Those that are drawn: all without a picture of their own in docs/pictures, except small forms
    of others."""
    every = recipe_names()
    shown = {name for name in every if (PICTURES / f"{name}.png").exists()}
    small = {name for name in every if name.removesuffix(SMALL) in {*every} - {name}}
    return [name for name in every if name not in shown | small]
