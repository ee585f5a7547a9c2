"""Write a report on attention in a finished run, at the median test sample: latent functions
beside eigenfunctions of the equation, and singular values of the heads."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.attention.report import sections
from pipelines.reports.document import Report
from pipelines.runs.finished import read_finished


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--data", required=True, help="store that the run was evaluated on")
    parser.add_argument("--out", type=Path, help="folder of the report; RUN/attention by default")
    options = parser.parse_args()
    run = read_finished(options.run, options.data, torch.device("cpu"))
    parts = sections(run)
    if not parts:
        parser.error(f"{options.run} has no attention layers that can be analysed")
    title = f"Attention of {run.experiment.name}"
    print(Report(title, "", "", [], parts).write(options.out or options.run / "attention"))


if __name__ == "__main__":
    main()
