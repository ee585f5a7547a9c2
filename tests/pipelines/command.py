"""The command line in this process: what a call left, and what a folder holds."""

from __future__ import annotations

import sys

import pytest

from pdegen.files import read_lines
from pipelines.cli import main

SMALL = ["--samples", "12", "--resolution", "32", "--set", "shard=5", "--set", "modes=31",
         "--set", "problem.solver.resolution=64", "--set", "train=8", "--set", "validation=2",
         "--set", "test=2"]  # fmt: skip


class Outcome:
    """What a command left: exit status, lines on stdout and on stderr."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out.splitlines(), err.splitlines()


def call(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["pdegen", *map(str, words)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main()
    return Outcome(end.value.code, *capsys.readouterr())


def everything(path):
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))}


def quietly(*words):
    """Run a command that must succeed, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pdegen", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
    assert end.value.code == 0


def history(folder):
    """The epochs of a run, each compared with its digest, without the seconds of the clock."""
    return [{**epoch, "seconds": 0} for epoch in read_lines(folder / "history.jsonl")]
