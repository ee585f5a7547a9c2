"""Draws the pictures of the gallery: python docs/gallery/draw.py [NAME ...]

A name is that of a recipe or of an operator; without names everything that the gallery shows is
drawn, except recipes whose picture lies in docs/pictures. Of a recipe its first samples are drawn,
which are a function of its seed alone. docs/gallery/coupling.py says what is drawn of an operator.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from coupling import draw as draw_operator
from pictures import COARSER, PICTURES, WAVES, recipes
from PIL import Image

import pdegen
from pdegen.recipe import load_recipe, recipe_names
from pdegen.schema import near
from pipelines.config.declared import MODELS
from pipelines.reports.pictures import plot_store

LARGEST = 60_000  # bytes of a picture
WIDTHS = 940, 800, 680  # pixels


def draw_recipe(name: str, folder: Path, out: Path) -> None:
    """Solve the first samples of a recipe and draw them: several on a line, one in the plane."""
    several = load_recipe(name).problem.domain.dim == 1 and name not in WAVES
    store = pdegen.generate(
        name, samples=6 if several else 3, overrides=COARSER.get(name), out=folder / "store.zarr",
        workers=1, overwrite=True,
    )  # fmt: skip
    plot_store(store, None if several else 0, out)


def shrink(picture: Path) -> None:
    """Write a picture again with few colours, and smaller until it has at most `LARGEST` bytes.

    Raises:
        ValueError: If it has more in the smallest width.
    """
    with Image.open(picture) as image:
        drawn = image.convert("RGB")
    for width, colours in product(WIDTHS, (128, 64)):
        size = min(width, drawn.width)
        small = drawn.resize(
            (size, round(drawn.height * size / drawn.width)), Image.Resampling.LANCZOS
        )
        out = io.BytesIO()
        small.quantize(colours, dither=Image.Dither.NONE).save(out, "png", optimize=True)
        if out.tell() <= LARGEST:
            picture.write_bytes(out.getvalue())
            return
    raise ValueError(f"{picture} has {out.tell()} bytes, at most {LARGEST} are allowed")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", metavar="NAME")
    known = {**dict.fromkeys(recipe_names(), "recipes"), **dict.fromkeys(MODELS, "operators")}
    names = options.parse_args().names or [*recipes(), *MODELS]
    for name in names:
        if name not in known:
            sys.exit(f"no recipe and no operator {name!r}: {near(name, list(known))}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            begun, kind = time.monotonic(), known[name]
            out = PICTURES / kind / f"{name}.png"
            out.parent.mkdir(exist_ok=True)
            draw = draw_recipe if kind == "recipes" else draw_operator
            draw(name, Path(folder), out)
            shrink(out)
            took = time.monotonic() - begun
            print(f"{kind}/{out.name}: {out.stat().st_size / 1e3:.0f} kB, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
