"""Runs and studies that an earlier version recorded, without keys that experiments have now."""

import json

import pytest
import torch

from operators.training.fit import Stopped
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.runs import training
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.finished import read_result
from pipelines.runs.folder import RunError, recorded_experiment
from pipelines.runs.training import train, train_part
from tests.pipelines.conftest import SMALL

CPU = torch.device("cpu")


def experiment(**changes):
    return load_experiment("burgers-quick").with_overrides(
        {**SMALL, "training.epochs": 3, **changes}
    )


def earlier_record(experiment: Experiment, recorded: object) -> dict:
    """The record of a version without the keys `training.start`, `training.average` and
    `model.quadrature`."""
    content = recorded_experiment(experiment, recorded)
    tables = {name: dict(content[name]) for name in ("training", "model")}
    for table, key in (("training", "start"), ("training", "average"), ("model", "quadrature")):
        del tables[table][key]
    return {**content, **tables}


@pytest.fixture
def stopped(store, tmp_path, monkeypatch):
    """A training that an earlier version stopped after its first epoch."""
    epochs = []
    with monkeypatch.context() as patch:
        patch.setattr(training, "recorded_experiment", earlier_record)
        with pytest.raises(Stopped):
            train(experiment(), store, tmp_path / "run", CPU, on_epoch=epochs.append,
                  stop=lambda: len(epochs) == 1)  # fmt: skip
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["experiment"]
    assert "average" not in recorded["training"]
    return tmp_path / "run"


@pytest.mark.parametrize("how", [train, train_part])
def test_a_run_of_an_earlier_version_is_resumed_to_the_same_weights(stopped, store, how, tmp_path):
    before = json.loads((stopped / "run.json").read_text())["experiment"]
    epochs = []
    options = {"resume": True} if how is train else {"stop": lambda: False}
    how(experiment(), store, stopped, CPU, on_epoch=epochs.append, **options)
    assert 0 < len(epochs) < 3  # it went on
    assert json.loads((stopped / "run.json").read_text())["experiment"] == before
    evaluate_run(experiment(), store, stopped, CPU)
    result = read_result(stopped)
    assert result.experiment == experiment()
    whole = train(experiment(), store, tmp_path / "whole", CPU)
    assert [(e.loss, e.score) for e in result.history] == [(e.loss, e.score) for e in whole]


def test_another_experiment_is_still_refused(stopped, store):
    other = experiment(**{"training.average": 0.9})
    with pytest.raises(RunError, match="another experiment"):
        train(other, store, stopped, CPU, resume=True)
