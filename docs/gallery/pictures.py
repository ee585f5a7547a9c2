"""Pictures of the gallery: their files, those that `draw.py` draws, and their thumbnails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage

from pdegen.recipe import load_recipe, recipe_names

PICTURES = Path(__file__).parents[1] / "pictures"
SMALL = "-quick"  # ends the name of the small form of a recipe
WAVES = {"kdv", "kuramoto-sivashinsky"}  # drawn over x and t, one sample
# Solved more coarsely than the recipe says, which takes minutes, or at the last time only; the card
# says so.
COARSER = {
    "kolmogorov-500": {
        "problem.initial.burn_in": 20.0,
        "problem.solver.resolution": 128,
        "problem.solver.dt": 0.0078125,
        "problem.solver.tolerance": 0.5,
    },
    "ns-1e-4": {"problem.solver.dt": 0.025, "problem.solver.tolerance": 0.5},
    "ns-1e-5": {
        "problem.solver.resolution": 200,
        "problem.solver.dt": 0.01,
        "problem.solver.tolerance": 0.5,
        "problem.solver.certified": 1.0,
    },
    "diffusion-reaction": {"times": [5.0]},
    "wave-128": {"times": [0.5, 1.0]},
    "wave-layers": {"times": [1.0]},
}

# Numbers of the panels that a thumbnail shows side by side, from left to right and from top to
# bottom. Key: the recipe, its equation, or how fields of other equations are drawn.
PANELS: dict[str, tuple[int, ...]] = {
    "line": (0,),
    "plane": (0, -1),
    "waves": (-1,),
    "diffusion-reaction": (2,),
    "darcy": (1, 5),
    "darcy-contrast": (0, -1),
    "membrane-64": (0, -1),
    "darcy-source": (0, -1),
    "dam-break": (0, 1),
    "darcy-inclusion": (0, 8),
    "elasticity": (1,),
    "airfoil": (2,),
    "pipe": (0,),
    "plasticity": (4,),
    "shock-tube": (9,),
    "wave": (0,),
}
OPERATOR: tuple[int, ...] = (-1,)
_SOLID = 24  # pixels: letters and colour bars are narrower
_LINE = 60, 100  # pixels of the left and of the lower line of a panel of curves, at least
_NEAR = 12  # pixels between the ends of these lines
Box = tuple[int, int, int, int]  # left, top, right and lower end in pixels
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


def panels(name: str) -> tuple[int, ...]:
    """Numbers of the panels in the thumbnail of a recipe."""
    problem = load_recipe(name).problem
    for key in (name, problem.equation_name):
        if key in PANELS:
            return PANELS[key]
    drawn = "line" if problem.domain.dim == 1 else "plane"
    return PANELS["waves" if name in WAVES else drawn]


def panels_in(picture: Image.Image) -> list[Box]:
    """The panels of a picture, row by row: areas that are filled with colour, and panels of curves,
    which have a line on the left and one below. Ticks, letters and colour bars are outside."""
    values = np.asarray(picture.convert("RGB")).astype(int)
    filled = ndimage.binary_closing(np.pad(values.min(axis=2) < 250, 3), np.ones((5, 5)))
    solid = _opened(filled[3:-3, 3:-3], (_SOLID, _SOLID))
    areas = [  # without the pixels of their edges, which are mixed with white
        (left + 1, top + 1, right - 1, lower - 1)
        for left, top, right, lower in _boxes(solid)
        if right - left > 0.1 * picture.width
    ]
    dark = values.max(axis=2) < 160
    upright, level = (_boxes(_opened(dark, shape)) for shape in ((_LINE[0], 1), (1, _LINE[1])))
    curves = [
        (left, top, right, lower)
        for left, top, _, end in upright
        for start, _, right, lower in level
        if abs(left - start) < _NEAR and abs(end - lower) < _NEAR
    ]
    boxes = list[Box]()
    for box in sorted([*areas, *curves], key=_size, reverse=True):
        if not _within(box, boxes):
            boxes.append(box)
    return sorted(boxes, key=lambda box: (round(box[1] / _SOLID), box[0]))


def _opened(mask: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The opening of a mask by rectangles, whose sizes are even or 1. Filters of one axis after the
    other are much faster than `ndimage.binary_opening`."""
    inside = ndimage.minimum_filter(mask, shape, mode="constant")
    mirrored = [-1 if size % 2 == 0 else 0 for size in shape]
    return ndimage.maximum_filter(inside, shape, mode="constant", origin=mirrored)


def _boxes(mask: np.ndarray) -> list[Box]:
    """The bounding boxes of the connected parts of a mask."""
    parts = ndimage.find_objects(ndimage.label(mask, np.ones((3, 3)))[0])
    return [(x.start, y.start, x.stop, y.stop) for y, x in parts]


def _size(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def _within(box: Box, others: list[Box]) -> bool:
    """Whether the centre of a box is in another one."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return any(left < x < right and top < y < lower for left, top, right, lower in others)


def write_thumbnail(picture: Path, shown: tuple[int, ...], out: Path) -> None:
    """Cut panels out of a picture and put them side by side, `HEIGHT` pixels high."""
    with Image.open(picture) as image:
        full = image.convert("RGB")
    found = panels_in(full)
    cut = [full.crop(found[number]) for number in shown]
    cut = [one.resize((round(one.width * HEIGHT / one.height), HEIGHT)) for one in cut]
    gap = 8
    total = sum(one.width for one in cut) + gap * (len(cut) - 1)
    thumbnail, left = Image.new("RGB", (total, HEIGHT), "white"), 0
    for one in cut:
        thumbnail.paste(one, (left, 0))
        left += one.width + gap
    out.parent.mkdir(parents=True, exist_ok=True)
    thumbnail.quantize(64, kmeans=3, dither=Image.Dither.NONE).save(out, optimize=True)
