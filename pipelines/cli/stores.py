"""Commands that write, verify and show stores: generate, noise, verify, info, plot, compare."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdegen.files import NoRoomError, message_of
from pdegen.schema import SchemaError
from pipelines.cli import common
from pipelines.cli.common import (
    AsJson,
    Device,
    Failed,
    Interrupted,
    LastingInterrupt,
    Overwrite,
    Plugin,
    Reporter,
    Resume,
    Scheduler,
    Set,
    SkipFailed,
    TakeOver,
    Workers,
    command,
    note,
    parsed,
    print_json,
    say,
    warn_of_few,
    with_sizes,
)

if TYPE_CHECKING:
    from pdegen.generation.generate import Options, Progress
    from pdegen.generation.verify import Verification
    from pdegen.recipe import Recipe
    from pdegen.store.reading import Store


@command(
    "generate",
    "pdegen generate burgers-quick --out data/burgers.zarr",
    "pdegen generate burgers-quick --samples 100 --set viscosity=0.02 --dry-run",
    "pdegen generate darcy-421 --scheduler processes --workers 8 --resume",
)
def generate_command(
    recipe: Annotated[
        str,
        typer.Argument(help="Name of a recipe, or a TOML file.", autocompletion=common.recipes),
    ],
    out: Annotated[
        str | None,
        typer.Option(help="Path or URL of the store; default: data/RECIPE-FINGERPRINT.zarr."),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Number of samples.")] = None,
    resolution: Annotated[
        int | None, typer.Option(help="Points of the output grid, one number for all axes.")
    ] = None,
    set_: Set = None,
    workers: Workers = None,
    scheduler: Scheduler = "threads",
    device: Device = "cpu",
    resume: Resume = False,
    overwrite: Overwrite = False,
    take_over: TakeOver = False,
    skip_failed: SkipFailed = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the plan and the SLURM job script (extra slurm); write nothing.",
        ),
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Generate a dataset from a recipe."""
    from pdegen.generation.generate import Options
    from pdegen.recipe import load_recipe

    if scheduler == "mpi" and not dry_run:
        from pdegen.generation.pools import start_mpi

        start_mpi()  # returns in one process
    overrides = with_sizes(parsed(set_), samples, resolution)
    chosen = load_recipe(recipe).with_overrides(overrides)
    options = Options(
        workers, scheduler, resume, overwrite, take_over, skip_failed,
        shown_shards(f"generating {chosen.name}, shards"),
    )  # fmt: skip
    if device not in ("cpu", "cuda"):
        raise SchemaError(f"unknown device {device!r}: known: cpu, cuda")
    if dry_run:
        _dry_run(chosen, out, options)
        return
    store = _generate(chosen, out, options, device)
    errors = label_errors(store)
    note(f"label error: {in_words(errors)}")
    warn_of_few(chosen.splits.model_dump())
    warn_of_label_errors(errors)
    say(store.url)


_LARGE = 5e-3  # label errors above it are comparable with errors of operators


def label_errors(store: "Store") -> dict[str, object] | None:
    """The relative L² errors of the labels that a sealed store states; None if it states none.

    They are the solver's estimates for each sample, `error`, or else the differences of the first
    samples from a reference solution.
    """
    import numpy as np

    measured = store.metadata.label_error
    if store.sealed and "error" in store.variables:
        values, by = np.asarray(store.values("error")), "the solver's estimates"
        values = values.reshape(store.samples, -1).max(axis=1)
        values = values[np.isfinite(values)]
    elif measured:
        values, by = np.asarray(measured.relative_l2), f"against {measured.reference}"
    else:
        return None
    if not len(values):
        return None
    return {
        "median": float(np.median(values)),
        "largest": float(values.max()),
        "samples": len(values),
        "above_0.5_percent": int(np.sum(values > _LARGE)),
        "by": by,
    }


def in_words(errors: "dict[str, object] | None") -> str:
    """Label errors in one line, for people."""
    if errors is None:
        return "none is stated"
    return (
        f"median {errors['median']:.2g}, largest {errors['largest']:.2g} in relative L2 of "
        f"{errors['samples']} samples ({errors['by']})"
    )


def warn_of_label_errors(errors: "dict[str, object] | None") -> None:
    """Print a warning if errors of operators may be partly those of the labels."""
    if errors is not None and errors["above_0.5_percent"]:
        note(
            f"pdegen: warning: {errors['above_0.5_percent']} of {errors['samples']} label errors "
            f"exceed {_LARGE:.1%}: an operator with a smaller error has partly learned the solver"
        )


