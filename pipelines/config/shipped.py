"""Shipped experiments and benchmarks: names, files, summaries, and what extends a file."""

import re
import unicodedata
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from pdegen.schema import Positive, SchemaError, Strict, brief, near, read_toml

Kind = Literal["experiment", "benchmark"]
_KINDS = ("name", "experiment")  # keys that say what a table is about
_EITHER = {  # a table has only one of the two
    "model": "models", "models": "model",
    "data.resolution": "data.resolutions", "data.resolutions": "data.resolution",
}  # fmt: skip


def names(kind: Kind) -> list[str]:
    """Names of the shipped files of a kind, in alphabetical order."""
    return sorted(file.stem for file in (Path(__file__).parent / f"{kind}s").glob("*.toml"))


def file_of(kind: Kind, name: str) -> Path:
    """The shipped TOML file with a given name. A name that ends in .toml is the path of a file.

    Raises SchemaError for an unknown name. The message suggests similar names.
    """
    if name.endswith(".toml"):
        return Path(name)
    if name not in names(kind):
        hint = near(name, names(kind), lists=f"pdegen {kind}s")
        raise SchemaError(f"unknown {kind} {brief(name)}: {hint}")
    return Path(__file__).parent / f"{kind}s" / f"{name}.toml"


def check_known(kind: Kind, name: str) -> None:
    """Raise SchemaError, as `file_of` does, for an unknown name. Commands call this before they
    import PyTorch, so that a misspelt name is refused at once."""
    file_of(kind, name)


class PublishedRecord(Strict):
    """The smallest published mean error on a data set, in relative L².

    Args:
        error: The mean error over the test samples of the published file. [1]
        model: Name of the operator.
        venue: Conference or journal, and year.
        source: Where the figure was read.
    """

    error: Positive
    model: str
    venue: str
    source: str

    @property
    def sentence(self) -> str:
        """The record in words, for example "3.9e-3 (LaMO, ICML 2025)"."""
        digits, exponent = f"{self.error:.1e}".split("e")
        return f"{digits}e{int(exponent)} ({self.model}, {self.venue})"


def records() -> dict[str, PublishedRecord]:
    """The published records, by the name of the recipe.

    >>> records()["darcy-85"].sentence
    '3.9e-3 (LaMO, ICML 2025)'
    """
    content = read_toml(Path(__file__).parent / "records.toml")
    return {name: PublishedRecord.model_validate(record) for name, record in content.items()}


def summary(file: Path) -> str:
    """Summary line of a file. Other keys are not parsed, because parsing them requires PyTorch.

    >>> summary(file_of("experiment", "burgers-quick"))[:7]
    'A small'
    """
    return read_toml(file)["summary"]


def check_asked(experiment: str | None, model: str | None, data: object) -> None:
    """Raise SchemaError unless a request names a known experiment, or an operator and a store."""
    if (experiment is None) == (model is None):
        raise SchemaError(
            "name an experiment, or an operator and its data (--model NAME --data STORE)"
        )
    if experiment is not None:
        file_of("experiment", experiment)
    elif data is None:
        raise SchemaError(f"model {model} needs a store to train on (--data STORE)")


def slug(label: str) -> str:
    """Convert a label to a part of a path with lower-case letters, digits and hyphens only.

    >>> slug("FNO++ (no BN)")
    'fno-plus-plus-no-bn'
    """
    plain = unicodedata.normalize("NFKD", label.lower().replace("+", "-plus-"))
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")


def check_slugs(names: Collection[str], plural: str) -> None:
    """Raise ValueError if a label has no slug, or two labels have the same slug."""
    slugs = [slug(name) for name in names]
    for label in (label for label in names if not slug(label)):
        raise ValueError(f"names of {plural} need a letter a-z or a digit, got {label!r}")
    for name in {name for name in slugs if slugs.count(name) > 1}:
        raise ValueError(f"names of {plural} must differ in letters or digits, got {name!r} twice")


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
    return merged_benchmark(_read(base, (*above, place)), content)


def merged_benchmark(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a benchmark file after `changes` is merged over `base`.

    Tables merge by key; a list or another value replaces the former one. A table whose `name` or
    `experiment` changes is about something else, and replaces the former table as a whole. Of
    `model` and `models`, and of `data.resolution` and `data.resolutions`, the former one is dropped
    if the changes have the other.

    >>> merged_benchmark({"seeds": 3, "search": {"lr": [1, 2]}}, {"search": {"batch": [4]}})
    {'seeds': 3, 'search': {'lr': [1, 2], 'batch': [4]}}
    >>> merged_benchmark({"model": {"name": "fno", "modes": 8}}, {"model": {"name": "pit"}})
    {'model': {'name': 'pit'}}
    """
    result = {key: value for key, value in base.items() if _EITHER.get(key) not in changes}
    for key, value in changes.items():
        former = result.get(key)
        if isinstance(value, dict) and isinstance(former, dict) and not _differ(former, value):
            result[key] = merged_benchmark(former, value)
        else:
            result[key] = value
    return result


def _differ(former: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Whether a table is about something else than the former one."""
    return any(isinstance(table.get(key), str) and table[key] != former.get(key) for key in _KINDS)
