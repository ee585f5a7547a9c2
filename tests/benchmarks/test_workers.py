"""The benchmark of workers: a row is a job that ran, or says why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import workers


@pytest.fixture(autouse=True)
def in_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_a_row_says_what_a_job_took() -> None:
    row = workers.timed("threads", 2, "burgers-quick", 8, limit=60)
    assert 0 < row["seconds"] < row["command"]
    assert row["processor"] > 0
    assert row["start"] is None


def test_the_start_of_a_dask_scheduler_is_counted_apart() -> None:
    row = workers.timed("dask", 1, "burgers-quick", 8, limit=120)
    assert row["start"] > 0
    assert row["start"] + row["seconds"] < row["command"]


def test_a_job_that_takes_too_long_is_ended_and_named() -> None:
    assert workers.timed("threads", 1, "burgers-quick", 8, limit=0.1) == {"why": "more than 0 s"}


def test_the_ratio_is_to_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {("threads", 1): 4.0, ("threads", 2): 2.0}
    monkeypatch.setattr(
        workers, "timed",
        lambda engine, count, *rest: {"seconds": seconds[engine, count], "processor": None},
    )  # fmt: skip
    rows = workers.measured({"burgers-quick": 8}, list(seconds), 1, 60)
    assert [row["one thread / this"] for row in rows] == [1, 2]
