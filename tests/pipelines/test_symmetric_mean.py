"""Predictions of a trained operator as means over the symmetries of the square."""

import pytest
import torch

from operators import load_model
from operators.symmetries import square_mean
from pdegen.domains import Box
from pipelines.config.experiment import Experiment
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate
from pipelines.runs.training import train
from tests.pipelines.shapes import a_store

CPU = torch.device("cpu")


def experiment(mean, **changes):
    return Experiment.parse(
        {
            "name": "mean", "summary": "", "resolutions": [16],
            "data": {"recipe": "burgers-quick", "resolution": 16},
            "model": {"name": "fno", "width": 4, "depth": 1, "modes": 3},
            "training": {"epochs": 2, "batch": 4, "loss": {"name": "l2"},
                         "symmetries": {"square": True, "mean": mean}},
            **changes,
        },
        "experiment",
    )  # fmt: skip


def test_only_the_trained_operator_takes_the_mean(tmp_path):
    """The training and its scores are those without the mean; loaded models and scores have it."""
    store = a_store(str(tmp_path / "store"), Box.cell(16, 16))
    history = {
        mean: train(experiment(mean), store, tmp_path / str(mean), CPU) for mean in (False, True)
    }
    assert [(e.loss, e.score) for e in history[True]] == [(e.loss, e.score) for e in history[False]]
    models = {mean: load_model(tmp_path / str(mean) / "best.safetensors") for mean in history}
    pairs = Source(store, experiment(True)).samples("test", noise=None)
    batch, x = pairs.resident().all, pairs.points
    a, u = batch.a, batch.u
    expected = square_mean(lambda image: models[False].predict(image, x), a)
    torch.testing.assert_close(models[True].predict(a, x), expected)
    assert not torch.allclose(models[False].predict(a, x), expected, atol=1e-4)
    errors = (expected - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)
    found = evaluate(tmp_path / "True" / "best.safetensors", store, CPU).errors
    assert found == pytest.approx(errors.tolist(), rel=1e-5)