def shown_shards(title: str) -> "Callable[[Progress], None]":
    """A callback that prints the progress, the retries and the skipped samples of a generation."""
    report = Reporter(title)

    def progress(p: "Progress") -> None:
        for line in p.notes:
            note(f"pdegen: {line}")
        if p.done:
            report(p.done, p.total, p.seconds)
        LastingInterrupt.check()

    return progress


def _generate(
    recipe: "Recipe", out: str | None, options: "Options", device: str = "cpu"
) -> "Store":
    from pdegen.generation.generate import generate
    from pdegen.recipe import default_store

    check_options(options)
    url = default_store(recipe) if out is None else out
    finer = getattr(getattr(recipe.problem, "solver", None), "resolution", None)
    other = "; --set solver.resolution=... solves on a finer grid, which is another dataset"
    with keep_shards(url, SKIP + (other if finer else "")):
        return generate(recipe, url, None if device == "cpu" else device, **vars(options))


def generate_default(recipe: "Recipe") -> str:
    """Generate or complete the default store of a recipe, and return its URL."""
    from pdegen.generation.generate import Options
    from pdegen.recipe import default_store
    from pdegen.store.objects import Objects

    url = default_store(recipe)
    options = Options(
        resume=Objects(url).exists(), progress=shown_shards(f"generating {recipe.name}, shards")
    )
    return _generate(recipe, url, options).url


def check_options(options: "Options") -> None:
    if options.resume and options.overwrite:
        raise SchemaError("--resume and --overwrite exclude each other")


def _dry_run(recipe: "Recipe", out: str | None, options: "Options") -> None:
    """Print the plan of `generate`. Nothing is written and no job is submitted."""
    from pdegen.generation.generate import layout
    from pdegen.generation.pools import check, slurm_script
    from pdegen.recipe import default_store

    check(options.scheduler)
    check_options(options)
    script = slurm_script() if options.scheduler == "slurm" else ""
    plan, url = layout(recipe), default_store(recipe) if out is None else out
    say(
        f"{recipe.name} to {url}: {plan.samples} samples in "
        f"{plan.shards} shards of {plan.shard}, {plan.bytes / 1e6:.1f} MB before compression"
    )
    for first, last in in_no_split(plan.attributes["splits"], plan.samples):
        say(f"samples {first} to {last} are in no split")
    if options.scheduler == "slurm":
        say(f"{options.workers or 1} SLURM jobs, each:")
        for line in script.splitlines():
            say(line)


SKIP = "--resume --skip-failed leaves the sample out"


@contextmanager
def keep_shards(url: str, help: str = SKIP) -> Iterator[None]:
    """Context in which an interrupt or failure reports that finished shards are in the store.

    `help` is advice for the user if a sample fails.
    """
    if url.startswith("memory://"):
        raise SchemaError(
            f"{url}: a store in memory is lost when this command ends: choose another --out"
        )
    from pdegen.equations.base import SampleError
    from pdegen.numerics.errors import WorkerError

    kept = f"finished shards are kept in {url}: continue with --resume"
    try:
        yield
    except SampleError as error:
        note(f"finished shards are kept in {url}; the sample will fail again: {help}")
        raise error
    except KeyboardInterrupt as interrupt:
        raise Interrupted(kept) from interrupt
    except WorkerError as error:
        note(kept)
        raise error
    except OSError as error:
        message = message_of(error)
        kind = NoRoomError if isinstance(error, NoRoomError) else OSError
        raise kind(error.errno, message if url in message else f"{url}: {message}") from error


@command(
    "noise",
    "pdegen noise data/darcy.zarr --variable u --levels 0,0.01,0.1",
    "pdegen noise data/darcy.zarr --variable u --level 0.05 --kind correlated --set length=0.2",
)
def noise_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a sealed store.")],
    variable: Annotated[str, typer.Option(help="Variable to which noise is added.")],
    out: Annotated[
        str | None,
        typer.Option(help="Path or URL of the new store; default: STORE-noisy.zarr."),
    ] = None,
    level: Annotated[list[float] | None, typer.Option(help="Noise level; repeatable.")] = None,
    levels: Annotated[
        str | None, typer.Option(help="Noise levels, separated by commas: 0,0.01,0.1.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="Kind of the noise; `pdegen noise-kinds` lists them.")
    ] = "ensemble",
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    set_: Set = None,
    workers: Workers = None,
    scheduler: Scheduler = "threads",
    resume: Resume = False,
    overwrite: Overwrite = False,
    take_over: TakeOver = False,
) -> None:
    """Write a new store with noise of several levels added to a variable."""
    from pdegen.generation.derived import add_noise, at_levels
    from pdegen.generation.generate import Options

    url = f"{stem(store)}-noisy.zarr" if out is None else out
    shown = shown_shards(f"adding noise to {variable}, shards")
    options = Options(workers, scheduler, resume, overwrite, take_over, progress=shown)
    check_options(options)
    all_levels = list(level or [])
    if levels is not None:
        from pipelines.studies.inversions import parse_levels

        all_levels += parse_levels(levels)
    noises = at_levels({"kind": kind, "seed": seed, **parsed(set_)}, all_levels)
    with keep_shards(url, "use --overwrite with lower levels"):
        noisy = add_noise(store, variable, noises, url, **vars(options))
    say(noisy.url)


