"""Predictions of the test split are stored once, and never those of another run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from operators.data import open_pairs
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint, saving_checkpoint
from operators.training.evaluate import predictions
from operators.training.identity import MADE_FROM
from pdegen.files import read_json, write_json
from pipelines.config.experiment import Experiment
from pipelines.reports.report import write_report
from pipelines.runs import data
from pipelines.runs import finished as reading
from pipelines.runs.data import Source
from pipelines.runs.finished import read_finished
from pipelines.runs.folder import scores_key
from pipelines.runs.predictions import MEAN, PREDICTIONS, kept_predictions, mean_target
from tests.pipelines.conftest import in_memory

CPU = torch.device("cpu")


@pytest.fixture
def copy(finished, tmp_path):
    run, store = finished
    return shutil.copytree(run, tmp_path / "run"), store


def test_a_report_predicts_nothing_and_reads_no_training_sample(copy, monkeypatch):
    run, store = copy
    before = (run / "report.html").read_text("utf-8")

    def other_than_train(url, split, *rest, **options):
        assert split != "train"
        return open_pairs(url, split, *rest, **options)

    monkeypatch.setattr(reading, "predictions", None)
    monkeypatch.setattr(data, "open_pairs", other_than_train)
    assert write_report(run, store, CPU).read_text("utf-8") == before


def test_what_is_kept_is_what_the_checkpoint_predicts(finished):
    run, store = finished
    experiment = read_finished(run, store, CPU).experiment
    pairs = Source(store, experiment).samples("test").resident()
    predictor, _ = load_checkpoint(run / "best.safetensors", build_operator)
    torch.testing.assert_close(
        load_file(run / PREDICTIONS)["values"], predictions(predictor, pairs), rtol=0, atol=0
    )
    train = in_memory(store, experiment, "train")
    torch.testing.assert_close(
        load_file(run / MEAN)["values"], train.u.double().mean(dim=0), rtol=1e-14, atol=1e-14
    )
    streamed = Source(store, experiment).stored("train")
    torch.testing.assert_close(mean_target(streamed), mean_target(train), rtol=1e-14, atol=1e-14)


def of_another_checkpoint(run: Path) -> None:
    predictor, description = load_checkpoint(run / "best.safetensors", build_operator)
    for weights in predictor.parameters():
        weights.data *= 1.5
    del description["sha256"]  # of the bytes before
    saving_checkpoint(run / "best.safetensors", predictor, description)()
    experiment = Experiment.parse(description["experiment"], "experiment")
    scores = read_json(run / "scores.json")  # refused unless they are of these weights
    write_json(run / "scores.json", {**scores, MADE_FROM: scores_key(run, experiment)})


def damaged(run: Path) -> None:
    data = bytearray((run / PREDICTIONS).read_bytes())
    data[-1] ^= 1
    (run / PREDICTIONS).write_bytes(data)


@pytest.mark.parametrize(
    "happened",
    [
        of_another_checkpoint,
        damaged,
        lambda run: (run / PREDICTIONS).unlink(),
        lambda run: (run / PREDICTIONS).write_bytes(b"\x80\x04."),
    ],
    ids=["of another checkpoint", "damaged", "missing", "a pickle"],
)
def test_predictions_are_made_again(copy, happened):
    run, store = copy
    happened(run)
    predictor, _ = load_checkpoint(run / "best.safetensors", build_operator)
    found = read_finished(run, store, CPU)
    torch.testing.assert_close(
        found.prediction, predictions(predictor, found.pairs), rtol=0, atol=0
    )


def test_predictions_of_other_noise_or_samples_are_not_taken(finished, tmp_path):
    run, store = finished
    pairs = read_finished(run, store, CPU).pairs
    checkpoint = run / "best.safetensors"

    def make(value):
        return lambda: torch.full_like(pairs.u, value)

    kept_predictions(tmp_path, checkpoint, pairs, make(1.0))
    of_test = kept_predictions(tmp_path, checkpoint, pairs, make(2.0))
    other = in_memory(store, read_finished(run, store, CPU).experiment, "validation")
    of_validation = kept_predictions(tmp_path, checkpoint, other, make(3.0))
    assert float(of_test.max()) == 1.0
    assert float(of_validation.max()) == 3.0
