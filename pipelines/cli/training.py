"""Commands on one experiment: train, evaluate, predict, run, report."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli import completion
from pipelines.cli.common import (
    Compile,
    Device,
    Equation,
    Interrupted,
    Interrupts,
    Overwrite,
    Precision,
    Reporter,
    Resume,
    Set,
    Stream,
    Track,
    command,
    number,
    parsed,
    warn_of_few,
)
from pipelines.cli.stores import check_verified, generated, verified
from pipelines.cli.terminal import note, say

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    from operators.training.fit import Epoch
    from pipelines.config.experiment import Experiment
    from pipelines.tracking.tracker import Tracker

Checkpoint = Annotated[Path, typer.Argument(help="A *.safetensors file of a run.")]
Resolution = Annotated[int | None, typer.Option(help="Points of each axis; default: all.")]
Split = Annotated[str, typer.Option(help="Split of the store.")]
AssumedLevel = Annotated[
    float | None,
    typer.Option(help="Noise level that a checkpoint which takes it is told; default: the truth."),
]
Level = Annotated[
    float | None, typer.Option("--noise", help="Noise level of the inputs; default: as trained.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the run; default: runs/NAME of the experiment.")
]


@command(
    "train",
    "pdegen train burgers-quick --out runs/first --set training.epochs=2",
    "pdegen train --model fno --data data/burgers.zarr",
    "pdegen train burgers-quick --stream burgers-quick --resume",
    "pdegen train burgers-quick --track tensorboard --track mlflow:sqlite:///mlflow.db",
)
def train_command(
    experiment: Annotated[
        str | None,
        typer.Argument(help="Experiment, or a TOML file.", autocompletion=completion.experiments),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Store to train on.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model to train on --data, in place of an experiment.",
            autocompletion=completion.operators,
        ),
    ] = None,
    stream: Stream = None,
    out: Out = None,
    set_: Set = None,
    device: Device = "cpu",
    precision: Precision = "auto",
    compiled: Compile = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
    track: Track = None,
    equation: Equation = None,
) -> None:
    """Train an experiment, or a model on a store; --stream solves the samples during training."""
    from pipelines.config.shipped import check_asked

    check_asked(experiment, model, data)  # before PyTorch is imported, which takes seconds

    from pipelines.config.experiment import asked_for
    from pipelines.tracking.following import trackers

    declared = _changed(asked_for(experiment, model, data), data, stream, set_)
    folder = out or Path("runs") / declared.name
    following = trackers(track or [])
    if _train(declared, data, folder, device, precision, compiled, resume, overwrite, following):
        say(folder / f"{declared.training.reported[0]}.safetensors")


def _changed(
    experiment: "Experiment", data: str | None, stream: str | None, set_: list[str] | None
) -> "Experiment":
    given = {} if stream is None else {"data.stream.recipe": stream}
    return experiment.on(data, {**given, **parsed(set_)})


def _made(experiment: "Experiment", device: str) -> str:
    """The default store of an experiment, generated if absent; the experiment is checked first."""
    from pipelines.runs.checks import check_device
    from pipelines.runs.stream import check_data

    check_data(experiment, check_device(device))
    return generated(experiment.data.load_recipe())


def _train(
    experiment: "Experiment", data: str | None, folder: Path, device: str, precision: str,
    compiled: str, resume: bool, overwrite: bool, track: "list[Tracker]", check: bool = False,
) -> str | None:  # fmt: skip
    """Train in all processes of torchrun; returns the store in the first process, None in
    others."""
    from operators.training.fit import Stopped
    from operators.training.ranks import torchrun
    from operators.training.step import Acceleration
    from pdegen.recipe import default_store
    from pipelines.runs.checks import check_device, check_memory
    from pipelines.runs.run_folder import check_place
    from pipelines.runs.training import train

    place = check_device(device)
    acceleration = Acceleration.chosen(place, precision, compiled)
    with Interrupts() as interrupts, torchrun(place) as ranks:
        store = data or default_store(experiment.data.load_recipe())
        said: dict[str, Any] = {}  # arguments of `train` for the process that reports
        if ranks.first:
            check_place(folder, resume, overwrite)
            check_memory(experiment, place)
            if data is None:
                _made(experiment, device)
            if check:
                check_verified(verified(store))
            said = {**_shown(experiment, store), "track": track}
        ranks.wait()
        try:
            train(
                experiment, store, folder, place, resume=resume,
                overwrite=overwrite, acceleration=acceleration, ranks=ranks,
                stop=interrupts.asked, **said,
            )  # fmt: skip
        except Stopped as stopped:
            if not ranks.first:
                sys.exit(130)  # the first one says it
            raise Interrupted(f"{stopped}: continue with --resume") from None
        return store if ranks.first else None


def _shown(experiment: "Experiment", store: str) -> dict[str, Callable[[Any], None]]:
    """Callbacks of `train` that report its reading, its steps and its epochs on the terminal."""
    from pipelines.reports.wording import how_read

    report = Reporter(f"training {experiment.name}, epochs")
    total, started = experiment.training.epochs, time.monotonic()
    epochs = 0  # of this process; a resumed training has done others before

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
        "on_start": lambda how: note(f"training steps: {how}"),
        "on_epoch": on_epoch,
    }


@command(
    "evaluate",
    "pdegen evaluate runs/first/best.safetensors --data data/burgers.zarr",
    "pdegen evaluate runs/first/best.safetensors --data data/burgers.zarr --resolution 256",
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
        Path | None, typer.Option(help="JSON file to write the scores to; default: none.")
    ] = None,
) -> None:
    """Print the relative L2 error of a checkpoint over the samples of a split."""
    from operators.training.files import write
    from pipelines.runs.checks import check_device
    from pipelines.runs.evaluation import evaluate
    from pipelines.runs.folder import check_out

    if out is not None:
        check_out(out, ("checkpoint", "epoch", "split", "resolution", "samples", "mean"))
    score = evaluate(
        checkpoint, data, check_device(device), split=split, resolution=resolution, level=noise,
        assumed_level=assumed_level,
    )  # fmt: skip
    asked = {"noise": noise, "assumed_level": assumed_level}
    summary = score.summary() | {key: level for key, level in asked.items() if level is not None}
    if out is not None:
        write(out, json.dumps(summary, indent=1).encode())
    _print_score(summary)


@command(
    "predict",
    "pdegen predict runs/first/best.safetensors --data data/burgers.zarr",
    "pdegen predict runs/darcy/best.safetensors --data data/darcy.zarr --bound",
)
def predict_command(
    checkpoint: Checkpoint,
    data: Annotated[str, typer.Option(help="Store to predict from.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Zarr group to write, a folder; default: CHECKPOINT-predictions.zarr beside it."
        ),
    ] = None,
    resolution: Resolution = None,
    split: Split = "test",
    noise: Level = None,
    assumed_level: AssumedLevel = None,
    device: Device = "cpu",
    bound: Annotated[
        bool, typer.Option("--bound", help="Write a guaranteed bound of each error beside it.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the predictions of a checkpoint on a split, as a Zarr group that xarray opens."""
    from pipelines.runs.checks import check_device
    from pipelines.runs.predict import predict

    place = checkpoint.with_name(f"{checkpoint.stem}-predictions.zarr") if out is None else out
    found = predict(
        checkpoint, data, place, check_device(device), split=split, resolution=resolution,
        level=noise, assumed_level=assumed_level, bound=bound, overwrite=overwrite,
    )  # fmt: skip
    for line in (found.out, *found.said):
        say(line)


