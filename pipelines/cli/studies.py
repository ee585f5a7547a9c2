"""Commands of many trainings: benchmarks, profiles, studies."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdegen.schema import SchemaError
from pipelines.cli.common import (
    Device,
    Equation,
    Failed,
    Interrupts,
    On,
    Only,
    Overwrite,
    Reporter,
    Resume,
    Set,
    Trainings,
    app,
    number,
    parsed,
)
from pipelines.cli.stores import generated
from pipelines.cli.terminal import note, redraw, say

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    import torch

    from operators.training.fit import Epoch
    from pipelines.declared.benchmark import Benchmark
    from pipelines.studies.benchmark import BenchmarkRun
    from pipelines.studies.runner import Study

Words = list[str] | None
Quick = Annotated[bool, typer.Option("--quick", help="Run the small version, for two cores.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the study.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds: trainings of each case.")]
Store = Annotated[str | None, typer.Option(help="Store; default: generated if absent.")]


@app.command("benchmark")
def benchmark_command(
    name: Annotated[str, typer.Argument(help="Benchmark, or a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the benchmark.")] = None,
    only: Only = None,
    on: On = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds: trainings of each operator.")
    ] = None,
    quick: Quick = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATASET=STORE",
            help="Store of a dataset; default: generated if absent; repeatable.",
        ),
    ] = None,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    equation: Equation = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Make the rows of this seed alone, beside other processes and without a report.",
        ),
    ] = None,
    scheduler: Annotated[
        str,
        typer.Option(help="Where trainings run: processes, slurm, or the address of a scheduler."),
    ] = "processes",
    cells: Annotated[
        bool,
        typer.Option("--cells", help="Make the stores, and print a command for each training."),
    ] = False,
) -> None:
    """Train operators on datasets at one protocol or two, and write one table of the results."""
    from pipelines.declared.benchmark import load_benchmark
    from pipelines.declared.profile import Profile
    from pipelines.reports.benchmark_report import write_benchmark_report

    how = _How(workers, device, resume, overwrite, scheduler)
    benchmark = load_benchmark(name, sound=False)
    if isinstance(benchmark, Profile):
        if only or on or seeds or data or set_ or workers > 1 or seed is not None or cells:
            raise SchemaError(
                f"{name} is a profile: it takes --quick, --out, --device, --resume and --overwrite"
            )
        _profile(benchmark, quick, out, how)
        return
    benchmark = _chosen(benchmark, quick, only, on, set_)
    if seeds is not None:
        benchmark = benchmark.model_copy(update={"seeds": seeds})
    if overwrite and (seed is not None or cells):
        raise SchemaError("--seed and --cells go on with the folder: leave --overwrite out")
    if seed is not None and seed >= benchmark.seeds:
        raise SchemaError(
            f"benchmark {benchmark.name} has seeds 0 to {benchmark.seeds - 1}, got --seed {seed}"
        )
    folder, stores = out or Path("runs") / f"benchmark-{benchmark.name}", data or []
    if seed is not None or cells:
        how = replace(how, resume=True)
    run = how.prepared(benchmark, folder, benchmark.stores(stores), only or [], seed)
    if cells:
        for words in _cells(run, out):
            say(shlex.join(words))
        return
    how.benchmark(run, write_benchmark_report)


@app.command("break-even")
def break_even_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished benchmark.")],
) -> None:
    """Compute again, from the logs of a benchmark's runs, after how many solves operators pay."""
    from pipelines.reports.benchmark_table import solves
    from pipelines.studies.logged import break_evens

    off = list[str]()
    for name, (logged, stated) in break_evens(folder).items():
        say(f"{name}: {solves(logged)} (table: {solves(stated)})")
        if logged != stated and not abs(logged - stated) <= 0.1 * stated:
            off.append(name)
    if off:
        raise Failed(f"more than 10 % from the table: {'; '.join(off)}")


def _chosen(
    benchmark: "Benchmark", quick: bool, only: Words, on: Words, set_: Words
) -> "Benchmark":
    """The part of a benchmark that the options select, with their settings."""
    small = benchmark.quickly() if quick else benchmark
    chosen = small.only(only or [], on or [])
    chosen.check()  # what is not chosen need not be
    return chosen.with_overrides(parsed(set_))


