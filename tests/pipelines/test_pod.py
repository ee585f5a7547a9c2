"""Trainings of an operator whose basis is of the training targets: which, and what keeps it."""

import pytest
import torch
from safetensors.torch import save_file

from operators.data import read_pairs
from operators.models.deeponet import pod
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.fit import Stopped
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.runs.evaluation import evaluate
from pipelines.runs.training import train
from tests.pipelines.conftest import SMALL

CPU = torch.device("cpu")
MODEL = {"name": "pod-deeponet", "sensors": 16, "basis": 3, "width": 8}


def experiment(model=MODEL, **further):
    plain = {k: v for k, v in SMALL.items() if not k.startswith("model.")}
    declared = {f"model.{key}": value for key, value in model.items()}
    settings = {"training.epochs": 2, "resolutions": [16], **further}
    return load_experiment("burgers-quick").with_overrides({**plain, **declared, **settings})


def loaded(run, name="last"):
    return load_checkpoint(run / f"{name}.safetensors", build_operator)[0]


def basis(run):
    return dict(loaded(run).operator.named_buffers())


@pytest.mark.parametrize("reading", ["resident", "streamed"])
def test_the_modes_are_those_of_the_training_split_alone(store, tmp_path, reading):
    train(experiment(**{"data.reading": reading}), store, tmp_path / "run", CPU)
    predictor, pairs = loaded(tmp_path / "run"), read_pairs(store, "train", 16)
    mean, modes = pod(predictor.target(pairs.u, pairs.x).flatten(1), 3)
    found = predictor.operator
    torch.testing.assert_close(found.mean.flatten().double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.modes.flatten(1).double(), modes, rtol=1e-3, atol=1e-4)
    every = torch.cat([pairs.u, *(read_pairs(store, s, 16).u for s in ("validation", "test"))])
    other, _ = pod(predictor.target(every, pairs.x).flatten(1), 3)
    assert (other - mean).abs().max() > 1e-3
    score = evaluate(tmp_path / "run" / "best.safetensors", store, CPU, resolution=16)
    assert 0 < score.mean < 9  # of hardly trained weights, not nan


def test_a_resumed_training_keeps_its_modes_and_ends_with_the_same_bits(store, tmp_path):
    train(experiment(), store, tmp_path / "whole", CPU)
    calls = iter([False, True])
    with pytest.raises(Stopped):
        train(experiment(), store, tmp_path / "parts", CPU, stop=lambda: next(calls))
    train(experiment(), store, tmp_path / "parts", CPU, resume=True)
    whole, parts = (loaded(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(parts[name], tensor) for name, tensor in whole.items())


def test_weights_to_start_from_bring_their_modes(store, tmp_path):
    train(experiment(), store, tmp_path / "first", CPU)
    given = {k: v.contiguous() for k, v in loaded(tmp_path / "first").operator.state_dict().items()}
    given["modes"] = given["modes"].flip(0).contiguous()
    path = tmp_path / "w.safetensors"
    save_file(given, path)
    train(experiment(**{"training.start": str(path)}), store, tmp_path / "run", CPU)
    assert all(torch.equal(given[name], v) for name, v in basis(tmp_path / "run").items())
    given["places"] = given["places"] + 0.01
    save_file(given, path)
    with pytest.raises(SchemaError, match="functions on the 16 points of training, got other"):
        train(experiment(**{"training.start": str(path)}), store, tmp_path / "other", CPU)


def test_a_study_of_too_few_samples_is_refused_before_it_trains(refused, store):
    plain = {k: v for k, v in SMALL.items() if not k.startswith("model.")}
    sets = {**plain, "training.batch": 4, "training.epochs": 1, "resolutions": [16]}
    sets |= {f"model.{key}": value for key, value in MODEL.items()}
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    words += ["--set", "model.basis=4"]
    line = refused("study", "samples", "burgers-quick", "--samples", "8,4", "--data", store, *words)
    assert "4 samples" in line
    assert "basis must be at most 3 for 4 training samples of 16 values, got 4" in line


def test_impossible_ones_are_refused_before_anything_is_written(store, tmp_path):
    for model, further, said in (
        ({"basis": 200}, {}, "basis must be at most .* training samples of 16 values, got 200"),
        ({}, {"resolutions": [16, 32]}, "32 points along each axis: the modes are functions on 16"),
        ({"points": 20}, {}, "the modes are functions on 20 points, got 16"),
    ):
        with pytest.raises(SchemaError, match=said):
            train(experiment(MODEL | model, **further), store, tmp_path / "run", CPU)
    assert not (tmp_path / "run").exists()
