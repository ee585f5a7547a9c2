"""Plans of noise studies: their trainings, tests, files and names."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from pdegen.schema import SchemaError
from pipelines.config.conditions import StudyCondition
from pipelines.config.experiment import load_experiment
from pipelines.studies.inversions import (
    Cell,
    check_classical,
    check_levels,
    key,
    operator_experiments,
    parse_levels,
    word,
)
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Row

RANGE = (0.0, 0.2)
OWN = load_experiment("darcy-inverse-quick")


def a_plan(models=(), train=(0.1, RANGE), test=(0.0, 0.2), assumed=(1.0, 3.0), **words):
    experiment, operators = operator_experiments(OWN, models, {})
    return NoiseStudy(
        experiment, "nowhere", Path("out"), train, test, **{"seeds": 2, **words},
        assumed_levels=assumed, operators=operators,
    )  # fmt: skip


BOTH = ("fno", OWN.model.name)


def test_models_are_of_each_operator_level_and_seed():
    plan = a_plan(BOTH)
    assert plan.models == [
        Cell(level, seed, operator=operator)
        for operator in ("fno", "") for level in (0.1, RANGE) for seed in (0, 1)
    ]  # fmt: skip
    assert plan.with_wrong_level == [
        Cell(RANGE, seed, assumed_level=3.0, operator=operator)
        for operator in ("fno", "") for seed in (0, 1)
    ]  # fmt: skip


def test_a_training_has_the_level_the_seed_and_the_operator_of_its_cell():
    plan = a_plan(BOTH)
    training = plan.training(Cell(0.1, 1, operator="fno"))
    assert training.folder == Path("out/models/fno-level-0.1-seed-1")
    assert training.store == "nowhere"
    assert training.experiment.model.name == "fno"
    assert training.experiment.training.seed == 1
    assert training.experiment.noise.level == 0.1
    training = plan.training(Cell(RANGE, 0))
    assert training.folder == Path("out/models/level-0-to-0.2-seed-0")
    assert (training.experiment.model, training.experiment.noise.level) == (OWN.model, RANGE)


def test_files_of_tests_have_names_of_their_own():
    plan = a_plan(BOTH)
    paths = {
        Cell(0.1, 1, 0.2): "model-0.1-seed-1-at-0.2",
        Cell(0.1, 1): "model-0.1-seed-1",
        Cell(RANGE, 0, 0.2, 3.0): "model-0-to-0.2-seed-0-assumed-3-at-0.2",
        Cell(0.1, 1, 0.2, operator="fno"): "fno-model-0.1-seed-1-at-0.2",
        Cell(0.1, 0, 0.0, corrected=True, operator="fno"): "fno-corrected-0.1-seed-0-at-0",
        Cell(0.1, 0, 0.0, corrected=True): "corrected-0.1-seed-0-at-0",
        Cell("level set, level estimated", at=0.2): "level-set-level-estimated-at-0.2",
        Cell("Tikhonov", at=0.2, assumed_level=0.5): "Tikhonov-assumed-0.5-at-0.2",
        Cell("Tikhonov", at=0.2, condition="wrong kind"): "Tikhonov-at-0.2-under-wrong-kind",
    }
    for cell, name in paths.items():
        assert plan.row_path(cell) == Path(f"out/cells/{name}.json")


def test_progress_says_what_was_trained_or_tested():
    plan, row = a_plan(BOTH), Row()
    lines = {
        Cell("Tikhonov", at=0.2): "Tikhonov at 0.2",
        Cell("Tikhonov", at=0.0, assumed_level=3.0): "Tikhonov, assuming 3 times the level at 0",
        Cell(0.1, 1): f"{OWN.model.name} trained at 0.1, seed 1",
        Cell(0.1, 1, operator="fno"): "fno trained at 0.1, seed 1",
        Cell(RANGE, 0, 0.2, 3.0, operator="fno"): (
            "fno trained at all levels, assuming 3 times the level, seed 0, tested at 0.2"
        ),
        Cell(0.1, at=0.2, together=True): (
            f"{OWN.model.name} trained at 0.1, all seeds together, tested at 0.2"
        ),
        Cell(0.1, 0, 0.2, corrected=True, operator="fno"): (
            "fno trained at 0.1, corrected, seed 0, tested at 0.2"
        ),
    }
    for cell, line in lines.items():
        assert plan.progress_line(cell, row) == line
    assert a_plan().progress_line(Cell(0.1, 1, 0.2), row) == "trained at 0.1, seed 1, tested at 0.2"


def test_tests_are_of_each_level_and_of_each_seed_of_a_model():
    plan = a_plan()
    assert plan.tests(Cell(0.1)) == [
        [Cell(0.1, 0, 0.0), Cell(0.1, 1, 0.0)], [Cell(0.1, 0, 0.2), Cell(0.1, 1, 0.2)],
    ]  # fmt: skip
    assert plan.tests(Cell(0.1), "c")[1][1] == Cell(0.1, 1, 0.2, condition="c")
    assert plan.tests(Cell("Tikhonov")) == [[Cell("Tikhonov", at=0.0)], [Cell("Tikhonov", at=0.2)]]


class Offered:
    """Methods with and without need of a level, the second of which can correct."""

    corrector: str | None = "free"
    methods: ClassVar = {
        "level": SimpleNamespace(takes_level=True), "free": SimpleNamespace(takes_level=False)
    }  # fmt: skip


def test_stages_are_trainings_and_then_all_tests():
    plan = a_plan()
    plan.__dict__["inversions"] = Offered
    models = [Cell(level, seed) for level in (0.1, RANGE) for seed in (0, 1)]
    parts = [
        *models,
        *(Cell(RANGE, seed, assumed_level=3.0) for seed in (0, 1)),
        *(replace(model, corrected=True) for model in models),
        Cell("constant"), Cell("level"), Cell("free"), Cell("level", assumed_level=3.0),
    ]  # fmt: skip
    trained, tested, pooled = plan.stages()
    assert trained == models
    together = [Cell(level, together=True) for level in (0.1, RANGE)]
    assert pooled == [replace(part, at=at) for at in (0.0, 0.2) for part in together]
    assert replace(plan, seeds=1).pooled == []
    assert tested == [replace(part, at=at) for at in (0.0, 0.2) for part in parts]
    assert plan.classical == parts[-3:]
    # reports show those of the first seed
    assert plan.corrected == [Cell(0.1, corrected=True), Cell(RANGE, corrected=True)]


def test_nothing_is_corrected_where_no_method_can(monkeypatch):
    plan = a_plan()
    plan.__dict__["inversions"] = Offered
    monkeypatch.setattr(Offered, "corrector", None)
    assert plan.corrected == []
    assert not any(part.corrected for part in plan.stages()[1])


def test_levels_in_decibels_have_their_unit():
    snr = OWN.with_overrides({"noise.kind": "snr", "noise.level": 20.0})
    plan = NoiseStudy(snr, "nowhere", Path("out"), (40.0,), (20.0, 30.0), 1)
    assert (plan.unit, plan.word(20.0)) == ("dB", "20 dB")
    assert (plan.noisiest, a_plan().noisiest) == (20.0, max(a_plan().test_levels))
    assert plan.label(Cell(40.0)) == "trained at 40 dB"
    assert plan.progress_line(Cell(40.0, at=30.0), Row()) == (
        "trained at 40 dB, seed 0, tested at 30 dB"
    )
    plan = a_plan()
    assert (plan.unit, plan.word(0.2), plan.word(RANGE)) == ("", "0.2", "all levels")


def test_names_of_methods_say_what_they_assume_and_correct():
    assert Cell(0.1, corrected=True, assumed_level=0.5).named("dB") == (
        "trained at 0.1 dB, corrected, assuming 0.5 times the level"
    )
    assert Cell("Tikhonov", assumed_level=3.0).name == "Tikhonov, assuming 3 times the level"
    assert (key(RANGE), key(0.05)) == ("0-to-0.2", "0.05")
    assert word(RANGE, "dB") == "all levels"


def test_names_are_those_of_the_variables_and_operators():
    plan = a_plan(BOTH)
    assert plan.names == ("u", "a")
    assert list(plan.experiments) == ["fno", ""]
    assert [e.model.name for e in plan.experiments.values()] == [*BOTH]
    assert plan.operator(Cell(0.1, operator="fno")) == "fno"
    assert plan.operator(Cell(0.1)) == OWN.model.name
    assert a_plan().experiments == {"": OWN}
    assert plan.label(Cell("Tikhonov")) == "Tikhonov"
    assert plan.label(Cell(0.1, corrected=True)) == f"{OWN.model.name} trained at 0.1, corrected"


def test_test_noise_has_the_kind_of_the_tests_and_the_seed_of_the_experiment():
    own = OWN.with_overrides({"noise.seed": 7, "noise.fresh": False})
    words = (own, "nowhere", Path("out"), (0.1,), (0.2,), 1)
    salt = {"kind": "impulse", "share": 0.2, "level": 0.0}
    conditions = {
        "kind": StudyCondition(noise={"kind": "relative"}),
        "salt": StudyCondition(noise=salt),
    }
    plan = NoiseStudy(*words, conditions=conditions)
    assert plan.tested(0.2) == plan.noise(0.2) == own.at_level(0.2).noise
    noise = plan.tested(0.3, "kind")
    assert (noise.kind, noise.level, noise.seed) == ("relative", 0.3, 7)
    noise = plan.tested(0.3, "salt")
    assert (noise.kind, noise.level, noise.share, noise.size) == ("impulse", 0.0, 0.2, 2.0)
    assert plan.noise(0.3).kind == own.noise.kind != "relative"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"train": (0.1, 0.1)}, "train levels must be one or more different numbers"),
        ({"test": (0.1, 0.1)}, "test levels must be one or more different numbers"),
        ({"train": (RANGE, (0.0, 0.3))}, "train levels may contain only one range"),
        ({"train": (-0.1,)}, "noise level"),
        ({"test": (-0.1,)}, "noise level"),
        ({"assumed": (3.0,)}, "--assumed-level must be numbers from 1e-6 to 1e6 that include 1"),
        ({"cells": 3}, "--cells must be at least 4, got 3"),
        ({"inversion_samples": 0}, "--inversion-samples must be at least 1, got 0"),
        (
            {"conditions": {"c": StudyCondition(noise={"kind": "nothing"})}},
            "^conditions.c.noise: kind: unknown kind 'nothing'",
        ),
        ({"only": ("none", "Tikhonov")}, "--method none excludes other methods and --cells"),
    ],
)
def test_impossible_plans_are_refused(words, message):
    with pytest.raises(SchemaError, match=message):
        a_plan(**words)


def test_options_of_inputs_are_refused_for_noise_on_targets():
    own = OWN.with_overrides({"noise.on": "targets", "noise.level": 0.1})
    for option, words in (
        ("--test-levels", {"test_levels": (0.1,)}),
        ("--condition", {"conditions": {"c": StudyCondition(noise={"kind": "relative"})}}),
        ("--assumed-level", {"assumed_levels": (1.0, 2.0)}),
    ):
        with pytest.raises(SchemaError, match=f"^{option} is for noise on the inputs"):
            NoiseStudy(
                own, "nowhere", Path("out"), (0.1,), **{"test_levels": (0.0,), "seeds": 1, **words}
            )
    assert NoiseStudy(own, "nowhere", Path("out"), (0.1,), (0.0,), 1).on_targets
    assert not a_plan().on_targets


def test_options_of_classical_methods_have_limits():
    check_classical(1, (0.5, 1.0), 4, ("a", "b"))
    check_classical(1, (1.0,), None, ("none",))
    for words, message in (
        ((1, (1.0,), 4, ("none",)), "--method none"),
        ((1, (1.0, 0.0), None), "--assumed-level must be numbers from"),
        ((1, (1.0, float("inf")), None), "--assumed-level must be numbers from"),
        ((1, (1.0, 2.0, 2.0000001), None), "--assumed-level must be numbers that differ"),
    ):
        with pytest.raises(SchemaError, match=message):
            check_classical(*words)


@pytest.mark.parametrize(
    ("own", "noise", "message"),
    [
        ({}, {"kind": "ensemble"}, "methods are told this noise: leave the condition out"),
        ({}, {"kind": "snr"}, "levels of ensemble and snr noise have different units: set its lev"),
        ({}, {"kind": "sensors"}, "methods know the points of the sensors: only the level can dif"),
        ({}, {"level": [0.0, 0.1]}, r"test data have one level, got \[0.0, 0.1\]"),
        ({"noise.kind": "snr"}, {"kind": "relative"}, "levels of snr and relative noise"),
        ({"noise.kind": "sensors"}, {"seed": 3}, ".*only the level can differ, got seed"),
    ],
)
def test_impossible_conditions_are_refused(own, noise, message):
    experiment = OWN.with_overrides({**own, "noise.level": 0.1})
    words = experiment, "nowhere", Path("out"), (0.1,), (0.2,), 1
    with pytest.raises(SchemaError, match=f"^conditions.c.noise: {message}"):
        NoiseStudy(*words, conditions={"c": StudyCondition(noise=noise)})


def test_a_level_of_the_data_may_be_one_of_several_that_are_told():
    words = OWN.with_overrides({"noise.kind": "ensemble"}), "nowhere", Path("out"), (0.1,)
    conditions = {"c": StudyCondition(noise={"level": 0.2})}
    plan = NoiseStudy(*words, (0.1, 0.2), 1, conditions=conditions)
    assert [plan.tested(level, "c").level for level in (0.1, 0.2)] == [0.2, 0.2]
    with pytest.raises(SchemaError, match="methods are told this noise: leave the condition out"):
        NoiseStudy(*words, (0.2,), 1, conditions=conditions)


def test_conditions_that_set_a_level_may_have_another_unit():
    words = OWN.with_overrides({"noise.kind": "snr"}), "nowhere", Path("out"), (20.0,), (20.0,), 1
    noise = {"kind": "ensemble", "level": 0.1}
    plan = NoiseStudy(*words, conditions={"c": StudyCondition(noise=noise)})
    assert plan.tested(20.0, "c").level == 0.1


def test_levels_with_the_same_name_are_refused():
    check_levels("test", (0.1, 0.2, RANGE))
    for levels in ((), (0.1, 0.1000000001)):
        with pytest.raises(SchemaError, match="test levels must be one or more different"):
            check_levels("test", levels)
    with pytest.raises(SchemaError, match="levels must be numbers separated by commas, got 'a,1'"):
        parse_levels("a,1")
