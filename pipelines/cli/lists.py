"""Commands that list recipes, experiments, operators, trained models and other things by name."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdegen.schema import SchemaError
from pipelines.cli import common
from pipelines.cli.common import AsJson, Plugin, command, note, print_json, say

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    from pipelines.config.keys import Key
    from pipelines.config.shipped import Kind


@command("recipes", "pdegen recipes", "pdegen recipes --json")
def recipes_command(as_json: AsJson = False) -> None:
    """List the recipes of datasets with the sizes of their stores."""
    from pdegen.recipe import load_recipe
    from pdegen.shipped import recipe_names

    rows = list[dict[str, Any]]()
    for name in recipe_names():
        recipe = load_recipe(name)
        variables = recipe.problem.variables()
        rows.append(
            {
                "name": name,
                "equation": recipe.problem.equation_name,
                "samples": recipe.samples,
                "grid": list(variables[0].shape),
                "bytes": recipe.samples * sum(variable.bytes for variable in variables),
                "summary": recipe.headline,
            }
        )
    if as_json:
        print_json(rows)
        return
    say("Recipes (pdegen generate NAME)")
    for row in rows:
        grid = "x".join(map(str, row["grid"]))
        size = f"{row['samples']:6} x {grid:<8} {row['bytes'] / 1e6:7.1f} MB"
        say(f"  {row['name']:24} {size}  {row['summary']}")


@command("experiments", "pdegen experiments", "pdegen experiments --json")
def experiments_command(as_json: AsJson = False, plugin: Plugin = None) -> None:
    """List the experiments: a dataset, an operator and its training."""
    _declarations("experiment", "run", as_json)


@command("benchmarks", "pdegen benchmarks", "pdegen benchmarks --json")
def benchmarks_command(as_json: AsJson = False) -> None:
    """List the benchmarks: tables of operators on datasets."""
    _declarations("benchmark", "benchmark", as_json)


def _declarations(kind: "Kind", word: str, as_json: bool) -> None:
    from pipelines.config.shipped import file_of, names, summary

    rows = [{"name": name, "summary": summary(file_of(kind, name))} for name in names(kind)]
    if as_json:
        print_json(rows)
        return
    say(f"{kind.capitalize()}s (pdegen {word} NAME)")
    for row in rows:
        say(f"  {row['name']:28} {row['summary']}")


@command("operators", "pdegen operators", "pdegen operators --json")
def operators_command(as_json: AsJson = False, plugin: Plugin = None) -> None:
    """List the operators, with the domains that they take and their published presets."""
    from operators.plugins import EntryPointError
    from operators.registry import OPERATORS
    from pipelines.config.keys import opening

    rows = list[dict[str, Any]]()
    for name in OPERATORS.known:
        try:
            kind = OPERATORS[name].operator
        except EntryPointError as error:  # of one package; the others are listed
            note(error)
            continue
        rows.append(
            {
                "name": name,
                "dims": list(kind.dims),
                "domains": sorted(kind.domains),
                "points_by_sample": kind.points_by_sample,
                "presets": list(kind.presets),
                "summary": opening(kind),
            }
        )
    if as_json:
        print_json(rows)
        return
    say("Operators (model.name of an experiment, or pdegen train --model NAME --data STORE)")
    for row in rows:
        dims = ", ".join(f"{dim}-D" for dim in row["dims"])
        where = "of each sample" if row["points_by_sample"] else "shared by the samples"
        say(f"  {row['name']:24} {row['summary']}")
        say(f"      {dims}; {', '.join(row['domains'])}; points {where}")
        if row["presets"]:
            say(f"      presets: {', '.join(row['presets'])}")


@command("models", "pdegen models", "pdegen models --json")
def models_command(as_json: AsJson = False) -> None:
    """List the trained models that ship with the package, with their errors."""
    from operators.trained import trained_models
    from pipelines.runs.model_folder import shipped_model

    rows = [{"name": name, **shipped_model(name)} for name in trained_models()]
    if as_json:
        print_json(rows)
        return
    say("Trained models (pdegen evaluate NAME --data STORE, or operators.load_model)")
    for row in rows:
        score, size = row["scores"][0], f"{row['parameters']:,} parameters"
        error = f"mean relative L2 error {score['mean']:.3g} on {score['resolution']} points"
        say(f"  {row['name']:24} {row['summary']}")
        say(f"      {size}; {error}")


@command("noise-kinds", "pdegen noise-kinds", "pdegen noise-kinds --json")
def noise_kinds_command(as_json: AsJson = False) -> None:
    """List the kinds of noise for stores, and for inputs or targets of experiments."""
    from pdegen.sampling.noise import KEYS_OF_KIND, KINDS
    from pipelines.config.keys import opening

    rows = [
        {
            "kind": kind,
            "keys": KEYS_OF_KIND.get(kind, {}),
            "summary": opening(model),
            "formula": model.latex,
            "unit": model.unit,
            "likelihood": model.likelihood,
        }
        for kind, model in KINDS.items()
    ]
    if as_json:
        print_json(rows)
        return
    say("Kinds of noise (pdegen noise STORE --kind KIND, or noise.kind of an experiment)")
    for row in rows:
        further = "".join(f"  (--set {key}={value})" for key, value in row["keys"].items())
        say(f"  {row['kind']:16} {row['summary']}{further}")
        say(f"  {'':16} level in {row['unit']}; likelihood: {row['likelihood']}")


@command(
    "keys",
    "pdegen keys burgers-quick",
    "pdegen keys darcy-421 --all",
    "pdegen keys burgers-quick --of experiment",
    "pdegen keys my_experiment.toml --json",
)
def keys_command(
    name: Annotated[
        str,
        typer.Argument(
            help="Recipe, experiment or benchmark, by name or as a TOML file.",
            autocompletion=common.declarations,
        ),
    ],
    every: Annotated[
        bool, typer.Option("--all", help="Also show the keys of kinds that this file does not use.")
    ] = False,
    of: Annotated[
        str | None,
        typer.Option(
            help="List only the keys of this kind of file, where several have the name: recipe, "
            "experiment or benchmark."
        ),
    ] = None,
    as_json: AsJson = False,
    plugin: Plugin = None,
) -> None:
    """List the keys that --set takes: values, defaults, units and meanings."""
    from pipelines.config.keys import overridable

    files = overridable(name)
    if of is not None:
        kinds = [file.what for file in files]
        if of not in kinds:
            raise SchemaError(f"{name} is of no {of}: --of takes {' or '.join(kinds)}")
        files = [file for file in files if file.what == of]
    if as_json:
        print_json([file.as_dict() for file in files])
        return
    printed = set[tuple[str, str, str]]()  # keys of a recipe that are printed already
    for number, file in enumerate(files):
        if number:
            say("")
        say(f"{file.what} {file.name}: {file.command}")
        keys = [key for key in file.keys if _below_overrides(key) not in printed]
        for key in keys:
            if every or not key.when:
                for line in _lines(key):
                    say(line)
                if key.name == _OVERRIDES and len(keys) < len(file.keys):
                    say(f"      takes the keys of the recipe above, as {_OVERRIDES}.KEY")
        if not every and (hidden := sum(bool(key.when) for key in keys)):
            say(f"--all also shows {hidden} keys of other kinds")
        if file.what == "recipe":
            printed = {(key.name, key.when, _written(key.value)) for key in file.keys}


_OVERRIDES = "data.overrides"


def _below_overrides(key: "Key") -> tuple[str, str, str]:
    """Name, condition and value that a key `data.overrides.NAME` has in the recipe itself."""
    name, when = (text.removeprefix(f"{_OVERRIDES}.") for text in (key.name, key.when))
    return (name, when, _written(key.value)) if name != key.name else ("", "", "")


def _lines(key: "Key") -> Iterator[str]:
    """The printed lines of a key: value and unit, allowed values, meaning and choices."""
    value = "not set" if key.value is None else f"= {_written(key.value)}"
    yield f"  {key.name} {value}{f'  [{key.unit}]' if key.unit else ''}"
    default = "required" if key.required else f"default {_written(key.default)}"
    facts = [key.type, key.allowed, "" if key.default is None and not key.required else default]
    yield f"      {', '.join(filter(None, facts))}"
    if key.meaning:
        yield f"      {key.meaning}"
    if key.when:
        yield f"      with {key.when}"
    if any(key.choices.values()):
        for word, meaning in key.choices.items():
            yield f"        {word:20} {meaning}"
    elif key.choices:
        yield f"      one of: {', '.join(key.choices)}"


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
