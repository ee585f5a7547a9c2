"""Files of users in records of runs: which file each class of an experiment needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from operators.plugins import (
    copy_name,
    described,
    digest_of,
    fault_of_class,
    file_of,
    recorded_file,
)
from operators.registry import REGISTRIES
from pdegen.files import write
from pdegen.plugins import loaded_plugins
from pipelines.config.experiment import Experiment

# the table of an experiment that names the class, by kind of class
_TABLES = {
    "operator": ("model",),
    "optimizer": ("training", "optimizer"),
    "schedule": ("training", "schedule"),
    "loss": ("training", "loss"),
}
Files = dict[str, dict[str, str]]  # name and SHA-256 of a file, by kind of class


def plugins_of(experiment: Experiment) -> Files:
    """Names and SHA-256 of the users' files to which the classes of an experiment belong."""
    files = Files()
    for kind, name in _names(experiment.model_dump(mode="json")):
        registered = _registered(kind, name)
        if registered is not None and (file := file_of(registered)) is not None:
            files[kind] = file
    return files


def resumed_plugins(experiment: Experiment, recorded: Mapping[str, Any]) -> Files:
    """The files of the classes of an experiment, as the run to resume records them.

    A file of the same content may have another name now, such as that of the copy in the folder of
    the run.
    """
    files = plugins_of(experiment)
    for kind, name in _names(experiment.model_dump(mode="json")):
        before, registered = recorded_file(recorded, kind), _registered(kind, name)
        if before is None or registered is None or digest_of(registered) != before["sha256"]:
            continue
        files[kind] = dict(before)
    return files


def plugin_words(experiment: Experiment) -> list[str]:
    """The options --plugin that a command with this experiment needs."""
    paths = {file.digest: file.path for file in loaded_plugins()}
    needed = plugins_of(experiment).values()
    names = dict.fromkeys(paths.get(file["sha256"], file["name"]) for file in needed)
    return [word for name in names for word in ("--plugin", name)]


def keep_plugins(folder: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """Write copies of users' files into a folder. Copies are never run unless a user names them."""
    codes = {file.digest: file.code for file in loaded_plugins()}
    for file in files.values():
        if file["sha256"] in codes:
            write(folder / copy_name(file), codes[file["sha256"]])


def absent_class(record: Mapping[str, Any], folder: Path) -> str | None:
    """One line about a class of a recorded experiment that is not registered; None if all are.

    Versions of files are not compared, because reports may be about runs of two versions.

    Args:
        record: Content of run.json, with the entries "experiment" and "plugins".
        folder: Folder of the run, which may keep a copy of the file.
    """
    for kind, name in _names(record["experiment"]):
        file = recorded_file(record, kind)
        if file is not None and _registered(kind, name) is None:
            return fault_of_class(f"{kind} {name}", None, file, folder)
    return None


def other_version(
    recorded: Mapping[str, Any], declared: Mapping[str, Any], folder: Path
) -> str | None:
    """One line about a class of a run that is of another file now; None if all are of the same.

    Files are compared by their content.
    """
    for kind, name in _names(declared["experiment"]):
        before, now = recorded_file(recorded, kind), recorded_file(declared, kind)
        if before is None and now is not None:
            change = f"is recorded without a file, now it comes from the file {described(now)}"
            return f"its {kind} {name} {change}"
        if before is not None and (now is None or before["sha256"] != now["sha256"]):
            fault = fault_of_class(f"{kind} {name}", _registered(kind, name), before, folder)
            if fault is not None:
                return fault
    return None


def _names(experiment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and name of each class that an experiment names."""
    for kind, path in _TABLES.items():
        table: Any = experiment
        for key in path:
            table = table.get(key) if isinstance(table, Mapping) else None
        if isinstance(table, Mapping) and isinstance(name := table.get("name"), str):
            yield kind, name


def _registered(kind: str, name: str) -> type | None:
    """The registered class of this name; None if there is none."""
    registry = REGISTRIES.get(kind, {})
    if name not in registry:
        return None
    entry = registry[name]
    return entry if isinstance(entry, type) else entry.registered
