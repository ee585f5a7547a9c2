"""Functions that train and run experiments from Python."""

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from pdegen.generation.generate import generate
from pdegen.generation.verify import verify
from pdegen.recipe import default_store
from pdegen.store.objects import Objects
from pdegen.store.reading import Store, StoreError, open_sealed
from pipelines.config.experiment import Experiment, asked_for
from pipelines.config.shipped import check_asked
from pipelines.reports.report import write_report
from pipelines.runs import training as runs
from pipelines.runs.checks import check_device
from pipelines.runs.evaluation import evaluate_run

PathOrUrl = str | PathLike[str]


def train(
    experiment: PathOrUrl | Experiment | None = None,
    *,
    data: PathOrUrl | None = None,
    model: str | None = None,
    out: PathOrUrl | None = None,
    overrides: Mapping[str, object] | None = None,
    device: str = "cpu",
    **options: Any,
) -> Path:
    """Train an experiment, or an operator on a store. Returns the path of the checkpoint.

    Args:
        experiment: Name of an experiment, a TOML file, or an `Experiment`.
        data: Store to train on; by default the store of the experiment's recipe. This store is
            generated if it is absent.
        model: Name of an operator to train on `data`. It is given instead of an experiment.
        out: Folder of the run; by default runs/NAME.
        overrides: Values of the experiment's keys, such as {"training.epochs": 2}.
        device: "cpu" or "cuda".
        options: Further arguments of `pipelines.runs.training.train`, such as resume, overwrite
            or acceleration.

    Raises:
        SchemaError, RunError, DataError, ...: See `pipelines.runs.training.train`.
    """
    declared, store, folder = _resolved(experiment, data, model, out, overrides)
    runs.train(declared, store, folder, check_device(device), **options)
    return folder / f"{declared.training.reported[0]}.safetensors"


def run(
    experiment: PathOrUrl | Experiment,
    *,
    data: PathOrUrl | None = None,
    out: PathOrUrl | None = None,
    overrides: Mapping[str, object] | None = None,
    device: str = "cpu",
    **options: Any,
) -> Path:
    """Generate the dataset if it is absent, verify it, train, evaluate and write the report.

    Returns the path of the report. Arguments are those of `train`.

    Raises:
        StoreError: If the store has a fault.
        SchemaError, RunError, DataError, ...: As for `train`.
    """
    declared, store, folder = _resolved(experiment, data, None, out, overrides)
    if faults := verify(store.url).faults:
        raise StoreError(f"{store.url}: {faults[0]}")
    torch_device = check_device(device)
    runs.train(declared, store, folder, torch_device, **options)
    evaluate_run(declared, store, folder, torch_device)
    return write_report(folder, store, torch_device)


def _resolved(
    experiment: PathOrUrl | Experiment | None, data: PathOrUrl | None, model: str | None,
    out: PathOrUrl | None, overrides: Mapping[str, object] | None,
) -> tuple[Experiment, Store, Path]:  # fmt: skip
    """The experiment with its overrides, its store, and the folder of the run."""
    name = fspath(experiment) if isinstance(experiment, PathLike) else experiment
    if not isinstance(name, Experiment):
        check_asked(name, model, data)
    given = None if data is None else open_sealed(fspath(data))
    declared = asked_for(name, model, given).on(given, overrides or {})
    store = given or open_sealed(_generated(declared))
    return declared, store, Path("runs") / declared.name if out is None else Path(out)


def _generated(experiment: Experiment) -> str:
    """URL of the default store of an experiment."""
    recipe = experiment.data.load_recipe()
    url = default_store(recipe)
    return generate(recipe, url, resume=Objects(url).exists()).url
