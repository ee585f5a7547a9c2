"""The trained models of the package keep their stated errors on fresh samples of other seeds."""

import json
import math
from pathlib import Path

import pytest
import torch

import operators
from operators.trained import trained_folder, trained_models
from operators.training.checkpoint import CheckpointError
from pdegen.api import generate
from pdegen.files import read_json
from pdegen.recipe import load_recipe
from pipelines.config.experiment import Experiment
from pipelines.runs.evaluation import evaluate
from pipelines.runs.model_folder import shipped_model

MODELS = trained_models()
SAMPLES = 100


def test_models_of_each_task_ship_within_the_size_of_the_repository():
    assert {"burgers-gt-512-best", "darcy-gt-43", "darcy-inverse-43"} < set(MODELS)
    assert any("fno" in name for name in MODELS)
    sizes = [sum(f.stat().st_size for f in trained_folder(name).iterdir()) for name in MODELS]
    assert max(sizes) <= 3e6
    assert sum(sizes) <= 12e6


@pytest.mark.parametrize("name", MODELS)
def test_the_stated_error_holds_on_fresh_samples(name, tmp_path):
    config = read_json(trained_folder(name) / "config.json")
    experiment = Experiment.parse(config["experiment"], name)
    stated = config["scores"][0]
    recipe = load_recipe(experiment.data.recipe).with_overrides(
        {
            **experiment.data.overrides,
            "seed": 7,
            "samples": SAMPLES + 2,
            "splits.train": 1,
            "splits.validation": 1,
            "splits.test": SAMPLES,
            "problem.resolution": stated["resolution"],
        }
    )
    store = str(tmp_path / "fresh.zarr")
    generate(recipe, out=store)
    score = evaluate(Path(name), store, torch.device("cpu"))
    # two means of independent samples: their difference has this deviation
    std = stated["std"] * math.sqrt(1 / SAMPLES + 1 / stated["samples"])
    assert len(score.samples) == SAMPLES
    assert abs(score.mean - stated["mean"]) < 4 * std


@pytest.mark.parametrize("name", MODELS)
def test_the_card_has_the_scores_and_the_command(name):
    card, scores = (trained_folder(name) / "README.md").read_text(), shipped_model(name)["scores"]
    assert f"`pdegen run {name}`" in card
    assert all(f"| {score['mean']:.3e} |" in card for score in scores)
    assert "license: mit" in card


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "burgers-gt-512-best").mkdir()
    (tmp_path / "burgers-gt-512-best/best.safetensors").touch()
    with pytest.raises(CheckpointError, match="is a folder: name its checkpoint"):
        operators.load_model("burgers-gt-512-best")


def test_a_name_is_loaded_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = operators.load_model("burgers-gt-512-best")
    x = torch.arange(128)[:, None] / 128
    u = model.predict(torch.sin(2 * torch.pi * x)[None], x)
    assert torch.isfinite(u).all()


def test_an_unknown_name_lists_the_models(refused, store):
    line = refused("evaluate", "burgers-gt-513-best", "--data", store)
    assert line.startswith("pdegen: burgers-gt-513-best: no such checkpoint; trained models: ")
    assert "burgers-gt-512-best" in line


def test_a_file_comes_before_a_name(refused, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("burgers-gt-512-best").mkdir()
    line = refused("evaluate", "burgers-gt-512-best", "--data", store)
    assert "is a folder without config.json" in line


def test_models_are_listed(pdegen):
    rows = json.loads("\n".join(pdegen("models", "--json").out))
    assert [row["name"] for row in rows] == list(MODELS)
    assert all(row["scores"][0]["mean"] > 0 for row in rows)
    assert any("darcy-gt-43" in line for line in pdegen("models").out)
