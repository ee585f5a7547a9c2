"""Trainings by the loss gaussian: operators that state the deviation of their prediction."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.api import load_model
from operators.symmetries import square_mean
from operators.training.evaluate import scores
from pdegen.generation.generate import generate
from pdegen.inverse.calibration import gaussian_crps
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.finished import read_finished
from pipelines.runs.training import train
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution
from pipelines.studies.scores import BANDS, HALF

CPU = torch.device("cpu")
HOW = Execution(CPU)
EXACT = "exact posterior"
DATA = {"samples": 240, "shard": 60, "resolution": 13, "field.modes": 13,
        "train": 160, "validation": 40, "test": 40}  # fmt: skip
CHANGES = {
    "data.recipe": "poisson-quick", "data.input": "u", "data.target": "a", "data.resolution": 13,
    "resolutions": [13], "noise": {"kind": "ensemble", "level": 0.1},
    "normalization.input": "scalar", "normalization.target": "pointwise",
    "model.width": 12, "model.depth": 2, "model.modes": 4, "training.epochs": 6,
    "training.lr": 5e-3, "training.schedule": {"name": "1cycle"}, "training.loss.name": "gaussian",
    "training.symmetries": {"square": True, "mean": True}, "training.conformal": True,
    **{f"data.overrides.{k}": v for k, v in DATA.items()},
}  # fmt: skip
EXPERIMENT = load_experiment("burgers-fno-quick").with_overrides(CHANGES)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of two seeds and the exact posterior."""
    folder = tmp_path_factory.mktemp("gaussian")
    store = generate(EXPERIMENT.data.load_recipe(), str(folder / "data.zarr"), workers=1).url
    made = NoiseStudy(EXPERIMENT, store, folder / "study", (0.1,), (0.1, 1.0), 2, only=(EXACT,))
    made.run(CPU)
    return made


@pytest.fixture(scope="module")
def cell(study):
    return replace(study.models[0], at=0.1)


def stated_by(study, cell):
    """Means and deviations of a model for the noisy test samples, by the model that is loaded."""
    a = study.test_pairs_of(cell).a.numpy()
    model = load_model(study.training(cell).checkpoint)
    return [model.predict(a, deviation=of)[..., 0].astype(float) for of in (False, True)]


def test_deviations_are_judged_like_those_of_the_exact_posterior(study, cell):
    m, s = stated_by(study, cell)
    scores = study.row(cell, HOW).scores
    off = abs(study.truth - m)
    assert scores["points"] == pytest.approx(np.mean(off <= HALF * s, axis=(1, 2)), abs=0.01)
    assert scores["points_width"] == pytest.approx((2 * HALF * s).mean(axis=(1, 2)), rel=1e-5)
    crps = gaussian_crps(m, s, study.truth).mean(axis=(1, 2))
    assert scores["points_crps"] == pytest.approx(crps, rel=1e-4)
    assert np.mean(scores["points"]) == pytest.approx(0.9, abs=0.07)  # 40 samples, few epochs
    assert np.mean(crps) < 0.8 * off.mean()  # of a mean without a deviation
    exact = study.row(replace(study.classical[0], at=0.1), HOW).scores
    assert {"points", "points_width", "points_crps"} <= exact.keys() & scores.keys()
    assert np.mean(exact["points_crps"]) < np.mean(crps)  # nothing is better


def test_seeds_together_state_the_deviation_of_their_mixture(study, cell):
    each = [stated_by(study, replace(cell, seed=seed)) for seed in (0, 1)]
    m = np.stack([mean for mean, _ in each])
    squares = np.mean([s**2 for _, s in each], axis=0)
    s = np.sqrt(squares + ((m[0] - m[1]) / 2) ** 2)
    pooled = study.row(replace(study.pooled[0], at=0.1), HOW)
    assert pooled.scores["points_width"] == pytest.approx(2 * HALF * s.mean((1, 2)), rel=1e-5)
    crps = gaussian_crps(m.mean(0), s, study.truth).mean((1, 2))
    assert pooled.scores["points_crps"] == pytest.approx(crps, rel=1e-4)


