"""The gallery of operators, from the registry and the tables of docs/operators/index.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import coupling
import keys
import pictures

from operators.base import Operator
from pipelines.config.experiment import Experiment
from pipelines.config.keys import Key, keys_of, opening
from pipelines.config.models import MODELS


def gallery(here: Path) -> str:
    """The page of all operators: a tile each."""
    tables = _tables(here)
    listed = "\n".join(f"operators/{name}" for name in MODELS)
    return "\n".join(
        [
            "# Operators\n",
            f"The {len(MODELS)} operators that an experiment can name, each with its card.\n"
            "How they work and what they cost: [operators](/operators/index.md); which to begin\n"
            "with: [choosing one](/choosing.md). Pictures: a test sample, and how the prediction\n"
            "at y depends on the input at x, after a short training; they are not scores.\n",
            "::::{grid} 1 2 2 3\n:gutter: 3\n:class-container: gallery\n",
            *(_tile(here, name, tables[name][0][0]) for name in MODELS),
            "::::\n",
            "```{toctree}\n:hidden:\n" + listed + "\n```\n",
        ]
    )


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


def _picture(here: Path, name: str) -> str:
    return f"/{pictures.of_operator(name).relative_to(here).as_posix()}"


def _tile(here: Path, name: str, what: str) -> str:
    operator = MODELS[name].operator
    return f""":::{{grid-item-card}} {name}
:link: operators/{name}
:link-type: doc
:img-top: {_picture(here, name)}
:img-alt: How {name} couples points

{what}

Dimensions {", ".join(map(str, operator.dims))}; {_domains(operator.domains)}.
:::
"""


def _card(here: Path, name: str, rows: list[list[str]], own: list[Key]) -> str:
    operator = MODELS[name].operator
    (what, cost, converges), domains = rows[0], rows[1]
    return f"""# {name}

{_plain(opening(operator))}

```{{figure}} {_picture(here, name)}
:alt: How {name} couples points

{coupling.caption(coupling.experiment_of(name))}
```

| | |
|---|---|
| what it is | {what} |
| dimensions | {domains[0]} |
| boxes: periodic, cell, nodal | {domains[1]} |
| curvilinear meshes | {domains[2]} |
| clouds | {domains[3]} |
| points by sample | {domains[4]} |
| padding | {domains[5]} |
| other points y | {domains[6]} |
| cost of a layer | {cost} |
| converges under refinement | {converges} |

Letters, and what brackets mean: [operators](/operators/index.md).

## Train it

```console
$ pdegen train --data STORE --model {name}
```

## Published configurations

{_presets(operator)}

## Keys

Of the table `[model]` of an experiment, and of `--set`.

{keys.table(own)}"""


def _presets(operator: type[Operator]) -> str:
    if not operator.presets:
        return "None."
    rows = (
        f"| `{name}` | {one.parameters:,} | {_plain(one.source)} |"
        for name, one in operator.presets.items()
    )
    return "\n".join(["| `preset` | parameters | source |\n|---|---|---|", *rows])


def _plain(text: str) -> str:
    """Text of which no sign is one of Markdown."""
    return re.sub(r"([*_<\[$|])", r"\\\1", text)


def _domains(kinds: frozenset[str]) -> str:
    named = {"curvilinear": "curvilinear meshes", "cloud": "clouds"}
    return ", ".join(["boxes", *(word for kind, word in named.items() if kind in kinds)])
