"""What a report says of several finished runs."""

import shlex
from itertools import accumulate
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np

from operators.norms import defined, left_out, over_defined
from operators.training.files import write_json
from pipelines.reports import charts, samples
from pipelines.reports.document import Report, Section, Table
from pipelines.reports.figures import picture
from pipelines.reports.live import sample_slides, with_slides
from pipelines.reports.pictures import functions_of
from pipelines.reports.report import NOTICE
from pipelines.reports.study_charts import curves
from pipelines.reports.wording import duration, in_words, points, scientific, settings
from pipelines.runs.baselines import TRIVIAL
from pipelines.runs.comparison import COMPARISON, Comparison, Variant, mean_interval
from pipelines.runs.finished import FinishedRun
from pipelines.runs.measures import MEASURES
from pipelines.runs.score import deviation

Rows = list[tuple[str, ...]]
ABSENT = "—"


def write_comparison(found: Comparison, folder: Path, overwrite: bool = False) -> Path:
    """Write report.html, report.md, comparison.json and pictures of several runs. Raises RunError
    if the folder holds something else."""
    report = _report(found)
    COMPARISON.claim(folder, {"runs": found.summary()["runs"]}, overwrite=overwrite)
    path = report.write(folder)
    write_json(folder / COMPARISON.file, found.summary())
    return path


def _report(found: Comparison) -> Report:
    names = [variant.name for variant in found.variants]
    return Report(
        title=f"Comparison of {', '.join(names)}",
        summary=f"{sum(len(variant.runs) for variant in found.variants)} runs beside each other; "
        f"differences are to {found.reference.name}.",
        notice=_notice(found),
        headline=[
            (f"mean relative L² error, {variant.name}", scientific(variant.mean))
            for variant in found.variants
        ],
        sections=[
            _difference_section(found),
            _score_section(found),
            _learning_section(found),
            _error_section(found),
            *_prediction_sections(found),
            _cost_section(found),
            _provenance_section(found),
        ],
    )


def _notice(found: Comparison) -> str:
    """That some runs were watched on the test slice, and which."""
    published = [variant.name for variant in found.variants if variant.first.published]
    if not published or len(published) == len(found.variants):
        return NOTICE if published else ""
    return f"{', '.join(published)}: {NOTICE} The others did not see the test samples."


def _difference_section(found: Comparison) -> Section:
    text = (
        "The keys of the experiments that differ; all others are the same. "
        f"{ABSENT} where a key is not set, or an experiment has no such key."
    )
    differing = found.differing()
    if any(len(variant.runs) > 1 for variant in found.variants):
        differing["training.seed"] = [variant.seeds for variant in found.variants]
    data = [_data(variant.first) for variant in found.variants]
    rows: Rows = [("test samples of", *data)] if len(set(data)) > 1 else []
    rows += [
        (key, *(ABSENT if value is None else in_words(value) for value in values))
        for key, values in differing.items()
    ]
    if not rows:
        return Section("What differs", ("The experiments declare the same, seeds included.",))
    table = Table(
        rows, ("key", *(variant.name for variant in found.variants)), words=True, name="keys"
    )
    return Section("What differs", (text,), (table,))


def _data(run: FinishedRun) -> str:
    return f"{run.store.metadata.recipe.name}, content {run.store.metadata.content[:12]}"


def _score_section(found: Comparison) -> Section:
    reference, run = found.reference, found.reference.first
    grid = points(reference.scores[0].resolution, run.pairs.domain)
    text = [
        f"Relative L² error of each test sample at n = {grid}. The 95 % interval of the mean is "
        "Student's, over the samples; spread is the standard deviation over the samples."
    ]
    several = any(len(variant.runs) > 1 for variant in found.variants)
    if several:
        text.append(
            "Runs that differ by their seed alone are one row: the errors of a sample are averaged "
            "over the seeds, and the last column has the mean error ± its standard deviation over "
            "the seeds."
        )
    if reference.left_out:
        text.append(left_out(reference.left_out))
    if list(found.differing()) == ["training.seed"]:
        means = [variant.mean for variant in found.variants]
        text.append(
            f"The runs differ by their seed alone: {scientific(mean(means))} ± "
            f"{scientific(stdev(means))}, mean and standard deviation over the seeds."
        )
    rows = [_score(variant, several) for variant in found.variants]
    for name, score in run.trivial.items():
        stands = score.resolution == reference.scores[0].resolution and name in TRIVIAL
        if stands:
            said = (*map(scientific, (score.mean, score.median, score.worst, score.std)), "")
            of = (
                ""
                if len(found.comparable) == len(found.variants)
                else f", data of {reference.name}"
            )
            name = f"{TRIVIAL[name]}{of}"
            rows.append((name, str(len(score.samples)), *said, *[""] * several))
    header = ("prediction", "samples", "mean", "median", "worst", "spread", "95 % interval")
    tables = [Table(rows, (*header, *["over the seeds"] * several), name="errors")]
    others = [variant.name for variant in found.variants if not variant.comparable]
    if others:
        text.append(
            f"{', '.join(others)}: evaluated on other samples, other variables or other grids than "
            f"{reference.name}. These scores are of another problem; they stand alone, and nothing "
            "is compared sample by sample."
        )
    if len(found.comparable) > 1:
        text.append(
            f"The second table compares the errors e with those of {reference.name}, r, on the "
            "same samples: the mean of e − r and the geometric mean of e/r, with 95 % intervals "
            "(Student's, of the paired differences and of the logarithms of the ratios). They hold "
            "for the weights that were trained; another seed may change more."
        )
        tables.append(_paired(found))
    return Section("Scores", tuple(text), (*tables, *_measures(found)))


