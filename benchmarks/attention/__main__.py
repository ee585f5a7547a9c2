"""Attention in trained operators, and its mathematics measured.

`latent RUN --data STORE` writes a report on the attention of a finished run: latent functions
beside eigenfunctions of the equation, and singular values of the heads. `inf-sup` measures the
inf-sup constant of Galerkin attention against n, `quadrature` the convergence of position attention
to an integral, and `energy` how normalisations carry the scale of functions and the decay of
energy."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure

from benchmarks.attention import energy, inf_sup, quadrature
from benchmarks.attention.report import sections
from pipelines.reports.document import Report, Table
from pipelines.reports.figures import save
from pipelines.runs.finished import read_finished


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    latent = commands.add_parser("latent")
    latent.add_argument("run", type=Path, help="folder of a finished run")
    latent.add_argument("--data", required=True, help="store that the run was evaluated on")
    latent.add_argument("--out", type=Path, help="folder of the report; RUN/attention by default")
    for name in ("inf-sup", "quadrature", "energy"):
        command = commands.add_parser(name)
        command.add_argument(
            "--quick", action="store_true", help="few points or epochs, in seconds"
        )
        command.add_argument("--picture", type=Path, help="PNG, SVG or PDF file of the picture")
    options = parser.parse_args(words)
    if options.what == "latent":
        _latent(parser, options)
    elif options.what == "inf-sup":
        constants = inf_sup.measured(inf_sup.QUICK if options.quick else inf_sup.FULL)
        _written(inf_sup.table(constants), options.picture, lambda: inf_sup.drawn(constants))
    elif options.what == "energy":
        learned = energy.measured(3 if options.quick else 60)
        _written(energy.table(learned), options.picture, lambda: energy.drawn(learned))
    else:
        sizes = quadrature.QUICK if options.quick else quadrature.FULL
        errors = {
            dim: quadrature.measured(sizes, dim, 4 if options.quick else 16) for dim in (1, 2)
        }
        _written(
            quadrature.table(errors, sizes),
            options.picture,
            lambda: quadrature.drawn(errors, sizes),
        )


def _latent(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    run = read_finished(options.run, options.data, torch.device("cpu"))
    parts = sections(run)
    if not parts:
        parser.error(f"{options.run} has no attention layers that can be analysed")
    title = f"Attention of {run.experiment.name}"
    print(Report(title, "", "", [], parts).write(options.out or options.run / "attention"))


def _written(table: Table, path: Path | None, figure: Callable[[], Figure]) -> None:
    """Print a table as Markdown, and write the picture if there is a path for it."""
    for row in (table.header, ("---",) * len(table.header), *table.rows):
        print("|", " | ".join(row), "|")
    if path is not None:
        save(figure(), path)
        print(path)


if __name__ == "__main__":
    main()
