"""Small runs of every benchmark, their histories, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import history
from benchmarks.generate import Generation
from benchmarks.read import Reading
from benchmarks.stream import StreamCase, Streaming
from benchmarks.timing import interleaved, ratio
from benchmarks.train import StepCase, TrainingFigures
from pdegen.recipe import load_recipe
from tests.pipelines.conftest import CPU, DARCY_DATA, DATA

SMALL = (
    ("model.width", 8), ("model.depth", 1), ("model.feedforward", 8), ("model.modes", 4),
    ("model.decoder_width", 8),
)  # fmt: skip
BURGERS = tuple(StepCase("burgers-gt-8192", n, 2, SMALL) for n in (16, 32))
DARCY = StepCase("darcy-gt-141-43", 13, 2, (
    *SMALL, ("model.latent", 7), ("model.heads", 1), ("model.head_width", 8)))  # fmt: skip


def generation() -> Generation:
    return Generation(
        load_recipe("burgers-quick").with_overrides(DATA),
        load_recipe("darcy-quick").with_overrides(DARCY_DATA),
        load_recipe("pipe-quick").with_overrides({"problem.resolution": 33}),
        burgers_samples=2, darcy_samples=2, job=24, growing=(8, 16), darcy_growing=(2, 4),
        memory=(16,), rounds=2,
    )  # fmt: skip


def streaming() -> Streaming:
    overrides = {f"data.stream.overrides.{key}": v for key, v in DATA.items() if "." in key}
    case = StreamCase(
        "burgers-gt-512", "burgers-quick", 4, 3,
        {**dict(SMALL), **overrides, "data.resolution": 16},
    )  # fmt: skip
    return Streaming((case,), rounds=1)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks that take a second."""
    small = {
        "generate": generation,
        "train": lambda: TrainingFigures((BURGERS[0], DARCY), BURGERS, rounds=2),
        "read": lambda: Reading(cells=5, samples=16, shard=8, batch=4, alone=4, rounds=2),
        "stream": streaming,
    }
    monkeypatch.setattr(command, "QUICK", small)


def numbers(figures: Any) -> list[float]:
    if isinstance(figures, dict):
        return [n for value in figures.values() for n in numbers(value)]
    return [figures] if isinstance(figures, int | float) else []


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    command.main()


def test_all_leave_a_line_each_and_a_trace(
    tiny: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call(monkeypatch, "all", "--quick", "--out", "results", "--profile", "trace.json")
    out = capsys.readouterr().out
    for name in ("generate", "train", "read", "stream"):
        assert f"{name} (results/{name}.jsonl)" in out
        (line,) = (tmp_path / f"results/{name}.jsonl").read_text().splitlines()
        found = json.loads(line)
        assert found["settings"] == {"device": "cpu", "quick": True}
        assert numbers(found["figures"])
        # a wait of no time is possible, nothing else is
        assert all(n >= 0 for n in numbers(found["figures"]) if name == "stream")
        assert name in ("stream", "train") or all(n > 0 for n in numbers(found["figures"]))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event.get("name") == "aten::mm" for event in events)


def test_a_step_stands_against_its_products() -> None:
    (found,) = (TrainingFigures((DARCY,), (), rounds=2)(CPU, print)[str(DARCY)],)
    step = found["as written"]
    products, both = (
        found["floors"]["float32"][k] for k in ("matrix products", "with convolutions")
    )
    assert 0 < products["GFLOP"] < both["GFLOP"]
    assert step["step, ms"] > step["matrix products alone, ms"] > 0
    assert step["step / matrix products"] > 1
    assert step["peak memory, kernel by kernel, MiB"] > 0
    assert 0 < sum(found["share of a step"].values()) <= 1


def test_datasets_are_solved_on_a_device() -> None:
    """PyTorch on the processor stands for one."""
    made = generation()
    assert made.burgers_alone("cpu")["solve / pair"] > 0
    darcy = made.darcy_alone("cpu")
    n = made.darcy.problem.resolution
    # sines along two axes, there and back, in each of the iterations
    each = 2 * made.darcy_samples * 4 * n**3
    assert round(darcy["matrix products"]["GFLOP"] * 1e9) % each < 1e6
    assert darcy["draw and solve / products alone"] > 1
    assert darcy["sines as FFTs / as products"] > 0
    pipe = made.pipe_alone("cpu")
    assert pipe["draw and solve / elimination"] > 1
    assert pipe["samples at a time"] == 1
    assert made.whole(made.burgers, 8, "cpu", 1)["job / writing alone"] > 0
    assert set(made.growth("cpu")["Darcy"]) == {"2", "4", "largest / smallest"}


def test_jobs_take_turns() -> None:
    calls: list[str] = []
    jobs = {name: lambda name=name: calls.append(name) for name in "ab"}
    ticks = iter(range(100))
    seconds = interleaved(jobs, 2, repeats=2, clock=lambda: float(next(ticks)))
    assert calls == list("ab") + 2 * list("aabb")
    assert seconds == {"a": [0.5, 0.5], "b": [0.5, 0.5]}
    assert ratio({"a": [1, 4, 9], "b": [1, 2, 3]}, "a", "b") == 2


def test_a_history_grows(tmp_path: Path) -> None:
    for value in (1, 2):
        path = history.append(tmp_path / "new", "x", {"value": value}, device="cpu")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["figures"]["value"] for line in lines] == [1, 2]
    last = lines[-1]
    assert last["settings"] == {"device": "cpu"}
    assert last["versions"]["torch"] == version("torch")
    assert last["machine"]["processor"]
    assert last["machine"]["cores"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", last["date"])
    assert re.fullmatch(r"([0-9a-f]{7,}(-dirty)?)?", last["commit"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trains", "invalid choice: 'trains'"),
        ("read --device cuda", "no GPU here"),
        ("read --profile trace.json", "use it with train"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, *words.split())
    assert end.value.code == 2
    assert said in capsys.readouterr().err
