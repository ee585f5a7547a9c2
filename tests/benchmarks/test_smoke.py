"""The table of ways to run: what failed, and why, whatever it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config

from benchmarks import smoke
from pipelines.config.declared import MODELS, parse_model

CPU = torch.device("cpu")


def test_every_operator_of_this_package_is_tried() -> None:
    assert set(smoke._SETTINGS) <= set(smoke.OPERATORS) == set(MODELS) - {"neuraloperator"}


@pytest.mark.parametrize("name", smoke.OPERATORS)
def test_the_settings_of_every_operator_are_possible(name: str) -> None:
    dim, settings = smoke.OPERATORS[name]
    parse_model({"name": name, **settings}).build(1, 1, dim)


def kept(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "smoke.jsonl").read_text().splitlines()]


def test_rows_are_printed_and_kept_as_they_come_and_a_second_run_leaves_them_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[str] = []

    def process(name: str, device: object, threads: int) -> dict[str, str]:
        asked.append(name)
        assert threads >= 1
        bad = name == "ono" and asked.count("ono") == 1
        return {way: "failed: no kernel" if bad else "1 ms" for way in smoke.ways(CPU)}

    monkeypatch.setattr(smoke, "process", process)
    words = ["smoke", "--device", "cpu", "--out", str(tmp_path), "--resume"]
    monkeypatch.setattr(sys, "argv", [*words, "--only", "ono", "fno"])
    assert smoke.main() == 1
    assert sorted(asked) == ["fno", "ono"]
    out = capsys.readouterr().out
    assert "fno: plain 1 ms, recorded 1 ms, bf16 1 ms\n" in out
    assert "ono, bf16: failed: no kernel" in out
    assert len(kept(tmp_path)) == 2
    assert smoke.main() == 0  # that failed is tried again, the other is not
    assert asked[2:] == ["ono"]
    monkeypatch.setattr(sys, "argv", words)
    assert smoke.main() == 0
    assert sorted(asked[3:]) == sorted(set(smoke.OPERATORS) - {"fno", "ono"})


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
