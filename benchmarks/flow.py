"""Wall time of a whole run as a user starts it, and the shares of its parts.

python -m benchmarks.flow [COMMIT] [--rounds N] [WORDS ...]

`pdegen run WORDS`, by default of burgers-quick, runs in a new process and an empty folder, in turns
with the packages of COMMIT and of the working tree. Weights, epochs and test scores of both must
have the same bits. Settings of OpenMP are those of a user: none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.against import ROOT, committed

# functions whose calls are timed, by part, with those of earlier commits; "training" contains the
# two parts below it
PARTS = {
    "data": ("pipelines.cli.training", "_generated", "verified", "verify_store"),
    "training": ("pipelines.runs.training", "train"),
    "training, steps": ("operators.training.fit", "_stepped"),
    "training, selection": ("operators.training.fit", "scores"),
    "evaluation": ("pipelines.runs.evaluation", "evaluate_run"),
    "report": ("pipelines.reports.report", "write_report"),
}


def child(words: list[str]) -> None:
    """Run `pdegen run` in this process, and write the seconds of its parts to parts.json."""
    start = time.perf_counter()
    seconds = dict.fromkeys(PARTS, 0.0)
    from pipelines.cli import main

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **settings)
            finally:
                seconds[part] += time.perf_counter() - began

        return call

    for part, (module, *names) in PARTS.items():
        owner = import_module(module)
        for name in filter(partial(hasattr, owner), names):
            setattr(owner, name, timed(part, getattr(owner, name)))
    imports = time.perf_counter() - start
    sys.argv = ["pdegen", "run", *words, "--out", "run"]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    seconds["imports"] = imports
    Path("parts.json").write_text(json.dumps(seconds))


def run(root: Path, words: list[str], folder: Path, **settings: str) -> dict[str, float]:
    """Seconds of a run and of its parts, with the packages of a source tree.

    Args:
        root: The source tree.
        words: Arguments of `pdegen run`.
        folder: New folder to run in; the results are in its folder `run`.
        settings: Environment variables.
    """
    folder.mkdir()
    kept = {key: v for key, v in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    # the benchmark is that of the working tree
    environment = {**kept, "PYTHONPATH": f"{root}:{ROOT}", **settings}
    program = [sys.executable, "-m", "benchmarks.flow", "--child", *words]
    start = time.perf_counter()
    subprocess.run(program, cwd=folder, env=environment, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    return {"run": seconds, **json.loads((folder / "parts.json").read_text())}


def results(folder: Path) -> dict[str, Any]:
    """Results of a run: bytes of all weights, and numbers of the epochs and of the test scores."""
    from safetensors.numpy import load_file

    lines = (folder / "run/history.jsonl").read_text().splitlines()
    epochs = [json.loads(line) for line in lines]
    scores = json.loads((folder / "run/scores.json").read_text())
    return {
        **{
            f"{name}, {key}": values.tobytes()
            for name in ("best", "last")
            for key, values in load_file(folder / f"run/{name}.safetensors").items()
        },
        "epochs": [[epoch[key] for key in ("loss", "score", "lr")] for epoch in epochs],
        "scores": [result["errors"] for result in scores["results"] + scores["trivial"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="earlier commit; default: the working tree alone")
    parser.add_argument("--rounds", type=int, default=3)
    options, words = parser.parse_known_args()
    words = words or ["burgers-quick"]
    rows: dict[str, list[dict[str, float]]] = {}
    expected: dict[str, Any] = {}
    earlier = committed(options.commit) if options.commit else nullcontext(None)
    with earlier as before, tempfile.TemporaryDirectory() as name:
        trees = {"before": before, "now": ROOT} if before else {"now": ROOT}
        for number in range(options.rounds):
            order = list(trees.items())[:: 1 if number % 2 == 0 else -1]
            for tree, root in order:
                folder = Path(name, f"{tree}-{number}")
                rows.setdefault(tree, []).append(run(root, words, folder))
                result = results(folder)
                expected = expected or result
                different = [key for key in expected if expected[key] != result.get(key)]
                if different:
                    sys.exit(f"{tree}, round {number}: other bits in {', '.join(different)}")
    show(rows)


def show(rows: dict[str, list[dict[str, float]]]) -> None:
    """Print medians of seconds, shares of the parts, and the ratio of the runs."""
    for part in ["run", "imports", *PARTS]:
        cells = []
        for tree, runs in rows.items():
            seconds = median(row[part] for row in runs)
            share = median(row[part] / row["run"] for row in runs)
            cells.append(f"{tree}: {seconds:7.2f} s {share:6.1%}")
        print(f"{part:22}" + "   ".join(cells))
    if len(rows) > 1:
        pairs = zip(rows["now"], rows["before"], strict=True)
        print(f"now / before: {median(a['run'] / b['run'] for a, b in pairs):.3f}, same bits")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
    else:
        main()
