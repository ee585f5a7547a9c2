"""What residuals in the labels' scheme are worth: in the loss, as an error bar, and as corrections.

python -m benchmarks.residuals --seeds 0 1 2
python -m benchmarks.residuals --table
python -m benchmarks.residuals --labels

A small FNO learns Darcy flow on 29 x 29 cells from few labels, with and without the residual in the
loss. Each prediction is scored by its error, its residual and its error after two steps of the
solver, beside steps without a model. Stores and runs are in --folder; a run that is there is not
repeated. Lines are appended to benchmarks/results/residuals.jsonl; --table prints means over the
seeds of the last line of each row and seed. --labels prints residuals of labels, and errors of the
solver without a model, for recipes of other coefficients and schemes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.history import RESULTS, append
from pdegen.files import read
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.runs.evaluation import corrected_scores, evaluate
from pipelines.runs.score import Score
from pipelines.runs.training import train

CELLS, STEPS = 29, 2
_DATA = {
    "problem.resolution": CELLS, "samples": 1300,
    "splits.train": 1000, "splits.validation": 100, "splits.test": 200,
}  # fmt: skip
# 400 steps of 10 labelled samples, watched after every 40
_BASE = {
    "data.resolution": CELLS, "resolutions": [CELLS], "model.width": 16, "model.modes": 8,
    "data.samples": 100, "data.epoch_samples": 400, "training.batch": 10, "training.epochs": 10,
    "training.schedule.name": "1cycle", "training.lr": 1e-2,
    "training.optimizer.weight_decay": 0.0,
}  # fmt: skip
_RESIDUAL = {"training.residual.weight": 1.0}
_MANY = {"data.samples": 800, "training.epochs": 20}
ROWS: Mapping[str, Mapping[str, Any]] = {
    "100 labels": {},
    "100 labels, target scaled by one number": {"normalization.target": "scalar"},
    "100 labels, residual on the same inputs": _RESIDUAL,
    "100 labels, residual on 900 more inputs": {"training.residual.unlabelled": 900},
    "800 labels": _MANY,
    "800 labels, residual on the same inputs": _MANY | _RESIDUAL,
}
# words, recipe and overrides of labels that are examined
LABELS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("phases 12 and 3, solved on the points", "darcy-quick",
     {"problem.resolution": CELLS, "problem.solver.refinement": 1}),
    ("the same, on cells finer by 3", "darcy-quick", {"problem.resolution": CELLS}),
    ("a source field, finer by 9", "darcy-source", {"problem.resolution": CELLS}),
    ("log-normal, on the points", "darcy-lognormal", {"problem.resolution": CELLS}),
    ("phases, published splines", "darcy-421-published", {"problem.resolution": 43}),
    ("Poisson", "poisson-quick", {}),
    ("Helmholtz", "helmholtz-128-published", {"problem.resolution": 32}),
)  # fmt: skip
_ALONE, _SAMPLES = (1, 2, 4, 100), 32
_CPU = torch.device("cpu")


def figures(score: Score) -> dict[str, float]:
    """Means of errors and residuals over the test samples, and their correlation."""
    return {
        "error": score.mean,
        "residual": float(np.mean(score.measures["residual"])),
        "correlation": score.residual_correlation,
    }


def measured(row: str, seed: int, store: str, folder: Path) -> dict[str, Any]:
    """Train a row with a seed; figures of its predictions, and after steps of the solver."""
    experiment = base().with_overrides({**ROWS[row], "training.seed": seed})
    run = folder / f"{row.replace(' ', '-')}-{seed}"
    if not (run / "finished").exists():
        train(experiment, store, run, _CPU, overwrite=run.exists(), on_labels=print)
        (run / "finished").touch()
    score = evaluate(run / "best.safetensors", store, _CPU)
    after, *alone = corrected_scores(run / "best.safetensors", store, _CPU, STEPS)
    return {
        "row": row, "seed": seed, **figures(score), "after 2 steps": after.mean,
        **{word: score.mean for word, score in zip(("alone, 2", "alone, 4"), alone, strict=True)},
    }  # fmt: skip


def labels() -> Iterator[str]:
    """Means over samples: residuals of labels, and errors after steps without a model."""
    steps = " | ".join(map(str, _ALONE))
    yield f"| labels | recipe | points | residual of the labels | {steps} steps |"
    yield "|---|---|---|---" + "|---" * len(_ALONE) + "|"
    for words, name, overrides in LABELS:
        problem = load_recipe(name).with_overrides(overrides).problem
        values = problem.compute(0, range(_SAMPLES))
        u, residual = values["u"], problem.residual(values, values["u"])
        system = problem.system(values)
        assert residual is not None
        assert system is not None
        errors = [
            np.linalg.norm(system.corrected(0 * u, count) - u, axis=(1, 2))
            / np.linalg.norm(u, axis=(1, 2))
            for count in _ALONE
        ]
        cells = " | ".join(f"{np.mean(error):.2g}" for error in errors)
        yield f"| {words} | `{name}` | {len(u[0])} | {np.mean(residual):.2g} | {cells} |"


def base() -> Experiment:
    """The training of the first row."""
    return load_experiment("darcy-fno-quick").with_overrides(_BASE)


def table() -> Iterator[str]:
    """Means over seeds of the last line of each row and seed."""
    history = map(json.loads, read(RESULTS / "residuals.jsonl").decode().splitlines())
    lines = {
        (line["row"], line["seed"]): line for run in history for line in run["figures"]["lines"]
    }
    names = ("error", "residual", "correlation", "after 2 steps", "alone, 2", "alone, 4")
    yield f"| training | seeds | {' | '.join(names)} | factor by 2 steps |"
    yield "|---|---" + "|---" * (len(names) + 1) + "|"
    for row in ROWS:
        found = [line for (name, _), line in lines.items() if name == row]
        if found:
            means = {name: float(np.mean([line[name] for line in found])) for name in names}
            gain = means["error"] / means["after 2 steps"]
            cells = (f"{means[name]:.3g}" for name in names)
            yield f"| {row} | {len(found)} | {' | '.join(cells)} | {gain:.1f} |"
    for row, other in ((0, 2), (0, 3), (1, 3), (4, 5)):
        first, second = (list(ROWS)[index] for index in (row, other))
        ratios = [
            lines[first, seed]["error"] / lines[second, seed]["error"]
            for seed in range(10)
            if {(first, seed), (second, seed)} <= lines.keys()
        ]
        if ratios:
            shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            yield f"{first} / {second}: {np.mean(ratios):.2f} ({shown})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.residuals", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=[*ROWS], metavar="ROW")
    parser.add_argument("--folder", type=Path, default=Path("runs/residuals"))
    parser.add_argument("--table", action="store_true", help="print the table of earlier runs")
    parser.add_argument("--labels", action="store_true", help="print residuals of labels")
    words = parser.parse_args()
    if words.table or words.labels:
        print("\n".join(table() if words.table else labels()))
        return
    torch.set_num_threads(1)
    store = words.folder / f"darcy-{CELLS}.zarr"
    if not store.exists():
        words.folder.mkdir(parents=True, exist_ok=True)
        generate(load_recipe("darcy-quick").with_overrides(_DATA), str(store))
    for seed in words.seeds:
        for row in words.rows:
            line = measured(row, seed, str(store), words.folder)
            print(line, file=sys.stderr, flush=True)
            append(RESULTS, "residuals", {"lines": [line]})


if __name__ == "__main__":
    main()
