"""What a noise study computes, and what its report says."""

import csv
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from pdegen.generation.generate import generate
from pdegen.inverse.classical import ClassicalMethod, Estimate, half_decades
from pdegen.recipe import load_recipe
from pdegen.sampling.noise_law import NoiseLaw
from pdegen.store.reading import open_sealed
from pipelines.reports.document import significant
from pipelines.reports.noise_pictures import file_name
from pipelines.reports.noise_report import reported_epoch, times
from pipelines.reports.noise_table import scores_of
from pipelines.studies import noise
from pipelines.studies.inversions import Cell, ChosenWeight, Observed, chosen_weight
from pipelines.studies.runner import Execution, Row, mean_and_spread, predictions
from pipelines.studies.scores import BAND_MEASURES, MEASURES, block_means
from tests.pipelines.noise.conftest import CPU, EVERY, METHODS, STEPS, a_study
from tests.printed import too_wide

UNSTATED = {"coverage", "width", "points", "points_width", "points_crps"}
HOW = Execution(CPU)
MAP = "maximum a posteriori"


def relative_errors(found, truth):
    return np.linalg.norm(found - truth, axis=(1, 2)) / np.linalg.norm(truth, axis=(1, 2))


@pytest.mark.slow
def test_latex_sets_the_tables_of_its_report(finished, tmp_path):
    assert too_wide(finished.folder / "tables", tmp_path) == []


# models


@pytest.mark.parametrize(
    "cell", [Cell(0.1, 1, 0.1), Cell(EVERY, at=0.1), Cell(EVERY, at=0.1, assumed_level=3.0)]
)
def test_errors_are_those_of_the_reported_checkpoint(finished, cell):
    """Also those of one training for all levels, by the level that it assumes."""
    row, training = finished.row(cell, HOW), finished.training(cell)
    found = predictions(training.predictor(CPU), finished.test_pairs_of(cell))
    assert row.errors == pytest.approx(
        relative_errors(found[..., 0].double().numpy(), finished.truth)
    )
    assert {len(scores) for scores in (row.errors, row.scores["iou"], row.scores["l1"])} == {4}


def test_all_seeds_together_answer_with_their_mean_and_are_draws(finished):
    models = [Cell(0.1, seed, 0.1) for seed in (0, 1)]
    draws = np.stack([finished.predicted(model, CPU) for model in models])
    row = finished.row(Cell(0.1, at=0.1, together=True), HOW)
    assert row.errors == pytest.approx(relative_errors(draws.mean(axis=0), finished.truth))
    upper = draws > sum(finished.values) / 2
    shares = block_means(np.array([*upper, finished.truth > 7.5], float), 2)
    (s, t), true = shares[:2], shares[2]
    fair = np.mean((abs(s - true) + abs(t - true) - abs(s - t)) / 2, axis=-1)
    assert row.scores["crps"] == pytest.approx(fair)


def test_other_weights_of_any_seed_make_the_row_of_all_stale(finished, monkeypatch):
    part = Cell(0.1, at=0.1, together=True)
    before, second = finished.digest(part), finished.training(Cell(0.1, 1)).checkpoint
    of = noise.weights_of
    monkeypatch.setattr(noise, "weights_of", lambda path: of(path) + "!" * (path == second))
    assert finished.digest(part) != before


def test_the_assumed_level_counts(finished):
    def errors(factor, at):
        return finished.row(Cell(EVERY, at=at, assumed_level=factor), HOW).errors

    assert errors(1.0, 0.1) != errors(3.0, 0.1)
    assert errors(1.0, 0.0) == errors(3.0, 0.0)  # three times nothing


def test_test_noise_is_the_same_for_every_model_and_not_that_of_training(finished):
    clean = finished.source.samples("test", noise=None).resident().a
    xi = (finished.test_pairs(0.1).a - clean) / 0.1
    half = (finished.test_pairs(0.05).a - clean) / 0.05  # the same noise scaled
    assert torch.allclose(half, xi, atol=1e-6 * float(clean.std()) / 0.05)
    train = finished.source.samples("train", noise=finished.noise(0.1)).resident()
    xi_train = (train.a - finished.source.samples("train", noise=None).resident().a) / 0.1
    assert not torch.allclose(xi_train[: len(xi)], xi, rtol=0.1)


def test_the_constant_is_the_mean_of_the_training_targets(finished):
    mean = float(finished.source.samples("train", noise=None).resident().u.double().mean())
    for level in finished.test_levels:
        row = finished.row(Cell("constant", at=level), HOW)
        assert row.errors == pytest.approx(relative_errors(mean, finished.truth))


