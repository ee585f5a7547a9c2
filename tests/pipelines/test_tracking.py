"""Trackers: a killed training that is resumed is read by the trackers' own readers."""

import csv
import logging
import os
import re
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from operators.training import fit
from operators.training.fit import read_history
from pdegen.files import read_json
from pipelines.config.experiment import load_experiment
from pipelines.runs import training as runs
from pipelines.runs.folder import track_results
from pipelines.tracking import tracker
from pipelines.tracking.tracker import METRICS, event_files, trackers
from tests.absent import absent
from tests.forked import forked
from tests.pipelines.conftest import CPU, SMALL

try:
    from mlflow import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard.writer import SummaryWriter
except ImportError:
    absent("tensorboard or mlflow is missing: make test installs them")

EPOCHS = 3
EXPERIMENT = load_experiment("burgers-quick").with_overrides({**SMALL, "training.epochs": EPOCHS})
# MLflow's model of its database, with the SQLAlchemy of the constraints
pytestmark = pytest.mark.filterwarnings("ignore:The ..noload.. loader strategy:DeprecationWarning")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """An empty database of MLflow, which takes seconds to make."""
    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    assert forked(lambda: MlflowClient(f"sqlite:///{path}").search_experiments()).status == 0
    return path


@pytest.fixture
def words(database, tmp_path):
    shutil.copy(database, tmp_path / "m.db")
    return ["tensorboard", f"mlflow:sqlite:///{tmp_path}/m.db"]


def train(store, folder, words, **options):
    runs.train(EXPERIMENT, store, folder, CPU, track=trackers(words), **options)


def seen_by_tensorboard(folder):
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {n: [(e.step, e.value) for e in events.Scalars(n)] for n in events.Tags()["scalars"]}


def runs_of(uri):
    client = MlflowClient(uri)
    groups = [one.experiment_id for one in client.search_experiments()]
    return client, client.search_runs(groups)


def seen_by_mlflow(uri):
    client, (run,) = runs_of(uri)
    return {
        name: sorted((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name))
        for name in run.data.metrics
    }


