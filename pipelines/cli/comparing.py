"""The command on several finished runs."""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli import completion
from pipelines.cli.common import Device, Equation, Overwrite, command
from pipelines.cli.terminal import say


@command(
    "compare",
    "pdegen compare runs/first runs/second",
    "pdegen compare runs/seed-0 runs/seed-1 runs/wide --out runs/widths --overwrite",
)
def compare_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Folders of two or more finished runs.",
            autocompletion=completion.finished_runs,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the comparison.")] = Path("runs/compared"),
    data: Annotated[
        str | None, typer.Option(help="Store of all runs; default: where each was in training.")
    ] = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    equation: Equation = None,
) -> None:
    """Write a report of several finished runs: what differs, scores, learning curves, predictions.

    Differences are to the first run, sample by sample, with intervals. Runs that differ by their
    seed alone are one row. Runs that were evaluated on other samples are compared by scores alone.
    """
    from pipelines.reports.comparison_report import write_comparison
    from pipelines.runs.checks import check_device
    from pipelines.runs.comparison import read_comparison

    found = read_comparison(runs, out, check_device(device), data, overwrite)
    say(write_comparison(found, out, overwrite))
