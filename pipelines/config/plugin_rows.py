"""Rows of a benchmark for operators of users' files."""

from operators.registry import OPERATORS
from pdegen.domains import Box
from pdegen.plugins import plugin_of
from pdegen.schema import SchemaError
from pipelines.config.benchmark import Benchmark
from pipelines.config.entries import Entry
from pipelines.config.models import MODELS, Model
from pipelines.config.shipped import check_slugs


def with_plugin_rows(benchmark: Benchmark) -> Benchmark:
    """A benchmark with one more row for each operator of a user's file that it does not have.

    The row has the name of the operator, its default settings, and all datasets whose domains the
    operator takes. Raises SchemaError if the row would have the folder of another row.
    """
    models = [
        model
        for entry in benchmark.operators.values()
        for model in (*entry.models.values(), entry.model)
        if model is not None
    ]
    present = {model.name for model in models} | benchmark.operators.keys()
    rows = {
        name: _row(name, benchmark)
        for name, registered in OPERATORS.items()
        if name not in present and plugin_of(registered.operator) is not None
    }
    if not rows:
        return benchmark
    operators = {**benchmark.operators, **rows}
    try:
        check_slugs(operators, "operators")
    except ValueError as error:
        raise SchemaError(f"benchmark {benchmark.name}: {error}") from None
    return benchmark.model_copy(update={"operators": operators})


def _row(name: str, benchmark: Benchmark) -> Entry:
    table = {"name": name}
    model = MODELS[name].parse(table, f"model {name}")
    taken = [label for label in benchmark.datasets if _takes(model, benchmark, label)]
    if taken:
        return Entry.parse({"models": dict.fromkeys(taken, table)}, name)
    return Entry.parse({"model": table}, name)  # whether it is asked for is known later


def _takes(model: Model, benchmark: Benchmark, dataset: str) -> bool:
    """Whether an operator takes the domain of a dataset."""
    domain = benchmark.datasets[dataset].load().data.load_recipe().problem.domain
    kinds = {grid.kind for grid in domain.grids} if isinstance(domain, Box) else {domain.kind}
    operator = model.operator
    shared = operator.points_by_sample or not domain.moves
    return domain.dim in model.dims() and kinds <= operator.domains and shared
