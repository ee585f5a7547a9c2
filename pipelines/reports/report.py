"""What a report says of a finished run."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, median

import numpy as np
import torch

from operators.data import InTime
from pdegen.domains import Box, Domain
from pipelines.reports import attention, bodies, charts, trajectories
from pipelines.reports.document import Picture, Report, Section, Table
from pipelines.reports.facts import distinct, facts
from pipelines.reports.figures import picture
from pipelines.reports.pictures import functions_of
from pipelines.reports.sheets import Functions, few
from pipelines.reports.wording import duration, points, scientific, settings
from pipelines.runs.baselines import compared, trivial_predictions
from pipelines.runs.finished import FinishedRun, read_finished
from pipelines.runs.interfaces import at_interface, phases
from pipelines.runs.measures import MEASURES
from pipelines.runs.reproduction import reproduction, toml
from pipelines.runs.score import times_in

NOTICE = (
    "Published protocol: selected/watched on the test slice, for comparison with published tables. "
    "These are not scores on unseen data."
)
_BESIDE = "beside predictions that do not learn"


def write_report(folder: Path, store: str, device: torch.device) -> Path:
    """Write report.html, report.md, pictures and tables of a finished run.

    Nothing is trained, and nothing is predicted where the run has kept its predictions.

    Args:
        folder: Folder of the run.
        store: The store that it was evaluated on.
        device: Where to predict, where no predictions are kept.

    Returns:
        The path of report.html, which needs no other file.

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
        summary=experiment.summary,
        notice=NOTICE if run.published else "",
        headline=[
            (f"mean relative L² error, {where}, n = {grid}", scientific(main.mean)),
            ("parameters of the model", f"{run.scores.parameters:,}"),
            (f"training, {len(run.history)} epochs", duration(run.scores.training_seconds)),
            ("training samples", f"{distinct(run):,}"),
        ],
        sections=[
            Section("What was run", tables=(Table(facts(run)),)),
            _score_section(run),
            _learning_section(run),
            _prediction_section(run),
            *attention.sections(run),
            _cost_section(run),
            _provenance_section(run),
            _reproduction_section(run),
        ],
    )


def _score_section(run: FinishedRun) -> Section:
    how = {"last": "last (watched on the test slice)", "best": "best (selected on the test slice)"}
    rows: list[tuple[str, ...]] = [
        (
            how[r.checkpoint] if run.published else r.checkpoint,
            str(r.epoch), points(r.resolution, run.pairs.domain), f"{len(r.samples):,}",
            *map(scientific, (r.mean, r.median, r.worst, r.std)),
        )
        for r in run.scores.results
    ]  # fmt: skip
    header = ("checkpoint", "epoch", "points", "samples", "mean", "median", "worst", "spread")
    u = run.experiment.data.target
    meaning = (
        f"Relative L² error ‖p − {u}‖/‖{u}‖ of each sample of the test "
        f"{'slice' if run.published else 'split'}; spread is the standard deviation over the "
        "samples."
    )
    data, evaluated = run.experiment.data, {r.resolution for r in run.scores.results}
    comparison, table = _comparison(run)
    return Section(
        "Scores", (meaning, grids(data.resolution, evaluated, run.pairs.domain), *comparison),
        (
            Table(rows, header, name="of each checkpoint on each grid"), table, *_further(run),
            *_by_part(run),
        ),
    )  # fmt: skip


def _further(run: FinishedRun) -> list[Table]:
    """Mean and median by the other measures, beside trivial predictors."""
    every = {f"model ({run.checkpoint})": run.main, **run.trivial}
    columns = [
        (f"{said}, {word}", name, of)
        for name, said in MEASURES.items()
        if name in run.main.measures
        for word, of in (("mean", mean), ("median", median))
    ]
    rows = [
        (said, *(scientific(of(score.measures[name])) if name in score.measures else ""
                 for score in every.values()))
        for said, name, of in columns
    ]  # fmt: skip
    return [Table(rows, ("measure", *every), name="other measures")] if rows else []


def _by_part(run: FinishedRun) -> list[Table]:
    """Mean errors of a few channels, and of all times where there are several."""
    every = {f"model ({run.checkpoint})": run.main, **run.trivial}
    found = []
    for what, key in (("channel", "channels"), ("time", "steps")):
        names = list(getattr(run.main, key))
        timed = key == "steps" or len(times_in(run.pairs.target_channels)) == len(names)
        rows = [
            (name, *(scientific(getattr(score, key)[name]) for score in every.values()))
            for name in (names if timed else few(names, 12))
        ]
        found += [Table(rows, (what, *every), name=f"by {what}")] if rows else []
    return found


