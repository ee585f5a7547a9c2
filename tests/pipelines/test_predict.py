"""`pdegen predict`: what a checkpoint predicts, as a group that xarray opens."""

import hashlib
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import torch
import xarray as xr

import operators
import pipelines
from operators.data import Channel
from operators.training.checkpoint import checkpoint_file
from pdegen.domains import Box
from pipelines.runs import evaluation
from pipelines.runs.model_folder import export_model
from tests.pipelines.command import call, everything, quietly
from tests.readme import replaced
from tests.validation.earlier import DATA

CHECKPOINT = DATA / "e641554" / "best.safetensors"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    out = tmp_path_factory.mktemp("predict") / "s.zarr"
    shutil.copytree(DATA / "e641554" / "burgers.zarr", out)
    return out


def test_predictions_are_those_of_the_model_with_their_samples_and_points(store, tmp_path):
    out = tmp_path / "p.zarr"
    quietly("predict", CHECKPOINT, "--data", store, "--out", out, "--split", "train")
    pairs = operators.read_pairs(str(store), "train")
    expected = operators.load_model(CHECKPOINT).predict(pairs.a, pairs.x)[..., 0]
    with xr.open_zarr(out) as found:  # without a warning
        assert found.u.dims == ("sample", "x")
        np.testing.assert_allclose(found.u, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["sample"], pairs.ids)
        np.testing.assert_array_equal(found.x, pairs.x[:, 0])
        assert found.attrs["split"] == "train"
        assert found.attrs["source"]["fingerprint"] == pairs.source["fingerprint"]


