"""Docstrings are plain text with `code`: signs that reStructuredText would read are escaped."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx


def escape(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    program = False
    for number, line in enumerate(lines):
        begins = line.lstrip().startswith((">>> ", "... "))
        program = begins or (program and bool(line.strip()))
        if not program:
            lines[number] = re.sub(r"(`[^`]*`)|([\\*|])|_\b(?=\W|$)", _escaped, line)


def _escaped(found: re.Match[str]) -> str:
    if found[1]:
        return f"`{found[1]}`"
    return f"\\{found[0]}"


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", escape, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
