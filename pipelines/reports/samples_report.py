"""What a report says of a study of the number of training samples."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, median, stdev

import torch
from matplotlib.figure import Figure

from operators.training.files import write
from pdegen.store.store import open_sealed
from pipelines.declared.experiment import Experiment
from pipelines.reports import benchmark_charts, study_charts
from pipelines.reports.document import Picture, Report, Section, Table, markdown
from pipelines.reports.figures import svg
from pipelines.reports.wording import duration, points, scientific, settings
from pipelines.runs.reproduction import toml
from pipelines.studies.benchmark import BenchmarkRun, Row, baseline, by_case


def write_samples_report(run: BenchmarkRun, device: torch.device, command: str) -> Path:
    """Write report.html, report.md, table.md and pictures/*.svg of finished rows.

    Args:
        run: A `samples_study` in its folder.
        device: Not used: nothing is predicted.
        command: What runs it again.

    Returns:
        The path of report.html, which needs no other file.
    """
    rows = [row for row in run.rows() if not row.failed]
    found = {case.dataset: own for case, own in by_case(rows)}
    errors = {name: mean(row.mean for row in own) for name, own in found.items()}
    main = _main_section(run, found, errors)
    missing = len(run.cases) * run.benchmark.seeds - len(rows)
    report = Report(
        title=f"Study {run.benchmark.name}",
        summary=run.benchmark.summary,
        notice=f"{missing} trainings failed or are not finished." if missing else "",
        headline=[(f"mean relative L² error, {name}", scientific(e)) for name, e in errors.items()],
        sections=[_what_section(run), main, _reproduction_section(run, rows, command)],
    )
    bare = Section(main.title, main.text, main.tables)
    table = markdown(Report(report.title, report.summary, report.notice, report.headline, [bare]))
    write(run.folder / "table.md", table.encode())
    return report.write(run.folder)


def _experiments(run: BenchmarkRun) -> dict[str, Experiment]:
    return {name: dataset.load() for name, dataset in run.benchmark.datasets.items()}


def _steps(experiment: Experiment) -> int:
    epoch, training = experiment.data.epoch_samples, experiment.training
    assert epoch is not None
    return training.epochs * (epoch // training.batch)


def _what_section(run: BenchmarkRun) -> Section:
    name, experiment = next(iter(_experiments(run).items()))
    attributes = open_sealed(run.stores[name]).attributes
    splits = {k: stop - start for k, (start, stop) in attributes["splits"].items()}
    training, data = experiment.training, experiment.data
    dim = run.source(name).streamed("test").x.shape[-1]
    model = experiment.model.model_dump(mode="json", exclude_defaults=True)
    facts: list[tuple[str, ...]] = [
        ("Data", f"{attributes['recipe']['name']}: {attributes['title']}"),
        ("Map", f"{data.input} → {data.target} on {points(data.resolution, dim)} points"),
        ("Model", settings({"name": experiment.model.name, **model})),
        ("Steps", f"{_steps(experiment):,} with each number of samples, "
                  f"{training.batch} samples a step, evaluated {training.epochs} times"),
        ("Training", settings(training.model_dump(mode="json", exclude={"seed"}))),
        ("The same for all", f"{splits['validation']:,} validation and {splits['test']:,} test "
                             "samples of one store"),
        ("Stored samples", "the first ones of its training split, in random order, pass by pass"),
        ("Unlimited", "solved while training, with numbers that no store has; each is used once"),
        ("Seeds", str(run.benchmark.seeds)),
    ]  # fmt: skip
    return Section("What was studied", tables=(Table(facts),))


def _main_section(
    run: BenchmarkRun, found: dict[str, list[Row]], errors: dict[str, float]
) -> Section:
    experiments = _experiments(run)
    seen = {name: _steps(e) * e.training.batch for name, e in experiments.items()}
    table = []
    for name, own in found.items():
        number = experiments[name].data.samples
        spread = f" ± {scientific(stdev(r.mean for r in own))}" if len(own) > 1 else ""
        losses = [run.history(row)[-1].loss for row in own]
        table.append((
            f"{number:,}" if number else f"unlimited ({seen[name]:,})",
            f"{seen[name] / number:.3g}" if number else "1",
            f"{scientific(errors[name])}{spread}",
            scientific(median(e for row in own for e in row.errors)),
            scientific(mean(losses)),
            duration(mean(row.training_seconds for row in own)),
        ))  # fmt: skip
    if found:
        reference = scientific(baseline(run.source(next(iter(found)))))
        table.append(("mean of the targets", "", reference, "", "", ""))
    header = (
        "distinct samples",
        "passes",
        "mean error",
        "median",
        "last training loss",
        "training",
    )
    loss = next(iter(experiments.values())).training.loss.name
    text = (
        "Relative L² error of the test samples, of the checkpoint that the protocol reports"
        + (", mean ± deviation over the seeds" if run.benchmark.seeds > 1 else "")
        + f". The training loss is {loss}, the mean over the last epoch."
    )
    return Section(
        "Error against the number of samples", (text, *_lessons(experiments, errors)),
        (Table(table, header),), tuple(_pictures(run, found, errors, experiments, seen)),
    )  # fmt: skip


def _lessons(experiments: dict[str, Experiment], errors: dict[str, float]) -> list[str]:
    """A sentence that the numbers themselves give."""
    stored = {name: n for name in errors if (n := experiments[name].data.samples) is not None}
    streamed = [name for name in errors if name not in stored]
    if not stored or not streamed:
        return []
    least, most = min(stored, key=stored.__getitem__), max(stored, key=stored.__getitem__)
    ratios = [
        f"{errors[name] / errors[streamed[0]]:.2f} times with {name}"
        for name in dict.fromkeys((least, most))
    ]
    return [f"After as many steps the error is {' and '.join(ratios)} that of the stream."]


def _pictures(
    run: BenchmarkRun, found: dict[str, list[Row]], errors: dict[str, float],
    experiments: dict[str, Experiment], seen: dict[str, int],
) -> list[Picture]:  # fmt: skip
    if not found:
        return []
    stored = sorted((n, errors[k]) for k in errors if (n := experiments[k].data.samples))
    streamed = next(
        ((seen[k], errors[k]) for k in errors if experiments[k].data.samples is None), None
    )
    curves = {name: [e.score for e in run.history(own[0])] for name, own in found.items()}
    watched = next(iter(experiments.values())).training.selection_split
    return [
        _picture(study_charts.error_by_samples(
            [n for n, _ in stored], [e for _, e in stored], streamed), "samples",
            "Mean test error against the number of distinct samples, at equal steps."),
        _picture(benchmark_charts.learning_curves(curves, watched), "learning",
                 "Learning curves, seed 0."),
    ]  # fmt: skip


def _picture(figure: Figure, name: str, caption: str) -> Picture:
    return Picture(name, caption, svg(figure, name, caption))


def _reproduction_section(run: BenchmarkRun, rows: list[Row], command: str) -> Section:
    made = dict.fromkeys(settings(row.provenance) for row in rows if row.provenance)
    declared = toml(run.benchmark.model_dump(mode="json", exclude_none=True))
    return Section(
        "How to reproduce it",
        ("This command runs it again; what it declares is below.",),
        (Table([("Run", one) for one in made]),),
        code=(command, declared),
    )