def stem(store: str) -> str:
    """Path or URL of a store without the suffix .zarr."""
    return store.rstrip("/").removesuffix(".zarr")


def in_no_split(splits: Mapping[str, Sequence[int]], samples: int) -> list[tuple[int, int]]:
    """Ranges of samples that belong to no split, each as its first and its last sample."""
    ranges, end = [], 0
    for start, stop in sorted([*map(tuple, splits.values()), (samples, samples)]):
        if start > end:
            ranges.append((end, start - 1))
        end = max(end, stop)
    return ranges


@command(
    "verify",
    "pdegen verify data/burgers.zarr",
    "pdegen verify data/burgers.zarr --deep --json",
    "pdegen verify burgers.mat",
)
def verify_command(
    store: Annotated[
        str, typer.Argument(help="Path or URL of a store; or an exported file or folder.")
    ],
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Compute some samples again and compare them bit for bit."),
    ] = False,
    samples: Annotated[
        int, typer.Option(min=1, help="Number of samples that --deep compares.")
    ] = 16,
    repair: Annotated[
        bool, typer.Option("--repair", help="Restore damaged objects and change no others.")
    ] = False,
    as_json: AsJson = False,
    take_over: TakeOver = False,
    plugin: Plugin = None,
) -> None:
    """Verify a store: every byte, finite values, and statistics against its recipe.

    An export is compared with the SHA-256 of its arrays or files.
    """
    if not is_no_store(store):
        depth = samples if deep else 0
        result = verify_store(store, deep=depth, repair=repair, take_over=take_over)
    elif deep or repair:
        raise SchemaError(f"{store} is no store: --deep and --repair are for stores")
    else:
        result = verify_exported(Path(store))
    if as_json:
        print_json(result.summary())
    else:
        for key in result.repaired:
            say(f"{store}: {key} was restored")
    check_verified(result)
    if not as_json:
        if result.selected:
            note(f"samples were selected: bounds of the {result.selected} were checked, no moments")
        say(f"{store}: verified")


def verify_store(
    store: str, *, deep: int = 0, repair: bool = False, take_over: bool = False
) -> "Verification":
    """Verify or repair a store, and print a progress line."""
    from pdegen.generation.verify import repair as repair_store
    from pdegen.generation.verify import verify

    report, started = Reporter(f"verifying {store}, shards"), time.monotonic()

    def progress(done: int, total: int) -> None:
        LastingInterrupt.check()
        if done < total:
            report(done, total, time.monotonic() - started)

    if repair:
        return repair_store(store, deep=deep, take_over=take_over, progress=progress)
    return verify(store, deep=deep, progress=progress)


def check_verified(result: "Verification") -> None:
    """Print all faults. Raises Failed if there are any."""
    for fault in result.faults:
        note(f"{result.url}: {fault}")
    if result.faults:
        plural = "s" if len(result.faults) > 1 else ""
        raise Failed(f"{result.url} has {len(result.faults)} fault{plural}")


_MODEL = ("config.json", "model.safetensors")


def is_no_store(place: str) -> bool:
    """Whether there is a local file or folder that is no store, not even a damaged one."""
    from pdegen.store.format import ROOT
    from pdegen.store.reading import Seal

    path = Path(place)
    return path.exists() and not any((path / name).exists() for name in (ROOT, Seal.KEY))


def verify_exported(path: Path) -> "Verification":
    """Check a file or folder of `pdegen export`.

    Raises:
        FormatError: If the path is no export, or cannot be read as one.
        CheckpointError, FileError: If the description of a model is missing or damaged.
        OSError: If a file cannot be read.
    """
    from pdegen.formats.export_metadata import FILE, FormatError
    from pdegen.generation.verify import Verification
    from pdegen.store.format import ROOT

    if path.is_file() or (path / FILE).exists():
        from pdegen.formats.exporting import verify_export

        return Verification(str(path), verify_export(path))
    if any((path / name).exists() for name in _MODEL):
        from pipelines.runs.model_folder import verify_model  # imports PyTorch

        return Verification(str(path), verify_model(path))
    raise FormatError(
        f"{path} is neither a store nor an export of pdegen: a store has {ROOT}, the folder of an "
        f"export {FILE}, and that of a model {_MODEL[0]}"
    )


