"""Defaults of operators and trainings against a table: records omit them, or a user relies on them.

    python -m tests.operators.test_defaults        # writes the table anew

What is new is compared once the table has it.
"""

import inspect
import json
import tomllib
from pathlib import Path

import pytest

from operators.registry import OPERATORS, REGISTRIES
from operators.training.fit import Settings
from operators.training.step import Acceleration

TABLE = Path(__file__).parent / "defaults.toml"
KNOWN = tomllib.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}


def defaults_of(called, words):
    """Defaults of arguments as files have them: objects by their words."""
    found = {}
    for name, parameter in inspect.signature(called).parameters.items():
        value = parameter.default
        if name in words:
            value = next(word for word, known in words[name].items() if known is value)
        if value is not parameter.empty:
            plain = isinstance(value, bool | int | float | str | list | tuple)
            found[name] = value if plain else str(value)
    return json.loads(json.dumps(found))


def defaults():
    """Defaults by kind and name."""
    found = {"training": {c.__name__: defaults_of(c, {}) for c in (Settings, Acceleration)}}
    for kind, registry in REGISTRIES.items():
        entries = {name: getattr(registry[name], "registered", registry[name]) for name in registry}
        found[kind] = {
            name: defaults_of(entry, OPERATORS[name].words if kind == "operator" else {})
            for name, entry in entries.items()
            if entry.__module__.startswith("operators.")
        }
    found["training"]["Settings"].pop("optimizer")
    found["training"]["Settings"].pop("schedule")
    return found


@pytest.mark.parametrize("kind", KNOWN)
def test_defaults_are_those_of_the_table(kind):
    found = defaults()[kind]
    assert {name: found.get(name) for name in KNOWN[kind]} == KNOWN[kind]


def written() -> str:
    lines = ["# Defaults of operators and trainings (test_defaults.py)."]
    for kind, entries in defaults().items():
        for name, values in entries.items():
            lines += ["", f"[{kind}.{name}]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(written(), "utf-8")
