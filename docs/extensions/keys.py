"""The reference of keys, from the declarations themselves: what `pdegen keys` says of one file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby

from pdegen.recipe import Recipe
from pipelines.config.experiment import Experiment
from pipelines.config.keys import Key, keys_of

HEAD = "| key | type, default, unit | meaning |\n|---|---|---|"


def of_recipes() -> str:
    """Every key of a recipe, those of each equation apart."""
    return _page(
        "Keys of recipes",
        "`pdegen keys RECIPE` prints those of one recipe, with its values.",
        keys_of(Recipe),
    )


def of_experiments() -> str:
    """Every key of an experiment, those of each operator, loss and task apart."""
    return _page(
        "Keys of experiments",
        "`pdegen keys EXPERIMENT` prints those of one experiment, with its values. In prose:\n"
        "[experiments](/experiments.md).",
        keys_of(Experiment),
    )


def _page(title: str, opening: str, keys: Iterable[Key]) -> str:
    ordered = sorted(keys, key=lambda key: key.when)  # stable: each group keeps its order
    groups = (_group(when, group) for when, group in groupby(ordered, key=lambda key: key.when))
    said = "Unknown keys and impossible values are refused in one line."
    return "\n".join([f"# {title}\n", f"{opening} {said}\n", *groups])


def _group(when: str, keys: Iterable[Key]) -> str:
    title = f"With {when}" if when else "Always"
    return f"## {title}\n\n{table(keys)}"


def table(keys: Iterable[Key]) -> str:
    """A row for each key."""
    return "\n".join([HEAD, *map(_row, keys), ""])


def _row(key: Key) -> str:
    shown = "" if key.default is None else f"default {_json(key.default)}"
    unit = f"unit {key.unit}" if key.unit else ""
    said = filter(None, [key.type, key.allowed, "required" if key.required else shown, unit])
    meaning = [key.meaning, *_choices(key)]
    cells = [f"`{key.name}`", "; ".join(said), " ".join(filter(None, meaning))]
    return f"| {' | '.join(map(_cell, cells))} |"


def _json(value: object) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _choices(key: Key) -> Iterator[str]:
    if any(key.choices.values()):
        yield "; ".join(
            f"`{word}`: {said.rstrip('.')}" if said else f"`{word}`"
            for word, said in key.choices.items()
        )
    elif key.choices:
        yield f"One of {', '.join(f'`{word}`' for word in key.choices)}."


def _cell(text: str) -> str:
    """Text between bars; outside of `code` no sign is one of Markdown."""
    parts = text.replace("|", "\\|").split("`")
    for number in range(0, len(parts), 2):
        parts[number] = "".join(f"\\{sign}" if sign in "*_<[$" else sign for sign in parts[number])
    return "`".join(parts)
