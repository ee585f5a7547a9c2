"""What a report says of a benchmark, and its table as CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import shlex
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
import torch
from matplotlib.figure import Figure

from operators.data import Pairs
from operators.training.checkpoint import load_checkpoint
from operators.training.evaluate import predictions
from operators.training.files import write
from operators.transforms import Predictor
from pdegen.store.store import open_sealed
from pipelines.declared.benchmark import Case, slug
from pipelines.declared.models import build_operator
from pipelines.reports import benchmark_charts as charts
from pipelines.reports.document import Picture, Report, Section, Table, markdown
from pipelines.reports.figures import svg
from pipelines.reports.wording import duration, points, scientific, settings
from pipelines.runs.reproduction import toml
from pipelines.studies.benchmark import BenchmarkRun, Row, baseline, by_case

_COLUMNS: tuple[str, ...] = (
    "dataset", "operator", "seeds", "parameters", "mean", "spread", "median", "epoch",
    "best on test", "best epoch", "published", "ratio to published", "training seconds",
    "step seconds", "step MiB", "step GFLOP", "chosen", "differs", "failed",
)  # fmt: skip
_STEP = ("step seconds", "step MiB", "step GFLOP")
_CHOSEN = {
    "validation": "The epoch is the one that is best on the validation split; the test split is "
                  "read once.",
    "published": "The epoch is the last one; the test samples were watched, as in the published "
                 "codes, and the epoch that is best on them is in a column of its own; published "
                 "figures are of such epochs, and are compared with that column.",
}  # fmt: skip
_UNSETTLED = 10.0  # loss of the last epoch / smallest loss


def write_benchmark_report(
    run: BenchmarkRun, device: torch.device, command: str | None = None
) -> Path:
    """Write report.html, report.md, table.csv, table.md, benchmark.toml and pictures/*.svg of
    finished rows.

    Args:
        run: The benchmark in its folder.
        device: What predictions of the pictures are computed on.
        command: What runs it again; None stands for the one with benchmark.toml.

    Returns:
        The path of report.html, which needs no other file.
    """
    rows = run.rows()
    lines = [_line(run, case, own) for case, own in by_case(rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    write(run.folder / "table.csv", text.getvalue().encode())
    declared = toml(run.benchmark.model_dump(mode="json", exclude_none=True))
    write(run.folder / "benchmark.toml", declared.encode())
    if command is None:
        stores = [word for name, url in run.stores.items() for word in ("--data", f"{name}={url}")]
        command = shlex.join(["pdegen", "benchmark", "benchmark.toml", *stores])
    report = _report(run, rows, device, command, declared)
    write(run.folder / "table.md", _markdown_tables(report).encode())
    return report.write(run.folder)


def _line(run: BenchmarkRun, case: Case, rows: list[Row]) -> dict[str, object]:
    """A line of the CSV file."""
    entry, finished = run.benchmark.operators[case.operator], [r for r in rows if not r.failed]
    line: dict[str, object] = {
        "dataset": case.dataset, "operator": case.operator, "seeds": len(finished),
        "differs": entry.differs, "failed": "; ".join(r.failed for r in rows if r.failed),
        "published": entry.published.get(case.dataset, ""),
    }  # fmt: skip
    if finished:
        means = [row.mean for row in finished]
        line |= {
            "parameters": finished[0].parameters,
            "mean": mean(means),
            "spread": stdev(means) if len(means) > 1 else "",
            "median": median(e for row in finished for e in row.errors),
            "epoch": " ".join(str(row.epoch) for row in finished),
            "training seconds": mean(row.training_seconds for row in finished),
            "step seconds": mean(row.step_seconds for row in finished),
            "step MiB": mean(row.step_bytes for row in finished) / 2**20,
            "step GFLOP": mean(row.step_flops for row in finished) / 1e9,
            "chosen": json.dumps(finished[0].chosen) if finished[0].chosen else "",
        }
        best = [row.best for row in finished if row.best is not None]
        if best:
            line["best on test"] = mean(best)
            line["best epoch"] = " ".join(str(row.best_epoch) for row in finished)
        if case.dataset in entry.published:  # their epochs, too, are the best on the test samples
            line["ratio to published"] = mean(best or means) / entry.published[case.dataset]
    return line


def _report(
    run: BenchmarkRun, rows: list[Row], device: torch.device, command: str, declared: str
) -> Report:
    benchmark = run.benchmark
    sections, headline = [], []
    for dataset in benchmark.datasets:
        found = {
            case.operator: own
            for case, own in by_case([r for r in rows if r.dataset == dataset and not r.failed])
        }
        means = {name: mean(row.mean for row in own) for name, own in found.items()}
        ranked = sorted(means, key=means.__getitem__)
        if ranked:
            headline.append((f"smallest error on {dataset} ({ranked[0]})",
                             scientific(means[ranked[0]])))  # fmt: skip
        failed = [row for row in rows if row.dataset == dataset and row.failed]
        by_rank = {name: found[name] for name in ranked}
        sections += _dataset_sections(run, dataset, by_rank, failed, device)
    missing = len(run.cases) * benchmark.seeds - len(rows)
    return Report(
        title=f"Benchmark {benchmark.name}",
        summary=benchmark.summary,
        notice=f"{missing} trainings are not finished yet." if missing else "",
        headline=headline,
        sections=[*sections, _reproduction_section(rows, command, declared)],
    )


def _dataset_sections(
    run: BenchmarkRun, dataset: str, found: dict[str, list[Row]], failed: list[Row],
    device: torch.device,
) -> list[Section]:  # fmt: skip
    """The table of a dataset and its charts; operators by rising error."""
    experiment, source = run.benchmark.datasets[dataset].load(), run.source(dataset)
    reference = baseline(source)
    means = {name: mean(row.mean for row in own) for name, own in found.items()}
    header = (
        "operator", "parameters", "mean error", "median", "epoch", "best on test", "published",
        "s / step", "MiB / step", "GFLOP / step", "training",
    )  # fmt: skip
    table = [_words(run, Case(dataset, name), own) for name, own in found.items()]
    table.append(("mean of the training targets", "", scientific(reference), *[""] * 8))
    # a column that says nothing is left out
    used = [i for i in range(len(header)) if any(line[i] for line in table)]
    table = [tuple(line[i] for i in used) for line in table]
    header = tuple(header[i] for i in used)
    notes = [f"{r.operator}, seed {r.seed}: {r.failed}" for r in failed]
    notes += _unsettled(run, dataset, found)
    sections = [
        Section(
            f"{dataset}: protocol",
            tables=(Table(_protocol(run, dataset)),),
        ),
        Section(
            f"{dataset}: errors and costs",
            (
                "Mean relative L² error of the test samples"
                + (" ± deviation over the seeds." if run.benchmark.seeds > 1 else ", one seed.")
                + f" {_CHOSEN[experiment.training.protocol]} A step is what training "
                "repeats: forward, loss, backward, clipping and optimizer on one batch, measured "
                "alone after all trainings. MiB: peak of what tensors take in it as written (on a "
                "GPU, of all that PyTorch holds, the samples included). GFLOP: matrix products, "
                "attention and convolutions, counted from their shapes.",
                *([run.benchmark.differs.strip()] if run.benchmark.differs else []),
                *notes,
            ),
            (Table(table, header), *_differences(run, dataset, list(found))),
        ),
    ]
    if not found:
        return sections
    costs = {
        "parameters": {name: float(own[0].parameters) for name, own in found.items()},
        "seconds of training": {
            name: mean(row.training_seconds for row in own) for name, own in found.items()
        },
    }
    pictures = [
        _picture(charts.errors_against_costs(costs, means, reference), f"{slug(dataset)}-costs",
                 "Error against parameters and against training time."),
        _picture(charts.learning_curves(_curves(run, found),
                                        experiment.training.selection_split),
                 f"{slug(dataset)}-learning", "Learning curves, seed 0."),
    ]  # fmt: skip
    if len(experiment.resolutions) > 1:
        sections.append(_resolution_section(run, dataset, found))
    pictures += _sample_pictures(run, dataset, found, device)
    sections.append(Section(f"{dataset}: pictures", pictures=tuple(pictures)))
    return sections


def _unsettled(run: BenchmarkRun, dataset: str, found: dict[str, list[Row]]) -> list[str]:
    """Trainings that lost what they had reached."""
    notes = []
    for name, rows in found.items():
        for row in rows:
            losses = [epoch.loss for epoch in run.history(row)]
            ratio = losses[-1] / min(losses)
            if ratio > _UNSETTLED:
                notes.append(f"{name}, seed {row.seed}: the training was unstable, the loss of its "
                             f"last epoch is {ratio:.3g} times its smallest.")  # fmt: skip
    return notes


def _words(run: BenchmarkRun, case: Case, rows: list[Row]) -> tuple[str, ...]:
    line = _line(run, case, rows)
    spread = f" ± {scientific(float(str(line['spread'])))}" if line["spread"] != "" else ""
    best = ""
    if "best on test" in line:
        best = f"{scientific(float(str(line['best on test'])))}, epoch {line['best epoch']}"
    published = ""
    if line["published"] != "":
        ratio = float(str(line["ratio to published"]))
        published = f"{scientific(float(str(line['published'])))} (x {ratio:.2f})"
    return (
        case.operator,
        f"{line['parameters']:,}",
        f"{scientific(float(str(line['mean'])))}{spread}",
        scientific(float(str(line["median"]))),
        str(line["epoch"]),
        best,
        published,
        *(f"{line[key]:.3g}" if line[key] else "–" for key in _STEP),
        duration(float(str(line["training seconds"]))),
    )


def _protocol(run: BenchmarkRun, dataset: str) -> list[tuple[str, ...]]:
    """What holds for all operators on a dataset."""
    experiment = run.benchmark.datasets[dataset].load()
    training = experiment.training.model_dump(mode="json", exclude_none=True)
    attributes = open_sealed(run.stores[dataset]).attributes
    searched = [f"{key} of {', '.join(map(str, values))}, by the validation error of seed 0"
                for key, values in run.benchmark.search.items()]  # fmt: skip
    dim = run.source(dataset).streamed("test").x.shape[-1]
    facts: list[tuple[str, ...]] = [
        ("Data", f"{attributes['recipe']['name']}: {attributes['title']}"),
        ("Map", f"{experiment.data.input} → {experiment.data.target} on "
                f"{points(experiment.data.resolution, dim)} points"),
        ("Samples", ", ".join(f"{name} {stop - start}"
                              for name, (start, stop) in attributes["splits"].items())),
        ("Training", settings(training)),
        ("Normalisation", settings(experiment.normalization.model_dump(exclude_none=True))),
        ("Searched", "; ".join(searched) or "nothing: the same settings for all"),
        ("Seeds", str(run.benchmark.seeds)),
    ]  # fmt: skip
    return facts


def _differences(run: BenchmarkRun, dataset: str, names: list[str]) -> list[Table]:
    """What each operator has of its own, and what differs from publications."""
    rows = []
    for name in names:
        entry = run.benchmark.operators[name]
        model = run.benchmark.model(Case(dataset, name))
        own = ", ".join(f"{key} {value}" for key, value in entry.overrides.items())
        note = "; ".join(part for part in (own, entry.differs) if part)
        given = model.model_dump(exclude_defaults=True, exclude={"name"})
        rows.append((name, f"{model.name} {settings(given)}".strip(), note))
    header = ("operator", "model, where not its defaults", "differs")
    if not any(note for _, _, note in rows):
        return [Table([row[:2] for row in rows], header[:2], words=True)]
    return [Table(rows, header, words=True)]


def _resolution_section(run: BenchmarkRun, dataset: str, found: dict[str, list[Row]]) -> Section:
    experiment = run.benchmark.datasets[dataset].load()
    grids = sorted(experiment.resolutions)
    means = {
        name: {n: mean(r.means[n] for r in own) for n in grids if all(n in r.means for r in own)}
        for name, own in found.items()
    }
    table: list[tuple[str, ...]] = []
    for name, by_grid in means.items():
        table.append((name, *(scientific(by_grid[n]) if n in by_grid else "–" for n in grids)))
        entry = run.benchmark.operators[name]
        published = dict(entry.published_grids.get(dataset, {}))
        if published:
            if dataset in entry.published:
                published[experiment.data.resolution] = entry.published[dataset]
            own = (scientific(published[n]) if n in published else "" for n in grids)
            table.append((f"{name}, published", *own))
    cannot = []
    for name, own in found.items():
        refused = [pair for row in own for pair in row.refused.items()]
        for reason in dict.fromkeys(why for _, why in refused):
            at = ", ".join(map(str, sorted({n for n, why in refused if why == reason})))
            cannot.append(f"{name} at {at}: {reason}")
    figure = charts.error_by_grid(means, experiment.data.resolution)
    return Section(
        f"{dataset}: other grids without training again",
        (f"Trained on {experiment.data.resolution} points of each axis; the same functions on all "
         "grids.", *cannot),
        (Table(table, ("operator", *map(str, grids))),),
        (_picture(figure, f"{slug(dataset)}-grids", "Error on each grid."),),
    )  # fmt: skip


def _curves(run: BenchmarkRun, found: dict[str, list[Row]]) -> dict[str, list[float]]:
    return {name: [epoch.score for epoch in run.history(rows[0])] for name, rows in found.items()}


def _sample_pictures(
    run: BenchmarkRun, dataset: str, found: dict[str, list[Row]], device: torch.device
) -> list[Picture]:
    """Predictions of one test sample, and on a line how each depends on the input."""
    experiment = run.benchmark.datasets[dataset].load()
    all_pairs = run.source(dataset).noisy("test")
    number = int(np.argsort(next(iter(found.values()))[0].errors)[len(all_pairs) // 2])
    chosen = slice(number, number + 1)
    pairs = replace(
        all_pairs, a=all_pairs.a[chosen], u=all_pairs.u[chosen], samples=all_pairs.samples[chosen]
    ).to(device)
    truth = pairs.u[0, ..., 0].cpu().numpy()
    predicted, matrices = {}, {}
    for name, own in found.items():
        path = run.folder_of(own[0]) / f"{experiment.training.reported[0]}.safetensors"
        predictor = load_checkpoint(path, build_operator)[0].to(device)
        predicted[name] = predictions(predictor, pairs)[0, ..., 0].cpu().numpy()
        if truth.ndim == 1:
            matrices[name] = _jacobian(predictor, pairs)
    which = f"Test sample {pairs.samples[0]}, the median of the operator with the smallest error"
    if truth.ndim == 1:
        x = pairs.target_points[:, 0].cpu().numpy()
        figure = charts.predictions_on_a_line(x, truth, predicted)
    else:
        figure = charts.predictions_on_a_square(truth, predicted)
    pictures = [_picture(figure, f"{slug(dataset)}-predictions", f"{which}; seed 0.")]
    if matrices:
        caption = (
            "How the trained operators couple points: derivative of the predicted u(y) by a(x) at "
            "that sample, y upwards, x to the right."
        )
        figure = charts.couplings(matrices)
        pictures.append(_picture(figure, f"{slug(dataset)}-couplings", caption))
    return pictures


def _jacobian(predictor: Predictor, pairs: Pairs) -> np.ndarray:
    """∂u(y)/∂a(x) of the first channels at a sample on a line, [y, x]; at 128 points y or fewer."""
    a = pairs.a[:1].clone().requires_grad_(True)
    u = predictor(a, pairs.x, pairs.y)[0, :, 0]
    values = u[:: -(-len(u) // 128)]
    rows = [torch.autograd.grad(value, a, retain_graph=True)[0][0, :, 0] for value in values]
    return torch.stack(rows).cpu().numpy()


def _picture(figure: Figure, name: str, caption: str) -> Picture:
    return Picture(name, caption, svg(figure, name, caption))


def _markdown_tables(report: Report) -> str:
    """The tables of errors alone."""
    parts = [s for s in report.sections if "errors and costs" in s.title or "grids" in s.title]
    bare = [Section(s.title, s.text, s.tables) for s in parts]
    return markdown(Report(report.title, report.summary, report.notice, report.headline, bare))


def _reproduction_section(rows: list[Row], command: str, declared: str) -> Section:
    made = dict.fromkeys(settings(row.provenance) for row in rows if row.provenance)
    return Section(
        "How to reproduce it",
        ("This command runs it again; what it declares is in benchmark.toml, and here.",),
        (Table([("Run", one) for one in made]),),
        code=(command, declared),
    )
