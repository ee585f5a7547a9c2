"""A noise study end to end, small; interrupted and resumed; wrong requests."""

import csv
import json
import pickle
import re
import shutil
import sys
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from scipy.io import savemat

from operators.training.fit import Stopped
from pdegen.equations.darcy import inversion, own_weight
from pdegen.equations.darcy.total_variation import Tikhonov, TotalVariation
from pdegen.inverse.regularised import PenalisedFit
from pdegen.making.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.store import open_sealed
from pipelines import cli
from pipelines.declared.experiment import Experiment, load_experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.runs.run import RunError
from pipelines.studies import inversions, runner
from pipelines.studies.learned_start import learned_starts
from pipelines.studies.levels import parse_levels, parse_trained
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import Cell
from pipelines.studies.noise_measures import MEASURES
from pipelines.studies.row import Row, mean_and_spread
from pipelines.studies.runner import How
from tests.printed import too_wide

CPU = torch.device("cpu")
HOW = How(CPU)
DATA = {"samples": 20, "shard": 20, "resolution": 13, "modes": 16, "refinement": 1,
        "train": 12, "validation": 4, "test": 4}  # fmt: skip
MODEL = {
    "data.resolution": 13, "data.target_resolution": 5, "resolutions": [13], "model.width": 8,
    "model.depth": 1, "model.feedforward": 8, "training.batch": 4, "training.epochs": 2,
    "model.heads": 2,
}  # fmt: skip

METHODS = ("total variation", "Tikhonov", "ensemble Kalman", "maximum a posteriori")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    recipe = load_recipe("darcy-quick").with_overrides(DATA)
    return generate(recipe, str(tmp_path_factory.mktemp("data") / "d.zarr"), workers=1).url


@pytest.fixture(scope="module")
def experiment():
    overrides = MODEL | {f"data.overrides.{key}": value for key, value in DATA.items()}
    return load_experiment("darcy-inverse-quick").with_overrides(overrides)


@pytest.fixture(scope="module", autouse=True)
def short_inversions():
    """The classical inversion as it is, but few steps on few samples, with two weights."""
    with pytest.MonkeyPatch.context() as patch:
        for method in (TotalVariation, Tikhonov):
            patch.setattr(inversion, method.__name__, partial(method, iterations=20))
        patch.setattr(own_weight, "PenalisedFit", partial(PenalisedFit, iterations=4))
        patch.setattr(inversions, "TUNED_ON", 1)
        yield


def a_study(experiment, store, folder, train=(0.0, 0.1), test=(0.0, 0.05, 0.1), seeds=2):
    return NoiseStudy(experiment, store, folder, train, test, seeds, inverted=2, only=METHODS)


def test_what_cannot_be_trained_is_refused_before_a_folder_is_claimed(store, tmp_path):
    experiment = load_experiment("burgers-inverse-quick")  # which has a reflection
    with pytest.raises(SchemaError, match="reflection changes the sign of all inputs"):
        a_study(experiment, store, tmp_path / "s", train=(0.0, (0.0, 0.1)))
    assert not (tmp_path / "s").exists()


@pytest.fixture(scope="module")
def finished(experiment, store, tmp_path_factory):
    study = a_study(experiment, store, tmp_path_factory.mktemp("study") / "s")
    study.run(CPU)
    write_noise_report(study, CPU)
    return study


def cells(study):
    return {p.name: p.read_bytes() for p in sorted((study.folder / "cells").glob("*.json"))}


@pytest.mark.slow
def test_latex_sets_the_tables_of_its_report(finished, tmp_path):
    assert too_wide(finished.folder / "tables", tmp_path) == []


# what it computes


def test_every_cell_of_the_matrix_is_there(finished):
    assert len(list((finished.folder / "models").iterdir())) == 2 * 2
    assert len(cells(finished)) == 3 * (2 * 2 * 2 + 1 + len(METHODS))


def test_the_errors_are_those_of_the_reported_checkpoint(finished):
    cell = finished.row(Cell(0.1, 1, 0.05), HOW)
    found = finished.predicted(Cell(0.1, 1, 0.05), CPU)
    truth = finished.source.clean("test").u[..., 0].double().numpy()
    expected = [
        np.linalg.norm(p - q) / np.linalg.norm(q) for p, q in zip(found, truth, strict=True)
    ]
    assert cell.errors == pytest.approx(expected)
    assert {len(scores) for scores in (cell.errors, cell.scores["iou"], cell.scores["l1"])} == {4}


