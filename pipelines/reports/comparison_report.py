"""The report that compares several finished runs."""

import shlex
from itertools import accumulate
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np

from operators.norms import defined, over_defined, remarks
from pdegen.files import write_json
from pdegen.store.format import Json
from pipelines.reports import figures, pictures
from pipelines.reports.document import (
    Report,
    Section,
    Table,
    duration,
    in_words,
    plus_minus,
    points,
    scientific,
    settings,
)
from pipelines.reports.figures import curves, picture
from pipelines.reports.pictures import functions_of, sample_slides, with_slides
from pipelines.reports.report import NOTICE
from pipelines.runs.comparison import COMPARISON, DIGEST, Comparison, Variant, mean_interval
from pipelines.runs.finished import TRIVIAL
from pipelines.runs.score import MEASURES, std

Rows = list[tuple[str, ...]]
ABSENT = "—"


def write_comparison(comparison: Comparison, folder: Path, overwrite: bool = False) -> Path:
    """Write report.html, report.md, comparison.json, pictures and tables. Raises RunError if the
    folder contains something else."""
    report = _report(comparison)
    COMPARISON.claim(folder, {"runs": comparison.summary()["runs"]}, overwrite=overwrite)
    path = report.write(folder)
    write_json(folder / COMPARISON.file, comparison.summary())
    return path


def _report(comparison: Comparison) -> Report:
    names = [variant.name for variant in comparison.variants]
    count = sum(len(variant.runs) for variant in comparison.variants)
    return Report(
        title=f"Comparison of {', '.join(names)}",
        summary=f"{count} runs; the reference is {comparison.reference.name}.",
        notice=_notice(comparison),
        headline=[
            (f"mean relative L² error, {variant.name}", scientific(variant.mean))
            for variant in comparison.variants
        ],
        sections=[
            _score_section(comparison),
            _error_section(comparison),
            *_prediction_sections(comparison),
            _learning_section(comparison),
            _cost_section(comparison),
            _difference_section(comparison),
            _provenance_section(comparison),
        ],
    )


def _notice(comparison: Comparison) -> str:
    """Notice that some runs were evaluated on the test samples during training."""
    published = [variant.name for variant in comparison.variants if variant.first.published]
    if not published or len(published) == len(comparison.variants):
        return NOTICE if published else ""
    return f"{', '.join(published)}: {NOTICE} The other runs did not see the test samples."


def _difference_section(comparison: Comparison) -> Section:
    text = (
        "Keys of the experiments that differ; all other keys agree. "
        f"{ABSENT}: the key is not set, or the experiment has no such key."
    )
    differing = comparison.differing()
    if any(len(variant.runs) > 1 for variant in comparison.variants):
        differing["training.seed"] = [variant.seeds for variant in comparison.variants]
    stores = [variant.first.store.metadata for variant in comparison.variants]
    data = [f"{store.recipe.name}, content {store.content[:12]}" for store in stores]
    rows: Rows = [("test samples from", *data)] if len(set(data)) > 1 else []
    rows += [
        (key, *(ABSENT if value is None else in_words(value) for value in values))
        for key, values in _shortened(differing).items()
    ]
    if not rows:
        return Section("What differs", ("The experiments are the same, seeds included.",))
    table = Table(
        rows, ("key", *(variant.name for variant in comparison.variants)), words=True, name="keys"
    )
    return Section("What differs", (text,), (table,))


def _shortened(differing: Json) -> Json:
    """The values of keys, with the first digits of digests."""
    return {
        key: [value and value[:12] for value in values] if key.endswith(DIGEST) else values
        for key, values in differing.items()
    }


def _score_section(comparison: Comparison) -> Section:
    reference, run = comparison.reference, comparison.reference.first
    grid = points(reference.scores[0].resolution, run.pairs.domain)
    text = [
        f"Relative L² error of the test samples on {grid} points. ± is half of Student's 95 % "
        "interval of the mean; spread is the standard deviation. Both are over the samples."
    ]
    several = any(len(variant.runs) > 1 for variant in comparison.variants)
    if several:
        text.append(
            "Runs that differ only in their seed share a row. The errors of a sample are averaged "
            "over the seeds; seeds is the standard deviation, over the seeds, of the mean error."
        )
    text += remarks(reference.scores[0].samples, reference.errors.tolist())
    if list(comparison.differing()) == ["training.seed"]:
        means = [variant.mean for variant in comparison.variants]
        text.append(
            f"The runs differ only in their seed: the mean error is {scientific(mean(means))}, its "
            f"standard deviation over the seeds {scientific(stdev(means))}."
        )
    rows = [_score(variant, several) for variant in comparison.variants]
    for name, score in run.trivial.items():
        if score.resolution == reference.scores[0].resolution and name in TRIVIAL:
            numbers = map(scientific, (score.mean, score.median, score.worst, score.std))
            alike = len(comparison.comparable) == len(comparison.variants)
            name = TRIVIAL[name] if alike else f"{TRIVIAL[name]}, data of {reference.name}"
            rows.append((name, *numbers, *[""] * several, str(len(score.samples))))
    header = ("prediction", "mean", "median", "worst", "spread", *["seeds"] * several, "samples")
    tables = [Table(rows, header, name="errors")]
    others = [variant.name for variant in comparison.variants if not variant.comparable]
    if others:
        text.append(
            f"{', '.join(others)}: evaluated on other samples, variables or grids than "
            f"{reference.name}. These scores are of another problem, so nothing is compared sample "
            "by sample."
        )
    if len(comparison.comparable) > 1:
        text.append(
            f"The second table compares each error e with the error r of {reference.name} on the "
            "same sample: mean of e − r and geometric mean of e/r. The 95 % intervals are "
            "Student's, of the differences and of the logarithms of the ratios. They hold for the "
            "trained weights; another seed may change more."
        )
        tables.append(_paired(comparison))
    return Section("Scores", tuple(text), (*tables, *_measures(comparison)))


