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


# In place of Python: what was asked for is noted, trainings and figures are there at once. A case
# that is named in SLOW does not end, one in BAD fails.
STUB = """#!/bin/bash
words="$*"
case "$words" in
*needs.py*) exit 0 ;;
*"import torch"*) exit 0 ;;
*benchmarks.gpu*) echo "{\\"$3\\": 1}"; case=$3 ;;
*benchmarks.smoke*) echo "fno: plain 1 ms"; case="smoke ${words#*--resume}" ;;
*append*) exit 0 ;;
*)
    while [ $# -gt 1 ]; do case $1 in --out) folder=$2 ;; esac; shift; done
    mkdir -p "$folder"
    echo weights >"$folder/state.pt"
    touch "$folder/table.csv" "$folder/table.md"
    case="${folder##*/} $1"
    ;;
esac
echo $case >>"$NOTES"
case " $SLOW " in *" ${case%% *} "*) sleep 60 ;; esac
case " $BAD " in *" ${case%% *} "*) exit 1 ;; esac
exit 0
"""


def noted(root: Path, folder: Path, **words: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """The script with the stub, and what was asked for."""
    folder.mkdir(exist_ok=True)
    stub, notes = folder / "python", folder / "notes"
    stub.write_text(STUB)
    stub.chmod(0o755)
    notes.unlink(missing_ok=True)
    done = run(root, folder, PYTHON=str(stub), NOTES=str(notes), **words)
    return done, notes.read_text() if notes.exists() else ""


def test_the_most_important_cases_come_first(root: Path, tmp_path: Path) -> None:
    done, asked = noted(root, tmp_path)
    assert done.returncode == 0, done.stderr
    first = "galerkin-transformer galerkin-transformer-2d fno ono transolver scot"
    assert asked.splitlines()[:15] == [
        "versions", f"smoke --only {first}",
        "steps/burgers-8192", "steps/burgers-512", "steps/darcy-141-43",
        "generate/burgers", "generate/darcy", "generate/pipe", "generate/burgers-job",
        "generate/darcy-job", "burgers-gt-8192 --overwrite", "burgers-gt-512-float32 --overwrite",
        "burgers-gt-512-tf32 --overwrite", "darcy-gt-141-43 --overwrite", "smoke",
    ]  # fmt: skip
    assert "fno: plain 1 ms\n" in done.stdout  # rows are printed as they come
    assert '{"steps/burgers-512": 1}\n' in done.stdout
    _, again = noted(root, tmp_path)
    assert again == ""


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
