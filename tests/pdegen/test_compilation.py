"""Compiled code is made once for all processes, and kept where nobody else can write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOP = """
from pdegen.numerics.compilation import compiled

@compiled(inner=True)
def square(x):
    return x * x

@compiled()
def norm(values):
    total = 0.0
    for k in range(len(values)):
        total += square(values[k])
    return total
"""
CALL = """
import json, sys
import numpy as np
from loop import norm
print("ready", flush=True)
sys.stdin.readline()
result, stats = norm(np.arange(3.0)), norm.stats
print(json.dumps([result, sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a module of compiled functions."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "loop.py").write_text(LOOP, "utf-8")
    return folder


def start(source: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a process that waits for a line and then calls the function."""
    path = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-c", CALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def called(process: subprocess.Popen[str]) -> tuple[float, int, int]:
    """Result of the function, and how often its code was read from disk and was not."""
    out, _ = process.communicate()
    assert process.returncode == 0
    result, hits, misses = json.loads(out)
    return result, hits, misses


def test_one_of_two_processes_compiles_and_a_killed_one_leaves_no_lock(
    source: Path, tmp_path: Path
) -> None:
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    processes = [start(source, **cache) for _ in range(2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(called(process)[1:] for process in processes) == [(0, 1), (1, 0)]
    assert called(start(source, **cache)) == (5.0, 1, 0)
    (folder,) = (tmp_path / "cache").iterdir()
    for path in folder.glob("*.nb?"):
        path.unlink()
    assert (folder / ".compiling").exists()
    assert called(start(source, **cache)) == (5.0, 0, 1)


def test_code_lies_beside_its_source(source: Path) -> None:
    assert called(start(source, NUMBA_CACHE_DIR="")) == (5.0, 0, 1)
    assert called(start(source, NUMBA_CACHE_DIR="")) == (5.0, 1, 0)
    assert {path.suffix for path in (source / "__pycache__").glob("loop.norm*")} == {".nbi", ".nbc"}


@pytest.mark.parametrize("public", ["cache", "cache/sub"])
def test_a_folder_that_others_can_write_is_not_used(source: Path, tmp_path: Path, public: str):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    start(source, **cache).communicate("\n")
    (folder,) = (tmp_path / "cache").iterdir()
    (folder if public == "cache/sub" else folder.parent).chmod(0o777)
    stored = sorted(folder.iterdir())
    assert stored
    for path in stored:
        path.unlink()
    result, hits, _ = called(start(source, **cache))
    assert (result, hits) == (5.0, 0)
    assert not list(folder.glob("*.nb?"))


def test_functions_run_where_no_folder_can_be_written(source: Path) -> None:
    locators = {"NUMBA_CACHE_DIR": "", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    assert called(start(source, **locators))[0] == 5.0
    assert not list(source.glob("__pycache__/*.nb?"))


ADDRESSED = """
import sys
from numba.core import types
from pdegen.numerics import compilation

made = []
whole = compilation.CFunc._compile_uncached
compilation.CFunc._compile_uncached = lambda code: (made.append(code), whole(code))[1]

def nothing(x):
    pass

compilation.address_of(nothing, types.void(types.intp), sys.argv[1])
print(len(made))
"""


def test_code_of_another_version_is_compiled_again(tmp_path):
    (tmp_path / "addressed.py").write_text(ADDRESSED, "utf-8")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    made = [
        subprocess.run(
            [sys.executable, str(tmp_path / "addressed.py"), version],
            capture_output=True, text=True, check=True, env=environment,
        ).stdout.strip()
        for version in ("1", "2", "1")
    ]  # fmt: skip
    assert made == ["1", "1", "0"]
