"""The gallery of recipes, from their files and the table of datasets/README.md."""

from __future__ import annotations

import re
from pathlib import Path

import operator_cards
import pictures
from operator_cards import TILES, WIDE, plain

from pdegen.generation.generate import layout
from pdegen.recipe import load_recipe, recipe_names


def dataset_page(text: str) -> str:
    """Text of a file in datasets/, with links to pages of the site."""
    text = text.replace("](../docs/", "](/").replace("](README.md", "](/generated/store.md")
    return re.sub(r"\]\(([\w.-]+)\.md", r"](/generated/datasets/\1.md", text)


def picture(here: Path, name: str) -> str | None:
    """Path of the picture of a recipe in the site; None if it has none."""
    drawn = pictures.of_recipe(name)
    return f"/{drawn.relative_to(here).as_posix()}" if drawn else None


def card(here: Path, name: str) -> str:
    """Page of a recipe: card, picture, command, and the recipe itself."""
    recipe, folder = load_recipe(name), here.parent / "datasets"
    text = dataset_page((folder / f"{name}.md").read_text("utf-8")).rstrip()
    drawn = picture(here, name)
    if drawn and "![" not in text:
        title, _, rest = text.partition("\n")
        text = f"{title}\n\n![Samples of {name}]({drawn})\n{_coarser(name)}{rest}"
    plan = layout(recipe)
    return f"""{WIDE}{text}

## Generate it

```console
$ pdegen generate {name}
```

{plan.samples:,} samples in {plan.shards:,} shards, {plan.bytes / 1e6:,.1f} MB before compression.
`--set` takes any key of the recipe:

```toml
{(folder / f"{name}.toml").read_text("utf-8").rstrip()}
```
"""


def _coarser(name: str) -> str:
    """A sentence for recipes whose picture shows a coarser solution; otherwise empty."""
    changed = ", ".join(f"{key} = {value}" for key, value in pictures.COARSER.get(name, {}).items())
    return f"\nThe picture shows a coarser solution: `{changed}`.\n" if changed else ""


def gallery(here: Path) -> str:
    """The page of all recipes: a wall of pictures, and links to the small forms."""
    names = recipe_names()
    listed = "\n".join(f"datasets/{name}" for name in names)
    small = ", ".join(f"[{name}](datasets/{name}.md)" for name in names if pictures.small(name))
    return "\n".join(
        [
            f"{WIDE}# Datasets\n",
            f"The {len(names)} recipes that come with the package, each with its card.\n",
            wall(here),
            f"Small forms for tests and first runs: {small}.\n",
            "```{toctree}\n:hidden:\n" + listed + "\n```\n",
        ]
    )


def wall(here: Path) -> str:
    """A tile for each recipe that is not the small form of another one."""
    lines = lines_of_recipes(here)
    names = [name for name in recipe_names() if not pictures.small(name)]
    return "\n".join([TILES, *(tile(here, name, lines[name]) for name in names), "::::\n"])


def lines_of_recipes(here: Path) -> dict[str, str]:
    """The map of each recipe: its row in datasets/README.md, or its headline if it has no row."""
    text = (here.parent / "datasets" / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| \[([\w-]+)\]\([\w-]+\.md\) \| (.*?) \|", text, re.M))
    return {name: rows.get(name) or plain(load_recipe(name).headline) for name in recipe_names()}


def tile(here: Path, name: str, line: str) -> str:
    drawn = pictures.of_recipe(name)
    panels = pictures.panels(name) if drawn else ()
    return operator_cards.tile(here, "datasets", name, f"A sample of {name}", line, drawn, panels)
