"""Tables of measurements that files of the repository hold."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pipelines.config.shipped import records


class LabelErrors(SphinxDirective):
    """Label errors of recipes: median and largest over the samples that were measured."""

    def run(self) -> list[nodes.Node]:
        file = Path(self.env.srcdir).parent / "datasets" / "label_errors.json"
        self.env.note_dependency(str(file))
        rows = [
            (one["recipe"], f"{median(one['relative_l2']):.1e}", f"{max(one['relative_l2']):.1e}")
            for one in json.loads(file.read_text("utf-8")).values()
        ]
        head = "| recipe | median | largest |\n|---|---|---|\n"
        lines = (f"| `{name}` | {middle} | {most} |" for name, middle, most in sorted(rows))
        return self.parse_text_to_nodes(head + "\n".join(lines))


class Records(SphinxDirective):
    """The smallest published errors, by recipe."""

    def run(self) -> list[nodes.Node]:
        file = Path(self.env.srcdir).parent / "pipelines/config/records.toml"
        self.env.note_dependency(str(file))
        head = "| recipe | smallest published error | read from |\n|---|---|---|\n"
        lines = (
            f"| `{name}` | {record.sentence} | {record.source} |"
            for name, record in sorted(records().items())
        )
        return self.parse_text_to_nodes(head + "\n".join(lines))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("label-errors", LabelErrors)
    app.add_directive("records", Records)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
