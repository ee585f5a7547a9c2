"""The keys of recipes, experiments and benchmarks: type, default, unit and meaning.

Types and defaults are those of the pydantic models. Meanings and units come from the section Args
of their docstrings. An entry states what a key means and ends with its unit in square brackets, [1]
if it is dimensionless. For the arguments of operators, the docstrings of the operators are used.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator
from pydantic.fields import FieldInfo

from pdegen.recipe import Recipe, load_recipe, recipe_names
from pdegen.schema import (
    SchemaError,
    Strict,
    brief,
    may_be,
    models_in,
    near,
    read_toml,
    takes_number,
)
from pipelines.config.shipped import names

if TYPE_CHECKING:
    from pipelines.config.benchmark import Benchmark, Profile
    from pipelines.config.experiment import Experiment


DIMENSIONLESS = "dimensionless"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ENTRY = re.compile(r" {4}(\w+(?:, \w+)*): ?(.*)")
_UNIT = re.compile(r"(.*?)\s*\[([^\[\]]+)\]", re.S)
_NUMBERS = {bool: "true or false", int: "whole number", float: "number", str: "text"}
_BOUNDS = {"gt": ("above", max), "ge": ("at least", max), "lt": ("below", min),
           "le": ("at most", min), "multiple_of": ("a multiple of", max)}  # fmt: skip
_KIND = "Kind of the table; each kind has its own further keys."
_PRESET = "Settings of a published configuration; other keys of the table override them."
_RESETS = (
    " Overriding it drops all other keys of the table, except those that are overridden with it."
)


@dataclass(frozen=True)
class Key:
    """A key of a recipe, an experiment or a benchmark.

    Args:
        allowed: The allowed values in words; empty if all values of the type are allowed.
        choices: The allowed words with their meanings; empty for keys of other types.
        required: Whether the file must set the key.
        default: The value if the key is not set; None if there is no default.
        value: The value in the file, or the default.
        unit: The unit of a number, or "dimensionless"; empty for counts and words.
        when: The value of another key that this key requires; empty if the key always applies.
    """

    name: str
    type: str
    allowed: str
    choices: Mapping[str, str]
    required: bool
    default: Any
    value: Any
    unit: str
    meaning: str
    when: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(replace(self, choices={})), "choices": dict(self.choices)}


def keys_of(model: type[Strict], content: Mapping[str, Any] | None = None) -> list[Key]:
    """All keys of a recipe, an experiment or a benchmark, given by its pydantic model.

    If a table has several kinds, the keys of every kind are included.

    >>> from pdegen.equations.burgers.problem import Burgers
    >>> viscosity = next(key for key in keys_of(Burgers) if key.name == "viscosity")
    >>> viscosity.type, viscosity.allowed, viscosity.unit, viscosity.meaning
    ('number or law', 'above 0, at most 1e+20', 'length²/time', 'The viscosity ν.')
    """
    return list(_of_table([model], "", content, _NOTHING, ""))


def opening(documented: type) -> str:
    """First paragraph of a class's docstring, as one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


@cache
def meanings(model: type) -> Mapping[str, tuple[str, str | None]]:
    """Meaning and unit of each key, from the docstrings of a class and its bases.

    The unit is None if the docstring does not state it.
    """
    explained = dict[str, tuple[str, str | None]]()
    for base in reversed(getattr(model, "declares", model).__mro__):
        for keys, text in _entries(inspect.cleandoc(base.__doc__ or "")):
            stated = _UNIT.fullmatch(text)
            meaning, unit = stated.groups() if stated else (text, None)
            explained |= dict.fromkeys(keys, (meaning, unit))
    return explained


def _entries(doc: str) -> Iterator[tuple[list[str], str]]:
    """Names and text of each entry in the Args section of a docstring."""
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n(?= {4}))*)", doc, re.M)
    entries = list[tuple[list[str], list[str]]]()
    for line in section.group(1).splitlines() if section else ():
        if entry := _ENTRY.fullmatch(line):
            entries.append((entry.group(1).split(", "), [entry.group(2)]))
        elif entries:
            entries[-1][1].append(line.strip())
    yield from ((names, " ".join(" ".join(lines).split())) for names, lines in entries)