def _score(variant: Variant, several: bool) -> tuple[str, ...]:
    errors = defined(variant.errors)
    middle, half = mean_interval(errors)
    means = [score.mean for score in variant.scores]
    return (
        variant.name,
        plus_minus(scientific(middle), half) if np.isfinite(half) else scientific(middle),
        *map(scientific, (median(errors), max(errors), std(errors))),
        *([scientific(stdev(means)) if len(means) > 1 else ABSENT] if several else []),
        str(len(errors)),
    )  # fmt: skip


def _paired(comparison: Comparison) -> Table:
    rows: Rows = [
        (
            name, scientific(pair.mean), _within(pair.mean - pair.half, pair.mean + pair.half),
            f"{pair.ratio:.3g}",
            f"{pair.low:.3g} … {pair.high:.3g}" if pair.samples > 1 else ABSENT,
            f"{pair.smaller} of {pair.samples}", pair.verdict,
        )
        for name, pair in comparison.differences().items()
    ]  # fmt: skip
    return Table(rows, (
        f"against {comparison.reference.name}", "mean of e − r", "95 % interval", "e/r",
        "95 % interval", "smaller on", "the mean error is",
    ), name="differences")  # fmt: skip


def _within(low: float, high: float) -> str:
    return f"{scientific(low)} … {scientific(high)}" if np.isfinite(high) else ABSENT


def _measures(comparison: Comparison) -> list[Table]:
    """Table of mean errors in the further measures that all comparable variants have."""
    variants = comparison.comparable
    if len(variants) < 2:
        return []
    rows: Rows = [
        (title, *(scientific(over_defined(mean, variant.measured(name))) for variant in variants))
        for name, title in MEASURES.items()
        if all(name in score.measures for variant in variants for score in variant.scores)
    ]
    return (
        [Table(rows, ("measure, mean", *(variant.name for variant in variants)), name="measures")]
        if rows
        else []
    )


def _learning_section(comparison: Comparison) -> Section:
    watched = {
        "the test slice" if variant.first.published else "the validation split"
        for variant in comparison.variants
    }
    words = f"relative L² error, {' or '.join(sorted(watched))}"
    seeds = any(len(variant.runs) > 1 for variant in comparison.variants)
    over = "; over several seeds a curve is the mean, a band the range" if seeds else ""
    drawn = []
    for name, x, against in (
        ("learning-by-epoch", "epoch", "after each epoch"),
        ("learning-by-seconds", "seconds of training", "against the seconds of training"),
    ):
        series = {variant.name: _course(variant, x == "epoch") for variant in comparison.variants}
        means = {name: (at, scores.mean(axis=0).tolist()) for name, (at, scores) in series.items()}
        bands = {
            name: (scores.min(axis=0).tolist(), scores.max(axis=0).tolist())
            for name, (_, scores) in series.items()
            if len(scores) > 1
        }
        marked = all(len(positions) < 12 for positions, _ in series.values())
        figure = curves(
            means, x, words, bands=bands, band="range over the seeds",
            markers=marked, whole=x == "epoch",
        )  # fmt: skip
        caption = f"Mean relative L² error on {' or '.join(sorted(watched))} {against}{over}."
        drawn.append(picture(figure, name, caption))
    text = (
        "Seconds are wall time of the machine of each run, evaluations included. Compare them only "
        "between runs on one machine."
    )
    return Section("Learning curves", (text,), pictures=tuple(drawn))