def _score(variant: Variant, several: bool) -> tuple[str, ...]:
    errors = defined(variant.errors)
    middle, half = mean_interval(errors)
    means = [score.mean for score in variant.scores]
    row = (
        variant.name, str(len(errors)),
        *map(scientific, (middle, median(errors), max(errors), deviation(errors))),
        f"± {scientific(half)}" if np.isfinite(half) else ABSENT,
    )  # fmt: skip
    seeds = f"{scientific(mean(means))} ± {scientific(stdev(means))}" if len(means) > 1 else ABSENT
    return (*row, seeds) if several else row


def _paired(found: Comparison) -> Table:
    rows: Rows = [
        (
            name, scientific(one.mean), _within(one.mean - one.half, one.mean + one.half),
            f"{one.ratio:.3g}", f"{one.low:.3g} … {one.high:.3g}" if one.samples > 1 else ABSENT,
            f"{one.smaller} of {one.samples}", one.verdict,
        )
        for name, one in found.differences().items()
    ]  # fmt: skip
    return Table(rows, (
        f"against {found.reference.name}", "mean of e − r", "95 % interval", "e/r", "95 % interval",
        "smaller on", "the mean error is",
    ), name="differences")  # fmt: skip


def _within(low: float, high: float) -> str:
    return f"{scientific(low)} … {scientific(high)}" if np.isfinite(high) else ABSENT


def _measures(found: Comparison) -> list[Table]:
    """Means by the other measures that all comparable variants have."""
    variants = found.comparable
    if len(variants) < 2:
        return []
    rows: Rows = [
        (said, *(scientific(over_defined(mean, variant.measured(name))) for variant in variants))
        for name, said in MEASURES.items()
        if all(name in score.measures for variant in variants for score in variant.scores)
    ]
    return (
        [Table(rows, ("measure, mean", *(variant.name for variant in variants)), name="measures")]
        if rows
        else []
    )


def _learning_section(found: Comparison) -> Section:
    watched = {
        "the test slice" if variant.first.published else "the validation split"
        for variant in found.variants
    }
    words = f"relative L² error, {' or '.join(sorted(watched))}"
    seeds = any(len(variant.runs) > 1 for variant in found.variants)
    over = "; of several seeds the mean, and the range" if seeds else ""
    pictures = []
    for name, x, said in (
        ("learning-by-epoch", "epoch", "after each epoch"),
        ("learning-by-seconds", "seconds of training", "against the seconds of training"),
    ):
        series = {variant.name: _course(variant, x == "epoch") for variant in found.variants}
        means = {name: (at, scores.mean(axis=0).tolist()) for name, (at, scores) in series.items()}
        bands = {
            name: (scores.min(axis=0).tolist(), scores.max(axis=0).tolist())
            for name, (_, scores) in series.items()
            if len(scores) > 1
        }
        marked = all(len(places) < 12 for places, _ in series.values())
        figure = curves(means, x, words, bands=bands, markers=marked, whole=x == "epoch")
        caption = f"Mean relative L² error on {' or '.join(sorted(watched))} {said}{over}."
        pictures.append(picture(figure, name, caption))
    text = (
        "Seconds are those of the clock where each run was trained, evaluations included: compare "
        "them only between runs of one machine."
    )
    return Section("Learning curves", (text,), pictures=tuple(pictures))


def _course(variant: Variant, epochs: bool) -> tuple[list[float], np.ndarray]:
    """Epochs, or seconds since the start (the mean over the seeds), and scores (seeds, epochs)."""
    scores = np.array([[epoch.score for epoch in run.history] for run in variant.runs])
    if epochs:
        return [float(epoch.epoch) for epoch in variant.first.history], scores
    seconds = [list(accumulate(epoch.seconds for epoch in run.history)) for run in variant.runs]
    return np.mean(seconds, axis=0).tolist(), scores


