"""Model folders: the weights of a finished run with a card; `load_model` predicts the same bits."""

import json
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import operators
from operators import CheckpointError
from pdegen.files import read_json
from pdegen.formats.arrays import FormatError
from pipelines.config.declared import parse_model
from pipelines.runs import model_folder
from pipelines.runs.finished import read_result
from pipelines.runs.folder import RunError
from pipelines.runs.model_folder import card, export_model
from tests.forked import forked


@pytest.fixture(scope="module")
def folder(finished, tmp_path_factory):
    """Folder of a model, read-only."""
    return export_model(finished[0], tmp_path_factory.mktemp("models") / "one")


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "model")


@pytest.mark.parametrize("name", ["published", "inverse"])
def test_a_model_predicts_the_same_bits_as_its_run(request, tmp_path, name):
    run, store = request.getfixturevalue(name)
    folder = export_model(run, tmp_path / "model")
    assert sorted(path.name for path in folder.iterdir()) == [
        ".written.jsonl", "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip
    there = json.loads((run / "scores.json").read_text())["results"][0]["checkpoint"]
    moved = (tmp_path / "elsewhere").absolute()
    shutil.move(folder, moved)
    a = operators.load_model(run / f"{there}.safetensors")
    b = operators.load_model(moved)
    test = operators.read_pairs(store, "test", input=_data(run)["input"])
    values = torch.randn(3, *test.a.shape[1:-1], a.predictor.operator.in_channels)
    assert torch.equal(a.predict(values, test.x), b.predict(values, test.x))
    assert a.description == b.description
    chosen = "the test split was scored after each epoch, and\nthese are the weights of the last"
    assert (chosen in (moved / "README.md").read_text("utf-8")) is (there == "last")


def _data(run):
    return read_json(run / "scores.json")["data"]


def test_the_commands_take_a_model_folder(pdegen, finished, folder):
    run, store = finished
    scores = [
        pdegen("evaluate", place, "--data", store, "--out", f"{k}.json")
        for k, place in enumerate((folder, run / "best.safetensors"))
    ]
    assert [outcome.status for outcome in scores] == [0, 0]
    first, second = (json.loads(Path(f"{k}.json").read_text()) for k in (0, 1))
    assert first["errors"] == second["errors"]
    assert pdegen("export", run, "--format", "model").status == 0
    assert operators.load_model("run.model").description["epoch"] == first["epoch"]


def test_the_card_says_what_maps_what_and_how_well(finished, folder):
    text, run = (folder / "README.md").read_text("utf-8"), finished[0]
    header = dict(line.split(": ", 1) for line in text.split("---\n")[1].splitlines())
    (model,) = json.loads(header["model-index"])
    scores = read_json(run / "scores.json")
    best = [one for one in scores["results"] if one["checkpoint"] == "best"]
    assert [one["metrics"][0]["value"] for one in model["results"]] == [o["mean"] for o in best]
    for one in best:
        assert (
            f"| this model | {one['resolution']} | {one['samples']} | {one['mean']:.3e} |" in text
        )
    for one in scores["trivial"]:
        assert f"| {one['checkpoint']} | {one['resolution']} |" in text
    for word in (scores["data"]["fingerprint"], scores["data"]["content"], "operators.load_model"):
        assert word in text
    assert "Protocol `validation`" in text
    assert "the test split was read once" in text
    assert re.search(r"```toml\nname = \"burgers-quick\"", text)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_damaged_model_is_refused_in_one_line(folder, tmp_path, store, refused):
    config = (folder / "config.json").read_text()
    for name, damage, said in (
        ("model.safetensors", flipped, "model.safetensors is damaged, or config.json"),
        ("model.safetensors", Path.unlink, "model.safetensors: no such checkpoint"),
        ("config.json", Path.unlink, "is a folder without config.json"),
        ("config.json", lambda f: f.write_text("{"), "config.json is damaged: it is not JSON"),
        ("config.json", lambda f: f.write_text(config + "{"), "config.json is damaged"),
        ("config.json", lambda f: f.write_text('{"format": "bert"}'), "does not describe a model"),
    ):
        copy = shutil.copytree(folder, tmp_path / "model", dirs_exist_ok=True)
        damage(copy / name)
        with pytest.raises(CheckpointError, match=said) as caught:
            operators.load_model(copy)
        assert "\n" not in str(caught.value)
        if (copy / "config.json").exists():
            assert said in refused("evaluate", copy, "--data", store)


def test_verify_notices_whatever_changes_in_a_model(pdegen, folder, copy, darcy, tmp_path):
    assert pdegen("verify", copy).out == [f"{copy}: verified"]
    assert pdegen("verify", copy, "--deep").status == 2
    others = export_model(darcy[0], tmp_path / "others")
    for name in ("README.md", "config.json", "model.safetensors"):
        whole = (folder / name).read_bytes()
        half = bytearray(whole)
        half[len(half) // 2] ^= 4
        for data in (bytes(half), whole[:-1], None, (others / name).read_bytes()):
            (copy / name).unlink()
            if data is not None:
                (copy / name).write_bytes(data)
            outcome = pdegen("verify", copy)
            assert outcome.status in (1, 2)
            assert outcome.out == []
            assert name in outcome.err[0]
            (copy / name).write_bytes(whole)
    assert pdegen("verify", copy).status == 0


def test_a_licence_may_be_written_into_the_card_of_a_model(pdegen, copy):
    card = (copy / "README.md").read_text("utf-8")
    assert "\nlicense: " in card
    (copy / "README.md").write_text(re.sub("\nlicense: .*", "\nlicense: mit", card), "utf-8")
    assert pdegen("verify", copy).status == 0


def test_weights_of_another_run_do_not_pass_for_those_of_the_card(copy, darcy):
    shutil.copy(darcy[0] / "best.safetensors", copy / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"config\.json beside it describes other weights"):
        operators.load_model(copy)


def test_only_a_model_is_replaced(finished, copy, tmp_path):
    with pytest.raises(RunError, match="exists: use --overwrite"):
        export_model(finished[0], copy)
    export_model(finished[0], copy, overwrite=True)
    (copy / "README.md").write_text("mine")
    with pytest.raises(FormatError, match=r"README\.md, which no export .* or which was edited"):
        export_model(finished[0], copy, overwrite=True)
    assert (copy / "README.md").read_text() == "mine"
    (tmp_path / "other").mkdir()
    with pytest.raises(RunError, match="is no model folder"):
        export_model(finished[0], tmp_path / "other", overwrite=True)


def test_a_killed_export_leaves_no_folder(finished, tmp_path, monkeypatch):
    def action():
        monkeypatch.setattr(model_folder, "card", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        export_model(finished[0], tmp_path / "model")

    assert forked(action).killed
    assert not (tmp_path / "model").exists()
    export_model(finished[0], tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_others_put_beside_a_model_is_never_lost(finished, copy, refused):
    for name in (".git", "notes.txt"):
        (copy / name).mkdir()
        words = ("export", finished[0], "--format", "model", "--out", copy, "--overwrite")
        assert f"holds {name}, which no export has written" in refused(*words)
        (copy / name).rmdir()


def test_the_card_of_an_operator_with_quadrature_passes_its_weights(finished):
    result = read_result(finished[0])
    assert "\nu = model.predict(a, x)\n" in card(result)
    model = parse_model({"name": "galerkin-transformer", "quadrature": True})
    experiment = result.experiment.model_copy(update={"model": model})
    text = card(replace(result, experiment=experiment))
    assert "w: (*grid), quadrature weights\nu = model.predict(a, x, weight=w)\n" in text


def test_words_of_people_end_neither_the_header_nor_the_text(finished):
    result = read_result(finished[0])
    summary = 'a: "b"\x7f \x85\u2028<script>\n# c\n```\n# d [e](https://example.org) \x1b\u202e'
    changes = {"summary": summary, "name": "f](https://example.org)\x1b"}
    hostile = replace(result, experiment=result.experiment.model_copy(update=changes))
    _, header, text = card(hostile).split("---\n", 2)
    (model,) = yaml.safe_load(header)["model-index"]
    assert {one["task"]["name"] for one in model["results"]} == {summary}
    title = text.partition("## ")[0]
    assert not re.search(r"(?<!\\)(<script|\]\()", title)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "\n# c" not in text.partition("## ")[0]
    assert text.count("\n```") == 2 * 4  # of Python, sh, TOML and BibTeX