def _course(variant: Variant, epochs: bool) -> tuple[list[float], np.ndarray]:
    """Abscissas and scores of a learning curve."""
    scores = np.array([[epoch.score for epoch in run.history] for run in variant.runs])
    if epochs:
        return [float(epoch.epoch) for epoch in variant.first.history], scores
    seconds = [list(accumulate(epoch.seconds for epoch in run.history)) for run in variant.runs]
    return np.mean(seconds, axis=0).tolist(), scores


def _error_section(comparison: Comparison) -> Section:
    every = {variant.name: variant.errors for variant in comparison.variants}
    drawn = [picture(
        figures.distributions(every), "error-distributions",
        "Share of the test samples with at most this error. Curves further to the left are better.",
        half=True,
    )]  # fmt: skip
    others = {variant.name: variant.errors for variant in comparison.comparable[1:]}
    reference = comparison.reference
    if others:
        drawn.append(picture(
            figures.sample_by_sample((reference.name, reference.errors), others),
            "sample-by-sample",
            "A marker for each sample and run. Below the dashed line the error is smaller than "
            f"that of {comparison.reference.name}.", half=True,
        ))  # fmt: skip
    return Section("Distribution of the errors", pictures=tuple(drawn))


def _prediction_sections(comparison: Comparison) -> list[Section]:
    """Predictions of all runs for the reference's best, median and worst sample."""
    variants = comparison.comparable[: pictures.FEW]
    if len(variants) < 2:
        return []
    run = comparison.reference.first
    every = [
        pictures.Predicted(
            variant.name, functions_of(variant.first)[1], variant.first.prediction.numpy(),
            variant.first.errors(variant.first.prediction)[:, 0],
        )
        for variant in variants
    ]  # fmt: skip
    inputs, _ = functions_of(run)
    ranked = pictures.ranked(every[0].errors).items()
    titles = {f"{name}: sample {run.pairs.ids[i]}": i for name, i in ranked}
    role = run.store.arrays[inputs.channels[0].variable].metadata.role
    shown = None if role == "geometry" or every[0].truth.above is not None else inputs
    figure = pictures.drawn(shown, every, titles)
    u = every[0].truth.look.name
    left = len(comparison.comparable) - len(variants)
    caption = (
        f"Best, median and worst sample of {comparison.reference.name}: truth {u} and the "
        f"prediction p of each run on one scale, below them the errors p − {u}, with one scale for "
        "each sample."
        f"{f' {left} more runs are not drawn.' if left else ''}"
    )
    channel = every[0].truth.chosen(1)[0]
    names = every[0].truth.names
    text = (f"The figure shows {names[channel]}.",) if len(names) > 1 else ()
    errors, numbers = every[0].errors, run.pairs.ids.tolist()
    slides, middle = sample_slides(
        errors, numbers, lambda i: pictures.drawn(shown, every, {"": i}),
        f"truth, predictions and errors of all runs; by the error of {comparison.reference.name}",
    )  # fmt: skip
    drawn = with_slides(picture(figure, "same-samples", caption), slides, "sample", middle)
    return [Section("The same samples predicted by all runs", text, pictures=(drawn,))]


def _cost_section(comparison: Comparison) -> Section:
    rows: Rows = []
    for variant in comparison.variants:
        runs = [run.scores for run in variant.runs]
        epochs = len(variant.first.history)
        seconds = mean(scores.training_seconds for scores in runs)
        each = mean(1e3 * score.seconds / len(score.samples) for score in variant.scores)
        where = runs[0].provenance
        rows.append((
            variant.name, f"{runs[0].parameters:,}", duration(seconds), duration(seconds / epochs),
            f"{each:.3g}", f"{where['device']}, threads {where['threads']}",
        ))  # fmt: skip
    header = (
        "run",
        "parameters",
        "training",
        "each epoch",
        "evaluation, ms per sample",
        "evaluated on",
    )
    return Section("Cost", tables=(Table(rows, header),))


def _provenance_section(comparison: Comparison) -> Section:
    folders = [str(folder) for variant in comparison.variants for folder in variant.folders]
    runs = [run for variant in comparison.variants for run in variant.runs]
    rows: Rows = [
        (folder, f"checkpoint {run.checkpoint} of epoch {run.main.epoch}")
        for folder, run in zip(folders, runs, strict=True)
    ]
    for what, words in (
        ("Data", [f"{run.store.url}, content {run.store.metadata.content}" for run in runs]),
        ("Software", [settings(run.scores.provenance) for run in runs]),
    ):
        if len(set(words)) == 1:
            rows.append((what, words[0]))
        else:
            rows += [(f"{what} of {f}", w) for f, w in zip(folders, words, strict=True)]
    text = "This command compares the runs again; their reports have the details."
    stores = {run.store.url for run in runs}
    data = ["--data", *stores] if len(stores) == 1 else []
    command = shlex.join(["pdegen", "compare", *folders, *data, "--out", "FOLDER"])
    return Section("Provenance", (text,), (Table(rows),), code=(command,))
