"""Benchmark files that extend other benchmark files by the key `extends`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pdegen.schema import SchemaError, brief, read_toml
from pipelines.config.shipped import file_of

_KINDS = ("name", "experiment")  # keys that say what a table is about
_EITHER = {  # a table has only one of the two
    "model": "models", "models": "model",
    "data.resolution": "data.resolutions", "data.resolutions": "data.resolution",
}  # fmt: skip


def read_benchmark(path: Path) -> dict[str, Any]:
    """Content of a benchmark file, merged over the files that it extends.

    Raises SchemaError if a file cannot be read, or if the files extend each other in a circle.
    """
    return _read(path, ())


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Merged content of a file. `above` has the files that lead to this one by `extends`."""
    content = read_toml(path)
    place = path.resolve()
    if place in above:
        circle = [*above[above.index(place) :], place]
        raise SchemaError(
            f"{above[0]}: extends forms a circle: {' -> '.join(file.name for file in circle)}"
        )
    extended = content.pop("extends", None)
    if extended is None:
        return content
    if not isinstance(extended, str) or not extended:
        raise SchemaError(
            f"{path}: extends must be the name of a benchmark or a TOML file, got {brief(extended)}"
        )
    try:
        base = file_of("benchmark", extended)
    except SchemaError as error:
        raise SchemaError(f"{path}: extends: {error}") from None
    if extended.endswith(".toml"):
        base = path.parent / base
    return merged(_read(base, (*above, place)), content)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a benchmark file after `changes` is merged over `base`.

    Tables merge by key; a list or another value replaces the former one. A table whose `name` or
    `experiment` changes is about something else, and replaces the former table as a whole. Of
    `model` and `models`, and of `data.resolution` and `data.resolutions`, the former one is dropped
    if the changes have the other.

    >>> merged({"seeds": 3, "search": {"lr": [1, 2]}}, {"seeds": 1, "search": {"batch": [4]}})
    {'seeds': 1, 'search': {'lr': [1, 2], 'batch': [4]}}
    >>> merged({"model": {"name": "fno", "modes": 8}}, {"model": {"name": "pit"}})
    {'model': {'name': 'pit'}}
    """
    result = {key: value for key, value in base.items() if _EITHER.get(key) not in changes}
    for key, value in changes.items():
        former = result.get(key)
        if isinstance(value, dict) and isinstance(former, dict) and not _differ(former, value):
            result[key] = merged(former, value)
        else:
            result[key] = value
    return result


def _differ(former: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Whether a table is about something else than the former one."""
    return any(isinstance(table.get(key), str) and table[key] != former.get(key) for key in _KINDS)
