"""A training on batches of several resolutions: the chosen epoch, and the card of the model."""

import pytest

from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.evaluate import scores
from pipelines.config.experiment import load_experiment
from pipelines.runs.data import Source
from pipelines.runs.model_folder import export_model
from tests.pipelines.command import history
from tests.pipelines.conftest import SMALL, a_run

SETS = {key: value for key, value in SMALL.items() if key != "data.resolution"} | {
    "data.resolutions": [8, 16],
    "training.epochs": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return a_run(tmp_path_factory, "several", SETS)


def test_the_error_at_the_finest_resolution_chooses_the_epoch(run):
    folder, store = run
    (epoch,) = history(folder)
    predictor, _ = load_checkpoint(folder / "last.safetensors", build_operator)
    errors = {}
    for n in (8, 16):
        experiment = load_experiment("burgers-quick").with_overrides(SMALL)
        on_n = experiment.with_overrides({"data.resolution": n})
        errors[n] = float(scores(predictor, Source(store, on_n).samples("validation")).mean())
    assert epoch["score"] == pytest.approx(errors[16], rel=1e-6)
    assert epoch["score"] != pytest.approx(errors[8], rel=1e-3)


def test_the_card_of_the_model_names_all_resolutions(run, tmp_path):
    folder = export_model(run[0], tmp_path / "model")
    assert "Trained on 8 or 16 points along each axis" in (folder / "README.md").read_text()


@pytest.mark.parametrize("resolutions", [[8, 16], [16, 8]])
def test_the_finest_resolution_is_the_largest_in_any_order(resolutions):
    several = load_experiment("burgers-quick").with_overrides({"data.resolutions": resolutions})
    assert several.data.finest_resolution == 16
