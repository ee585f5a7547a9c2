"""The gallery of operators, from the registry and the tables of docs/operators.md."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.declared.models import MODELS


def gallery(here: Path) -> str:
    rows = _rows((here / "operators.md").read_text("utf-8"))
    return "\n".join(
        [
            "# Operators\n",
            f"The {len(MODELS)} operators that an experiment can name. How they work, what they\n"
            "take and what they cost: [operators](/operators.md); which to begin with:\n"
            "[choosing one](/choosing.md).\n",
            "::::{grid} 1 2 2 3\n:gutter: 3\n:class-container: gallery\n",
            *(_tile(here, name, rows[name]) for name in MODELS),
            "::::\n",
        ]
    )


def _rows(text: str) -> dict[str, list[str]]:
    """Cells of the first table that has a row for an operator, by its name."""
    found = dict[str, list[str]]()
    for line in text.splitlines():
        if row := re.match(r"\| `([\w-]+)` \| (.*) \|$", line):
            found.setdefault(row[1], row[2].split(" | "))
    return found


def _tile(here: Path, name: str, row: list[str]) -> str:
    operator = MODELS[name].operator
    drawn = f"/pictures/operators/{name}.png"
    shown = f":img-top: {drawn}\n:img-alt: How {name} couples points\n"
    picture = shown if (here / drawn[1:]).exists() else ""
    presets = ", ".join(f"`{one}`" for one in operator.presets) or "none"
    return f""":::{{grid-item-card}} {name}
{picture}
{row[0]}

Dimensions {", ".join(map(str, operator.dims))}; {_domains(operator.domains)}.

Presets: {presets}.
:::
"""


def _domains(kinds: frozenset[str]) -> str:
    named = {"curvilinear": "curvilinear meshes", "cloud": "clouds"}
    return ", ".join(["boxes", *(word for kind, word in named.items() if kind in kinds)])
