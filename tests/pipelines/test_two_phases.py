"""Trainings by the cross-entropy: operators that predict the probability of a phase."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.api import load_model
from pdegen.generation.generate import generate
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.training import train
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution
from tests.once import once

CPU = torch.device("cpu")
LOW, HIGH = 3.0, 12.0
DATA = {"samples": 60, "shard": 20, "resolution": 13, "modes": 16, "refinement": 1,
        "train": 40, "validation": 10, "test": 10}  # fmt: skip
CHANGES = {
    "data.resolution": 13, "data.target_resolution": 5, "resolutions": [13], "model.width": 16,
    "model.depth": 1, "model.feedforward": 16, "model.heads": 2, "training.batch": 4,
    "training.epochs": 8, "training.lr": 5e-3, "training.loss.name": "cross-entropy",
    "normalization.target": "none", **{f"data.overrides.{k}": v for k, v in DATA.items()},
}  # fmt: skip
EXPERIMENT = load_experiment("darcy-inverse-quick").with_overrides(CHANGES)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, and its store."""

    def make(folder):
        recipe = EXPERIMENT.data.load_recipe()
        store = generate(recipe, str(folder / "data.zarr"), workers=1).url
        train(EXPERIMENT, store, folder / "run", CPU)
        evaluate_run(EXPERIMENT, store, folder / "run", CPU)

    folder = once(tmp_path_factory, "cross-entropy", make)
    return folder / "run", str(folder / "data.zarr")


def test_a_training_by_the_cross_entropy_beats_the_constant(trained):
    run, store = trained
    pairs = Source(store, EXPERIMENT).samples("test").resident()
    truth = pairs.u[..., 0].numpy()
    a = load_model(run / "best.safetensors").predict(pairs.a.numpy())[..., 0]
    p, share = (a - LOW) / (HIGH - LOW), (truth - LOW) / (HIGH - LOW)
    assert p.min() >= 0
    assert p.max() <= 1
    assert np.mean((p - share) ** 2) < 0.5 * np.mean((share.mean() - share) ** 2)


def test_a_checkpoint_has_the_values_of_the_phases(trained):
    predictor = load_model(trained[0] / "best.safetensors").predictor
    assert (predictor.phases.low, predictor.phases.high) == (LOW, HIGH)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalization.target": "scalar"}, 'logits: set normalization.target = "none"'),
        ({"data.input": "a", "data.target": "u", "data.target_resolution": None, "noise": None},
         "needs a target of two phases: u of"),
    ],
)  # fmt: skip
def test_other_targets_are_refused_before_a_folder_is_made(trained, tmp_path, changes, message):
    experiment = EXPERIMENT.with_overrides(changes)
    with pytest.raises(SchemaError, match=f"training.loss: cross-entropy .*{message}"):
        train(experiment, trained[1], tmp_path / "run", CPU)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def study(trained, tmp_path_factory):
    """A study of two seeds, and one of the same model with the loss of the experiment."""

    def make(folder):
        for name, changes in (("phases", {}), ("values", {"training.loss": {"name": "l2"}})):
            experiment = EXPERIMENT.with_overrides({"training.epochs": 2, **changes})
            of = NoiseStudy(
                experiment, trained[1], folder / name, (0.01,), (0.01,), 2, only=("none",)
            )
            of.run(CPU)
            made.append(of)

    made = list[NoiseStudy]()
    make(tmp_path_factory.mktemp("phases"))
    return made


def test_a_study_scores_the_probabilities_of_the_loss(study):
    phases = study[0]
    cell = replace(phases.models[0], at=0.01)
    scores, others = (of.row(cell, Execution(CPU)).scores for of in study)
    p = (phases.predicted(cell, CPU) - LOW) / (HIGH - LOW)
    expected = np.mean((p - (phases.truth > (LOW + HIGH) / 2)) ** 2, axis=(1, 2))
    assert scores["brier"] == pytest.approx(expected.tolist())
    assert {"set_coverage", "set_size"} <= scores.keys()
    assert others.keys() == scores.keys() - {"brier", "set_coverage", "set_size"}
