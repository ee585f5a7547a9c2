"""Pages that the build generates from commands, cards and registries.

They are written to docs/generated, which git ignores.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import commands
import keys
import operator_cards
import pictures
from docutils import nodes
from operator_cards import TILES, WIDE
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pdegen.generation.recipe_arrays import layout
from pdegen.recipe import load_recipe, recipe_names


def write_pages(app: Sphinx) -> None:
    here = Path(app.srcdir)
    pages = {
        "commands.md": commands.page(),
        "keys-of-recipes.md": keys.of_recipes(),
        "keys-of-experiments.md": keys.of_experiments(),
        "store.md": dataset_page((here.parent / "datasets" / "README.md").read_text("utf-8")),
        "datasets.md": gallery(here),
        "operators.md": operator_cards.gallery(here),
        "changelog.md": (here.parent / "CHANGELOG.md").read_text("utf-8"),
        "overview.md": overview((here.parent / "README.md").read_text("utf-8")),
        "contributing.md": overview((here.parent / "CONTRIBUTING.md").read_text("utf-8")),
    }
    pages |= {f"datasets/{name}.md": card(here, name) for name in recipe_names()}
    pages |= {f"operators/{name}.md": text for name, text in operator_cards.cards(here)}
    for table in sorted((here.parent / "benchmarks" / "results").glob("*.md")):
        text = table.read_text("utf-8").replace("](../../docs/", "](/")
        pages[f"measurements/{table.name}"] = f"---\norphan: true\n---\n{text}"
    folder = here / "generated"
    for name, text in pages.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if (
            not file.exists() or file.read_text("utf-8") != text
        ):  # an unchanged file is not read again
            file.write_text(text, "utf-8")
    for file in folder.rglob("*.md"):
        if file.relative_to(folder).as_posix() not in pages:
            file.unlink()


def overview(text: str) -> str:
    """Text of the README, or of another file in its folder, with links to pages of the site."""
    text = text.replace("# pdegen\n", "# Overview\n", 1).replace("](docs/", "](/")
    for name, page in (("CHANGELOG", "changelog"), ("CONTRIBUTING", "contributing")):
        text = text.replace(f"]({name}.md", f"](/generated/{page}.md")
    text = text.replace("](README.md", "](/generated/overview.md")
    return text.replace("](datasets/README.md", "](/generated/store.md")


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
    """The map of each recipe, from the table of datasets/README.md."""
    text = (here.parent / "datasets" / "README.md").read_text("utf-8")
    return dict(re.findall(r"^\| \[([\w-]+)\]\([\w-]+\.md\) \| (.*?) \|", text, re.M))


def tile(here: Path, name: str, line: str) -> str:
    out, drawn = here / "generated" / "thumbnails" / f"{name}.png", pictures.of_recipe(name)
    assert drawn is not None
    pictures.write_thumbnail(drawn, pictures.panels(name), out)
    return f""":::{{grid-item-card}} {name}
:link: /generated/datasets/{name}
:link-type: doc
:img-top: /generated/thumbnails/{name}.png
:img-alt: A sample of {name}

{line}
:::
"""


class Wall(SphinxDirective):
    """The wall of pictures of all `datasets` or of all `operators`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        walls = {"datasets": wall, "operators": operator_cards.wall}
        return self.parse_text_to_nodes(walls[self.arguments[0]](Path(self.env.srcdir)))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_pages)
    app.add_directive("wall", Wall)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