def _of_table(
    kinds: list[type[Strict]], prefix: str, content: object, defaults: Mapping[str, Any], when: str
) -> Iterator[Key]:
    """Keys of a table, given by the classes of the kinds that the table may have."""
    table = cast("Mapping[str, Any]", content) if isinstance(content, Mapping) else None
    values = _NOTHING if table is None else table
    fields = (item for kind in kinds for item in kind.model_fields.items())
    tag = next((n for n, f in fields if _word(f)), None)
    if tag is not None:
        words = {
            word: opening(kind)
            for kind in kinds
            for word in get_args(kind.model_fields[tag].annotation)
        }
        default = defaults.get(tag)
        meaning = _KIND if len(kinds) > 1 else "Kind of the table; there is only one."
        meaning += _RESETS * (tag in kinds[0].resets)
        yield Key(
            prefix + tag, "word", "", words, default is None, default, values.get(tag, default), "",
            meaning, when,
        )  # fmt: skip
    for kind in kinds:
        condition, chosen = when, values
        if len(kinds) > 1 and (table is None or not may_be(kind, table)):
            words = () if tag is None else get_args(kind.model_fields[tag].annotation)
            word = " or ".join(words) or kind.__name__
            condition = ", ".join(filter(None, [when, f"{prefix}{tag} = {word}"]))
            chosen = _NOTHING
        content = None if table is None else chosen
        yield from _of_kind(kind, tag, prefix, content, defaults, condition)


def _of_kind(
    kind: type[Strict], tag: str | None, prefix: str, content: Mapping[str, Any] | None,
    defaults: Mapping[str, Any], when: str,
) -> Iterator[Key]:  # fmt: skip
    """Keys of one kind of table, except the key that selects the kind."""
    explained, presets = meanings(kind), getattr(getattr(kind, "declares", None), "presets", {})
    if "preset" in kind.resets and presets:
        sources = {name: preset.source for name, preset in presets.items()}
        yield Key(f"{prefix}preset", "word", "", sources, False, None, None, "",
                  _PRESET + _RESETS, when)  # fmt: skip
    for name, field in kind.model_fields.items():
        if name == tag:
            continue
        default = field.get_default(call_default_factory=True)
        required = field.is_required()
        if isinstance(default, Strict):
            default = default.model_dump()
        if name in defaults and may_be(kind, defaults):
            default, required = defaults[name], False
        inner = list(models_in(field.annotation))
        if inner and takes_number(field.annotation):
            value = (content or _NOTHING).get(name, None if required else default)
            stated = explained.get(name, ("", None))
            key = _number_or_law(prefix + name, field, stated, required, default, when)
            yield replace(key, value=_plain(value))
            if not isinstance(value, Mapping):
                continue
        if inner:
            table = None if content is None else content.get(name, default)
            below = cast("Mapping[str, Any]", default) if isinstance(default, Mapping) else _NOTHING
            origins = {*map(get_origin, (field.annotation, *get_args(field.annotation)))}
            suffix = ".NAME" if dict in origins else "[]" if origins & {list, tuple} else ""
            path = f"{prefix}{name}{suffix}."
            yield from _of_table(inner, path, table, below, when)
            continue
        type_, allowed, words = _typed(field.annotation, field.metadata)
        meaning, unit = explained.get(name, ("", None))
        number = "number" in type_.replace("whole number", "")
        default = None if required else _plain(default)
        value = default if content is None else content.get(name, default)
        yield Key(
            prefix + name, type_, allowed, words, required, default, value,
            _unit(unit) if number else "", meaning, when,
        )  # fmt: skip


def _number_or_law(
    name: str, field: FieldInfo, stated: tuple[str, str | None], required: bool, default: Any,
    when: str,
) -> Key:  # fmt: skip
    """The key of a number that may differ from sample to sample."""
    numbers = [a for a in get_args(field.annotation) if not list(models_in(a))]
    typed = [_typed(number, field.metadata) for number in numbers]
    types = " or ".join(dict.fromkeys(type_ for type_, _, _ in typed))
    allowed = _joined([allowed for _, allowed, _ in typed])
    default = None if required else _plain(default)
    meaning, unit = stated
    return Key(
        name, f"{types} or law", allowed, {}, required, default, default, _unit(unit), meaning, when
    )


