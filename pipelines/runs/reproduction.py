"""The command or TOML file that reproduces an experiment."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from pdegen.plugins import loaded_plugins
from pdegen.schema import SchemaError, parse_override, parse_overrides
from pdegen.store.reading import Store
from pipelines.config.conditions import StudyCondition
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.config.shipped import names
from pipelines.runs.plugins import plugin_words


def reproduction(experiment: Experiment, store: Store) -> str:
    """The command that repeats an experiment. If possible it names a shipped experiment and
    overrides, otherwise the file experiment.toml."""
    words = ["pdegen", "run", *(overriding(experiment) or ["experiment.toml"])]
    try:
        is_default = experiment.data.load_recipe().fingerprint == store.metadata.fingerprint
    except SchemaError:  # the recipe of the store is not shipped
        is_default = False
    if not is_default:
        words += ["--data", str(store.url)]
    file, options = store.metadata.equation_file, plugin_words(experiment)
    if file is not None:
        paths = {loaded.digest: loaded.path for loaded in loaded_plugins()}
        name = paths.get(file.sha256, file.name)
        options += [] if name in options else ["--plugin", name]
    return shlex.join([*words, *options])


def described(experiment: Experiment, learned: str = "") -> str:
    """Summary of an experiment. If its values differ from those of the shipped experiment, which
    its summary is about, the differences follow the learned map and the operator instead.

    >>> quick = load_experiment("burgers-quick")
    >>> described(quick)
    'A small Galerkin Transformer on Burgers for a first run: minutes on two cores'
    >>> described(quick.with_overrides({"training.lr": 0.5}), "a on 128 points → u")
    'galerkin-transformer, a on 128 points → u: burgers-quick with training.lr=0.5'
    """
    words = overriding(experiment) or [experiment.name]
    changes = [
        value if option == "--set" else f"{option.removeprefix('--')} {value}"
        for option, value in zip(words[1::2], words[2::2], strict=True)
        if not value.startswith("summary=")
    ]
    if not changes:
        return experiment.summary
    what = ", ".join(filter(None, (experiment.model.name, learned)))
    return f"{what}: {experiment.name} with {', '.join(changes)}"


def toml(content: Mapping[str, Any], path: str = "") -> str:
    """A mapping as a TOML document. Keys with the value None are omitted, because TOML has no such
    value.

    >>> print(toml({"name": "one", "data": {"overrides": {"splits.test": 2}}}))
    name = "one"
    <BLANKLINE>
    [data]
    <BLANKLINE>
    [data.overrides]
    "splits.test" = 2
    """
    content = {key: value for key, value in content.items() if value is not None}
    simple = {k: v for k, v in content.items() if not isinstance(v, dict)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in simple.items()]
    for key, value in content.items():
        if isinstance(value, dict) and value:
            inner = f"{path}.{_key(key)}" if path else _key(key)
            lines += ["", f"[{inner}]", toml(value, inner)]
    return "\n".join(lines)


def overriding(experiment: Experiment) -> list[str] | None:
    """Words `NAME --set ...` that turn a shipped experiment into this one; None if that is
    impossible."""
    if experiment.name not in names("experiment"):
        return None
    shipped, words = load_experiment(experiment.name).unconditioned, [experiment.name]
    stream = experiment.data.stream
    if stream is not None and shipped.data.stream is None:
        words += ["--stream", stream.recipe]
        shipped = shipped.with_overrides({"data.stream.recipe": stream.recipe})
    defaults, name = _flat(shipped.model_dump(mode="json")), experiment.training.schedule.name
    changes = [f"training.schedule.name={name}"] * (name != shipped.training.schedule.name)
    changes += [
        f"{key}={_bare(value)}"
        for key, value in _flat(experiment.model_dump(mode="json")).items()
        if defaults.get(key) != value and key != "training.schedule.name"
    ]
    try:
        if shipped.with_overrides(parse_overrides(changes)) != experiment.unconditioned:
            return None
    except SchemaError:  # such as a key that the command does not set
        return None
    return [*words, *(word for change in changes for word in ("--set", change))]


def conditions(experiment: Experiment, declared: Mapping[str, StudyCondition]) -> list[str]:
    """Options of `pdegen study noise` that test an experiment under these conditions."""
    shipped = dict[str, StudyCondition]()
    if experiment.name in names("experiment"):
        shipped = load_experiment(experiment.name).conditions
    words = list[str]()
    for name, condition in declared.items():
        words += ["--condition", name]
        if condition == shipped.get(name) or overriding(experiment) is None:
            continue
        for table, values in condition.model_dump().items():
            for key, value in values.items():
                words += ["--set", f"conditions.{name}.{table}.{key}={_bare(value)}"]
    return words


def operator_changes(experiment: Experiment, variant: Experiment) -> list[str]:
    """Words `--set NAME.KEY=VALUE ...` that turn an experiment with another operator, whose name is
    NAME and whose settings are the defaults, into a given variant."""
    name = variant.model.name
    replaced = experiment.with_overrides({"model.name": name})
    defaults = _flat(replaced.model_dump(mode="json"))
    changes = [
        f"{name}.{key}={_bare(value)}"
        for key, value in _flat(variant.model_dump(mode="json")).items()
        if defaults.get(key) != value
    ]
    return [word for change in changes for word in ("--set", change)]


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of nested mappings, with joined keys such as "training.epochs"."""
    flat = {}
    for key, value in content.items():
        path = prefix + key
        flat |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _bare(value: object) -> str:
    """A value as text for --set."""
    if isinstance(value, str) and parse_override(f"k={value}") == ("k", value):
        return value
    return _value(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):  # in a list
        words = (f"{_key(key)} = {_value(inner)}" for key, inner in value.items())
        return f"{{ {', '.join(words)} }}"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
