"""Rows of a benchmark that several processes make, on one machine or on many, in one folder."""

import csv
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from operators.training.fit import Stopped
from pdegen.files import locked
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.runner import Execution
from tests.pipelines.command import quietly
from tests.pipelines.test_benchmark import CPU, declared
from tests.pipelines.test_benchmark_command import write_toy
from tests.slurm import slurm

pytestmark = pytest.mark.usefixtures("unpainted")

PDEGEN = str(Path(sys.executable).parent / "pdegen")


def copied(run, tmp_path):
    return replace(run, folder=shutil.copytree(run.folder, tmp_path / "run"))


def errors(run):
    return [row.errors for row in run.rows()]


def test_what_another_process_makes_comes_last_and_is_read(benchmarked, tmp_path, monkeypatch):
    run = copied(benchmarked, tmp_path)
    (case, seed), *_ = (part for stage in run.stages() for part in stage)
    place = run.row_path((case, seed))
    kept, made = place.read_bytes(), []
    for path in place.parent.iterdir():
        path.unlink()
    claim = run.folder / "claims" / place.stem

    def other():  # another process, which takes longer than all of the rest
        with locked(claim):
            begun.set()
            while len(made) < 3:
                time.sleep(0.01)
            place.write_bytes(kept)

    begun, making = threading.Event(), BenchmarkRun.make
    monkeypatch.setattr(
        BenchmarkRun, "make", lambda *arguments: made.append(arguments[1]) or making(*arguments)
    )
    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    said = []
    run.run(CPU, resume=True, progress=lambda what, done, total: said.append((done, what)))
    thread.join()
    assert len(made) == 3
    assert (case, seed) not in made
    assert said[3][1].startswith("FNO on burgers")
    assert errors(run) == errors(benchmarked)


def test_waiting_can_be_stopped(tmp_path):
    with locked(tmp_path), pytest.raises(Stopped):
        Execution(CPU, stop=lambda: True).wait_and_hold(tmp_path)


def test_workers_of_a_scheduler_make_the_same_rows_and_measure_them(
    benchmarked, burgers, cluster, tmp_path, monkeypatch
):
    run = BenchmarkRun(declared(seeds=1), {"burgers": str(burgers)}, tmp_path / "run")
    monkeypatch.setattr(BenchmarkRun, "_measure", None)  # in this process
    run.run(CPU, scheduler=cluster)
    assert errors(run) == [row.errors for row in benchmarked.rows() if row.seed == 0]
    assert all(row.has_costs for row in run.rows())
    assert not list(run.folder.glob(".stop-*"))


def test_every_row_has_a_command_and_the_last_one_writes_the_table(
    burgers, tmp_path, capsys, monkeypatch
):
    words = [
        "benchmark", write_toy(tmp_path), "--seeds", "2", "--data", f"burgers={burgers}",
        "--out", tmp_path / "run",
    ]  # fmt: skip
    capsys.readouterr()
    quietly(*words, "--cells", "--only=FNO")
    assert len(capsys.readouterr().out.splitlines()) == 2
    quietly(*words, "--cells")
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert [command[-5:] for command in commands] == [
        [name, "--on", "burgers", "--seed", seed] for seed in "01" for name in ("FNO", "DeepONet")
    ]
    quietly(*commands[2][1:])  # in any order
    assert capsys.readouterr().out.startswith("burgers, FNO, seed 1: ")
    assert not (tmp_path / "run/table.csv").exists()
    quietly(*words, "--cells")
    assert len(capsys.readouterr().out.splitlines()) == 3  # those that are not there yet
    for command in commands[:2] + commands[3:]:
        quietly(*command[1:])
    monkeypatch.setattr(BenchmarkRun, "make", None)
    monkeypatch.setattr(BenchmarkRun, "_measure", None)
    quietly(*words, "--resume")
    table = csv.DictReader((tmp_path / "run/table.csv").read_text("utf-8").splitlines())
    assert {line["operator"]: line["seeds"] for line in table} == {"FNO": "2", "DeepONet": "2"}
    whole = (tmp_path / "run/benchmark.json").read_text("utf-8")
    quietly(*commands[2][1:])  # of one operator
    assert (tmp_path / "run/benchmark.json").read_text("utf-8") == whole


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "1"], "benchmark toy has seeds 0 to 0, got --seed 1"),
        (
            ["--seed", "0", "--overwrite"],
            "--seed and --cells continue a folder",
        ),
        (["--scheduler", "mpi"], "--scheduler mpi is for pdegen generate"),
        (["--scheduler", "dask"], "--scheduler dask is for pdegen generate"),
        (["--scheduler", "slrum"], "unknown scheduler 'slrum'"),
    ],
)
def test_impossible_ways_are_refused(refused, burgers, tmp_path, words, message):
    data = ["--data", f"burgers={burgers}", "--out", tmp_path / "run"]
    assert message in refused("benchmark", write_toy(tmp_path), *data, *words)


@pytest.mark.slow
def test_an_array_of_slurm_makes_all_rows(slurm_programs, burgers, tmp_path):
    words = [PDEGEN, "benchmark", write_toy(tmp_path), "--data",
             f"burgers={burgers}", "--out", tmp_path / "run"]  # fmt: skip
    listed = subprocess.run([*words, "--cells"], capture_output=True, text=True, check=True).stdout
    cells = tmp_path / "cells.txt"
    cells.write_text(listed.replace("pdegen benchmark", f"{PDEGEN} benchmark"), "utf-8")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, slurm(Path(folder)) as environment:
        subprocess.run(
            ["sbatch", "--wait", "--array=1-2", "--wrap",
             f'eval "$(sed -n ${{SLURM_ARRAY_TASK_ID}}p {cells})"'],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600,
        )  # fmt: skip
    assert len(list((tmp_path / "run/rows").iterdir())) == 2
    for path in (tmp_path / "run/rows").iterdir():
        assert json.loads(path.read_text("utf-8"))["errors"]
