"""What a report says of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from operators.norms import relative_l2
from pipelines import charts
from pipelines.document import Picture, Report, Section, Table
from pipelines.figures import closed, periodic, svg
from pipelines.finished import FinishedRun, read_finished
from pipelines.reproduction import reproduction, toml
from pipelines.wording import TAGS, duration, in_words, scientific, settings

NOTICE = (
    "Published protocol: selected/watched on the test slice, for comparison with published tables. "
    "These are not scores on unseen data."
)
PROTOCOLS = {
    "validation": "The epoch with the smallest mean error on the validation split is reported; "
    "the test split was read once, after training.",
    "published": "The test slice was watched after every epoch; the last epoch and the best one "
    "on the test slice itself are reported.",
}
_LAWS = {
    "periodic-gaussian": "N(0, {sigma}²(−Δ + {tau}²)^(−{alpha})) on the circle of length 1, "
    "without its mean, {modes} modes",
}


def write_report(folder: Path, store: str, device: torch.device) -> Path:
    """Write report.html, report.md and pictures/*.svg of a finished run.

    Nothing is trained; one checkpoint predicts the test split for the pictures.

    Args:
        folder: Folder of the run.
        store: The store that it was evaluated on.
        device: Where to predict.

    Returns:
        The path of report.html, which needs no other file.

    Raises:
        ReportError: If the folder is no finished run, is damaged, or is of other data.
        StoreError: If the store is absent or unfinished.
    """
    return _report(read_finished(folder, store, device)).write(folder)


def _report(run: FinishedRun) -> Report:
    main, experiment = run.main, run.experiment
    splits = run.store.attributes["splits"]
    train = splits["train"][1] - splits["train"][0]
    where = f"test slice, {main.checkpoint} epoch" if run.published else "test split"
    return Report(
        title=experiment.name,
        summary=experiment.summary,
        notice=NOTICE if run.published else "",
        headline=[
            (f"mean relative L² error, {where}, n = {main.resolution}", scientific(main.mean)),
            ("parameters of the model", f"{run.scores.parameters:,}"),
            (f"training, {len(run.history)} epochs", duration(run.scores.training_seconds)),
            ("training samples", f"{train:,}"),
        ],
        sections=[
            Section("What was run", tables=(Table(_facts(run)),)),
            _score_section(run),
            _learning_section(run),
            _prediction_section(run),
            _cost_section(run),
            _provenance_section(run),
            _reproduction_section(run),
        ],
    )


def _facts(run: FinishedRun) -> list[tuple[str, ...]]:
    experiment, attributes = run.experiment, run.store.attributes
    recipe, problem = attributes["recipe"], attributes["recipe"]["problem"]
    training, model = (
        part.model_dump(mode="json") for part in (experiment.training, experiment.model)
    )
    protocol, optimizer = training.pop("protocol"), training.pop("optimizer")
    momentum = "cycled" if experiment.training.optimizer.cycle_momentum else "constant"
    splits = {k: f"{stop - start:,}" for k, (start, stop) in attributes["splits"].items()}
    parts = {key: value for key, value in problem.items() if isinstance(value, dict)}
    constants = {k: v for k, v in problem.items() if k not in parts and k not in TAGS}
    errors = np.asarray(run.store.array("error")[...])
    median, worst = scientific(float(np.median(errors))), scientific(errors.max())
    return [
        ("Equation", attributes["equation"]),
        ("Data", f"{recipe['name']}: {attributes['title']}"),
        ("Constants", settings(constants)),
        *((key.capitalize(), _law(part)) for key, part in parts.items()),
        ("Samples", f"{run.store.samples:,}; {settings(splits)}; seed {recipe['seed']}"),
        ("Error of the data", f"median {median}, worst {worst} (the solver's own estimate)"),
        ("Model", f"{model.pop('name')}, {run.scores.parameters:,} parameters"),
        ("Model settings", settings(model)),
        ("Trained on", f"n = {experiment.data.resolution} points"),
        ("Optimizer", f"{in_words(optimizer)}, momentum {momentum}"),
        ("Training", settings(training)),
        ("Protocol", f"{protocol}: {PROTOCOLS[protocol]}"),
    ]


def _law(part: Mapping[str, Any]) -> str:
    """A law as its formula, or a part of a recipe in words."""
    if part.get("law") in _LAWS:
        return _LAWS[part["law"]].format(**{k: in_words(v) for k, v in part.items()})
    return settings(part)


def _score_section(run: FinishedRun) -> Section:
    how = {"last": "last (watched on the test slice)", "best": "best (selected on the test slice)"}
    rows: list[tuple[str, ...]] = [
        (
            how[r.checkpoint] if run.published else r.checkpoint,
            str(r.epoch), f"{r.resolution:,}", f"{r.samples:,}",
            *map(scientific, (r.mean, r.median, r.worst, r.std)),
        )
        for r in run.scores.results
    ]  # fmt: skip
    header = ("checkpoint", "epoch", "points", "samples", "mean", "median", "worst", "spread")
    meaning = (
        f"Relative L² error ‖p − u‖/‖u‖ of each sample of the test "
        f"{'slice' if run.published else 'split'}; spread is the standard deviation over the "
        "samples."
    )
    points = grids(run.experiment.data.resolution, {r.resolution for r in run.scores.results})
    return Section("Scores", (meaning, points), (Table(rows, header),))


def grids(trained: int, evaluated: set[int]) -> str:
    """On how many points it was trained and evaluated, in words.

    >>> grids(512, {512})
    'Trained and evaluated on n = 512 points.'
    """
    others = ", ".join(map(str, sorted(evaluated - {trained})))
    if not others:
        return f"Trained and evaluated on n = {trained} points."
    return (
        f"Trained on n = {trained} points alone. On n = {others} the same weights are evaluated "
        "without training again (zero-shot)."
    )


def _learning_section(run: FinishedRun) -> Section:
    loss, best = run.experiment.training.loss.name, min(run.history, key=lambda e: e.score)
    watched = "test slice (published protocol)" if run.published else "validation split"
    caption = (
        f"Training loss ({loss}) and mean relative L² error on the {watched} after "
        f"each of {len(run.history)} epochs; smallest {scientific(best.score)} in epoch "
        f"{best.epoch}. The dotted line is the learning rate."
    )
    figure = charts.learning_curve(run.history, loss, watched)
    return Section("Learning curve", pictures=(_picture(figure, "learning-curve", caption),))


def _prediction_section(run: FinishedRun) -> Section:
    errors = relative_l2(run.prediction.double(), run.pairs.u.double()).numpy()
    u, p, x = run.pairs.u.numpy(), run.prediction.numpy(), run.pairs.x[:, 0].numpy()
    first = run.pairs.samples[0]
    times = np.atleast_1d(run.store.array("time")[...]).tolist()
    named = ", ".join(
        f"{name} (sample {first + i}) {scientific(errors[i])}"
        for name, i in charts.ranked(errors).items()
    )
    curves = (closed(x), periodic(u, 1), periodic(p, 1)) if run.pairs.periodic else (x, u, p)
    found = [_picture(
        charts.best_median_worst(*curves, errors, first, times), "predictions",
        "Prediction p over the truth u, and beneath it the error p − u on its own scale. "
        f"Relative L² error: {named}.",
    )]  # fmt: skip
    if run.pairs.periodic:
        modes = run.experiment.model.modes
        found.append(_picture(
            charts.error_spectrum(u, p, modes), "error-spectrum",
            "Spectrum: mean size of the Fourier coefficients of target and error. "
            f"The decoder keeps the modes below {modes}.", half=True,
        ))  # fmt: skip
    found.append(_picture(
        charts.error_histogram(errors), "error-histogram",
        f"Errors of the {len(errors)} test samples: median {scientific(float(np.median(errors)))}, "
        f"worst {scientific(errors.max())}.", half=True,
    ))  # fmt: skip
    text = (
        f"The checkpoint “{run.checkpoint}” on the test samples "
        f"at n = {run.experiment.data.resolution}."
    )
    return Section("Predictions and their errors", (text,), pictures=tuple(found))


def _picture(figure: Figure, name: str, caption: str, half: bool = False) -> Picture:
    return Picture(name, caption, svg(figure, name, caption), half)


def _cost_section(run: FinishedRun) -> Section:
    seconds = run.scores.training_seconds
    device, threads = (run.scores.provenance[key] for key in ("device", "threads"))
    facts: list[tuple[str, ...]] = [
        ("Training", f"{duration(seconds)} for {len(run.history)} epochs"),
        ("Each epoch", duration(seconds / len(run.history))),
        ("Parameters", f"{run.scores.parameters:,}"),
        ("Evaluated on", f"{device}, threads {threads}"),
    ]
    rows: list[tuple[str, ...]] = [
        (r.checkpoint, f"{r.resolution:,}", f"{r.samples:,}", f"{r.seconds:.3g}",
         f"{1e3 * r.seconds / r.samples:.3g}")
        for r in run.scores.results
    ]  # fmt: skip
    header = ("evaluation", "points", "samples", "seconds", "ms per sample")
    return Section("Cost", tables=(Table(facts), Table(rows, header)))


def _provenance_section(run: FinishedRun) -> Section:
    attributes = run.store.attributes
    facts = [
        ("Run", settings(run.scores.provenance)),
        ("Data made by", settings(attributes["provenance"])),
        ("Store", str(run.store.url)),
        ("Fingerprint", attributes["fingerprint"]),
        ("Content digest", attributes["content"]),
    ]
    text = "The fingerprint is that of the recipe, the content digest that of the data."
    return Section(
        "Provenance", (text,), (Table(facts),), code=(f"# recipe\n{toml(attributes['recipe'])}",)
    )


def _reproduction_section(run: FinishedRun) -> Section:
    command = reproduction(run.experiment, run.store)
    declared = f"# experiment\n{toml(run.experiment.model_dump(mode='json'))}"
    if run.scores.provenance["device"].startswith("cuda"):
        command += " --device cuda"
    text = "This command runs it again; all its settings are below."
    if command.startswith("pdegen run experiment.toml"):
        text = "Save the declaration below as experiment.toml; this command runs it again."
    return Section("How to reproduce it", (text,), code=(command, declared))
