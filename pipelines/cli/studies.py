"""Commands `pdegen study ...`, which run many trainings and write one report."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdegen.schema import SchemaError
from pipelines.cli import common
from pipelines.cli.common import (
    Device,
    Failed,
    Interrupted,
    Interrupts,
    On,
    Only,
    Overwrite,
    Plugin,
    Quick,
    Reporter,
    Resume,
    Set,
    Trainings,
    Workers,
    app,
    command,
    note,
    number,
    parsed,
    redraw,
    say,
)
from pipelines.cli.stores import generate_default, shown_shards
from pipelines.config.shipped import check_known

if TYPE_CHECKING:
    import torch

    from operators.training.fit import Epoch
    from pdegen.generation.generate import Progress
    from pipelines.config.benchmark import Benchmark, Profile
    from pipelines.studies.benchmark import BenchmarkRun
    from pipelines.studies.noise import NoiseStudy
    from pipelines.studies.runner import Study


# Launch of studies and benchmarks from the command line.


def command_line() -> str:
    """The command line that repeats this study from the beginning."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["pdegen", *words])


@dataclass(frozen=True)
class Launch:
    """Options of a study: workers, device and scheduler, and whether to resume or overwrite it."""

    workers: int
    device: str
    resume: bool
    overwrite: bool
    scheduler: str = "processes"

    def __post_init__(self) -> None:
        from pdegen.generation.pools import check

        check(self.scheduler)
        if self.scheduler in ("threads", "dask", "mpi"):
            raise SchemaError(
                f"--scheduler {self.scheduler} is for pdegen generate: trainings run on processes, "
                "slurm, or the address of a Dask scheduler"
            )
        if self.resume and self.overwrite:
            raise SchemaError("--resume and --overwrite exclude each other")

    @property
    def torch_device(self) -> "torch.device":
        from pipelines.runs.checks import check_device

        return check_device(self.device)

    def study(
        self, study: "Study[Any]", title: str, begun: Callable[[], None] = lambda: None
    ) -> None:
        """Run a study until it is finished. `begun` is called after all checks have passed."""
        from operators.training.fit import Stopped
        from pipelines.studies.runner import sharing

        if self.scheduler == "processes" and (shared := sharing(self.workers, self.torch_device)):
            note(shared)
        report, started = Reporter(title, every=0), time.monotonic()

        def on_epoch(epoch: "Epoch") -> None:
            if sys.stderr.isatty():
                redraw(f"epoch {epoch.epoch}: {epoch.score:.3e}")

        def progress(line: str, done: int, total: int) -> None:
            report(done, total, time.monotonic() - started, f", {line}")

        with Interrupts() as interrupts:
            try:
                options = {"resume": self.resume, "overwrite": self.overwrite}
                options |= {"workers": self.workers, "scheduler": self.scheduler}
                callbacks = {
                    "progress": progress,
                    "on_epoch": on_epoch,
                    "stop": interrupts.requested,
                }
                study.run(self.torch_device, **options, **callbacks, begun=begun)
            except Stopped as stopped:
                raise Interrupted(
                    f"{stopped}; finished rows are kept: continue with --resume"
                ) from None

    def prepared(
        self,
        benchmark: "Benchmark",
        folder: Path,
        given: Mapping[str, str],
        wanted: Collection[str] = (),
        seed: int | None = None,
    ) -> "BenchmarkRun":
        """Check a benchmark and generate the stores that are not given.

        Args:
            given: URLs of stores, by dataset.
            wanted: Labels of the operators that `--only` names.
            seed: The only seed to train with; None for all seeds.
        """
        from pipelines.runs.data import Source, check_data
        from pipelines.studies.benchmark import BenchmarkRun, check_cases, check_place

        device = self.torch_device
        check_place(benchmark.name, folder, self.resume, self.overwrite)
        experiments = {name: dataset.load() for name, dataset in benchmark.datasets.items()}
        absent = [name for name in experiments if name not in given]
        dims = {
            name: check_data(experiment, device)
            if name in absent
            else Source(given[name], experiment).stored("test").dim
            for name, experiment in experiments.items()
        }
        check_cases(benchmark, dims, wanted)
        recipes = {name: experiments[name].data.load_recipe() for name in absent}
        distinct = {recipe.fingerprint: recipe for recipe in recipes.values()}
        urls = {fingerprint: generate_default(recipe) for fingerprint, recipe in distinct.items()}
        stores = {**given, **{name: urls[recipe.fingerprint] for name, recipe in recipes.items()}}
        if self.scheduler != "processes":  # workers elsewhere may have another current folder
            folder = folder.absolute()
            stores = {
                name: url if "://" in url else os.path.abspath(url) for name, url in stores.items()
            }
        return BenchmarkRun(benchmark, stores, folder, seed)

    def benchmark(
        self, run: "BenchmarkRun", write: "Callable[[BenchmarkRun, torch.device, str], Path]"
    ) -> None:
        """Run the benchmark and write the report. With a single seed, print its rows instead.

        If the benchmark is interrupted, the report has the finished rows and names the others.
        """
        from pipelines.studies.runner import Execution

        def begun() -> None:
            for name, dataset in run.benchmark.datasets.items():
                note(f"{name}: {dataset.load().mapped(run.stores[name])}")

        def report() -> None:
            with Execution(self.torch_device).wait_and_hold(run.folder):
                say(write(run, self.torch_device, command_line()))

        try:
            self.study(run, f"benchmark {run.benchmark.name}", begun)
        except Interrupted:
            if run.seed is None and run.rows():
                report()
            raise
        if run.seed is None:
            report()
        for row in run.rows() if run.seed is not None else ():
            say(f"{row.dataset}, {row.operator}, seed {row.seed}: {row.failed or number(row.mean)}")


