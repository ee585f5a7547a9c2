"""Tables of a comparison have the numbers of each variant, in their units."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from operators.training.fit import Epoch
from pdegen.domains import Box
from pipelines.reports import comparison_report as report
from pipelines.runs.comparison import Comparison, Variant, mean_interval
from pipelines.runs.score import Score

FIRST, SECOND, THIRD = (0.1, 0.2, 0.6, 0.5), (0.3, 0.4, 0.2, 0.9), (0.2, 0.7, 0.4, 0.3)
L1 = "l1"


def a_score(errors: tuple[float, ...], seconds: float) -> Score:
    measures = {L1: tuple(2 * e for e in errors)}
    return Score("best", 3, "test", 16, (20, 21, 22, 23), errors, seconds, measures=measures)


def a_run(seed: int, seconds: float, published: bool = False, content: str = "c" * 64, **where):
    place = {"device": "cpu (any)", "threads": 3, **where}
    history = [Epoch(e, 1.0, 0.5 / e + 0.1 * seed, 1e-3, e * seconds) for e in (1, 2, 3)]
    metadata = SimpleNamespace(recipe=SimpleNamespace(name="burgers"), content=content)
    scores = SimpleNamespace(
        parameters=1234 + seed, training_seconds=90 * seconds, provenance=place
    )
    trivial = {"mean": a_score((0.9, 0.8, 0.7, 0.95), 1.0), "other": a_score(FIRST, 1.0)}
    trivial["identity"] = replace(trivial["mean"], resolution=32)
    experiment = SimpleNamespace(training=SimpleNamespace(seed=seed))
    return SimpleNamespace(
        history=history, published=published, scores=scores, trivial=trivial, checkpoint="best",
        store=SimpleNamespace(metadata=metadata, url="s.zarr"),
        main=SimpleNamespace(epoch=7 + seed),
        pairs=SimpleNamespace(domain=Box.periodic(16)), experiment=experiment,
    )  # fmt: skip


@pytest.fixture
def compared(monkeypatch):
    one = Variant("deep", (Path("d"),), (a_run(0, 2.0),), (a_score(FIRST, 0.02),))
    two = Variant(
        "both", (Path("a"), Path("b")), (a_run(1, 1.0), a_run(2, 3.0)),
        (a_score(SECOND, 0.04), a_score(THIRD, 0.06)),
    )  # fmt: skip
    monkeypatch.setattr(Comparison, "differing", lambda self: {"model.depth": [2, None]})
    return Comparison((one, two))


def test_a_line_has_the_mean_with_its_interval_and_the_spread_of_the_seeds(compared):
    one, two = compared.variants
    errors = (np.array(SECOND) + THIRD) / 2
    middle, half = mean_interval(errors)
    assert report._score(two, several=True) == (
        "both", f"{middle:.2e} ± {10 * half:.2f}e-1".replace("e-01", "e-1"), "4.25e-1", "6.00e-1",
        f"{10 * np.std(errors):.2f}e-1", f"{100 * np.std([0.45, 0.4], ddof=1):.2f}e-2", "4",
    )  # fmt: skip
    assert report._score(one, several=True)[5] == "—"
    assert len(report._score(one, several=False)) == 6
    section = report._score_section(compared)
    assert section.tables[0].rows[2] == (
        "mean of the training targets", "8.38e-1", "8.50e-1", "9.50e-1",
        f"{100 * np.std([0.9, 0.8, 0.7, 0.95]):.2f}e-2", "", "4",
    )  # fmt: skip
    assert section.tables[0].header == (
        "prediction", "mean", "median", "worst", "spread", "seeds", "samples",
    )  # fmt: skip


def test_differences_have_both_intervals(compared):
    e, r = (np.array(SECOND) + THIRD) / 2, np.array(FIRST)
    middle, half = mean_interval(e - r)
    ratio, width = mean_interval(np.log(e / r))
    (row,) = report._paired(compared).rows
    numbers = [float(word) for cell in row[1:5] for word in cell.split(" … ")]
    assert numbers == pytest.approx(
        [middle, middle - half, middle + half, *np.exp([ratio, ratio - width, ratio + width])],
        rel=5e-3,
    )
    assert (row[0], row[5], row[6]) == ("both", "1 of 4", "not significant")


def test_further_measures_are_means_over_the_samples(compared):
    (table,) = report._measures(compared)
    assert table.header == ("measure, mean", "deep", "both")
    assert [row[1:] for row in table.rows] == [("7.00e-1", "8.50e-1")]
    assert report._measures(Comparison(compared.variants[:1])) == []


def test_costs_are_means_over_the_seeds_of_each_epoch_and_sample(compared):
    (table,) = report._cost_section(compared).tables
    assert table.rows == [
        ("deep", "1,234", "3 min 0 s", "1 min 0 s", "5", "cpu (any), threads 3"),
        ("both", "1,235", "3 min 0 s", "1 min 0 s", "12.5", "cpu (any), threads 3"),
    ]
    assert table.header[:5] == (
        "run", "parameters", "training", "each epoch", "evaluation, ms per sample",
    )  # fmt: skip


def test_a_course_has_epochs_or_mean_seconds(compared):
    _, two = compared.variants
    at, scores = report._course(two, epochs=True)
    assert at == [1, 2, 3]
    np.testing.assert_allclose(scores, [[0.6, 0.35, 0.1 + 0.5 / 3], [0.7, 0.45, 0.2 + 0.5 / 3]])
    assert report._course(two, epochs=False)[0] == [2, 6, 12]


def test_provenance_names_every_folder_and_what_differs(compared):
    section = report._provenance_section(compared)
    assert section.tables[0].rows == [
        ("d", "checkpoint best of epoch 7"), ("a", "checkpoint best of epoch 8"),
        ("b", "checkpoint best of epoch 9"), ("Data", f"s.zarr, content {'c' * 64}"),
        ("Software", "device cpu (any), threads 3"),
    ]  # fmt: skip
    assert section.code == ("pdegen compare d a b --data s.zarr --out FOLDER",)
    other = Variant("other", (Path("o"),), (a_run(0, 1.0, content="e" * 64, threads=5),),
                    (a_score(FIRST, 1.0),))  # fmt: skip
    other.first.store.url = "t.zarr"
    section = report._provenance_section(Comparison((compared.variants[0], other)))
    assert section.tables[0].rows[2:] == [
        ("Data of d", f"s.zarr, content {'c' * 64}"), ("Data of o", f"t.zarr, content {'e' * 64}"),
        ("Software of d", "device cpu (any), threads 3"),
        ("Software of o", "device cpu (any), threads 5"),
    ]  # fmt: skip
    assert section.code == ("pdegen compare d o --out FOLDER",)


def test_what_differs_has_seeds_data_and_keys(compared):
    (table,) = report._difference_section(compared).tables
    assert table.rows == [("model.depth", "2", "—"), ("training.seed", "0", "1 2")]
    assert (table.header, table.words) == (("key", "deep", "both"), True)
    other = Variant("other", (Path("o"),), (a_run(0, 1.0, content="e" * 64),), (a_score(FIRST, 1),))
    (table,) = report._difference_section(Comparison((compared.variants[0], other))).tables
    assert table.rows[0] == (
        "test samples from", f"burgers, content {'c' * 12}", f"burgers, content {'e' * 12}",
    )  # fmt: skip
    digests = {"data (SHA-256)": ["f" * 64, None], "x": ["g" * 64, None]}
    assert report._shortened(digests) == {"data (SHA-256)": ["f" * 12, None], "x": ["g" * 64, None]}


def test_a_notice_names_the_runs_that_saw_the_test_samples(compared):
    assert report._notice(compared) == ""
    seen = Variant("seen", (Path("o"),), (a_run(0, 1.0, published=True),), (a_score(FIRST, 1.0),))
    assert report._notice(Comparison((seen, seen))) == report.NOTICE
    assert report._notice(Comparison((compared.variants[0], seen))) == (
        f"seen: {report.NOTICE} The other runs did not see the test samples."
    )


def test_runs_that_differ_by_their_seed_alone_have_a_mean_and_a_deviation(compared, monkeypatch):
    monkeypatch.setattr(Comparison, "differing", lambda self: {"training.seed": [0, 1]})
    text = report._score_section(compared).text
    assert text[2] == (
        "The runs differ only in their seed: the mean error is 3.88e-1, its standard deviation "
        f"over the seeds {100 * np.std([0.35, 0.425], ddof=1):.2f}e-2."
    )


def test_runs_on_other_samples_are_not_drawn_sample_by_sample(compared):
    one, two = compared.variants
    with_two = report._error_section(compared)
    assert [p.name for p in with_two.pictures] == ["error-distributions", "sample-by-sample"]
    alone = report._error_section(Comparison((one, replace(two, comparable=False))))
    assert [p.name for p in alone.pictures] == ["error-distributions"]


def test_runs_on_other_samples_are_named_and_not_compared(compared):
    one, two = compared.variants
    assert not any("evaluated on other" in line for line in report._score_section(compared).text)
    section = report._score_section(Comparison((one, replace(two, comparable=False))))
    assert section.text[-1] == (
        "both: evaluated on other samples, variables or grids than deep. These scores are of "
        "another problem, so nothing is compared sample by sample."
    )
    (table,) = section.tables
    assert [row[0] for row in table.rows] == [
        "deep", "both", "mean of the training targets, data of deep",
    ]  # fmt: skip


def test_a_single_sample_has_no_interval():
    assert report._within(0.1, 0.3) == "1.00e-1 … 3.00e-1"
    assert report._within(-float("inf"), float("inf")) == "—"


def test_seeds_are_told_where_a_variant_has_several(compared):
    alone = replace(compared.variants[0], name="alone")
    (table,) = report._difference_section(Comparison((compared.variants[0], alone))).tables
    assert [row[0] for row in table.rows] == ["model.depth"]
