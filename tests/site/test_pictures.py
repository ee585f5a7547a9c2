"""The gallery shows every recipe and every operator, with its picture once it is drawn."""

import io
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pdegen.recipe import load_recipe, recipe_names
from pipelines.cli import common

MOST, ALL = 60_000, 3_250_000  # bytes of a picture that docs/gallery/draw.py draws, and of all


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
    assert bare.keys() == set(common.operators())
    for card in bare.values():
        assert "```{figure}" not in card
        assert "| property | value |" in card


def white_bands(picture):
    """Ends of the bands of white columns of a picture, and its width."""
    white = np.asarray(picture.convert("RGB")).min(axis=(0, 2)) > 250
    ends = np.flatnonzero(np.diff(np.concatenate([[0], white, [0]])))
    return list(zip(ends[::2], ends[1::2], strict=True)), white.size


def test_a_thumbnail_shows_whole_panels_without_colour_bars_ticks_and_letters(pictures, tmp_path):
    """White columns separate all of these from a panel. In a thumbnail only panels are apart."""
    out, shown = (
        tmp_path / "thumbnail.png",
        {name: pictures.panels(name) for name in recipe_names()},
    )
    places = {name: pictures.of_recipe(name) for name in shown}
    places |= {name: pictures.of_operator(name) for name in common.operators()}
    places = {name: place for name, place in places.items() if place}
    assert len(places) > 50
    for name, picture in places.items():
        panels = shown.get(name, pictures.OPERATOR)
        pictures.write_thumbnail(picture, panels, out)
        with Image.open(out) as image:
            assert image.height == pictures.HEIGHT
            bands, width = white_bands(image)
        assert len(bands) == len(panels) - 1, name
        assert all(start > 0 and stop < width for start, stop in bands), name


def test_panels_are_the_axes_of_a_figure(pictures):
    figure = Figure(figsize=(9, 4), dpi=100)
    axes = figure.subplots(2, 2)
    x = np.linspace(0, 1, 50)
    for cell in axes[0]:
        figure.colorbar(cell.imshow(np.outer(x, 1 - x), aspect="auto"), ax=cell)
    for cell in axes[1]:
        cell.spines[["top", "right"]].set_visible(False)
        cell.plot(x, x)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    with Image.open(buffer) as image:
        found, height = pictures.panels_in(image), image.height
    expected = [cell.get_window_extent() for cell in axes.ravel()]
    assert len(found) == 4
    for (left, top, right, lower), box in zip(found, expected, strict=True):
        ends = box.x0, height - box.y1, box.x1, height - box.y0
        # ticks of a panel of curves are up to 5 pixels long
        np.testing.assert_allclose((left, top, right, lower), ends, atol=7)


def test_nothing_else_is_drawn(pictures):
    expected = {*pictures.recipes(), *common.operators()}
    assert {file.name for file in drawn(pictures)} <= {f"{name}.png" for name in expected}


def test_pictures_are_small(pictures):
    sizes = {file: file.stat().st_size for file in drawn(pictures)}
    assert [file.name for file, size in sizes.items() if size > MOST] == []
    assert sum(sizes.values()) <= ALL
    for file in sizes:
        with Image.open(file) as image:
            assert image.width >= 600  # its letters can be read
            image.load()
