"""Each number, mark and curve of a noise study's report is that of its rows."""

from __future__ import annotations

import csv
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from pdegen.sampling.noise import KINDS
from pipelines.reports import figures, noise_pictures
from pipelines.reports.document import plus_minus, significant
from pipelines.reports.figures import HALF, WIDE
from pipelines.reports.noise_pictures import error_pictures
from pipelines.reports.noise_report import (
    _classical,
    _drawn,
    _fewer,
    _NoiseReport,
    _weights,
    reported_epoch,
)
from pipelines.reports.noise_table import Group, Results
from pipelines.studies.inversions import CONSTANT, Cell
from pipelines.studies.runner import Row

TV, MEAN = Cell("total variation"), Cell(CONSTANT)
RANGE = (0.0, 0.5)
LOW, HIGH, ALL = Cell(0.0), Cell(0.5), Cell(RANGE)
CORRECTED = Cell(0.5, corrected=True)
LEVELS = (0.0, 0.5, 2.0)


def row(*errors: float, **words) -> Row:
    return Row(errors=[*errors], **words)


ROWS = {
    LOW: [
        [row(0.1, 0.2, 0.3, 0.6), row(0.1, 0.2, 0.5, 0.8)],
        [row(0.4, 0.5, 0.7, 0.8), row(0.4, 0.5, 0.7, 0.8)],
        [row(2.0, 3.0, 4.0, 5.0), row(2.0, 3.0, 4.0, 5.0)],
    ],
    HIGH: [
        [row(0.3, 0.5, 0.7, 0.9), row(0.3, 0.5, 0.7, 0.9)],
        [row(0.2, 0.3, 0.5, 0.4), row(0.2, 0.3, 0.5, 0.4)],
        [row(0.8, 0.9, 0.7, 0.6), row(0.8, 0.9, 0.7, 0.6)],
    ],
    ALL: [[row(*(0.1 * at + 0.05 * k for k in range(1, 5)))] * 2 for at in range(1, 4)],
    CORRECTED: [
        [row(0.15, 0.45, weight=0.3, converged=1, inference_seconds=2.5, solves=31.4,
             iterations=12.6, scores={"misfit": [0.9, 1.1]})]
    ] * 3,
    MEAN: [[row(0.95, 0.9, 0.98, 0.99)]] * 3,
    TV: [
        [row(0.2, 0.35, weight=w, converged=2, inference_seconds=0.5, solves=7, iterations=3,
             scores={"misfit": [misfit, misfit], "l1": [0.25, 0.5]})]
        for w, misfit in ((0.1, 1.0), (0.3, 1.2), (1.0, 4.5))
    ],
}  # fmt: skip


def a_study(train=(0.0, 0.5, RANGE), tests=LEVELS, samples=4, on_targets=False, **words):
    method = SimpleNamespace(
        weights=(0.1, 0.3, 1.0), reason="it is classical", model_error=lambda: 0.0123
    )
    noise = SimpleNamespace(build=lambda: KINDS["relative"](0.1), kind="relative")
    named = {
        "truth": np.zeros((samples, 2)), "test_levels": tests, "train_levels": train, "seeds": 2,
        "label": lambda method: method.name, "word": lambda level: Cell(level).name[11:],
        "noise": lambda level: noise, "tested": lambda level: noise, "on_targets": on_targets,
        "operator": lambda cell: cell.operator or "GT", "experiments": {"": None}, "values": None,
        "models": [Cell(level, seed) for level in train for seed in (0, 1)],
        "corrected": [CORRECTED], "classical": [TV],
        "inversions": SimpleNamespace(methods={TV.method: method}),
        "pays_after": lambda cell, how: {0.0: 1234.6, 0.5: np.inf, 2.0: 7.2}[cell.at],
    }  # fmt: skip
    return SimpleNamespace(**(named | words))


@pytest.fixture
def results():
    return Results(a_study(), ROWS)


def half(errors) -> float:
    return np.ptp(stats.ttest_1samp(errors, 0).confidence_interval()) / 2


def printed(errors) -> str:
    words = significant(float(np.mean(errors)))
    return plus_minus(words, half(errors)) if np.ptp(errors) else words


def test_errors_are_averaged_over_the_seeds_of_each_sample(results):
    averaged = [0.1, 0.2, 0.4, 0.7]
    np.testing.assert_allclose(results.errors(LOW, 0), averaged)
    np.testing.assert_allclose(results.errors(LOW, 0, 3), averaged[:3])
    assert results.mean(LOW, 0) == pytest.approx(0.35)
    assert results.mean(LOW, 0, 2) == pytest.approx(0.15)
    assert results.half(LOW, 0, 3) == pytest.approx(half(averaged[:3]))
    assert results.printed(LOW, 0) == printed(averaged)
    assert (results.samples(LOW), results.samples(TV)) == (4, 2)


