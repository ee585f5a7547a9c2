"""`--overwrite` removes what was written here, and refuses before anything where more is there."""

import shutil

import pytest
import torch

from pdegen.files import write, write_json
from pipelines.reports.document import Report
from pipelines.runs.comparison import COMPARISON
from pipelines.runs.folder import FolderClaim, RunError
from pipelines.runs.training import train
from tests.pipelines.test_run_files import experiment, files_in

HELD = [
    COMPARISON,
    *(FolderClaim(word, f"{word}.json") for word in ("study", "profile", "benchmark")),
]
EACH = pytest.mark.parametrize("holding", HELD, ids=lambda holding: holding.word)


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "run")


@EACH
def test_a_declaration_that_somebody_else_wrote_is_not_believed(holding, tmp_path):
    write_json(tmp_path / holding.file, {"name": "mine"})
    (tmp_path / "thesis.tex").write_text("mine", "utf-8")
    before = files_in(tmp_path)
    with pytest.raises(RunError, match=rf"{holding.file}, thesis\.tex; nothing was deleted"):
        holding.claim(tmp_path, {}, overwrite=True)
    assert files_in(tmp_path) == before


@EACH
def test_files_of_others_are_named_and_nothing_is_deleted(holding, tmp_path):
    for name in ("tables/mine.csv", "pictures/mine.svg", "notes.txt", "rows/a"):
        holding.claim(tmp_path, {}, overwrite=True)
        for ours in ("tables/scores.csv", "rows/a.json"):
            write(tmp_path / ours, b"ours")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine", "utf-8")
        before = files_in(tmp_path)
        with pytest.raises(RunError, match=rf"{name}; nothing was deleted"):
            holding.claim(tmp_path, {}, overwrite=True)
        assert files_in(tmp_path) == before
        (tmp_path / name).unlink()
    holding.claim(tmp_path, {}, overwrite=True)
    assert not (tmp_path / "tables").exists()


def test_a_run_with_files_of_others_is_not_replaced(copy, store):
    for name in ("tables/mine.csv", "pictures/mine.svg", "mine.txt", "report.md"):
        place = copy / name
        kept = place.read_bytes() if place.exists() else None
        place.write_text("mine", "utf-8")
        before = files_in(copy)
        with pytest.raises(RunError, match=rf"{name}; nothing was deleted"):
            train(experiment(1), store, copy, torch.device("cpu"), overwrite=True)
        assert files_in(copy) == before
        place.unlink() if kept is None else place.write_bytes(kept)


def test_a_report_replaces_no_file_of_others(tmp_path):
    FolderClaim("study", "study.json").claim(tmp_path, {})
    for name in ("pictures", "tables"):
        (tmp_path / name).mkdir()
    mine = [tmp_path / "pictures/mine.svg", tmp_path / "tables/mine.csv", tmp_path / "report.md"]
    for path in mine:
        path.write_text("mine", "utf-8")
    with pytest.raises(ValueError, match=r"report\.md was not written by pdegen"):
        Report(title="t", summary="s", notice="", headline=[], sections=[]).write(tmp_path)
    assert [path.read_text("utf-8") for path in mine] == ["mine"] * 3


def test_predictions_beside_a_checkpoint_go_with_the_run(copy, store, pdegen):
    assert pdegen("predict", copy / "best.safetensors", "--data", store).status == 0
    (copy / "best-predictions.zarr/mine.txt").touch()
    request = ("predict", copy / "best.safetensors", "--data", store, "--overwrite")
    assert "holds another file, mine.txt" in pdegen(*request).err[0]
    shutil.copytree(copy, copy.parent / "again")
    (copy / "best-predictions.zarr/mine.txt").unlink()
    train(experiment(1), store, copy, torch.device("cpu"), overwrite=True)
    assert not (copy / "best-predictions.zarr").exists()


def test_another_run_inside_a_run_is_not_removed_with_it(copy, store):
    train(experiment(1), store, copy / "inner", torch.device("cpu"))
    before = files_in(copy)
    with pytest.raises(RunError, match=r"inner/best\.safetensors, .*nothing was deleted"):
        train(experiment(1), store, copy, torch.device("cpu"), overwrite=True)
    assert files_in(copy) == before


def test_nothing_is_written_into_a_sealed_store(copy, store, refused, tmp_path):
    own = shutil.copytree(store, tmp_path / "own.zarr")
    before = files_in(own)
    best = copy / "best.safetensors"
    for words in (
        ("evaluate", best, "--data", own, "--out", own / "scores.json"),
        ("predict", best, "--data", own, "--out", own / "p.zarr"),
        ("export", own, "--format", "mat", "--out", own / "u" / "own.mat"),
        ("generate", "burgers-quick", "--out", own / "inner.zarr"),
        ("train", "burgers-quick", "--data", own, "--out", own / "run"),
    ):
        assert "own.zarr is a store and takes no other files" in refused(*words)
    assert files_in(own) == before
