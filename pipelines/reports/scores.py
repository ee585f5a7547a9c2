"""The section of a run report about scores on all grids, compared with trivial predictions."""

from collections.abc import Callable, Sequence
from statistics import mean, median

import numpy as np

from operators.data.opening import names_of
from operators.norms import defined, over_defined, remarks
from pdegen.domains import Domain
from pipelines.reports import charts
from pipelines.reports.document import Picture, Section, Table
from pipelines.reports.figures import picture
from pipelines.reports.sheets import few
from pipelines.reports.wording import points, scientific, trained_points
from pipelines.runs.finished import FinishedRun, compare_baselines
from pipelines.runs.score import MEASURES, Score, std, times_in

_BESIDE = "model and trivial predictions"


def section(run: FinishedRun) -> Section:
    """Scores of each checkpoint on each grid, and of trivial predictions."""
    checkpoints = {
        "last": "last (watched on the test slice)",
        "best": "best (selected on the test slice)",
    }
    rows: list[tuple[str, ...]] = [
        (
            checkpoints[r.checkpoint] if run.published else r.checkpoint,
            *map(scientific, (r.mean, r.median, r.worst, r.std)),
            str(r.epoch), points(r.resolution, run.pairs.domain), f"{len(r.samples):,}",
        )
        for r in run.scores.results
    ]  # fmt: skip
    header = ("checkpoint", "mean", "median", "worst", "spread", "epoch", "points", "samples")
    targets = names_of(run.experiment.variables[1])
    u = targets[0] if len(targets) == 1 else f"({', '.join(targets)})"
    meaning = (
        f"Relative L² error ‖p − {u}‖/‖{u}‖ of each sample of the test "
        f"{'slice' if run.published else 'split'}; spread is the standard deviation over the "
        "samples."
    )
    data, evaluated = run.experiment.data, {r.resolution for r in run.scores.results}
    comparison, table = _comparison(run)
    remarked = remarks(run.main.samples, run.main.errors)
    sizes = grids(data.training_resolutions, evaluated, run.pairs.domain)
    further, grid = (*_further(run), *_by_part(run)), run.main.resolution
    if further and grid != data.finest_resolution:
        n = points(grid, run.pairs.domain)
        comparison += (f"Further tables are for the model alone, at n = {n}.",)
    return Section(
        "Scores",
        (meaning, *remarked, sizes, *comparison),
        (Table(rows, header, name="of each checkpoint on each grid"), table, *further),
        _on_grids(run),
    )


def _on_grids(run: FinishedRun) -> tuple[Picture, ...]:
    """Picture of the errors of the reported checkpoint on each grid; empty if there is only one
    grid."""
    results = [r for r in run.scores.results if r.checkpoint == run.checkpoint]
    if len(results) < 2:
        return ()
    errors = {r.resolution: np.asarray(r.errors) for r in results}
    caption = (
        "Relative L² error on each grid with the same weights: all test samples, and the mean. The "
        "dotted line marks the training grid, or the finest of several."
    )
    figure = charts.error_by_grid(
        errors, run.experiment.data.finest_resolution, _axis(run.pairs.domain)
    )
    return (picture(figure, "error-by-grid", caption, half=True),)


def _axis(domain: Domain) -> str:
    """Label of the axis that shows resolutions. It says along which space axis points are
    counted."""
    if len(domain.shape) == 1:
        return "points"
    return f"points along {'each' if len(set(domain.shape)) == 1 else 'the first'} axis"


def _on_one_grid(run: FinishedRun) -> dict[str, Score]:
    """Scores of the model and of the trivial predictions on its grid, keyed by name."""
    grid = run.main.resolution
    trivial = {name: score for name, score in run.trivial.items() if score.resolution == grid}
    return {f"model ({run.checkpoint})": run.main, **trivial}


def _further(run: FinishedRun) -> list[Table]:
    """Table of the mean and the median of all other error measures, for the model and for trivial
    predictions on its grid."""
    every = _on_one_grid(run)
    columns = [
        (f"{measure}, {word}", name, of)
        for name, measure in MEASURES.items()
        if name in run.main.measures
        for word, of in (("mean", mean), ("median", median))
    ]
    rows = [
        (label, *(_statistic(of, score, name) for score in every.values()))
        for label, name, of in columns
    ]
    return [Table(rows, ("measure", *every), name="other measures")] if rows else []


def _statistic(of: Callable[[list[float]], float], score: Score, name: str) -> str:
    """The statistic `of` (mean or median) of the errors that a score has for the measure `name`, as
    text. Empty if the score does not include this measure."""
    errors = score.measures.get(name)
    return "" if errors is None else scientific(over_defined(of, errors))


def _by_part(run: FinishedRun) -> list[Table]:
    """Tables of the mean errors of each channel and at each time, if there are several channels or
    times."""
    every = _on_one_grid(run)
    tables = []
    for what, key in (("channel", "channels"), ("time", "steps")):
        names = list(getattr(run.main, key))
        timed = key == "steps" or len(times_in(run.pairs.target_channels)) == len(names)
        rows: list[tuple[str, ...]] = [
            (name, *(scientific(getattr(score, key)[name]) for score in every.values()))
            for name in (names if timed else few(names, 12))
        ]
        tables += [Table(rows, (what, *every), name=f"by {what}")] if rows else []
    return tables


def _comparison(run: FinishedRun) -> tuple[tuple[str, ...], Table]:
    """Text and table that compare the model with trivial predictions on the training grid."""
    text: tuple[str, ...] = (
        f"The table “{_BESIDE}” is for the same {len(run.pairs)} samples at n = "
        f"{points(run.experiment.data.finest_resolution, run.pairs.domain)}. Trivial predictions "
        "need no training.",
    )
    header: tuple[str, ...] = ("prediction", "mean", "median", "worst", "spread")
    rows = []
    for name, score in compare_baselines(run).items():
        errors = defined(score.errors)
        row = map(scientific, (mean(errors), median(errors), max(errors), std(errors)))
        rows.append((name, *row))
        if score.iou is not None and score.hausdorff is not None:
            rows[-1] += (f"{score.iou.mean():.3f}", f"{score.hausdorff.mean():.3f}")
    if run.target_phases is not None:
        header += ("IoU", "Hausdorff")
        low, high = run.target_phases
        text += (
            f"Values above {(low + high) / 2:g} count as phase {high:g}, in prediction and truth. "
            "IoU is the intersection over union |P ∩ Q|/|P ∪ Q|, averaged over both phases. "
            "Hausdorff is the Hausdorff distance of the interfaces in a square of side 1; it is √2 "
            "where no interface is predicted. Both are means over the samples.",
        )
    return text, Table(rows, header, name=_BESIDE)


def grids(trained: Sequence[int], evaluated: set[int], on: int | Domain = 1) -> str:
    """Sentence about the grids of training and evaluation.

    >>> grids([512], {512})
    'Trained and evaluated on n = 512 points.'
    """
    grid = trained_points(trained, on)
    others = ", ".join(points(n, on) for n in sorted(evaluated - {*trained}))
    if not others:
        return f"Trained and evaluated on n = {grid} points."
    return (
        f"Trained on n = {grid} points only. On n = {others} points the same weights are evaluated "
        "without further training (zero-shot)."
    )
