"""Commands of many trainings: benchmarks, profiles, studies."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from pdegen.schema import SchemaError
from pipelines.cli.common import (
    Device,
    Interrupts,
    On,
    Only,
    Overwrite,
    Reporter,
    Resume,
    Set,
    Trainings,
    app,
    parsed,
)
from pipelines.cli.stores import generated


@app.command("benchmark")
def benchmark_command(
    name: Annotated[str, typer.Argument(help="Benchmark, or a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the benchmark.")] = None,
    only: Only = None,
    on: On = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Trainings of each operator.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Its small version, for two cores.")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="DATASET=STORE", help="Default: made where absent; repeatable."),
    ] = None,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train operators on datasets at one protocol, and write one table of all."""
    from pipelines.benchmark import load_benchmark
    from pipelines.profile import Profile

    benchmark = load_benchmark(name)
    if isinstance(benchmark, Profile):
        if only or on or seeds or quick or data or set_ or resume:
            raise SchemaError(f"{name} is a profile: it takes --out, --device and --overwrite")
        _profile(benchmark, out, device, overwrite)
        return
    if quick:
        benchmark = benchmark.quickly()
    benchmark = benchmark.with_overrides(parsed(set_))
    benchmark = benchmark.only(only or [], on or [])
    if seeds is not None:
        benchmark = benchmark.model_copy(update={"seeds": seeds})
    _benchmark(benchmark, out, data, workers, device, resume, overwrite)


def _command() -> str:
    """What was typed, as it is typed to run it from the start."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["pdegen", *words])


def _profile(profile: Any, out: Path | None, device: str, overwrite: bool) -> None:
    from pipelines.profile import measure, write_profile
    from pipelines.run import RunError, check_device

    place, folder = check_device(device), out or Path("runs") / profile.name
    if (folder / "table.csv").exists() and not overwrite:
        raise RunError(f"{folder} holds a profile: use --overwrite")
    if folder.exists() and any(folder.iterdir()) and not (folder / "table.csv").exists():
        raise RunError(f"{folder} exists and is no profile")
    report, started = Reporter(f"profile {profile.name}", every=0), time.monotonic()
    found = measure(
        profile, place,
        lambda what, done, total: report(done, total, time.monotonic() - started, f", {what}"),
    )  # fmt: skip
    print(write_profile(profile, found, folder, place, _command()))


def _benchmark(
    benchmark: Any, out: Path | None, data: list[str] | None, workers: int, device: str,
    resume: bool, overwrite: bool,
) -> None:  # fmt: skip
    from operators.train import Epoch, Stopped
    from pipelines.benchmark_report import write_benchmark_report
    from pipelines.benchmark_run import BenchmarkRun, check_place
    from pipelines.run import check_device

    if resume and overwrite:
        raise SchemaError("--resume and --overwrite exclude each other")
    place = check_device(device)
    folder = out or Path("runs") / f"benchmark-{benchmark.name}"
    check_place(benchmark.name, folder, resume, overwrite)
    given = benchmark.stores(data or [])
    stores = {
        dataset: given.get(dataset) or generated(declared.load().data.load_recipe())
        for dataset, declared in benchmark.datasets.items()
    }
    run = BenchmarkRun(benchmark, stores, folder)
    report, started = Reporter(f"benchmark {benchmark.name}", every=0), time.monotonic()

    def on_epoch(epoch: Epoch) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[Kepoch {epoch.epoch}: {epoch.score:.3e}", end="", file=sys.stderr,
                  flush=True)  # fmt: skip

    with Interrupts() as interrupts:
        try:
            run.run(
                place, workers=workers, resume=resume, overwrite=overwrite, on_epoch=on_epoch,
                stop=interrupts.asked,
                progress=lambda what, done, total: report(
                    done, total, time.monotonic() - started, f", {what}"),
            )  # fmt: skip
        except Stopped as stopped:
            print(f"\n{stopped}: finished rows are kept, continue with --resume", file=sys.stderr)
            raise KeyboardInterrupt from None
    print(write_benchmark_report(run, place, _command()))


study_app = typer.Typer(help="Studies: many trainings, one report.", rich_markup_mode=None)
app.add_typer(study_app, name="study")


@study_app.command("resolution")
def study_resolution_command(
    name: Annotated[str, typer.Argument(help="A benchmark on several grids.")] = "resolution",
    out: Annotated[Path | None, typer.Option(help="Folder of the study.")] = None,
    only: Only = None,
    on: On = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Its small version, for two cores.")
    ] = False,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train operators on one grid, and evaluate them on others without training again."""
    from pipelines.benchmark import Benchmark, load_benchmark

    benchmark = load_benchmark(name)
    if not isinstance(benchmark, Benchmark) or not benchmark.grids:
        raise SchemaError(f"{name} has no dataset of several grids (resolutions)")
    benchmark_command(
        name, out, only, on, None, quick, None, set_, workers, device, resume, overwrite
    )


@study_app.command("noise")
def study_noise_command(
    experiment: Annotated[str, typer.Argument(help="An inverse experiment, or a TOML file.")],
    train_levels: Annotated[str, typer.Option(help="Noise levels to train at.")] = "0,0.01,0.1",
    test_levels: Annotated[str, typer.Option(help="Levels to test at.")] = "0,0.01,0.05,0.1",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings at each level.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder of the study.")] = None,
    data: Annotated[str | None, typer.Option(help="Store; default: made where absent.")] = None,
    set_: Set = None,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train an inverse problem at some noise levels and test it at others, with baselines."""
    import shutil

    from operators.train import Epoch, Stopped
    from pipelines.experiment import load_experiment
    from pipelines.noise_study import NoiseStudy, parse_levels
    from pipelines.run import check_device
    from pipelines.study_report import write_study_report

    declared = load_experiment(experiment).with_overrides(parsed(set_))
    place = check_device(device)
    folder = out or Path("runs") / f"{declared.name}-noise-study"
    if resume and overwrite:
        raise SchemaError("--resume and --overwrite exclude each other")
    levels = parse_levels(train_levels), parse_levels(test_levels)
    store = data or generated(declared.data.load_recipe())
    study = NoiseStudy(declared, store, folder, *levels, seeds)
    if overwrite and (folder / "study.json").exists():
        shutil.rmtree(folder)
    report, started = Reporter(f"studying {declared.name}, steps", every=0), time.monotonic()

    def on_epoch(epoch: Epoch) -> None:
        if sys.stderr.isatty():
            total = declared.training.epochs
            print(f"\r\033[Kepoch {epoch.epoch}/{total}", end="", file=sys.stderr, flush=True)

    with Interrupts() as interrupts:
        try:
            study.run(
                place, resume=resume, on_epoch=on_epoch, stop=interrupts.asked,
                progress=lambda what, done, total: report(
                    done, total, time.monotonic() - started, f", {what}"),
            )  # fmt: skip
        except Stopped as stopped:
            print(f"\n{stopped}: finished cells are kept, continue with --resume", file=sys.stderr)
            raise KeyboardInterrupt from None
    print(write_study_report(study, place))
