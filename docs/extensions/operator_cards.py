"""The gallery of operators, from the registry and the tables of docs/operators/index.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import coupling
import keys
import pictures

from operators.base import Operator
from pipelines.config.declared import MODELS
from pipelines.config.experiment import Experiment
from pipelines.config.keys import Key, keys_of, opening

# Cards and galleries have no list of sections: tables and pictures take its width.
WIDE = "---\nhtml_theme.sidebar_secondary.remove: true\n---\n"
TILES = "::::{grid} 2 3 4 5\n:gutter: 2\n:class-container: gallery\n"


def gallery(here: Path) -> str:
    """The page of all operators: a wall of pictures."""
    listed = "\n".join(f"operators/{name}" for name in MODELS)
    return "\n".join(
        [
            f"{WIDE}# Operators\n",
            f"The {len(MODELS)} operators that an experiment can name, each with its card.\n"
            "How they work and what they cost: [operators](/operators/index.md). Which to begin\n"
            "with: [choosing one](/choosing.md). Each picture shows how the prediction at y\n"
            "depends on the input at x after a short training; it is not a score.\n",
            wall(here),
            "```{toctree}\n:hidden:\n" + listed + "\n```\n",
        ]
    )


def wall(here: Path) -> str:
    """A tile for each operator."""
    tables = _tables(here)
    tiles = (_tile(here, name, tables[name][0][0]) for name in MODELS)
    return "\n".join([TILES, *tiles, "::::\n"])


def cards(here: Path) -> Iterator[tuple[str, str]]:
    """The page of each operator, by its name."""
    tables, every = _tables(here), keys_of(Experiment)
    for name in MODELS:
        own = [key for key in every if key.when == f"model.name = {name}"]
        yield name, _card(here, name, tables[name], own)


def _tables(here: Path) -> dict[str, list[list[str]]]:
    """Cells of the rows of an operator in the tables of docs/operators/index.md, by its name."""
    found = dict[str, list[list[str]]]()
    for line in (here / "operators" / "index.md").read_text("utf-8").splitlines():
        if row := re.match(r"\| `([\w-]+)` \| (.*) \|$", line):
            found.setdefault(row[1], []).append(row[2].split(" | "))
    return found


def _tile(here: Path, name: str, what: str) -> str:
    drawn = pictures.of_operator(name)
    alt = f"How {name} couples points"
    return tile(here, "operators", name, alt, what, drawn, pictures.OPERATOR)


def tile(
    here: Path, kind: str, name: str, alt: str, text: str, picture: Path | None,
    panels: tuple[int, ...],
) -> str:  # fmt: skip
    """A tile of the wall of `datasets` or `operators`: a text below the picture if it is drawn."""
    image = ""
    if picture is not None:
        thumbnail = f"/generated/thumbnails/{name}.png"
        pictures.write_thumbnail(picture, panels, here / thumbnail.lstrip("/"))
        image = f":img-top: {thumbnail}\n:img-alt: {alt}\n"
    return f""":::{{grid-item-card}} {name}
:link: /generated/{kind}/{name}
:link-type: doc
{image}
{text}
:::
"""


def _figure(here: Path, name: str) -> str:
    """The picture of an operator with its caption; empty if it is not drawn yet."""
    if (drawn := pictures.of_operator(name)) is None:
        return ""
    return f"""```{{figure}} /{drawn.relative_to(here).as_posix()}
:alt: How {name} couples points

{coupling.caption(coupling.experiment_of(name))}
```
"""


def _card(here: Path, name: str, rows: list[list[str]], own: list[Key]) -> str:
    operator = MODELS[name].operator
    (what, cost, converges), domains = rows[0], rows[1]
    return f"""{WIDE}# {name}

{plain(opening(operator))}

{_figure(here, name)}
| property | value |
|---|---|
| method | {what} |
| dimensions | {domains[0]} |
| boxes: periodic, cell, nodal | {domains[1]} |
| curvilinear meshes | {domains[2]} |
| clouds | {domains[3]} |
| points that differ by sample | {domains[4]} |
| padding | {domains[5]} |
| evaluation at other points y | {domains[6]} |
| cost of a layer | {cost} |
| converges under refinement | {converges} |

[Operators](/operators/index.md) explains the letters and the conditions in brackets.

## Train it

```console
$ pdegen train --data STORE --model {name}
```

## Published configurations

{_presets(operator)}

## Keys

The keys of the table `[model]` of an experiment. On the command line: `--set model.KEY=VALUE`.

{keys.table(own)}"""


def _presets(operator: type[Operator]) -> str:
    if not operator.presets:
        return "None."
    rows = (
        f"| `{name}` | {one.parameters:,} | {plain(one.source)} |"
        for name, one in operator.presets.items()
    )
    return "\n".join(["| `preset` | parameters | source |\n|---|---|---|", *rows])


def plain(text: str) -> str:
    """Text of which no sign is one of Markdown."""
    return re.sub(r"([*_<\[$|])", r"\\\1", text)