def _error_section(found: Comparison) -> Section:
    every = {variant.name: variant.errors for variant in found.variants}
    drawn = [picture(
        charts.distributions(every), "error-distributions",
        "Which share of the test samples has at most which error: a curve further to the left is "
        "better.", half=True,
    )]  # fmt: skip
    others = {variant.name: variant.errors for variant in found.comparable[1:]}
    if others:
        drawn.append(picture(
            charts.sample_by_sample((found.reference.name, found.reference.errors), others),
            "sample-by-sample",
            f"Each sample once for each run: below the dashed line its error is smaller than by "
            f"{found.reference.name}.", half=True,
        ))  # fmt: skip
    return Section("How the errors are spread", pictures=tuple(drawn))


def _prediction_sections(found: Comparison) -> list[Section]:
    """The best, the median and the worst sample of the reference, as all runs predict them."""
    variants = found.comparable[: samples.FEW]
    if len(variants) < 2:
        return []
    run, every = found.reference.first, [_predicted(variant) for variant in variants]
    inputs, _ = functions_of(run)
    ranked = samples.ranked(every[0].errors).items()
    titles = {f"{name}: sample {run.pairs.samples[i]}": i for name, i in ranked}
    role = run.store.arrays[inputs.channels[0].variable].metadata.role
    shown = None if role == "geometry" or every[0].truth.above is not None else inputs
    figure = samples.drawn(shown, every, titles)
    u = every[0].truth.look.name
    left = len(found.comparable) - len(variants)
    caption = (
        f"Samples that are best, median and worst by {found.reference.name}: truth {u} and the "
        "prediction p of every run on one scale; beneath them the errors p − "
        f"{u} on one scale.{f' {left} more runs are not drawn.' if left else ''}"
    )
    channel = every[0].truth.chosen(1)[0]
    names = every[0].truth.names
    text = (f"Drawn is {names[channel]}.",) if len(names) > 1 else ()
    errors, numbers = every[0].errors, run.pairs.samples.tolist()
    slides, middle = sample_slides(
        errors, numbers, lambda i: samples.drawn(shown, every, {"": i}),
        f"truth, predictions of all runs and errors; by {found.reference.name}",
    )  # fmt: skip
    drawn = with_slides(picture(figure, "same-samples", caption), slides, "sample", middle)
    return [Section("The same samples by every run", text, pictures=(drawn,))]


def _predicted(variant: Variant) -> samples.Predicted:
    run = variant.first
    errors = run.errors(run.prediction)[:, 0]
    return samples.Predicted(variant.name, functions_of(run)[1], run.prediction.numpy(), errors)


def _cost_section(found: Comparison) -> Section:
    rows: Rows = []
    for variant in found.variants:
        runs = [run.scores for run in variant.runs]
        epochs = len(variant.first.history)
        seconds = mean(one.training_seconds for one in runs)
        each = mean(1e3 * score.seconds / len(score.samples) for score in variant.scores)
        where = runs[0].provenance
        rows.append((
            variant.name, f"{runs[0].parameters:,}", duration(seconds), duration(seconds / epochs),
            f"{each:.3g}", f"{where['device']}, threads {where['threads']}",
        ))  # fmt: skip
    header = ("", "parameters", "training", "each epoch", "ms per test sample", "evaluated on")
    return Section("Cost", tables=(Table(rows, header),))


def _provenance_section(found: Comparison) -> Section:
    folders = [str(folder) for variant in found.variants for folder in variant.folders]
    runs = [run for variant in found.variants for run in variant.runs]
    rows: Rows = [
        (folder, f"checkpoint {run.checkpoint} of epoch {run.main.epoch}")
        for folder, run in zip(folders, runs, strict=True)
    ]
    for what, said in (
        ("Data", [f"{run.store.url}, content {run.store.metadata.content}" for run in runs]),
        ("Software", [settings(run.scores.provenance) for run in runs]),
    ):
        if len(set(said)) == 1:
            rows.append((what, said[0]))
        else:
            rows += [(f"{what} of {f}", one) for f, one in zip(folders, said, strict=True)]
    text = "This command compares them again; reports of the runs have their details."
    stores = {run.store.url for run in runs}
    data = ["--data", *stores] if len(stores) == 1 else []
    command = shlex.join(["pdegen", "compare", *folders, *data, "--out", "FOLDER"])
    return Section("Provenance", (text,), (Table(rows),), code=(command,))