def test_the_constant_is_the_mean_of_the_training_targets(finished):
    mean = float(finished.source.clean("train").u.double().mean())
    truth = finished.truth
    expected = np.linalg.norm(truth - mean, axis=(1, 2)) / np.linalg.norm(truth, axis=(1, 2))
    for level in finished.test_levels:
        assert finished.row(Cell("constant", at=level), HOW).errors == pytest.approx(expected)


def test_total_variation_beats_the_constant(finished):
    classical = finished.row(Cell("total variation", at=0.0), HOW)
    constant = finished.row(Cell("constant", at=0.0), HOW)
    assert re.fullmatch(r"weight (0\.03|0\.3|3), first 2 test samples", classical.note)
    assert np.mean(classical.errors) < 0.5 * np.mean(constant.errors[:2])


def test_classical_methods_are_told_the_level(finished):
    only = ("total variation", "total variation, L-curve", "maximum a posteriori")
    told = replace(finished, folder=finished.folder, told=(1.0, 3.0), only=only)
    assert [cell.name for cell in told.classical] == [
        *only, "total variation, told 3 times it", "maximum a posteriori, told 3 times it",
    ]  # fmt: skip
    pairs, part = told.test_pairs(0.1), Cell("maximum a posteriori", at=0.1)
    right, wrong = (
        told.inversions.invert(part.method, 1.0, told.data(replace(part, told=factor)).first)
        .estimates[0].a
        for factor in told.told
    )  # fmt: skip
    deviation = told.source.deviation(pairs)
    inversion = told.inversions.methods[part.method].with_weight(1.0)
    data = pairs.a[0, ..., 0].double().numpy()
    assert np.array_equal(right, inversion(data, 1.0 * (0.1 * deviation)).a)
    assert np.array_equal(wrong, inversion(data, 3.0 * (0.1 * deviation)).a)
    assert not np.array_equal(right, wrong)


def test_a_corrected_model_starts_at_its_answer(finished):
    cell = Cell(0.0, 1, 0.05)
    row = finished.row(replace(cell, corrected=True), HOW)
    answers = finished.predicted(cell, CPU)[:2]
    data = finished.data(cell)
    found = finished.inversions.correct(data, answers)
    assert row.solves == found.solves > 0
    assert len(row.errors) == 2
    truth = finished.inversions.correct(data, finished.truth[:2])
    assert not np.array_equal(truth.estimates[0].a, found.estimates[0].a)


def test_the_costs_of_classical_methods_are_kept(finished):
    rows = [finished.row(replace(c, at=0.1), HOW) for c in finished.classical]
    assert all(row.inference_seconds > 0 for row in rows)
    assert all(row.solves > 10 for row in rows)


def test_test_noise_is_the_same_for_every_model_and_not_that_of_training(finished):
    first, again = finished.test_pairs(0.1), finished.test_pairs(0.1)
    assert torch.equal(first.a, again.a)
    clean = finished.source.clean("test").a
    xi = (first.a - clean) / 0.1
    half = (finished.test_pairs(0.05).a - clean) / 0.05  # the same noise scaled
    assert torch.allclose(half, xi, atol=1e-6 * float(clean.std()) / 0.05)
    train = finished.source.noisy("train", noise=finished.noise(0.1))
    xi_train = (train.a - finished.source.clean("train").a) / 0.1
    assert not torch.allclose(xi_train[: len(xi)], xi, rtol=0.1)


def test_seeds_differ_and_levels_are_trained_for(finished):
    errors = {cell: finished.row(replace(cell, at=0.0), HOW).errors for cell in finished.models}
    assert len({tuple(v) for v in errors.values()}) == 4
    folder = finished.training(Cell(0.1, 1)).folder
    run = json.loads((folder / "run.json").read_text())["experiment"]
    assert (run["noise"]["level"], run["training"]["seed"], run["noise"]["fresh"]) == (0.1, 1, True)


