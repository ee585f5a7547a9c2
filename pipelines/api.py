"""What the package does, as functions: train and run experiments."""

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from pdegen.generation.generate import generate
from pdegen.generation.verify import verify
from pdegen.recipe import default_store
from pdegen.store.objects import Objects
from pdegen.store.reading import StoreError
from pipelines.config.experiment import Experiment, asked_for
from pipelines.reports.report import write_report
from pipelines.runs import training as runs
from pipelines.runs.checks import check_device
from pipelines.runs.evaluation import evaluate_run

Place = str | PathLike[str]


def train(
    experiment: Place | Experiment | None = None,
    *,
    data: Place | None = None,
    model: str | None = None,
    out: Place | None = None,
    overrides: Mapping[str, object] | None = None,
    device: str = "cpu",
    **options: Any,
) -> Path:
    """Train an experiment, or a model on a store; returns the checkpoint that its report is of.

    Args:
        experiment: Its name, a TOML file, or an `Experiment`.
        data: Store to train on; by default that of the experiment's recipe, made if absent.
        model: Name of an operator, in place of an experiment: it is trained on `data`.
        out: Folder of the run; by default runs/NAME.
        overrides: Other values at dotted keys of the experiment, such as {"training.epochs": 2}.
        device: "cpu" or "cuda".
        options: Of `pipelines.runs.training.train`, such as resume, overwrite or acceleration.

    Raises:
        SchemaError, RunError, DataError, ...: See `pipelines.runs.training.train`.
    """
    declared, store, folder = _asked(experiment, data, model, out, overrides)
    runs.train(declared, store, folder, check_device(device), **options)
    return folder / f"{declared.training.reported[0]}.safetensors"


def run(
    experiment: Place | Experiment,
    *,
    data: Place | None = None,
    out: Place | None = None,
    overrides: Mapping[str, object] | None = None,
    device: str = "cpu",
    **options: Any,
) -> Path:
    """Generate the dataset if it is absent, verify it, train, evaluate and report; returns the
    report.

    Raises:
        StoreError: If the store has a fault.
        SchemaError, RunError, DataError, ...: As `train`.
    """
    declared, store, folder = _asked(experiment, data, None, out, overrides)
    if faults := verify(store).faults:
        raise StoreError(f"{store}: {faults[0]}")
    place = check_device(device)
    runs.train(declared, store, folder, place, **options)
    evaluate_run(declared, store, folder, place)
    return write_report(folder, store, place)


def _asked(
    experiment: Place | Experiment | None, data: Place | None, model: str | None,
    out: Place | None, overrides: Mapping[str, object] | None,
) -> tuple[Experiment, str, Path]:  # fmt: skip
    asked = fspath(experiment) if isinstance(experiment, PathLike) else experiment
    declared = asked_for(asked, model, None if data is None else fspath(data))
    declared = declared.on(None if data is None else fspath(data), overrides or {})
    store = _made(declared) if data is None else fspath(data)
    return declared, store, Path("runs") / declared.name if out is None else Path(out)


def _made(experiment: Experiment) -> str:
    """The default store of an experiment: made, or finished, where it is not there yet."""
    recipe = experiment.data.load_recipe()
    url = default_store(recipe)
    return generate(recipe, url, resume=Objects(url).exists()).url