def _print_score(summary: dict[str, Any]) -> None:
    warn_of_few({summary["split"]: summary["samples"]})
    say(
        f"{summary['checkpoint']} (epoch {summary['epoch']}) on {summary['split']} at "
        f"n={summary['resolution']}, {summary['samples']} samples: relative L2 mean "
        f"{number(summary['mean'])}, median {number(summary['median'])}, worst "
        f"{number(summary['worst'])}, std {number(summary['std'])}"
    )
    if missing := summary.get("left_out"):
        from operators.norms import left_out

        say(left_out(missing))


@command(
    "run",
    "pdegen run burgers-quick",
    "pdegen run burgers-quick --set model.width=32 --out runs/small",
)
def run_command(
    experiment: Annotated[
        str,
        typer.Argument(help="Experiment, or a TOML file.", autocompletion=completion.experiments),
    ],
    out: Out = None,
    data: Annotated[str | None, typer.Option(help="Store; default: generated if absent.")] = None,
    stream: Stream = None,
    set_: Set = None,
    device: Device = "cpu",
    precision: Precision = "auto",
    compiled: Compile = "auto",
    resume: Resume = False,
    overwrite: Overwrite = False,
    track: Track = None,
    equation: Equation = None,
) -> None:
    """Generate (if absent), verify, train, evaluate and report an experiment."""
    from pipelines.config.shipped import check_asked

    check_asked(experiment, None, data)  # before PyTorch is imported, which takes seconds

    from pipelines.config.experiment import load_experiment
    from pipelines.reports.report import write_report
    from pipelines.runs.checks import check_device
    from pipelines.runs.evaluation import evaluate_run
    from pipelines.runs.run_tracking import track_results
    from pipelines.tracking.following import trackers

    declared = _changed(load_experiment(experiment, data), data, stream, set_)
    folder = out or Path("runs") / declared.name
    following = trackers(track or [])
    store = _train(
        declared, data, folder, device, precision, compiled, resume, overwrite, following,
        check=True,
    )  # fmt: skip
    if store is None:
        return
    place = check_device(device)
    scores = evaluate_run(declared, store, folder, place)
    for summary in scores["results"]:
        _print_score(summary)
    say(write_report(folder, store, place))
    track_results(following, folder, store, scores["results"], scores["provenance"])


@command("report", "pdegen report runs/first")
def report_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[
        str | None, typer.Option(help="Store of the run; default: where it was in training.")
    ] = None,
    device: Device = "cpu",
    equation: Equation = None,
) -> None:
    """Write report.html and report.md of a finished run."""
    from pipelines.reports.report import write_report
    from pipelines.runs.checks import check_device
    from pipelines.runs.finished import store_of_run

    say(write_report(folder, data or store_of_run(folder), check_device(device)))
