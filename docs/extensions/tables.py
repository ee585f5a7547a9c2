"""Tables of measurements that files of the repository hold."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pdegen.domains import Box
from pdegen.recipe import load_recipe
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


class Recipes(SphinxDirective):
    """The measured recipes: domain, functions, cost and error of a sample."""

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir).parent
        file, errors = root / "benchmarks/results/recipes.json", root / "datasets/label_errors.json"
        for read in (file, errors):
            self.env.note_dependency(str(read))
        known = {
            one["recipe"]: median(one["relative_l2"])
            for one in json.loads(errors.read_text("utf-8")).values()
        }
        measured = json.loads(file.read_text("utf-8"))
        rows = list[tuple[str, ...]]()
        for name, figures in measured.items():
            equation, *functions = described(name)
            error = figures.get("error", known.get(name))
            link = f"[{name}](/generated/datasets/{name}.md)"
            stated = "" if error is None else f"{error:.0e}"
            rows.append((equation, link, *functions, f"{figures['seconds a sample']:.2g}", stated))
        names = ["equation", "recipe", "points", "boundary", "inputs", "target", "seconds", "error"]
        lines = [names, ["---"] * len(names), *sorted(rows)]
        return self.parse_text_to_nodes("\n".join(f"| {' | '.join(line)} |" for line in lines))


def described(name: str) -> tuple[str, ...]:
    """Equation, points, boundary, inputs and target of a recipe, in words."""
    problem = load_recipe(name).problem
    domain, variables = problem.domain, problem.variables()
    functions = {
        role: ", ".join(f"`{v.name}`" for v in variables if v.attributes.get("role") == role)
        for role in ("input", "target")
    }
    places = {"periodic": "periodic", "cell": "walls, cells", "nodal": "walls, nodes"}
    boundary = places[domain.grids[0].kind] if isinstance(domain, Box) else "mesh"
    points = " x ".join(str(n) for n in domain.shape)
    inputs = functions["input"] or "the points"
    return problem.equation_name, points, boundary, inputs, functions["target"]


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
    app.add_directive("recipes", Recipes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
