"""The console script `pdegen`: words in, results out. The only file that prints."""

from __future__ import annotations

import os

# Threads that wait by spinning slow each other down many times over on a machine that is shared.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import errno
import json
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pdegen.generate import Options, Progress, generate
from pdegen.problem import layout
from pdegen.problems.base import SampleError
from pdegen.recipe import Recipe, load_recipe, recipe_names
from pdegen.schema import SchemaError, parse_override
from pdegen.store import Store, StoreError
from pdegen.verify import Verification

app = typer.Typer(
    name="pdegen",
    help="Datasets of PDE solutions from recipes, and neural operators trained on them.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key; repeatable.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue what was interrupted.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Only = Annotated[
    list[str] | None, typer.Option(metavar="OPERATOR", help="This operator; repeatable.")
]
Trainings = Annotated[int, typer.Option("--workers", min=1, help="Trainings at a time.")]
On = Annotated[list[str] | None, typer.Option(metavar="DATASET", help="This dataset; repeatable.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Tasks at a time; default: the cores.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Scheduler = Annotated[
    str, typer.Option(help="threads, processes, mpi, slurm, or the address of a Dask scheduler.")
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take the store from a job that has ended.")
]
SkipFailed = Annotated[
    bool, typer.Option("--skip-failed", help="Leave out samples that cannot be computed.")
]

INTERRUPTED = 130
# typer brings its own copy of click and exports only some of its classes; this is their base
UsageError: type[Exception] = typer.BadParameter.mro()[1]


class Failed(Exception):
    """A job that ran and failed: exit status 1."""


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 the job failed, 2 a wrong request,
    130 interrupted."""
    debug = "--debug" in sys.argv
    arguments = [word for word in sys.argv[1:] if word != "--debug"] or ["--help"]
    try:
        status = app(args=arguments, prog_name="pdegen", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except Exception as error:
        status = _status(error)
        if debug or status is None:
            traceback.print_exc()
        else:
            message = getattr(error, "format_message", error.__str__)()  # of a UsageError
            print(f"pdegen: {' '.join(message.split())}", file=sys.stderr)
        sys.exit(1 if status is None else status)
    except KeyboardInterrupt:
        print("pdegen: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _status(error: Exception) -> int | None:
    """Exit status of an error that is explained in one line; None for one that is a bug."""
    from operators.checkpoint import CheckpointError
    from operators.data import DataError
    from operators.train import TrainingError
    from pdegen.darcy.fenicsx.client import MissingDolfinxError, WorkerError
    from pdegen.engines import EngineError, WorkerLostError
    from pdegen.foreign.arrays import ForeignError
    from pdegen.lock import LockedError
    from pdegen.objects import UrlError
    from pipelines.finished import ReportError
    from pipelines.run import RunError

    wrong_request = (
        SchemaError, StoreError, DataError, CheckpointError, RunError, ReportError, UsageError,
        MissingDolfinxError, EngineError, LockedError, ForeignError, UrlError,
    )  # fmt: skip
    no_place = (
        errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR,
        errno.EISDIR, errno.ENOENT, errno.EEXIST, errno.ENAMETOOLONG,
    )  # fmt: skip
    if isinstance(error, wrong_request):
        return 2
    if isinstance(error, OSError) and error.errno in no_place:
        return 2
    if isinstance(error, (Failed, SampleError, TrainingError, WorkerError, WorkerLostError)):
        return 1
    return 1 if isinstance(error, OSError) and error.strerror else None


def _overrides(texts: list[str] | None) -> dict[str, Any]:
    return dict(parse_override(text) for text in texts or [])


def _number(value: float) -> str:
    return f"{value:.3e}"


class _Reporter:
    """Progress: one line redrawn on a terminal, else a plain line now and then."""

    def __init__(self, what: str, every: float = 10.0) -> None:
        self.what, self.every = what, every
        self._terminal = sys.stderr.isatty()
        self._printed = time.monotonic()

    def __call__(self, done: int, total: int, seconds: float, note: str = "") -> None:
        now = time.monotonic()
        last = done == total
        if not (self._terminal or last or now - self._printed >= self.every):
            return
        self._printed = now
        rate = done / seconds if seconds > 0 else float("inf")
        left = (total - done) / rate if rate > 0 else float("inf")
        text = f"{self.what}: {done}/{total}, {_rate(rate)}, {left:.0f} s left{note}"
        if self._terminal:
            print(f"\r\033[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def _rate(rate: float) -> str:
    return f"{rate:.3g}/s" if rate >= 1 else f"{1 / rate:.3g} s each"


@app.command("recipes")
def recipes_command() -> None:
    """List the recipes, with the size of their stores, experiments and benchmarks."""
    from pipelines.benchmark import benchmark_names, load_benchmark
    from pipelines.experiment import experiment_names, load_experiment

    print("Recipes (pdegen generate NAME)")
    for name in recipe_names():
        recipe = load_recipe(name)
        grid = "x".join(map(str, recipe.problem.variables()[0].shape))
        size = layout(recipe).bytes
        print(f"  {name:24} {recipe.samples:6} x {grid:<8} {size / 1e6:7.1f} MB  {recipe.summary}")
    print("\nExperiments (pdegen run NAME)")
    for name in experiment_names():
        print(f"  {name:24} {load_experiment(name).summary}")
    print("\nBenchmarks (pdegen benchmark NAME)")
    for name in benchmark_names():
        print(f"  {name:24} {load_benchmark(name).summary}")


@app.command("generate")
def generate_command(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or a TOML file.")],
    out: Annotated[str | None, typer.Option(help="Path or URL of the store.")] = None,
    samples: Annotated[int | None, typer.Option(help="Number of samples.")] = None,
    resolution: Annotated[int | None, typer.Option(help="Points of the output grid.")] = None,
    set_: Set = None,
    workers: Workers = None,
    scheduler: Scheduler = "threads",
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    take_over: TakeOver = False,
    skip_failed: SkipFailed = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and the SLURM job script.")
    ] = False,
) -> None:
    """Make a dataset from a recipe."""
    if scheduler == "mpi" and not dry_run:
        from pdegen.engines import start_mpi

        start_mpi()  # one process goes on
    overrides = _overrides(set_)
    if samples is not None:
        overrides["samples"] = samples
    if resolution is not None:
        overrides["problem.resolution"] = resolution
    declared = load_recipe(recipe).with_overrides(overrides)
    options = Options(
        workers, scheduler, resume, overwrite, take_over, skip_failed,
        _shards(f"generating {declared.name}, shards"),
    )  # fmt: skip
    if device not in ("cpu", "cuda"):
        raise SchemaError(f"unknown device {device!r}: known: cpu, cuda")
    if dry_run:
        _dry_run(declared, out, options)
        return
    print(_generate(declared, out, options, device).url)


def _shards(what: str) -> Callable[[Progress], None]:
    """Reports progress, and what was tried again or skipped."""
    report = _Reporter(what)

    def progress(p: Progress) -> None:
        for note in p.notes:
            print(f"pdegen: {note}", file=sys.stderr)
        report(p.done, p.total, p.seconds)

    return progress


def _generate(recipe: Recipe, out: str | None, options: Options, device: str = "cpu") -> Store:
    from pipelines.run import default_store

    _check_options(options)
    url = default_store(recipe) if out is None else out
    with _kept(url):
        return generate(recipe, url, None if device == "cpu" else device, **vars(options))


def _check_options(options: Options) -> None:
    if options.resume and options.overwrite:
        raise SchemaError("--resume and --overwrite exclude each other")


def _dry_run(recipe: Recipe, out: str | None, options: Options) -> None:
    """Say what `generate` would do; nothing is written, and no job is submitted."""
    from pdegen.engines import check, slurm_script
    from pipelines.run import default_store

    check(options.scheduler)
    _check_options(options)
    plan, url = layout(recipe), default_store(recipe) if out is None else out
    print(
        f"{recipe.name} to {url}: {plan.samples} samples in "
        f"{plan.shards} shards of {plan.shard}, {plan.bytes / 1e6:.1f} MB before compression"
    )
    if options.scheduler == "slurm":
        print(f"{options.workers or 1} SLURM jobs, each:\n{slurm_script()}")


@contextmanager
def _kept(url: str) -> Iterator[None]:
    """Say what an interruption leaves, and where a place cannot be written."""
    from pdegen.darcy.fenicsx.client import WorkerError

    try:
        yield
    except (KeyboardInterrupt, SampleError, WorkerError) as error:
        print(f"\nfinished shards are kept in {url}: continue with --resume", file=sys.stderr)
        raise error
    except OSError as error:
        raise OSError(error.errno, f"{url}: {error.strerror or error}") from error


@app.command("noise")
def noise_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a sealed store.")],
    variable: Annotated[str, typer.Option(help="Its variable that gets the noise.")],
    out: Annotated[str, typer.Option(help="Path or URL of the store with noise.")],
    level: Annotated[list[float] | None, typer.Option(help="A level; repeatable.")] = None,
    levels: Annotated[str | None, typer.Option(help="Several, such as 0,0.01,0.1.")] = None,
    kind: Annotated[str, typer.Option(help="Kind of noise.")] = "ensemble",
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    set_: Set = None,
    workers: Workers = None,
    scheduler: Scheduler = "threads",
    resume: Resume = False,
    overwrite: Overwrite = False,
    take_over: TakeOver = False,
) -> None:
    """Add noise to a variable of a store, at several levels, in a store of its own."""
    from pdegen.derived import add_noise, at_levels

    shown = _shards(f"adding noise to {variable}, shards")
    options = Options(workers, scheduler, resume, overwrite, take_over, progress=shown)
    _check_options(options)
    given = list(level or [])
    if levels is not None:
        from pipelines.noise_study import parse_levels

        given += parse_levels(levels)
    noises = at_levels({"kind": kind, "seed": seed, **_overrides(set_)}, given)
    with _kept(out):
        made = add_noise(store, variable, noises, out, **vars(options))
    print(made.url)


@app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(help=".mat, .h5, .npy or .pt files.")],
    out: Annotated[str, typer.Option(help="Path or URL of the store.")],
    input: Annotated[str | None, typer.Option(help="Array of the inputs.")] = None,
    target: Annotated[str | None, typer.Option(help="Array of the targets.")] = None,
    grid: Annotated[str | None, typer.Option(help="periodic, cell or nodal.")] = None,
    split: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SIZE", help="Size of a split; repeatable.")
    ] = None,
    samples: Annotated[str, typer.Option(help="Axis of the samples: first or last.")] = "first",
    times: Annotated[str | None, typer.Option(help="Axis of the times: first or last.")] = None,
    workers: Workers = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    take_over: TakeOver = False,
) -> None:
    """Bring published files, or others, into the store format."""
    from pdegen.foreign.declaration import Declaration
    from pdegen.foreign.importing import import_files

    shown = _shards(f"importing {files[0].name}, shards")
    options = Options(workers, "threads", resume, overwrite, take_over, progress=shown)
    _check_options(options)
    declared = Declaration(
        input=input,
        target=target,
        grid=_word("grid", grid, ("periodic", "cell", "nodal")),
        splits=_sizes(split),
        samples=_word("samples", samples, ("first", "last")),
        times=_word("times", times, ("first", "last")),
    )
    with _kept(out):
        print(import_files(files, out, declared, **vars(options)).url)


def _word(what: str, word: str | None, known: tuple[str, ...]) -> Any:
    if word is not None and word not in known:
        raise SchemaError(f"unknown {what} {word!r}: known: {', '.join(known)}")
    return word


def _sizes(texts: list[str] | None) -> dict[str, int] | None:
    """{"train": 1000, ...} from ["train=1000", ...]."""
    if not texts:
        return None
    sizes = dict(parse_override(text) for text in texts)
    for name, size in sizes.items():
        _word("split", name, ("train", "validation", "test"))
        if type(size) is not int or size < 1:
            raise SchemaError(f"split {name}: its size is a whole number >= 1, got {size!r}")
    return sizes


@app.command("export")
def export_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a sealed store.")],
    out: Annotated[Path, typer.Option(help="File to write; a folder for npy.")],
    format: Annotated[str, typer.Option(help="mat, npy, hdf5 or pt.")],
    overwrite: Overwrite = False,
) -> None:
    """Write a store to a file of another format."""
    from pdegen.foreign.exporting import export

    print(export(store, format, out, overwrite=overwrite, progress=_shards("exporting, shards")))


@app.command("info")
def info_command(store: Annotated[str, typer.Argument(help="Path or URL of a store.")]) -> None:
    """Say what a store holds."""
    opened = Store(store)
    attributes = opened.attributes
    unfinished = f"not sealed (pdegen {opened.command} ... --resume finishes it)"
    state = "sealed" if opened.sealed else unfinished
    print(f"{store}: {attributes['title']}\n{state}, fingerprint {attributes['fingerprint']}")
    print(f"equation    {attributes['equation']}")
    for name in opened.variables:
        array = opened.array(name)
        meaning = array.attrs.get("long_name", "")
        print(f"{name:11} {array.shape} {array.dtype}  {meaning}")
    for name, (start, stop) in attributes["splits"].items():
        print(f"{name:11} samples {start} to {stop - 1}")
    if opened.skipped:
        print(f"skipped     samples {', '.join(map(str, opened.skipped))}")
    for name, values in attributes.get("statistics", {}).items():
        print(f"{name:11} training mean {values['mean']:.6g}, std {values['std']:.6g}")
    for name in ("noise", "parent", "imported"):
        if name in attributes:
            print(f"{name:11} {json.dumps(attributes[name])}")
    print(f"recipe      {json.dumps(attributes['recipe'])}")
    print(f"made by     {json.dumps(attributes['provenance'])}")


@app.command("verify")
def verify_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Compute some samples again and compare every bit.")
    ] = False,
    samples: Annotated[int, typer.Option(min=1, help="How many samples --deep compares.")] = 16,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make again what is damaged, and nothing else.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    take_over: TakeOver = False,
) -> None:
    """Check a store: every byte, finite values, statistics, and the law of its recipe."""
    result = _verify(store, deep=samples if deep else 0, repair=repair, take_over=take_over)
    if as_json:
        print(json.dumps(result.summary(), indent=1))
    else:
        for key in result.repaired:
            print(f"{store}: {key} was made again")
    _check_verified(result)
    if not as_json:
        print(f"{store}: verified")


def _verify(
    store: str, *, deep: int = 0, repair: bool = False, take_over: bool = False
) -> Verification:
    from pdegen.verify import repair as mended
    from pdegen.verify import verify

    report, started = _Reporter(f"verifying {store}, shards"), time.monotonic()

    def progress(done: int, total: int) -> None:
        if done < total:
            report(done, total, time.monotonic() - started)

    if repair:
        return mended(store, deep=deep, take_over=take_over, progress=progress)
    return verify(store, deep=deep, progress=progress)


def _check_verified(result: Verification) -> None:
    """Name all faults, and fail where there are some."""
    for fault in result.faults:
        print(f"{result.url}: {fault}", file=sys.stderr)
    if result.faults:
        plural = "s" if len(result.faults) > 1 else ""
        raise Failed(f"{result.url} has {len(result.faults)} fault{plural}")


@app.command("plot")
def plot_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.")],
    sample: Annotated[int | None, typer.Option(help="Number of the sample.")] = None,
    out: Annotated[Path, typer.Option(help="Picture to write: .png, .svg or .pdf.")] = Path(
        "samples.png"
    ),
) -> None:
    """Draw samples of a store."""
    from pipelines.pictures import plot_store

    print(plot_store(store, sample, out))


@app.command("train")
def train_command(
    experiment: Annotated[str | None, typer.Argument(help="Experiment, or a TOML file.")] = None,
    data: Annotated[str | None, typer.Option(help="Store to train on.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, where no experiment is named.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    set_: Set = None,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train an experiment, or a model on a store."""
    from pdegen.schema import near
    from pipelines.experiment import Experiment, load_experiment
    from pipelines.models import MODELS

    if (experiment is None) == (model is None):
        raise SchemaError("name an experiment, or give --data STORE --model NAME")
    if experiment is not None:
        declared = load_experiment(experiment)
    else:
        if data is None:
            raise SchemaError("--model needs --data STORE")
        if model not in MODELS:
            raise SchemaError(f"unknown model {model!r}: {near(str(model), list(MODELS))}")
        declared = Experiment.on_store(data, str(model))
    declared = declared.with_overrides(_overrides(set_))
    folder = out or Path("runs") / declared.name
    store = data or _generate_if_absent(declared.data.load_recipe())
    _train(declared, store, folder, device, resume, overwrite)
    print(folder / f"{declared.training.reported[0]}.safetensors")


def _generate_if_absent(recipe: Recipe) -> str:
    """The default store of a recipe: made, or finished, where it is not there yet."""
    from pdegen.objects import Objects
    from pipelines.run import default_store

    url = default_store(recipe)
    options = Options(
        resume=Objects(url).exists(), progress=_shards(f"generating {recipe.name}, shards")
    )
    return _generate(recipe, url, options).url


def _train(
    experiment: Any, store: str, folder: Path, device: str, resume: bool, overwrite: bool
) -> None:
    from operators.train import Epoch, Stopped
    from pipelines.run import check_device, train

    report = _Reporter(f"training {experiment.name}, epochs")
    total, started = experiment.training.epochs, time.monotonic()
    first: list[int] = []

    def on_epoch(epoch: Epoch) -> None:
        first.append(epoch.epoch)
        done = epoch.epoch
        seconds = (time.monotonic() - started) / len(first) * done
        split = experiment.training.selection_split
        report(done, total, seconds, f", loss {epoch.loss:.3e}, {split} {epoch.score:.3e}")

    with _Interrupts() as interrupts:
        try:
            train(
                experiment, store, folder, check_device(device), resume=resume,
                overwrite=overwrite, on_epoch=on_epoch, stop=interrupts.asked,
                on_reading=lambda how: print(f"training samples: {how}", file=sys.stderr),
            )  # fmt: skip
        except Stopped as stopped:
            print(f"\n{stopped}: continue with --resume", file=sys.stderr)
            raise KeyboardInterrupt from None


class _Interrupts:
    """Ctrl-C and SIGTERM as a question that a loop asks; a second Ctrl-C interrupts at once."""

    def __enter__(self) -> _Interrupts:
        self._asked = False
        self._old = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def asked(self) -> bool:
        return self._asked


@app.command("evaluate")
def evaluate_command(
    checkpoint: Annotated[Path, typer.Argument(help="A *.safetensors file of a run.")],
    data: Annotated[str, typer.Option(help="Store to evaluate on.")],
    resolution: Annotated[int | None, typer.Option(help="Grid points; default: all.")] = None,
    split: Annotated[str, typer.Option(help="Split of the store.")] = "test",
    noise: Annotated[
        float | None, typer.Option(help="Noise level of the inputs; default: as trained.")
    ] = None,
    device: Device = "cpu",
    out: Annotated[Path | None, typer.Option(help="JSON file for the scores.")] = None,
) -> None:
    """Relative L2 error of a checkpoint on every sample of a split."""
    from pipelines.run import check_device, evaluate

    score = evaluate(
        checkpoint, data, check_device(device), split=split, resolution=resolution, level=noise
    )
    summary = score.summary()
    if out is not None:
        out.write_text(json.dumps(summary, indent=2), "utf-8")
    _print_score(summary)


def _print_score(summary: dict[str, Any]) -> None:
    print(
        f"{summary['checkpoint']} (epoch {summary['epoch']}) on {summary['split']} at "
        f"n={summary['resolution']}, {summary['samples']} samples: relative L2 mean "
        f"{_number(summary['mean'])}, median {_number(summary['median'])}, worst "
        f"{_number(summary['worst'])}, std {_number(summary['std'])}"
    )


@app.command("run")
def run_command(
    experiment: Annotated[str, typer.Argument(help="Experiment, or a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    data: Annotated[str | None, typer.Option(help="Store; default: made where absent.")] = None,
    set_: Set = None,
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Generate (if absent), verify, train, evaluate and report an experiment."""
    from pipelines.experiment import load_experiment
    from pipelines.report import write_report
    from pipelines.run import check_device, evaluate_run

    declared = load_experiment(experiment).with_overrides(_overrides(set_))
    place = check_device(device)
    folder = out or Path("runs") / declared.name
    store = data or _generate_if_absent(declared.data.load_recipe())
    _check_verified(_verify(store))
    _train(declared, store, folder, device, resume, overwrite)
    for summary in evaluate_run(declared, store, folder, place)["results"]:
        _print_score(summary)
    print(write_report(folder, store, place))


@app.command("report")
def report_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[str | None, typer.Option(help="Its store; default: where it was.")] = None,
    device: Device = "cpu",
) -> None:
    """Write report.html and report.md of a finished run again."""
    from pipelines.report import write_report
    from pipelines.run import check_device, store_of_run

    print(write_report(folder, data or store_of_run(folder), check_device(device)))


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
    benchmark = benchmark.with_overrides(_overrides(set_))
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
    report, started = _Reporter(f"profile {profile.name}", every=0), time.monotonic()
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
        dataset: given.get(dataset) or _generate_if_absent(declared.load().data.load_recipe())
        for dataset, declared in benchmark.datasets.items()
    }
    run = BenchmarkRun(benchmark, stores, folder)
    report, started = _Reporter(f"benchmark {benchmark.name}", every=0), time.monotonic()

    def on_epoch(epoch: Epoch) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[Kepoch {epoch.epoch}: {epoch.score:.3e}", end="", file=sys.stderr,
                  flush=True)  # fmt: skip

    with _Interrupts() as interrupts:
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

    declared = load_experiment(experiment).with_overrides(_overrides(set_))
    place = check_device(device)
    folder = out or Path("runs") / f"{declared.name}-noise-study"
    if resume and overwrite:
        raise SchemaError("--resume and --overwrite exclude each other")
    levels = parse_levels(train_levels), parse_levels(test_levels)
    store = data or _generate_if_absent(declared.data.load_recipe())
    study = NoiseStudy(declared, store, folder, *levels, seeds)
    if overwrite and (folder / "study.json").exists():
        shutil.rmtree(folder)
    report, started = _Reporter(f"studying {declared.name}, steps", every=0), time.monotonic()

    def on_epoch(epoch: Epoch) -> None:
        if sys.stderr.isatty():
            total = declared.training.epochs
            print(f"\r\033[Kepoch {epoch.epoch}/{total}", end="", file=sys.stderr, flush=True)

    with _Interrupts() as interrupts:
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