def test_a_line_of_errors_has_its_level_samples_difference_seeds_and_failure(results):
    whole, few = results.groups
    assert (few.methods, few.samples, few.whole) == ([*ROWS], 2, False)
    table = results.error_table(whole)
    assert table.name == "n = 4"
    assert table.header == (
        "method", "level, rms(u)", "n", "L² error", "difference from the smallest", "seeds",
        "failed",
    )  # fmt: skip
    lines = [line for line in table.rows if line[1] == "0"]
    assert [line[0] for line in lines] == [c.name for c in (ALL, LOW, HIGH, MEAN)]
    averaged, every = np.array([0.1, 0.2, 0.4, 0.7]), np.array([0.15, 0.2, 0.25, 0.3])
    off = averaged - every
    assert lines[1] == (
        "trained at 0", "0", "4", printed(averaged),
        plus_minus(significant(off.mean()), half(off)), significant(np.std([0.3, 0.4], ddof=1)), "",
    )  # fmt: skip
    assert lines[0][4:] == ("smallest", "", "")
    (failed,) = [line for line in table.rows if line[0] == LOW.name and line[1] == "2"]
    assert failed[-1] == "yes"
    assert [line[1] for line in table.rows] == ["0"] * 4 + ["0.5"] * 4 + ["2"] * 4
    second = results.error_table(few)
    column = second.header.index("converged")
    assert {line[0]: line[column] for line in second.rows if line[column]} == {
        CORRECTED.name: "1 of 2", TV.name: "2 of 2",
    }  # fmt: skip


def test_failures_have_their_reason_and_weight(results):
    table = results.failure_table()
    assert table.header == ("method", "level, rms(u)", "n", "failed", "weight")
    assert table.rows == [
        (LOW.name, "2", "4", "error 3.50 > 0.955 of the constant", ""),
        (TV.name, "2", "2", "misfit 4.5", "1 (largest)"),
    ]
    assert (table.words, table.name) == (True, "failed")


def test_costs_have_their_units_and_when_they_pay(results):
    table = results.cost_table(None)
    assert table.header == (
        "method", "level, rms(u)", "n", "weight", "seconds", "solves", "steps", "pays after",
    )  # fmt: skip
    assert table.rows == [
        (CORRECTED.name, "0", "2", "", "2.5", "31", "13", "1,235"),
        (CORRECTED.name, "0.5", "2", "", "2.5", "31", "13", "never"),
        (CORRECTED.name, "2", "2", "", "2.5", "31", "13", "7"),
        (TV.name, "0", "2", "0.1 (smallest)", "0.5", "7", "3", ""),
        (TV.name, "0.5", "2", "0.3", "0.5", "7", "3", ""),
        (TV.name, "2", "2", "1 (largest)", "0.5", "7", "3", ""),
    ]


def test_measures_are_those_that_a_row_has(results):
    assert sorted(results.measured) == ["errors", "l1", "misfit"]
    lines = [*csv.DictReader(results.csv.splitlines())]
    (line,) = [one for one in lines if (one["method"], one["level"], one["measure"]) == (
        LOW.name, "0", "errors")]  # fmt: skip
    assert (line["mean"], line["deviation over seeds"], line["n"]) == ("0.35", "0.0707107", "4")
    (line,) = [one for one in lines if (one["level"], one["measure"]) == ("2", "l1")]
    assert (line["method"], line["mean"], line["n"]) == (TV.name, "0.375", "2")
    assert results.meanings[-1].startswith("measures.csv has all measures")
    assert len({line["method"] for line in lines}) == len(ROWS)


def test_headlines_name_the_best_sound_method(results):
    whole, few = results.groups
    name, value = results.headline("here", few, 0)
    assert name == (f"smallest mean error at here ({LOW.name}), on the first 2 of 4 samples")
    assert value == printed([0.1, 0.2])
    name, value = results.headline("here", whole, 2)
    assert (name, value) == (
        f"smallest mean error at here ({ALL.name})", printed([0.35, 0.4, 0.45, 0.5]),
    )  # fmt: skip
    part = _NoiseReport(results.study, None)
    part.__dict__["results"] = results
    assert part.headline() == [
        results.headline(f"test level {level:g}", few, at) for at, level in enumerate(LEVELS)
    ]


