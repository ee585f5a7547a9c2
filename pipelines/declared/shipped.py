"""The experiments and benchmarks that come with the project: their names, files and summaries."""

from __future__ import annotations

from pathlib import Path

from pdegen.schema import SchemaError, brief, near, read_toml


def experiment_names() -> list[str]:
    """The experiments that come with the project."""
    return _names("experiment")


def experiment_file(name: str) -> Path:
    """The TOML file of an experiment that comes with the project.

    Raises:
        SchemaError: On an unknown name (naming the near ones).
    """
    return _file("experiment", name)


def benchmark_names() -> list[str]:
    """The benchmarks that come with the project."""
    return _names("benchmark")


def benchmark_file(name: str) -> Path:
    """The TOML file of a benchmark that comes with the project.

    Raises:
        SchemaError: On an unknown name (naming the near ones).
    """
    return _file("benchmark", name)


def summary(file: Path) -> str:
    """What a file says of itself; nothing else in it is read, which would need PyTorch.

    >>> summary(experiment_file("burgers-quick"))[:7]
    'A small'
    """
    return read_toml(file)["summary"]


def _names(kind: str) -> list[str]:
    return sorted(file.stem for file in _folder(kind).glob("*.toml"))


def _file(kind: str, name: str) -> Path:
    if name not in _names(kind):
        raise SchemaError(f"unknown {kind} {brief(name)}: {near(name, _names(kind))}")
    return _folder(kind) / f"{name}.toml"


def _folder(kind: str) -> Path:
    return Path(__file__).parent / f"{kind}s"
