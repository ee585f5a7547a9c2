"""Completion of names on the command line with the tab key.

The functions read names from files without importing operators. Typer shows the names that begin
with the typed text.
"""

import re
from pathlib import Path
from typing import Any

import typer

from pdegen.schema import SchemaError
from pdegen.shipped import recipe_names
from pipelines.config.benchmark import read_benchmark
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
    """Folders of finished runs, directly in the folder typed so far or one level below."""
    is_folder = not incomplete or incomplete.endswith("/")
    folder = Path(incomplete) if is_folder else Path(incomplete).parent
    scores = [path for depth in ("*", "*/*") for path in folder.glob(f"{depth}/scores.json")]
    names = [str(path.parent) for path in scores]
    return sorted(name for name in names if name.startswith(incomplete))


def operators() -> list[str]:
    """Names of operators.

    They are read from the source text of the registry, because importing it takes a second.
    """
    registry = Path(__file__).parents[2] / "operators" / "registry.py"
    return re.findall(r'^register\("([^"]+)"', registry.read_text(), re.M)


def operators_of_benchmark(ctx: typer.Context) -> list[str]:
    return _table(ctx, "operators")


def datasets_of_benchmark(ctx: typer.Context) -> list[str]:
    return _table(ctx, "datasets")


def _table(ctx: typer.Context, name: str) -> list[str]:
    """Keys of a table in the file of the benchmark that the command line names."""
    # while the value of an option is typed, the other words are in `ctx.args`
    defaults = [option.default for option in ctx.command.params if option.name == "name"]
    words = [ctx.params.get("name"), *ctx.args, *defaults]
    benchmark = next((word for word in words if isinstance(word, str)), None)
    try:
        table: Any = {} if benchmark is None else read_benchmark(file_of("benchmark", benchmark))
    except SchemaError:  # its name is still incomplete
        return []
    return list(table.get(name, ()))
