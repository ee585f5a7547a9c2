"""Residuals of predictions: as a part of the loss, as a score, and as corrections."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from operators.norms import RelativeL2
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.runs.data import Source
from pipelines.runs.evaluation import corrected_scores, evaluate, evaluate_run
from pipelines.runs.finished import read_finished
from pipelines.runs.residual import EquationResidual, WithResidual, with_residual
from pipelines.runs.training import train
from tests.pipelines.command import history
from tests.pipelines.conftest import CPU, DARCY_DATA

DATA = {f"data.overrides.{key}": value for key, value in DARCY_DATA.items()}
EXPERIMENT = load_experiment("darcy-fno-quick").with_overrides({
    **DATA, "resolutions": [13], "data.resolution": 13, "data.samples": 8, "model.width": 4,
    "model.modes": 3, "training.epochs": 4, "training.batch": 4, "training.residual.unlabelled": 8,
})  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    recipe = load_recipe("darcy-quick").with_overrides(DARCY_DATA)
    return generate(recipe, str(tmp_path_factory.mktemp("residual") / "s.zarr"), workers=1).url


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    """A finished run, and the lines about its labels."""
    folder, lines = tmp_path_factory.mktemp("residual") / "run", list[str]()
    train(EXPERIMENT, store, folder, CPU, on_labels=lines.append)
    evaluate_run(EXPERIMENT, store, folder, CPU)
    return folder, lines


def data(store, experiment=EXPERIMENT):
    source = Source(store, experiment)
    return source, source.samples("train", "training", device=CPU)


def relative(store, p, of="test"):
    """‖p - u‖/‖u‖ of a split."""
    u = Source(store, EXPERIMENT).samples(of).resident().u
    return ((p - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)).numpy()


def test_the_residual_of_the_labels_is_printed_first(store, run):
    source, pairs = data(store)
    values = EquationResidual.of(source, pairs)(pairs.a, pairs.u)
    expected = f"residual of the labels: mean {values.mean():.3e}, largest {values.max():.3e}"
    assert run[1] == [expected]


def test_the_loss_takes_labels_of_the_first_samples_and_residuals_of_all(store):
    source, pairs = data(store)
    settings, others = with_residual(source, pairs, source.experiment.training.settings(), 1, print)
    assert others is not None
    assert others.ids.tolist() == list(range(pairs.ids[-1] + 1, pairs.ids[-1] + 9))
    loss = settings.loss
    assert isinstance(loss, WithResidual)
    batch = next(pairs.batches(0, 0, 4)).joined(next(others.batches(0, 0, 4)))
    p = (1.2 * batch.u).requires_grad_()
    garbage = batch.u.clone()
    garbage[4:] = torch.nan
    loss.at(1.0)
    value = loss(p, garbage, batch.a)
    residual = EquationResidual.of(source, pairs)(batch.a, p).mean()
    expected = RelativeL2()(p[:4], batch.u[:4], batch.a[:4]) + residual
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    (gradient,) = torch.autograd.grad(value, p)
    assert gradient.isfinite().all()
    assert (gradient.flatten(1).norm(dim=1) > 0).all()


def test_the_weight_rises_after_a_fifth_of_the_steps(store):
    source, pairs = data(store, EXPERIMENT.with_overrides({"training.residual.weight": 3.0}))
    loss = with_residual(source, pairs, source.experiment.training.settings(), 1, print)[0].loss
    assert isinstance(loss, WithResidual)
    weights = []
    for share in (0.0, 0.2, 0.3, 0.4, 1.0):
        loss.at(share)
        weights.append(float(loss.present))
    assert weights == pytest.approx([0, 0, 1.5, 3, 3])


def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(store, run, tmp_path):
    """Stopped in the epoch in which the weight rises, and in a pass over the other samples."""
    steps = iter(range(100))
    with pytest.raises(Exception, match="stopped in epoch 2"):
        train(EXPERIMENT, store, tmp_path / "run", CPU, stop=lambda: next(steps) == 2)
    train(EXPERIMENT, store, tmp_path / "run", CPU, resume=True)
    assert history(tmp_path / "run") == history(run[0])


def test_the_residual_changes_the_training(store, run, tmp_path):
    training = EXPERIMENT.training.model_copy(update={"residual": None})
    plain = EXPERIMENT.model_copy(update={"training": training})
    assert "residual" not in plain.model_dump(mode="json")["training"]
    train(plain, store, tmp_path / "run", CPU)
    with_it, without = history(run[0]), history(tmp_path / "run")
    assert with_it[0] != without[0] or with_it[1] != without[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.residual.aim": 0.01}, "mean residual 0.0.*, at most training.residual.aim"),
        ({"training.residual.unlabelled": 9}, "at least training.batch = 4 and at most 8, the"),
        ({"training.residual.unlabelled": 3}, "must be 0, or at least training.batch = 4"),
        ({"noise.level": 0.1}, "the residual of darcy needs inputs without noise"),
        ({"data.resolution": 7, "resolutions": [7]}, "needs all points of the store, resolution"),
        ({"data.input": "u", "data.target": "a"}, "the residual of darcy of a from u does not"),
        ({"training.loss.name": "flow", "normalization.target": "scalar"}, "for the loss flow"),
    ],
)  # fmt: skip
def test_what_has_no_residual_is_refused_in_one_line(store, tmp_path, changes, message):
    with pytest.raises(SchemaError, match=message) as caught:
        train(EXPERIMENT.with_overrides(changes), store, tmp_path / "run", CPU)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("changes", [
    {"data.resolution": None, "data.resolutions": [7, 13]},
    {"data.samples": None, "data.stream.recipe": "darcy-quick"},
])  # fmt: skip
def test_residuals_are_for_stored_samples_at_one_resolution(changes):
    with pytest.raises(SchemaError, match="stored samples at one resolution: leave it out, or"):
        EXPERIMENT.with_overrides(changes)


def test_scores_have_residuals_and_their_correlation_with_the_errors(store, run):
    score = evaluate(run[0] / "best.safetensors", store, CPU)
    source = Source(store, EXPERIMENT)
    pairs = source.samples("test").resident()
    finished = read_finished(run[0], store, CPU)
    expected = EquationResidual.of(source, pairs)(pairs.a, finished.prediction).tolist()
    assert score.measures["residual"] == pytest.approx(expected, rel=1e-5)
    correlation = np.corrcoef(score.errors, expected)[0, 1]
    assert score.residual_correlation == pytest.approx(correlation)
    assert np.isnan(replace(score, measures={}).residual_correlation)


def test_corrected_scores_are_those_of_the_solver_beside_none_without_a_model(store, run):
    model, alone, twice = corrected_scores(run[0] / "best.safetensors", store, CPU, 2)
    source = Source(store, EXPERIMENT)
    pairs = source.samples("test").resident()
    system = (
        load_recipe("darcy-quick").with_overrides(DARCY_DATA).problem.system({"a": pairs.a[..., 0]})
    )
    assert system is not None
    finished = read_finished(run[0], store, CPU)
    for score, start, steps in (
        (model, finished.prediction, 2), (alone, 0 * pairs.u, 2), (twice, 0 * pairs.u, 4),
    ):  # fmt: skip
        expected = relative(store, system.corrected(start[..., 0], steps)[..., None])
        assert score.errors == pytest.approx(expected, rel=1e-4)
    names = ["best, 2 steps", "no model, 2 steps", "no model, 4 steps"]
    assert [score.checkpoint for score in (model, alone, twice)] == names
    assert model.mean < finished.main.mean
    assert [score.checkpoint for score in finished.scores.corrected] == names


def test_evaluate_prints_the_residual_and_its_correlation(store, run, pdegen):
    _, residual = pdegen("evaluate", run[0] / "best.safetensors", "--data", store).out
    assert re.fullmatch(
        r"relative residual \(no labels\): mean \S+, correlation with the error -?\d.\d\d", residual
    )


def test_predictions_are_corrected(store, run, pdegen, tmp_path):
    words = ("predict", run[0] / "best.safetensors", "--data", store)
    assert pdegen(*words, "--out", tmp_path / "p.zarr").status == 0
    outcome = pdegen(*words, "--out", tmp_path / "c.zarr", "--correct", "2", "--bound")
    assert "after 2 steps of the solver" in outcome.out[-1]
    source = Source(store, EXPERIMENT)
    pairs = source.samples("test").resident()
    residual = EquationResidual.of(source, pairs)
    with xr.open_zarr(tmp_path / "p.zarr") as plain, xr.open_zarr(tmp_path / "c.zarr") as found:
        assert found.attrs["corrected_steps"] == 2
        start = torch.from_numpy(plain.u.to_numpy())[..., None]
        expected = residual.corrected(pairs.a, start, 2)
        np.testing.assert_allclose(found.u, expected[..., 0], rtol=1e-5)
        np.testing.assert_allclose(found.u_residual, residual(pairs.a, expected), rtol=1e-4)
        assert (found.u_bound_relative_energy < plain.u.size).all()


@pytest.mark.parametrize(("of", "message"), [
    (["--correct", "2", "--resolution", "7"], "needs all points of the store, resolution 13"),
    (["--correct", "0"], "--correct"),
])  # fmt: skip
def test_what_cannot_be_corrected_is_refused(store, run, pdegen, tmp_path, of, message):
    words = ("predict", run[0] / "best.safetensors", "--data", store, "--out", tmp_path / "p.zarr")
    outcome = pdegen(*words, *of)
    assert outcome.status == 2
    assert message in " ".join(outcome.err)
    assert not (tmp_path / "p.zarr").exists()


def test_other_equations_have_neither_scores_nor_corrections(finished, pdegen, tmp_path):
    run, store = finished
    score = evaluate(run / "best.safetensors", store, CPU)
    assert "residual" not in score.measures
    assert "corrected" not in json.loads((run / "scores.json").read_text())
    outcome = pdegen("predict", run / "best.safetensors", "--data", store, "--correct", "1",
                     "--out", tmp_path / "p.zarr")  # fmt: skip
    assert (outcome.status, len(outcome.err)) == (2, 1)
    assert "the residual of burgers of u from a does not exist" in outcome.err[0]
