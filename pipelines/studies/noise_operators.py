"""The operators of a noise study: experiments that differ in the operator alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pdegen.ownership import DamagedError, read_json
from pdegen.schema import SchemaError, flattened
from pipelines.config.declared import parse_model
from pipelines.config.experiment import Experiment

_LISTED = {"training.seed": "--seeds", "noise.level": "--train-levels and --test-levels"}
_SHARED = ("data", "noise", "task")  # tables that all operators of a study have in common


def operator_experiments(
    experiment: Experiment,
    models: Sequence[str],
    overrides: Mapping[str, Any],
    store: str | None = None,
) -> tuple[Experiment, tuple[Experiment, ...]]:
    """The experiment of a study, and the experiments of its operators if several are named.

    The operator that the experiment declares keeps its settings. The others have their default
    settings.

    Args:
        experiment: The experiment, to which no override has been applied.
        models: Names of the operators; if there are none, that of the experiment.
        overrides: Values of keys. A key that begins with the name of an operator and a dot, such
            as "fno.width", is a key of this operator's experiment. Other keys are keys of all,
            and those of a model are keys of the operator that the experiment declares.
        store: The store of the study, see `Experiment.on`.

    Raises:
        SchemaError: If an operator is unknown or named twice. Also if a key is unknown, belongs to
            an operator that is not named, or changes the data or the noise for one operator alone.
            Also for the seed and the noise level, because options of the study list their values.
            The level may be set if the experiment has no noise, and thus adds it.
    """
    overrides = flattened(overrides)
    for key in overrides:
        name, _, rest = key.partition(".")
        _check_key(experiment, rest if name in models else key)
    if not models:
        return experiment.on(store, overrides), ()
    for name in models:
        parse_model({"name": name})  # raises for an unknown operator
    if len({*models}) < len(models):
        raise SchemaError(f"--model names an operator twice: {', '.join(models)}")
    by_operator = {name: dict[str, Any]() for name in models}
    common = dict[str, Any]()
    for key, value in overrides.items():
        name, dot, rest = key.partition(".")
        if dot and name in by_operator:
            by_operator[name][rest] = value
        elif experiment.model.name not in by_operator and _is_of_model(experiment, key):
            last = key.removeprefix("model.")
            raise SchemaError(
                f"--set {key} is a key of {experiment.model.name}, which --model does not name: "
                f"write {' or '.join(f'{name}.{last}' for name in models)}"
            )
        else:
            common[key] = value
    shared = experiment.on(store, common)
    variants = tuple(_variant(shared, name, changes) for name, changes in by_operator.items())
    for name, variant in zip(models, variants, strict=True):
        check_alike(shared, variant, name)
    by_name = dict(zip(models, variants, strict=True))
    return by_name.get(experiment.model.name, shared), variants


def _check_key(experiment: Experiment, key: str) -> None:
    """Raise SchemaError for a key whose values the study lists."""
    for listed, option in _LISTED.items():
        if listed == "noise.level" and experiment.noise is None:
            continue
        if f".{listed}".endswith(f".{key}") and experiment.resolved_key(key, {}) == listed:
            raise SchemaError(f"{listed} cannot be set, a study has several: use {option}")


def _is_of_model(experiment: Experiment, key: str) -> bool:
    """Whether a key is one of the operator."""
    if key.startswith(("data.", "noise", "task")):
        return False
    return experiment.resolved_key(key, {}).partition(".")[0] == "model"


def check_operators(experiment: Experiment, operators: Sequence[Experiment]) -> None:
    """Raise SchemaError if operators of a study have the same name, or other data or noise."""
    names = [variant.model.name for variant in operators]
    if len({*names}) < len(names):
        raise SchemaError(f"a study has each operator once, got {', '.join(names)}")
    for variant in operators:
        check_alike(experiment, variant, variant.model.name)
        if variant.model.name == experiment.model.name and variant != experiment:
            raise SchemaError(f"{variant.model.name} differs from the operator of the experiment")


def check_alike(experiment: Experiment, variant: Experiment, name: str) -> None:
    """Raise SchemaError if the experiments differ in the data, the noise or the task."""
    for table in _SHARED:
        if getattr(experiment, table) != getattr(variant, table):
            raise SchemaError(
                f"operators of a study share the {table}, those of {name} differ: "
                f"set keys of {table} without the name of an operator"
            )


def _variant(experiment: Experiment, name: str, changes: Mapping[str, Any]) -> Experiment:
    if name != experiment.model.name:
        experiment = experiment.with_overrides({"model.name": name})
    return experiment.with_overrides(changes) if changes else experiment


def recorded_study(folder: Path) -> dict[str, Any]:
    """The content of study.json; empty if the file is absent or damaged."""
    try:
        return read_json(folder / "study.json")
    except (FileNotFoundError, DamagedError):
        return {}
