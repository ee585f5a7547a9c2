"""Exponents of time and memory in the number of points, for each equation and operator.

python -m benchmarks.growth [--only NAME ...] [--missing] [--table]

A solver draws and solves samples. An operator takes gradient steps with small settings (those of
`benchmarks.smoke`) and a batch of 2 (16 for pod-deeponet). An exponent is the least-squares slope
of log cost against log points, over the largest sizes at which a repetition takes 0.05 to 2 s.
Times are processor times of one thread. Each result is appended to benchmarks/results/growth.jsonl
at once; the whole takes about 15 minutes, in parts with --only or --missing. --table prints the
tables of the last results.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from benchmarks.growth.equations import EQUATIONS
from benchmarks.growth.measuring import Case, measured
from benchmarks.growth.operators import OPERATORS
from benchmarks.history import RESULTS, append
from pdegen.numerics.device import one_thread

NAME = "growth"
EXCEEDS = 0.15  # from which difference to the theory a reason is given
CASES: Mapping[str, Case] = {**EQUATIONS, **OPERATORS}


def results() -> dict[str, dict[str, Any]]:
    """The last figures of each case."""
    path = RESULTS / f"{NAME}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {row["settings"]["case"]: row["figures"] for row in map(json.loads, lines)}


def table(cases: Mapping[str, Case], figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Lines of a Markdown table of measured cases."""
    yield "| name | points | time | theory | memory | theory | the theory follows from | above it |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, case in cases.items():
        if (row := figures.get(name)) is None:
            continue
        first, last = row["points"][0], row["points"][-1]
        time = f"{row['time']:.2f} | {row['time in theory']:.2f} ({case.time})"
        memory = f"{row['memory']:.2f} | {row['memory in theory']:.2f} ({case.memory})"
        over = [
            kind for kind in ("time", "memory") if row[kind] > row[f"{kind} in theory"] + EXCEEDS
        ]
        above = f"{', '.join(over)}: {case.above}" if over else ""
        yield f"| {name} | {first:,} to {last:,} | {time} | {memory} | {case.why} | {above} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="NAME", help="measure these")
    parser.add_argument("--missing", action="store_true", help="measure those without a result")
    parser.add_argument("--table", action="store_true", help="print the tables of the last results")
    words = parser.parse_args()
    if not words.table:
        torch.set_num_threads(1)
        done = results() if words.missing else {}
        for name in words.only or CASES:
            if name in done:
                continue
            with one_thread():
                figures = measured(CASES[name])
            append(RESULTS, NAME, figures, case=name)
            print(name, json.dumps(figures), flush=True)
        return
    for cases in (EQUATIONS, OPERATORS):
        print(*table(cases, results()), "", sep="\n")


if __name__ == "__main__":
    main()
