"""What `--set` takes of a recipe, an experiment or a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pdegen.recipe import Recipe, load_recipe, recipe_names
from pdegen.schema import SchemaError, brief, near, read_toml
from pipelines.config.keys import Key, keys_of
from pipelines.config.shipped import names

if TYPE_CHECKING:  # of PyTorch, which recipes do not need
    from pipelines.config.benchmark import Benchmark
    from pipelines.config.experiment import Experiment

What = Literal["recipe", "experiment", "benchmark"]
COMMANDS: dict[What, str] = {"recipe": "generate", "experiment": "run", "benchmark": "benchmark"}


@dataclass(frozen=True)
class Settable:
    """What a declaration takes."""

    what: What
    name: str
    keys: tuple[Key, ...]

    @property
    def command(self) -> str:
        return f"pdegen {COMMANDS[self.what]} {self.name} --set KEY=VALUE"

    def said(self) -> dict[str, Any]:
        keys = [key.said() for key in self.keys]
        return {"what": self.what, "name": self.name, "command": self.command, "keys": keys}


def settable(name: str) -> list[Settable]:
    """What `--set` takes of everything with a name, recipes and experiments among them, or of a
    TOML file."""
    return [Settable(what, name, tuple(_keys(what, name))) for what in _sorts(name)]


def _sorts(name: str) -> list[What]:
    if name.endswith(".toml"):
        content = read_toml(Path(name))
        if "problem" in content:
            return ["recipe"]
        return ["benchmark" if {"datasets", "operators"} & content.keys() else "experiment"]
    known: dict[What, list[str]] = {
        "recipe": recipe_names(), "experiment": names("experiment"), "benchmark": names("benchmark")
    }  # fmt: skip
    found: list[What] = [what for what, ones in known.items() if name in ones]
    if not found:
        every = sorted({one for ones in known.values() for one in ones})
        hint = near(name, every, lists=", ".join(f"pdegen {what}s" for what in known))
        raise SchemaError(f"unknown recipe, experiment or benchmark {brief(name)}: {hint}")
    return found


def _keys(what: What, name: str) -> Iterator[Key]:
    if what == "recipe":
        return of_recipe(load_recipe(name))
    if what == "experiment":
        from pipelines.config.experiment import load_experiment

        return of_experiment(load_experiment(name))
    from pipelines.config.benchmark import Benchmark, load_benchmark

    benchmark = load_benchmark(name)
    if not isinstance(benchmark, Benchmark):
        raise SchemaError(f"{name} is a profile, which takes no --set")
    return of_benchmark(benchmark)


def of_recipe(recipe: Recipe) -> Iterator[Key]:
    """Keys of a recipe, with its values; those of other equations are of other recipes."""
    for key in _single(keys_of(Recipe, recipe.model_dump(mode="json"))):
        if key.name == "problem.equation":
            yield replace(key, choices={key.value: key.choices[key.value]})
        elif not key.when.startswith("problem.equation = "):
            yield key


def of_experiment(experiment: Experiment) -> Iterator[Key]:
    """Keys of an experiment, with its values; below `data.overrides` those of its recipe."""
    from pipelines.config.experiment import Experiment

    for key in _single(keys_of(Experiment, experiment.model_dump(mode="json"))):
        if experiment.noise is None and key.name.startswith("noise."):
            continue  # only a whole table adds noise
        yield key
        if key.name == "data.overrides":
            yield from _below(key.name, experiment.data.load_recipe())
        stream = experiment.data.stream
        if key.name == "data.stream.overrides" and stream is not None:
            yield from _below(key.name, stream.load_recipe())


def of_benchmark(benchmark: Benchmark) -> Iterator[Key]:
    """Keys of the experiments of all datasets; a value that differs is a table by dataset."""
    tables = {
        dataset: {(key.name, key.when): key for key in of_experiment(declared.load())}
        for dataset, declared in benchmark.datasets.items()
    }
    for place, key in next(iter(tables.values())).items():
        own = key.name.startswith(("name", "summary", "model.", "data.overrides."))
        if own or key.name == "training.seed":
            continue
        if all(place in table for table in tables.values()):
            values = {dataset: table[place].value for dataset, table in tables.items()}
            same = all(value == key.value for value in values.values())
            yield key if same else replace(key, value=values)


def _single(keys: list[Key]) -> Iterator[Key]:
    """Without keys inside lists, which are set as a whole."""
    return (key for key in keys if "[]" not in key.name)


def _below(prefix: str, recipe: Recipe) -> Iterator[Key]:
    for key in of_recipe(recipe):
        when = f"{prefix}.{key.when}" if key.when else ""
        yield replace(key, name=f"{prefix}.{key.name}", when=when)
