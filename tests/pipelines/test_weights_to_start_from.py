"""Trainings that start from the weights of a file: what they record, and what they refuse."""

import hashlib
import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.identity import ForeignError
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.runs.folder import RunError
from pipelines.runs.training import train
from tests.pipelines.conftest import SMALL

CPU = torch.device("cpu")


def experiment(**further):
    return load_experiment("burgers-quick").with_overrides(
        {**SMALL, "training.epochs": 1, **{f"training.{k}": v for k, v in further.items()}}
    )


def weights(run):
    loaded, _ = load_checkpoint(run / "last.safetensors", build_operator)
    return loaded.operator.state_dict()


def test_a_run_starts_from_a_file_and_records_its_digest(store, tmp_path):
    plain, path, run = tmp_path / "plain", tmp_path / "w.safetensors", tmp_path / "run"
    train(experiment(), store, plain, CPU)
    given = {name: tensor.contiguous() for name, tensor in weights(plain).items()}
    save_file(given, path)
    begun = experiment(start=str(path), lr=1e-12, seed=7)  # of which no weight moves
    train(begun, store, run, CPU)
    for name, tensor in weights(run).items():
        torch.testing.assert_close(tensor, given[name], rtol=1e-5, atol=1e-7)
    said = json.loads((run / "run.json").read_text("utf-8"))
    assert said["start"] == {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "anew": []}
    assert said["experiment"]["training"]["start"] == str(path)

    save_file({name: tensor + 1 for name, tensor in given.items()}, path)
    with pytest.raises(RunError, match="holds a run with another start"):
        train(begun, store, run, CPU, resume=True)
    path.unlink()
    with pytest.raises(SchemaError, match=r"training\.start: .*w\.safetensors: No such file"):
        train(begun, store, tmp_path / "other", CPU)
    with pytest.raises(
        SchemaError, match=r"training\.start: https://a\.org/w is a URL, a local file"
    ):
        train(experiment(start="https://a.org/w"), store, tmp_path / "other", CPU)
    assert not (tmp_path / "other").exists()


def test_a_run_starts_from_a_checkpoint_of_another_run(store, tmp_path):
    """On another resolution, with normalisers of its own samples."""
    first, path, run = tmp_path / "first", tmp_path / "first" / "best.safetensors", tmp_path / "run"
    train(experiment(), store, first, CPU)
    begun = experiment(start=str(path), lr=1e-12, seed=7)  # of which no weight moves
    changes = {"data.resolution": 32, "normalization.input": "scalar"}
    train(begun.with_overrides(changes), store, run, CPU)
    given = weights(first)
    for name, tensor in weights(run).items():
        torch.testing.assert_close(tensor, given[name], rtol=1e-5, atol=1e-7)
    assert json.loads((run / "run.json").read_text("utf-8"))["start"]["anew"] == []
    one, other = (load_checkpoint(r / "last.safetensors", build_operator)[0] for r in (first, run))
    assert not torch.equal(one.input.std, other.input.std)
    files = {file.name: file.read_bytes() for file in first.iterdir()}
    with pytest.raises(
        SchemaError, match=r"training\.start: .* is in the folder of this run, which"
    ):
        train(begun, store, first, CPU, overwrite=True)
    assert {file.name: file.read_bytes() for file in first.iterdir()} == files

    shutil.copy(run / "best.safetensors", path)
    with pytest.raises(ForeignError, match=r"best\.safetensors belongs to another result"):
        train(begun, store, tmp_path / "other", CPU)
    path.write_bytes(files[path.name])

    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(SchemaError, match=r"training\.start: .*best\.safetensors is damaged"):
        train(begun, store, tmp_path / "other", CPU)
    assert not (tmp_path / "other").exists()


def test_a_finished_training_goes_on_by_start(store, pdegen, refused, tmp_path):
    small = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    words = ("train", "burgers-quick", "--data", store, *small, "--set", "training.epochs=1")
    assert pdegen(*words, "--out", tmp_path / "run").status == 0
    longer = ("--set", "training.epochs=3", "--out", tmp_path / "run", "--resume")
    line = refused(*words, *longer)
    assert "training.epochs is 1 there and 3 here" in line
    assert f"by --start {tmp_path / 'run'} and another --out" in line
    again = ("--start", tmp_path / "run", "--set", "training.lr=1e-12")
    assert pdegen(*words, *again, "--out", tmp_path / "longer").status == 0
    first, second = weights(tmp_path / "run"), weights(tmp_path / "longer")
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-5, atol=1e-7)
    assert "No such file" in refused(*words, "--start", tmp_path / "none", "--out", tmp_path / "x")