def test_mean_and_spread():
    two = [Row(made_from="", errors=e, scores={"iou": [1]}) for e in ([1, 3], [4, 6])]
    assert mean_and_spread(two, "iou") == (1, 0)
    assert np.isnan(mean_and_spread(two, "brier")[0])
    assert mean_and_spread(two, "errors") == (3.5, pytest.approx(np.sqrt(4.5)))
    assert mean_and_spread(two[:1], "errors") == (2, 0)


# classical methods


def test_total_variation_beats_the_constant(finished):
    classical = finished.row(Cell("total variation", at=0.0), HOW)
    constant = finished.row(Cell("constant", at=0.0), HOW)
    assert classical.weight in finished.inversions.methods["total variation"].weights
    assert (len(classical.errors), constant.weight) == (2, None)
    assert np.mean(classical.errors) < 0.5 * np.mean(constant.errors[:2])


def test_classical_methods_assume_a_level(finished):
    assert [cell.name for cell in finished.classical] == [
        *METHODS, *(f"{name}, assuming 3 times the level" for name in METHODS[:-1])
    ]  # fmt: skip
    part, std = Cell(MAP, at=0.1), finished.source.std(finished.test_pairs(0.1))
    data = finished.test_pairs(0.1).a[0, ..., 0].double().numpy()
    inversion = finished.inversions.methods[MAP].with_weight(1.0)
    answers = list[np.ndarray]()
    for assumed_level in finished.assumed_levels:
        observed = finished.data(replace(part, assumed_level=assumed_level)).only(0)
        (found,) = finished.inversions.invert(MAP, 1.0, observed).estimates
        assert np.array_equal(found.a, inversion(data, assumed_level * (0.1 * std)).a)
        answers.append(found.a)
    assert not np.array_equal(*answers)


def test_weights_are_chosen_on_validation_samples_with_the_assumed_noise(finished, monkeypatch):
    used = []
    monkeypatch.setattr(type(finished.inversions), "choice", lambda *words: used.append(words[2:]))
    finished.choice(Cell("total variation", at=0.1))
    ((data, known),) = used
    pairs = finished.source.samples("validation", noise=finished.noise(0.1)).resident()
    for values, expected in ((data.values, pairs.a), (known, pairs.u)):
        assert len(values) > 0
        assert np.array_equal(values, expected[: len(values), ..., 0].double().numpy())


def test_rows_count_the_samples_on_which_a_method_converged(finished):
    rows = {cell.method: finished.row(replace(cell, at=0.0), HOW) for cell in finished.classical}
    limited = [rows[name] for name in ("total variation", "Tikhonov")]
    assert [row.converged for row in limited] == [0, 0]
    assert all(row.iterations == STEPS and row.weight_unconverged >= 3 for row in limited)
    assert rows["level set"].converged == len(rows["level set"].errors) == 2
    assert finished.row(Cell("constant", at=0.0), HOW).converged is None
    page = (finished.folder / "report.md").read_text()
    assert re.search(r"\| total variation \|.*\| 0 of 2 \|", page)
    assert "inversions for this choice did not converge" in page


@pytest.mark.parametrize(
    ("best", "weight", "at_end", "tried"),
    [(0.3, 0.3, False, 3), (0.1, 0.1, False, 4), (7.0, 10.0, True, 5), (0.0, 0.01, True, 5)],
)
def test_a_weight_is_chosen_among_its_neighbours(best, weight, at_end, tried):
    """A method of error |w - best| for each weight w, which does not converge on the first of three
    samples."""

    def with_weight(w):
        def inversion(data, _):
            return Estimate(1 + abs(w - best) * np.ones(5), 1, 1, bool(data[0] > 0))

        return inversion

    rows, known = np.arange(3.0)[:, None] * np.ones(5), np.ones((3, 5))
    data = Observed(rows, [NoiseLaw(std=k) for k in known])
    method = ClassicalMethod("", half_decades(-2, 1), with_weight)
    assert chosen_weight(method, data, known) == ChosenWeight(weight, 3, at_end, tried)


def test_uncertainty_is_scored_where_it_is_stated(finished):
    rows = {cell.method: finished.row(replace(cell, at=0.1), HOW) for cell in finished.classical}
    assert all(row.inference_seconds > 0 and row.solves > 10 for row in rows.values())
    assert {name for name, row in rows.items() if "brier" in row.scores} == {*METHODS[-2:]}


