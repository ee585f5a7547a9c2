"""The script that measures on a GPU: what it refuses, and that its parts run, small, without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
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


def test_what_is_missing_is_a_list_for_pip(root: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"  # without packages
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    done = run(root, tmp_path, PYTHON=str(python))
    assert done.returncode == 2
    first, *missing = done.stderr.splitlines()
    assert "pip download" in first
    names = {line.partition("==")[0] for line in missing}
    assert {"latex2mathml", "zarr", "distributed", "pydantic", "torch"} <= names
    assert all(line.endswith("  # absent") for line in missing)
    assert list(tmp_path.iterdir()) == [python]


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


def packed(folder: Path) -> set[str]:
    """Names in the archive, which is all that is left in the folder of results."""
    assert [file.name for file in (folder / "out").iterdir()] == ["gpu.tar.gz"]
    with tarfile.open(folder / "out/gpu.tar.gz") as archive:
        return set(archive.getnames())


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


def test_one_archive_carries_what_is_done_and_what_is_begun(root: Path, tmp_path: Path) -> None:
    parts = {"PARTS": "versions runs/burgers-gt-8192 smoke", "ONLY": "fno ono", "ARCHIVE": "1"}
    done, asked = noted(root, tmp_path / "a", BAD="burgers-gt-8192", **parts)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "gpu.sh: failed: runs/burgers-gt-8192"
    assert asked.splitlines()[-1] == "smoke --only fno ono"
    names = packed(tmp_path / "a")
    assert {"results/gpu.done", "results/versions.log", "burgers-gt-8192/state.pt"} <= names
    carried = str(tmp_path / "a/out/gpu.tar.gz")
    done, asked = noted(root, tmp_path / "b", FROM=carried, **parts)
    assert done.returncode == 0, done.stderr
    # some operators are not all: smoke is asked again
    assert asked.splitlines() == ["burgers-gt-8192 --resume", "smoke --only fno ono"]
    names = packed(tmp_path / "b")
    assert "burgers-gt-8192/state.pt" not in names  # it is finished
    done, _ = noted(
        root, tmp_path / "c", FROM=str(tmp_path / "b/out/gpu.tar.gz"), PARTS="runs/burgers-gt-8192"
    )
    assert done.returncode == 0
    assert (tmp_path / "c/out/gpu.done").read_text().split() == [
        "versions", "smoke/first", "runs/burgers-gt-8192"
    ]  # fmt: skip


def test_where_no_time_is_left_the_archive_is_there_and_the_rest_is_named(
    root: Path, tmp_path: Path
) -> None:
    done, asked = noted(root, tmp_path, PARTS="versions steps", ARCHIVE="1", LIMIT="5")
    assert (done.returncode, asked) == (75, "")
    assert done.stderr.startswith("gpu.sh: 5 s are over")
    assert done.stderr.endswith("versions steps/burgers-8192 steps/burgers-512 steps/darcy-141-43 "
                                "steps/burgers-2048 steps/darcy-85-29\n")  # fmt: skip
    assert packed(tmp_path) == {"results"}


@pytest.mark.slow  # the seconds of its limit
def test_a_case_that_the_limit_cuts_is_gone_on_with(root: Path, tmp_path: Path) -> None:
    words = {"PARTS": "versions runs/burgers-gt-8192 steps", "ARCHIVE": "1", "LIMIT": "35"}
    done, asked = noted(root, tmp_path, SLOW="burgers-gt-8192", **words)
    assert done.returncode == 75
    assert "burgers-gt-8192 --overwrite" in asked
    assert "versions: 0 s" in done.stdout
    assert "burgers-gt-8192/state.pt" in packed(tmp_path)
    assert "failed" not in done.stderr


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


@pytest.mark.slow
def test_a_case_that_fails_is_tried_again(root: Path, tmp_path: Path) -> None:
    """The folder of the histories is a file in place of one."""
    out = tmp_path / "out"
    (out / "gpu.jsonl").mkdir(parents=True)
    words = {"DEVICE": "cpu", "QUICK": "1", "PARTS": "generate"}
    done = run(root, tmp_path, **words)
    assert done.returncode == 1
    failed = "gpu.sh: failed: generate/burgers generate/burgers-job generate/pipe"
    assert done.stderr.splitlines()[-1] == failed
    (out / "gpu.jsonl").rmdir()
    (out / "gpu.done").write_text("generate/burgers-job\ngenerate/pipe\n")
    done = run(root, tmp_path, **words)
    assert done.returncode == 0, done.stderr
    (line,) = (out / "gpu.jsonl").read_text().splitlines()
    assert list(json.loads(line)["figures"]) == ["generate/burgers"]
