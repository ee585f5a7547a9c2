"""The report and the table of a profile."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import torch

from operators.training.files import write
from pipelines.declared.profile import Profile
from pipelines.measure.profile import Profiling
from pipelines.reports.document import Report, Section, Table
from pipelines.reports.wording import settings
from pipelines.runs.reproduction import toml
from pipelines.runs.run import provenance


def write_profile(
    profile: Profile, found: dict[str, Profiling], folder: Path, device: torch.device, command: str
) -> Path:
    """Write report.html, report.md and table.csv; the path of report.html.

    Args:
        profile, found, folder: What was measured, and where to.
        device: By what.
        command: What measures it again.
    """
    header = ("operator", "parameters", "seconds / step", "steps / s", "peak MiB", "GFLOP")
    rows = [
        (
            label, f"{one.parameters}", f"{one.cost.seconds:.4g}", f"{1 / one.cost.seconds:.4g}",
            f"{one.cost.peak_bytes / 2**20:.4g}", f"{one.cost.flops / 1e9:.4g}",
        )
        for label, one in found.items()
    ]  # fmt: skip
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write(folder / "table.csv", text.getvalue().encode())
    published = [(label, entry.published) for label, entry in profile.operators.items()]
    fastest = min(found, key=lambda label: found[label].cost.seconds)
    report = Report(
        title=f"Profile {profile.name}",
        summary=profile.summary,
        notice="",
        headline=[(f"fastest ({fastest}), seconds a step", f"{found[fastest].cost.seconds:.3g}")],
        sections=[
            Section(
                "Costs of a training step",
                (
                    f"{profile.points} points, batch {profile.batch}: forward, relative L2 loss, "
                    "backward, Adam, in float32 as written. Operations are those of matrix "
                    "products, attention and convolutions, counted from their shapes. MiB: peak "
                    "of what tensors take.",
                    *([profile.differs.strip()] if profile.differs else []),
                ),
                (Table(rows, header), Table(published, ("operator", "published"), words=True)),
            ),
            Section(
                "How to reproduce it",
                tables=(Table([("Run", settings(provenance(device)))]),),
                code=(
                    command,
                    toml(json.loads(profile.model_dump_json())),
                ),
            ),
        ],
    )
    return report.write(folder)
