"""Shapes of data and models that were read, or trained on, and then not reported or drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipelines.declared.experiment import Experiment, load_experiment
from pipelines.reports.report import write_report
from pipelines.runs.run import evaluate_run, train
from tests.pipelines.conftest import SMALL

CPU = torch.device("cpu")
MODELS = {
    "pit": {"name": "pit", "width": 8, "heads": 1, "latent": 8, "depth": 1},
    "transolver": {"name": "transolver", "width": 8, "heads": 1, "depth": 1, "slices": 4},
}


@pytest.mark.parametrize("model", MODELS)
def test_an_operator_without_modes_is_reported(model: str, store: str, tmp_path: Path) -> None:
    own = {k: v for k, v in SMALL.items() if not k.startswith("model.")}
    declared = load_experiment("burgers-quick").with_overrides({**own, "training.epochs": 1})
    content = {**declared.model_dump(mode="json"), "model": MODELS[model]}
    experiment = Experiment.parse(content, model)
    train(experiment, store, tmp_path, CPU)
    evaluate_run(experiment, store, tmp_path, CPU)
    html = write_report(tmp_path, store, CPU).read_text("utf-8")
    assert "Spectrum: mean size of the Fourier coefficients" in html
    assert "decoder keeps" not in html
