"""The gallery shows every recipe and every operator."""

import sys

import pytest
from PIL import Image

from pdegen.recipe import recipe_names
from pipelines.cli import completion

MOST, ALL = 60_000, 2_500_000  # bytes of a picture that docs/gallery/draw.py draws, and of all


@pytest.fixture
def pictures(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "docs/gallery"))
    yield __import__("pictures")
    del sys.modules["pictures"]


def drawn(pictures):
    return [
        file for kind in ("recipes", "operators") for file in (pictures.PICTURES / kind).iterdir()
    ]


def test_every_recipe_has_a_picture(pictures):
    assert [name for name in recipe_names() if pictures.of_recipe(name) is None] == []


def test_every_recipe_has_a_line_in_the_gallery(root):
    table = (root / "datasets/README.md").read_text("utf-8")
    assert [name for name in recipe_names() if f"| [{name}]({name}.md) | " not in table] == []


def test_every_recipe_has_panels_for_its_thumbnail(pictures, tmp_path):
    out = tmp_path / "thumbnail.png"
    for name in pictures.recipes():
        pictures.write_thumbnail(pictures.of_recipe(name), pictures.panels(name), out)
        with Image.open(out) as image:
            assert image.height == pictures.HEIGHT
            assert len(image.convert("RGB").getcolors()) > 1  # not an empty corner


def test_every_operator_has_a_picture(pictures):
    names = completion.operators()
    assert [name for name in names if not pictures.of_operator(name).exists()] == []


def test_nothing_else_is_drawn(pictures):
    expected = {*pictures.recipes(), *completion.operators()}
    assert {file.name for file in drawn(pictures)} == {f"{name}.png" for name in expected}


def test_pictures_are_small(pictures):
    sizes = {file: file.stat().st_size for file in drawn(pictures)}
    assert [file.name for file, size in sizes.items() if size > MOST] == []
    assert sum(sizes.values()) <= ALL
    for file in sizes:
        with Image.open(file) as image:
            assert image.width >= 600  # its letters can be read
            image.load()
