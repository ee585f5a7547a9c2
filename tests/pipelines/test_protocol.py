"""Which samples a run learns from, which choose its epoch, and which it is scored on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from pipelines.config.experiment import load_experiment
from pipelines.runs.evaluation import evaluate
from pipelines.runs.score import Score
from pipelines.runs.training import train
from tests.pipelines.conftest import SMALL

CPU = torch.device("cpu")
SPLITS = ("train", "validation", "test")


def epochs(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("fixture", "split"), [("finished", "validation"), ("published", "test"), ("inverse", "test")]
)
def test_the_epoch_is_chosen_on_the_split_of_the_protocol(fixture, split, request):
    run, store = request.getfixturevalue(fixture)
    history = epochs(run)
    means = {
        name: {
            one: float(np.mean(evaluate(
                run / f"{one}.safetensors", store, CPU, split=name,
                resolution=json.loads((run / "run.json").read_text())["data"]["resolution"],
            ).errors))
            for one in ("best", "last")
        }
        for name in SPLITS
    }  # fmt: skip
    assert history[-1]["score"] == pytest.approx(means[split]["last"], rel=1e-6)
    best = min(epoch["score"] for epoch in history)
    assert best == pytest.approx(means[split]["best"], rel=1e-6)
    for other in {*SPLITS} - {split}:
        assert history[-1]["score"] != pytest.approx(means[other]["last"], rel=1e-6)


@pytest.mark.parametrize("fixture", ["darcy", "inverse"])
def test_normalisers_are_those_of_the_training_samples(fixture, request):
    run, store = request.getfixturevalue(fixture)
    predictor, description = load_checkpoint(run / "last.safetensors", build_operator)
    dataset = xr.open_zarr(store)
    start, stop = dataset.attrs["splits"]["train"]
    name = description["experiment"]["data"]["input"]
    inputs = dataset[name].isel(sample=slice(start, stop)).values.astype(float)
    mean = predictor.input.mean.double()
    if fixture == "darcy":
        assert float(mean) == pytest.approx(inputs.mean(), rel=1e-6)
        assert float(predictor.input.std) == pytest.approx(inputs.std(), rel=1e-6)
        target = dataset["u"].isel(sample=slice(start, stop)).values.astype(float)
        np.testing.assert_allclose(predictor.target.mean[..., 0], target.mean(axis=0), rtol=1e-5)
    else:  # of noisy inputs, whose noise of 0.1 σ averages out over the samples
        off = (mean[..., 0].numpy() - inputs.mean(axis=0)) / inputs.std(axis=0)
        assert abs(off).max() < 6 * 0.1 / np.sqrt(stop - start)


def test_the_trained_samples_are_those_of_the_training_split_alone(store, tmp_path):
    """A change of one sample of another split changes no weight of the last epoch."""
    seen: list[torch.Tensor] = []
    experiment = load_experiment("burgers-quick").with_overrides({**SMALL, "training.epochs": 1})
    forward = torch.nn.Linear.forward

    def watched(self, u):
        if self.in_features == 1 and torch.is_grad_enabled():
            seen.append(u.detach().clone())
        return forward(self, u)

    experiment = experiment.with_overrides(
        {"training.symmetries.shift": False, "training.symmetries.reflection": False}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Linear, "forward", watched)
        train(experiment, store, tmp_path / "run", CPU)
    dataset = xr.open_zarr(store)
    start, stop = dataset.attrs["splits"]["train"]
    values = dataset["a"].values[:, ::2]
    for a in torch.cat(seen)[..., 0].numpy():
        (number,) = np.flatnonzero((values == a).all(axis=1))
        assert start <= number < stop


def test_a_summary_is_that_of_the_errors():
    errors = (0.1, 0.2, 0.6, 0.2)
    score = Score("best", 3, "test", 16, (20, 21, 23, 24), errors, 1.0)
    summary = score.summary()
    assert summary["mean"] == pytest.approx(0.275)
    assert summary["median"] == pytest.approx(0.2)
    assert summary["worst"] == 0.6
    assert summary["std"] == pytest.approx(np.sqrt(np.mean((np.array(errors) - 0.275) ** 2)))
    assert summary["skipped"] == [22]
    assert summary["errors"] == list(errors)


def test_a_summary_of_fewer_errors_than_samples_is_no_score():
    summary = Score("best", 3, "test", 16, (20, 21, 23), (0.1, 0.2, 0.6), 1.0).summary()
    assert Score.of(summary).samples == (20, 21, 23)
    with pytest.raises(ValueError, match="2 errors of 3 samples"):
        Score.of({**summary, "errors": [0.1, 0.2]})