def of_report(**words) -> _NoiseReport:
    study = a_study(**words)
    part = _NoiseReport(study, None)
    part.__dict__["results"] = Results(study, ROWS)
    return part


def test_lessons_compare_the_models_of_both_ends_and_of_all_levels():
    first, last = of_report()._lessons()
    assert last == (
        "At test level 2, the model trained at 0 has 4.7 times the error of the model trained at "
        "0.5. At test level 0, the model trained at 0.5 has 1.7 times the error of the model "
        "trained at 0."
    )
    assert first == (
        "Error of the training at all levels, divided by that of the training at the test level: "
        "0.643 at 0, 0.929 at 0.5."
    )
    assert of_report(train=(RANGE,), tests=(2.0,))._lessons() == []
    on_targets = of_report(train=(0.0, 0.5), tests=(0.0,), on_targets=True)._lessons()
    assert on_targets == [
        "With training targets of noise 0.5, the model has 1.7 times the error of the model with "
        "training targets of noise 0."
    ]


class Drawn(list):
    """The calls of charts and pictures."""

    def chart(self, name):
        return lambda *a, **k: self.append((name, a, k))

    @staticmethod
    def picture(figure, name, caption, half=False):
        return name, caption, half


@pytest.fixture
def drawn(monkeypatch):
    calls = Drawn()
    for name in ("curves", "dots", "heat_map"):
        monkeypatch.setattr(figures, name, calls.chart(name))
    monkeypatch.setattr(noise_pictures, "picture", calls.picture)
    return calls


def means_of(results, group):
    return np.array(
        [[results.mean(m, at, group.samples) for at in range(3)] for m in group.methods]
    )


def test_pictures_of_all_samples_come_before_those_of_the_first(results, drawn):
    found = error_pictures(results)
    assert [one[0] for one in found] == ["matrix", "levels", "matrix-first-2", "levels-first-2"]
    assert [one[2] for one in found] == [False] * 4
    assert "over the 4 test samples; ±" in found[0][1]
    assert "over the first 2 of 4 test samples; ±" in found[2][1]
    assert all(one[1].endswith(" ×: failed, see the table.") for one in found)
    for (name, given, options), group in zip(drawn, np.repeat(results.groups, 2), strict=True):
        means = means_of(results, group)
        names = [method.name for method in group.methods]
        failed = [[bool(results.failure(m, at, group.samples)) for at in range(3)]
                  for m in group.methods]  # fmt: skip
        if name == "heat_map":
            np.testing.assert_allclose(given[0], means)
            assert given[1][0, 0] == results.half(group.methods[0], 0, group.samples)
            assert given[2:5] == (
                names,
                ["0", "0.5", "2"],
                "noise level of the test samples [rms(u)]",
            )
            assert given[5].tolist() == failed
        else:
            series, label, error = given
            assert error == "mean relative L² error"
            assert label == "noise level of the test samples [rms(u)]"
            assert [*series] == names
            for (positions, values), wanted in zip(series.values(), means, strict=True):
                assert positions == [*LEVELS]
                assert values == pytest.approx(wanted)
            assert options["crossed"] == failed
            assert options["ticks"] == {0.0: "0", 0.5: "0.5", 2.0: "2"}
            assert (options["width"], options["ends"]) == (WIDE, ())
            assert options["spreads"][0][1] == results.half(group.methods[0], 1, group.samples)
            assert [*options["looks"]] == names


def test_studies_of_one_level_have_dots(drawn):
    rows = {method: of[:1] for method, of in ROWS.items() if method in (LOW, HIGH, MEAN)}
    (found,) = error_pictures(Results(a_study(tests=(0.0,)), rows))
    assert found[0] == "levels"
    assert found[1].startswith("Mean relative L² error at noise level 0, over the 4 test samples")
    ((_, (means, halves, failed, error), _),) = drawn
    assert error == "mean relative L² error"
    assert means == {LOW.name: pytest.approx(0.35), HIGH.name: 0.6, MEAN.name: 0.955}
    assert halves == pytest.approx([half([0.1, 0.2, 0.4, 0.7]), half([0.3, 0.5, 0.7, 0.9]),
                                    half([0.95, 0.9, 0.98, 0.99])])  # fmt: skip
    assert failed == [False] * 3


def of_operators(rows, **words):
    """A study of two operators."""
    both = {"": None, "fno": None}
    study = a_study(train=(0.0, 0.5), experiments=both, **words)
    every = dict(rows)
    for cell in (LOW, HIGH):
        every[replace(cell, operator="fno")] = [
            [one.model_copy(update={"errors": [2 * e for e in one.errors]}) for one in seeds]
            for seeds in rows[cell]
        ]
    study.label = lambda method: f"{study.operator(method)} {method.name}"
    study.classical = []
    return Results(study, every)


