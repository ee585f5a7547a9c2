"""The experiments and benchmarks that come with the project: their names, files and summaries."""

import re
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from pdegen.schema import SchemaError, brief, near, read_toml

Kind = Literal["experiment", "benchmark"]


def names(kind: Kind) -> list[str]:
    """What comes with the project."""
    return sorted(file.stem for file in (Path(__file__).parent / f"{kind}s").glob("*.toml"))


def file_of(kind: Kind, name: str) -> Path:
    """The TOML file of a name of these, or one that ends in .toml itself. Raises SchemaError on an
    unknown name (naming the near ones)."""
    if name.endswith(".toml"):
        return Path(name)
    if name not in names(kind):
        hint = near(name, names(kind), lists=f"pdegen {kind}s")
        raise SchemaError(f"unknown {kind} {brief(name)}: {hint}")
    return Path(__file__).parent / f"{kind}s" / f"{name}.toml"


def summary(file: Path) -> str:
    """What a file says of itself; nothing else in it is read, which would need PyTorch.

    >>> summary(file_of("experiment", "burgers-quick"))[:7]
    'A small'
    """
    return read_toml(file)["summary"]


def check_asked(experiment: str | None, model: str | None, data: str | None) -> None:
    """Raise SchemaError where a request names neither a known experiment nor a model with its
    data."""
    if (experiment is None) == (model is None):
        raise SchemaError(
            "name an experiment, or a model and the data to train it on (--model NAME --data STORE)"
        )
    if experiment is not None:
        file_of("experiment", experiment)
    elif data is None:
        raise SchemaError(f"model {model} needs data, a store to train on (--data STORE)")


def slug(label: str) -> str:
    """A name as part of a path.

    >>> slug("FNO++ (no BN)")
    'fno-plus-plus-no-bn'
    """
    plain = unicodedata.normalize("NFKD", label.lower().replace("+", "-plus-"))
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")


def check_slugs(names: Collection[str], what: str) -> None:
    """Raise ValueError where names have no slug, or share one."""
    slugs = [slug(name) for name in names]
    for label in (label for label in names if not slug(label)):
        raise ValueError(
            f"names of {what} have a letter of a-z or a digit: {label!r} has no letter"
        )
    for name in {name for name in slugs if slugs.count(name) > 1}:
        raise ValueError(f"names of {what} differ in more than signs, got {name!r} twice")
