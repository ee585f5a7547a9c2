"""Write what attention does in a finished run: latent functions beside eigenfunctions of the
equation, and the spectra of the heads, at the median test sample."""

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
    parser.add_argument("--data", required=True, help="the store that it was evaluated on")
    parser.add_argument("--out", type=Path, help="folder of the report; RUN/attention by default")
    words = parser.parse_args()
    run = read_finished(words.run, words.data, torch.device("cpu"))
    parts = sections(run)
    if not parts:
        parser.error(f"{words.run} has no layers of attention that can be seen")
    title = f"Attention of {run.experiment.name}"
    print(Report(title, "", "", [], parts).write(words.out or words.run / "attention"))


if __name__ == "__main__":
    main()
