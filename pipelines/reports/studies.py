"""What reports of studies share: facts of the data, errors with their spread, reproduction."""

from collections.abc import Sequence
from pathlib import Path

from operators.training.files import write
from pdegen.store.reading import open_sealed
from pipelines.reports.document import Report, Section, Table, markdown
from pipelines.reports.wording import scientific, settings
from pipelines.studies.row import Row, mean_and_spread

Facts = list[tuple[str, ...]]


def error(rows: Sequence[Row]) -> str:
    """Mean error of some seeds, and its spread over them.

    >>> error([Row(errors=[0.1, 0.3]), Row(errors=[0.2])])
    '2.00e-1 ± 0.00e0'
    """
    mean, spread = mean_and_spread(rows)
    return f"{scientific(mean)} ± {scientific(spread)}" if len(rows) > 1 else scientific(mean)


def of_data(store: str, learned: str) -> Facts:
    """The data of a study, and what is learned from them."""
    held = open_sealed(store).said
    problem = held.recipe.problem
    numbers = {k: v for k, v in problem.items() if isinstance(v, int | float | str)}
    sizes = {name: stop - start for name, (start, stop) in held.splits.items()}
    return [
        ("Data", f"{held.recipe.name}: {held.title}"),
        *([("Problem", settings(numbers))] if numbers else []),
        ("Fingerprint", held.fingerprint),
        ("Samples of the store", settings(sizes)),
        ("Map", learned),
    ]


def reproduction(rows: Sequence[Row], text: str, command: str, declared: str) -> Section:
    """By which command, of what, on which machines."""
    made = dict.fromkeys(settings(row.provenance) for row in rows if row.provenance)
    facts = (Table([("Run", one) for one in made]),)
    listings = (("declaration", declared),)
    return Section("How to reproduce it", (text,), facts, code=(command,), listings=listings)


def write_tables(report: Report, folder: Path, *words: str) -> None:
    """Write table.md: the tables alone, of sections with one of some words in the title."""
    parts = [s for s in report.sections if any(word in s.title for word in words)]
    bare = [Section(s.title, s.text, s.tables) for s in parts]
    text = markdown(Report(report.title, report.summary, report.notice, report.headline, bare))
    write(folder / "table.md", text.encode())