def _comparison(run: FinishedRun) -> tuple[tuple[str, ...], Table]:
    """The model beside the baselines on its training grid, and what the columns mean."""
    text: tuple[str, ...] = (
        f"The table “{_BESIDE}” is of the same {len(run.pairs)} samples at n = "
        f"{points(run.experiment.data.resolution, run.pairs.domain)}.",
    )
    header: tuple[str, ...] = ("prediction", "mean", "median", "worst", "spread")
    rows = []
    for name, found in compared(run).items():
        errors = found.errors
        row = map(scientific, (errors.mean(), np.median(errors), errors.max(), errors.std()))
        rows.append((name, *row))
        if found.iou is not None and found.hausdorff is not None:
            rows[-1] += (f"{found.iou.mean():.3f}", f"{found.hausdorff.mean():.3f}")
    if run.target_phases is not None:
        header += ("IoU", "Hausdorff")
        low, high = run.target_phases
        text += (
            f"Interface: a value above {(low + high) / 2:g} belongs to the phase {high:g}, in "
            "prediction and truth. IoU is the intersection over union |P ∩ Q|/|P ∪ Q|, the mean of "
            "both phases; Hausdorff is the Hausdorff distance of the interfaces, the side of the "
            "square being 1, and √2 where no interface is predicted. Means over the samples.",
        )
    return text, Table(rows, header, name=_BESIDE)


