"""Kernels, bytes and operations of training steps on a GPU, counted without one.

python -m benchmarks.kernels [--only WORD] [--json FILE]

A step is prediction, loss, gradient, clipping and optimizer, as written (neither compiled nor
recorded), after warm-up steps. A CUDA graph replays the same kernels; what torch.compile fuses is
not known without the device. `benchmarks.launches` explains the counting rule. Operators that read
values from the device cannot be counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.launches import META, Work, counted
from benchmarks.smoke import OPERATORS, POINTS
from benchmarks.training import functions
from operators.data import Batch
from operators.norms import RelativeL2
from operators.training.optimizers import Adam
from operators.training.step import Step
from operators.transforms import Normalizer, Predictor
from pipelines.config.declared import parse_model
from pipelines.config.experiment import load_experiment
from pipelines.runs.checks import checked_operator
from pipelines.studies.cost import random_pairs

EXPERIMENTS = ("burgers-gt-8192", "burgers-gt-512-best", "burgers-quick", "darcy-gt-141-43")
_BEFORE = 9  # warm-up steps: the eleventh call is SOAP's tenth step
LIMITS = {"burgers-gt-8192": 400}  # largest number of kernels in a step


class Counted:
    """Counts the work of training steps on "meta" tensors.

    Args:
        predictor: The predictor, on the CPU.
        batch: A batch of samples, on the CPU.
        settings: Loss, clipping, optimizer, schedule and symmetries of the training.
        x, y, weight: Points and weights; see `Step`.
    """

    def __init__(
        self, predictor: Predictor, batch: Batch, settings: Any = None, x: Tensor | None = None,
        y: Tensor | None = None, weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        self.batch = batch.to(META)
        loss = settings.loss if settings else RelativeL2()
        clip, augment = (settings.clip, settings.augment) if settings else (1.0, None)
        with counted():
            predictor = predictor.to(META).train()
            x, y = (None if v is None else v.to(META) for v in (x, y))
            self.gradient = Step(
                predictor, x, y, loss, clip, augment,
                weight=None if weight is None else weight.to(META),
            )  # fmt: skip
            make, lr = (settings.optimizer, settings.lr) if settings else (Adam(), 1e-3)
            self.optimizer = make(predictor.parameters(), lr)
        self.number = 0

    def step(self) -> tuple[Work, Work]:
        """Work of the gradient with clipping, and work of the optimizer, in one step."""
        with counted() as gradient:
            self.gradient(self.batch, self.number)
        with counted() as optimizer:
            self.optimizer.step()
        self.number += 1
        return gradient, optimizer


def of_experiment(name: str) -> Counted:
    """The steps of a shipped experiment on random functions."""
    experiment = load_experiment(name)
    pairs = random_pairs(experiment, torch.device("cpu"))
    predictor = Predictor(
        checked_operator(experiment, pairs), *experiment.normalization.of(pairs),
        task=experiment.learned,
    )  # fmt: skip
    settings = experiment.training.settings()
    return Counted(predictor, pairs.all[: settings.batch], settings, pairs.x, pairs.y, pairs.weight)


def of_operator(name: str) -> Counted:
    """The steps of an operator at the small sizes of `benchmarks.smoke`, batch 4."""
    dim, settings = OPERATORS[name]
    operator = parse_model({"name": name, **settings}).build(1, 1, dim)
    a, u, x = functions(POINTS[dim], 4, dim)
    predictor = Predictor(operator, Normalizer.identity(1), Normalizer.identity(1))
    predictor.operator.adapt([u], x)
    return Counted(predictor, Batch(a, u), x=x)


def rows_of(name: str, steps: Counted, before: int = _BEFORE) -> dict[str, dict[str, Any]]:
    """Figures of an ordinary step, and of the tenth step if the optimizer does more in it.

    Args:
        name: Name of the row.
        steps: The steps to count.
        before: Number of warm-up steps.
    """
    for _ in range(before):
        steps.step()
    ordinary, tenth = steps.step(), steps.step()
    rows = {name: figures(*ordinary)}
    if tenth[1].kernels != ordinary[1].kernels:
        rows[f"{name}, every tenth step"] = figures(*tenth)
    return rows


def figures(gradient: Work, optimizer: Work) -> dict[str, Any]:
    both = (gradient, optimizer)
    return {
        "kernels": sum(w.kernels for w in both),
        "gradient": gradient.kernels,
        "optimizer": optimizer.kernels,
        "read, GB": round(sum(w.read for w in both) / 1e9, 3),
        "written, GB": round(sum(w.written for w in both) / 1e9, 3),
        "GFLOP": round(sum(w.flops for w in both) / 1e9, 2),
    }


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Table of the rows as text."""
    counted_rows = {name: row for name, row in rows.items() if "kernels" in row}
    columns = list(next(iter(counted_rows.values()), {}))
    wide = max(map(len, rows), default=0)
    lines = [" " * wide + "".join(f"{column:>13}" for column in columns)]
    for name, row in rows.items():
        cells = (f"{row[column]:>13,}" for column in columns) if "kernels" in row else (
            f"  {row['not counted']}",
        )  # fmt: skip
        lines.append(name.ljust(wide) + "".join(cells))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="WORD", help="count only steps whose name has this word"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for name in (*EXPERIMENTS, *OPERATORS):
        if options.only and not any(word in name for word in options.only):
            continue
        torch.manual_seed(0)
        try:
            steps = of_experiment(name) if name in EXPERIMENTS else of_operator(name)
            rows |= rows_of(name, steps, _BEFORE if name in EXPERIMENTS else 2)
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip() or type(error).__name__
            rows[name] = {"not counted": reason.splitlines()[0][:100]}
    print(table(rows))
    line = json.dumps(rows)
    print(line)
    if options.json is not None:
        options.json.write_text(line + "\n", "utf-8")
    over = [name for name, most in LIMITS.items() if rows.get(name, {}).get("kernels", 0) > most]
    for name in over:
        print(f"{name}: more than {LIMITS[name]} kernels", file=sys.stderr)
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
