"""Tables of a benchmark's errors by other measures, beside what was published of them."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from pipelines.declared.entries import Entry
from pipelines.reports.document import Table
from pipelines.reports.wording import scientific
from pipelines.runs.measures import NORMS, PARTS
from pipelines.studies.row import Row


def measure_tables(
    found: Mapping[str, Sequence[Row]], operators: Mapping[str, Entry], dataset: str
) -> list[Table]:
    """Mean errors of each operator by the measures that all of its rows have: one table of norms,
    one of parts of the error; deviations over seeds where there are several."""
    tables = list[Table]()
    for what, measures in (("norms", ("l2", *NORMS)), ("parts of the error", PARTS)):
        names = [name for name in measures if _in_all(name, found)]
        rows = [row for label, own in found.items()
                for row in _rows(label, own, names, operators[label], dataset)]  # fmt: skip
        tables += [Table(rows, ("operator", *names), name=what)] if names and rows else []
    return tables


def _in_all(name: str, found: Mapping[str, Sequence[Row]]) -> bool:
    return all(name in row.measures for own in found.values() for row in own)


def _rows(
    label: str, own: Sequence[Row], names: Sequence[str], operator: Entry, dataset: str
) -> list[tuple[str, ...]]:
    """Of one operator: measured, and published if some of it was."""
    means = {name: _band([row.measures[name] for row in own]) for name in names}
    known = {str(k): v for k, v in operator.published_measures.get(dataset, {}).items()}
    published = {name: scientific(known[name]) for name in names if name in known}
    return [
        (of, *(figures.get(name, "") for name in names))
        for of, figures in ((label, means), (f"{label}, published", published))
        if figures
    ]


def _band(values: Sequence[float]) -> str:
    """The mean over seeds, and their deviation where there are several."""
    middle = scientific(mean(values))
    return f"{middle} ± {stdev(values):.1e}" if len(values) > 1 else middle
