"""`pdegen train` in several processes, and with words that are impossible."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import SMALL

BIN = Path(sys.executable).parent


def words(store: str, out: Path, **further: object) -> list[str]:
    sets = SMALL | {"training.batch": 4, **further}
    return [
        "train", "burgers-quick", "--data", store, "--out", str(out),
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


@pytest.mark.usefixtures("unchecked")  # as in the two processes
def test_two_processes_train_as_one(pdegen, store, tmp_path):
    still: dict[str, object] = {
        "training.epochs": 2, "training.symmetries.shift": False,
        "training.symmetries.reflection": False,
    }  # fmt: skip
    one = pdegen(*words(store, tmp_path / "one", **still))
    two = finished(*words(store, tmp_path / "two", **still), processes=2)
    assert (one.status, one.out) == (0, [str(tmp_path / "one/best.safetensors")])
    assert two.stdout.splitlines() == [str(tmp_path / "two/best.safetensors")]
    assert two.stderr.count("training samples: all in memory") == 1  # one of them speaks
    expected, found = epochs(tmp_path / "one"), epochs(tmp_path / "two")
    # float32: Adam makes of the round-off of a gradient near 0 a step of its own; 1e-3 on some
    # processors, 1.3e-3 on others
    assert [e["loss"] for e in found] == pytest.approx([e["loss"] for e in expected], rel=5e-3)
    # their numbers are another run's
    resumed = pdegen(*words(store, tmp_path / "two", **still), "--resume")
    assert resumed.status == 2
    assert "holds a run of another number of processes" in resumed.err[-1]


def test_a_batch_that_does_not_divide_among_the_processes(store, tmp_path):
    arguments = words(store, tmp_path / "run", **{"training.batch": 5})
    done = subprocess.run(
        command(*arguments, processes=2), capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0
    said = "pdegen: batch 5 does not divide among the 2 processes"
    assert done.stderr.splitlines().count(said) == 1
    assert not (tmp_path / "run").exists()
