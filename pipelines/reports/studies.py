"""Parts that the reports of all studies share, and the report of a profile."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pdegen.ownership import write
from pdegen.store.card import citation
from pdegen.store.reading import open_sealed
from pipelines.config.benchmark import Profile, StepCost
from pipelines.reports.document import Formula, Report, Section, Table, markdown
from pipelines.reports.facts import quality
from pipelines.reports.formulas import equation
from pipelines.reports.wording import plus_minus, scientific, settings
from pipelines.runs.reproduction import toml
from pipelines.studies.benchmark import ProfileRun
from pipelines.studies.runner import Row, mean_and_spread

Facts = list[tuple[str, ...]]


def error(rows: Sequence[Row]) -> str:
    """Mean error over the seeds as text. With several rows, the standard deviation is added.

    >>> error([Row(errors=[0.1, 0.3]), Row(errors=[0.2])])
    '2.00e-1 ± 0.00e-1'
    """
    mean, spread = mean_and_spread(rows)
    return plus_minus(scientific(mean), spread) if len(rows) > 1 else scientific(mean)


def of_data(store: str, learned: str) -> Facts:
    """Facts about the data of a study. `learned` is a description of the learned map."""
    metadata = open_sealed(store).metadata
    problem = metadata.recipe.problem
    numbers = {
        k: v for k, v in problem.items() if isinstance(v, int | float | str) and k != "equation"
    }
    sizes = {name: stop - start for name, (start, stop) in metadata.splits.items()}
    return [
        ("Data", f"{metadata.recipe.name}: {metadata.title}"),
        *([("Problem", settings(numbers))] if numbers else []),
        *quality(open_sealed(store)),
        ("Fingerprint", metadata.fingerprint),
        ("Content digest", metadata.content),
        ("Samples of the store", settings(sizes)),
        ("Map", learned),
    ]


def data_section(title: str, store: str, facts: Facts) -> Section:
    """Section of facts about a study on a store, with the equation and the citation of the data."""
    opened = open_sealed(store)
    cited = opened.metadata.imported is None
    return Section(
        title,
        tables=(Table(facts),),
        formulas=(Formula("Equation", equation(opened)),),
        listings=(("Citation of the data", citation(opened.metadata)),) if cited else (),
    )


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


_PROFILE = ("operator", "parameters", "seconds / step", "steps / s", "peak MiB", "GFLOP")
_HELD = {"cuda": "memory of the device", "cpu": "memory of the process"}


def write_profile_report(run: ProfileRun, command: str) -> Path:
    """Write report.html, report.md and table.csv of a finished profile. The report quotes
    `command`, which repeats the profile."""
    profile, measured = run.profile, run.rows()
    kind = _HELD[measured[0].provenance["device"].split()[0]]
    header = (*_PROFILE, f"{kind}, MiB")
    rows = [
        (
            row.operator,
            f"{row.parameters}",
            f"{row.step_seconds:.4g}",
            f"{1 / row.step_seconds:.4g}",
            f"{row.step_bytes / 2**20:.4g}",
            f"{row.step_flops / 1e9:.4g}",
            f"{row.step_held_bytes / 2**20:.4g}" if row.step_held_bytes else "–",
        )
        for row in measured
    ]
    published = _published_costs(profile, measured, kind)
    words = [(label, entry.differs) for label, entry in profile.operators.items() if entry.differs]
    csv = Table(rows, header)
    for table in published:
        lines = [row + line[1:] for row, line in zip(rows, table.rows, strict=True)]
        csv = Table(lines, header + table.header[1:])
    write(run.folder / "table.csv", csv.csv.encode())
    fastest = min(measured, key=lambda row: row.step_seconds)
    what = (
        f"{profile.points} points, batch {profile.batch}: forward, relative L2 loss, backward and "
        "Adam, in float32, not compiled. GFLOP: matrix products, attention and convolutions, "
        "counted from their shapes. Peak MiB: all tensors. Memory of the device: what PyTorch "
        "reserves on a GPU; of the process, on a CPU: its resident memory, libraries included."
    )
    differs = [Table(words, ("operator", "differs"), words=True, name="differs")] if words else []
    costs = Section(
        "Costs of a training step",
        (what, *([profile.differs.strip()] if profile.differs else [])),
        (Table(rows, header), *published, *differs),
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


def _published_costs(profile: Profile, measured: Sequence[Row], held: str) -> list[Table]:
    """Table of the published costs beside the measured ones, which are in the same units.

    `held` says which memory the process holds. The list is empty if nothing is published.
    """
    if not any(entry.published for entry in profile.operators.values()):
        return []
    ours: dict[StepCost, tuple[str, str, Callable[[Row], float]]] = {
        "speed": ("steps / s", "steps / s", lambda row: 1 / row.step_seconds),
        "gflop": ("GFLOP", "GFLOP", lambda row: row.step_flops / 1e9),
        "memory": (
            f"{held}, GB", "memory of the device, GB", lambda row: row.step_held_bytes / 1e9
        ),
        "allocated": ("peak of tensors, GB", "CUDA mem, GB", lambda row: row.step_bytes / 1e9),
    }  # fmt: skip
    header, lines = ["operator"], list[tuple[str, ...]]()
    for here, there, _ in ours.values():
        header += [f"{here}, ours", f"{there}, published: {profile.source}"]
    for row in measured:
        line, published = [row.operator], profile.operators[row.operator].published
        for key, (_, _, value) in ours.items():
            line += [f"{value(row):.3g}" if value(row) else "–"]
            line += [f"{published[key]:.10g}" if key in published else ""]
        lines.append(tuple(line))
    return [Table(lines, tuple(header), name="published")]
