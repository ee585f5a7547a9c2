"""Trainings by the loss flow: operators that draw from a posterior."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.api import load_model
from operators.posterior import FlowPosterior, GridFlow
from operators.training.evaluate import predictions, selection_errors
from pdegen.generation.generate import generate
from pdegen.inverse.calibration import crps
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.finished import read_finished
from pipelines.runs.training import train
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution
from pipelines.studies.scores import Reconstructed, block_means

CPU = torch.device("cpu")
DATA = {"samples": 280, "shard": 40, "resolution": 13, "modes": 16, "refinement": 1,
        "train": 240, "validation": 20, "test": 20}  # fmt: skip
CHANGES = {
    "data.resolution": 13, "data.target_resolution": 9, "resolutions": [13], "model.name": "fno",
    "model.width": 12, "model.depth": 2, "model.modes": 4, "training.epochs": 8,
    "training.lr": 5e-3, "training.average": 0.98, "noise.level": 0.2,
    "training.loss": {"name": "flow", "members": 20, "steps": 4},
    **{f"data.overrides.{k}": v for k, v in DATA.items()},
}  # fmt: skip
EXPERIMENT = load_experiment("darcy-inverse-quick").with_overrides(CHANGES)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of one model, whose run is evaluated."""
    folder = tmp_path_factory.mktemp("flow")
    store = generate(EXPERIMENT.data.load_recipe(), str(folder / "data.zarr"), workers=1).url
    made = NoiseStudy(EXPERIMENT, store, folder / "study", (0.2,), (0.2,), 1, only=("none",))
    made.run(CPU)
    return made


@pytest.fixture(scope="module")
def cell(study):
    return replace(study.models[0], at=0.2)


def test_a_study_scores_the_draws_of_a_flow(study, cell):
    scores, training = study.row(cell, Execution(CPU)).scores, study.training(cell)
    pairs = study.test_pairs_of(cell)
    model = load_model(training.checkpoint)
    draws = model.draw(pairs.a, samples=pairs.ids.tolist()).double().numpy()[..., 0]
    assert draws.shape == (20, 20, 9, 9)
    upper, truth = (draws > 7.5).astype(float), (study.truth - 3) / 9
    of_shares = crps(block_means(upper, 2), block_means(truth, 2)).mean(axis=-1)
    assert scores["crps"] == pytest.approx(of_shares.tolist())
    brier = np.mean((upper.mean(axis=0) - (truth > 0.5)) ** 2, axis=(1, 2))
    assert scores["brier"] == pytest.approx(brier.tolist())
    assert {"coverage", "width"} <= scores.keys()
    fields = study.predicted(cell, CPU)
    assert fields == pytest.approx(draws.mean(axis=0), abs=1e-5)
    point = Reconstructed(fields, study.truth, study.values).crps
    assert point is not None
    assert np.mean(scores["crps"]) < np.mean(point)


def test_seeds_draw_from_sources_of_their_own(study, cell, tmp_path):
    training, pairs = study.training(cell), study.test_pairs_of(cell)
    seeded = training.experiment.with_overrides({"training.seed": 3})
    drawn = replace(training, experiment=seeded).drawn(pairs, CPU, tmp_path)
    model, numbers = load_model(training.checkpoint), pairs.ids.tolist()
    assert drawn.equal(model.draw(pairs.a, samples=numbers, seed=3).transpose(0, 1))


def test_the_epoch_is_the_one_of_least_loss_of_the_flow(study, cell):
    training = study.training(cell)
    history = training.finished()
    predictor = load_model(training.checkpoint).predictor
    assert isinstance(predictor, FlowPosterior)
    losses = predictor.losses(study.source.samples("validation", "selection"))
    least = min(epoch.score for epoch in history)
    assert least == pytest.approx(float(losses.mean()), rel=1e-6)
    assert least < 0.6 * history[0].loss


def test_draws_and_losses_have_products_in_float32(study, cell, tmp_path, monkeypatch):
    """As predictions and errors of other operators: TF32 is for the steps of a training."""
    allowed, velocity = list[bool](), GridFlow.velocity

    def watched(*words):
        allowed.append(torch.backends.cudnn.allow_tf32)
        return velocity(*words)

    monkeypatch.setattr(GridFlow, "velocity", watched)
    training, pairs = study.training(cell), study.test_pairs_of(cell).rows(slice(1))
    training.drawn(pairs, CPU, tmp_path)
    selection_errors(training.predictor(CPU), pairs)
    assert len(allowed) == 2 * 2 * 4 + 1  # two batches of draws by 4 steps of two stages, a loss
    assert not any(allowed)


def test_a_run_is_evaluated_by_means_of_draws(study, cell):
    training = study.training(cell)
    summary = evaluate_run(EXPERIMENT, study.store, training.folder, CPU)
    pairs = study.test_pairs_of(cell)
    model = load_model(training.checkpoint)
    p = model.predict(pairs.a)
    assert torch.equal(p, predictions(model.predictor, pairs, 7))
    error = float(((p - pairs.u).flatten(1).norm(dim=1) / pairs.u.flatten(1).norm(dim=1)).mean())
    (result,), trivial = summary["results"], summary["trivial"]
    assert result["mean"] == pytest.approx(error, rel=1e-5)
    assert result["mean"] < 0.8 * min(score["mean"] for score in trivial)
    assert summary["parameters"] == model.predictor.operator.parameter_count
    assert read_finished(training.folder, study.store, CPU).prediction.shape == p.shape


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalization.target": "none"}, 'normalised targets: set normalization.target'),
        ({"training.symmetries.mean": True}, "takes no mean over the symmetries of the square"),
        ({"model.name": "pod-deeponet", "model.basis": 4}, "without a basis of the targets"),
        ({"data.resolutions": [13, 7], "data.resolution": None}, "trains at one resolution"),
    ],
)  # fmt: skip
def test_what_a_flow_cannot_be_is_refused_in_one_line(study, tmp_path, changes, message):
    experiment = EXPERIMENT.with_overrides(changes)
    with pytest.raises(SchemaError, match=f"training.loss: flow .*{message}") as caught:
        train(experiment, study.store, tmp_path / "run", CPU)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
