"""Which operators of a benchmark are for which of its datasets."""

from collections.abc import Collection, Mapping
from typing import Any

from pdegen.schema import SchemaError
from pipelines.config.benchmark import Benchmark, Case


def cases_on(benchmark: Benchmark, dims: Mapping[str, int]) -> list[Case]:
    """The operators of a benchmark on the datasets, of known dimensions, that they are for."""
    return [
        case
        for case in benchmark.cases()
        if benchmark.operators[case.operator].models
        or dims[case.dataset] in benchmark.model(case).dims()
    ]


def check_cases(benchmark: Benchmark, dims: Mapping[str, int], wanted: Collection[str]) -> None:
    """Raise SchemaError where nothing is left to train, or a wanted operator is for no dataset."""
    left = {case.operator for case in cases_on(benchmark, dims)}
    there = ", ".join(f"{dataset} of {dim}" for dataset, dim in dims.items())
    for label in (label for label in wanted if label not in left):
        model: Any = benchmark.operators[label].model
        raise SchemaError(
            f"{label}: {model.name} is for domains of dimension "
            f"{', '.join(map(str, model.dims()))}, the datasets are {there}"
        )
    if not left:
        raise nothing_left(benchmark)


def nothing_left(benchmark: Benchmark) -> SchemaError:
    """The error of a benchmark that has nothing to train."""
    return SchemaError(
        f"benchmark {benchmark.name}: no operator is for the dimension of "
        f"{', '.join(benchmark.datasets)}"
    )
