"""Shapes of data and models that were read, or trained on, and then not reported or drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pdegen.domains import Box, CellGrid
from pipelines.declared.experiment import Experiment, load_experiment
from pipelines.reports.pictures import plot_store
from pipelines.reports.report import write_report
from pipelines.runs.run import evaluate_run, train
from tests.pipelines.conftest import SMALL
from tests.pipelines.shapes import a_store

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


@pytest.mark.parametrize("sample", [None, 2])
@pytest.mark.parametrize(
    ("domain", "times"),
    [(Box.cell(8, 8), (0.1, 0.2, 0.3)), (Box((CellGrid(8, 2.0), CellGrid(4))), ())],
    ids=["times", "8 x 4 cells"],
)
def test_a_store_in_two_dimensions_is_drawn(
    domain: Box, times: tuple[float, ...], sample: int | None, tmp_path: Path
) -> None:
    store = a_store(str(tmp_path / "toy.zarr"), domain, times=times)
    words = plot_store(store, sample, tmp_path / "toy.svg").read_text("utf-8")
    assert words.count("sample ") == (4 if sample is None else 1)
    assert all(f"u, t = {time}" in words for time in times)
