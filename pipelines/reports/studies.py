"""What reports of studies share: facts, errors with their spread, reproduction; and a profile."""

from collections.abc import Sequence
from pathlib import Path

from operators.training.files import write
from pdegen.store.reading import open_sealed
from pipelines.reports.document import Report, Section, Table, markdown
from pipelines.reports.wording import scientific, settings
from pipelines.runs.reproduction import toml
from pipelines.studies.profile import ProfileRun
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
    held = open_sealed(store).metadata
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


def write_profile_report(run: ProfileRun, command: str) -> Path:
    """Write report.html, report.md and table.csv of a finished profile; `command` measures it
    again."""
    header = ("operator", "parameters", "seconds / step", "steps / s", "peak MiB", "GFLOP")
    profile, found = run.profile, run.rows()
    rows = [
        (
            row.operator,
            f"{row.parameters}",
            f"{row.step_seconds:.4g}",
            f"{1 / row.step_seconds:.4g}",
            f"{row.step_bytes / 2**20:.4g}",
            f"{row.step_flops / 1e9:.4g}",
        )
        for row in found
    ]
    costs_of = Table(rows, header)
    write(run.folder / "table.csv", costs_of.csv.encode())
    published = [(label, entry.published) for label, entry in profile.operators.items()]
    fastest = min(found, key=lambda row: row.step_seconds)
    what = (
        f"{profile.points} points, batch {profile.batch}: forward, relative L2 loss, backward, "
        "Adam, in float32 as written. Operations are those of matrix products, attention and "
        "convolutions, counted from their shapes. MiB: peak of what tensors take."
    )
    costs = Section(
        "Costs of a training step",
        (what, *([profile.differs.strip()] if profile.differs else [])),
        (
            costs_of,
            Table(published, ("operator", "published"), words=True, name="published"),
        ),
    )
    declared, said = toml(profile.model_dump(mode="json")), "This command measures it again."
    report = Report(
        title=f"Profile {profile.name}",
        summary=profile.summary,
        notice="",
        headline=[(f"fastest ({fastest.operator}), seconds a step", f"{fastest.step_seconds:.3g}")],
        sections=[costs, reproduction(found, said, command, declared)],
    )
    return report.write(run.folder)
