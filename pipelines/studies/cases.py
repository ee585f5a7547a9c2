"""Cases of a benchmark: pairs of an operator and a dataset whose dimension it supports."""

from collections.abc import Collection, Mapping
from typing import Any

from pdegen.schema import SchemaError
from pipelines.config.benchmark import Benchmark, Case


def cases_on(benchmark: Benchmark, dims: Mapping[str, int]) -> list[Case]:
    """The cases of a benchmark whose operator supports the dimension of the dataset.

    `dims` has the dimension of each dataset.
    """
    return [
        case
        for case in benchmark.cases()
        if benchmark.operators[case.operator].models
        or dims[case.dataset] in benchmark.model(case).dims()
    ]


def check_cases(benchmark: Benchmark, dims: Mapping[str, int], wanted: Collection[str]) -> None:
    """Raise SchemaError if there is no case, or a requested operator supports no dataset."""
    left = {case.operator for case in cases_on(benchmark, dims)}
    datasets = ", ".join(f"{dataset}: {dim}" for dataset, dim in dims.items())
    for label in (label for label in wanted if label not in left):
        model: Any = benchmark.operators[label].model
        raise SchemaError(
            f"{label}: {model.name} supports domains of dimension "
            f"{', '.join(map(str, model.dims()))}; "
            f"the datasets have {datasets}"
        )
    if not left:
        raise nothing_left(benchmark)


def nothing_left(benchmark: Benchmark) -> SchemaError:
    """SchemaError for a benchmark that has no case."""
    return SchemaError(
        f"benchmark {benchmark.name}: no operator supports the dimension of "
        f"{', '.join(benchmark.datasets)}"
    )