def test_half_of_the_validation_samples_chooses_the_epoch_and_half_calibrates(study, cell):
    training = study.training(cell)
    source = Source(study.store, training.experiment)
    every, first = (source.samples("validation", of).resident() for of in ("test", "selection"))
    assert every.ids[:20].tolist() == first.ids.tolist()
    assert len(every) == 40
    model = load_model(training.checkpoint)
    best = min(epoch.score for epoch in training.finished())
    model.predictor.mean = False  # as in the training
    assert best == pytest.approx(float(scores(model.predictor, first).mean()), rel=1e-6)
    model.predictor.mean = True
    rest = every.rows(slice(20, None))
    m, s = (model.predict(rest.a, deviation=of)[..., 0] for of in (False, True))
    q = ((m - rest.u[..., 0]).abs() / s).double().numpy()
    q = np.sort(q, axis=0)[18]  # the 19th of 20
    m, s = stated_by(study, cell)
    held = np.mean(abs(study.truth - m) <= q * s, axis=(1, 2))
    row = study.row(cell, HOW).scores
    assert row["band_points"] == pytest.approx(held, abs=0.01)
    assert row["band_points_width"] == pytest.approx((2 * q * s).mean((1, 2)), rel=1e-4)
    assert np.mean(row["band_points"]) == pytest.approx(0.92, abs=0.06)
    assert {0.0, 1.0} >= {*row["band_all"]}
    louder = study.row(replace(cell, at=1.0), HOW).scores  # without another calibration
    assert np.mean(louder["band_points"]) < np.mean(row["band_points"]) - 0.1
    exact = study.row(replace(study.classical[0], at=0.1), HOW).scores
    assert not exact.keys() & {f"band_{band}" for band in BANDS}


def test_the_report_says_how_bands_are_calibrated(study):
    page = write_noise_report(study, CPU).with_suffix(".md").read_text()
    for words in (
        "calibrated on the second half of the validation samples, with the noise of each",
        "the best on the first half of the validation samples with the training noise",
        "points band width", "conformal bands*", "points CRPS",
    ):  # fmt: skip
        assert words.casefold() in page.casefold(), words
    csv = (study.folder / "measures.csv").read_text()
    assert "band_share_width" in csv


def test_a_deviation_has_the_symmetries_and_a_least_value(study, cell):
    model = load_model(study.training(cell).checkpoint)
    a = study.test_pairs_of(cell).a
    s = model.predict(a, deviation=True)
    turned = model.predict(a.transpose(1, 2), deviation=True).transpose(1, 2)
    torch.testing.assert_close(turned, s)
    _, std = model.predictor.target.at(model.points())
    bound = square_mean(lambda a: (1e-3 * std).expand_as(s), a)
    assert bool((s > bound).all())
    with torch.no_grad():
        outputs = [p for name, p in model.predictor.operator.named_parameters() if "bias" in name]
        outputs[-1][1] = -100.0  # l is very small everywhere
    least = model.predict(a, deviation=True)
    torch.testing.assert_close(least, bound)


def test_a_run_is_evaluated_by_its_means(study, cell):
    training = study.training(cell)
    summary = evaluate_run(training.experiment, study.store, training.folder, CPU)
    (result,), trivial = summary["results"], summary["trivial"]
    assert result["mean"] < 0.9 * min(score["mean"] for score in trivial)
    run = read_finished(training.folder, study.store, CPU)
    assert run.prediction.shape == (40, 13, 13, 1)


def test_other_models_state_no_deviation():
    model = load_model("burgers-gt-512-best")
    with pytest.raises(ValueError, match="a deviation needs a model that was trained by the loss"):
        model.predict(np.ones((1, 512, 1)), deviation=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalization.target": "none"}, 'normalised targets: set normalization.target'),
        ({"model": {"name": "pod-deeponet", "basis": 4}}, "without a basis of the targets"),
    ],
)  # fmt: skip
def test_what_states_no_deviation_is_refused_in_one_line(study, tmp_path, changes, message):
    experiment = EXPERIMENT.with_overrides(changes)
    with pytest.raises(SchemaError, match=f"training.loss: gaussian .*{message}") as caught:
        train(experiment, study.store, tmp_path / "run", CPU)
    assert "\n" not in str(caught.value)
    with pytest.raises(SchemaError, match=f"training.loss: gaussian .*{message}"):
        replace(study, experiment=experiment, folder=tmp_path / "run").run(CPU)
    assert not (tmp_path / "run").exists()


def test_phases_are_no_values():
    experiment = load_experiment("darcy-inverse-quick").with_overrides(
        {"training.loss.name": "gaussian", "normalization.target": "scalar"}
    )
    with pytest.raises(SchemaError, match="is for values, a of here has two phases: use cross-en"):
        experiment.check_loss(experiment.data.load_recipe().problem.physics().phases, "here")


def test_too_few_validation_samples_are_refused_before_anything_is_written(study, tmp_path):
    few = {"data.overrides.train": 183, "data.overrides.validation": 17}
    experiment = EXPERIMENT.with_overrides(few)
    store = generate(experiment.data.load_recipe(), str(tmp_path / "few"), workers=1).url
    with pytest.raises(SchemaError, match=r"18 validation samples, .* has 17"):
        train(experiment, store, tmp_path / "run", CPU)
    with pytest.raises(SchemaError, match=r"training\.conformal is for operators"):
        replace(study, train_levels=())
    assert not (tmp_path / "run").exists()
