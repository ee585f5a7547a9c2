"""Checks of a benchmark that need its experiments, operators and recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdegen.schema import SchemaError, is_name

if TYPE_CHECKING:
    from pipelines.config.benchmark import Benchmark, Case

_FIXED = ("training.seed", "training.protocol", "training.weights")  # of all trials of a search


def check(benchmark: Benchmark) -> None:
    """Raise SchemaError if a dataset, an operator's overrides, the search or the budget are
    invalid."""
    search = f"benchmark {benchmark.name}: a search"
    for name, dataset in benchmark.datasets.items():
        experiment = dataset.load()
        for overrides in dataset.coarser:
            experiment.data.load_recipe().with_overrides(overrides)
        cases = [case for case in benchmark.cases() if case.dataset == name]
        changed = {case.operator: benchmark.operators[case.operator].overrides for case in cases}
        for owner, keys in [*changed.items(), (search, benchmark.search)]:
            for key in keys:
                full = key if ".overrides." in key else experiment.full_key(key)
                if full.startswith(("data.recipe", "data.overrides")):
                    raise SchemaError(f"{owner}: {key} belongs to the dataset, for all operators")
                if owner == search and full in _FIXED:
                    raise SchemaError(f"{owner} needs the same {key} for all trials")
                if owner == search and not full.startswith("training."):
                    raise SchemaError(f"{owner} may only try settings of the training, got {key}")
                if full.startswith("model."):
                    raise SchemaError(f"{owner}: {key} is set in its model, not in overrides")
        if benchmark.search or benchmark.widths or benchmark.budget:
            _check_selects_by_validation(benchmark, cases, search)
        searched = [{key: value} for key, values in benchmark.search.items() for value in values]
        for overrides in filter(None, [*changed.values(), *searched]):
            experiment.with_overrides(overrides)
        for case in cases:
            benchmark.model(case).check_installed()
            if not is_name(benchmark.name_of(case)):
                raise SchemaError(f"benchmark {benchmark.name}: the name of {case} is too long")
            for chosen in benchmark.searched(case):
                benchmark.model(case, chosen)


def _check_selects_by_validation(benchmark: Benchmark, cases: list[Case], search: str) -> None:
    """Raise SchemaError if the search or the budget would choose by errors of the test split."""
    for case in cases:
        if case.protocol == "published" and len(benchmark.protocols) > 1:
            continue  # it has the settings that the other protocol chooses, or declared ones
        if benchmark.experiment(case, 0, {}).training.protocol == "published":
            raise SchemaError(
                f"{search if benchmark.budget is None else f'benchmark {benchmark.name}: a budget'}"
                " needs a validation error, which the protocol published does not have"
            )
