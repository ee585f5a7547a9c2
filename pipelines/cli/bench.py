"""The command that measures speed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli.common import Device, command
from pipelines.cli.terminal import note, say


@command("bench", "pdegen bench train --quick")
def bench_command(
    what: Annotated[str, typer.Argument(help="generate, train, read, stream or all.")],
    device: Device = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller cases: a few minutes.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the histories; default: benchmarks/results."),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a Chrome trace of a few training steps."),
    ] = None,
) -> None:
    """Measure speed as ratios to floors of the same run; each run adds a line to its history."""
    from pipelines.measure.history import RESULTS
    from pipelines.measure.suite import run
    from pipelines.runs.run import check_device

    def progress(text: str) -> None:
        note(f"pdegen: {text}")

    place, folder = check_device(device), out or RESULTS
    for name, figures, path in run(what, place, quick, folder, profile, progress):
        say(f"{name} ({path})")
        for line in _lines(figures, "  "):
            say(line)


def _lines(figures: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in figures.items():
        if isinstance(value, dict):
            yield f"{indent}{key}"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {value}"