def test_mean_and_spread():
    two = [Row(made_from="", errors=e, scores={"iou": [1]}) for e in ([1, 3], [4, 6])]
    assert mean_and_spread(two, "iou") == (1, 0)
    assert np.isnan(mean_and_spread(two, "brier")[0])
    assert mean_and_spread(two, "errors") == (3.5, pytest.approx(np.sqrt(4.5)))
    assert mean_and_spread(two[:1], "errors") == (2, 0)


def test_one_training_serves_all_levels(experiment, store, tmp_path):
    """It is told the level of the test samples, or a multiple of it; others are told nothing."""
    every = (0.0, 0.1)
    study = NoiseStudy(
        experiment, store, tmp_path / "s", (0.1, every), (0.0, 0.1), 1, 1, (1.0, 3.0), METHODS[-1:]
    )
    assert pickle.loads(pickle.dumps(study)) == study
    study.run(CPU)
    write_noise_report(study, CPU)
    run = json.loads((study.training(Cell(every)).folder / "run.json").read_text())
    assert run["experiment"]["noise"]["level"] == [0.0, 0.1]
    cell = Cell(every, at=0.1)
    training = study.training(cell)
    found = (
        runner.predictions(training.predictor(CPU), study.test_pairs_of(cell))[..., 0]
        .double()
        .numpy()
    )
    truth = study.truth
    expected = np.linalg.norm(found - truth, axis=(1, 2)) / np.linalg.norm(truth, axis=(1, 2))
    right, wrong = (study.row(replace(cell, told=told), HOW).errors for told in (1, 3))
    assert right == pytest.approx(expected)
    assert right != wrong
    none = [study.row(replace(cell, at=0.0, told=told), HOW).errors for told in (1, 3)]
    assert none[0] == none[1]  # three times nothing
    numbers = json.loads((study.folder / "matrix.json").read_text())["errors"]
    ratio = numbers["trained at all levels"][1][0] / numbers["trained at 0.1"][1][0]
    page = (study.folder / "report.html").read_text()
    for words in ("trained at all levels, told 3 times it", "--train-levels 0.1,all",
                  f"by that of the training at a level: {ratio:.3g} at 0.1."):  # fmt: skip
        assert words in page
    assert "trained at 0.1, told" not in page


def test_the_noise_explains_the_misfit_of_the_truth(finished):
    """The root mean square of m values N(0, 1) is 1 ± (2 m)^(-1/2): here m = 169."""
    inversions = finished.inversions
    data = finished.data(Cell("Tikhonov", at=0.1))
    found = inversions.misfits(data, inversions.truth[:2])
    assert found == pytest.approx(1, abs=4 / np.sqrt(2 * 169))
    half = (inversions.misfits(data, [a / 2 for a in inversions.truth[:2]])).min()
    assert half > 5  # u doubles
    clean = finished.data(Cell("Tikhonov", at=0.0))
    assert inversions.misfits(clean, inversions.truth[:2]) is None
    row = finished.row(Cell("maximum a posteriori", at=0.1), HOW)
    part = Cell("maximum a posteriori", at=0.1)
    weight = float(row.note.split()[1].rstrip(","))
    estimates = inversions.invert(part.method, weight, data).estimates
    again = inversions.misfits(data, [estimate.a for estimate in estimates])
    assert row.scores["misfit"] == pytest.approx(again)
    assert "misfit" not in finished.row(replace(part, at=0.0), HOW).scores


def test_methods_that_state_a_probability_are_scored(finished):
    stating = {
        name
        for name in finished.inversions.methods
        if "brier" in finished.row(Cell(name, at=0.1), HOW).scores
    }
    assert stating == {"ensemble Kalman"} | {
        name for name in finished.inversions.methods if name.startswith("maximum")
    }
    assert "coverage" in finished.row(Cell(0.1, at=0.1, corrected=True), HOW).scores
    assert "brier" not in finished.row(Cell(0.1, at=0.1), HOW).scores


def test_the_learned_start_pays_by_what_it_cost(finished):
    starts = learned_starts(finished, HOW)
    assert len(starts) == 2 * 3
    start = starts[0]
    assert start.samples == 12 + 4
    seconds = sum(epoch.seconds for epoch in finished.training(Cell(0.0)).finished())
    assert start.spent == pytest.approx(16 + seconds / start.started.solve_seconds)
    assert start.alone == finished.row(Cell("maximum a posteriori", at=0.0), HOW)
    numbers = json.loads((finished.folder / "matrix.json").read_text())
    for one in starts:
        kept = numbers["break_even"][one.name][finished.test_levels.index(one.level)]
        assert kept == (one.inversions if np.isfinite(one.inversions) else None)


