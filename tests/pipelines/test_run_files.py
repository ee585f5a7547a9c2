"""Runs that were killed or damaged, and places that are none for a run."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint, saving_checkpoint
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.runs.evaluation import evaluate_run
from pipelines.runs.folder import RunError, check_name
from pipelines.runs.training import train, train_part
from tests.pipelines.command import history
from tests.pipelines.conftest import SMALL

pytestmark = pytest.mark.usefixtures("unpainted")

CPU = torch.device("cpu")
# run.json, experiment.toml, mean; best, last, state, history and its table of each of two epochs
WRITES = 13


class Killed(BaseException):
    """Like the end of the process: nothing is tidied up."""


def experiment(epochs: int) -> Experiment:
    return load_experiment("burgers-quick").with_overrides({**SMALL, "training.epochs": epochs})


def words(store: str, out: Path, **further: object) -> list[str]:
    given = {**SMALL, "training.epochs": 2, **further}
    sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    return ["train", "burgers-quick", "--data", store, "--out", str(out), *sets]


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """Trainings of one and of two epochs that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    for epochs in (1, 2):
        train(experiment(epochs), store, folder / str(epochs), CPU)
    return {epochs: folder / str(epochs) for epochs in (1, 2)}


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "run")


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def at_write(number: int, after: bool) -> Callable[[Path, Path], None]:
    """A renaming that kills its process at its call of this number, before or after it."""
    calls, replace = iter(range(1, 100)), os.replace

    def renamed(partial: Path, path: Path) -> None:
        last = next(calls) == number
        if not last or after:
            replace(partial, path)
        if last:
            raise Killed

    return renamed


# the last one is between state.pt and history.jsonl
@pytest.mark.parametrize(
    ("number", "after"), [*((number, False) for number in range(1, WRITES + 1)), (11, True)]
)
def test_a_run_that_was_killed_at_any_write_goes_on_to_the_same_bits(
    store, whole, tmp_path, monkeypatch, number, after
):
    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(os, "replace", at_write(number, after))
        train(experiment(2), store, tmp_path / "run", CPU)
    train(experiment(2), store, tmp_path / "run", CPU, resume=True)
    for name in ("best.safetensors", "last.safetensors", "run.json", "experiment.toml"):
        assert (tmp_path / "run" / name).read_bytes() == (whole[2] / name).read_bytes()
    assert history(tmp_path / "run") == history(whole[2])
    assert not list((tmp_path / "run").glob("*.partial"))


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors", "state.pt"])
def test_a_damaged_checkpoint_is_refused_when_resumed(copy, store, name):
    whole = (copy / name).read_bytes()
    for kept in (0, 100, -1):
        (copy / name).write_bytes(whole[:kept])
        with pytest.raises(RunError, match=rf"{name} is damaged.* again by --overwrite"):
            train(experiment(2), store, copy, CPU, resume=True)


@pytest.mark.parametrize("name", ["history.jsonl", "run.json"])
def test_a_damaged_record_is_mended_when_resumed(copy, store, name):
    right = (copy / name).read_bytes()
    for kept in (0, 100, -3):
        (copy / name).write_bytes(right[:kept])
        train(experiment(2), store, copy, CPU, resume=True)
        assert (copy / name).read_bytes() == right
    (copy / "run.json").write_bytes(b"")
    (copy / "last.safetensors").write_bytes(b"")  # from which it would be mended
    with pytest.raises(RunError, match=r"run\.json is damaged.*: start again by --overwrite"):
        train(experiment(2), store, copy, CPU, resume=True)


def test_a_part_of_a_study_stays_where_its_folder_cannot_be_written_to(copy, store, monkeypatch):
    def full(**where):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = files_in(copy)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(RunError, match="cannot be written to"):
        train_part(experiment(2), store, copy, CPU, lambda epoch: None, lambda: False)
    assert files_in(copy) == before


def test_a_replaced_run_leaves_no_report_of_the_old_one(copy, store):
    assert (copy / "report.html").exists()
    train(experiment(1), store, copy, CPU, overwrite=True)
    assert not (copy / "report.html").exists()
    assert not (copy / "scores.json").exists()


