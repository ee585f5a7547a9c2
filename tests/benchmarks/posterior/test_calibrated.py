"""The benchmark of chains: it counts rightly, goes on, and its data are what it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.posterior import __main__ as command
from benchmarks.posterior import calibrated, cases

SETTINGS = {"noise": 0.2, "cells": 11, "steps": 40, "burn-in": 10, "own data": False}
SHARES = list(cases.BLOCKS)


def row(number: int, truth: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    uniform = np.random.default_rng(number).random(truth.shape)
    found = calibrated.quantities(values, truth, uniform)
    return {"sample": cases.KNOWN + number, "seconds": 0.0} | dict.fromkeys(SHARES, found)


def test_members_of_the_law_of_the_truth_cover_as_they_should() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((400, 400, 3))
    drawn[..., 2] = np.maximum(drawn[..., 2], 0.3)  # 0.3 with the probability 0.62
    rows = [row(k, one[0], one[1:]) for k, one in enumerate(drawn)]
    summary, histogram = calibrated.summed(rows, SHARES[0])
    assert summary["intervals"] == 1200
    # 1,200 intervals: an error of 0.9 %
    assert summary["in the middle"] == pytest.approx(0.9, abs=0.025)
    assert summary["error of in the middle"] == pytest.approx(0.0087, rel=0.2)
    # an end of the interval that many truths are equal to holds them all
    assert summary["held"] == pytest.approx((0.9 + 0.9 + 0.95) / 3, abs=0.025)
    assert histogram.sum() == 1200
    assert histogram.std() < 2 * np.sqrt(60)
    # members that are too near to each other are seen
    narrow = [row(k, one[0], 0.5 * one[1:]) for k, one in enumerate(drawn[..., :2])]
    assert calibrated.summed(narrow, SHARES[0])[0]["in the middle"] < 0.65


def test_a_second_run_goes_on_and_other_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[int]()

    def judged(of: object, number: int, steps: int, burn_in: int) -> dict[str, Any]:
        asked.append(number)
        values = np.random.default_rng(number).random((30, 1))
        return row(number, values[0], values[1:])

    monkeypatch.setattr(calibrated, "judged", judged)
    monkeypatch.setattr(calibrated, "case", lambda *words: None)
    lines, picture = tmp_path / "lines.jsonl", tmp_path / "ranks.png"
    calibrated.calibrated(SETTINGS, 2, lines, None)
    first = capsys.readouterr().out
    calibrated.calibrated(SETTINGS, 3, lines, picture)
    assert asked == [0, 1, 2]
    assert [json.loads(line)["samples"] for line in first.splitlines()] == [2, 2, 2]
    assert picture.stat().st_size > 1000
    words = ["x", "calibrated", "--steps", "40", "--burn-in", "11", "--lines", str(lines)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 2
    assert f"{lines} has lines of " in capsys.readouterr().err
    assert asked == [0, 1, 2]