# Commands that show stores and finished runs: info, plot, compare.


@command("info", "pdegen info data/burgers.zarr", "pdegen info data/burgers.zarr --json")
def info_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.")], as_json: AsJson = False
) -> None:
    """Print the contents of a store: variables, splits, recipe, provenance."""
    from pdegen.generation.generate import runs
    from pdegen.store.reading import Store

    opened = Store(store)
    if as_json:
        print_json({**_contents(opened), "runs": runs(opened.objects)})
        return
    held, attributes = opened.metadata, opened.raw_attributes
    unfinished = f"not sealed (complete it by pdegen {opened.command} ... --resume)"
    state = "sealed" if opened.sealed else unfinished
    say(f"{store}: {held.title}")
    say(f"{state}, fingerprint {held.fingerprint}")
    say(f"equation    {held.equation}")
    for name in opened.variables:
        array = opened.arrays[name]
        say(f"{name:11} {array.shape} {array.dtype}  {array.metadata.long_name}")
    for name, (start, stop) in held.splits.items():
        say(f"{name:11} samples {start} to {stop - 1}")
    for first, last in in_no_split(held.splits, opened.samples):
        say(f"{'no split':11} samples {first} to {last}")
    if opened.skipped:
        say(f"skipped     samples {', '.join(map(str, opened.skipped))}")
    for name, values in held.statistics.items():
        say(f"{name:11} training mean {values['mean']:.6g}, std {values['std']:.6g}")
    if held.sampled_inputs:
        say(f"inputs      {held.sampled_inputs.sentence}")
    for name in ("noise", "parent", "imported"):
        if name in attributes:
            say(f"{name:11} {json.dumps(attributes[name])}")
    errors = label_errors(opened)
    say(f"label error {in_words(errors)}")
    say(f"recipe      {json.dumps(attributes['recipe'])}")
    say(f"made by     {json.dumps(attributes['provenance'])}")
    for run in runs(opened.objects):
        say(f"made on     {run}")
    warn_of_few({name: stop - start for name, (start, stop) in held.splits.items()})
    warn_of_label_errors(errors)


def _contents(store: "Store") -> dict[str, object]:
    """Contents of a store that `info --json` prints."""
    held, attributes = store.metadata, store.raw_attributes
    arrays = {name: store.arrays[name] for name in store.variables}
    return {
        "store": store.url,
        "title": held.title,
        "sealed": store.sealed,
        "fingerprint": held.fingerprint,
        "equation": held.equation,
        "samples": store.samples,
        "variables": {
            name: {
                "shape": list(array.shape),
                "type": str(array.dtype),
                "meaning": array.metadata.long_name,
                "unit": array.metadata.units,
                "role": array.metadata.role,
            }
            for name, array in arrays.items()
        },
        "splits": {name: list(ends) for name, ends in held.splits.items()},
        "skipped": store.skipped,
        "statistics": held.statistics,
        "label_error": label_errors(store),
        **{
            name: attributes[name]
            for name in ("noise", "parent", "imported", "sampled_inputs")
            if name in attributes
        },
        "recipe": attributes["recipe"],
        "provenance": attributes["provenance"],
    }


@command("plot", "pdegen plot data/burgers.zarr --out burgers.png")
def plot_command(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.")],
    sample: Annotated[
        int | None, typer.Option(help="Number of the sample; default: several samples.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Image to write: .png, .svg or .pdf.")] = Path(
        "samples.png"
    ),
) -> None:
    """Plot samples of a store."""
    from pipelines.reports.pictures import plot_store

    say(plot_store(store, sample, out))


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
            autocompletion=common.finished_runs,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the comparison.")] = Path("runs/compared"),
    data: Annotated[
        str | None, typer.Option(help="Store of all runs; default: the path of each in training.")
    ] = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    plugin: Plugin = None,
) -> None:
    """Compare finished runs in a report: settings, scores, learning curves, predictions.

    Scores are compared with those of the first run, sample by sample, with intervals. Runs that
    differ only by their seed share a row. Runs on other test samples are compared by their mean
    scores only.
    """
    from pipelines.reports.comparison_report import write_comparison
    from pipelines.runs.checks import check_device
    from pipelines.runs.comparison import read_comparison

    comparison = read_comparison(runs, out, check_device(device), data, overwrite)
    say(write_comparison(comparison, out, overwrite))