# Commands that write tables of operators: benchmark and break-even.


Words = list[str] | None
BenchmarkOut = Annotated[
    Path | None, typer.Option(help="Folder of the benchmark; default: runs/benchmark-NAME.")
]
BenchmarkSeeds = Annotated[
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
RunsCells = Annotated[
    bool, typer.Option("--cells", help="Generate the stores and print one command per training.")
]


@command(
    "benchmark",
    "pdegen benchmark quick",
    "pdegen benchmark standard --quick --only FNO --seeds 3 --workers 2",
)
def benchmark_command(
    name: Annotated[
        str, typer.Argument(help="Benchmark, or a TOML file.", autocompletion=common.benchmarks)
    ],
    out: BenchmarkOut = None,
    only: Only = None,
    on: On = None,
    seeds: BenchmarkSeeds = None,
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
    cells: RunsCells = False,
) -> None:
    """Train operators on datasets and write one table of the results.

    An operator of --plugin that the table does not have is a further row. With --resume, --only and
    --on choose what is computed; the other finished rows of the folder stay in its table.
    """
    check_known("benchmark", name)

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
    from pipelines.studies.benchmark import PROFILE_HOLDING as HOLDING
    from pipelines.studies.benchmark import ProfileRun

    profile = load_quick_profile(profile) if quick else profile
    run = ProfileRun(profile, out or Path("runs") / profile.name)
    HOLDING.check(run.folder, launch.resume, launch.overwrite)
    launch.study(run, f"profile {profile.name}")
    say(write_profile_report(run, command_line()))


Out = Annotated[
    Path | None,
    typer.Option(help="Folder of the results; default: a folder in runs/ with their name."),
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds: trainings of each case.")]
Store = Annotated[str | None, typer.Option(help="Store; by default it is generated if absent.")]
TrainLevels = Annotated[
    str,
    typer.Option(
        help="Noise levels of the trainings; `all`: one training on a range of levels; `none`: no "
        "training."
    ),
]
TestLevels = Annotated[
    str | None,
    typer.Option(
        help="Noise levels of the test inputs; default: 0,0.01,0.05,0.1, or 0 for noise on targets."
    ),
]
InversionSamples = Annotated[
    int, typer.Option(min=1, help="Number of test samples for the classical methods.")
]
AssumedLevel = Annotated[
    str, typer.Option(help="Levels that methods assume, as multiples of the true level: 1,3.")
]
Methods = Annotated[
    list[str] | None,
    typer.Option(help="Classical method to test, or `none`; default: all; repeatable."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="OPERATOR",
        help="Operator to train, with --set OPERATOR.KEY=VALUE; default: that of the experiment; "
        "repeatable.",
        autocompletion=common.operators,
    ),
]
StudyConditions = Annotated[
    list[str] | None,
    typer.Option(
        "--condition",
        metavar="NAME",
        help="Condition of the experiment to test under besides, or `all`: test data that differ "
        "from what methods are told; default: none; repeatable.",
    ),
]
Cells = Annotated[
    int | None,
    typer.Option(help="Cells per axis of the classical methods; default: points of the data."),
]

study_app = typer.Typer(help="Studies: many trainings, one report.", rich_markup_mode=None)
app.add_typer(study_app, name="study")


@command("study resolution", "pdegen study resolution --quick", of=study_app)
def study_resolution_command(
    name: Annotated[
        str,
        typer.Argument(help="A benchmark on several grids.", autocompletion=common.benchmarks),
    ] = "resolution",
    out: Out = None,
    only: Only = None,
    on: On = None,
    quick: Quick = False,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    plugin: Plugin = None,
) -> None:
    """Train operators on one grid and evaluate them on other grids without retraining."""
    check_known("benchmark", name)

    from pipelines.config.benchmark import Benchmark, load_benchmark

    benchmark = load_benchmark(name)
    several = "dataset with several resolutions"
    if not isinstance(benchmark, Benchmark) or not benchmark.grids:
        raise SchemaError(f"{name} has no {several}")
    if not chosen(benchmark, quick, only, on, set_).grids:
        raise SchemaError(f"{name} has no {several} after --quick, --on and --set")
    benchmark_command(
        name, out, only, on, None, quick, None, set_, workers, device, resume, overwrite
    )


@command("study samples", "pdegen study samples --quick --seeds 2", of=study_app)
def study_samples_command(
    experiment: Annotated[
        str | None,
        typer.Argument(
            help="Experiment, or a TOML file; default: burgers-gt-512.",
            autocompletion=common.experiments,
        ),
    ] = None,
    samples: Annotated[
        str | None, typer.Option(help="Numbers of training samples; default: 1024,8192,unlimited.")
    ] = None,
    seeds: Seeds = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small experiment for two cores.")
    ] = False,
    out: Out = None,
    data: Store = None,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    plugin: Plugin = None,
) -> None:
    """Train on more and more distinct samples, up to an unlimited stream, with equal steps."""
    if quick and experiment is not None:
        raise SchemaError("--quick chooses the experiment: do not name one")
    name = experiment or ("burgers-stream-quick" if quick else "burgers-gt-512")
    check_known("experiment", name)

    from pipelines.reports.samples_report import write_samples_report
    from pipelines.studies.samples import parse_numbers, samples_study

    numbers = samples or ("64,256,1024,unlimited" if quick else "1024,8192,unlimited")
    study = samples_study(name, parse_numbers(numbers), seeds, parsed(set_), data)
    folder = out or Path("runs") / f"{study.name}-study"
    stores = {} if data is None else dict.fromkeys(study.datasets, data)
    launch = Launch(workers, device, resume, overwrite)
    launch.benchmark(launch.prepared(study, folder, stores), write_samples_report)


@command(
    "study noise",
    "pdegen study noise darcy-inverse-quick --train-levels 0,0.1 --test-levels 0,0.05,0.1",
    of=study_app,
)
def study_noise_command(
    experiment: Annotated[
        str,
        typer.Argument(
            help="An experiment with noise, or a TOML file.", autocompletion=common.experiments
        ),
    ],
    train_levels: TrainLevels = "0,0.01,0.1",
    test_levels: TestLevels = None,
    model: Models = None,
    inversion_samples: InversionSamples = 100,
    assumed_level: AssumedLevel = "1",
    method: Methods = None,
    condition: StudyConditions = None,
    cells: Cells = None,
    seeds: Seeds = 1,
    out: Out = None,
    data: Store = None,
    set_: Set = None,
    workers: Trainings = 1,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    plugin: Plugin = None,
) -> None:
    """Train operators on noisy inputs or targets, test them at several noise levels, and compare
    them with classical methods."""
    check_known("experiment", experiment)

    from pipelines.config.experiment import load_experiment
    from pipelines.reports.noise_report import write_noise_report
    from pipelines.runs.folder import check_folder
    from pipelines.studies.inversions import operator_experiments, parse_levels, parse_trained
    from pipelines.studies.noise import NoiseStudy

    original = load_experiment(experiment, data)
    declared, operators = operator_experiments(original, model or (), parsed(set_), data)
    conditions = declared.chosen_conditions(list(dict.fromkeys(condition or [])))
    declared, operators = declared.unconditioned, tuple(o.unconditioned for o in operators)
    launch = Launch(workers, device, resume, overwrite)
    torch_device, folder = launch.torch_device, out or Path("runs") / f"{declared.name}-noise-study"
    check_folder(folder)
    on_inputs = declared.noise is None or declared.noise.on_inputs
    tested = parse_levels(test_levels or ("0,0.01,0.05,0.1" if on_inputs else "0"))
    study = NoiseStudy(
        declared, data or "", folder, parse_trained(train_levels, tested), tested, seeds,
        inversion_samples, parse_levels(assumed_level), tuple(dict.fromkeys(method or [])),
        conditions, cells, operators,
    )  # fmt: skip
    if data is None:
        study = _with_store(study, torch_device)
    launch.study(study, f"studying {declared.name}, steps", lambda: _begun(study))
    say(write_noise_report(study, torch_device))


def _with_store(study: "NoiseStudy", device: "torch.device") -> "NoiseStudy":
    """The study with the store of its recipe."""
    from pipelines.runs.data import check_data, padded
    from pipelines.studies.inversions import check_methods

    for each in study.experiments.values():
        check_data(each, device)
    recipe = study.experiment.data.load_recipe()
    if padded(recipe):
        raise SchemaError(
            f"study noise: samples of recipe {recipe.name} have different numbers of points"
        )
    check_methods(study.experiment, study.only, study.cells)
    for name in study.shifted:
        study.conditions[name].recipe(recipe, name)  # raises for an impossible key
    return replace(study, store=generate_default(recipe))


def _begun(study: "NoiseStudy") -> None:
    """Print what the operators learn, and why there are no classical methods if there are none."""
    note(study.experiment.mapped(study.store))
    if study.inversions.absent:
        note(f"no classical methods: {study.inversions.absent}")


# Frozen test sets for inverse problems.


TestSetName = Annotated[str, typer.Argument(help="Name of a shipped test set, or a TOML file.")]
TestSetOut = Annotated[Path | None, typer.Option(help="Folder of the set; default: sets/NAME.")]
Verify = Annotated[
    bool, typer.Option("--verify", help="Check the files of a set against its digests.")
]
Made = Annotated[str, typer.Argument(help="Folder of a test set, or a name: sets/NAME.")]
AnswerSources = Annotated[
    list[str],
    typer.Argument(
        help="Folders of answers or of finished runs, and names of classical methods. Differences "
        "are from the first."
    ),
]
Conditions = Annotated[
    list[str] | None,
    typer.Option("--condition", help="Condition to score; default: all; repeatable."),
]
FirstSamples = Annotated[
    int | None,
    typer.Option(min=2, help="Number of first samples of each condition; default: all."),
]
Processes = Annotated[int, typer.Option(min=1, help="Processes that answer conditions.")]


@command("testset", "pdegen testset inverse-darcy-1", "pdegen testset inverse-darcy-1 --verify")
def make_testset_command(
    name: TestSetName,
    out: TestSetOut = None,
    verify: Verify = False,
    workers: Workers = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Make a frozen test set for inverse problems: truths, and noisy data under many conditions."""
    from pipelines.studies.testset import TestSet, TestSetFolder, make_testset

    declared = TestSet.load(name)
    folder = out or Path("sets") / declared.name
    if verify:
        made = TestSetFolder(folder)
        faults = list(made.faults())
        for fault in faults:
            note(f"pdegen: {fault}")
        if faults:
            raise Failed(f"{folder}: {len(faults)} faults")
        say(f"{folder}: whole, digest {made.digest}")
        differing = made.differing()
        if differing is None:
            return
        rounded, other = differing
        if other:
            raise Failed(f"{folder}: {len(other)} arrays are not those shipped, first {other[0]}")
        say(f"{len(rounded)} arrays differ from the shipped set, by rounding")
        return
    if resume and overwrite:
        raise SchemaError("--resume and --overwrite exclude each other")

    @cache
    def shown(truth: str) -> "Callable[[Progress], None]":
        return shown_shards(f"{declared.name}, {truth}, shards")

    def progress(truth: str, step: "Progress") -> None:
        shown(truth)(step)

    made = make_testset(
        declared, folder, resume=resume, overwrite=overwrite, workers=workers, progress=progress
    )
    note(f"digest {made.digest}")
    say(folder)


@command(
    "score",
    "pdegen score inverse-darcy-1 'maximum a posteriori' mine",
    "pdegen score inverse-darcy-1 mine runs/fno --condition full-0.1",
)
def score_command(
    testset: Made,
    methods: AnswerSources,
    condition: Conditions = None,
    samples: FirstSamples = None,
    conformal: Annotated[
        bool,
        typer.Option(
            "--conformal",
            help="Answer validation samples, too, and judge bands calibrated on them.",
        ),
    ] = False,
    out: Out = None,
    workers: Processes = 1,
) -> None:
    """Score methods on a frozen test set, and write a leaderboard.

    A folder of answers has NAME.npz for each condition, with an array `a` of shape (samples, m, m),
    and method.toml with `name`. Answers of runs and classical methods are made, and kept in the
    folder of the leaderboard.
    """
    from pipelines.reports.leaderboard_report import write_leaderboard
    from pipelines.runs.folder import FolderClaim
    from pipelines.studies.answers import conditions_of
    from pipelines.studies.leaderboard import Scoring, checked_entries, entries, leaderboard
    from pipelines.studies.testset import open_testset

    made = open_testset(testset)
    chosen = list(conditions_of(made, condition or []))
    folder = out or Path("runs") / f"{made.declared.name}-leaderboard"
    asked = Scoring(made, chosen, samples, conformal)
    checked = checked_entries(asked, methods, folder / "answers")
    claim = FolderClaim("leaderboard", "leaderboard.json")
    claim.claim(folder, {"testset": made.digest}, same=("testset",), resume=True)
    answered = entries(asked, checked, folder / "answers", workers, note)
    board = leaderboard(asked, answered)
    say(write_leaderboard(board, answered, folder, command_line()))
