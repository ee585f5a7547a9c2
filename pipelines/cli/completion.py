"""What the tab key offers: names, read from files without importing what they declare.

Of these Typer shows the ones that begin with the word that stands there.
"""

import re
from pathlib import Path
from typing import Any

import typer

from pdegen.schema import SchemaError, read_toml
from pdegen.shipped import recipe_names
from pipelines.config.shipped import file_of, names


def recipes() -> list[str]:
    return recipe_names()


def experiments() -> list[str]:
    return names("experiment")


def benchmarks() -> list[str]:
    return names("benchmark")


def declarations() -> list[str]:
    return sorted({*recipes(), *experiments(), *benchmarks()})


def finished_runs(incomplete: str) -> list[str]:
    """Folders with scores, beside what is typed and one below it."""
    there = Path(incomplete).parent if incomplete and not incomplete.endswith("/") else incomplete
    found = [one.parent for way in ("*", "*/*") for one in Path(there).glob(f"{way}/scores.json")]
    return sorted(name for name in map(str, found) if name.startswith(incomplete))


def operators() -> list[str]:
    """Names of operators, from the text of their registry: importing it takes a second."""
    registry = Path(__file__).parents[2] / "operators" / "registry.py"
    return re.findall(r'^register\("([^"]+)"', registry.read_text(), re.M)


def operators_of_benchmark(ctx: typer.Context) -> list[str]:
    return _table(ctx, "operators")


def datasets_of_benchmark(ctx: typer.Context) -> list[str]:
    return _table(ctx, "datasets")


def _table(ctx: typer.Context, name: str) -> list[str]:
    """The names in a table of the benchmark that stands in the command."""
    # where an option still lacks its value, words are left over
    defaults = [one.default for one in ctx.command.params if one.name == "name"]
    words = [ctx.params.get("name"), *ctx.args, *defaults]
    benchmark = next((word for word in words if isinstance(word, str)), None)
    try:
        table: Any = {} if benchmark is None else read_toml(file_of("benchmark", benchmark))
    except SchemaError:  # not written to its end yet
        return []
    return list(table.get(name, ()))
