"""Conditions of a noise study: test data that differ from what methods are told."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from operators.training.fit import Stopped
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.conditions import StudyCondition
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.studies.inversions import Cell
from pipelines.studies.noise import TRUTH, NoiseStudy
from pipelines.studies.runner import Execution
from tests.once import once
from tests.pipelines.noise.conftest import CPU, EVERY, a_study

HOW = Execution(CPU)
MAP = "maximum a posteriori"
FOUR = {
    "correlated": StudyCondition(noise={"kind": "correlated"}),
    "louder": StudyCondition(noise={"level": 0.3}),
    "contrast": StudyCondition(truth={"coefficient.above": 10.0}),
    "another seed": StudyCondition(truth={"solver.faces": "arithmetic"}, noise={"seed": 3}),
}


@pytest.fixture(scope="module")
def words():
    return {
        "train": (0.1, EVERY), "test": (0.1,), "seeds": 1, "inversion_samples": 2,
        "assumed_levels": (1.0,), "only": (MAP,), "conditions": FOUR, "cells": 9,
    }  # fmt: skip


@pytest.fixture(scope="module")
def study(experiment, store, tmp_path_factory, words):
    def make(folder):
        study = a_study(experiment, store, folder / "s", **words)
        study.run(CPU)
        write_noise_report(study, CPU)

    folder = once(tmp_path_factory, "noise-conditions", make)
    return a_study(experiment, store, folder / "s", **words)


def clean(study, condition=""):
    return study.tested_source(condition).samples("test", noise=None).resident()


def noise_of(study, condition=""):
    pairs = study.test_pairs(0.1, condition)
    return (pairs.a - clean(study, condition).a)[..., 0].double().numpy()


def test_noise_of_another_kind_is_in_the_data_and_in_no_method(study):
    part = Cell(MAP, at=0.1, condition="correlated")
    usual = replace(part, condition="")
    assert np.array_equal(study.data(part).std, study.data(usual).std)
    eta = noise_of(study, "correlated")
    next_to = np.mean(eta[:, 1:] * eta[:, :-1]) / np.mean(eta**2)
    assert next_to > 0.5  # independent noise has 0
    trained = json.loads((study.training(Cell(0.1)).folder / "run.json").read_text())
    assert trained["experiment"]["noise"]["kind"] == "ensemble"
    assert "conditions" not in trained["experiment"]


def test_a_level_of_the_data_is_told_to_no_method(study):
    """The same random numbers, three times as large; models of all levels are told 0.1."""
    assert noise_of(study, "louder") == pytest.approx(3 * noise_of(study), abs=1e-6)
    usual, louder = (study.test_pairs_of(Cell(EVERY, at=0.1, condition=c)) for c in ("", "louder"))
    assert usual.a[..., 1].equal(louder.a[..., 1])
    rows = [study.row(Cell(EVERY, at=0.1, condition=c), HOW) for c in ("", "louder")]
    assert np.mean(rows[0].errors) != np.mean(rows[1].errors)


def test_other_truths_have_the_numbers_of_the_test_samples(study):
    """The phases lie where they lie in the test samples of the experiment; no training or
    validation sample has these random numbers."""
    store = open_sealed(study.store)
    for condition in study.shifted:
        recipe, other = study.recipe(condition), open_sealed(study.truths(condition))
        assert recipe.first + recipe.samples == store.samples
        numbers = range(*other.metadata.splits["test"])
        assert [recipe.stream(i) for i in numbers] == [(0, i) for i in range(16, 20)]
        assert (clean(study, condition).u > 7).shape == clean(study).u.shape
    contrast = study.recipe("contrast").compute(range(2, 6))["a"]
    usual = load_recipe("darcy-quick").with_overrides(study.experiment.data.overrides)
    assert np.array_equal(contrast == 10, usual.compute(range(16, 20))["a"] == 12)
    # the noise has the numbers of the experiment, too, and σ(x) of its training samples
    assert noise_of(study, "contrast") == pytest.approx(noise_of(study), abs=1e-6)
    assert abs(noise_of(study, "another seed") - noise_of(study)).max() > 1e-4


def test_other_values_of_phases_count_as_phases(study):
    """Fields that have the true phases everywhere have the misclassified area 0."""
    assert study.truth_under("contrast") == pytest.approx(study.truth, abs=1e-5)
    part = Cell("constant", at=0.1, condition="contrast")
    row = study._scored(part, study.truth)
    assert row.scores["misclassified"] == [0.0] * 4
    assert row.errors == pytest.approx([0.0] * 4, abs=1e-5)
    # a reconstruction that is told the phases explains data of others worse
    usual, other = (study.row(Cell(MAP, at=0.1, condition=c), HOW) for c in ("", "contrast"))
    assert np.mean(other.scores["misfit"]) > 1.2 * np.mean(usual.scores["misfit"])


def test_every_method_has_a_row_under_every_condition(study):
    _, tested, _ = study.stages()
    plain = [part for part in tested if not part.condition]
    assert plain[0].condition == ""
    for name in FOUR:
        assert [p for p in tested if p.condition == name] == [
            replace(part, condition=name) for part in plain
        ]
    lines = list(csv.DictReader((study.folder / "measures.csv").read_text().splitlines()))
    assert {line["condition"] for line in lines} == {"", *FOUR}
    samples = csv.DictReader((study.folder / "samples.csv").read_text().splitlines())
    assert {(line["condition"], line["sample"]) for line in samples} >= {
        (name, str(number)) for name in FOUR for number in range(16, 18)
    }


def test_the_report_states_conditions_ratios_and_what_methods_were_told(study):
    page = (study.folder / "report.md").read_text()
    for words in (
        'correlated: noise.kind = "correlated".', "contrast: truth.coefficient.above = 10.0.",
        "ensemble noise, the level, the recipe", "training inputs with ensemble noise",
        "Noise of u (under louder)", "--condition 'another seed'",
        "--set 'conditions.another seed.truth.solver.faces=arithmetic'",
        "--set conditions.louder.noise.level=0.3",
    ):  # fmt: skip
        assert words in page, words
    usual, louder = (
        np.mean(study.row(Cell("constant", at=0.1, condition=c), HOW).errors)
        for c in ("", "contrast")
    )
    assert f"({louder / usual:.3g} times)" in page


def test_a_changed_condition_makes_its_rows_stale_and_no_others(study):
    changed = {**FOUR, "contrast": StudyCondition(truth={"coefficient.above": 9.0}),
               "louder": StudyCondition(noise={"level": 0.4})}  # fmt: skip
    other = replace(study, conditions=changed)
    _, tested, _ = study.stages()
    for part in tested:
        stale = part.condition in ("contrast", "louder")
        assert (other.digest(part) != study.digest(part)) == stale
        assert (other.kept(part) is None) == stale


def test_truths_of_three_phases_end_a_study_before_its_trainings(
    experiment, store, tmp_path, words
):
    """The third phase is too rare for the first two samples."""
    phases = {"kind": "phases", "values": [3.0, 6.0, 12.0], "thresholds": [-0.1, 1.2]}
    rare = {"rare": StudyCondition(truth={"problem.coefficient": phases})}
    words = {**words, "train": (0.1,), "conditions": rare}
    with pytest.raises(SchemaError, match=r"conditions\.rare\.truth: methods are told two phases"):
        a_study(experiment, store, tmp_path / "s", **words).run(CPU)
    assert not (tmp_path / "s" / "models").exists()


def test_a_stopped_study_goes_on_to_the_same_truths(experiment, store, study, tmp_path, words):
    chosen = {"contrast": FOUR["contrast"]}
    words = {**words, "train": (0.1,), "conditions": chosen}
    other = a_study(experiment, store, tmp_path / "s", **words)
    with pytest.raises(Stopped):
        other.run(CPU, stop=lambda: (tmp_path / "s" / "truths").exists())
    assert other.kept(Cell(TRUTH, condition="contrast")) is not None
    other.run(CPU, resume=True)
    contents = [open_sealed(s.truths("contrast")).metadata.content for s in (study, other)]
    assert contents[0] == contents[1]
    part = Cell(MAP, at=0.1, condition="contrast")
    assert study.row(part, HOW).errors == other.row(part, HOW).errors


# declarations


def test_conditions_are_declared_by_overrides_and_left_out_of_records():
    own = load_experiment("darcy-inverse-quick")
    changed = own.with_overrides(
        {"conditions.a.noise": {"kind": "impulse", "share": 0.2},
         "conditions.b.truth.problem.coefficient":
         {"kind": "phases", "values": [3.0, 12.0], "thresholds": [-0.07]}}
    )  # fmt: skip
    assert changed.conditions["a"].noise == {"kind": "impulse", "share": 0.2}
    assert changed.conditions["b"].truth["problem.coefficient.thresholds"] == [-0.07]
    again = changed.with_overrides({"conditions.a.noise.share": 0.3})
    assert again.conditions["a"].noise == {"kind": "impulse", "share": 0.3}
    assert again.conditions["b"] == changed.conditions["b"]
    assert changed.unconditioned == own
    assert "conditions" not in json.loads(changed.model_dump_json())
    assert list(changed.chosen_conditions(["all"])) == ["a", "b"]
    with pytest.raises(SchemaError, match="unknown condition 'aa': did you mean a"):
        changed.chosen_conditions(["aa"])
    with pytest.raises(SchemaError, match="cannot have the name 'all'"):
        own.with_overrides({"conditions.all.noise.seed": 3})
    with pytest.raises(SchemaError, match=r"conditions.c: needs keys of truth or of noise"):
        Experiment.parse({**own.model_dump(), "conditions": {"c": {}}}, "own")


def test_conditions_of_shipped_experiments_are_possible():
    for name in ("phases-pdeinvbench",):
        experiment = load_experiment(name)
        assert experiment.conditions
        study = NoiseStudy(
            experiment.unconditioned, "", Path("out"), (0.0,), (0.0,), 1,
            conditions=experiment.conditions,
        )  # fmt: skip
        for condition in study.shifted:
            study.conditions[condition].recipe(experiment.data.load_recipe(), condition)