# kinds of noise, sensors, cells


def test_other_noise_than_all_are_told(experiment, store, tmp_path):
    only = ("maximum a posteriori",)
    study = NoiseStudy(experiment, store, tmp_path / "s", (0.1,), (0.1,), 1, 1, (1.0,), only,
                       test_kind="correlated", cells=9)  # fmt: skip
    assert pickle.loads(pickle.dumps(study)) == study
    study.run(CPU)
    write_noise_report(study, CPU)
    same = replace(study, test_kind=None)
    part = Cell(only[0], at=0.1)
    assert np.array_equal(study.data(part).deviation, same.data(part).deviation)
    eta = study.data(part).values - study.source.clean("test").a[:1, ..., 0].double().numpy()
    next_to = np.mean(eta[:, 1:] * eta[:, :-1]) / np.mean(eta**2)
    assert next_to > 0.5  # independent noise has 0
    trained = json.loads((study.training(Cell(0.1)).folder / "run.json").read_text())
    assert trained["experiment"]["noise"]["kind"] == "ensemble"
    page = (study.folder / "report.md").read_text()
    for words in ("kind correlated, seed 0, length 0.1: another kind than all methods know",
                  "data on 13² points → 9² cells", "--test-kind correlated",
                  "--cells 9"):  # fmt: skip
        assert words in page
    assert study.digest(part) != same.digest(part) != replace(same, cells=None).digest(part)


@pytest.mark.parametrize("kind", ["relative", "snr", "multiplicative", "sensors", "published"])
def test_every_kind_of_noise_is_inverted(experiment, store, tmp_path, kind):
    level = 20.0 if kind == "snr" else 0.1
    overrides = {"noise.kind": kind, "noise.level": level}
    overrides |= {"noise.fraction": 0.5} if kind == "sensors" else {}
    only = ("Tikhonov", "maximum a posteriori")
    study = NoiseStudy(experiment.with_overrides(overrides), store, tmp_path / "s", (level,),
                       (level,), 1, 2, (1.0,), only)  # fmt: skip
    data, constant = study.data(Cell(only[1], at=level)), study.truth.mean()
    clean = study.source.clean("test").a[:2, ..., 0].double().numpy()
    seen = study.inversions.setting.seen
    assert (seen is not None) == (kind == "sensors")
    if seen is not None:
        assert data.values.shape == (2, seen.sum()) == (2, round(0.5 * 169))
        clean = clean[:, seen]
    found = np.sqrt(np.mean(((data.values - clean) / data.deviation) ** 2))
    assert found == pytest.approx(1, abs=0.3)  # the deviation of noise that follows u is a mean
    for name in only:
        weight = study.inversions.methods[name].weights[0]
        fields = study.inversions.invert(name, weight, data).fields(5)
        error = np.linalg.norm(fields - study.truth[:2])
        assert error < 0.5 * np.linalg.norm(constant - study.truth[:2])


# stopping and going on


def test_a_stopped_study_goes_on_to_the_same_cells(experiment, store, finished, tmp_path):
    study, asked = a_study(experiment, store, tmp_path / "s"), []

    def stop():
        asked.append(1)
        return len(asked) == 9  # in the second training

    with pytest.raises(Stopped):
        study.run(CPU, stop=stop)
    assert not (study.folder / "cells").exists()
    study.run(CPU, resume=True)
    for name, content in cells(finished).items():
        there, expected = (Row.model_validate_json(c) for c in (cells(study)[name], content))
        assert there.errors == expected.errors, name


def test_cells_of_earlier_stops_are_not_computed_again(experiment, store, tmp_path, monkeypatch):
    study, made = a_study(experiment, store, tmp_path / "s", (0.0,), (0.1,), 1), list[Cell]()
    study = replace(study, only=("Tikhonov", "maximum a posteriori"), told=(1.0, 1 / 3))
    make = NoiseStudy.make

    def noted(self, part, how):
        made.append(part)
        return make(self, part, how)

    monkeypatch.setattr(NoiseStudy, "make", noted)
    with pytest.raises(Stopped):
        study.run(CPU, stop=lambda: len(made) == 3)
    before = list(made)
    text = study.experiment.model_dump_json()  # as another process declares it
    again = replace(study, experiment=Experiment.parse(json.loads(text), "again"))
    with pytest.raises(Stopped):
        again.run(CPU, resume=True, stop=lambda: len(made) == 6)
    again.run(CPU, resume=True)
    assert len(made) == len({*made}) == 1 + 1 + 1 + 1 + 4
    assert made[:3] == before


