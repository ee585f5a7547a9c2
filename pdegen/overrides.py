"""Overrides KEY=VALUE of declarations, as the command line takes them."""

from collections.abc import Iterable
from typing import Any

from pdegen import toml
from pdegen.schema import SchemaError
from pdegen.words import brief


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Parse texts ["a.b=value", ...] into overrides {"a.b": value, ...}. The last text of a key
    counts.

    Raises SchemaError if a text is not KEY=VALUE.
    """
    overrides = dict[str, Any]()
    for key, value in map(parse_override, texts):
        overrides.pop(key, None)  # the order decides between a key and its abbreviation
        overrides[key] = value
    return overrides


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
