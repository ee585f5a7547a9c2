"""Overrides of declarations: dotted keys or tables, in Python and as KEY=VALUE on the command
line."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from pdegen import toml
from pdegen.schema import SchemaError
from pdegen.words import brief

SELECTING = ("equation", "kind", "law", "method", "name")  # keys that select a variant of a table


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Parse texts ["a.b=value", ...] into overrides {"a.b": value, ...}.

    A table sets its keys, as `flattened`. Keys that select a variant come first, then presets. They
    remove other keys of their table, which may thus be given in any order. The last of several
    texts of a key counts.

    Raises SchemaError if a text is not KEY=VALUE.

    >>> parse_overrides(["model={width=32}", "model.name=fno", "seed=1", "seed=2"])
    {'model.name': 'fno', 'model.width': 32, 'seed': 2}
    """
    overrides = _last(item for text in texts for item in _leaves(*parse_override(text)))
    return dict(sorted(overrides.items(), key=_order))


def flattened(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each table of overrides by its dotted keys. A table thus changes the keys that it
    has, and no others; an empty table stays, and changes nothing.

    Overrides keep their order. Within a table, keys that select a variant come first. The last of
    several values of a key counts.

    >>> flattened({"model": {"width": 32, "name": "fno"}, "training": {"loss": {"name": "h1"}}})
    {'model.name': 'fno', 'model.width': 32, 'training.loss.name': 'h1'}
    """
    return _last(
        item for key, value in overrides.items() for item in sorted(_leaves(key, value), key=_order)
    )


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The dotted keys of a table with their values; of another value, the key itself."""
    if not isinstance(value, Mapping) or not value:
        yield key, value
        return
    for inner, content in cast("Mapping[str, Any]", value).items():
        yield from _leaves(f"{key}.{inner}", content)


def _last(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The last value of each key. The order decides between a key and its abbreviation."""
    overrides = dict[str, Any]()
    for key, value in items:
        overrides.pop(key, None)
        overrides[key] = value
    return overrides


def _order(override: tuple[str, Any]) -> tuple[int, int]:
    """Sort key of an override: keys that remove other keys come first."""
    *tables, last = override[0].split(".")
    if last in SELECTING:
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
