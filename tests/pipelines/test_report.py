"""A report says what the files of a run say, stands by itself, and refuses what is no run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from pdegen.files import read_json, write_json
from pdegen.schema import parse_overrides
from pdegen.software import processor
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import load_experiment
from pipelines.reports import report
from pipelines.reports import report as scores
from pipelines.reports.document import scientific
from pipelines.reports.report import distinct, facts, symmetries_row, write_report
from pipelines.runs.finished import ReportError, read_finished
from pipelines.runs.reproduction import reproduction
from tests.pipelines.page import Page, stands_alone
from tests.stores import resealed, with_attributes

CPU = torch.device("cpu")
RUNS = ["finished", "published", "darcy", "inverse"]


@pytest.fixture
def copy(finished, tmp_path):
    """A run folder that a test may damage."""
    run, store = finished
    return shutil.copytree(run, tmp_path / "run"), store


def page(run: Path) -> Page:
    return Page((run / "report.html").read_text("utf-8"))


@pytest.mark.parametrize("kind", RUNS)
def test_scores_are_those_of_the_file(kind, request):
    run, _ = request.getfixturevalue(kind)
    results = json.loads((run / "scores.json").read_text("utf-8"))["results"]
    read = page(run)
    header = ["checkpoint", "mean", "median", "worst", "spread", "epoch", "points", "samples"]
    at = read.rows.index(header)
    rows = read.rows[at + 1 : at + 1 + len(results)]
    assert len(results) == (4 if kind == "published" else 2)
    times = 1 if kind in ("finished", "published") else 2
    for row, result in zip(rows, results, strict=True):
        assert row[0].split()[0] == result["checkpoint"]
        assert [int(row[5]), int(row[7])] == [result[key] for key in ("epoch", "samples")]
        assert row[6] == " x ".join([str(result["resolution"])] * times)
        expected = [result[key] for key in ("mean", "median", "worst", "std")]
        # three digits are written
        assert [float(word) for word in row[1:5]] == pytest.approx(expected, rel=5.1e-3)
        assert all(re.fullmatch(r"\d\.\d\d(e-?\d+)?", word) for word in row[1:5])
    markdown = (run / "report.md").read_text("utf-8")
    assert all(f"| {' | '.join(row[1:])} |" in markdown for row in rows)


def rows_named(read: Page, header: list[str], count: int) -> list[list[str]]:
    at = read.rows.index(header)
    return read.rows[at + 1 : at + 1 + count]


def test_the_mean_of_the_training_targets_is_measured_beside_the_model(darcy):
    run, store = darcy
    opened = open_sealed(store)
    u = np.asarray(opened.values("u"), dtype=float)
    start, stop = opened.raw_attributes["splits"]["train"]
    mean = u[start:stop].mean(axis=0)
    test = u[slice(*opened.raw_attributes["splits"]["test"])]
    norm = partial(np.linalg.norm, axis=(1, 2))
    errors = norm(mean - test) / norm(test)
    header = ["prediction", "mean", "median", "worst", "spread"]
    model, baseline = rows_named(page(run), header, 2)
    expected = [errors.mean(), np.median(errors), errors.max(), errors.std()]
    assert baseline[0] == "mean of the training targets"
    # three digits are written
    assert [float(word) for word in baseline[1:]] == pytest.approx(expected, rel=5.1e-3)
    scores = json.loads((run / "scores.json").read_text("utf-8"))["results"]
    of_model = next(r for r in scores if r["resolution"] == 13)
    assert float(model[1]) == pytest.approx(of_model["mean"], rel=5.1e-3)


def test_further_measures_of_trivial_predictions_are_beside_the_model_on_their_grid_alone(darcy):
    run = read_finished(*darcy, CPU)
    coarse = [score for score in run.scores.results if score.resolution == 7]
    elsewhere = replace(run, scores=run.scores.model_copy(update={"results": coarse}))
    sections = [scores.scores_section(each) for each in (run, elsewhere)]
    beside, alone = (
        next(table for table in section.tables if table.name == "other measures")
        for section in sections
    )
    model = f"model ({run.checkpoint})"
    assert (beside.header, alone.header) == (("measure", model, "mean"), ("measure", model))
    note = "Further tables are for the model alone, at n = 7 x 7."
    assert [note in section.text for section in sections] == [False, True]


def test_an_inverse_run_measures_the_interface_beside_a_constant(inverse):
    header = ["prediction", "mean", "median", "worst", "spread", "IoU", "Hausdorff"]
    model, mean, constant = rows_named(page(inverse[0]), header, 3)
    assert model[0] == "model (last)"
    assert mean[0] == "mean of the training targets"
    # one phase alone has no interface, and covers at most one of the two
    assert constant[0].startswith("constant")
    assert float(constant[6]) == pytest.approx(2**0.5, abs=1e-3)
    assert float(constant[5]) <= 0.5
    assert 0 <= float(model[5]) <= 1


def test_the_facts_of_the_data_and_of_what_is_learned_are_told(finished, darcy, inverse):
    quick, forward, backward = (
        {row[0]: row[1] for row in page(run).rows if len(row) == 2}
        for run, _ in (finished, darcy, inverse)
    )
    for rows, (_, url) in ((quick, finished), (forward, darcy)):
        said = open_sealed(url).metadata
        sizes = [f"{name} {stop - start}" for name, (start, stop) in said.splits.items()]
        assert rows["Samples"] == f"{said.samples}; {', '.join(sizes)}; seed 0"
    worst = open_sealed(finished[1]).values("error").max()
    assert f"worst {scientific(worst)} (the solver's own estimate)" in quick["Label error"]
    measured = open_sealed(darcy[1]).raw_attributes["label_error"]["relative_l2"]
    assert f"worst {scientific(max(measured))} of 4 samples" in forward["Label error"]
    assert forward["Coefficient"] == "two phases: a = 12 where the field is ≥ 0, a = 3 elsewhere"
    assert forward["Learned"] == "a on 13 x 13 points → u on the same points"
    assert forward["Trained on"] == "n = 13 x 13 points, all 16 samples, all in memory"
    assert "Noise on a" not in forward
    assert backward["Learned"] == "u on 13 x 13 points → a, its averages over 5 x 5 cells"
    assert backward["Noise on u"].startswith("ensemble, level 0.1, seed 0; drawn anew in every")
    assert backward["Normalisation"] == "input pointwise, target scalar"
    assert quick["Optimizer"].startswith("soap (beta1 0.95, beta2 0.95, every 10), momentum const")
    assert quick["Symmetries"] == (
        "random shifts of the circle and odd reflections of the circle in training"
    )
    square = "random reflections and rotations of the square in training"
    assert forward["Symmetries"] == square
    assert backward["Symmetries"] == square


def test_a_report_is_the_same_whether_data_or_task_names_the_variables(inverse):
    run = read_finished(*inverse, CPU)
    by_task = {"data.input": "a", "data.target": "u", "task.inputs": ["u"], "task.targets": ["a"]}
    other = replace(run, experiment=run.experiment.with_overrides(by_task))
    for part in (facts, report.of_run, scores.scores_section):
        assert part(other) == part(run)
    assert other.phases == run.phases == (3, 12)


def test_skipped_samples_are_not_among_the_training_samples_of_a_report(darcy, tmp_path):
    run, store = darcy
    gaps = Store(str(shutil.copytree(store, tmp_path / "gaps.zarr")))
    gaps = resealed(with_attributes(gaps, skipped=[0, 3, 17]))  # the first 16 are to be trained on
    read = replace(read_finished(run, store, CPU), store=gaps)
    assert distinct(read) == gaps.samples_in("train") == 14
    assert dict(facts(read))["Trained on"] == "n = 13 x 13 points, all 14 samples, all in memory"


def test_the_symmetries_of_a_run_are_told():
    unused = dict.fromkeys(("shift", "reflection", "square", "diagonal", "mean"), False)
    assert symmetries_row(unused) == []
    assert symmetries_row({**unused, "square": True, "mean": True}) == [
        (
            "Symmetries",
            "random reflections and rotations of the square in training; predictions are means "
            "over the 8 images of the input",
        )
    ]
    assert symmetries_row({**unused, "diagonal": True})[0][1] == (
        "random shifts of the torus along (1, -1) in training"
    )


def test_a_published_run_is_labelled_as_watched_on_the_test_slice(published, finished):
    label = "the test slice was watched during training, as in published tables"
    read = page(published[0])
    assert label in "".join(read.words)
    assert label in (published[0] / "report.md").read_text("utf-8")
    assert {row[0] for row in read.rows} > {
        "last (watched on the test slice)",
        "best (selected on the test slice)",
    }
    assert "test slice" not in "".join(page(finished[0]).words)


def test_hostile_words_are_text(published):
    read = page(published[0])
    assert '<script>alert("1")</script>' in "".join(read.words)
    markdown = (published[0] / "report.md").read_text("utf-8")
    assert "\\<script\\>alert" in markdown
    assert "a \\| b \\`c\\` \\$d\\$ \\<b\\>" in markdown


@pytest.mark.parametrize("kind", RUNS)
def test_a_page_stands_alone_and_markdown_has_its_pictures_beside_it(kind, request):
    run, _ = request.getfixturevalue(kind)
    links = re.findall(r"!\[(.+)\]\((.+)\)", (run / "report.md").read_text("utf-8"))
    expected = {"published": 6, "inverse": 4}.get(kind, 5)  # errors at its times; one grid alone
    assert len(links) == expected
    assert all((run / link).read_text("utf-8").startswith("<svg") for _, link in links)
    assert len(
        re.findall(r'<svg role="img" aria-label="[^"]+"', (run / "report.html").read_text())
    ) == (expected)
    assert len(list((run / "pictures").glob("*.pdf"))) == expected
    stands_alone((run / "report.html").read_text("utf-8"))


def test_provenance_is_that_of_the_store(finished):
    run, store = finished
    attributes = json.loads((Path(store) / "zarr.json").read_text("utf-8"))["attributes"]
    rows = {row[0]: row[1] for row in page(run).rows if len(row) == 2}
    assert rows["Fingerprint"] == attributes["fingerprint"]
    assert rows["Content digest"] == attributes["content"]
    assert "torch" in rows["Run"]
    assert processor() in rows["Run"]
    assert processor() in rows["Data generated on"]
    assert "dask" not in rows["Data generated by"]


def test_the_command_leads_to_the_same_experiment(finished):
    run, store = finished
    declared = json.loads((run / "run.json").read_text("utf-8"))["experiment"]
    command = next(word for word in page(run).words if word.startswith("pdegen run"))
    _, _, name, *options = shlex.split(command)
    assert set(options[::2]) == {"--set"}
    again = load_experiment(name).with_overrides(parse_overrides(options[1::2]))
    assert again.model_dump(mode="json") == declared
    assert reproduction(load_experiment(name), open_sealed(store)).endswith(f"--data {store}")


@pytest.mark.parametrize("kind", ["published", "darcy", "inverse"])
def test_the_declaration_leads_to_the_same_experiment(kind, request, tmp_path):
    run, _ = request.getfixturevalue(kind)
    file = tmp_path / "experiment.toml"
    words = page(run).words
    assert kind != "published" or "pdegen run experiment.toml" in words
    file.write_text(next(w for w in words if w.startswith("# experiment\n")), "utf-8")
    declared = json.loads((run / "run.json").read_text("utf-8"))["experiment"]
    assert load_experiment(str(file)).model_dump(mode="json") == declared


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(path.read_bytes()[:-10]),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_text("[1, 2]\n"),
    ],
    ids=["absent", "cut", "binary", "other"],
)
def test_damaged_files_are_named_with_the_remedy(copy, damage):
    run, store = copy
    for file in ("run.json", "scores.json", "history.jsonl", "best.safetensors"):
        kept = (run / file).read_bytes()
        damage(run / file)
        with pytest.raises(ReportError, match=rf"^.*{file}.*pdegen run.*$") as caught:
            write_report(run, store, CPU)
        assert "\n" not in str(caught.value)
        (run / file).write_bytes(kept)


def test_what_belongs_to_another_run_or_an_unfinished_one_is_refused(copy, published):
    run, store = copy
    with pytest.raises(ReportError, match="has other data"):
        write_report(run, published[1], CPU)
    scores = read_json(run / "scores.json")
    other = {**scores, "results": [{**r, "epoch": r["epoch"] + 1} for r in scores["results"]]}
    write_json(run / "scores.json", other)
    with pytest.raises(ReportError, match=r"does not belong to best\.safetensors: evaluate again"):
        write_report(run, store, CPU)
    write_json(run / "scores.json", scores)
    lines = (run / "history.jsonl").read_text("utf-8").splitlines(keepends=True)
    (run / "history.jsonl").write_text(lines[0], "utf-8")
    with pytest.raises(ReportError, match=r"1 of 2 epochs: continue by .*--resume"):
        write_report(run, store, CPU)
