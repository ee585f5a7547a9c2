"""Scores: every statistic and every entry, of errors that are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from operators.data import Channel
from pipelines.runs.score import KeptScore, Score, channel_parts, times_in

ERRORS = (0.5, math.nan, 0.1, 0.3, 1.1)
SCORE = Score(
    "best", 7, "validation", 32, (20, 21, 24, 25, 27), ERRORS, 1.5,
    channels={"u_x": 0.25, "u_y": 0.75}, steps={"0.5": 0.2, "1": 0.4},
    measures={"l1": (0.2, math.nan, 0.6, 0.7, 0.9), "max": (3.0, 2.0, 8.0, 5.0, 1.0)},
)  # fmt: skip
DEFINED = [0.5, 0.1, 0.3, 1.1]


def test_statistics_are_those_of_the_defined_errors():
    assert SCORE.mean == pytest.approx(0.5)
    assert SCORE.median == pytest.approx(0.4)
    assert SCORE.worst == 1.1
    assert SCORE.std == pytest.approx(math.sqrt((0 + 0.16 + 0.04 + 0.36) / 4))
    assert SCORE.left_out == [21]


def test_a_summary_has_every_entry():
    summary = SCORE.summary()
    measures = summary.pop("measures")
    assert summary.pop("errors") == pytest.approx([*ERRORS], nan_ok=True)
    assert summary == {
        "checkpoint": "best", "epoch": 7, "split": "validation", "resolution": 32,
        "first_sample": 20, "skipped": [22, 23, 26], "samples": 5,
        "mean": float(np.mean(DEFINED)), "median": float(np.median(DEFINED)), "worst": 1.1,
        "std": float(np.std(DEFINED)), "seconds": 1.5, "channels": {"u_x": 0.25, "u_y": 0.75},
        "steps": {"0.5": 0.2, "1": 0.4}, "left_out": [21],
    }  # fmt: skip
    assert list(measures) == ["l1", "max"]
    assert measures["max"] == {
        "mean": 3.8, "median": 3.0, "worst": 8.0, "errors": [3.0, 2.0, 8.0, 5.0, 1.0],
    }  # fmt: skip
    assert [measures["l1"][key] for key in ("mean", "median", "worst")] == pytest.approx(
        [0.6, 0.65, 0.9]
    )
    assert measures["l1"]["errors"] == pytest.approx([0.2, math.nan, 0.6, 0.7, 0.9], nan_ok=True)


def test_a_summary_leaves_out_what_is_empty():
    short = Score("last", 2, "test", 16, (3, 4), (0.2, 0.4), 0.5).summary()
    assert not short.keys() & {"channels", "steps", "left_out", "measures"}
    assert short["skipped"] == []


def test_a_score_is_read_from_its_summary():
    again = Score.of(SCORE.summary())
    assert again.errors == pytest.approx(ERRORS, nan_ok=True)
    assert again.measures["max"] == SCORE.measures["max"]
    assert again.measures["l1"] == pytest.approx(SCORE.measures["l1"], nan_ok=True)
    for name in ("checkpoint", "epoch", "split", "resolution", "samples", "seconds", "channels",
                 "steps"):  # fmt: skip
        assert getattr(again, name) == getattr(SCORE, name), name


def test_a_summary_of_an_earlier_version_numbers_from_0():
    summary = SCORE.summary()
    for key in ("first_sample", "skipped", "channels", "steps", "measures"):
        del summary[key]
    early = Score.of(summary)
    assert early.samples == (0, 1, 2, 3, 4)
    assert (early.channels, early.steps, early.measures) == ({}, {}, {})


@pytest.mark.parametrize("changes", [{"samples": 4}, {"samples": 6}, {"samples": 0, "errors": []}])
def test_a_wrong_number_of_errors_is_refused(changes):
    with pytest.raises(ValueError, match=r"\d errors of \d samples"):
        Score.of(SCORE.summary() | changes)


def test_what_is_no_score_is_refused_in_a_file():
    class File(BaseModel):
        results: list[KeptScore]

    def parsed(entry: Any) -> Score:
        return File.model_validate({"results": [entry]}).results[0]

    assert parsed(SCORE.summary()).samples == SCORE.samples
    assert parsed(SCORE) is SCORE
    lacking = {k: v for k, v in SCORE.summary().items() if k != "epoch"}
    for wrong in (lacking, SCORE.summary() | {"epoch": None}):
        with pytest.raises(ValueError, match="no score"):
            parsed(wrong)


def test_a_measure_is_found_by_its_name():
    assert SCORE.measured("max") == (3.0, 2.0, 8.0, 5.0, 1.0)
    assert SCORE.measured("l2") is SCORE.errors
    with pytest.raises(KeyError, match="h1"):
        SCORE.measured("h1")


def test_an_infinite_error_has_an_infinite_spread():
    score = Score("best", 1, "test", 8, (0, 1, 2), (0.1, math.inf, 0.3), 1.0)
    assert (score.mean, score.worst, score.std) == (math.inf, math.inf, math.inf)
    assert score.median == 0.3


def channels(*pairs: tuple[str, float | None]) -> list[Channel]:
    return [Channel("v", component, time) for component, time in pairs]


def test_times_are_those_of_channels_in_their_order():
    by_time = channels(("x", 0.5), ("y", 0.5), ("x", 2.0), ("y", 2.0), ("x", 3.0), ("y", 3.0))
    assert times_in(by_time) == [0.5, 2.0, 3.0]
    by_component = channels(("x", 0.5), ("x", 2.0), ("y", 0.5), ("y", 2.0))
    assert times_in(by_component) == []
    assert times_in(channels(("x", None), ("y", 0.5))) == []
    assert times_in(channels(("x", None), ("y", None))) == []
    assert times_in([]) == []


def test_parts_are_channels_and_times_of_several_components():
    by_time = channels(("x", 0.5), ("y", 0.5), ("x", 2.0), ("y", 2.0))
    assert channel_parts(by_time) == {
        "channels": ["x, t = 0.5", "y, t = 0.5", "x, t = 2", "y, t = 2"], "steps": ["0.5", "2"],
    }  # fmt: skip
    assert channel_parts(channels(("x", 0.5), ("x", 2.0))) == {
        "channels": ["x, t = 0.5", "x, t = 2"]
    }
    assert channel_parts(channels(("x", 0.5), ("y", 0.5))) == {
        "channels": ["x, t = 0.5", "y, t = 0.5"]
    }
    assert channel_parts(channels(("x", 0.5))) == {}
