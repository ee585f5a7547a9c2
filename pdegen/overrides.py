"""Overrides KEY=VALUE of declarations, as the command line takes them."""

from collections.abc import Iterable
from typing import Any

from pdegen import toml
from pdegen.schema import SchemaError
from pdegen.words import brief

SELECTING = ("equation", "kind", "law", "method", "name")  # keys that select a variant of a table


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Parse texts ["a.b=value", ...] into overrides {"a.b": value, ...}.

    Whole tables and keys that select a variant come first, then presets. They remove other keys of
    their table, which may thus be given in any order. The last of several texts of a key counts.

    Raises SchemaError if a text is not KEY=VALUE.

    >>> parse_overrides(["model.width=32", "model.name=fno", "seed=1", "seed=2"])
    {'model.name': 'fno', 'model.width': 32, 'seed': 2}
    """
    overrides = dict[str, Any]()
    for key, value in map(parse_override, texts):
        overrides.pop(key, None)  # the order decides between a key and its abbreviation
        overrides[key] = value
    return dict(sorted(overrides.items(), key=_order))


def _order(override: tuple[str, Any]) -> tuple[int, int]:
    """Sort key of an override: keys that remove other keys come first."""
    key, value = override
    *tables, last = key.split(".")
    if isinstance(value, dict) or last in SELECTING:
        return 0, len(tables)
    return (1, 0) if last == "preset" else (2, 0)


def parse_override(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE, where VALUE is a TOML value. A bare word is a string.

    >>> parse_override("problem.viscosity=0.01")
    ('problem.viscosity', 0.01)
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise SchemaError(f"an override is KEY=VALUE, got {brief(text)}")
    try:
        content = toml.parsed(f"value = {value}")
    except toml.LimitError as error:
        raise SchemaError(f"{brief(key)}: {error}") from None
    except toml.TomlError:
        return key, value
    if content.keys() != {"value"}:
        raise SchemaError(f"an override is one KEY=VALUE, got {brief(text)}")
    return key, content["value"]
