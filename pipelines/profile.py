"""What training steps of operators cost on one grid: a table of seconds, memory and operations."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field

from operators.base import Operator
from operators.files import write
from operators.memory import is_out_of_memory
from operators.norms import RelativeL2
from pdegen.schema import Count, Name, SchemaError, Strict
from pipelines.cost import Cost, step_cost
from pipelines.document import Report, Section, Table
from pipelines.models import build_operator
from pipelines.registry import ModelSpec
from pipelines.reproduction import toml
from pipelines.run import RunError, check_folder, provenance
from pipelines.wording import settings


class Profiled(Strict):
    """An operator of a profile.

    Args:
        model: The operator.
        published: What was published of it, in words.
    """

    model: ModelSpec
    published: str = ""


class Profile(Strict):
    """Operators on random functions of one variable.

    Args:
        name, summary: For people.
        differs: What differs from what is published.
        points, batch: Grid points, and samples in a step.
        operators: By the names that the table shows.
        quick: The name of its small version, where there is one.
    """

    name: Name
    summary: str
    differs: str = ""
    quick: str = ""
    points: Count
    batch: Count
    operators: Annotated[dict[str, Profiled], Field(min_length=1)]


@dataclass(frozen=True)
class Profiling:
    """The measured costs of one operator."""

    parameters: int
    cost: Cost


def check_place(folder: Path, overwrite: bool) -> None:
    """Raise RunError where a folder is in the way of a profile, or holds one not to be replaced."""
    check_folder(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / "table.csv").exists() or (folder / "benchmark.json").exists():
        raise RunError(f"{folder} exists and is no profile")
    if not overwrite:
        raise RunError(f"{folder} holds a profile: use --overwrite")


def measure(
    profile: Profile, device: torch.device, progress: Callable[[str, int, int], None]
) -> dict[str, Profiling]:
    """The cost of a step of each operator, one after another.

    Raises:
        SchemaError: If an operator cannot act on the functions; before anything is measured.
    """
    torch.manual_seed(0)
    x = (torch.arange(profile.points, device=device) / profile.points)[:, None]
    a, u = torch.randn(2, profile.batch, profile.points, 1, device=device)
    for label, entry in profile.operators.items():
        try:
            with torch.no_grad():
                _operator(entry, device).eval()(a[:1], x)
        except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
            if isinstance(error, RuntimeError) and is_out_of_memory(error):
                raise
            where = f"{label} in profile {profile.name}"
            raise SchemaError(f"{where}: model {entry.model.name}: {error}") from error
    loss, found = RelativeL2(), {}
    for label, entry in profile.operators.items():
        operator = _operator(entry, device).train()
        optimizer = torch.optim.Adam(operator.parameters(), lr=1e-6, fused=True)

        def step(model: Operator = operator, adam: torch.optim.Adam = optimizer) -> None:
            adam.zero_grad()
            loss(model(a, x), u, a).backward()
            adam.step()

        cost = step_cost(step, operator, optimizer, device)
        found[label] = Profiling(operator.parameter_count, cost)
        progress(f"{label}: {cost.seconds:.3g} s", len(found), len(profile.operators))
        del operator, optimizer, step
    return found


def _operator(entry: Profiled, device: torch.device) -> Operator:
    model = entry.model.model_dump(mode="json")
    described = {"model": model, "in_channels": 1, "out_channels": 1, "dim": 1}
    return build_operator(described).to(device)


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