def test_finished_cells_are_not_computed_again(experiment, store, finished, monkeypatch):
    before = cells(finished)

    def computed(*arguments, **words):
        raise AssertionError("computed again")

    monkeypatch.setattr(runner, "train_part", computed)
    monkeypatch.setattr(runner, "predictions", computed)
    monkeypatch.setattr(NoiseStudy, "_inverted", computed)
    a_study(experiment, store, finished.folder).run(CPU, resume=True)
    assert cells(finished) == before


def test_the_report_reads_predictions_that_are_kept(finished, monkeypatch):
    page = (finished.folder / "report.html").read_bytes()
    monkeypatch.setattr(runner, "predictions", None)
    write_noise_report(finished, CPU)
    assert (finished.folder / "report.html").read_bytes() == page


def test_another_process_is_sent_the_same_study(finished):
    assert pickle.loads(pickle.dumps(finished)) == finished


def test_more_levels_extend_a_study(experiment, store, finished, tmp_path, monkeypatch):
    folder = shutil.copytree(finished.folder, tmp_path / "s")
    trained = []
    monkeypatch.setattr(runner, "train_part", lambda *a, **k: trained.append(1))
    a_study(experiment, store, folder, test=(0.0, 0.2)).run(CPU, resume=True)
    assert trained == []
    assert len(list((folder / "cells").glob("*at-0.2.json"))) == 2 * 2 * 2 + 1 + len(METHODS)


def test_a_damaged_or_stale_cell_is_computed_again(finished, tmp_path):
    place = finished.folder / "cells" / "model-0-seed-0-at-0.json"
    good = place.read_text()
    for bad in ("{", json.dumps({**json.loads(good), "made_from": "other", "errors": [9.0]})):
        place.write_text(bad)
        finished.row(Cell(0.0, 0, 0.0), HOW)
        assert place.read_text() == good


def test_a_damaged_model_is_trained_again(experiment, store, finished, tmp_path):
    study = a_study(experiment, store, shutil.copytree(finished.folder, tmp_path / "s"))
    path = study.training(Cell(0.0, 0)).checkpoint
    right = path.read_bytes()
    path.write_bytes(right[:-1])
    study.run(CPU, resume=True)
    assert path.read_bytes() == right
    assert cells(study) == cells(finished)


def test_another_study_in_the_folder_is_refused(experiment, store, finished):
    with pytest.raises(RunError, match="holds a study: use --resume or --overwrite"):
        a_study(experiment, store, finished.folder).run(CPU)
    other = experiment.with_overrides({"training.epochs": 3})
    with pytest.raises(RunError, match="holds a study of another experiment"):
        a_study(other, store, finished.folder).run(CPU, resume=True)


# the report


def test_the_report_shows_matrix_measures_and_reconstructions(finished):
    page = (finished.folder / "report.html").read_text()
    for words in ("trained at 0.1", "trained at 0, corrected", "too few for a headline",
                  "ensemble Kalman", "solves a sample", "needs no validation samples",
                  "Misclassified area", "Misfit of the data", "Brier score",
                  "Coverage of sets of 90%",
                  "pays after inversions", "misses known data by",
                  "total variation", "constant", "Hausdorff",
                  "fresh in every epoch", "pdegen study noise",
                  "Samples of the store"):  # fmt: skip
        assert words in page
    assert open_sealed(finished.store).said.fingerprint in page
    text = (finished.folder / "report.md").read_text()
    best = re.findall(r"smallest mean error at test level [^(]*\(([^)]*)", text)
    assert best
    assert set(best) <= {"trained at 0", "trained at 0.1", "constant"}  # others have 2 samples
    for name in ("matrix", "levels", "reconstructions", "uncertainty"):
        svg = (finished.folder / "pictures" / f"{name}.svg").read_text()
        ElementTree.fromstring(svg)
        assert f'id="{name}-' in page
    mean = np.mean([np.mean(finished.row(Cell(0.0, s, 0.1), HOW).errors) for s in (0, 1)])
    numbers = json.loads((finished.folder / "matrix.json").read_text())
    assert numbers["errors"]["trained at 0"][2][0] == pytest.approx(mean)
    table = list(csv.DictReader((finished.folder / "measures.csv").read_text().splitlines()))
    (kept,) = (row for row in table if (row["method"], row["level"], row["measure"])
               == ("trained at 0", "0.1", "errors"))  # fmt: skip
    assert float(kept["mean"]) == pytest.approx(mean, rel=1e-5)
    assert {row["measure"] for row in table} == {*MEASURES}
    svg = (finished.folder / "pictures" / "reconstructions.svg").read_text()
    assert "corrected" in svg
    assert f"{mean:.3g}" in (finished.folder / "pictures" / "matrix.svg").read_text()


