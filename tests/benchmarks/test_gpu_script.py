"""The script that measures on a GPU: what it refuses, and that its parts run, small, without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.smoke import OPERATORS


def run(root: Path, folder: Path, **words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PYTHON": sys.executable, "OUT": str(folder / "out"),
        "WORK": str(folder / "work"), **words,
    }  # fmt: skip
    return subprocess.run(
        ["bash", str(root / "benchmarks/gpu.sh")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"PARTS": "runs trains"}, "unknown part trains"),
        ({"PARTS": "runs/absent"}, "unknown part runs/absent"),
        ({"PYTHON": "absent-python"}, "there is no absent-python"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "finds no GPU"),
        ({"LIMIT": "10m"}, "LIMIT is a number of seconds, not 10m"),
        ({"FROM": "absent.tar.gz"}, "there is no absent.tar.gz"),
    ],
)
def test_is_refused_before_anything_is_written(
    root: Path, tmp_path: Path, words: dict[str, str], said: str
) -> None:
    done = run(root, tmp_path, **words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu.sh: ")
    assert said in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_its_parts_run_on_the_processor_and_a_second_run_goes_on(
    root: Path, tmp_path: Path
) -> None:
    done = run(root, tmp_path, DEVICE="cpu", QUICK="1")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    lines = {
        name: [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
        for name in ("smoke", "gpu", "runs")
    }
    assert len(lines["smoke"]) == len(OPERATORS)
    assert [next(iter(line["figures"])) for line in lines["gpu"]] == [
        "versions", "written/burgers-512", "generate/burgers", "generate/burgers-job",
        "generate/pipe", "streams/burgers-gt-512",
    ]  # fmt: skip
    assert len(lines["runs"]) == 2
    for line in lines["runs"]:
        (figures,) = line["figures"].values()
        assert figures["epochs"] == 2
        assert figures["training seconds"] > 0
        assert 0 < figures["results"][0]["mean"] < 1
    assert "GT" in (out / "burgers-table2a.csv").read_text()
    again = run(root, tmp_path, DEVICE="cpu", QUICK="1")
    assert again.stdout.splitlines() == [f"gpu.sh: results in {out}"]
