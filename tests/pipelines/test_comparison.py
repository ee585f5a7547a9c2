"""A comparison says of each run what its files say, and differs with the right sign."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pdegen.files import write
from pipelines.reports import comparison_report
from pipelines.reports.comparison_report import _learning_section, write_comparison
from pipelines.reports.document import scientific
from pipelines.runs.comparison import (
    Comparison,
    Difference,
    mean_interval,
    read_comparison,
)
from tests.pipelines.conftest import CPU
from tests.pipelines.page import Page


def compared(out: Path, *folders: Path) -> tuple[Comparison, Page]:
    found = read_comparison(folders, out, CPU)
    return found, Page(write_comparison(found, out).read_text("utf-8"))


def errors(folder: Path, resolution: int = 16) -> np.ndarray:
    results = json.loads((folder / "scores.json").read_text("utf-8"))["results"]
    return np.array(next(r["errors"] for r in results if r["resolution"] == resolution))


def table(page: Page, first: str) -> list[list[str]]:
    """Rows of the table whose header begins with these words; the header is first."""
    at = next(k for k, row in enumerate(page.rows) if row[0] == first)
    width = len(page.rows[at])
    end = next(
        (k for k in range(at, len(page.rows)) if len(page.rows[k]) != width), len(page.rows)
    )  # fmt: skip
    return page.rows[at:end]


def numbers(words: list[str]) -> list[float]:
    return [float(word) for word in words]


def test_each_row_has_the_scores_of_its_run(three, runs):
    page = Page((three / "report.html").read_text("utf-8"))
    _, deep, seeds, *_ = table(page, "prediction")
    both = (errors(runs["run"]) + errors(runs["seeded"])) / 2
    for row, name, e in ((deep, "deep", errors(runs["deep"])), (seeds, "run (2 seeds)", both)):
        assert (row[0], row[-1]) == (name, str(len(e)))
        mean, half = numbers(row[1].split(" ± "))
        expected = [e.mean(), np.median(e), e.max(), e.std()]
        # three digits are written
        assert [mean, *numbers(row[2:5])] == pytest.approx(expected, rel=5.1e-3)
        expected = np.diff(stats.ttest_1samp(e, 0).confidence_interval())[0] / 2
        digit = 10.0 ** (np.floor(np.log10(mean)) - 2)  # the last one of the mean
        assert half == pytest.approx(expected, abs=0.51 * digit)
    means = [errors(runs[name]).mean() for name in ("run", "seeded")]
    assert (deep[5], seeds[5]) == ("—", scientific(float(np.std(means, ddof=1))))
    assert Path(three / "report.md").read_text("utf-8").count("run (2 seeds)") > 3


def test_differences_are_to_the_first_run_sample_by_sample(three, runs):
    page = Page((three / "report.html").read_text("utf-8"))
    header, row = table(page, "against deep")
    e, r = (errors(runs["run"]) + errors(runs["seeded"])) / 2, errors(runs["deep"])
    interval = stats.ttest_rel(e, r).confidence_interval()
    ratio = stats.ttest_1samp(np.log(e / r), 0).confidence_interval()
    assert (header[1], row[0]) == ("mean of e − r", "run (2 seeds)")
    assert float(row[1]) == pytest.approx((e - r).mean(), rel=5.1e-3)
    assert numbers(row[2].split(" … ")) == pytest.approx([*interval], rel=5.1e-3)
    assert float(row[3]) == pytest.approx(np.exp(np.log(e / r).mean()), rel=5.1e-3)
    assert numbers(row[4].split(" … ")) == pytest.approx(np.exp([*ratio]), rel=5.1e-3)
    assert row[5] == f"{(e < r).sum()} of {len(e)}"
    kept = json.loads((three / "comparison.json").read_text("utf-8"))["differences"]
    assert kept["run (2 seeds)"]["mean"] == pytest.approx((e - r).mean())
    measures = table(page, "measure, mean")
    assert len(measures) > 1
    assert {*measures[0][1:]} == {"deep", "run (2 seeds)"}


def test_learning_curves_of_seeds_are_their_mean_and_range(runs, monkeypatch):
    curves, calls = comparison_report.curves, []
    monkeypatch.setattr(
        comparison_report, "curves", lambda *a, **k: (calls.append((a, k)), curves(*a, **k))[1]
    )
    found = read_comparison([runs["deep"], runs["run"], runs["seeded"]], Path("nowhere"), CPU)
    _learning_section(found)
    one, other = (run.history for run in found.variants[1].runs)
    a, b = (np.array([epoch.score for epoch in history]) for history in (one, other))
    seconds = [np.cumsum([epoch.seconds for epoch in history]) for history in (one, other)]
    for ((series, *_), options), places in zip(
        calls, ([1, 2], np.mean(seconds, axis=0)), strict=True
    ):
        assert series["run (2 seeds)"][0] == pytest.approx(places)
        assert series["run (2 seeds)"][1] == pytest.approx((a + b) / 2)
        assert list(options["bands"]) == ["run (2 seeds)"]
        low, high = options["bands"]["run (2 seeds)"]
        assert low == pytest.approx(np.minimum(a, b))
        assert high == pytest.approx(np.maximum(a, b))
    assert not np.array_equal(a, b)


def test_the_verdict_follows_the_interval():
    r = np.linspace(2, 3, 12)
    for shift, noise, verdict in (
        (-1.0, 0.1, "smaller"), (1.0, 0.1, "larger"), (0.1, 1.0, "not significant"),
    ):  # fmt: skip
        e = r + shift + noise * np.tile([-1.0, 1.0], 6)
        assert Difference.of(e.tolist(), r.tolist()).verdict == verdict
    assert mean_interval([2.0]) == (2.0, float("inf"))
    assert Difference.of([1.0], [2.0]).verdict == "not significant"
    for e in ([np.inf, 1.0, 1.0], [np.inf, np.nan, 1.0]):
        assert Difference.of(e, [0.1, 0.1, 0.1]).verdict == "not finite"
        assert Difference.of([0.1, 0.1, 0.1], e).verdict == "not finite"
    assert Difference.of([np.inf, 1.0], [np.inf, 2.0]).verdict == "not finite"


def test_only_keys_that_differ_are_shown_side_by_side(three):
    header, *rows = table(Page((three / "report.html").read_text("utf-8")), "key")
    assert header == ["key", "deep", "run (2 seeds)"]
    found = {row[0]: row[1:] for row in rows}
    assert found == {
        "model.depth": ["2", "1"], "training.batch": ["4", "8"], "training.seed": ["0", "0 1"],
    }  # fmt: skip


def test_runs_of_other_seeds_alone_are_compared_and_drawn_whatever_they_are_called(runs, tmp_path):
    names = ["runs/_run", "runs/_seeded"]  # no legend shows names like these
    for name in names:
        shutil.copytree(runs[name[6:]], tmp_path / name)
    found, page = compared(tmp_path / "out", *(tmp_path / name for name in names))
    assert [variant.name for variant in found.variants] == names
    assert table(page, "key")[1:] == [["training.seed", "0", "1"]]
    assert "differ only in their seed" in "".join(page.words)
    assert table(page, "against runs/_run")[1][0] == names[1]
    for drawn in ("learning-by-epoch", "error-distributions", "same-samples"):
        svg = (tmp_path / f"out/pictures/{drawn}.svg").read_text("utf-8")
        assert all(name in svg for name in names)


def test_runs_on_other_data_are_compared_by_scores_alone(runs, published, tmp_path):
    other = shutil.copytree(published[0], tmp_path / "other")
    found, page = compared(tmp_path / "out", runs["run"], other)
    words = "".join(page.words)
    assert [variant.comparable for variant in found.variants] == [True, False]
    assert "other: evaluated on other samples" in words
    assert "against run" not in words
    assert "The same samples predicted by all runs" not in words
    _, *rows = table(page, "prediction")
    expected = found.variants[1].first.main.mean
    assert next(float(row[2]) for row in rows if row[0] == "other") == pytest.approx(
        expected, rel=5.1e-3
    )
    assert any(row[0] == "test samples from" and row[1] != row[2] for row in table(page, "key"))
    assert "other: Published protocol" in words
    assert "The other runs did not see the test samples" in words


@pytest.mark.usefixtures("three", "unpainted")
def test_a_run_that_is_only_trained_is_evaluated(runs, pdegen, tmp_path):
    copy = shutil.copytree(runs["deep"], tmp_path / "copy")
    scores = json.loads((copy / "scores.json").read_text())
    (copy / "scores.json").unlink()
    assert pdegen("compare", runs["run"], copy, "--out", tmp_path / "new").status == 0
    again = json.loads((copy / "scores.json").read_text())
    assert [r["errors"] for r in again["results"]] == [r["errors"] for r in scores["results"]]


@pytest.mark.usefixtures("three")
def test_wrong_requests_are_refused_before_anything_is_written(runs, refused, tmp_path):
    first, second = runs["run"], runs["deep"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    shutil.copytree(second, tmp_path / "copy")
    (tmp_path / "copy/history.jsonl").unlink()
    (tmp_path / "again").symlink_to(first)
    for words, said in (
        ([first, "--out", "new"], "needs two or more runs"),
        ([first, second, first, "--out", "new"], "is named twice"),
        ([first, "again", "--out", "new"], "again is named twice"),
        ([first, tmp_path / "full", "--out", "new"], "is not a finished run, run.json is missing"),
        (
            [first, tmp_path / "copy", "--out", "new"],
            "is not a finished run, history.jsonl is missing",
        ),
        ([first, second, "--out", "full"], "full exists and is no comparison"),
        ([first, second, "--out", "copy/new"], "copy/new is in the run"),
        ([first, second, "--out", first / "new"], "is in the run"),
        ([first, second, "--out", "full/x"], "is a file, not a folder"),
        ([first, "nowhere"], "nowhere: no such folder"),
    ):
        assert said in refused("compare", *words)


@pytest.mark.usefixtures("unpainted")
def test_a_comparison_is_replaced_where_that_is_asked(runs, three, pdegen, refused, tmp_path):
    out = shutil.copytree(three, tmp_path / "runs/compared")
    words = ["compare", runs["run"], runs["deep"]]
    left = out / "pictures/left.svg"
    write(left, b"of an earlier comparison")
    assert "runs/compared holds a comparison: use --overwrite" in refused(*words)
    outcome = pdegen(*words, "--overwrite")
    assert (outcome.status, outcome.out) == (0, ["runs/compared/report.html"])
    variants = json.loads((out / "comparison.json").read_text())["variants"]
    assert [one["name"] for one in variants] == ["run", "deep"]
    assert not left.exists()


def test_the_tab_key_offers_finished_runs(runs, monkeypatch):
    from pipelines.cli.common import finished_runs

    monkeypatch.chdir(runs["deep"].parent)
    assert (finished_runs(""), finished_runs("se")) == (["deep", "seeded"], ["seeded"])
    folder = str(runs["deep"].parent)
    assert finished_runs(f"{folder}/d") == [f"{folder}/deep"]


def test_what_is_not_finite_is_null_in_the_file(three, runs):
    found = read_comparison([runs["run"], runs["deep"]], three.parent / "absent", CPU)
    one = [
        replace(v, scores=tuple(
            replace(s, samples=s.samples[:1], errors=s.errors[:1]) for s in v.scores
        ))
        for v in found.variants
    ]  # fmt: skip
    said = Comparison(tuple(one)).summary()
    json.dumps(said, allow_nan=False)
    assert said["differences"]["deep"]["half"] is None
    assert said["differences"]["deep"]["samples"] == 1
