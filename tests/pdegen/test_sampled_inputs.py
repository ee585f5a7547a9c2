"""Stores on fewer points than their inputs have modes say so, with what it means for labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.generation.generate import generate, interpolant_difference
from pdegen.recipe import Recipe, load_recipe
from pdegen.shipped import recipe_names
from pdegen.store.reading import Store
from tests.stores import faults, objects_of

SMALL = {
    "burgers-quick": {"initial.modes": 127, "solver.resolution": 512},
    "ns-quick": {"problem.times": [0.5], "initial.modes": 7, "solver.resolution": 24,
                 "solver.tolerance": 1e-2},
}  # fmt: skip
SIZES = {"samples": 6, "shard": 3}


def small(name: str, resolution: int) -> Recipe:
    changes = {**SIZES, **SMALL[name], "problem.resolution": resolution}
    return load_recipe(name).with_overrides(changes)


def test_the_difference_is_that_of_solving_for_the_stored_values() -> None:
    """Against modes that are cut by hand and solved on their own grid."""
    recipe = small("burgers-quick", 32)
    values = recipe.problem.compute(recipe.seed, range(3))
    x = np.arange(256) / 256
    for i in range(3):
        c = np.fft.rfft(values["a"][i].astype(np.float64)) / 32
        waves = c[1:16, None] * np.exp(2j * np.pi * np.arange(1, 16)[:, None] * x)
        u0 = c[0].real + 2 * waves.real.sum(axis=0) + c[16].real * np.cos(32 * np.pi * x)
        solver = ColeHopf(PeriodicGrid(256), 0.1 / (2 * np.pi))
        u = solver.solve(u0[None], [1 / (2 * np.pi)]).u[0, 0, ::8]
        label = values["u"][i].astype(np.float64)
        expected = np.linalg.norm(u - label) / np.linalg.norm(label)
        assert 1e-5 < expected < 1e-1
        assert interpolant_difference(recipe, i) == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("name", [*SMALL])
def test_inputs_that_the_points_determine_have_the_labels_of_their_interpolants(name: str) -> None:
    """Up to float32 of what is stored, which labels follow continuously."""
    enough = {"burgers-quick": 256, "ns-quick": 16}[name]
    modes = small(name, enough).problem.input_modes
    assert modes is not None
    assert enough >= 2 * modes + 1
    assert (interpolant_difference(small(name, enough), 0) or 0.0) < 1e-5


@pytest.mark.parametrize("name", [*SMALL])
def test_a_store_says_by_how_much_labels_of_sampled_inputs_would_differ(
    name: str, tmp_path: Path
) -> None:
    recipe = small(name, 8 if name == "ns-quick" else 16)
    store = generate(recipe, str(tmp_path / "a.zarr"), workers=1)
    said = store.metadata.sampled_inputs
    assert said is not None
    assert (said.points, said.modes) == (recipe.problem.resolution, recipe.problem.input_modes)
    assert len(said.relative_l2) == 4
    expected = [interpolant_difference(recipe, i) for i in range(4)]
    assert list(said.relative_l2) == expected
    assert max(said.relative_l2) > 1e-4
    card = (tmp_path / "a.zarr/README.md").read_text("utf-8")
    assert "the label belongs to the function, not to its sampled values" in card
    assert f"up to {max(said.relative_l2):.1e}" in card
    assert faults(store) == []
    again = generate(recipe, str(tmp_path / "b.zarr"), workers=2)
    assert objects_of(store) == objects_of(again)


def test_a_store_whose_points_determine_its_inputs_says_nothing(tmp_path: Path) -> None:
    recipe = small("burgers-quick", 256)
    for modes, there in ((127, False), (128, True)):  # 256 points, 2 modes + 1 = 255 and 257
        one = recipe.with_overrides({"initial.modes": modes, "samples": 4})
        url = str(tmp_path / f"{modes}.zarr")
        generate(one, url, workers=1)
        attributes = json.loads((tmp_path / f"{modes}.zarr/zarr.json").read_text())["attributes"]
        assert ("sampled_inputs" in attributes) == there
        assert (Store(url).metadata.sampled_inputs is not None) == there


def test_the_criterion_is_that_of_the_modes_of_each_recipe() -> None:
    """By hand, from the recipes: fewer points than 2 modes + 1."""
    found = set()
    for name in recipe_names():
        problem = load_recipe(name).problem
        if problem.input_modes is not None and problem.resolution < 2 * problem.input_modes + 1:
            found.add(name)
    assert found == {
        "burgers-quick", "burgers-shock", "burgers-trajectory", "ns-1e-4", "ns-1e-5",
    }  # fmt: skip
    assert load_recipe("darcy-421").problem.input_modes is None  # what is stored is what is solved
