"""Stores whose samples differ in their shape alone: pictures, and models of the positions."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from operators.api import load_model
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.evaluate import predictions
from pdegen.generation.generate import generate
from pdegen.generation.verify import verify
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.reproduction import toml
from pipelines.runs.training import train
from tests.pipelines.command import call, quietly
from tests.pipelines.conftest import CPU


@pytest.fixture(scope="module")
def sheets(tmp_path_factory):
    recipe = load_recipe("elasticity-quick").with_overrides(
        {"problem.resolution": 12, "samples": 24, "shard": 8}
    )
    return generate(recipe, str(tmp_path_factory.mktemp("sheets") / "s.zarr"), workers=1).url


@pytest.fixture(scope="module")
def run(sheets, tmp_path_factory):
    """A short training on the positions."""
    out = tmp_path_factory.mktemp("trained") / "run"
    declared = Experiment.on_store(sheets, "pit").with_overrides(
        {"model.latent": "input", "width": 8, "heads": 1, "depth": 1, "epochs": 1,
         "data.recipe": "elasticity-quick", "data.overrides.problem.resolution": 12}
    )  # fmt: skip
    path = out.parent / "experiment.toml"
    path.write_text(toml(declared.model_dump(exclude_none=True)))
    quietly("run", path, "--data", sheets, "--out", out)
    return out


def test_a_model_that_learns_from_positions_is_scored_by_area_and_by_points(sheets, run):
    (score,) = json.loads((run / "scores.json").read_text("utf-8"))["results"]
    over_points = score["measures"]["points"]["errors"]
    kept = load_file(run / "predictions.safetensors")
    u, weight = (open_sealed(sheets).values(name)[-4:] for name in ("u", "weight"))
    p = next(v.numpy() for v in kept.values() if v.numel() == u.size).reshape(u.shape)
    for errors, w in ((score["errors"], weight), (over_points, np.ones_like(weight))):
        expected = np.sqrt((w * (p - u) ** 2).sum(axis=1) / (w * u**2).sum(axis=1))
        np.testing.assert_allclose(errors, expected, rtol=1e-4)


def test_a_model_is_evaluated_on_published_files(sheets, run, tmp_path, capsys, monkeypatch):
    """The imported store has no cells, areas and displacements, and the same roles."""
    made = open_sealed(sheets)
    points = np.stack([made.values(name) for name in "xy"], axis=1)  # (sample, xy, point)
    np.save(tmp_path / "Random_UnitCell_XY_10.npy", points.T)
    np.save(tmp_path / "Random_UnitCell_sigma_10.npy", made.values("u").T)
    sizes = [word for size in ("train=16", "validation=4", "test=4") for word in ("--split", size)]
    theirs = tmp_path / "theirs.zarr"
    quietly("import", *sorted(tmp_path.glob("*.npy")), *sizes, "--out", theirs)
    (score,) = json.loads((run / "scores.json").read_text("utf-8"))["results"]
    model = run / "best.safetensors"
    said = call(capsys, monkeypatch, "evaluate", model, "--data", theirs).out[-1]
    assert f"relative L2 error: mean {score['measures']['points']['mean']:.3e}" in said


def test_failed_voids_are_named_and_left_out(tmp_path, capsys, monkeypatch):
    options = ["generate", "elasticity-quick", "--samples", "16", "--set", "problem.resolution=12",
               "--set", "span=0.35", "--workers", "1"]  # fmt: skip
    refused = call(capsys, monkeypatch, *options, "--out", tmp_path / "no.zarr")
    assert refused.status == 1
    assert "the void leaves the square" in refused.err[-1]
    out = tmp_path / "some.zarr"
    quietly(*options, "--out", out, "--skip-failed")
    assert 0 < len(open_sealed(str(out)).skipped) < 16
    assert verify(str(out)).faults == []


def test_quadrature_is_recorded_and_needs_weights(sheets, tmp_path):
    of = Experiment.on_store(sheets, "galerkin-transformer")
    declared = of.with_overrides(
        {"model.decoder": "pointwise", "model.quadrature": True, "width": 8, "depth": 1,
         "feedforward": 8, "epochs": 1}
    )  # fmt: skip
    train(declared, sheets, tmp_path / "run", CPU)
    predictor, said = load_checkpoint(tmp_path / "run" / "last.safetensors", build_operator)
    assert said["operator"]["model"]["quadrature"]
    assert predictor.operator.weights
    pairs = Source(sheets, declared).samples("test", noise=None)
    all = next(pairs.in_order(len(pairs)))
    # in several blocks
    a, x, weight = (v.repeat_interleave(20, 0) for v in (all.a, all.x, all.weight))
    u = load_model(tmp_path / "run" / "last.safetensors").predict(a, x, weight=weight)
    expected = predictions(predictor, pairs).repeat_interleave(20, 0)
    torch.testing.assert_close(u, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(SchemaError, match="quadrature needs weights of the points, but these"):
        train(declared.with_overrides({"weights": "points"}), sheets, tmp_path / "other", CPU)
    assert not (tmp_path / "other").exists()


def test_cells_say_which_node_is_which(sheets, tmp_path):
    """Moments are over the sheets at each node; the checkpoint alone predicts with them."""
    of = Experiment.on_store(sheets, "transolver")
    declared = of.with_overrides(
        {"model.projection": "linear", "model.coordinates": "raw", "width": 8, "heads": 1,
         "depth": 1, "slices": 4, "epochs": 1, "normalization.input": "pointwise",
         "normalization.target": "pointwise"}
    )  # fmt: skip
    train(declared, sheets, tmp_path / "run", CPU)
    evaluate_run(declared, sheets, tmp_path / "run", CPU)
    path = tmp_path / "run" / "last.safetensors"
    predictor, _ = load_checkpoint(path, build_operator)
    source = Source(sheets, declared)
    learnt, test = (
        source.samples("train", noise=None).resident(),
        source.samples("test", noise=None),
    )
    for normal, values in ((predictor.input, learnt.a), (predictor.target, learnt.u)):
        std = values.double().std(0, correction=0)
        eps = 1e-3 * std.square().mean(0).sqrt()
        torch.testing.assert_close(normal.mean, values.double().mean(0).float())
        torch.testing.assert_close(normal.std, (std + eps).float())
    all = next(test.in_order(len(test)))
    u = load_model(path).predict(all.a, all.x)
    inner = predictor.operator((all.a - predictor.input.mean) / predictor.input.std, all.x)
    torch.testing.assert_close(u, inner * predictor.target.std + predictor.target.mean)
    with pytest.raises(ValueError, match="by node needs meshes of 108 nodes, got 107"):
        load_model(path).predict(all.a[:, 1:], all.x[:, 1:])
