"""Finished tables that get further rows or columns."""

from pdegen.ownership import DamagedError, read_json
from pdegen.store.format import MetadataError
from pdegen.store.reading import StoreError, open_sealed
from pipelines.config.benchmark import Benchmark
from pipelines.studies.benchmark import HOLDING, BenchmarkRun


def extended(run: BenchmarkRun, whole: Benchmark) -> BenchmarkRun:
    """The table of a run, together with the finished rows that its folder holds.

    Only what the run asks for is computed. Rows of other cases of `whole` belong to the table if
    they are finished and were computed from the same settings and stores. Their files stay.
    """
    try:
        recorded = read_json(run.folder / HOLDING.file)["stores"]
    except (FileNotFoundError, DamagedError, KeyError):
        return run
    stores = {
        label: url
        for label, url in {**recorded, **run.stores}.items()
        if label in whole.datasets and (label in run.stores or _opens(url))
    }
    everything = BenchmarkRun(whole.installed().only([], list(stores)), stores, run.folder)
    finished = [part for (stage,) in [everything.stages()] for part in stage
                if everything.kept(part) is not None]  # fmt: skip
    requested = {part for stage in run.stages() for part in stage}
    order = whole.cases()
    parts = sorted(requested.union(finished), key=lambda part: (part[1], order.index(part[0])))
    operators, datasets = {case.operator for case, _ in parts}, {case.dataset for case, _ in parts}
    table = whole.only(
        [label for label in whole.operators if label in operators],
        [label for label in whole.datasets if label in datasets],
    )
    table_stores = {label: stores[label] for label in table.datasets}
    return BenchmarkRun(table, table_stores, run.folder, parts=tuple(parts))


def _opens(store: str) -> bool:
    """Whether a finished store is at this place."""
    try:
        open_sealed(store)
    except (StoreError, MetadataError, OSError):
        return False
    return True