def test_the_noise_explains_the_misfit_of_the_truth(finished):
    """The root mean square of m values N(0, 1) is 1 ± (2 m)^(-1/2): here m = 169."""
    inversions, part = finished.inversions, Cell(MAP, at=0.1)
    data = finished.data(part)
    found = inversions.misfits(data, inversions.truth()[:2])
    assert found == pytest.approx(1, abs=4 / np.sqrt(2 * 169))
    assert min(inversions.misfits(data, [a / 2 for a in inversions.truth()[:2]])) > 5  # u doubles
    assert inversions.misfits(finished.data(Cell(MAP, at=0.0)), inversions.truth()[:2]) is None
    row = finished.row(part, HOW)
    estimates = inversions.invert(MAP, row.weight, data).estimates
    again = inversions.misfits(data, [estimate.a for estimate in estimates])
    assert row.scores["misfit"] == pytest.approx(again)
    assert "misfit" not in finished.row(replace(part, at=0.0), HOW).scores


def test_the_misfit_is_that_of_values_between_the_phases(finished):
    low, high = finished.values
    upper = finished.truth > (low + high) / 2
    within, beyond = (
        finished._scored(Cell(0.1, at=0.1), np.where(upper, a, b))
        for a, b in ((high, low), (3 * high, low / 4))
    )
    assert within.scores["misfit"] == pytest.approx(beyond.scores["misfit"])
    assert min(beyond.errors) > 1 > max(within.errors)


# a model as the start of an inversion


def test_a_corrected_model_starts_at_its_answer(finished):
    cell = Cell(0.0, 1, 0.1)
    row, data = finished.row(replace(cell, corrected=True), HOW), finished.data(cell)
    found = finished.inversions.correct(data, finished.predicted(cell, CPU)[:2])
    assert row.solves == found.solves > 0
    expected = relative_errors(found.fields(5), finished.truth[:2])
    assert row.errors == pytest.approx(expected)
    truth = finished.inversions.correct(data, finished.truth[:2])
    assert not np.array_equal(truth.estimates[0].a, found.estimates[0].a)


def test_the_learned_start_pays_by_what_it_cost(finished, monkeypatch):
    """4 s of training and 12 + 4 samples of 0.25 s each, for 0.3 s saved an inversion."""
    part = Cell(0.1, at=0.1, corrected=True)
    seconds = {Cell(MAP, at=0.1): 0.5, part: 0.2}

    def row(_, one, how):
        return Row(inference_seconds=seconds[one], solve_seconds=0.25)

    monkeypatch.setattr(type(finished), "row", row)
    epochs = [type("Epoch", (), {"seconds": 2.0})] * 2
    monkeypatch.setattr("pipelines.studies.runner.StudyTraining.finished", lambda _: epochs)
    assert finished.pays_after(part, HOW) == pytest.approx((4 + 16 * 0.25) / 0.3)
    seconds[part] = 0.6
    assert finished.pays_after(part, HOW) == np.inf


# kinds of noise, sensors, cells


