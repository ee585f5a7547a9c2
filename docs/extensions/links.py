"""Links of the Markdown pages to files that are not pages lead to pages that show these files."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

PAGES = (
    (r"(\.\./)+README\.md", "/generated/overview.md"),
    (r"(\.\./)+CHANGELOG\.md", "/generated/changelog.md"),
    (r"(\.\./)+CONTRIBUTING\.md", "/generated/contributing.md"),
    (r"(\.\./)+datasets/README\.md", "/generated/store.md"),
    (r"(\.\./)+datasets/([\w.-]+\.md)", r"/generated/datasets/\2"),
    (r"(\.\./)+benchmarks/results/([\w.-]+\.md)", r"/generated/measurements/\2"),
)


def lead_to_pages(app: Sphinx, page: str, source: list[str]) -> None:
    for path, target in PAGES:
        source[0] = re.sub(rf"\]\({path}", f"]({target}", source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", lead_to_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
