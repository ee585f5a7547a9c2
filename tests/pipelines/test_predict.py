"""`pdegen predict`: what a checkpoint predicts, as a group that xarray opens."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import operators
from operators.data import Channel
from operators.training.checkpoint import checkpoint_file
from pdegen.domains import Box
from pipelines.runs import predict
from pipelines.runs.model_folder import export_model
from tests.pipelines.command import call, everything, quietly
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
        np.testing.assert_array_equal(found["sample"], pairs.samples)
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
        assert said in refused("predict", CHECKPOINT, "--data", store, "--out", "p.zarr", *own)


def test_another_folder_is_not_replaced(store, tmp_path, refused):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    words = ["predict", CHECKPOINT, "--data", store, "--out", tmp_path / "mine", "--overwrite"]
    assert "holds no predictions" in refused(*words)


def test_several_targets_are_variables_of_their_own():
    grid = torch.arange(4)[:, None] / 4
    pairs = dataclasses.replace(
        operators.data.Samples.of(
            a=torch.zeros(3, 4, 1), u=torch.zeros(3, 4, 4), x=grid, y=None, samples=np.arange(3),
            domain=Box.periodic(4), source={"target": ["u", "v"]},
        ),
        target_channels=(*(Channel("u", part, 0.5) for part in ("u_x", "u_y")),
                         *(Channel("v", "", time) for time in (0.5, 1.0))),
    )  # fmt: skip
    values = np.arange(48.0).reshape(3, 4, 4)
    found = predict._dataset(pairs, values, grid.numpy())
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