def test_history_without_an_epoch_is_damaged(refused, copy):
    lines = (copy / "history.jsonl").read_text("utf-8").splitlines(keepends=True)
    for left in (lines[1:], [lines[0], lines[0]]):
        (copy / "history.jsonl").write_text("".join(left), "utf-8")
        assert "history.jsonl is damaged: an epoch is missing" in refused("report", copy)


# wrong requests


def test_a_folder_is_evaluated_by_its_checkpoint(refused, copy, store, tmp_path):
    line = refused("evaluate", copy, "--data", store)
    assert line == f"pdegen: {copy} is a folder: name its checkpoint, {copy}/best.safetensors"
    (tmp_path / "empty").mkdir()
    assert "without config.json" in refused("evaluate", tmp_path / "empty", "--data", store)


def test_a_checkpoint_of_no_experiment_is_refused(refused, copy, store):
    predictor, description = load_checkpoint(copy / "best.safetensors", build_operator)
    for absent in ("epoch", "experiment"):
        kept = {k: v for k, v in description.items() if k not in (absent, "sha256")}
        saving_checkpoint(copy / "best.safetensors", predictor, kept)()
        line = refused("evaluate", copy / "best.safetensors", "--data", store)
        assert f"is of no experiment: it has no {absent}" in line


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_a_place_below_proc_is_refused_before_anything(refused, copy, store):
    best, place = copy / "best.safetensors", Path("/proc/x")
    for request in (
        ["evaluate", best, "--data", store, "--out", place],
        words(store, place),
        ["run", "burgers-quick", "--out", place],
        ["benchmark", "quick", "--out", place],
        ["benchmark", "profile-quick", "--out", place],
        ["study", "samples", "--quick", "--out", place],
        ["study", "noise", "darcy-inverse-quick", "--out", place],
    ):
        line = refused(*request)
        assert "cannot be written to: choose another --out" in line
        assert "Errno" not in line
    assert "/proc/x: no such folder" in refused("report", place)


def test_what_is_no_file_is_not_waited_for(refused, copy, store):
    for name in ("run.json", "state.pt", "best.safetensors", "history.jsonl"):
        (copy / name).rename(copy / "kept")
        os.mkfifo(copy / name)
        for request in (["--resume"], ["--overwrite"]):
            line = refused(*words(store, copy), *request)
            assert f"{name} is not a regular file, expected a file" in line
        assert name == "state.pt" or name in refused("report", copy)
        (copy / "kept").replace(copy / name)


