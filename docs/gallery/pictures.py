"""Pictures of the gallery: their files, those that `draw.py` draws, and their thumbnails."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from pdegen.recipe import load_recipe, recipe_names

PICTURES = Path(__file__).parents[1] / "pictures"
SMALL = "-quick"  # ends the name of the small form of a recipe
WAVES = {"kdv", "kuramoto-sivashinsky"}  # drawn over x and t, one sample
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

# Panels that a thumbnail shows side by side: left, top, right and lower end, as shares of the
# picture. Key: the equation of the recipe, or how fields of other equations are drawn.
Panel = tuple[float, float, float, float]
PANELS: dict[str, tuple[Panel, ...]] = {
    "line": ((0.053, 0.125, 0.337, 0.455),),
    "plane": ((0.035, 0.17, 0.187, 0.49), (0.515, 0.6, 0.675, 0.925)),
    "waves": ((0.55, 0.125, 0.873, 0.808),),
    "darcy": ((0.275, 0.2, 0.441, 0.525), (0.275, 0.605, 0.441, 0.93)),
    "darcy-inclusion": ((0.036, 0.122, 0.215, 0.372), (0.036, 0.703, 0.215, 0.952)),
    "elasticity": ((0.3, 0.115, 0.455, 0.355),),
    "airfoil": ((0.492, 0.105, 0.647, 0.46),),
    "pipe": ((0.045, 0.19, 0.245, 0.385),),
    "plasticity": ((0.045, 0.325, 0.235, 0.49),),
    "shock-tube": ((0.05, 0.495, 0.345, 0.652),),
}
OPERATOR: dict[int, tuple[Panel, ...]] = {  # by the number of space dimensions
    1: ((0.55, 0.205, 0.828, 0.752),),
    2: ((0.675, 0.15, 0.88, 0.83),),
}
HEIGHT = 240  # pixels of a thumbnail


def of_recipe(name: str) -> Path | None:
    """The picture of a recipe; a small form of a recipe may have that of the full one."""
    for one in (name, name.removesuffix(SMALL)):
        for place in (PICTURES / f"{one}.png", PICTURES / "recipes" / f"{one}.png"):
            if place.exists():
                return place
    return None


def of_operator(name: str) -> Path | None:
    """The picture of an operator; None if it is not drawn yet."""
    place = PICTURES / "operators" / f"{name}.png"
    return place if place.exists() else None


def recipes() -> list[str]:
    """Recipes to draw: those without a picture in docs/pictures that are no small form of another
    recipe."""
    every = recipe_names()
    shown = {name for name in every if (PICTURES / f"{name}.png").exists()}
    small = {name for name in every if name.removesuffix(SMALL) in {*every} - {name}}
    return [name for name in every if name not in shown | small]


def small(name: str) -> bool:
    """Whether a recipe is the small form of another one."""
    return name.endswith(SMALL) and name.removesuffix(SMALL) in recipe_names()


def panels(name: str) -> tuple[Panel, ...]:
    """The panels in the thumbnail of a recipe."""
    problem = load_recipe(name).problem
    if problem.equation_name in PANELS:
        return PANELS[problem.equation_name]
    drawn = "line" if problem.domain.dim == 1 else "plane"
    return PANELS["waves" if name in WAVES else drawn]


def write_thumbnail(picture: Path, shown: tuple[Panel, ...], out: Path) -> None:
    """Cut panels out of a picture and put them side by side, `HEIGHT` pixels high."""
    with Image.open(picture) as image:
        full = image.convert("RGB")
    width, height = full.size
    cut = [
        full.crop((x0 * width, y0 * height, x1 * width, y1 * height)) for x0, y0, x1, y1 in shown
    ]
    cut = [one.resize((round(one.width * HEIGHT / one.height), HEIGHT)) for one in cut]
    gap = 8
    total = sum(one.width for one in cut) + gap * (len(cut) - 1)
    thumbnail, left = Image.new("RGB", (total, HEIGHT), "white"), 0
    for one in cut:
        thumbnail.paste(one, (left, 0))
        left += one.width + gap
    out.parent.mkdir(parents=True, exist_ok=True)
    thumbnail.quantize(64, dither=Image.Dither.NONE).save(out, optimize=True)
