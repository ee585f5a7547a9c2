"""Charts of trained operators: learning curves and distributions of errors."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from operators.norms import by_column, defined, over_defined
from operators.training.fit import Epoch
from pipelines.reports.figures import HALF, WIDE, legend, logarithmic, styled
from pipelines.reports.palette import DASHES, ERROR, INKS, MARKERS, MODEL, QUIET, SHADE, TRUTH
from pipelines.reports.wording import scientific

_BINNED = 20  # samples from which a histogram is drawn
_HEIGHT = 2.6  # inches
_FLOOR = 1e-16  # of errors on a logarithmic axis


@styled
def learning_curve(history: Sequence[Epoch], loss: str, watched: str) -> Figure:
    """Training loss, mean and largest relative L² error of the watched samples, and learning rate
    against the epoch. The largest error is not drawn if an earlier version recorded an epoch."""
    figure = Figure(figsize=(WIDE, _HEIGHT))
    axes = figure.subplots()
    epoch, losses, score, lr = (
        np.array([getattr(e, key) for e in history]) for key in ("epoch", "loss", "score", "lr")
    )
    marker = "o" if len(history) < 12 else None
    rate = axes.twinx()
    rate.plot(epoch, lr, color=QUIET, lw=0.8, ls=":", label="learning rate (right)")
    rate.set(ylabel="learning rate", ylim=(0, 1.08 * lr.max()))
    rate.grid(False)
    rate.spines["right"].set(visible=True, color=QUIET)
    rate.tick_params(axis="y", colors=QUIET)
    rate.yaxis.label.set_color(QUIET)
    square = marker and "s"
    label = f"training loss ({loss})"
    axes.plot(epoch, losses, color=TRUTH, lw=1.0, ls="--", marker=square, ms=3, label=label)
    axes.plot(epoch, score, color=MODEL, marker=marker, ms=3, label=f"relative L² error, {watched}")
    largest = [e.largest for e in history if e.largest is not None]
    if len(largest) == len(history):
        label = "largest error of a sample"
        axes.plot(epoch, largest, color=MODEL, ls="-.", lw=0.9, marker=marker, ms=3, label=label)
    best = int(np.argmin(score))
    note = f"best: {scientific(score[best])}, epoch {epoch[best]}"
    axes.plot(epoch[best], score[best], "D", color=ERROR, ms=6, label=note)
    axes.set(xlabel="epoch", ylabel="loss, error")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    logarithmic(axes, "y", np.concatenate([losses, score, largest]))
    axes.set_zorder(rate.get_zorder() + 1)  # the curves are drawn over the learning rate
    axes.patch.set_visible(False)
    legend(figure, axes, rate)
    return figure


@styled
def error_by_time(
    times: Sequence[float],
    errors: Mapping[str, np.ndarray],
    beside: Mapping[str, np.ndarray],
    seen: float | None,
) -> Figure:
    """Mean relative L² error at each time, with a band that contains the errors of 90 % of the
    samples.

    Args:
        errors: Errors of each component, shape (samples, times).
        beside: Mean errors of trivial predictors at each time, drawn for comparison.
        seen: Last time used in training, marked by a line; None for no line.
    """
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    for number, (name, error) in enumerate(errors.items()):
        ink, dashes = (MODEL, ERROR, TRUTH, QUIET)[number % 4], DASHES[number % 4]
        low, high = (
            by_column(lambda values, share=share: float(np.quantile(values, share)), error)
            for share in (0.05, 0.95)
        )
        axes.fill_between(times, low, high, color=ink, alpha=0.15, lw=0)
        axes.plot(
            times,
            by_column(fmean, error),
            color=ink,
            ls=dashes,
            marker=MARKERS[number],
            ms=3,
            label=name,
        )
    for (name, error), dashes in zip(beside.items(), (":", "-."), strict=False):
        axes.plot(times, error, color=TRUTH, ls=dashes, lw=1.0, label=name)
    if seen is not None:
        axes.axvline(seen, color=QUIET, lw=0.8, ls="--", label=f"trained to t = {seen:g}")
    axes.set(xlabel="time t", ylabel="relative L² error")
    drawn = [np.ravel(error) for error in (*errors.values(), *beside.values())]
    logarithmic(axes, "y", np.maximum(np.concatenate(drawn), _FLOOR))
    legend(figure, axes)
    return figure


@styled
def error_by_grid(errors: Mapping[int, np.ndarray], trained: int, points: str) -> Figure:
    """Relative L² errors of all samples on each grid, and their means.

    Args:
        errors: Errors of the samples, keyed by resolution.
        trained: Training resolution, marked by a line.
        points: Label of the axis of resolutions.
    """
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes, grids = figure.subplots(), sorted(errors)
    for n in grids:
        measured = np.maximum(defined(errors[n]), _FLOOR)
        label = "each sample" if n == grids[0] else None
        axes.plot(
            np.full(len(measured), n), measured, "_", color=SHADE, ms=12, mew=0.8, label=label
        )
    means = [over_defined(fmean, errors[n]) for n in grids]
    axes.plot(grids, means, color=MODEL, marker="D", ms=4, label="mean")
    axes.axvline(trained, color=QUIET, lw=0.9, ls=":", label="training grid")
    axes.set(xlabel=points, ylabel="relative L² error", xscale="log")
    axes.set_xlim(grids[0] / 1.3, grids[-1] * 1.3)
    axes.set_xticks(grids, [str(n) for n in grids])
    axes.set_xticks([], minor=True)
    logarithmic(axes, "y", np.maximum(np.concatenate([errors[n] for n in grids]), _FLOOR))
    legend(figure, axes)
    return figure


@styled
def error_spectrum(target: np.ndarray, prediction: np.ndarray, modes: int | None) -> Figure:
    """Mean of |û(k)| over the samples, for target and error and modes k >= 1, with û = DFT(u)/n.

    Each curve ends at its last value above the rounding errors of single precision.

    Args:
        modes: The operator retains the modes k < `modes`, and a line marks this limit; None if the
            operator retains all modes.
    """
    spectra = [
        np.abs(np.fft.rfft(values, axis=1, norm="forward")).mean(axis=(0, 2))[1:]
        for values in (target, prediction - target)
    ]
    spectra = [above_rounding(spectrum, spectra[0].max()) for spectrum in spectra]
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    for spectrum, ink, dashes, label in zip(
        spectra, (TRUTH, ERROR), DASHES, ("target u", "error p − u"), strict=False
    ):
        axes.plot(range(1, len(spectrum) + 1), spectrum, color=ink, ls=dashes, label=label)
    if modes is not None:
        axes.axvline(modes, color=MODEL, lw=1.0, ls=":", label=f"decoder keeps k < {modes}")
    axes.set(xlabel="mode k", ylabel="mean |û(k)|")
    logarithmic(axes, "x", np.arange(1, max(map(len, spectra)) + 1))
    logarithmic(axes, "y", np.concatenate(spectra))
    legend(figure, axes)
    return figure


def above_rounding(spectrum: np.ndarray, largest: float) -> np.ndarray:
    """The values of a spectrum up to the last one that exceeds the rounding errors of single
    precision.

    Args:
        largest: Rounding errors are this value times the machine epsilon.

    >>> above_rounding(np.array([1.0, 1e-3, 1e-9, 2e-9]), 1.0)
    array([1.   , 0.001])
    """
    above = np.flatnonzero(spectrum > float(np.finfo(np.float32).eps) * largest)
    return spectrum[: above[-1] + 1] if len(above) else spectrum


@styled
def error_histogram(errors: np.ndarray) -> Figure:
    """Histogram of relative L² errors, with lines at the mean, the median and the largest error.
    With fewer than 20 samples, the sorted errors are drawn instead."""
    errors = np.maximum(defined(errors), _FLOOR)
    low, high = errors.min() / 1.05, errors.max() * 1.05
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    axes.set_xscale("log")
    if len(errors) < _BINNED:
        ranks = range(1, len(errors) + 1)
        axes.plot(np.sort(errors), ranks, "o", color=MODEL, ms=4, ls="", label="each sample")
    else:
        bins = np.geomspace(low, high, 2 + max(5, int(2 * len(errors) ** 0.5)))
        axes.hist(errors, bins=bins.tolist(), color=SHADE, edgecolor="white", lw=0.5)
    for name, value, ink, dashes in (
        ("mean", errors.mean(), MODEL, "-"),
        ("median", float(np.median(errors)), TRUTH, "--"),
        ("worst", errors.max(), ERROR, ":"),
    ):
        axes.axvline(value, color=ink, ls=dashes, label=f"{name} {scientific(value)}")
    label = "rank of the sample" if len(errors) < _BINNED else "samples"
    axes.set(xlabel="relative L² error", ylabel=label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False, axis="x")
    logarithmic(axes, "x", np.array([low, high]))
    legend(figure, axes)
    return figure


@styled
def distributions(errors: Mapping[str, np.ndarray]) -> Figure:
    """Step curve for each run: the share of the samples whose error is at most e, as a function of
    e."""
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    for k, (name, values) in enumerate(errors.items()):
        measured = defined(values)
        shares = np.arange(1, len(measured) + 1) / len(measured)
        axes.step(
            np.sort(np.maximum(measured, _FLOOR)), shares, where="post", color=INKS[k % len(INKS)],
            ls=DASHES[k % len(DASHES)], label=name,
        )  # fmt: skip
    axes.set(xlabel="relative L² error e", ylabel="share with errors ≤ e", ylim=(0, 1.02))
    logarithmic(axes, "x", np.maximum(np.concatenate(list(errors.values())), _FLOOR))
    legend(figure, axes)
    return figure


@styled
def sample_by_sample(reference: tuple[str, np.ndarray], errors: Mapping[str, np.ndarray]) -> Figure:
    """Error of each sample against the error of the reference run. Each run has its own marker."""
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    name, r = reference
    for k, (other, values) in enumerate(errors.items(), start=1):
        axes.plot(
            r, values, ls="", marker=MARKERS[k % len(MARKERS)], ms=4, mew=0.8, mfc="none",
            color=INKS[k % len(INKS)], label=other,
        )  # fmt: skip
    drawn = np.maximum(np.concatenate([r, *errors.values()]), _FLOOR)
    ends = [drawn.min() / 1.1, drawn.max() * 1.1]
    axes.plot(ends, ends, color=QUIET, lw=0.8, ls="--", label="equal errors")
    axes.set(xlabel=f"error by {name}", ylabel="error by the other run")
    logarithmic(axes, "x", drawn)
    logarithmic(axes, "y", drawn)
    legend(figure, axes)
    return figure
