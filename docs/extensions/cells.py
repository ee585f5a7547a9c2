"""Cells of a shell and cells that write a file, shown as what they are.

A cell that begins with `%%bash` is shown as a shell's, without that line; a cell that begins with
`%%writefile NAME` as the file NAME.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LANGUAGES = {".py": "python", ".toml": "toml"}


def show(app: Sphinx, doctree: nodes.document) -> None:
    for block in list(doctree.findall(nodes.literal_block)):
        first, _, rest = block.astext().partition("\n")
        if first.startswith("%%bash"):
            replace(block, rest, "bash")
        elif first.startswith("%%writefile "):
            name = first.split()[1]
            title = nodes.paragraph("", "", nodes.literal("", name), classes=["file-name"])
            block.parent.insert(block.parent.index(block), title)
            replace(block, rest, LANGUAGES.get(PurePath(name).suffix, "text"))
        elif block.get("language") == "none":  # of a cell that no kernel has run
            block["language"] = "python"


def replace(block: nodes.literal_block, text: str, language: str) -> None:
    block.rawsource, block["language"] = text, language
    block.children = []
    block += nodes.Text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
