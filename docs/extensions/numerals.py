"""Numbers that stay on one line: `1.2e-3`, `64 x 64` and short cells of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# a number with an exponent, a product of sizes, a range of numbers, a percentage
NUMBER = re.compile(
    r"(?<![\w-])(?:-?\d[\d.,]*e[-+]?\d+(?:[-–]\d[\d.]*e[-+]?\d+)?"
    r"|\d[\d,]*(?: [x×] \d[\d,]*)+"
    r"|\d[\d.]*[-–]\d[\d.]*(?![\w-])"
    r"|-?\d[\d.]* %)"
)
SHORT = 18  # letters of a cell that is not broken


def keep_whole(app: Sphinx, doctree: nodes.document) -> None:
    """Mark the numbers in the text of a page, and the short cells of its tables."""
    for cell in doctree.findall(nodes.entry):
        text = cell.astext()
        if len(text) <= SHORT and re.search(r"\d", text):
            cell["classes"].append("short")
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, nodes.paragraph | nodes.emphasis | nodes.strong):
            pieces = list(_pieces(text.astext()))
            if len(pieces) > 1 or isinstance(pieces[0], nodes.inline):
                text.parent.replace(text, pieces)


def _pieces(text: str) -> Iterator[nodes.Node]:
    end = 0
    for number in NUMBER.finditer(text):
        if number.start() > end:
            yield nodes.Text(text[end : number.start()])
        yield nodes.inline("", number[0], classes=["number"])
        end = number.end()
    if end < len(text) or not text:
        yield nodes.Text(text[end:])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", keep_whole)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
