"""Charts of trained operators: how one learned, and how errors are spread."""

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

_COUNTED = 20  # samples, from which on bins count them


@styled
def learning_curve(history: Sequence[Epoch], loss: str, watched: str) -> Figure:
    """Training loss, score of the watched samples and learning rate against the epoch."""
    figure = Figure(figsize=(WIDE, 3.4))
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
    said = f"training loss ({loss})"
    axes.plot(epoch, losses, color=TRUTH, lw=1.0, ls="--", marker=square, ms=3, label=said)
    axes.plot(epoch, score, color=MODEL, marker=marker, ms=3, label=f"relative L² error, {watched}")
    best = int(np.argmin(score))
    note = f"best: {scientific(score[best])}, epoch {epoch[best]}"
    axes.plot(epoch[best], score[best], "D", color=ERROR, ms=6, label=note)
    axes.set(xlabel="epoch", ylabel="loss, error")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    logarithmic(axes, "y", np.concatenate([losses, score]))
    axes.set_zorder(rate.get_zorder() + 1)  # the curves lie above the thin learning rate
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
    """Mean relative L² error at each time, and the range of nine in ten samples.

    Args:
        errors: By component, shape (samples, times).
        beside: Mean errors of trivial predictors, shape (times).
        seen: The last time that training sees, to be marked where there is one.
    """
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    for number, (name, error) in enumerate(errors.items()):
        ink, dashes = (MODEL, ERROR, TRUTH, QUIET)[number % 4], DASHES[number % 4]
        low, high = (
            by_column(lambda of, share=share: float(np.quantile(of, share)), error)
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
        axes.axvline(seen, color=QUIET, lw=0.8, ls="--", label=f"training sees t <= {seen:g}")
    axes.set(xlabel="time t", ylabel="relative L² error")
    every = [np.ravel(e) for e in (*errors.values(), *beside.values())]
    logarithmic(axes, "y", np.maximum(np.concatenate(every), 1e-16))
    legend(figure, axes)
    return figure


@styled
def error_by_grid(errors: Mapping[int, np.ndarray], trained: int) -> Figure:
    """Relative L² errors on each grid: of every sample a dot, and the means."""
    figure = Figure(figsize=(HALF, 3.5))
    axes, grids = figure.subplots(), sorted(errors)
    for n in grids:
        own = np.maximum(defined(errors[n]), 1e-16)
        label = "each sample" if n == grids[0] else None
        axes.plot(np.full(len(own), n), own, "_", color=SHADE, ms=14, mew=1.0, label=label)
    means = [over_defined(fmean, errors[n]) for n in grids]
    axes.plot(grids, means, color=MODEL, marker="D", ms=5, label="mean")
    axes.axvline(trained, color=QUIET, lw=0.9, ls=":", label="grid of training")
    axes.set(xlabel="points of each axis", ylabel="relative L² error", xscale="log")
    axes.set_xlim(grids[0] / 1.3, grids[-1] * 1.3)
    axes.set_xticks(grids, [str(n) for n in grids])
    axes.set_xticks([], minor=True)
    logarithmic(axes, "y", np.maximum(np.concatenate([errors[n] for n in grids]), 1e-16))
    legend(figure, axes)
    return figure


@styled
def error_spectrum(target: np.ndarray, prediction: np.ndarray, modes: int | None) -> Figure:
    """Mean |û(k)| of the target and of the error against the mode k >= 1, û = DFT(u)/n.

    Args:
        modes: Modes 0 ... modes - 1 that the operator keeps, to be marked where it keeps some.
    """
    spectra = [
        np.abs(np.fft.rfft(values, axis=1, norm="forward")).mean(axis=(0, 2))[1:]
        for values in (target, prediction - target)
    ]
    k = np.arange(1, len(spectra[0]) + 1)
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    axes.plot(k, spectra[0], color=TRUTH, label="target u")
    axes.plot(k, spectra[1], color=ERROR, ls="--", label="error p − u")
    if modes is not None:
        axes.axvline(modes, color=MODEL, lw=1.0, ls=":", label=f"decoder keeps k < {modes}")
    axes.set(xlabel="mode k", ylabel="mean |û(k)|")
    logarithmic(axes, "x", k)
    logarithmic(axes, "y", np.concatenate(spectra))
    legend(figure, axes)
    return figure


@styled
def error_histogram(errors: np.ndarray) -> Figure:
    """How many samples have which relative L² error, with mean, median and worst; of few samples
    each one."""
    errors = np.maximum(
        defined(errors), 1e-16
    )  # an exact prediction has a place on a logarithmic axis
    low, high = errors.min() / 1.05, errors.max() * 1.05
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    axes.set_xscale("log")
    if len(errors) < _COUNTED:
        place = range(1, len(errors) + 1)
        axes.plot(np.sort(errors), place, "o", color=MODEL, ms=5, ls="", label="each sample")
    else:
        bins = np.geomspace(low, high, 2 + max(5, int(2 * len(errors) ** 0.5)))
        axes.hist(errors, bins=bins.tolist(), color=SHADE, edgecolor="white", lw=0.5)
    for name, value, ink, dashes in (
        ("mean", errors.mean(), MODEL, "-"),
        ("median", float(np.median(errors)), TRUTH, "--"),
        ("worst", errors.max(), ERROR, ":"),
    ):
        axes.axvline(value, color=ink, ls=dashes, label=f"{name} {scientific(value)}")
    counted = "samples, by rising error" if len(errors) < _COUNTED else "samples"
    axes.set(xlabel="relative L² error", ylabel=counted)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False, axis="x")
    logarithmic(axes, "x", np.array([low, high]))
    legend(figure, axes)
    return figure


@styled
def distributions(errors: Mapping[str, np.ndarray]) -> Figure:
    """The share of samples whose error is at most e, against e, a step curve for each run."""
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    for k, (name, values) in enumerate(errors.items()):
        known = defined(values)
        shares = np.arange(1, len(known) + 1) / len(known)
        axes.step(
            np.sort(np.maximum(known, 1e-16)), shares, where="post", color=INKS[k % len(INKS)],
            ls=DASHES[k % len(DASHES)], label=name,
        )  # fmt: skip
    axes.set(xlabel="relative L² error e", ylabel="share of samples with error ≤ e", ylim=(0, 1.02))
    logarithmic(axes, "x", np.maximum(np.concatenate(list(errors.values())), 1e-16))
    legend(figure, axes)
    return figure


@styled
def sample_by_sample(reference: tuple[str, np.ndarray], errors: Mapping[str, np.ndarray]) -> Figure:
    """The error of each sample by a run, against its error by the reference, a marker a run."""
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    name, r = reference
    for k, (other, values) in enumerate(errors.items(), start=1):
        axes.plot(
            r, values, ls="", marker=MARKERS[k % len(MARKERS)], ms=4, mew=0.8, mfc="none",
            color=INKS[k % len(INKS)], label=other,
        )  # fmt: skip
    every = np.maximum(np.concatenate([r, *errors.values()]), 1e-16)
    ends = [every.min() / 1.1, every.max() * 1.1]
    axes.plot(ends, ends, color=QUIET, lw=0.8, ls="--", label="equal errors")
    axes.set(xlabel=f"error by {name}", ylabel="error of the same sample by the other")
    logarithmic(axes, "x", every)
    logarithmic(axes, "y", every)
    legend(figure, axes)
    return figure