@pytest.mark.parametrize("kind", ["snr", "multiplicative", "sensors"])
def test_every_kind_of_noise_is_inverted(experiment, store, tmp_path, kind):
    level = 20.0 if kind == "snr" else 0.1
    overrides = {"noise.kind": kind, "noise.level": level}
    overrides |= {"noise.fraction": 0.5} if kind == "sensors" else {}
    study = a_study(experiment.with_overrides(overrides), store, tmp_path / "s", (level,), (level,))
    data, constant = study.data(Cell(MAP, at=level)), study.truth.mean()
    clean = study.source.samples("test", noise=None).resident().a[:2, ..., 0].double().numpy()
    seen = study.inversions.setting.sensors
    assert (seen is not None) == (kind == "sensors")
    if seen is not None:
        assert data.values.shape == (2, seen.sum()) == (2, round(0.5 * 169))
        clean = clean[:, seen]
        assert METHODS[-1] not in study.inversions.methods
    found = np.sqrt(np.mean(((data.values - clean) / data.std) ** 2))
    assert found == pytest.approx(1, abs=0.3)  # the deviation of noise that follows u is a mean
    for name, share in (("Tikhonov", 0.7), (MAP, 0.5)):  # of the first, few steps
        weights = study.inversions.methods[name].weights
        weight = weights[len(weights) // 2]
        error = study.inversions.invert(name, weight, data).fields(5) - study.truth[:2]
        assert np.linalg.norm(error) < share * np.linalg.norm(constant - study.truth[:2])


@pytest.mark.usefixtures("dolfinx")
def test_a_store_of_finite_elements_is_inverted_by_finite_volumes(experiment, tmp_path):
    """Without derivatives of the other solver; how far its model is from the data is stated."""
    recipe = load_recipe("darcy-fem").with_overrides(
        {"samples": 20, "shard": 20, "resolution": 13, "modes": 16, "refinement": 3,
         "train": 12, "validation": 4, "test": 4}
    )  # fmt: skip
    url = generate(recipe, str(tmp_path / "f.zarr"), workers=1).url
    own = experiment.with_overrides({"data.recipe": "darcy-fem"})
    study = a_study(own, url, tmp_path / "s", (0.1,), (0.1,))
    method = study.inversions.methods[MAP]
    assert 1e-4 < method.model_error() < 0.3  # 13 x 13 cells
    fields = study.inversions.invert(MAP, 1.0, study.data(Cell(MAP, at=0.1))).fields(5)
    truth = study.truth[:2]
    assert np.linalg.norm(fields - truth) < 0.5 * np.linalg.norm(truth - truth.mean())


# the report


def test_the_report_shows_matrix_measures_and_reconstructions(finished):
    page = (finished.folder / "report.html").read_text()
    for words in ("trained at 0, corrected", "The usual baseline, which",
                  "Coverage of sets of 90%", "pays after", "differs from noise-free data by",
                  "--train-levels 0,0.1,all", "trained at all levels, assuming 3 times the level",
                  open_sealed(finished.store).metadata.fingerprint):  # fmt: skip
        assert words in page
    chosen = {finished.row(Cell("total variation", at=at), HOW).weight for at in (0.0, 0.1)}
    weights = ", ".join(f"{weight:g}" for weight in sorted(chosen))
    assert f"eight {weights}, chosen on " in page
    text = (finished.folder / "report.md").read_text()
    best = re.findall(r"smallest mean area at test level [^(]*\(([^)]*)", text)
    assert len(best) == 2
    assert text.count("on the first 2 of 4 samples") >= len(best)  # as many as classical methods
    for name in (
        "matrix-first-2",
        "levels-first-2",
        *(f"reconstructions-at-{at}" for at in ("0", "0-1")),
        "reconstructions-at-0-1-worst",
        "uncertainty",
    ):
        svg = (finished.folder / "pictures" / f"{name}.svg").read_text()
        ElementTree.fromstring(svg)
        assert "corrected" in svg


def test_the_numbers_of_the_report_are_means_of_the_rows(finished):
    def mean(method, at, measure="errors"):
        rows = [finished.row(Cell(method, seed, at), HOW) for seed in (0, 1)]
        return np.mean([scores_of(row, measure) for row in rows])

    table = list(csv.DictReader((finished.folder / "measures.csv").read_text().splitlines()))
    (kept,) = (row for row in table if (row["method"], row["level"], row["measure"])
               == ("trained at 0", "0.1", "errors"))  # fmt: skip
    assert float(kept["mean"]) == pytest.approx(mean(0.0, 0.1), rel=1e-5)
    assert {row["measure"] for row in table} == {*MEASURES} - {*UNSTATED, *BAND_MEASURES}
    lines = list(csv.DictReader((finished.folder / "samples.csv").read_text().splitlines()))
    each = [line for line in lines if (line["method"], line["level"]) == ("trained at 0", "0.1")]
    assert len(each) == 2 * len(finished.truth)  # two seeds
    assert np.mean([float(line["errors"]) for line in each]) == pytest.approx(mean(0.0, 0.1))
    stated = [line for line in lines if line["method"] == "maximum a posteriori"]
    assert [bool(line["brier"]) for line in stated] == [True] * 4  # two samples at two levels
    assert {line["sample"] for line in stated} == {str(i) for i in finished.test_pairs(0.0).ids[:2]}
    area = mean(0.0, 0.1, "misclassified")
    assert significant(area) in (finished.folder / "pictures/matrix.svg").read_text()
    text = (finished.folder / "report.md").read_text()
    ratios = [mean(EVERY, at, "misclassified") / mean(at, at, "misclassified") for at in (0.0, 0.1)]
    assert f"at the test level: {ratios[0]:.3g} at 0, {ratios[1]:.3g} at 0.1." in text
    clean = area / mean(0.1, 0.1, "misclassified")
    words = times(clean)
    assert f"At test level 0.1, the model trained at 0 has {words} the model trained at" in text


def test_the_report_states_the_epoch_of_each_protocol(finished):
    assert reported_epoch(finished) == "the best on validation samples with the training noise"
    experiment = finished.experiment.with_overrides({"training.protocol": "published"})
    published = replace(finished, experiment=experiment)
    assert reported_epoch(published).startswith("the last; test samples with the training noise")
    (part, *_) = published.models
    assert published.training(part).checkpoint.name == "last.safetensors"


def test_levels_of_opposite_signs_have_pictures_of_their_own():
    names = [file_name(level) for level in (-10, 10, 1e-3, 0)]
    assert names == [f"reconstructions-at-{at}" for at in ("minus-10", "10", "0-001", "0")]