def test_operators_have_a_picture_for_each_training_level_with_one_scale(drawn):
    rows = {method: of for method, of in ROWS.items() if method in (LOW, HIGH, MEAN)}
    found = error_pictures(of_operators(rows))
    assert [one[0] for one in found] == [
        "matrix", "levels-trained-at-0", "levels-trained-at-0-5",
    ]  # fmt: skip
    assert [one[2] for one in found] == [False, True, True]
    words = "Models trained at 0.5: mean relative L² error against the test level, over the 4"
    assert found[2][1].startswith(words)
    low, high = drawn[1:]
    assert [*low[1][0]] == ["GT", "GT constant", "fno"]
    assert low[1][0]["fno"][1][0] == pytest.approx(0.7)
    assert high[1][0]["fno"][1][0] == pytest.approx(1.2)
    assert low[2]["ends"] == high[2]["ends"] != ()
    assert low[2]["width"] == HALF


def test_noisy_targets_are_drawn_against_the_training_level(drawn):
    rows = {method: of[:1] for method, of in ROWS.items() if method in (LOW, HIGH, MEAN)}
    results = of_operators(rows, tests=(0.0,), on_targets=True)
    (found,) = error_pictures(results)
    assert (found[0], found[2]) == ("levels", True)
    ((_, (series, label, _), options),) = drawn
    assert label == "noise level of the training targets [rms(u)]"
    assert {name: values for name, (_, values) in series.items()} == {
        "GT": pytest.approx([0.35, 0.6]), "fno": pytest.approx([0.7, 1.2]),
        CONSTANT: pytest.approx([0.955, 0.955]),
    }  # fmt: skip
    assert options["ticks"] == {0.0: "0", 0.5: "0.5"}
    assert options["spreads"][2] == [0, 0]
    assert options["spreads"][0] == [results.half(LOW, 0), results.half(HIGH, 0)]


# the setting


def test_classical_methods_have_their_reason_weights_and_model_error(results):
    of_weights = [one.model_copy(update={"weight_samples": 3, "weight_unconverged": k})
                  for k, (one,) in enumerate(ROWS[TV])]  # fmt: skip
    rows = {**ROWS, TV: [[one] for one in of_weights]}
    assert _classical(Results(results.study, rows), TV) == (
        "It is classical. Weight 0.1, 0.3, 1, chosen on 3 validation samples from 0.1, 0.3, 1; 3 "
        "inversions for this choice did not converge. Its model differs from noise-free data by "
        "0.012 of their deviation"
    )
    once = [replace_weight(one, 0.3) for one in of_weights[:1]]
    assert _weights(once, (1.0, 0.1)) == "weight 0.3, chosen on 3 validation samples from 0.1, 1"


def replace_weight(one: Row, weight: float) -> Row:
    return one.model_copy(update={"weight": weight})


def test_the_setting_says_how_noise_is_drawn_and_what_is_reported():
    def study(on_inputs, on_targets, fresh, protocol):
        noise = SimpleNamespace(on_inputs=on_inputs, on_targets=on_targets, fresh=fresh)
        training = SimpleNamespace(protocol=protocol, conformal=False)
        experiment = SimpleNamespace(noise=noise, training=training)
        return SimpleNamespace(experiment=experiment, on_targets=on_targets)

    assert _drawn(study(True, False, True, "validation")) == [
        ("Training noise", "new in every epoch"),
        ("Validation and test noise", "drawn once, independent of the training noise"),
    ]
    assert _drawn(study(True, False, False, "validation"))[0][1] == "drawn once"
    assert _drawn(study(False, True, False, "published")) == [
        ("Noise of the training targets", "drawn once for each sample"),
        ("Validation and test targets", "without noise"),
    ]
    for on_targets, protocol, words in (
        (False, "validation", "the best on validation samples with the training noise"),
        (True, "validation", "the best on validation samples without noise"),
        (True, "published", "the last; test samples without noise were watched during training"),
    ):
        assert reported_epoch(study(not on_targets, on_targets, False, protocol)) == words


def test_the_setting_says_that_classical_methods_have_fewer_samples(results):
    assert _fewer(results) == "; classical methods use the first 2"
    whole = Results(results.study, {m: of for m, of in ROWS.items() if m not in (CORRECTED, TV)})
    assert _fewer(whole) == ""
    assert whole.groups == [Group([LOW, HIGH, ALL, MEAN], 4, True)]