# the command, and wrong requests


def call(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["pdegen", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, capsys.readouterr()


def options(store, out):
    sets = [word for key, value in MODEL.items() for word in ("--set", f"{key}={value}")]
    return ["--data", store, "--out", out, *sets]


def test_the_command_writes_a_report(store, tmp_path, capsys, monkeypatch):
    status, output = call(
        capsys, monkeypatch, "study", "noise", "darcy-inverse-quick",
        *options(store, tmp_path / "s"), "--train-levels", "0.1", "--test-levels", "0.1",
        "--method", "total variation", "--method", "Tikhonov",
    )  # fmt: skip
    assert (status, output.out.strip()) == (0, str(tmp_path / "s" / "report.html"))
    # a training, the model, the constant, and the two that were chosen
    assert "inputs u -> a\n" in output.err
    assert "5/5" in output.err
    page = (tmp_path / "s" / "report.md").read_text()
    assert "--method 'total variation' --method Tikhonov" in page
    assert "maximum a posteriori" not in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train-levels", "0,-0.1"], "not negative, got -0.1"),
        (["--test-levels", "0.1,0.1"], r"test levels must differ, .* got \(0.1, 0.1\)"),
        (["--test-levels", "0,a"], "levels are numbers separated by commas, got '0,a'"),
        (["--train-levels", "nan"], "noise level: .*nan"),
        (["--train-levels", ""], "levels are numbers separated by commas"),
        (["--train-levels", "all"], "a range of levels has 0 <= low < high, got"),
        (["--train-levels", "0,1,all,all"], "train levels must differ"),
        (["--train-levels", "0,al"], "levels are numbers separated by commas, got '0,al'"),
        (["--train-levels", "1,all", "--set", "noise.kind=snr"], "snr has no range of levels"),
        (["--seeds", "0"], "seeds"),
        (["--inverted", "0"], "'--inverted'.*greater than or equal to 1, got 0"),
        (["--told", "3"], r"told must be positive numbers with 1 among them, got \(3.0,\)"),
        (["--told", "1,-1"], "told must be positive numbers"),
        (["--told", "1,3,3"], "told must be numbers that differ"),
        (["--test-levels", "0.1,0.10000000001"], "test levels must differ"),
        (["--test-kind", "ensemble"], "methods are told ensemble noise already, leave it out"),
        (["--unrolled", "2", "--set", "noise.kind=relative"], "must be .*, got relative"),
        (["--test-kind", "snr"], "test kind: data with snr noise cannot be taken for data with"),
        (["--test-kind", "sensors"], "test kind: data with sensors noise cannot be taken for"),
        (["--test-kind", "salt"], "test kind: .*unknown kind 'salt'"),
        (["--cells", "3"], "cells must be at least 4, got 3"),
        (["--cells", "14"], "it must be 1 to 13"),
        (["--set", "noise.kind=sensors", "--set", "noise.fraction=0"], "noise.fraction"),
        (["--set", "noise.kind=sensors", "--set", "noise.fraction=1.5"], "noise.fraction"),
        (["--set", "data.resolution=0"], "data.resolution"),
        (["--set", "data.resolution=26"], "resolution 26 is no subsample of the 13 cell points"),
        (["--method", "tv"], "method: unknown 'tv', known: 'total variation', 'Tikhonov',"),
        (["--set", "noise.kind=gausian"], "unknown kind 'gausian'"),
        (["--set", "data.input=a", "--set", "data.target=u"], "must learn u -> a"),
        (["--set", "data.resolution=10"], "resolution 10 is no subsample of the 13 cell points"),
        (["--set", "data.target_resolution=14"], "it must be 1 to 13"),
    ],
)
def test_a_wrong_request_ends_with_one_line(store, tmp_path, capsys, monkeypatch, words, message):
    arguments = [*options(store, tmp_path / "s"), "--train-levels", "0", "--test-levels", "0"]
    status, output = call(
        capsys, monkeypatch, "study", "noise", "darcy-inverse-quick", *arguments, *words
    )
    assert status == 2, output.err
    (line,) = output.err.splitlines()
    assert re.search(message, line), line
    assert not (tmp_path / "s").exists()


