"""What only Linux has is not needed: processor affinity and /proc are taken away."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from pdegen import software

# run by every Python process of a test
BLIND = """
import os, pathlib, sys
del os.sched_getaffinity
read, exists = pathlib.Path.read_text, pathlib.Path.exists
def hidden(path):
    return str(path).startswith("/proc/")
def read_text(path, *words, **named):
    if hidden(path):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return read(path, *words, **named)
pathlib.Path.read_text = read_text
pathlib.Path.exists = lambda path, **named: not hidden(path) and exists(path, **named)
"""


def blind(tmp_path: Path, code: str) -> str:
    """Run Python code without affinity and /proc, in this process and its children."""
    (tmp_path / "sitecustomize.py").write_text(BLIND)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys\n" + code], cwd=tmp_path, env=environment, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_processors_are_counted_without_affinity(monkeypatch):
    assert software.cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert software.cores() == os.cpu_count()


def test_a_store_is_generated_and_trained_on(tmp_path):
    out = blind(
        tmp_path,
        "sys.argv = ['pdegen', 'run', 'burgers-quick', '--set', 'data.samples=24', '--set',\n"
        "            'training.epochs=1', '--out', 'run']\n"
        "from pipelines.cli import main\n"
        "main()\n",
    )
    assert (tmp_path / "run" / "report.html").exists(), out


def test_tensors_are_read_without_a_table_of_mapped_memory(tmp_path):
    values = torch.arange(12.0).reshape(3, 4)
    torch.save({"p": values}, tmp_path / "p.pt")
    out = blind(
        tmp_path,
        "from pathlib import Path\n"
        "from pdegen.formats import pt\n"
        "from pdegen.formats.arrays import Request\n"
        "contents = pt.read(Request('p.pt', '.', 'pt', names=['p']))\n"
        "print(contents.array('p').values().tolist(), contents.array('p').location.offset)\n",
    )
    assert out == f"{np.arange(12.0).reshape(3, 4).tolist()} 0\n"


def test_the_memory_of_a_reader_is_limited_without_proc(tmp_path):
    out = blind(
        tmp_path,
        "import resource\n"
        "from pdegen.formats import sandbox\n"
        "from pdegen.formats.arrays import Request\n"
        "sandbox._limit(Request('p', '.', 'pt', seconds=9, memory=2**30, written=1))\n"
        "print(resource.getrlimit(resource.RLIMIT_AS)[0] >= 2**30)\n",
    )
    assert out == "True\n"