def _cells(run: "BenchmarkRun", out: Path | None) -> Iterator[list[str]]:
    """The command of each training that is not there yet."""
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
    """The words of a command without some options and their values."""
    left = list[str]()
    skip = False
    for word in words:
        if not skip and word not in options and word.partition("=")[0] not in options:
            left.append(word)
        skip = not skip and word in options
    return left


def _command() -> str:
    """The command line that runs this study from its start."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["pdegen", *words])


@dataclass(frozen=True)
class _How:
    """How a study is run, and whether an earlier one is continued or replaced."""

    workers: int
    device: str
    resume: bool
    overwrite: bool
    scheduler: str = "processes"

    def __post_init__(self) -> None:
        from pdegen.making.engines import check

        check(self.scheduler)
        if self.scheduler in ("threads", "mpi"):
            raise SchemaError(
                f"--scheduler {self.scheduler} is of pdegen generate: trainings are for processes, "
                "slurm, or the address of a Dask scheduler"
            )
        if self.resume and self.overwrite:
            raise SchemaError("--resume and --overwrite exclude each other")

    @property
    def place(self) -> "torch.device":
        from pipelines.runs.run import check_device

        return check_device(self.device)

    def study(self, study: "Study[Any]", what: str) -> None:
        """Run a study to its end."""
        from operators.training.fit import Stopped

        report, started = Reporter(what, every=0), time.monotonic()

        def on_epoch(epoch: "Epoch") -> None:
            if sys.stderr.isatty():
                redraw(f"epoch {epoch.epoch}: {epoch.score:.3e}")

        def progress(said: str, done: int, total: int) -> None:
            report(done, total, time.monotonic() - started, f", {said}")

        with Interrupts() as interrupts:
            try:
                way = {"resume": self.resume, "overwrite": self.overwrite}
                way |= {"workers": self.workers, "scheduler": self.scheduler}
                heard = {"progress": progress, "on_epoch": on_epoch, "stop": interrupts.asked}
                study.run(self.place, **way, **heard)
            except Stopped as stopped:
                note("")
                note(f"{stopped}: finished rows are kept, continue with --resume")
                raise KeyboardInterrupt from None

    def prepared(
        self,
        benchmark: "Benchmark",
        folder: Path,
        given: Mapping[str, str],
        wanted: Collection[str] = (),
        seed: int | None = None,
    ) -> "BenchmarkRun":
        """A benchmark on given stores or on the stores of its recipes, which are made.

        `wanted` are operators that `--only` names; leaving one out is an error. `seed` is the only
        one to train with.
        """
        from pipelines.runs.data import Source
        from pipelines.runs.stream import check_data
        from pipelines.studies.benchmark import BenchmarkRun, check_cases, check_place

        place = self.place
        check_place(benchmark.name, folder, self.resume, self.overwrite)
        experiments = {name: dataset.load() for name, dataset in benchmark.datasets.items()}
        absent = [name for name in experiments if name not in given]
        dims = {
            name: check_data(one, place) if name in absent else Source(given[name], one).dim
            for name, one in experiments.items()
        }
        check_cases(benchmark, dims, wanted)
        recipes = {name: experiments[name].data.load_recipe() for name in absent}
        distinct = {recipe.fingerprint: recipe for recipe in recipes.values()}
        made = {fingerprint: generated(recipe) for fingerprint, recipe in distinct.items()}
        stores = {**given, **{name: made[recipe.fingerprint] for name, recipe in recipes.items()}}
        if self.scheduler != "processes":  # whose workers may be in other folders
            folder = folder.absolute()
            stores = {k: v if "://" in v else os.path.abspath(v) for k, v in stores.items()}
        return BenchmarkRun(benchmark, stores, folder, seed)

    def benchmark(self, run: "BenchmarkRun", write: Callable[[Any, Any, str], Path]) -> None:
        """Train, evaluate and report; of one seed, print the rows in place of a report."""
        from pipelines.studies.runner import How

        self.study(run, f"benchmark {run.benchmark.name}")
        if run.seed is None:
            with How(self.place).waited(run.folder):
                say(write(run, self.place, _command()))
        for row in run.rows() if run.seed is not None else ():
            say(f"{row.dataset}, {row.operator}, seed {row.seed}: {row.failed or number(row.mean)}")


def _profile(profile: Any, quick: bool, out: Path | None, how: _How) -> None:
    from pipelines.declared.benchmark import load_quick_profile
    from pipelines.reports.profile_report import write_profile_report
    from pipelines.studies.profile import HOLDING, ProfileRun

    profile = load_quick_profile(profile) if quick else profile
    run = ProfileRun(profile, out or Path("runs") / profile.name)
    HOLDING.check(run.folder, how.resume, how.overwrite)
    how.study(run, f"profile {profile.name}")
    say(write_profile_report(run, _command()))


study_app = typer.Typer(help="Studies: many trainings, one report.", rich_markup_mode=None)
app.add_typer(study_app, name="study")


@study_app.command("resolution")
def study_resolution_command(
    name: Annotated[str, typer.Argument(help="A benchmark on several grids.")] = "resolution",
    out: Out = None,
    only: Only = None,
    on: On = None,
    quick: Quick = False,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    equation: Equation = None,
) -> None:
    """Train operators on one grid, and evaluate them on other grids without training again."""
    from pipelines.declared.benchmark import Benchmark, load_benchmark

    benchmark = load_benchmark(name)
    several = "dataset of several grids (resolutions)"
    if not isinstance(benchmark, Benchmark) or not benchmark.grids:
        raise SchemaError(f"{name} has no {several}")
    if not _chosen(benchmark, quick, only, on, set_).grids:
        raise SchemaError(f"{name} has no {several} with what --quick, --on and --set leave of it")
    benchmark_command(
        name, out, only, on, None, quick, None, set_, workers, device, resume, overwrite
    )


@study_app.command("samples")
def study_samples_command(
    experiment: Annotated[
        str | None, typer.Argument(help="Experiment, or a TOML file; default: burgers-gt-512.")
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(help="Numbers of training samples; default: 1024,8192,unlimited."),
    ] = None,
    seeds: Seeds = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run an experiment with numbers for two cores.")
    ] = False,
    out: Out = None,
    data: Store = None,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    equation: Equation = None,
) -> None:
    """Train on growing numbers of distinct samples, up to a stream, with equal steps."""
    from pipelines.reports.samples_report import write_samples_report
    from pipelines.studies.samples import parse_numbers, samples_study

    if quick and experiment is not None:
        raise SchemaError("--quick has an experiment of its own: name none")
    name = experiment or ("burgers-stream-quick" if quick else "burgers-gt-512")
    numbers = samples or ("64,256,1024,unlimited" if quick else "1024,8192,unlimited")
    study = samples_study(name, parse_numbers(numbers), seeds, parsed(set_))
    folder = out or Path("runs") / f"{study.name}-study"
    given = {} if data is None else dict.fromkeys(study.datasets, data)
    how = _How(workers, device, resume, overwrite)
    how.benchmark(how.prepared(study, folder, given), write_samples_report)


@study_app.command("noise")
def study_noise_command(
    experiment: Annotated[str, typer.Argument(help="An inverse experiment, or a TOML file.")],
    train_levels: Annotated[
        str, typer.Option(help="Noise levels to train at; all is one training that is told them.")
    ] = "0,0.01,0.1",
    test_levels: Annotated[str, typer.Option(help="Noise levels to test at.")] = "0,0.01,0.05,0.1",
    inverted: Annotated[int, typer.Option(help="Test samples of the classical methods.")] = 100,
    told: Annotated[
        str, typer.Option(help="What methods that know the level are told, as multiples of it.")
    ] = "1",
    seeds: Seeds = 1,
    out: Out = None,
    data: Store = None,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    equation: Equation = None,
) -> None:
    """Train an inverse problem at some noise levels, test it at others, compare with baselines."""
    from pipelines.declared.experiment import load_experiment
    from pipelines.reports.noise_report import write_noise_report
    from pipelines.runs.folder import check_folder
    from pipelines.studies.levels import check_classical, parse_levels, parse_trained
    from pipelines.studies.noise import NoiseStudy

    declared = load_experiment(experiment, data).with_overrides(parsed(set_))
    how = _How(workers, device, resume, overwrite)
    place, folder = how.place, out or Path("runs") / f"{declared.name}-noise-study"
    check_folder(folder)
    tested = parse_levels(test_levels)
    trained, multiples = parse_trained(train_levels, tested), parse_levels(told)
    check_classical(inverted, multiples)
    store = data or generated(declared.data.load_recipe())
    study = NoiseStudy(declared, store, folder, trained, tested, seeds, inverted, multiples)
    how.study(study, f"studying {declared.name}, steps")
    say(write_noise_report(study, place))