def test_what_is_there_is_kept_or_replaced_whole(store, tmp_path, capsys, monkeypatch):
    words = ["predict", CHECKPOINT, "--data", store, "--out", tmp_path / "p.zarr"]
    quietly(*words)
    before = everything(tmp_path)
    refused = call(capsys, monkeypatch, *words)
    assert refused.status == 2
    assert len(refused.err) == 1
    assert "exists: use --overwrite" in refused.err[0]
    assert everything(tmp_path) == before
    quietly(*words, "--overwrite", "--split", "validation")
    assert json.loads((tmp_path / "p.zarr/zarr.json").read_text())["attributes"]["split"] == (
        "validation"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["p.zarr"]


def test_a_failure_leaves_nothing(store, tmp_path, monkeypatch):
    def full(*words, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset, "to_zarr", full)
    with pytest.raises(AssertionError):
        quietly("predict", CHECKPOINT, "--data", store, "--out", tmp_path / "p.zarr")
    assert list(tmp_path.iterdir()) == []


def test_wrong_requests_are_refused_in_one_line(store, refused):
    for own, said in (
        (["--split", "tset"], "no split 'tset'"),
        (["--resolution", "31"], "31"),
        (["--out", "s3://bucket/p.zarr"], "not to a URL"),
        (["--out", "nowhere/p.zarr"], "no such folder"),
        (["--device", "tpu"], "unknown device 'tpu'"),
    ):
        words = ["predict", str(CHECKPOINT), "--data", store, "--out", "p.zarr"]
        assert said in refused(*replaced(words, own))


def test_another_folder_is_not_replaced(store, tmp_path, refused):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    words = ["predict", CHECKPOINT, "--data", store, "--out", tmp_path / "mine", "--overwrite"]
    assert "holds no predictions" in refused(*words)


def test_several_targets_are_variables_of_their_own():
    channels = [
        *(Channel("u", part, 0.5) for part in ("u_x", "u_y")),
        *(Channel("v", "", time) for time in (0.5, 1.0)),
    ]
    values, grid = np.arange(48.0).reshape(3, 4, 4), Box.periodic(4)
    found = evaluation._dataset(grid, np.arange(3), channels, values, grid.points)
    assert list(found) == ["u", "v"]
    assert found.u.dims == ("sample", "channel", "x")
    assert found.u.attrs["channels"] == ["u_x", "u_y"]
    assert found.v.dims == ("sample", "v_channel", "x")
    np.testing.assert_array_equal(found.v[:, 1], values[..., 3])
    assert found.v.attrs == {"long_name": "predicted v", "channels": ["v, t = 0.5", "v, t = 1"]}


def test_models_are_named_as_elsewhere(store, tmp_path, finished):
    """A shipped model by its name, and the folder of an exported one."""
    run, own = finished
    folder = export_model(run, tmp_path / "model")
    for k, (place, data) in enumerate((("burgers-fno-512-best", store), (folder, own))):
        out = tmp_path / f"{k}.zarr"
        quietly("predict", place, "--data", data, "--out", out)
        weights = checkpoint_file(Path(place)).read_bytes()
        with xr.open_zarr(out) as found:
            assert found.attrs["checkpoint"] == hashlib.sha256(weights).hexdigest()


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    """A checkpoint that records the grid of its training."""
    out = tmp_path_factory.mktemp("trained") / "run"
    overrides = {"model.width": 8, "model.modes": 4, "epochs": 1, "batch": 4}
    return pipelines.train(model="fno", data=store, out=out, overrides=overrides)


def _written(folder, a):
    """Files with the array a alone, and with the array a beside another."""
    np.save(folder / "own.npy", a)
    np.savez(folder / "own.npz", a=a, other=a[:1])
    scipy.io.savemat(folder / "own.mat", {"a": a, "other": a[:1]})
    torch.save({"a": torch.as_tensor(a), "other": torch.ones(2)}, folder / "own.pt")
    with h5py.File(folder / "own.h5", "w") as file:
        file["a"] = a
    return [folder / f"own.{kind}" for kind in ("npy", "npz", "mat", "pt", "h5")]


def test_files_are_predicted_as_the_store_with_the_same_values(store, trained, tmp_path):
    pairs = operators.read_pairs(str(store), "test")
    expected = operators.load_model(trained).predict(pairs.a, pairs.x)[..., 0]
    for file in _written(tmp_path, pairs.a[..., 0].double().numpy()):
        quietly("predict", trained, "--data", file, "--out", tmp_path / "p.zarr", "--overwrite")
        with xr.open_zarr(tmp_path / "p.zarr") as group:
            np.testing.assert_array_equal(group.u, expected)
            np.testing.assert_array_equal(group.x, pairs.x[:, 0])
            assert group.attrs["source"]["file"] == file.name


def test_a_file_with_other_points_needs_their_grid(store, trained, tmp_path, refused):
    n = 3 * operators.read_pairs(str(store), "test").x.shape[0]
    x = np.arange(n) / n
    np.save(tmp_path / "fine.npy", np.sin(2 * np.pi * x)[None])
    words = ["predict", trained, "--data", tmp_path / "fine.npy", "--out", tmp_path / "p.zarr"]
    expected = f"it has {n} points, the training had {n // 3}: state their grid"
    assert expected in refused(*words)
    quietly(*words, "--grid", "periodic")
    with xr.open_zarr(tmp_path / "p.zarr") as group:
        np.testing.assert_array_equal(group.x, x.astype(np.float32))


def test_files_that_do_not_fit_are_refused_in_one_line(store, trained, tmp_path, refused):
    a = operators.read_pairs(str(store), "test").a.numpy()
    arrays = {"wide": np.repeat(a, 2, axis=-1), "line": a[0, :, 0], "not-finite": a * np.nan,
              "huge": a.astype(np.float64) * 1e300}  # fmt: skip
    for name, values in arrays.items():
        np.save(tmp_path / f"{name}.npy", values)
    np.savez(tmp_path / "two.npz", b=a, c=a)
    for name, own, said in (
        ("wide.npy", [], "its shape is"),
        ("line.npy", [], "its shape is"),
        ("not-finite.npy", [], "not finite"),
        ("huge.npy", [], "float32 cannot hold"),
        ("two.npz", [], "name the inputs by --input"),
        ("two.npz", ["--input", "d"], "no array 'd'"),
        ("wide.npy", ["--split", "test"], "--split is for a store"),
        ("two.npz", ["--input", "b", "--grid", "hexagonal"], "periodic, cell, nodal"),
    ):
        out = tmp_path / "p.zarr"
        assert said in refused("predict", trained, "--data", tmp_path / name, "--out", out, *own)
        assert not out.exists()
    assert "--grid is for a file" in refused("predict", trained, "--data", store, "--grid", "cell")
