"""Commands that say what there is."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.common import AsJson, Equation, app
from pipelines.cli.terminal import say

if TYPE_CHECKING:  # each command imports its own modules when it runs, so commands start fast
    from pipelines.declared.keys import Key


@app.command("keys")
def keys_command(
    name: Annotated[
        str, typer.Argument(help="Recipe, experiment or benchmark, by name or as a TOML file.")
    ],
    every: Annotated[
        bool, typer.Option("--all", help="Show keys of kinds that the file does not choose, too.")
    ] = False,
    as_json: AsJson = False,
    equation: Equation = None,
) -> None:
    """List what --set takes: keys with values, defaults, units and meanings."""
    from pipelines.declared.settable import settable

    found = settable(name)
    if as_json:
        print_json([one.said() for one in found])
        return
    for number, one in enumerate(found):
        if number:
            say("")
        say(f"{one.what} {one.name}: {one.command}")
        for key in one.keys:
            if every or not key.when:
                for line in _lines(key):
                    say(line)
        if not every and (hidden := sum(bool(key.when) for key in one.keys)):
            say(f"{hidden} keys of other kinds are shown by --all")


def _lines(key: "Key") -> Iterator[str]:
    """A key for people: value and unit, what is allowed, meaning, choices."""
    value = "not set" if key.value is None else f"= {_written(key.value)}"
    yield f"  {key.name} {value}{f'  [{key.unit}]' if key.unit else ''}"
    default = "required" if key.required else f"default {_written(key.default)}"
    said = [key.type, key.allowed, "" if key.default is None and not key.required else default]
    yield f"      {', '.join(filter(None, said))}"
    if key.meaning:
        yield f"      {key.meaning}"
    if key.when:
        yield f"      with {key.when}"
    if any(key.choices.values()):
        for word, meaning in key.choices.items():
            yield f"        {word:20} {meaning}"
    elif key.choices:
        yield f"      one of: {', '.join(key.choices)}"


def _written(value: Any) -> str:
    """As in --set."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def print_json(content: object) -> None:
    """Print a result for programs."""
    for line in json.dumps(content, indent=1, ensure_ascii=False).splitlines():
        say(line)