def grids(trained: int, evaluated: set[int], on: int | Domain = 1) -> str:
    """On how many points it was trained and evaluated, in words.

    >>> grids(512, {512})
    'Trained and evaluated on n = 512 points.'
    """
    grid = points(trained, on)
    others = ", ".join(points(n, on) for n in sorted(evaluated - {trained}))
    if not others:
        return f"Trained and evaluated on n = {grid} points."
    return (
        f"Trained on n = {grid} points alone. On n = {others} the same weights are evaluated "
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
    return Section("Learning curve", pictures=(picture(figure, "learning-curve", caption),))


def _prediction_section(run: FinishedRun) -> Section:
    errors = run.errors(run.prediction)[:, 0]
    numbers = run.pairs.samples
    named = ", ".join(
        f"{name} (sample {numbers[i]}) {scientific(errors[i])}"
        for name, i in charts.ranked(errors).items()
    )
    inputs, truth = functions_of(run)
    predicted = run.prediction.numpy()
    noisy = run.experiment.noise is not None
    # positions, and the body above, are seen in the truth
    role = run.store.arrays[inputs.channels[0].variable].said.role
    shape = role == "geometry" or truth.above is not None
    figure = charts.predictions(
        None if shape else inputs, truth, predicted, errors, numbers.tolist(), noisy
    )
    u = truth.look.name
    explained = (
        f"Prediction p over the truth {u}, and beneath it the error p − {u} on its own scale."
    )
    if truth.domain.dim > 1:
        seen = "with the noise that the model sees" if noisy else "as the model sees it"
        explained = (
            f"{'Truth' if shape else 'Input, truth'} {u}, prediction p and error p − {u} on its "
            "own scale; truth and prediction of a sample have the same one. x points to the "
            f"right, y upwards.{'' if shape else f' The input is drawn {seen}.'}"
        )
        if truth.near is not None:
            (left, low), (right, high) = truth.near
            explained += f" Drawn are x from {left:g} to {right:g}, y from {low:g} to {high:g}."
    drawn = ", ".join(truth.names[c] for c in truth.chosen(charts.FEW))
    few = (
        f" Of {len(truth.names)} channels these are drawn: {drawn}." if len(truth.names) > 1 else ""
    )
    found = [picture(
        figure, "predictions", f"{explained}{few} Relative L² error: {named}."
    )]  # fmt: skip
    found += _bodies(run, truth, predicted, charts.ranked(errors))
    if truth.domain.dim == 1 and run.pairs.periodic:
        found.append(_spectrum(run))
    elif truth.domain.dim > 1 and not truth.domain.moves:
        found.append(_where(run, truth, predicted - truth.values))
    if len(truth.times) > 1:
        found += _in_time(run, truth, predicted)
    found.append(picture(
        charts.error_histogram(errors), "error-histogram",
        f"Errors of the {len(errors)} test samples: median {scientific(float(np.median(errors)))}, "
        f"worst {scientific(errors.max())}.", half=True,
    ))  # fmt: skip
    if len(truth.times) > 1 and truth.domain.dim > 1:
        found += _frames(run, truth, predicted, charts.ranked(errors)["median"])
    text = (
        f"The checkpoint “{run.checkpoint}” on the test samples "
        f"at n = {points(run.experiment.data.resolution, run.pairs.domain)}."
    )
    return Section("Predictions and their errors", (text,), pictures=tuple(found))


def _bodies(
    run: FinishedRun, truth: Functions, predicted: np.ndarray, samples: dict[str, int]
) -> list[Picture]:
    """What a body above does to the points, and values along what a mesh goes around."""
    found = list[Picture]()
    if truth.above is not None:
        found.append(picture(
            bodies.deformed(truth, predicted, samples), "deformed",
            f"Where {truth.look.name} takes the points, under the body above: grey in truth, lines "
            "as predicted.",
        ))  # fmt: skip
    if truth.look.along is not None:
        titles = {f"{name}: sample {run.pairs.samples[i]}": i for name, i in samples.items()}
        found.append(picture(
            bodies.along(truth, predicted, titles), "along",
            f"{truth.look.along.symbol} along what the mesh goes around, against x.",
        ))  # fmt: skip
    return found


def _in_time(run: FinishedRun, truth: Functions, predicted: np.ndarray) -> list[Picture]:
    """Errors at each time and, on a periodic box, the power of each scale."""
    task, last = run.experiment.learned, truth.times[-1]
    beside = {
        name.partition(",")[0]: run.errors(values, len(truth.times)).mean(axis=0)
        for name, values in trivial_predictions(run).items()
    }
    seen = None
    if isinstance(task, InTime) and task.frames is not None:
        seen = truth.times[task.frames - task.first - 1]
    found = [picture(
        charts.error_by_time(truth.times, _by_time(run, truth), beside, seen), "error-by-time",
        "Relative L² error at each time: the mean over the test samples, and the range of nine "
        "in ten of them; beside it predictions that do not learn.", half=True,
    )]  # fmt: skip
    if truth.domain.dim > 1 and run.pairs.periodic and run.pairs.y is None:
        found.append(picture(
            trajectories.spectrum(truth, predicted, last), "spectrum",
            f"Power at t = {last:g} in each shell of wave numbers, Σ |û(k)|² over k − ½ ≤ |k| < "
            "k + ½: the mean over the test samples.", half=True,
        ))  # fmt: skip
    return found


def _frames(run: FinishedRun, truth: Functions, predicted: np.ndarray, i: int) -> list[Picture]:
    """One sample at a few times and, on a box, moving."""
    u = truth.look.name
    what = f"sample {run.pairs.samples[i]}, the median: truth {u}, prediction p and difference"
    caption = f"Frames of {what} p − {u}, on one scale of colours."
    found = [picture(trajectories.frames(truth, predicted, i), "frames", caption)]
    if isinstance(truth.domain, Box) and not truth.look.moves:
        caption = f"All times of {what} p − {u}, on one scale of colours."
        drawn = trajectories.animation(truth, predicted, i, caption)
        found.append(Picture("animation", caption, drawn))
    return found


def _by_time(run: FinishedRun, truth: Functions) -> dict[str, np.ndarray]:
    """Relative L² errors of each component, shape (samples, times)."""
    errors = run.errors(run.prediction, len(truth.channels))
    return {
        name: errors[:, [channels[time] for time in truth.times]]
        for name, channels in truth.components.items()
        if channels.keys() >= {*truth.times}
    }


def _spectrum(run: FinishedRun) -> Picture:
    """On a circle, of the operators that keep some modes with what they keep."""
    modes = getattr(run.experiment.model, "modes", None)
    kept = "" if modes is None else f" The decoder keeps the modes below {modes}."
    return picture(
        charts.error_spectrum(run.pairs.u.numpy(), run.prediction.numpy(), modes), "error-spectrum",
        f"Spectrum: mean size of the Fourier coefficients of target and error.{kept}", half=True,
    )  # fmt: skip


def _where(run: FinishedRun, truth: Functions, error: np.ndarray) -> Picture:
    u = truth.look.name
    mean = "" if len(truth.times) < 2 else " and times"
    return picture(
        charts.mean_error(truth, error), "mean-error",
        f"Where the errors sit: |p − {u}| at each point, the mean over the {len(error)} test "
        f"samples{mean}. {_at_the_interface(run, np.abs(error[..., 0]))}".strip(),
        half=len(truth.components) == 1,
    )  # fmt: skip


def _at_the_interface(run: FinishedRun, error: np.ndarray) -> str:
    """Mean error in the cells next to an interface and in the others, in words."""
    if run.phases is None:
        return ""
    medium = run.pairs.u if run.target_phases else run.pairs.a
    near = at_interface(phases(medium[..., 0].numpy(), run.phases))
    if near.shape != error.shape or near.all() or not near.any():
        return ""
    return (
        f"Its mean is {error[near].mean():.3g} in the cells at an interface of the sample, "
        f"{error[~near].mean():.3g} in the others."
    )


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
    attributes, held = run.store.attributes, run.store.said
    origin = [
        ("Run", settings(run.scores.provenance)),
        ("Data made by", settings(attributes["provenance"])),
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
