"""Commands for one experiment: train, evaluate, predict, run and report."""

import json
import sys
import time
from collections.abc import Callable, Collection, Mapping
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdegen.schema import SchemaError
from pipelines.cli import common
from pipelines.cli.common import (
    Compile,
    Device,
    Interrupted,
    Interrupts,
    Overwrite,
    Plugin,
    Precision,
    Reporter,
    Resume,
    Set,
    Stream,
    Track,
    command,
    note,
    number,
    parsed,
    say,
    warn_of_few,
)
from pipelines.cli.stores import check_verified, generate_default, verify_store

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    from operators.training.fit import Epoch
    from pdegen.store.reading import Store
    from pipelines.config.experiment import Experiment
    from pipelines.tracking.tracker import Tracker

Checkpoint = Annotated[
    Path,
    typer.Argument(help="A *.safetensors file of a run, or the name or folder of a trained model."),
]
Resolution = Annotated[
    int | None,
    typer.Option(help="Points along the first axis, every r-th of all axes; default: all."),
]
Split = Annotated[str, typer.Option(help="Split of the store.")]
AssumedLevel = Annotated[
    float | None,
    typer.Option(
        help="Noise level given to an operator that takes it as input; default: the true level."
    ),
]
Level = Annotated[
    float | None,
    typer.Option("--noise", help="Noise level of the inputs; default: as in training."),
]
Start = Annotated[
    Path | None,
    typer.Option(help="Run folder or *.safetensors file whose weights the training starts from."),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the run; default: runs/NAME of the experiment.")
]


@command(
    "train",
    "pdegen train burgers-quick --out runs/first --set training.epochs=2",
    "pdegen train --model fno --data data/burgers.zarr",
    "pdegen train burgers-quick --start runs/first --out runs/longer --set training.epochs=9",
    "pdegen train burgers-quick --stream burgers-quick --resume",
    "pdegen train burgers-quick --track tensorboard --track mlflow:sqlite:///mlflow.db",
)
def train_command(
    experiment: Annotated[
        str | None,
        typer.Argument(help="Experiment, or a TOML file.", autocompletion=common.experiments),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Store to train on.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Operator to train on --data, in place of an experiment.",
            autocompletion=common.operators,
        ),
    ] = None,
    stream: Stream = None,
    start: Start = None,
    out: Out = None,
    set_: Set = None,
    device: Device = "cpu",
    precision: Precision = "auto",
    compiled: Compile = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
    track: Track = None,
    plugin: Plugin = None,
) -> None:
    """Train an experiment, or an operator on a store."""
    from pipelines.config.shipped import check_asked

    check_asked(experiment, model, data)  # before PyTorch is imported, which takes seconds

    from pdegen.store.reading import open_sealed

    store = None if data is None else open_sealed(data)
    if store is not None and experiment is None:
        _check_splits(store, parsed(set_))

    from pipelines.config.experiment import asked_for
    from pipelines.tracking.tracker import trackers

    asked = asked_for(experiment, model, store)
    if model is not None:
        _tell_suited(asked, {*parsed(set_)})
    if start is not None and start.is_dir():
        start = start / "last.safetensors"
    declared = _with_overrides(asked, store, stream, set_, start)
    folder = out or Path("runs") / declared.name
    following = trackers(track or [])
    if _train(declared, store, folder, device, precision, compiled, resume, overwrite, following):
        say(folder / f"{declared.training.reported[0]}.safetensors")


def _tell_suited(experiment: "Experiment", given: Collection[str]) -> None:
    """Say which settings of the operator differ from its defaults, because the points of the data
    do not allow these."""
    from pipelines.config.declared import parse_model

    model = experiment.model.arguments
    defaults = parse_model({"name": experiment.model.name}).arguments
    changed = [
        f"model.{key}={value} in place of {defaults[key]}"
        for key, value in model.items()
        if value != defaults[key] and not {key, f"model.{key}"} & {*given}
    ]
    if changed:
        note(f"pdegen: {', '.join(changed)}, as the points of the data require")


