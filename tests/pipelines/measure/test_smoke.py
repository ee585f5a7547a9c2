"""The table of ways to run: what failed, and why, whatever it was."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from benchmarks import smoke
from pipelines.declared.models import MODELS

CPU = torch.device("cpu")


def test_every_operator_of_this_package_is_tried() -> None:
    assert set(smoke.OPERATORS) == set(MODELS) - {"neuraloperator"}


def test_a_way_that_fails_is_a_cell_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = smoke.tried

    def failing(name: str, way: object, *words: object) -> object:
        if way == smoke.ways(CPU)["recorded"][0]:
            raise KeyError("no such kernel\nand more")
        return tried(name, way, *words)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(smoke, "tried", failing)
    smoke.row("deeponet", CPU)
    cells = dict(json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert cells["recorded"].startswith("failed: KeyError: ")
    assert cells["plain"].endswith(" ms")
    assert cells["bf16"].endswith(" ms")


@pytest.mark.parametrize(
    ("program", "why"), [("exit(3)", "exit 3"), ("import time; time.sleep(60)", "not done in 3 s")]
)
def test_what_a_process_said_before_its_end_is_kept(
    monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    said = 'print(\'["plain", "1 ms"]\', flush=True); '
    run = smoke.subprocess.run

    def other(command: object, **words: object) -> object:
        return run([sys.executable, "-c", said + program], **words)  # pyright: ignore

    monkeypatch.setattr(smoke.subprocess, "run", other)
    monkeypatch.setattr(smoke, "_LIMIT", 3)
    row = smoke.process("fno", CPU)
    assert row["plain"] == "1 ms"
    assert row["bf16"].startswith(f"failed: {why}")
    shown = smoke.table({"fno": row})
    assert shown.splitlines()[1].split() == ["fno", "1", "ms", "failed", "failed"]
    assert f"fno, bf16: failed: {why}" in shown
