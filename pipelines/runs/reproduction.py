"""What runs an experiment again: a command, or its declaration as TOML."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from pdegen.equations.registry import equation_files
from pdegen.schema import SchemaError, parse_override
from pdegen.store.reading import Store
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.config.shipped import names


def reproduction(experiment: Experiment, store: Store) -> str:
    """The command that runs an experiment again, from the shipped one of its name if possible,
    else from its declaration in experiment.toml."""
    words = ["pdegen", "run", *(overriding(experiment) or ["experiment.toml"])]
    try:
        made_here = experiment.data.load_recipe().fingerprint == store.metadata.fingerprint
    except SchemaError:  # the store's recipe does not come with the project
        made_here = False
    if not made_here:
        words += ["--data", str(store.url)]
    if (file := store.metadata.equation_file) is not None:
        here = {source.digest: source.path for source in equation_files()}
        words += ["--equation", here.get(file.sha256, file.name)]
    return shlex.join(words)


def described(experiment: Experiment) -> str:
    """The summary of an experiment, and what was set to other values than the shipped one has.

    >>> described(load_experiment("burgers-quick").with_overrides({"training.lr": 0.5}))[-31:]
    'two cores; with training.lr=0.5'
    """
    words = overriding(experiment) or [experiment.name]
    changes = [
        value if option == "--set" else f"{option.removeprefix('--')} {value}"
        for option, value in zip(words[1::2], words[2::2], strict=True)
        if not value.startswith("summary=")
    ]
    return experiment.summary + (f"; with {', '.join(changes)}" if changes else "")


def toml(content: Mapping[str, Any], path: str = "") -> str:
    """A declaration as a TOML document; what is None is left out, as TOML has no word for it.

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
    """The words `NAME --set ...` of an experiment; None where no overrides lead there."""
    if experiment.name not in names("experiment"):
        return None
    shipped, words = load_experiment(experiment.name), [experiment.name]
    stream = experiment.data.stream
    if stream is not None and shipped.data.stream is None:
        words += ["--stream", stream.recipe]
        shipped = shipped.with_overrides({"data.stream.recipe": stream.recipe})
    there = _flat(shipped.model_dump(mode="json"))
    changes = [
        f"{key}={_bare(value)}"
        for key, value in _flat(experiment.model_dump(mode="json")).items()
        if there.get(key) != value
    ]
    try:
        if shipped.with_overrides(dict(map(parse_override, changes))) != experiment:
            return None
    except SchemaError:  # such as noise, where the shipped one has no table of it
        return None
    return [*words, *(word for change in changes for word in ("--set", change))]


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in content.items():
        path = prefix + key
        flat |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _bare(value: object) -> str:
    """A value of --set: without quotes where it is read as the same word."""
    if isinstance(value, str) and parse_override(f"k={value}") == ("k", value):
        return value
    return _value(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):  # in a list
        words = (f"{_key(key)} = {_value(one)}" for key, one in value.items())
        return f"{{ {', '.join(words)} }}"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
