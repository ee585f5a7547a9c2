"""An earlier commit and the working tree in turns: `python -m benchmarks.against COMMIT`.

Each has a process of its own, which imports its packages once and does every job once before it
counts. Both train on and read the same stores, which COMMIT made. In every round each job runs in
both processes, one after the other; the ratio is the median over the rounds of now / before.
Seconds of a step and of an epoch are those that training itself records; all others are of whole
calls.
`--processor` counts processor time in place of the clock's, where others use the machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
LIMIT = 1.03  # of the ratio
_SIZES = ("train", "validation", "test")


def _store(recipe: str, train: int, *sets: str) -> list[str]:
    """Words of `pdegen generate` for a small store with so many samples to train on."""
    sizes = [f"splits.{name}={n}" for name, n in zip(_SIZES, (train, 1, 1), strict=True)]
    words = [word for value in (*sizes, *sets) for word in ("--set", value)]
    return ["generate", recipe, "--samples", str(train + 2), *words]


# Stores to train on and to read.
STORES = {
    "burgers": _store("burgers-r10", 32),
    "darcy": _store("darcy-85", 8),
    "reading": _store("burgers-r10", 510, "shard=64"),
}


@dataclass(frozen=True)
class Training:
    """Epochs of `pdegen train`: the words after it, the store, and steps of an epoch that count as
    one."""

    words: tuple[str, ...]
    store: str | None
    steps: int = 1


TRAININGS = {
    "step, burgers-gt-512": Training(("burgers-gt-512",), "burgers", steps=4),
    "step, darcy-gt-85-29": Training(("darcy-gt-85-29",), "darcy", steps=2),
    "step, fno on burgers": Training(("--model", "fno"), "burgers", steps=4),
    "epoch, burgers-quick": Training(("burgers-quick",), None),
    "epoch, darcy-quick": Training(("darcy-quick", "--set", "data.overrides.samples=80"), None),
}
GENERATED = {
    "generating burgers-r10, 256 samples": _store("burgers-r10", 254),
    "generating burgers-shock, 8 samples": _store("burgers-shock", 6),
    "generating darcy-85, 16 samples": _store("darcy-85", 14),
    "generating darcy-421, 4 samples": _store("darcy-421", 2),
}
READ = {"reading an epoch in batches": "batches", "reading into memory": "resident"}
Clock = Callable[[], float]
JOBS = (*TRAININGS, *READ, *GENERATED)


def child(processor: bool) -> None:
    """Jobs of one tree: their names come on stdin, one a line, and their seconds go to stdout."""
    clock = time.process_time if processor else time.perf_counter
    if processor:
        _training().time = SimpleNamespace(monotonic=clock)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        print(json.dumps(_seconds(line.rstrip("\n"), clock)), file=answers, flush=True)


def _training() -> Any:
    """The module that trains, in either tree."""
    try:
        return import_module("operators.training.fit")
    except ModuleNotFoundError:
        return import_module("operators.train")


def _seconds(job: str, clock: Clock) -> float:
    def timed(call: Callable[[], object]) -> float:
        start = clock()
        call()
        return clock() - start

    if job in STORES:
        return timed(lambda: _pdegen(*STORES[job], "--out", f"{job}.zarr"))
    if job in GENERATED:
        words = GENERATED[job]
        return timed(lambda: _pdegen(*words, "--out", f"made-{os.getpid()}.zarr", "--overwrite"))
    if job in READ:
        return timed(lambda: _read(READ[job]))
    return _epoch(TRAININGS[job])


def _pdegen(*words: str) -> None:
    from pipelines.cli import main

    sys.argv = ["pdegen", *words]
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"pdegen {' '.join(words)}: {said.getvalue()}") from None


def _read(how: str) -> None:
    from operators.data import open_pairs

    pairs = open_pairs("reading.zarr", "train")
    if how == "resident":
        pairs.resident()
        return
    with closing(pairs.batches(0, 0, 8)) as batches:
        for _ in batches:
            pass


def _epoch(training: Training) -> float:
    """Seconds of an epoch, or of a step of it; the shortest of those after the first."""
    folder = f"run-{os.getpid()}"
    data = ["--data", f"{training.store}.zarr"] if training.store else []
    more = ["--set", "training.epochs=4"] if training.store else ["--set", "training.epochs=2"]
    _pdegen("train", *training.words, *data, *more, "--out", folder, "--overwrite")
    text = Path(folder, "history.jsonl").read_text("utf-8")
    records = [json.loads(line[line.index("{") :]) for line in text.splitlines()]
    return min(_in(record, "seconds") for record in records[1:]) / training.steps


def _in(record: Any, key: str) -> float:
    """A number anywhere in a record of an epoch, whose form may be another in an earlier commit."""
    if isinstance(record, Mapping):
        if key in record:
            return record[key]
        for value in record.values():
            if isinstance(value, Mapping):
                return _in(value, key)
    raise KeyError(key)


class Tree:
    """The process of one tree."""

    def __init__(self, root: Path, folder: Path, processor: bool) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root)}
        program = [sys.executable, str(Path(__file__).absolute()), "--child"]
        program += ["--processor"] if processor else []
        self._process = subprocess.Popen(
            program, cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def seconds(self, job: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{job}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{job}: the process ended")
        return json.loads(answer)

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def committed(commit: str) -> Iterator[Path]:
    """A folder with the packages and recipes of a commit."""
    what = ["git", "archive", commit, "pdegen", "operators", "pipelines", "datasets"]
    data = subprocess.run(what, cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(name, filter="data")
        yield Path(name)


def measured(
    commit: str, jobs: list[str], rounds: int, processor: bool
) -> Iterator[dict[str, Any]]:
    """A row for each job."""
    with (
        committed(commit) as earlier,
        tempfile.TemporaryDirectory() as name,
        closing(Tree(earlier, Path(name), processor)) as before,
        closing(Tree(ROOT, Path(name), processor)) as now,
    ):
        for store in STORES:
            before.seconds(store)
        for job in jobs:
            for tree in (before, now):
                tree.seconds(job)
            pairs = []
            for number in range(rounds):
                order = (before, now) if number % 2 == 0 else (now, before)
                seconds = {tree: tree.seconds(job) for tree in order}
                pairs.append((seconds[before], seconds[now]))
            ratios = [b / a for a, b in pairs]
            low, _, high = quantiles(ratios, n=4)
            yield {
                "job": job,
                "before": round(median(a for a, _ in pairs), 4),
                "now": round(median(b for _, b in pairs), 4),
                "now / before": round(median(ratios), 3),
                "quartiles": [round(low, 3), round(high, 3)],
                "fastest now / before": round(
                    min(b for _, b in pairs) / min(a for a, _ in pairs), 3
                ),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", action="append", metavar="WORD", help="jobs with this word")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.processor)
        return
    if options.commit is None:
        parser.error("name a commit")
    jobs = [job for job in JOBS if any(word in job for word in options.only or [""])]
    rows = []
    print(f"{'seconds':38}{'before':>9}{'now':>9}{'ratio':>8}  quartiles")
    for row in measured(options.commit, jobs, options.rounds, options.processor):
        rows.append(row)
        low, high = row["quartiles"]
        print(
            f"{row['job']:38}{row['before']:9.4f}{row['now']:9.4f}{row['now / before']:8.3f}"
            f"  {low:.3f} to {high:.3f}", flush=True,
        )  # fmt: skip
    if options.json:
        content = {
            "commit": options.commit, "rounds": options.rounds, "processor": options.processor,
            "rows": rows,
        }  # fmt: skip
        options.json.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    slower = [row["job"] for row in rows if row["now / before"] > LIMIT]
    if slower:
        sys.exit(f"slower than {LIMIT} times: {', '.join(slower)}")


if __name__ == "__main__":
    main()