def _unit(stated: str | None) -> str:
    return DIMENSIONLESS if stated in (None, "1") else stated


def _plain(value: Any) -> Any:
    return [*map(_plain, value)] if isinstance(value, list | tuple) else value


def _word(field: FieldInfo) -> str | None:
    """The only word that a field allows; None if it does not allow exactly one word."""
    words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return words[0] if len(words) == 1 and isinstance(words[0], str) else None


def _typed(annotation: Any, metadata: list[Any]) -> tuple[str, str, Mapping[str, str]]:
    """Describe an annotation in words by its type, its allowed values and its choices."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _typed(arguments[0], [*arguments[1:], *metadata])
    limits = _limits(metadata)
    if origin in (Union, UnionType):
        parts = [_typed(argument, []) for argument in arguments if argument is not NoneType]
        types, allowed, choices = zip(*parts, strict=True)
        merged = {word: meaning for words in choices for word, meaning in words.items()}
        single = merged if len(parts) == 1 else {}
        allowed = [*allowed, *([] if single else [", ".join(merged)] if merged else [])]
        return " or ".join(dict.fromkeys(types)), _joined([*allowed, *limits]), single
    if origin is Literal:
        kind = _NUMBERS[type(arguments[0])] if not isinstance(arguments[0], str) else "word"
        return kind, _joined(limits), dict.fromkeys(map(str, arguments), "")
    if origin in (list, tuple) or annotation in (list, tuple):
        elements = [argument for argument in arguments if argument is not Ellipsis]
        kind, allowed, _ = _typed(elements[0], []) if elements else ("value", "", {})
        count = f"{len(elements)} " if origin is tuple and Ellipsis not in arguments else ""
        nouns = [part.partition(" of ") for part in kind.split(" or ")]
        plural = " or ".join(f"{noun}s{of}{rest}" for noun, of, rest in nouns)
        return f"list of {count}{plural}", _joined([allowed, *limits]), {}
    if origin in (dict, Mapping) or annotation is dict:
        return "table", _joined(limits), {}
    return _NUMBERS.get(annotation, "any value"), _joined(limits), {}


def _joined(limits: list[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, limits)))


def _limits(metadata: list[Any]) -> list[str]:
    """Describe the values that pydantic's constraints allow, in words."""
    constraints = list(_constraints(metadata))
    limits = list[str]()
    for name, (words, tightest) in _BOUNDS.items():
        bounds = [
            b for constraint in constraints if (b := getattr(constraint, name, None)) is not None
        ]
        if bounds:
            bound = tightest(bounds)
            limits.append(f"{words} {bound:,}" if isinstance(bound, int) else f"{words} {bound:g}")
    for constraint in constraints:
        for name, words in (("min_length", "at least"), ("max_length", "at most")):
            length = getattr(constraint, name, None)
            if length is not None:
                limits.append(f"{words} {length} value{'s' if length > 1 else ''}")
        if isinstance(constraint, AfterValidator | BeforeValidator):
            line = (inspect.getdoc(constraint.func) or "").partition("\n")[0].rstrip(".")
            limits.append(line[:1].lower() + line[1:])
    return limits


def _constraints(metadata: list[Any]) -> Iterator[Any]:
    """The constraints in the metadata of a field, including those inside a nested FieldInfo."""
    for constraint in metadata:
        if isinstance(constraint, FieldInfo):
            yield from _constraints(constraint.metadata)
        else:
            yield constraint


# The keys of a recipe, an experiment or a benchmark that `--set` can override, and the keys of a
# benchmark file.


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
        elif recipe.select is None and key.name.startswith("select."):
            yield replace(key, value=None, required=False)  # of a table that is not there
        elif not key.when.startswith("problem.equation = "):
            yield key


def of_experiment(experiment: Experiment) -> Iterator[Key]:
    """Keys of an experiment with their values. Keys of its recipe begin with `data.overrides`."""
    from pipelines.config.experiment import Experiment

    for key in _single(keys_of(Experiment, experiment.model_dump())):
        if experiment.noise is None and key.name.startswith("noise."):
            continue  # there is no noise whose keys have values
        yield replace(key, value=None) if key.name.startswith("conditions.") else key
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
