"""Commands that write tables of operators: benchmark and break-even."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdegen.schema import SchemaError
from pipelines.cli import completion
from pipelines.cli.common import (
    Device,
    Failed,
    On,
    Only,
    Overwrite,
    Plugin,
    Quick,
    Resume,
    Set,
    Trainings,
    command,
    parsed,
)
from pipelines.cli.terminal import note, say
from pipelines.cli.trainings import Launch, command_line

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    from pipelines.config.benchmark import Benchmark, Profile
    from pipelines.studies.benchmark import BenchmarkRun

Words = list[str] | None
Out = Annotated[
    Path | None, typer.Option(help="Folder of the benchmark; default: runs/benchmark-NAME.")
]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Number of seeds: trainings of each operator.")
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DATASET=STORE",
        help="Store of a dataset; by default it is generated if absent; repeatable.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Compute only the rows of this seed, without a report; run the other seeds elsewhere.",
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(help="Where trainings run: processes, slurm, or the address of a Dask scheduler."),
]
Cells = Annotated[
    bool, typer.Option("--cells", help="Generate the stores and print one command per training.")
]


@command(
    "benchmark",
    "pdegen benchmark quick",
    "pdegen benchmark standard --quick --only FNO --seeds 3 --workers 2",
)
def benchmark_command(
    name: Annotated[
        str, typer.Argument(help="Benchmark, or a TOML file.", autocompletion=completion.benchmarks)
    ],
    out: Out = None,
    only: Only = None,
    on: On = None,
    seeds: Seeds = None,
    quick: Quick = False,
    data: Data = None,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    plugin: Plugin = None,
    seed: Seed = None,
    scheduler: Scheduler = "processes",
    cells: Cells = False,
) -> None:
    """Train operators on datasets and write one table of the results.

    An operator of --plugin that the table does not have is a further row. With --resume, --only and
    --on choose what is computed; the other finished rows of the folder stay in its table.
    """
    from pipelines.config.benchmark import Profile, load_benchmark
    from pipelines.reports.benchmark_report import write_benchmark_report
    from pipelines.studies.benchmark import extended

    launch = Launch(workers, device, resume, overwrite, scheduler)
    benchmark = load_benchmark(name, sound=False)
    if isinstance(benchmark, Profile):
        if only or on or seeds or data or set_ or workers > 1 or seed is not None or cells:
            raise SchemaError(
                f"{name} is a profile: it takes --quick, --out, --device, --resume and --overwrite"
            )
        _profile(benchmark, quick, out, launch)
        return
    whole = _whole(benchmark, quick)
    benchmark = chosen(benchmark, quick, only, on, set_, data)
    whole = whole.with_overrides(parsed(set_), sound=False)
    if seeds is not None:
        benchmark, whole = benchmark.with_seeds(seeds), whole.with_seeds(seeds)
    if overwrite and (seed is not None or cells):
        raise SchemaError("--seed and --cells continue a folder and exclude --overwrite")
    if seed is not None and seed > (last := benchmark.most_seeds - 1):
        raise SchemaError(f"benchmark {benchmark.name} has seeds 0 to {last}, got --seed {seed}")
    folder, stores = out or Path("runs") / f"benchmark-{benchmark.name}", data or []
    if seed is not None or cells:
        launch = replace(launch, resume=True)
    run = launch.prepared(benchmark, folder, benchmark.stores(stores), only or [], seed)
    if resume and (only or on) and seed is None and not cells:
        run = extended(run, whole)
    if cells:
        for words in _cells(run, out):
            say(shlex.join(words))
        return
    launch.benchmark(run, write_benchmark_report)


@command("break-even", "pdegen break-even runs/benchmark-standard")
def break_even_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished benchmark.")],
) -> None:
    """Recompute the break-even points of a finished benchmark from the logs of its runs."""
    from pipelines.reports.benchmark_report import solves
    from pipelines.studies.benchmark import break_evens

    deviating = list[str]()
    for name, (logged, stated) in break_evens(folder).items():
        say(f"{name}: {solves(logged)} (table: {solves(stated)})")
        if logged != stated and not abs(logged - stated) <= 0.1 * stated:
            deviating.append(name)
    if deviating:
        raise Failed(f"more than 10 % from the table: {'; '.join(deviating)}")


def chosen(
    benchmark: "Benchmark", quick: bool, only: Words, on: Words, set_: Words, data: Words = None
) -> "Benchmark":
    """Select a part of a benchmark by --quick, --only and --on, and apply the values of --set."""
    small = _whole(benchmark, quick)
    absent = {} if only else small.not_installed()
    for label, package in absent.items():
        note(f"{label} is left out: the package {package} is not installed")
    present = [label for label in small.operators if label not in absent] if absent else only
    chosen = small.only(present or [], on or [])
    chosen.check()  # the rest of the file is not checked
    return chosen.with_overrides(parsed(set_), chosen.stores(data or []))


def _whole(benchmark: "Benchmark", quick: bool) -> "Benchmark":
    """A benchmark or its small version, with further rows for operators of users' files."""
    from pipelines.config.benchmark import with_plugin_rows

    return with_plugin_rows(benchmark.quickly() if quick else benchmark)


def _cells(run: "BenchmarkRun", out: Path | None) -> Iterator[list[str]]:
    """Command lines for the missing rows. Each trains one operator on one dataset with one seed."""
    words = sys.argv[1:]
    for flag in ("--cells", "--resume"):
        words = [word for word in words if word != flag]
    words = _without(words, "--only", "--on")
    for case, seed in dict.fromkeys(
        (replace(case, protocol=""), seed)
        for stage in run.stages()
        for case, seed in stage
        if run.kept((case, seed)) is None
    ):
        yield ["pdegen", *words, "--only", case.operator, "--on", case.dataset, "--seed", str(seed)]


def _without(words: list[str], *options: str) -> list[str]:
    """Remove the given options and their values from the words of a command line."""
    remaining = list[str]()
    skip = False
    for word in words:
        if not skip and word not in options and word.partition("=")[0] not in options:
            remaining.append(word)
        skip = not skip and word in options
    return remaining


def _profile(profile: "Profile", quick: bool, out: Path | None, launch: Launch) -> None:
    """Measure the costs of training steps and write the report of a profile."""
    from pipelines.config.benchmark import load_quick_profile
    from pipelines.reports.benchmark_report import write_profile_report
    from pipelines.studies.benchmark import HOLDING_PROFILE as HOLDING
    from pipelines.studies.benchmark import ProfileRun

    profile = load_quick_profile(profile) if quick else profile
    run = ProfileRun(profile, out or Path("runs") / profile.name)
    HOLDING.check(run.folder, launch.resume, launch.overwrite)
    launch.study(run, f"profile {profile.name}")
    say(write_profile_report(run, command_line()))