def test_scores_go_to_no_folder_or_pipe(refused, pdegen, copy, store, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    request = ["evaluate", copy / "best.safetensors", "--data", store, "--out"]
    for place in (tmp_path / "pipe", copy):
        assert "expected a file" in refused(*request, place)
    for place in (copy / "last.safetensors", copy / "scores.json", copy / "run.json"):
        before = place.read_bytes()
        assert "holds something else and is not replaced" in refused(*request, place)
        assert place.read_bytes() == before
    for _ in range(2):
        assert pdegen(*request, "new/scores.json", "--resolution", "16").status == 0
    assert json.loads((tmp_path / "new/scores.json").read_text("utf-8"))["epoch"] > 0


def test_what_has_no_room_is_refused_before_anything(refused, store, tmp_path):
    for key, value in (
        ("model.width", 10**18), ("model.depth", 10**9), ("model.feedforward", 10**8),
        ("model.width", 60_000), ("training.batch", 10**20),
    ):  # fmt: skip
        line = refused(*words(store, tmp_path / "run", **{key: value}))
        assert re.search("GiB|at most|is larger than", line)
        assert "alloc" not in line


def test_the_report_of_a_training_evaluates_it_where_it_is_finished(
    refused, pdegen, store, tmp_path
):
    small = ["--set", "training.epochs=1", "--set", "training.batch=8", "--set", "model.modes=4",
             "--set", "model.width=8", "--set", "model.depth=1"]  # fmt: skip
    words = ["train", "--model", "fno", "--data", store, "--out", "run", *small]
    assert pdegen(*words).status == 0
    shutil.copytree(tmp_path / "run", tmp_path / "unfinished")
    (tmp_path / "unfinished/history.jsonl").unlink()
    start = "pdegen: unfinished is not a finished run, scores.json is missing: pdegen run "
    assert refused("report", "unfinished").startswith(start)
    assert pdegen("report", "run").status == 0
    assert (tmp_path / "run/report.html").exists()


@pytest.fixture(scope="module")
def other(store, tmp_path_factory):
    """A training from another seed."""
    folder = tmp_path_factory.mktemp("other")
    train(experiment(1).with_overrides({"training.seed": 1}), store, folder, CPU)
    return folder


def test_a_file_of_another_seed_is_refused_or_written_again(whole, other, store, tmp_path, refused):
    for file in ("state.pt", "best.safetensors", "last.safetensors"):
        run = shutil.copytree(whole[1], tmp_path / file)
        shutil.copy(other / file, run / file)
        with pytest.raises(
            RunError, match=rf"{re.escape(file)} belongs to another training: .*--over"
        ):
            train(experiment(1), store, run, CPU, resume=True)
    run = shutil.copytree(whole[1], tmp_path / "run")
    evaluate_run(experiment(1), store, run, CPU)
    shutil.copy(other / "history.jsonl", run / "history.jsonl")
    assert "history.jsonl belongs to another result" in refused("report", run)
    train(experiment(1), store, run, CPU, resume=True)
    assert (run / "history.jsonl").read_bytes() == (whole[1] / "history.jsonl").read_bytes()


@contextmanager
def holding(run: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a folder, as one that trains there does."""
    script = (
        "import pathlib, sys, time; from pdegen.files import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(run)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        try:
            yield holder
        finally:
            holder.kill()


def test_one_folder_is_trained_in_by_one_process(store, tmp_path):
    """Whichever way the process ends that holds it."""
    run = tmp_path / "run"
    with holding(run) as holder:
        with pytest.raises(RunError, match=r"run is held by another process"):
            train(experiment(1), store, run, CPU)
        assert [path.name for path in run.iterdir()] == ["lock"]
        holder.kill()
    assert len(train(experiment(1), store, run, CPU)) == 1
    assert not (run / "lock").exists()


def test_a_part_of_a_study_that_another_process_trains_is_left(copy, store):
    """Whether that has declared its run or not."""
    for begun in (True, False):
        if not begun:
            (copy / "run.json").unlink()
        before = files_in(copy)
        with holding(copy), pytest.raises(RunError, match="is held by another process"):
            train_part(experiment(2), store, copy, CPU, lambda epoch: None, lambda: False)
        after = files_in(copy)
        after.pop("lock", None)  # of the holder that was killed
        before.pop("lock", None)
        assert after == before


def test_the_lock_of_a_folder_follows_no_link(copy, store, tmp_path):
    (copy / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        train(experiment(2), store, copy, CPU, resume=True)
    assert not (tmp_path / "elsewhere").exists()


def test_a_run_behind_a_link_is_not_overwritten(copy, store, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(copy)
    before = files_in(copy)
    with pytest.raises(RunError, match=r"is a symbolic link to .* --overwrite would replace"):
        train(experiment(2), store, link, CPU, overwrite=True)
    assert files_in(copy) == before


def test_a_rise_within_one_step_is_refused(refused, store, tmp_path):
    """PyTorch's schedule divides by the steps of the rise, less one."""
    rise = {"training.batch": 8, "training.epochs": 8, "training.warmup": 1 / 16}  # 16 samples
    error = refused(*words(store, tmp_path / "run", **rise))
    assert "warmup 0.0625 is one step of 16" in error
    assert not (tmp_path / "run").exists()


def test_a_folder_in_the_place_of_a_file_is_refused_with_advice(tmp_path):
    check_name(tmp_path / "absent.png")
    (tmp_path / "file.png").write_text("older")
    check_name(tmp_path / "file.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(RunError, match=r"folder\.png .*: remove it, or choose another --out"):
        check_name(tmp_path / "folder.png")
