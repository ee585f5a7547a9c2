"""Parts that the reports of all studies share, and the report of a profile."""

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
    """Mean error over the seeds as text. With several rows, the standard deviation is added.

    >>> error([Row(errors=[0.1, 0.3]), Row(errors=[0.2])])
    '2.00e-1 ± 0.00'
    """
    mean, spread = mean_and_spread(rows)
    return f"{scientific(mean)} ± {scientific(spread)}" if len(rows) > 1 else scientific(mean)


def of_data(store: str, learned: str) -> Facts:
    """Facts about the data of a study. `learned` is a description of the learned map."""
    metadata = open_sealed(store).metadata
    problem = metadata.recipe.problem
    numbers = {k: v for k, v in problem.items() if isinstance(v, int | float | str)}
    sizes = {name: stop - start for name, (start, stop) in metadata.splits.items()}
    return [
        ("Data", f"{metadata.recipe.name}: {metadata.title}"),
        *([("Problem", settings(numbers))] if numbers else []),
        ("Fingerprint", metadata.fingerprint),
        ("Samples of the store", settings(sizes)),
        ("Map", learned),
    ]


def reproduction(rows: Sequence[Row], text: str, command: str, declared: str) -> Section:
    """Section about reproduction: the machines that computed the rows, the command and the
    declaration."""
    machines = dict.fromkeys(settings(row.provenance) for row in rows if row.provenance)
    facts = (Table([("Run", machine) for machine in machines]),)
    listings = (("Declaration", declared),)
    return Section("How to reproduce it", (text,), facts, code=(command,), listings=listings)


def write_tables(report: Report, folder: Path, *words: str) -> None:
    """Write table.md, with the text and the tables of all sections whose title contains one of
    `words`."""
    chosen = [s for s in report.sections if any(word in s.title for word in words)]
    tables = [Section(s.title, s.text, s.tables) for s in chosen]
    text = markdown(Report(report.title, report.summary, report.notice, report.headline, tables))
    write(folder / "table.md", text.encode())


def write_profile_report(run: ProfileRun, command: str) -> Path:
    """Write report.html, report.md and table.csv of a finished profile. The report quotes
    `command`, which repeats the profile."""
    header = ("operator", "parameters", "seconds / step", "steps / s", "peak MiB", "GFLOP")
    profile, measured = run.profile, run.rows()
    rows = [
        (
            row.operator,
            f"{row.parameters}",
            f"{row.step_seconds:.4g}",
            f"{1 / row.step_seconds:.4g}",
            f"{row.step_bytes / 2**20:.4g}",
            f"{row.step_flops / 1e9:.4g}",
        )
        for row in measured
    ]
    costs_of = Table(rows, header)
    write(run.folder / "table.csv", costs_of.csv.encode())
    published = [(label, entry.published) for label, entry in profile.operators.items()]
    fastest = min(measured, key=lambda row: row.step_seconds)
    what = (
        f"{profile.points} points, batch {profile.batch}: forward, relative L2 loss, backward and "
        "Adam, in float32, not compiled. GFLOP: matrix products, attention and convolutions, "
        "counted from their shapes. MiB: peak memory of all tensors."
    )
    costs = Section(
        "Costs of a training step",
        (what, *([profile.differs.strip()] if profile.differs else [])),
        (
            costs_of,
            Table(published, ("operator", "published"), words=True, name="published"),
        ),
    )
    declared, text = toml(profile.model_dump(mode="json")), "This command measures it again."
    report = Report(
        title=f"Profile {profile.name}",
        summary=profile.summary,
        notice="",
        headline=[(f"seconds / step, fastest ({fastest.operator})", f"{fastest.step_seconds:.3g}")],
        sections=[costs, reproduction(measured, text, command, declared)],
    )
    return report.write(run.folder)
