"""Files with the layouts of public ones, from the printed command to an evaluated operator."""

import shlex

import numpy as np
import pytest
import xarray as xr

from pdegen.formats.arrays import FormatError
from pdegen.formats.importing import import_files, listing
from pdegen.formats.plan import ImportOptions
from tests.pdegen.formats import layouts
from tests.pipelines.command import call, quietly

CLOUDS = {"cylinder_nektar_wake.mat", "Random_UnitCell", "plate.vtu"}
NAMES = [*layouts.SINGLE, "Random_UnitCell", "plate.vtu", "initial.npy"]
# format of an export that is the file's own; that of others, which are not exported, is HDF5
FORMATS = {".mat": "mat", ".npy": "npy", ".pt": "pt", ".nc": "nc", ".vtu": "vtu"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return layouts.write(tmp_path_factory.mktemp("layouts"))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_becomes_an_evaluated_operator(files, name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["import", *map(str, files[name]), "--out", "s.zarr"]
    splits = ["--split", "train=16", "--split", "validation=4", "--split", "test=4"]
    try:
        import_files(files[name], "s.zarr", ImportOptions(splits={"train": 16, "test": 4}))
    except FormatError:
        (*_, command) = listing(files[name])
        words = [*shlex.split(command)[1:-1], "s.zarr"]
    else:  # recognised, but these files are too small for the published splits
        words += [*splits, "--overwrite"]
    quietly(*words)
    assert call(capsys, monkeypatch, "info", "s.zarr").status == 0
    quietly("verify", "s.zarr")
    quietly("plot", "s.zarr", "--out", "s.png")
    model = "galerkin-transformer" if name in CLOUDS else "fno"
    # displacements of plane meshes have three components, of which the last is 0
    plane = ["--set", "normalization.target=none"] if name == "plate.vtu" else []
    words = ["train", "--data", "s.zarr", "--model", model, "--set", "training.epochs=1", *plane]
    quietly(*words, "--out", "run")
    done = call(capsys, monkeypatch, "evaluate", "run/best.safetensors", "--data", "s.zarr")
    assert done.status == 0
    assert "relative L2 error: mean" in "".join(done.out)
    kind = FORMATS.get(files[name][0].suffix, "hdf5")
    quietly("export", "s.zarr", "--format", kind, "--out", "exported")
    quietly("import", "exported", "--out", "back.zarr")
    first, second = xr.open_zarr("s.zarr"), xr.open_zarr("back.zarr")
    assert {*first.variables} == {*second.variables}
    for key in first.variables:
        np.testing.assert_array_equal(first[key].values, second[key].values)
