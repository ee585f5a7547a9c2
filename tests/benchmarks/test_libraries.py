"""Benchmarks beside libraries: what is said where one is missing, and what can be tried without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import exponax_burgers, well_reading
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe


def test_the_fewest_steps_within_the_tolerance_are_taken():
    exact = np.array([[3.0, 4.0], [0.0, 2.0]])

    def stepping(steps):
        return lambda: (exact * (1 + [[0.1], [1.0]] / np.float64(steps**2)))[:, None]

    steps, error, solve = exponax_burgers.fewest(stepping, exact, 1e-2)
    assert (steps, error) == (16, pytest.approx(1 / 256))  # 8 steps give 1/64
    assert solve().shape == (2, 1, 2)
    with pytest.raises(ValueError, match="16384 steps"):
        exponax_burgers.fewest(stepping, exact, 0.0)


def test_files_of_the_well_hold_the_values_of_the_store(tmp_path: Path):
    recipe = load_recipe("darcy-quick").with_overrides({"samples": 72, "shard": 32})
    store = generate(recipe, str(tmp_path / "store.zarr"), workers=1)
    well_reading.write_well(tmp_path / "data.hdf5", store)
    declaration = ImportOptions(grid="cell", splits={"train": recipe.samples})
    files = [tmp_path / "data.hdf5"]
    found = import_files(files, str(tmp_path / "found.zarr"), import_options=declaration, workers=1)
    for name in ("a", "u"):
        values = store.values(name)
        np.testing.assert_array_equal(found.values(name).reshape(values.shape), values)
