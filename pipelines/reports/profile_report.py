"""The report and the table of a profile."""

import csv
import io
from pathlib import Path

from operators.training.files import write
from pipelines.reports.document import Report, Section, Table
from pipelines.reports.studies import reproduction
from pipelines.runs.reproduction import toml
from pipelines.studies.profile import ProfileRun


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
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write(run.folder / "table.csv", text.getvalue().encode())
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
            Table(rows, header),
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
