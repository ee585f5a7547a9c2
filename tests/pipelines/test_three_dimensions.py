"""A recipe in three dimensions, from the data to the report and back from other formats."""

import numpy as np
import pytest
import xarray as xr

from tests.pipelines.command import quietly

RECIPE = ["allen-cahn-3d", "--samples", "24", "--set", "shard=8", "--set", "problem.resolution=12",
          "--set", "problem.solver.resolution=24", "--set", "modes=3", "--set", "dt=1.0",
          "--set", "tolerance=0.1", "--set", "times=[1.0, 2.0]"]  # fmt: skip
EXPERIMENT = """
name = "cube"
summary = "FNO in three dimensions"
resolutions = [12]

[data]
recipe = "allen-cahn-3d"
resolution = 12

[model]
name = "fno"
width = 8
depth = 2
modes = 4

[training]
epochs = 8
batch = 4
lr = 2e-2

[training.loss]
name = "l2"

[training.symmetries]
shift = true
"""


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    store = tmp_path_factory.mktemp("cube") / "cube.zarr"
    quietly("generate", *RECIPE, "--workers", "1", "--out", str(store))
    quietly("verify", str(store), "--deep")
    return store


def test_a_cube_is_learned_reported_and_drawn(pdegen, cube, tmp_path):
    (tmp_path / "cube.toml").write_text(EXPERIMENT)
    run = tmp_path / "run"
    pdegen("train", str(tmp_path / "cube.toml"), "--data", str(cube), "--out", str(run))
    (line,) = pdegen("evaluate", str(run / "best.safetensors"), "--data", str(cube)).out
    error = float(line.split("mean ")[1].partition(",")[0])
    with xr.open_zarr(cube) as data:
        a, u = data.a.values[-3:], data.u.values[-3:]
    assert error < 0.8 * np.linalg.norm(u - a[:, None]) / np.linalg.norm(u)
    pdegen("report", str(run))
    assert "at z = 1" in (run / "report.html").read_text()
    pdegen("plot", str(cube), "--out", str(tmp_path / "cube.png"))
    assert (tmp_path / "cube.png").stat().st_size > 10_000


@pytest.mark.parametrize("kind", ["hdf5", "npy"])
def test_a_cube_comes_back_from_other_formats(pdegen, cube, tmp_path, kind):
    other, back = tmp_path / f"cube.{kind}", tmp_path / "back.zarr"
    pdegen("export", str(cube), "--format", kind, "--out", str(other))
    pdegen("import", str(other), "--out", str(back))
    with xr.open_zarr(cube) as first, xr.open_zarr(back) as second:
        assert first.attrs["domain"] == second.attrs["domain"]
        assert all(np.array_equal(first[name], second[name]) for name in ("a", "u"))