def _check_splits(store: "Store", overrides: Mapping[str, Any]) -> None:
    """Refuse a store without the split on which the epoch is chosen, if one is to be chosen."""
    published = any(
        key.rpartition(".")[2] == "protocol" and value == "published"
        for key, value in overrides.items()
    )
    if "validation" not in store.metadata.splits and not published:
        raise SchemaError(
            f"{store.url} has no split validation, on which the epoch is chosen: give it by "
            "--split validation=N at the import, or keep the last epoch by "
            "--set training.protocol=published"
        )


def _with_overrides(
    experiment: "Experiment", store: "Store | None", stream: str | None, set_: list[str] | None,
    start: Path | None = None,
) -> "Experiment":  # fmt: skip
    """Apply the values of --stream, --start and --set to an experiment that will use the given
    store."""
    given = {"data.stream.recipe": stream, "training.start": None if start is None else str(start)}
    overrides = {key: value for key, value in given.items() if value is not None}
    return experiment.on(store, {**overrides, **parsed(set_)})


def _generated(experiment: "Experiment", device: str) -> str:
    """Check an experiment, generate its default store if necessary, and return its URL."""
    from pipelines.runs.checks import check_device
    from pipelines.runs.data import check_data

    check_data(experiment, check_device(device))
    return generate_default(experiment.data.load_recipe())


def _train(
    experiment: "Experiment", given: "Store | None", folder: Path, device: str, precision: str,
    compiled: str, resume: bool, overwrite: bool, track: "list[Tracker]", check: bool = False,
) -> "Store | None":  # fmt: skip
    """Train in all processes of torchrun. Returns the store in the first process."""
    from operators.training.fit import Stopped
    from operators.training.step import Acceleration, torchrun
    from pdegen.recipe import default_store
    from pdegen.store.reading import open_sealed
    from pipelines.runs.checks import check_device, check_memory
    from pipelines.runs.folder import check_run_folder
    from pipelines.runs.training import train

    torch_device = check_device(device)
    acceleration = Acceleration.chosen(torch_device, precision, compiled)
    with Interrupts() as interrupts, torchrun(torch_device) as ranks:
        url = default_store(experiment.data.load_recipe()) if given is None else given.url
        if ranks.first:
            check_run_folder(folder, resume, overwrite)
            check_memory(experiment, torch_device)
            if given is None:
                _generated(experiment, device)
            if check:
                check_verified(verify_store(url))
        ranks.wait()
        store = given or open_sealed(url)
        # arguments of `train` in the process that reports
        reporting = {**_callbacks(experiment, store), "track": track} if ranks.first else {}
        try:
            train(
                experiment, store, folder, torch_device, resume=resume,
                overwrite=overwrite, acceleration=acceleration, ranks=ranks,
                stop=interrupts.requested, **reporting,
            )  # fmt: skip
        except Stopped as stopped:
            if not ranks.first:
                sys.exit(130)  # the first process prints the message
            raise Interrupted(f"{stopped}: continue with --resume") from None
        return store if ranks.first else None


def _callbacks(experiment: "Experiment", store: "Store") -> dict[str, Callable[[Any], None]]:
    """Callbacks of `train` that print how samples are read, how steps are executed, and a line of
    progress after each epoch."""
    from pipelines.reports.document import how_read

    report = Reporter(f"training {experiment.name}, epochs")
    total, started = experiment.training.epochs, time.monotonic()
    epochs = 0  # run by this process; a resumed training has run others before

    def on_reading(how: str) -> None:
        note(experiment.mapped(store))
        note(f"training samples: {how_read(how)}")

    def on_epoch(epoch: "Epoch") -> None:
        nonlocal epochs
        epochs += 1
        seconds = (time.monotonic() - started) / epochs * epoch.epoch
        split = experiment.training.selection_split
        report(epoch.epoch, total, seconds, f", loss {epoch.loss:.3e}, {split} {epoch.score:.3e}")

    return {
        "on_reading": on_reading,
        "on_labels": note,
        "on_start": lambda how: note(f"training steps: {how}"),
        "on_epoch": on_epoch,
    }