def check_seen(folder, words):
    """Every epoch of the history is in both stores once, with its values."""
    history = read_history(folder)
    assert len(history) == EPOCHS
    expected = {name: [(e.epoch, getattr(e, name)) for e in history] for name in METRICS}
    assert seen_by_mlflow(words[1].removeprefix("mlflow:")) == expected
    single = {n: [(k, float(np.float32(v))) for k, v in rows] for n, rows in expected.items()}
    assert seen_by_tensorboard(folder) == single
    with (folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == [str(k + 1) for k in range(EPOCHS)]
    assert {n: [(int(r["epoch"]), float(r[n])) for r in rows] for n in METRICS} == expected


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def kill(patch, owner, name, call, before, after):
    """Let the process die at a call of a function: in place of it, or after it."""
    function, count = getattr(owner, name), 0

    def counted(*args, **words):
        nonlocal count
        count += 1
        if count == call and before is not None:
            before(*args, **words)
        result = function(*args, **words)
        if count == call and after is not None:
            after(*args, **words)
        return result

    patch.setattr(owner, name, counted)


def cut_off(writer):
    """A record that is half on the disk."""
    (path,) = event_files(Path(writer.log_dir))
    os.truncate(path, path.stat().st_size - 9)
    die()


def some(client, run, metrics=(), params=()):
    """Half of the metrics of an epoch."""
    for metric in metrics[:2]:
        client.log_metric(run, metric.key, metric.value, metric.timestamp, metric.step)
    die()


MOMENTS = {
    "the state is written, the history is not": (fit, "_write_history", 2, die, None),
    "the training has a name, MLflow does not know it": (tracker, "_opened", 1, die, None),
    "MLflow knows the training, no epoch of it": (tracker, "_opened", 1, None, die),
    "a record of TensorBoard is cut off": (SummaryWriter, "flush", 2, None, cut_off),
    # the first batch is that of the parameters
    "TensorBoard has an epoch, MLflow does not": (MlflowClient, "log_batch", 3, die, None),
    "MLflow has half of an epoch": (MlflowClient, "log_batch", 3, some, None),
    "all is written, the end is not said": (MlflowClient, "set_terminated", 1, die, None),
}


# others of these moments are for make validate
OFTEN = {"MLflow knows the training, no epoch of it", "TensorBoard has an epoch, MLflow does not",
         "a record of TensorBoard is cut off"}  # fmt: skip


@pytest.mark.parametrize(
    "moment", [pytest.param(m, marks=() if m in OFTEN else pytest.mark.slow) for m in MOMENTS]
)
def test_a_killed_training_goes_on_with_each_step_once(store, words, tmp_path, moment, monkeypatch):
    folder = tmp_path / "run"

    def killed():
        kill(monkeypatch, *MOMENTS[moment])
        train(store, folder, words)

    assert forked(killed).killed
    ended = forked(lambda: train(store, folder, words, resume=True))
    assert ended.status == 0, ended.said
    check_seen(folder, words)


def test_a_tracker_that_fails_leaves_the_training_and_catches_up(
    store, words, tmp_path, monkeypatch, caplog
):
    log, calls = MlflowClient.log_batch, []

    def failing(client, run, metrics=(), params=()):
        calls.append(len(metrics) // len(METRICS))
        if len(calls) == 3:
            raise ConnectionError("the server is gone")
        log(client, run, metrics=metrics, params=params)

    monkeypatch.setattr(MlflowClient, "log_batch", failing)
    with caplog.at_level(logging.WARNING):
        train(store, tmp_path / "run", words)
    (said,) = [r.getMessage() for r in caplog.records if r.name.startswith("pipelines")]
    assert said.startswith("mlflow failed: the server is gone; its missing epochs")
    assert calls == [0, 1, 1, 2]  # parameters, then epochs
    check_seen(tmp_path / "run", words)


def test_a_tracker_that_is_gone_is_caught_up_by_resume(store, words, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(tracker, "_opened", lambda *_: 1 / 0)
        patch.setattr(SummaryWriter, "__init__", lambda *_, **__: 1 / 0)
        train(store, tmp_path / "run", words)
    assert runs_of(words[1].removeprefix("mlflow:"))[1] == []
    train(store, tmp_path / "run", words, resume=True)
    train(store, tmp_path / "run", words, resume=True)  # no epoch twice
    check_seen(tmp_path / "run", words)


def test_a_run_that_is_replaced_is_another_one(store, words, tmp_path):
    uri = words[1].removeprefix("mlflow:")
    train(store, tmp_path / "run", words)
    (first,) = runs_of(uri)[1]
    train(store, tmp_path / "run", words, overwrite=True)
    client, both = runs_of(uri)
    (second,) = [run for run in both if run.info.run_id != first.info.run_id]
    history = client.get_metric_history(second.info.run_id, "loss")
    assert sorted(m.step for m in history) == [1, 2, 3]
    assert [step for step, _ in seen_by_tensorboard(tmp_path / "run")["loss"]] == [1, 2, 3]


def test_mlflow_has_the_experiment_the_digests_the_scores_and_the_report(finished, words, tmp_path):
    run, store = finished
    folder = shutil.copytree(run, tmp_path / "run")
    scores = read_json(folder / "scores.json")
    for _ in range(2):  # no step twice
        # two test samples have their mean as their median
        results = [{**one, "median": 2 * one["mean"]} for one in scores["results"]]
        track_results(trackers(words), folder, store, results, scores["provenance"])
    client, (seen,) = runs_of(words[1].removeprefix("mlflow:"))
    assert seen.info.status == "FINISHED"
    assert seen.data.params["model.width"] == "8"
    assert seen.data.params["training.epochs"] == "2"
    assert seen.data.tags["pdegen.data.content"] == scores["data"]["content"]
    assert seen.data.tags["pdegen.data.fingerprint"] == scores["data"]["fingerprint"]
    assert seen.data.tags["pdegen.made.pdegen"] == scores["provenance"]["pdegen"]
    best = scores["results"][0]
    (score,) = client.get_metric_history(seen.info.run_id, f"test/best/{best['resolution']}")
    assert (score.step, score.value) == (best["epoch"], best["mean"])
    kept = {file.path for file in client.list_artifacts(seen.info.run_id)}
    assert kept >= {"scores.json", "report.html", "report.md", "experiment.toml"}
    place = client.download_artifacts(seen.info.run_id, "scores.json", str(tmp_path))
    assert Path(place).read_bytes() == (folder / "scores.json").read_bytes()
    assert f"test/best/{best['resolution']}" in seen_by_tensorboard(folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wandb"], "no tracker 'wandb': known: tensorboard, mlflow"),
        (["tensorbord"], r"no tracker 'tensorbord': did you mean tensorboard\?"),
        (["tensorboard:here"], "its files are in RUN/tensorboard"),
        (["tensorboard", "tensorboard"], "--track tensorboard is given twice"),
        (["mlflow:"], "the URI after the colon is missing"),
        (["mlflow:foo://x"], "unsupported URI 'foo://x'"),
        (["mlflow:sqlite:///absent/m.db"], "there is no folder"),
        (["mlflow:sqlite:///:memory:"], "names no file; use sqlite:///PATH"),
        (["mlflow:sqlite:///notes.db"], "cannot be used"),
        (["mlflow:sqlite:///folder"], "unable to open database file"),  # said at once
        (["mlflow:sqlite:///held.db"], "cannot be used: database is locked$"),
        (["mlflow:http://name:secret@127.0.0.1:9"], r"http://\*\*\*@127.0.0.1:9 cannot be used"),
        (["mlflow:postgresql+psycopg2://name:secret@127.0.0.1:9/runs"], "cannot be used.*psycopg2"),
    ],
)
def test_trackers_that_cannot_be_written_to_are_refused(
    refused, store, tmp_path, monkeypatch, words, said
):
    (tmp_path / "notes.db").write_text("no database")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr("pipelines.tracking.tracker._LOCKED_SECONDS", 0.1)
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    track = [part for word in words for part in ("--track", word)]
    with closing(sqlite3.connect(tmp_path / "held.db")) as database:
        database.execute("CREATE TABLE one (x)")
        database.commit()
        database.execute("BEGIN EXCLUSIVE")
        line = refused("train", "burgers-quick", "--data", store, "--out", "run", *track)
    assert re.search(said, line.rstrip()), line
    assert "secret" not in line
    assert "pip install" not in line


@pytest.mark.parametrize("package", ["tensorboard", "mlflow"])
def test_a_missing_tracker_names_the_extra(refused, store, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    line = refused("run", "burgers-quick", "--data", store, "--out", "run", "--track", package)
    assert re.search(rf"--track {package}.*pip install 'pdegen-operators\[track\]'", line)
