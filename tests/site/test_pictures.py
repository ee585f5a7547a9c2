"""The gallery shows every recipe and every operator, with its picture once it is drawn."""

import sys

import pytest
from PIL import Image

from pdegen.recipe import load_recipe, recipe_names
from pipelines.cli import completion

MOST, ALL = 60_000, 2_500_000  # bytes of a picture that docs/gallery/draw.py draws, and of all


@pytest.fixture
def pictures(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "docs/gallery"))
    yield __import__("pictures")
    del sys.modules["pictures"]


@pytest.fixture
def cards(root, monkeypatch, pictures):
    """The modules that write the cards of recipes and of operators."""
    monkeypatch.syspath_prepend(str(root / "docs/extensions"))
    before = set(sys.modules)
    yield __import__("recipe_cards"), __import__("operator_cards")
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(root / "docs")):
            del sys.modules[name]


def drawn(pictures):
    return [
        file for kind in ("recipes", "operators") for file in (pictures.PICTURES / kind).iterdir()
    ]


def test_a_recipe_without_picture_or_row_has_a_tile_with_its_headline(
    tmp_path, cards, pictures, monkeypatch
):
    recipe_cards, _ = cards
    monkeypatch.setattr(pictures, "PICTURES", tmp_path)
    for folder in ("docs", "datasets"):
        (tmp_path / folder).mkdir()
    (tmp_path / "datasets/README.md").write_text("", "utf-8")
    wall = recipe_cards.wall(tmp_path / "docs")
    assert ":img-" not in wall
    for name in recipe_names():
        if not pictures.small(name):
            tile = wall.partition(f":::{{grid-item-card}} {name}\n")[2].partition("\n:::\n")[0]
            assert recipe_cards.plain(load_recipe(name).headline) in tile


def test_an_operator_without_picture_or_benchmark_has_a_card(
    root, tmp_path, cards, pictures, monkeypatch
):
    _, operator_cards = cards
    coupling = operator_cards.coupling
    assert "```{figure}" in operator_cards._figure(root / "docs", "fno")
    monkeypatch.setattr(coupling.Benchmark, "cases", lambda table: [])
    experiments = {
        name: coupling.experiment_of(name) for name in ("fno", "galerkin-transformer-2d")
    }
    assert {name: one.model.name for name, one in experiments.items()} == {
        n: n for n in experiments
    }
    dims = {n: one.data.load_recipe().problem.domain.dim for n, one in experiments.items()}
    assert dims == {"fno": 1, "galerkin-transformer-2d": 2}
    monkeypatch.setattr(pictures, "PICTURES", tmp_path)
    bare = dict(operator_cards.cards(root / "docs"))
    assert bare.keys() == set(completion.operators())
    for card in bare.values():
        assert "```{figure}" not in card
        assert "| property | value |" in card


def test_every_picture_has_panels_for_its_thumbnail(pictures, tmp_path):
    out = tmp_path / "thumbnail.png"
    shown = [name for name in pictures.recipes() if pictures.of_recipe(name)]
    assert len(shown) > 20
    for name in shown:
        pictures.write_thumbnail(pictures.of_recipe(name), pictures.panels(name), out)
        with Image.open(out) as image:
            assert image.height == pictures.HEIGHT
            assert len(image.convert("RGB").getcolors()) > 1  # not an empty corner


def test_nothing_else_is_drawn(pictures):
    expected = {*pictures.recipes(), *completion.operators()}
    assert {file.name for file in drawn(pictures)} <= {f"{name}.png" for name in expected}


def test_pictures_are_small(pictures):
    sizes = {file: file.stat().st_size for file in drawn(pictures)}
    assert [file.name for file, size in sizes.items() if size > MOST] == []
    assert sum(sizes.values()) <= ALL
    for file in sizes:
        with Image.open(file) as image:
            assert image.width >= 600  # its letters can be read
            image.load()
