"""What the tab key offers: names, read from files without importing what they declare."""

import re
from pathlib import Path
from typing import Any

import typer

from pdegen.schema import SchemaError, read_toml
from pdegen.shipped import recipe_names
from pipelines.declared.shipped import file_of, names


def recipes(incomplete: str) -> list[str]:
    return _begun(recipe_names(), incomplete)


def experiments(incomplete: str) -> list[str]:
    return _begun(names("experiment"), incomplete)


def benchmarks(incomplete: str) -> list[str]:
    return _begun(names("benchmark"), incomplete)


def declarations(incomplete: str) -> list[str]:
    return sorted({*recipes(incomplete), *experiments(incomplete), *benchmarks(incomplete)})


def finished_runs(incomplete: str) -> list[str]:
    """Folders with scores, beside what is typed and one below it."""
    there = Path(incomplete).parent if incomplete and not incomplete.endswith("/") else incomplete
    found = [one.parent for way in ("*", "*/*") for one in Path(there).glob(f"{way}/scores.json")]
    return sorted(_begun([str(folder) for folder in found], incomplete))


def operators(incomplete: str) -> list[str]:
    """Names of operators, from the text of their registry: importing it takes a second."""
    registry = Path(__file__).parents[2] / "operators" / "registry.py"
    return _begun(re.findall(r'^register\("([^"]+)"', registry.read_text(), re.M), incomplete)


def operators_of_benchmark(ctx: typer.Context, incomplete: str) -> list[str]:
    return _begun(_table(ctx, "operators"), incomplete)


def datasets_of_benchmark(ctx: typer.Context, incomplete: str) -> list[str]:
    return _begun(_table(ctx, "datasets"), incomplete)


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


def _begun(words: list[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
