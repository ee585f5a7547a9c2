"""What a report says of a finished run."""

from pathlib import Path

import torch

from pdegen.generation.log import runs
from pipelines.reports import charts, formulas, predictions, scores
from pipelines.reports.document import Report, Section, Table
from pipelines.reports.facts import distinct, facts
from pipelines.reports.figures import picture
from pipelines.reports.wording import duration, points, scientific, settings
from pipelines.runs.finished import FinishedRun, read_finished
from pipelines.runs.reproduction import described, reproduction, toml

NOTICE = (
    "Published protocol: selected/watched on the test slice, for comparison with published tables. "
    "These are not scores on unseen data."
)


def write_report(folder: Path, store: str, device: torch.device) -> Path:
    """Write report.html, report.md, pictures and tables of a finished run.

    Nothing is trained, and nothing is predicted where the run has kept its predictions.

    Raises:
        ReportError: If the folder is no finished run, is damaged, or is of other data.
        StoreError: If the store is absent or unfinished.
    """
    return _report(read_finished(folder, store, device)).write(folder)


def _report(run: FinishedRun) -> Report:
    main, experiment = run.main, run.experiment
    where = f"test slice, {main.checkpoint} epoch" if run.published else "test split"
    grid = points(main.resolution, run.pairs.domain)
    return Report(
        title=experiment.name,
        summary=described(experiment),
        notice=NOTICE if run.published else "",
        headline=[
            (f"mean relative L² error, {where}, n = {grid}", scientific(main.mean)),
            ("parameters of the model", f"{run.scores.parameters:,}"),
            (f"training, {len(run.history)} epochs", duration(run.scores.training_seconds)),
            ("training samples", f"{distinct(run):,}"),
        ],
        sections=[
            Section("What was run", tables=(Table(facts(run)),), formulas=formulas.of_run(run)),
            scores.section(run),
            _learning_section(run),
            predictions.section(run),
            _cost_section(run),
            _provenance_section(run),
            _reproduction_section(run),
        ],
    )


def _learning_section(run: FinishedRun) -> Section:
    loss, best = run.experiment.training.loss.name, min(run.history, key=lambda e: e.score)
    watched = "test slice (published protocol)" if run.published else "validation split"
    caption = (
        f"Training loss ({loss}) and mean relative L² error on the {watched} after "
        f"each of {len(run.history)} epochs; smallest {scientific(best.score)} in epoch "
        f"{best.epoch}. The dotted line is the learning rate."
    )
    drawn = picture(charts.learning_curve(run.history, loss, watched), "learning-curve", caption)
    return Section("Learning curve", pictures=(drawn,))


def _cost_section(run: FinishedRun) -> Section:
    seconds = run.scores.training_seconds
    device, threads = (run.scores.provenance[key] for key in ("device", "threads"))
    costs: list[tuple[str, ...]] = [
        ("Training", f"{duration(seconds)} for {len(run.history)} epochs"),
        ("Each epoch", duration(seconds / len(run.history))),
        ("Parameters", f"{run.scores.parameters:,}"),
        ("Evaluated on", f"{device}, threads {threads}"),
    ]
    rows: list[tuple[str, ...]] = [
        (r.checkpoint, points(r.resolution, run.pairs.domain), f"{len(r.samples):,}",
         f"{r.seconds:.3g}", f"{1e3 * r.seconds / len(r.samples):.3g}")
        for r in run.scores.results
    ]  # fmt: skip
    header = ("evaluation", "points", "samples", "seconds", "ms per sample")
    tables = Table(costs, name="training"), Table(rows, header, name="evaluation")
    return Section("Cost", tables=tables)


def _provenance_section(run: FinishedRun) -> Section:
    attributes, held = run.store.raw_attributes, run.store.metadata
    origin = [
        ("Run", settings(run.scores.provenance)),
        ("Data made by", settings(attributes["provenance"])),
        *(("Data made on", made) for made in runs(run.store.objects)),
        ("Store", str(run.store.url)),
        ("Fingerprint", held.fingerprint),
        ("Content digest", held.content),
    ]
    text = "The fingerprint is that of the recipe, the content digest that of the data."
    return Section(
        "Provenance",
        (text,),
        (Table(origin),),
        listings=(("recipe of the data", f"# recipe\n{toml(attributes['recipe'])}"),),
    )


def _reproduction_section(run: FinishedRun) -> Section:
    command = reproduction(run.experiment, run.store)
    declared = f"# experiment\n{toml(run.experiment.model_dump(mode='json'))}"
    if run.scores.provenance["device"].startswith("cuda"):
        command += " --device cuda"
    text = "This command runs it again; all its settings are below."
    if command.startswith("pdegen run experiment.toml"):
        text = "Save the declaration below as experiment.toml; this command runs it again."
    listed = ("declaration of the experiment", declared)
    return Section("How to reproduce it", (text,), code=(command,), listings=(listed,))