@command(
    "evaluate",
    "pdegen evaluate runs/first/best.safetensors --data data/burgers.zarr",
    "pdegen evaluate runs/first/best.safetensors --data data/burgers.zarr --resolution 256",
    "pdegen evaluate darcy-gt-43 --data data/darcy.zarr",
)
def evaluate_command(
    checkpoint: Checkpoint,
    data: Annotated[str, typer.Option(help="Store to evaluate on.")],
    resolution: Resolution = None,
    split: Split = "test",
    noise: Level = None,
    assumed_level: AssumedLevel = None,
    device: Device = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="JSON file for the scores; default: none.")
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Print the relative L2 errors of a checkpoint on a split."""
    from pdegen.files import write
    from pipelines.runs.checks import check_device
    from pipelines.runs.evaluation import evaluate
    from pipelines.runs.folder import check_out

    if out is not None:
        check_out(out, ("checkpoint", "epoch", "split", "resolution", "samples", "mean"))
    score = evaluate(
        checkpoint, data, check_device(device), split=split, resolution=resolution, level=noise,
        assumed_level=assumed_level, on_differences=_warn_of_differences,
    )  # fmt: skip
    levels = {"noise": noise, "assumed_level": assumed_level}
    summary = score.summary() | {key: level for key, level in levels.items() if level is not None}
    if out is not None:
        write(out, json.dumps(summary, indent=1).encode())
    _print_score(summary)


@command(
    "predict",
    "pdegen predict runs/first/best.safetensors --data data/burgers.zarr",
    "pdegen predict runs/darcy/best.safetensors --data data/darcy.zarr --bound",
    "pdegen predict runs/darcy/best.safetensors --data data/darcy.zarr --correct 2",
    "pdegen predict burgers-gt-512-best --data own.npy --grid periodic --out predictions.zarr",
)
def predict_command(
    checkpoint: Checkpoint,
    data: Annotated[
        str,
        typer.Option(help="Store to predict from, or a .npy, .npz, .mat, .h5 or .pt file."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the Zarr group to write; default: CHECKPOINT-predictions.zarr."
        ),
    ] = None,
    resolution: Resolution = None,
    split: Annotated[str | None, typer.Option(help="Split of the store; default: test.")] = None,
    input: Annotated[
        str | None, typer.Option(help="Array of a file with the inputs, if it has several.")
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            help="Grid of a file: periodic, cell or nodal, or one per axis; default: that of the "
            "training."
        ),
    ] = None,
    noise: Level = None,
    assumed_level: AssumedLevel = None,
    device: Device = "cpu",
    bound: Annotated[
        bool, typer.Option("--bound", help="Add a guaranteed bound of each error.")
    ] = False,
    correct: Annotated[
        int | None, typer.Option(min=1, help="Steps of the solver from each prediction.")
    ] = None,
    overwrite: Overwrite = False,
    plugin: Plugin = None,
) -> None:
    """Write the predictions of a checkpoint on a split of a store, or for the inputs in a file, to
    a Zarr group, which xarray opens."""
    from pipelines.runs.checks import check_device
    from pipelines.runs.evaluation import predict, predict_file

    folder = checkpoint.with_name(f"{checkpoint.stem}-predictions.zarr") if out is None else out
    of_store = {
        "split": split, "resolution": resolution, "level": noise, "assumed_level": assumed_level,
        "bound": bound or None, "correct": correct,
    }  # fmt: skip
    of_file = {"input": input, "grid": grid}
    if Path(data).is_file():
        _check_absent(of_store, f"a store, and {data} is a file")
        predictions = predict_file(
            checkpoint, Path(data), folder, check_device(device), **of_file, overwrite=overwrite
        )
    else:
        _check_absent(of_file, f"a file, and {data} is none")
        given = {name: value for name, value in of_store.items() if value is not None}
        predictions = predict(
            checkpoint, data, folder, check_device(device), **given, overwrite=overwrite,
            on_differences=_warn_of_differences,
        )  # fmt: skip
    for line in (predictions.out, *predictions.lines):
        say(line)


def _check_absent(options: "Mapping[str, object]", kind: str) -> None:
    """Raise SchemaError if an option is given that is for another kind of data."""
    for name, value in options.items():
        if value is not None:
            option = "--noise" if name == "level" else f"--{name.replace('_', '-')}"
            raise SchemaError(f"{option} is for {kind}")


def _warn_of_differences(line: str) -> None:
    note(f"pdegen: warning: the store differs from the training data: {line}")


def _print_score(summary: dict[str, Any]) -> None:
    warn_of_few({summary["split"]: summary["samples"]})
    say(
        f"{summary['checkpoint']} (epoch {summary['epoch']}) on {summary['split']} at "
        f"n={summary['resolution']}, {summary['samples']} samples: relative L2 error: mean "
        f"{number(summary['mean'])}, median {number(summary['median'])}, worst "
        f"{number(summary['worst'])}, std {number(summary['std'])}"
    )
    from operators.norms import remarks
    from pipelines.runs.score import Score

    score = Score.of(summary)
    if not isnan(correlation := score.residual_correlation):
        say(
            f"relative residual (no labels): mean {number(summary['measures']['residual']['mean'])}"
            f", correlation with the error {correlation:.2f}"
        )
    for sentence in remarks(score.samples, score.errors):
        say(sentence)


@command(
    "run",
    "pdegen run burgers-quick",
    "pdegen run burgers-quick --set model.width=32 --out runs/small",
)
def run_command(
    experiment: Annotated[
        str,
        typer.Argument(help="Experiment, or a TOML file.", autocompletion=common.experiments),
    ],
    out: Out = None,
    data: Annotated[
        str | None, typer.Option(help="Store; by default it is generated if absent.")
    ] = None,
    stream: Stream = None,
    set_: Set = None,
    device: Device = "cpu",
    precision: Precision = "auto",
    compiled: Compile = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
    track: Track = None,
    plugin: Plugin = None,
) -> None:
    """Run an experiment: generate data if absent, verify, train, evaluate, write the report."""
    from pipelines.config.shipped import check_asked

    check_asked(experiment, None, data)  # before PyTorch is imported, which takes seconds

    from pdegen.store.reading import open_sealed
    from pipelines.config.experiment import load_experiment
    from pipelines.reports.report import write_report
    from pipelines.runs.checks import check_device
    from pipelines.runs.evaluation import evaluate_run
    from pipelines.runs.folder import track_results
    from pipelines.tracking.tracker import trackers

    given = None if data is None else open_sealed(data)
    declared = _with_overrides(load_experiment(experiment, given), given, stream, set_)
    folder = out or Path("runs") / declared.name
    following = trackers(track or [])
    store = _train(
        declared, given, folder, device, precision, compiled, resume, overwrite, following,
        check=True,
    )  # fmt: skip
    if store is None:
        return
    torch_device = check_device(device)
    scores = evaluate_run(declared, store, folder, torch_device)
    for summary in (*scores["results"], *scores.get("corrected", ())):
        _print_score(summary)
    say(write_report(folder, store, torch_device))
    track_results(following, folder, store.url, scores["results"], scores["provenance"])


@command("report", "pdegen report runs/first")
def report_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[
        str | None, typer.Option(help="Store of the run; default: the path in training.")
    ] = None,
    device: Device = "cpu",
    plugin: Plugin = None,
) -> None:
    """Write report.html and report.md of a finished run, which is evaluated if it is not yet."""
    from pipelines.reports.report import write_report
    from pipelines.runs.checks import check_device
    from pipelines.runs.evaluation import evaluate_trained
    from pipelines.runs.finished import store_of_run

    torch_device = check_device(device)
    evaluate_trained(folder, torch_device, data)
    say(write_report(folder, data or store_of_run(folder), torch_device))
