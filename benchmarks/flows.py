"""Files of the three main flows, in the order of their first call: `python -m benchmarks.flows`.

The first flow leads from a recipe to the seal of its store, the second from a shard through one
epoch of a streamed training to the loss, and the third is `pdegen run` on a store that exists. A
file is listed if a function in it is called. Two counts follow: the calls between the loop over
shards and the solution of samples, and how often a run reads the root metadata of its store.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

import torch

from operators.training.fit import Epoch
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.cli import main as run_command
from pipelines.config.experiment import load_experiment
from pipelines.runs.training import train

ROOT = Path(__file__).parents[1]
PACKAGES = ("pdegen", "operators", "pipelines")
RECIPE = {
    "samples": 24, "splits.train": 16, "splits.validation": 4, "splits.test": 4,
    "problem.resolution": 32, "problem.initial.modes": 11, "problem.solver.resolution": 64,
}  # fmt: skip
TRAINING = {
    "data.resolution": 32, "resolutions": [32], "training.epochs": 3, "model.modes": 3,
    "model.width": 8, "data.reading": "streamed",
}  # fmt: skip
MATHEMATICS = ("pdegen/equations/burgers/problem.py", "solve")
OPENING = ("pdegen/store/reading.py", "_root_bytes")


@dataclass
class Trace:
    """What a flow calls."""

    files: dict[str, str] = field(default_factory=dict)  # the first function that is called
    calls: list[str] = field(default_factory=list)  # from the start of a task to `MATHEMATICS`
    openings: int = 0


@contextmanager
def traced(is_on: Callable[[], bool]) -> Iterator[Trace]:
    """The files of the packages whose functions are called while `is_on()`."""
    trace, places = Trace(), dict[CodeType, tuple[str, str] | None]()

    def called(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code not in places:
            places[code] = _place(code)
        place = places[code]
        if place is None or not is_on():
            return
        if place != OPENING:
            places[code] = None  # it was called once
        trace.files.setdefault(*place)
        trace.openings += place == OPENING
        if place == MATHEMATICS and not trace.calls:
            above = frame.f_back
            while above is not None:
                if (caller := _place(above.f_code)) is not None:
                    trace.calls.insert(0, ":".join(caller))
                above = above.f_back

    threading.settrace(called)  # None in place of a trace function: no line is traced
    sys.settrace(called)
    try:
        yield trace
    finally:
        sys.settrace(None)
        threading.settrace(None)  # pyright: ignore[reportArgumentType]


def _place(code: CodeType) -> tuple[str, str] | None:
    """The file and the name of a function of the packages. None for what runs at the import."""
    path = Path(code.co_filename)
    if not (path.is_relative_to(ROOT) and path.suffix == ".py" and code.co_flags & CO_OPTIMIZED):
        return None
    relative = path.relative_to(ROOT)
    return (relative.as_posix(), code.co_name) if relative.parts[0] in PACKAGES else None


def show(title: str, trace: Trace) -> None:
    print(f"{title}: {len(trace.files)} files")
    for path, function in trace.files.items():
        print(f"  {path:45} {function}")


def measured() -> dict[str, Trace]:
    """The traces of the three flows."""
    traces = dict[str, Trace]()
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe("burgers-quick").with_overrides(RECIPE)
        with traced(lambda: True) as traces["recipe -> seal"]:
            url = generate(recipe, f"{folder}/store.zarr", workers=1).url
        experiment = load_experiment("burgers-quick", url).with_overrides(TRAINING)
        finished = list[int]()  # the second epoch is traced: the first one prepares
        on_epoch: Callable[[Epoch], None] = lambda epoch: finished.append(epoch.epoch)  # noqa: E731
        with traced(lambda: finished == [1]) as traces["shard -> loss, the second epoch"]:
            train(experiment, url, Path(folder) / "train", torch.device("cpu"), on_epoch=on_epoch)
        words = [f"--set={key}={json.dumps(value)}" for key, value in TRAINING.items()]
        sys.argv = ["pdegen", "run", "burgers-quick", "--data", url, "--out", f"{folder}/run"]
        sys.argv += words
        with traced(lambda: True) as traces["pdegen run"]:
            try:
                run_command()
            except SystemExit as end:
                if end.code:
                    raise
    return traces


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="file for the counts")
    arguments = parser.parse_args()
    traces = measured()
    for title, trace in traces.items():
        show(title, trace)
    calls, openings = traces["recipe -> seal"].calls, traces["pdegen run"].openings
    print(f"calls from a task of the loop to the mathematics: {len(calls)}")
    print("\n".join(f"  {call}" for call in calls))
    print(f"openings of the store in a run: {openings}")
    if arguments.json:
        counts: dict[str, int] = {title: len(trace.files) for title, trace in traces.items()}
        counts |= {"calls to the mathematics": len(calls), "openings": openings}
        arguments.json.write_text(json.dumps(counts, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