def test_a_store_of_another_kind_is_refused(experiment, tmp_path, capsys, monkeypatch):
    overrides = {**DATA, "problem.coefficient.kind": "log-normal"}
    recipe = load_recipe("darcy-quick").with_overrides(overrides)
    lognormal = generate(recipe, str(tmp_path / "l.zarr"), workers=1).url
    with pytest.raises(SchemaError, match="inverts a coefficient of two phases, got log-normal"):
        a_study(experiment, lognormal, tmp_path / "s").run(CPU)
    assert not (tmp_path / "s").exists()
    burgers = load_recipe("burgers-quick").with_overrides({"samples": 12})
    url = generate(burgers, str(tmp_path / "b.zarr"), workers=1).url
    with pytest.raises(SchemaError, match=r"holds samples of burgers, the experiment .* of darcy"):
        a_study(experiment, url, tmp_path / "s").run(CPU)


def test_a_store_without_a_law_is_refused(store, tmp_path, capsys, monkeypatch):
    """Of a published file nobody knows the law of the coefficient, which is the prior."""
    mat, url, held = tmp_path / "d.mat", tmp_path / "again.zarr", open_sealed(store)
    a, u = (held.values(name, range(20)) for name in ("a", "u"))
    savemat(mat, {"coeff": a, "sol": u})
    assert call(capsys, monkeypatch, "import", mat, "--out", url)[0] == 0
    status, output = call(
        capsys, monkeypatch, "study", "noise", "darcy-inverse-quick", *options(url, tmp_path / "s")
    )
    (line,) = output.err.splitlines()
    assert (status, (tmp_path / "s").exists()) == (2, False)
    assert "again.zarr has no recipe, and classical methods need the law" in line


@pytest.mark.usefixtures("dolfinx")
def test_a_store_of_finite_elements_is_inverted_by_finite_volumes(experiment, tmp_path):
    """Without derivatives of the other solver; how far its model is from the data is stated."""
    recipe = load_recipe("darcy-fem").with_overrides({**DATA, "refinement": 3})
    url = generate(recipe, str(tmp_path / "f.zarr"), workers=1).url
    own = experiment.with_overrides({"data.recipe": "darcy-fem"})
    study = NoiseStudy(own, url, tmp_path / "s", (0.1,), (0.1,), 1, 2)
    part = Cell("maximum a posteriori", at=0.1)
    method = study.inversions.methods[part.method]
    assert 1e-4 < method.missed() < 0.3  # 13 x 13 cells
    fields = study.inversions.invert(part.method, 1.0, study.data(part)).fields(5)
    truth = study.truth[:2]
    assert np.linalg.norm(fields - truth) < 0.5 * np.linalg.norm(truth - truth.mean())


def test_levels_as_words():
    assert parse_levels("0, 0.05,1e-1") == (0.0, 0.05, 0.1)
    assert parse_trained("0.02, all", (0.05, 0.1)) == (0.02, (0.02, 0.1))
    assert parse_trained("all", (0.05, 0.0)) == ((0.0, 0.05),)


@pytest.mark.parametrize(
    "words",
    [["--cells", "3"], ["--test-kind", "pink"], ["--unrolled", "11"], ["--train-levels", "-1"]],
)
def test_what_cannot_be_studied_is_refused_before_a_store_is_made(
    tmp_path, capsys, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    status, output = call(capsys, monkeypatch, "study", "noise", "darcy-inverse-quick", *words)
    assert (status, len(output.err.splitlines())) == (2, 1)
    assert list(tmp_path.iterdir()) == []
