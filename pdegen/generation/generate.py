"""Generation of sealed stores from recipes and other jobs. Each task computes one shard."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from pdegen.equations.base import Problem, SampleError
from pdegen.files import check_room, enclosing_store
from pdegen.generation.pools import Pool, check, pool
from pdegen.numerics.device import one_thread
from pdegen.numerics.errors import SolveError, WorkerError
from pdegen.plugins import error_in_plugin, error_summary, path_of, plugin_of
from pdegen.recipe import Recipe, fingerprint_of, recipe_folder
from pdegen.schema import SchemaError
from pdegen.software import platform_facts, versions
from pdegen.store import lock
from pdegen.store.card import CARD, CROISSANT
from pdegen.store.format import METADATA_BYTES, ROOT, UNFINISHED_ROOT, Json, job_of
from pdegen.store.layout import Coordinate, Layout, positions
from pdegen.store.objects import Objects, TooLargeError, retried_errors
from pdegen.store.reading import Record, Seal, Store, StoreError, UnfinishedLayoutError, seal_in
from pdegen.store.writing import (
    altered,
    encoded,
    expects_key,
    inspect,
    layout_objects,
    seal,
    seal_faults,
    summary_faults,
    write_encoded,
)
from pdegen.version import __version__

# Checks of the URL of a new store. At this URL there may be nothing, a store to replace or resume,
# or unrelated files.


_RECORDS_AT_ONCE = 256  # records read at a time
_LOG = re.compile(r"log/\d{8}T\d{12}Z\.json")
_OURS = re.compile(
    "|".join(
        [
            *map(re.escape, (ROOT, lock.LOCK_KEY, lock.LEASE_KEY, Seal.KEY, CARD, CROISSANT)),
            _LOG.pattern,
            r"records/\d+\.json",
            r"[A-Za-z][A-Za-z0-9_-]*/(zarr\.json|c(/\d+)*)",
        ]
    )
)


def store_at(objects: Objects, job: str | None = None) -> Store | None:
    """The store at a URL. It may be damaged. None if the URL is empty or has only an unfinished
    layout.

    Args:
        objects: The objects at the URL.
        job: Identity of the job to resume, if any. An unfinished layout counts as a store if it has
            shards of this job. This happens if another job began to replace the store and lost the
            lock.

    Raises:
        StoreError: If something other than a store is at the URL.
    """
    names = set(objects.keys("")) if objects.exists() else set()
    logs = [f"log/{name}" for name in objects.keys("log")] if "log" in names else []
    if all(map(_LOG.fullmatch, logs)) and not names - {lock.LOCK_KEY, lock.LEASE_KEY, "log"}:
        if names:  # a folder may have the name of the lock
            check_no_unexpected(objects)
        return None
    store = Store(objects.url)
    damage = damage_of(store)
    if isinstance(damage, UnfinishedLayoutError):
        check_no_unexpected(objects)
        return store if job and objects.keys("records") and holds_only_job(objects, job) else None
    if damage is not None and not _was_store(objects):
        raise damage
    return store


def damage_of(store: Store) -> StoreError | None:
    """Try to read the metadata of a store. Returns the error that this raises, or None."""
    try:
        _ = store.description
    except StoreError as error:
        return error
    return None


def _was_store(objects: Objects) -> bool:
    """Whether objects that cannot be read as a store were one before."""
    root, _ = objects.try_read(ROOT, METADATA_BYTES)
    truncated = False  # the root is not JSON, as after a power loss
    try:
        if root is not None and json.loads(root)["attributes"]["format"] == "pdegen":
            return True
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        truncated = True
    except (TypeError, KeyError):
        pass
    if lock.holder(objects) is not None or next(_records(objects), None) is not None:
        return True
    with suppress(StoreError):
        seal_in(objects)
        return True
    return truncated and set(objects.keys("")) <= {ROOT, "log"}


def _records(objects: Objects) -> Iterator[Record]:
    """Yield the valid records of a store; several are read at once."""
    keys = [
        f"records/{name}" for name in objects.keys("records") if Record.number(name) is not None
    ]
    for start in range(0, len(keys), _RECORDS_AT_ONCE):
        group = keys[start : start + _RECORDS_AT_ONCE]
        try:
            encoded = objects.read_all(group, METADATA_BYTES)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, TooLargeError):
            readable = (objects.try_read(key, METADATA_BYTES)[0] for key in group)
            encoded = [data for data in readable if data is not None]
        for data in encoded:
            with suppress(ValueError):
                yield Record.parse(data)


def holds_only_job(objects: Objects, job: str) -> bool:
    """Whether all readable records of a store belong to a job. For a store without records, the
    result is True if the store is damaged and has no seal."""
    records = _records(objects)
    first = next(records, None)
    if first is not None:
        return first.job == job and all(record.job == job for record in records)
    empty = not objects.keys("records") and not objects.exists(Seal.KEY)
    return empty and damage_of(Store(objects.url)) is not None


def unexpected_keys(objects: Objects, store: Store | None) -> Iterator[str]:
    """Keys of objects that do not belong to a store.

    Args:
        objects: The objects at the URL of the store.
        store: The store, whose layout determines which keys belong to it. None if the layout is
            unknown. In this case a key is unexpected if no store can have it, or if the seal lists
            no object in its folder.
    """
    sealed = None
    if store is None:
        with suppress(StoreError):
            sealed = {key.partition("/")[0] for key in seal_in(objects).objects} | {"records"}
    for key in objects.all_keys():
        if key in (lock.LOCK_KEY, lock.LEASE_KEY) or _LOG.fullmatch(key):
            continue
        folder, below, _ = key.partition("/")
        unknown = sealed is not None and bool(below) and folder not in sealed
        if unknown or not (_OURS.fullmatch(key) if store is None else expects_key(store, key)):
            yield key


def check_no_unexpected(objects: Objects, store: Store | None = None) -> None:
    """Raise StoreError if there are objects that do not belong to the store (`unexpected_keys`).
    Somebody may need these objects. Therefore they are neither removed nor overwritten."""
    keys = list(itertools.islice(unexpected_keys(objects, store), 4))
    if keys:
        more = ", ..." if len(keys) > 3 else ""
        raise StoreError(
            f"{objects.url} holds files that are not of a store: {', '.join(keys[:3])}{more}; "
            "nothing was deleted: move them away"
        )


def laid_out_anew(objects: Objects, layout: dict[str, bytes], check: Callable[[], None]) -> Store:
    """Remove the objects at a URL, except `log/`, and lay out a new store there.

    Args:
        objects: The objects at the URL of the store.
        layout: Metadata and coordinates (`pdegen.store.writing.layout_objects`).
        check: Called before and after each write. It raises LockedError if the lock was lost.
    """
    objects.write(ROOT, UNFINISHED_ROOT, check)  # from here on the old store is invalid
    for key in objects.keys(""):
        if key not in (lock.LOCK_KEY, lock.LEASE_KEY, ROOT, "log"):
            objects.remove_all(key, check)
    objects.flush()
    objects.write_all({key: layout[key] for key in layout if key != ROOT}, check)
    objects.write(ROOT, layout[ROOT], check)
    return Store(objects.url)


def resumed(objects: Objects, layout: dict[str, bytes], check: Callable[[], None]) -> Store:
    """Write the objects of a layout that are missing in the store or differ from it. A sealed store
    is then no longer sealed. The arguments are those of `laid_out`."""
    for key in differing(objects, layout):
        objects.write(key, layout[key], check)
    return Store(objects.url)


def differing(objects: Objects, layout: dict[str, bytes]) -> list[str]:
    """Keys of the objects of a layout that are missing at the URL or differ there. If `zarr.json`
    is one of them, its key comes first."""
    keys = [ROOT, *(key for key in layout if key != ROOT)]
    return [key for key in keys if objects.try_read(key, len(layout[key]))[0] != layout[key]]


# The folder `log/` of a store. It has one file for each run that wrote to the store, with the
# time, machine, commit and outcome of the run.


_SHOWN = ("processor", "commit", "device", "dask")  # keys that `runs` shows


@contextmanager
def logged(
    objects: Objects, scheduler: str, workers: int | None, device: str | None
) -> Iterator[Json]:
    """Collect facts about this run, and write them to `log/` at the end, whether or not the run
    succeeds.

    The commit and the processor are logged here and are not attributes of the store. Machines and
    commits that compute the same numbers therefore write the same store.
    """
    started = datetime.now(UTC)
    log: Json = {
        "started": started.isoformat(timespec="seconds"),
        "scheduler": scheduler,
        "workers": workers,
        "machine": platform.machine(),
        "pdegen": __version__,
        **platform_facts(),
        **({"device": device} if device else {}),
        **({} if scheduler == "threads" else versions("dask")),
        "shards": 0,
        "notes": [],
    }
    try:
        with retried_errors() as notes:
            yield log
        log["notes"] += notes
        log["end"] = "complete"
    except BaseException as error:
        log["end"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        log["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        key = f"log/{started:%Y%m%dT%H%M%S%fZ}.json"
        with suppress(OSError):  # a full disk raises its own error elsewhere
            objects.write(key, json.dumps(log, indent=1).encode())


def runs(objects: Objects) -> list[str]:
    """The runs that computed shards of a store. Each is described in one line: processor, commit,
    PyTorch device, and version of Dask.

    The list is empty for a copy of the store without `log/`. The seal does not cover logs.
    """
    lines = list[str]()
    try:
        names = sorted(objects.keys("log"))
    except OSError:  # the location cannot be listed
        return []
    for name in names:
        data, _ = objects.try_read(f"log/{name}", METADATA_BYTES)
        try:
            log = json.loads(data or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(log, dict) and log.get("shards"):
            shown = {key: log[key] for key in _SHOWN if isinstance(log.get(key), str)}
            words = [v if key == "processor" else f"{key} {v}" for key, v in shown.items()]
            lines.append(", ".join(words))
    return [line for line in dict.fromkeys(lines) if line]


# Measurements on the samples of a store. They are the errors of the labels, and the effect of
# inputs that have too few points to determine them.


_COMPARED = 4  # number of first samples whose labels are compared with those of interpolants
TABLE = "label_errors.json"  # beside the recipes; `python -m benchmarks.label_errors` writes it


def label_error(recipe: Recipe, workers: Pool) -> Json:
    """The attribute `label_error`. Empty if the equation has no reference solution.

    The errors are read from the shipped table. If they are not in the table, workers compute them.
    Both give the same numbers, because errors are rounded to four digits. This removes the
    differences in rounding between machines.
    """
    problem = recipe.problem
    samples = range(min(problem.compared_samples, recipe.samples))
    if not samples:
        return {}
    shipped = table().get(error_key(recipe), {}).get("relative_l2")
    errors = dict(enumerate(shipped)) if shipped else measured_errors(recipe, samples, workers)
    solved = [i for i in samples if i in errors]
    if not solved:
        return {}
    return {
        "label_error": {
            "relative_l2": [errors[i] for i in solved],
            "samples": solved,
            "reference": problem.reference,
        }
    }


def measured_errors(recipe: Recipe, samples: Sequence[int], workers: Pool) -> dict[int, float]:
    """The label errors of samples. Keys are numbers of samples. Samples that cannot be computed are
    left out."""
    task = partial(_of_sample, recipe)
    return {i: error for i, error in workers.run(task, samples) if error is not None}


def error_key(recipe: Recipe) -> str:
    """SHA-256 of everything that the label errors depend on. It is the key of the errors in
    `table`."""
    problem = recipe.problem
    content = [problem.model_dump(mode="json"), problem.algorithm, recipe.seed]
    content += [recipe.first] if recipe.first else []
    content += [recipe.select.model_dump(mode="json")] if recipe.select else []
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def table() -> Json:
    """The label errors that pdegen ships, for the first samples of each recipe. Keys are those of
    `error_key`."""
    return json.loads((recipe_folder() / TABLE).read_text("utf-8"))


def _of_sample(recipe: Recipe, sample: int) -> float | None:
    try:
        seed, number = recipe.stream(sample)
        problem = recipe.problem.of_sample(seed, number)
        return float(f"{problem.label_error(seed, number):.4g}")
    except (SampleError, SolveError):
        return None


def sampled_inputs(recipe: Recipe, workers: Pool) -> Json:
    """The attribute `sampled_inputs`. Empty if the stored values determine the inputs.

    A function with wave numbers up to m is determined by its values at n points if n ≥ 2m + 1. With
    fewer points, many functions have the same values, but the label is the solution for only one of
    them. To show the effect, the label is compared with the solution for the trigonometric
    interpolant of the stored input. The attribute contains their relative L² differences for the
    first samples, rounded to three digits.
    """
    problem = recipe.problem
    modes, points = problem.input_modes, problem.resolution
    if modes is None or points >= 2 * modes + 1:
        return {}
    samples = range(min(_COMPARED, recipe.samples))
    task = partial(interpolant_difference, recipe)
    by_sample = dict(workers.run(task, samples))
    differences = [by_sample[i] for i in samples if by_sample[i] is not None]
    return {"sampled_inputs": {"points": points, "modes": modes, "relative_l2": differences}}


def interpolant_difference(recipe: Recipe, sample: int) -> float | None:
    """Relative L² difference between the label of a sample and the solution for the interpolant of
    its input. None if one of these two cannot be computed."""
    try:
        values = recipe.compute(range(sample, sample + 1))
        a = values["a"].astype(np.float64)
        problem = recipe.problem.of_sample(*recipe.stream(sample))
        interpolated = problem.target_of_interpolant(a)
    except (SampleError, SolveError):
        return None
    label = values["u"].astype(np.float64)
    return float(f"{np.linalg.norm(label - interpolated) / np.linalg.norm(label):.3g}")


# The layout of the store of a recipe, and the values of its samples.


def layout(
    recipe: Recipe, device: str | None = None, software: Mapping[str, str] = MappingProxyType({})
) -> Layout:
    """The layout of the store of a recipe.

    Args:
        recipe: The recipe.
        device: PyTorch device of the solver; None for NumPy.
        software: Versions of further packages that determine the numbers.
    """
    problem = recipe.problem
    source = plugin_of(type(problem))
    with one_thread():
        coordinates = (*positions(problem.domain), *problem.coordinates())
    number = Coordinate(
        "sample",
        ("sample",),
        recipe.first + np.arange(recipe.samples),
        {"long_name": "number of the sample"},
    )
    return Layout(
        samples=recipe.samples,
        shard=min(recipe.shard, recipe.samples),
        variables=problem.variables(),
        coordinates=(number, *coordinates),
        attributes={
            "title": recipe.headline,
            "equation": problem.formula,
            **({"physics": physics} if (physics := problem.physics().attributes()) else {}),
            "recipe": recipe.model_dump(mode="json"),
            "fingerprint": recipe.fingerprint,
            **({"equation_file": source.attributes()} if source else {}),
            "splits": {k: list(v) for k, v in recipe.splits.ranges(recipe.samples).items()},
            "provenance": {**provenance(software), **({"device": device} if device else {})},
        },
        codec=recipe.codec,
        domain=problem.domain,
    )


def compute(recipe: Recipe, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
    """Compute the values of samples. Returns a dictionary that maps the names of variables to
    arrays. Raises SampleError if a sample cannot be solved or is not finite. Raises SchemaError if
    the code of a user's equation raises another error, or returns values that do not match its
    variables."""
    problem = recipe.problem
    path = path_of(type(problem))
    if path is None:
        values = recipe.compute(samples, device)
        for name, array in values.items():
            _check_finite(name, array, samples)
        return values
    where = f"equation {problem.equation_name}, {_numbers(samples)}"
    try:
        values = recipe.compute(samples, device)
    except (SampleError, SchemaError, OSError, MemoryError):
        raise
    except Exception as error:  # of a user's code
        message = error_in_plugin(error) or f"{path}: {error_summary(error)}"
        raise SchemaError(f"{message} ({where}; --debug shows the traceback)") from error
    return _checked(problem, samples, values, f"{path}: solve of {where}")


def probe(recipe: Recipe, device: str | None = None, failures: bool = False) -> None:
    """Solve the first sample of a user's equation, to find mistakes in its code early.

    Args:
        recipe: The recipe; equations of pdegen are not probed.
        device: PyTorch device of the solver; None for NumPy.
        failures: Whether samples that cannot be computed are allowed.

    Raises:
        SchemaError: If the code raises an error, or returns values that do not match its variables.
    """
    problem = recipe.problem
    path = path_of(type(problem))
    if path is None:
        return
    try:
        compute(recipe, range(1), device)
    except SampleError as error:
        if not failures:
            raise SchemaError(f"{path}: equation {problem.equation_name}, {error}") from error
    try:
        recipe.checks()
    except Exception as error:  # of a user's code
        message = error_in_plugin(error) or f"{path}: {error_summary(error)}"
        raise SchemaError(f"{message} (the law of equation {problem.equation_name})") from error


def _checked(problem: Problem, samples: range, values: object, where: str) -> dict[str, np.ndarray]:
    """Convert values to the dtypes of the variables."""
    variables = {variable.name: variable for variable in problem.variables()}
    if not isinstance(values, Mapping) or values.keys() != variables.keys():
        names = (
            ", ".join(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        )
        raise SchemaError(
            f"{where} gives {names or 'nothing'}: expected a dictionary of arrays for "
            f"{', '.join(variables)}"
        )
    stored = dict[str, np.ndarray]()
    for name, variable in variables.items():
        try:
            array, expected = np.asarray(values[name]), (len(samples), *variable.shape)
        except ValueError as error:  # rows of different lengths
            raise SchemaError(f"{where} gives {name} that is no array: {error}") from error
        if array.shape != expected:
            raise SchemaError(f"{where} gives {name} of shape {array.shape}: expected {expected}")
        if not np.can_cast(array.dtype, variable.dtype, "same_kind"):
            raise SchemaError(
                f"{where} gives {name} of type {array.dtype}: expected {variable.dtype}"
            )
        with np.errstate(over="ignore"):
            stored[name] = array.astype(variable.dtype)
        _check_finite(name, stored[name], samples)
    return stored


def _check_finite(name: str, values: np.ndarray, samples: range) -> None:
    finite = np.isfinite(values).reshape(len(samples), -1).all(axis=1)
    if not finite.all():
        reason = f"{name} is not finite, or exceeds {values.dtype}"
        raise SampleError(samples[int(np.argmin(finite))], reason)


def _numbers(samples: range) -> str:
    first, last = samples[0], samples[-1]
    return f"sample {first}" if first == last else f"samples {first} to {last}"


def provenance(software: Mapping[str, str] = MappingProxyType({})) -> Json:
    """Versions of the software that makes a store.

    The time, commit, processor and scheduler are not included, so that a regenerated store has the
    same bytes. For each run, they are written to `log/`.
    """
    return {
        "pdegen": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        **versions("numpy", "zarr"),
        **software,
    }


# Jobs that fill a store with the samples of a recipe or of another source.


class Job(ABC):
    """A job that fills a store with samples. Jobs are pickled and sent to worker processes."""

    device: str | None = None  # PyTorch device of the solver; None for NumPy

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of everything that the numbers depend on."""

    @property
    def identity(self) -> str:
        """Identity of the job."""
        return self.fingerprint

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the job cannot run on this machine."""

    def probe(self, failures: bool) -> None:
        """Test the code of a user's equation before anything is written. Raises an error if the
        code fails.

        Args:
            failures: Whether samples that cannot be computed are allowed.
        """
        return

    @abstractmethod
    def layout(self) -> Layout:
        """Variables, coordinates and attributes of the store. The attributes include the
        fingerprint."""

    @abstractmethod
    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        """Compute the values of samples. Returns a dictionary that maps the names of variables to
        arrays. The store must be laid out already. Raises SampleError if a sample cannot be
        computed or is not finite."""

    def skipped(self, samples: range) -> Mapping[int, str]:
        """The reasons why samples have no values. Keys are numbers of samples. `compute` returns
        NaN for these samples."""
        return {}

    def measurements(self, workers: Pool) -> Json:
        """Attributes that workers measure on the samples of the complete store, and that are then
        added to the store."""
        return {}

    def matches(self, store: Store) -> bool:
        """Whether the store belongs to this job. If so, the job can be resumed there."""
        return store.metadata.job == self.identity

    @abstractmethod
    def difference(self, store: Store) -> str:
        """The error message about a store that belongs to another job."""


@dataclass(frozen=True)
class RecipeJob(Job):
    """The job of a recipe, which is solved on a PyTorch device or with NumPy."""

    recipe: Recipe
    device: str | None

    @classmethod
    def of(cls, store: Store) -> RecipeJob:
        """The job that generated a store. Raises SchemaError if the store was not generated from a
        recipe, or if this version cannot read its recipe."""
        if store.command != "generate":
            raise SchemaError(
                f"{store.url} was made from other data, not from a recipe: its samples are "
                "restored by the command that made it, with --resume"
            )
        where, file = f"the recipe of {store.url}", store.metadata.equation_file
        try:
            recipe = Recipe.parse(recorded := store.raw_attributes["recipe"], where)
        except SchemaError as error:
            hint = f"; the store was made with --plugin {file}" if file else ""
            raise SchemaError(f"{error}{hint}") from None
        if fingerprint_of(recorded, recipe.problem) != store.metadata.fingerprint:
            raise SchemaError(f"{store.url}: {_other_recipe(recipe, store)}")
        return cls(recipe, store.metadata.provenance.device or None)

    @property
    def fingerprint(self) -> str:
        return self.recipe.fingerprint

    def check(self) -> None:
        self.recipe.problem.check_solver(self.device)

    def probe(self, failures: bool) -> None:
        probe(self.recipe, self.device, failures)

    def layout(self) -> Layout:
        return layout(self.recipe, self.device, self.recipe.problem.software(self.device))

    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        return compute(self.recipe, samples, self.device)

    def measurements(self, workers: Pool) -> Json:
        recipe = self.recipe
        return {**label_error(recipe, workers), **sampled_inputs(recipe, workers)}

    @property
    def identity(self) -> str:
        return job_of(self.fingerprint, self.device)

    def difference(self, store: Store) -> str:
        if store.metadata.fingerprint == self.fingerprint:
            device = store.metadata.provenance.device or "cpu"
            return f"{store.url} was begun with --device {device}: resume it with that"
        recipe, stored = self.recipe.model_dump(mode="json"), store.raw_attributes["recipe"]
        same = {key for key in recipe if recipe[key] == stored.get(key)}
        if recipe.keys() - same - {"name", "summary", "remark"} == {"splits"}:
            return (
                f"{store.url} was laid out with other splits "
                f"({json.dumps(stored.get('splits'))}, not {json.dumps(recipe['splits'])}): "
                "--overwrite starts again"
            )
        return (
            f"{store.url} was made from another recipe (fingerprint "
            f"{store.metadata.fingerprint[:12]}, not {self.fingerprint[:12]})"
        )


def _other_recipe(recipe: Recipe, store: Store) -> str:
    """The reason why a recipe that was read from a store has another fingerprint than the store."""
    problem, recorded = recipe.problem, store.raw_attributes["recipe"]
    if fault := other_equation(problem, store):
        return fault
    for number in range(1, problem.algorithm):
        if fingerprint_of(recorded, problem, number) == store.metadata.fingerprint:
            return (
                f"version {number} of the equation {problem.equation_name} made it, this is "
                f"version {problem.algorithm}, with other values: generate it again"
            )
    return "the recipe does not have the store's fingerprint"


def other_equation(problem: Problem, store: Store) -> str | None:
    """Why an equation is not of the file that a store was made with; None if it is."""
    stored, loaded = store.metadata.equation_file, plugin_of(type(problem))
    word = problem.equation_name
    if stored is not None and (loaded is None or loaded.digest != stored.sha256):
        version = "" if loaded is None else f", {loaded.path} is another version of it"
        return f"equation {word} comes from the file {stored}{version}: name that file by --plugin"
    if stored is None and loaded is not None:
        return (
            f"its equation {word} was registered by an import, not by the file {loaded.path}: "
            "verify it in a program with that import, or generate it again with --plugin or "
            "pdegen.load_plugin"
        )
    return None


_NOTES = 1000  # largest number of notes in a log
_CHECKS = 1024  # largest number of tasks that check shards
_ATTEMPTS = 3  # at a shard whose solver process ends unexpectedly


@dataclass(frozen=True)
class Progress:
    """The progress of a job."""

    # shards that this run has done, and all that it has to do
    done: int
    total: int
    seconds: float  # since the start
    # retried errors and skipped samples of the last shard; before the first the dashboard, if any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """The options of a run. They do not change the written values."""

    # workers and scheduler, as in `pdegen.generation.pools.pool`
    workers: int | None = None
    scheduler: str = "threads"
    # continue an unfinished store of the same job, and restore damaged objects
    resume: bool = False
    overwrite: bool = False  # replace an existing store
    take_over: bool = False  # take the lock from another job, which must have ended
    # leave out samples that cannot be computed, instead of stopping at the first
    skip_failed: bool = False
    progress: Callable[[Progress], None] = lambda progress: None  # called after each shard


def generate(recipe: Recipe, url: str, device: str | None = None, **options: Any) -> Store:
    """Write the dataset of a recipe to a store and seal it.

    Args:
        recipe: The recipe.
        url: Path or URL of the store.
        device: PyTorch device, such as "cuda"; None solves with NumPy. The samples of PyTorch and
            NumPy agree up to the tolerance of the solver, not bit for bit.
        options: The fields of `Options`.

    Raises:
        SchemaError: If the recipe is not valid.
        MissingSolverError: If the solver of the recipe is not installed.
        StoreError, OSError, SampleError, ...: See `write`.
    """
    checked = Recipe.parse(
        recipe.model_dump(), f"recipe {recipe.name}"
    )  # pydantic does not check copies
    return write(RecipeJob(checked, device), url, Options(**options))


def write(job: Job, url: str, options: Options = Options()) -> Store:
    """Write the samples of a job to a store and seal it. The store is at a path, or at a URL that
    fsspec supports.

    The store has the same bytes for any scheduler and number of workers, and after any
    interruption. Only the files in `log/` differ, which describe each run.

    Raises:
        StoreError: If `url` is occupied, or the store to resume belongs to another job.
        LockedError: If another job writes to the store.
        UrlError: If the URL cannot be used, or its server cannot prevent a second process from
            writing.
        EngineError: If the scheduler cannot be used.
        WorkerLostError: If every worker that tried to compute a shard has died.
        OSError: If the location cannot be written or has no room.
        SampleError: If a sample cannot be computed. The finished shards stay, and a run with the
            option `resume` computes the others.
    """
    check(options.scheduler)
    objects = Objects(url)
    if objects.is_local and (around := enclosing_store(objects.root)):
        raise StoreError(f"{around} is a store and takes no other files: choose another --out")
    before = _existing(job, objects, options)
    job.check()
    plan = job.layout()
    job.probe(options.skip_failed)
    laid_out, resumes = layout_objects(plan, url), before is not None and options.resume
    if resumes:  # a sealed store has no unexpected files
        check_no_unexpected(objects, Store(url, root=laid_out[ROOT]))
    elif objects.is_local:
        check_room(objects.root, plan.bytes, ": the store may take")
    objects.check_conditional()
    with (
        pool(options.scheduler, options.workers) as workers,  # first, because it may fail
        lock.locked(objects, job.identity, options.take_over) as mine,
        logged(objects, options.scheduler, options.workers, job.device) as log,
    ):
        store = _existing(job, objects, options)
        if (store is None) != (before is None):
            raise StoreError(f"{url} was changed by another job meanwhile: start again")
        begun = store if resumes and store and damage_of(store) is None else None
        todo, suspects = None, []
        if begun is not None and begun.sealed and not seal_faults(begun):
            todo = _unsound(begun, mine.job, workers)
            if not todo and not summary_faults(begun, seal_in(objects)):
                objects.remove_partial()  # of a process that was killed after the seal
                return begun
        if begun is not None:
            suspects = altered(begun)
        still_mine = partial(lock.check, objects, mine)  # called around each write
        lay_out = resumed if resumes else laid_out_anew
        store = lay_out(objects, laid_out, still_mine)
        if todo is None:
            todo = _unsound(store, mine.job, workers)
        todo = sorted({*todo, *suspects})
        _compute(job, store, todo, mine, workers, options, log)
        measured = job.measurements(workers)
        if changed := _unsound(store, mine.job, workers, todo):
            raise StoreError(
                f"{url}: shard {changed[0]} was changed by another job meanwhile: --resume "
                "computes it again"
            )
        if differing(objects, laid_out):
            raise StoreError(f"{url}: its metadata were changed by another job: use --resume")
        return seal(store, measured, still_mine)


def _compute(
    job: Job, store: Store, todo: list[int], mine: lock.Holder, workers: Pool, options: Options,
    log: Json,
) -> None:  # fmt: skip
    start = time.monotonic()
    if workers.note:
        options.progress(Progress(0, len(todo), 0.0, (workers.note,)))
    task = partial(_computed, job, store.url, options.skip_failed, mine)
    shards = workers.overlapped(task, partial(_written, mine), todo)
    with closing(shards) as results:  # ends all tasks before the lock is released
        for done, (shard, notes) in enumerate(results, 1):
            log["shards"] = done
            room = max(0, _NOTES - len(log["notes"]))
            log["notes"] += [f"shard {shard}: {note}" for note in notes[:room]]
            options.progress(Progress(done, len(todo), time.monotonic() - start, notes))


@dataclass(frozen=True)
class _Shard:
    """A shard that a worker has computed and encoded."""

    store: Store
    objects: dict[str, bytes]
    record: Record
    notes: tuple[str, ...]  # messages about failed attempts


def _computed(job: Job, url: str, skip_failed: bool, mine: lock.Holder, shard: int) -> _Shard:
    """Compute and encode one shard, if this job still holds the lock."""
    store = Store(url)
    if store.metadata.job != mine.job:  # records name the job of the store
        raise StoreError(f"{url}: its metadata were changed by another job: use --resume")
    lock.check(store.objects, mine)
    samples = store.shard_range(shard)
    with retried_errors() as notes:
        for attempt in range(1, _ATTEMPTS + 1):
            skipped = dict(job.skipped(samples))
            try:
                if skip_failed:
                    values = values_of(job, store, samples, skipped)
                else:
                    values = job.compute(store, samples)
                break
            except WorkerError as error:
                if attempt == _ATTEMPTS:
                    raise
                notes.append(f"attempt {attempt} failed: {error}")
    return _Shard(store, *encoded(store, shard, values, skipped), tuple(notes))


def _written(mine: lock.Holder, shard: _Shard) -> tuple[str, ...]:
    """Write a shard, if this job still holds the lock."""
    with retried_errors() as notes:
        still_mine = partial(lock.check, shard.store.objects, mine)
        write_encoded(shard.store, shard.objects, shard.record, still_mine)
    skipped = shard.record.skipped.items()
    return (
        *shard.notes,
        *notes,
        *(f"sample {sample} is skipped: {why}" for sample, why in skipped),
    )


def values_of(
    job: Job, store: Store, samples: range, skipped: dict[int, str]
) -> dict[str, np.ndarray]:
    """Compute the values of samples, without those that cannot be computed. Returns a dictionary
    that maps the names of variables to arrays.

    Args:
        job: The job that computes them.
        store: The store, whose metadata and coordinates are written.
        samples: Numbers of the samples.
        skipped: A dictionary from numbers of samples to reasons. If a sample cannot be computed,
            its values are NaN and the reason is added here.
    """
    pieces = list(_pieces(job, store, samples, skipped))
    values = {}
    for name in store.variables:
        array = store.arrays[name]
        empty = np.nan if np.issubdtype(array.dtype, np.inexact) else -1  # the fill values
        values[name] = np.full((len(samples), *array.shape[1:]), empty, array.dtype)
        for piece, computed in pieces:
            values[name][piece.start - samples.start : piece.stop - samples.start] = computed[name]
    return values


def _pieces(
    job: Job, store: Store, samples: range, skipped: dict[int, str]
) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
    """Yield each range of samples that can be computed, with the values of these samples."""
    ranges = [samples]
    while ranges:
        piece = ranges.pop()
        if not piece:
            continue
        try:
            yield piece, job.compute(store, piece)
        except SampleError as failure:
            skipped[failure.sample] = failure.reason
            ranges += [range(failure.sample + 1, piece.stop), range(piece.start, failure.sample)]


def _unsound(
    store: Store, job: str, workers: Pool, shards: Sequence[int] | None = None
) -> list[int]:
    """Numbers of the shards that have no valid record of the job, or whose data differ from the
    record. Workers read and check the shards."""
    shards = range(store.shards) if shards is None else shards
    recorded = set(store.recorded())
    written = [shard for shard in shards if shard in recorded]
    size = -(-len(written) // _CHECKS) or 1
    groups = [tuple(written[k : k + size]) for k in range(0, len(written), size)]
    task = partial(_sound, store.url, job)
    sound = {shard for _, part in workers.run(task, groups) for shard in part}
    return [shard for shard in shards if shard not in sound]


def _sound(url: str, job: str, shards: Sequence[int]) -> list[int]:
    """The shards with a valid record of the job whose data match the record."""
    store = Store(url)
    if store.metadata.job != job:
        return []
    return [shard for shard in shards if not inspect(store, shard)[2]]


def _existing(job: Job, objects: Objects, options: Options) -> Store | None:
    """The existing store at the URL, which is to be resumed or replaced."""
    store = store_at(objects, job.identity if options.resume else None)
    if store is None:
        return None
    damage = damage_of(store)
    if options.overwrite:
        if objects.is_local and os.path.islink(objects.root):
            target = os.path.realpath(objects.root)
            raise StoreError(
                f"{objects.url} is a symbolic link to {target}, whose store --overwrite would "
                "replace: give the path of the store"
            )
        check_no_unexpected(objects, None if damage else store)
    elif not options.resume:
        finished = damage is None and store.sealed
        hint = " and is finished: use it," if finished else ": use --resume to finish it"
        raise StoreError(f"{objects.url} exists{hint} or --overwrite to replace it")
    elif (damage or not job.matches(store)) and not holds_only_job(objects, job.identity):
        raise damage or StoreError(job.difference(store))
    return store
