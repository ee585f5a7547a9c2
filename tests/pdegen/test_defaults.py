"""Defaults of recipes against a table: fingerprints of recipes that omit them depend on them.

    python -m tests.pdegen.test_defaults        # writes the table anew

What is new is compared once the table has it.
"""

import json
import tomllib
from pathlib import Path

import pytest

from pdegen.equations.base import registered_problems
from pdegen.recipe import Recipe
from pdegen.schema import Strict

TABLE = Path(__file__).parent / "defaults.toml"
KNOWN = tomllib.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}


def tables():
    """All classes of tables in recipes."""
    registered_problems()
    found, queue = {Recipe}, [Strict]
    while queue:
        queue += (below := queue.pop().__subclasses__())
        found |= {one for one in below if one.__module__.startswith("pdegen.equations.")}
    return sorted(found, key=lambda table: (table.__module__, table.__qualname__))


def defaults():
    """Defaults of keys, by table."""
    found = {}
    for table in tables():
        fields = {key: f.default for key, f in table.model_fields.items() if not f.is_required()}
        plain = {
            key: value.model_dump() if isinstance(value, Strict) else value
            for key, value in fields.items()
        }
        if plain:
            name = f"{table.__module__.removeprefix('pdegen.')}.{table.__qualname__}"
            found[name] = json.loads(json.dumps(plain).replace("null", '"none"'))
    return found


@pytest.mark.parametrize("table", KNOWN)
def test_defaults_are_those_of_the_table(table):
    assert defaults()[table] == KNOWN[table]


def text_of(value) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {text_of(item)}' for key, item in value.items())}}}"
    return json.dumps(value)


def written() -> str:
    lines = ["# Defaults of the keys of recipes (test_defaults.py)."]
    for table, values in defaults().items():
        lines += ["", f'["{table}"]']
        lines += [f"{key} = {text_of(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(written(), "utf-8")
