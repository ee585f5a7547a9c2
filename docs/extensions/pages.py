"""Pages that the build generates from commands, cards and registries.

They are written to docs/generated, which git ignores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import commands
import keys
import operator_cards
import recipe_cards
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pdegen.shipped import recipe_names


def write_pages(app: Sphinx) -> None:
    here = Path(app.srcdir)
    pages = {
        "commands.md": commands.page(),
        "keys-of-recipes.md": keys.of_recipes(),
        "keys-of-experiments.md": keys.of_experiments(),
        "store.md": recipe_cards.dataset_page(
            (here.parent / "datasets" / "README.md").read_text("utf-8")
        ),
        "datasets.md": recipe_cards.gallery(here),
        "operators.md": operator_cards.gallery(here),
        "changelog.md": (here.parent / "CHANGELOG.md").read_text("utf-8"),
        "overview.md": overview((here.parent / "README.md").read_text("utf-8")),
        "contributing.md": overview((here.parent / "CONTRIBUTING.md").read_text("utf-8")),
    }
    pages |= {f"datasets/{name}.md": recipe_cards.card(here, name) for name in recipe_names()}
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


class Wall(SphinxDirective):
    """The wall of pictures of all `datasets` or of all `operators`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        walls = {"datasets": recipe_cards.wall, "operators": operator_cards.wall}
        return self.parse_text_to_nodes(walls[self.arguments[0]](Path(self.env.srcdir)))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_pages)
    app.add_directive("wall", Wall)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
