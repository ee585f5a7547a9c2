"""`pdegen train` as a process: killed, shared by processes, and with words that are impossible."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.pipelines.conftest import DATA, SMALL

BIN = Path(sys.executable).parent
STREAM = {f"data.stream.overrides.{k}": v for k, v in DATA.items() if "." in k}


def words(store: str, out: Path, stream: bool = False, **further: object) -> list[str]:
    sets = SMALL | {"training.batch": 4, **further} | (STREAM if stream else {})
    return [
        "train", "burgers-quick", "--data", store, "--out", str(out),
        *(["--stream", "burgers-quick"] if stream else []),
        *(w for k, v in sets.items() for w in ("--set", f"{k}={json.dumps(v)}")),
    ]  # fmt: skip


def command(*arguments: str, processes: int = 1) -> list[str]:
    program = [str(BIN / "pdegen"), *arguments]
    if processes == 1:
        return program
    start = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(processes)]
    return [*start, "--no-python", *program]


def finished(*arguments: str, processes: int = 1) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments, processes=processes), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


def epochs(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "history.jsonl").read_text("utf-8").splitlines()
    return [{k: v for k, v in json.loads(one).items() if k != "seconds"} for one in lines]


@pytest.mark.parametrize("stream", [False, True])
def test_killed_and_resumed_equals_uninterrupted(store: str, tmp_path: Path, stream: bool) -> None:
    """SIGKILL after some epoch; weights and history are the same bits."""
    many: dict[str, object] = {"training.epochs": 30}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    finished(*words(store, whole, stream, **many))
    arguments = words(store, parts, stream, **many)
    running = subprocess.Popen(command(*arguments), stderr=subprocess.DEVNULL)
    history, deadline = parts / "history.jsonl", time.monotonic() + 120
    while not (history.exists() and len(epochs(parts)) >= 2):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert 2 <= len(epochs(parts)) < 30
    finished(*arguments, "--resume")
    assert epochs(parts) == epochs(whole)
    for name in ("best", "last"):
        weights = load_file(whole / f"{name}.safetensors")
        resumed = load_file(parts / f"{name}.safetensors")
        assert weights.keys() == resumed.keys()
        assert all(torch.equal(weights[k], resumed[k]) for k in weights)


def test_two_processes_train_as_one(store: str, tmp_path: Path) -> None:
    still: dict[str, object] = {
        "training.epochs": 2, "training.symmetries.shift": False,
        "training.symmetries.reflection": False,
    }  # fmt: skip
    one = finished(*words(store, tmp_path / "one", **still))
    two = finished(*words(store, tmp_path / "two", **still), processes=2)
    assert one.stdout.count("best.safetensors") == two.stdout.count("best.safetensors") == 1
    assert two.stderr.count("training samples: resident") == 1  # one of them speaks
    expected, found = epochs(tmp_path / "one"), epochs(tmp_path / "two")
    # float32: Adam makes of the round-off of a gradient near 0 a step of its own
    assert [e["loss"] for e in found] == pytest.approx([e["loss"] for e in expected], rel=1e-3)
    # their numbers are another run's
    resumed = subprocess.run(
        command(*words(store, tmp_path / "two", **still), "--resume"),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert resumed.returncode == 2
    assert "holds a run of another number of processes" in resumed.stderr


def test_a_batch_that_does_not_divide_among_the_processes(store: str, tmp_path: Path) -> None:
    arguments = words(store, tmp_path / "run", **{"training.batch": 5})
    done = subprocess.run(
        command(*arguments, processes=2), capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0
    said = "pdegen: batch 5 does not divide among the 2 processes"
    assert done.stderr.splitlines().count(said) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (["--precision", "tf32"], "precision tf32 needs a CUDA device"),
        (["--precision", "bf16"], "precision bf16 needs a CUDA device"),
        (["--precision", "half"], "unknown precision 'half': auto, float32, tf32, bf16"),
        (["--compile", "maybe"], "compile is auto, on or off, got 'maybe'"),
        (["--device", "cuda"], "finds none here"),
        (["--set", "training.batch=600"], "batch 600 is larger than the 512 samples of an epoch"),
    ],
)
@pytest.mark.parametrize("name", ["train", "run"])
def test_refuses_what_cannot_be(
    refused: Callable[..., str], name: str, own: list[str], message: str
) -> None:
    assert message in refused(name, "burgers-quick", *own)
