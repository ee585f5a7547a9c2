"""Commands `pdegen study ...`, which run many trainings and write one report."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdegen.schema import SchemaError
from pipelines.cli import completion
from pipelines.cli.benchmarks import benchmark_command, chosen
from pipelines.cli.common import (
    Device,
    On,
    Only,
    Overwrite,
    Plugin,
    Quick,
    Resume,
    Set,
    Trainings,
    app,
    command,
    parsed,
)
from pipelines.cli.stores import generate_default
from pipelines.cli.terminal import note, say
from pipelines.cli.trainings import Launch

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    import torch

    from pipelines.studies.noise import NoiseStudy

Out = Annotated[
    Path | None, typer.Option(help="Folder of the study; default: a folder in runs/ with its name.")
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds: trainings of each case.")]
Store = Annotated[str | None, typer.Option(help="Store; by default it is generated if absent.")]
TrainLevels = Annotated[
    str,
    typer.Option(help="Noise levels of the trainings; `all` is one training on a range of levels."),
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
        autocompletion=completion.operators,
    ),
]
TestKind = Annotated[
    str | None,
    typer.Option(
        help="Kind of noise of the test samples, unknown to all methods; default: as trained."
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
        typer.Argument(help="A benchmark on several grids.", autocompletion=completion.benchmarks),
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
            autocompletion=completion.experiments,
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
    from pipelines.reports.samples_report import write_samples_report
    from pipelines.studies.samples import parse_numbers, samples_study

    if quick and experiment is not None:
        raise SchemaError("--quick chooses the experiment: do not name one")
    name = experiment or ("burgers-stream-quick" if quick else "burgers-gt-512")
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
            help="An experiment with noise, or a TOML file.", autocompletion=completion.experiments
        ),
    ],
    train_levels: TrainLevels = "0,0.01,0.1",
    test_levels: TestLevels = None,
    model: Models = None,
    inversion_samples: InversionSamples = 100,
    assumed_level: AssumedLevel = "1",
    method: Methods = None,
    test_kind: TestKind = None,
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
    from pipelines.config.experiment import load_experiment
    from pipelines.reports.noise_report import write_noise_report
    from pipelines.runs.folder import check_folder
    from pipelines.studies.inversions import operator_experiments, parse_levels, parse_trained
    from pipelines.studies.noise import NoiseStudy

    original = load_experiment(experiment, data)
    declared, operators = operator_experiments(original, model or (), parsed(set_), data)
    launch = Launch(workers, device, resume, overwrite)
    torch_device, folder = launch.torch_device, out or Path("runs") / f"{declared.name}-noise-study"
    check_folder(folder)
    on_inputs = declared.noise is None or declared.noise.on_inputs
    tested = parse_levels(test_levels or ("0,0.01,0.05,0.1" if on_inputs else "0"))
    study = NoiseStudy(
        declared, data or "", folder, parse_trained(train_levels, tested), tested, seeds,
        inversion_samples, parse_levels(assumed_level), tuple(dict.fromkeys(method or [])),
        test_kind, cells, operators,
    )  # fmt: skip
    if data is None:
        study = _with_store(study, torch_device)
    launch.study(study, f"studying {declared.name}, steps", lambda: _begun(study))
    say(write_noise_report(study, torch_device))


def _with_store(study: "NoiseStudy", device: "torch.device") -> "NoiseStudy":
    """The study with the store of its recipe. A wrong request is refused before the store is
    generated."""
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
    return replace(study, store=generate_default(recipe))


def _begun(study: "NoiseStudy") -> None:
    """Print what the operators learn, and why there are no classical methods if there are none."""
    note(study.experiment.mapped(study.store))
    if study.inversions.absent:
        note(f"no classical methods: {study.inversions.absent}")
