"""The keys of a recipe, an experiment or a benchmark that `--set` can override, and the keys of a
benchmark file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pdegen.recipe import Recipe, load_recipe, recipe_names
from pdegen.schema import SchemaError, brief, near, read_toml
from pipelines.config.keys import Key, keys_of
from pipelines.config.shipped import names

if TYPE_CHECKING:  # these import PyTorch, which recipes do not need
    from pipelines.config.benchmark import Benchmark
    from pipelines.config.entries import Profile
    from pipelines.config.experiment import Experiment

FileKind = Literal["recipe", "experiment", "benchmark", "benchmark file"]
COMMANDS: dict[FileKind, str] = {
    "recipe": "generate",
    "experiment": "run",
    "benchmark": "benchmark",
}


@dataclass(frozen=True)
class Overridable:
    """A recipe, an experiment or a benchmark, with its keys."""

    what: FileKind
    name: str
    keys: tuple[Key, ...]

    @property
    def command(self) -> str:
        """The command or the file that accepts these keys."""
        if self.what == "benchmark file":
            return f'a file of your own with extends = "{self.name}"'
        return f"pdegen {COMMANDS[self.what]} {self.name} --set KEY=VALUE"

    def as_dict(self) -> dict[str, Any]:
        keys = [key.as_dict() for key in self.keys]
        return {"what": self.what, "name": self.name, "command": self.command, "keys": keys}


def overridable(name: str) -> list[Overridable]:
    """The recipes, experiments and benchmarks with this name, each with its keys.

    `name` may also be the path of a TOML file. The result is a list because a recipe and an
    experiment may have the same name. A benchmark also has two kinds of keys: those of its
    experiments, for `--set`, and those of its file. Raises SchemaError for an unknown name.
    """
    files = [Overridable(kind, name, tuple(_keys(kind, name))) for kind in _kinds(name)]
    return [file for file in files if file.keys]  # `--set` has no keys of a profile


def _kinds(name: str) -> list[FileKind]:
    if name.endswith(".toml"):
        content = read_toml(Path(name))
        if "problem" in content:
            return ["recipe"]
        benchmark = {"datasets", "operators", "extends"} & content.keys()
        return ["benchmark", "benchmark file"] if benchmark else ["experiment"]
    known: dict[FileKind, list[str]] = {
        "recipe": recipe_names(), "experiment": names("experiment"), "benchmark": names("benchmark")
    }  # fmt: skip
    kinds: list[FileKind] = [kind for kind, listed in known.items() if name in listed]
    if "benchmark" in kinds:
        kinds.append("benchmark file")
    if not kinds:
        every = sorted({listed for names_ in known.values() for listed in names_})
        hint = near(name, every, lists=", ".join(f"pdegen {kind}s" for kind in known))
        raise SchemaError(f"unknown recipe, experiment or benchmark {brief(name)}: {hint}")
    return kinds


def _keys(kind: FileKind, name: str) -> Iterator[Key]:
    if kind == "recipe":
        return of_recipe(load_recipe(name))
    if kind == "experiment":
        from pipelines.config.experiment import load_experiment

        return of_experiment(load_experiment(name))
    from pipelines.config.benchmark import Benchmark, load_benchmark

    benchmark = load_benchmark(name)
    if kind == "benchmark file":
        return of_benchmark_file(benchmark)
    return of_benchmark(benchmark) if isinstance(benchmark, Benchmark) else iter(())


def of_recipe(recipe: Recipe) -> Iterator[Key]:
    """Keys of a recipe with their values, without the keys of other equations."""
    for key in _single(keys_of(Recipe, recipe.model_dump(mode="json"))):
        if key.name == "problem.equation":
            yield replace(key, choices={key.value: key.choices[key.value]})
        elif not key.when.startswith("problem.equation = "):
            yield key


def of_experiment(experiment: Experiment) -> Iterator[Key]:
    """Keys of an experiment with their values. Keys of its recipe begin with `data.overrides`."""
    from pipelines.config.experiment import Experiment

    for key in _single(keys_of(Experiment, experiment.model_dump())):
        if experiment.noise is None and key.name.startswith("noise."):
            continue  # there is no noise whose keys have values
        yield key
        if key.name == "data.overrides":
            yield from _below(key.name, experiment.data.load_recipe())
        stream = experiment.data.stream
        if key.name == "data.stream.overrides" and stream is not None:
            yield from _below(key.name, stream.load_recipe())


def of_benchmark(benchmark: Benchmark) -> Iterator[Key]:
    """Keys that the experiments of all datasets have in common.

    If the values of a key differ between datasets, its value is a table with one per dataset.
    """
    tables = {
        dataset: {(key.name, key.when): key for key in of_experiment(declared.load())}
        for dataset, declared in benchmark.datasets.items()
    }
    for identity, key in next(iter(tables.values())).items():
        fixed = key.name.startswith(("name", "summary", "model.", "data.overrides."))
        if fixed or key.name == "training.seed":
            continue
        if all(identity in table for table in tables.values()):
            values = {dataset: table[identity].value for dataset, table in tables.items()}
            same = all(value == key.value for value in values.values())
            yield key if same else replace(key, value=values)


def of_benchmark_file(benchmark: Benchmark | Profile) -> Iterator[Key]:
    """Keys of the file of a benchmark or profile.

    NAME stands for the label of an operator or dataset. Of an operator's model only the name is
    included; its further keys are those of the table `model` of an experiment.
    """
    labelled = {"datasets", "operators"}
    content = benchmark.model_dump(mode="json", exclude=labelled)
    for key in keys_of(type(benchmark), content):
        _, model, last = key.name.partition(".model")
        if not model or last in (".name", "s.NAME.name"):
            yield key


def _single(keys: list[Key]) -> Iterator[Key]:
    """Keys that are not inside a list. A list can only be set as a whole."""
    return (key for key in keys if "[]" not in key.name)


def _below(prefix: str, recipe: Recipe) -> Iterator[Key]:
    """Keys of a recipe, each preceded by a prefix such as "data.overrides"."""
    for key in of_recipe(recipe):
        when = f"{prefix}.{key.when}" if key.when else ""
        yield replace(key, name=f"{prefix}.{key.name}", when=when)
