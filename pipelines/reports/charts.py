"""Charts of a trained operator: how it learned, what it predicts, where it errs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from operators.training.fit import Epoch
from pipelines.reports.figures import (
    ERROR,
    HALF,
    MODEL,
    QUIET,
    TIMES,
    TRUTH,
    WIDE,
    legend,
    logarithmic,
    styled,
    time_bar,
)
from pipelines.reports.wording import scientific


@styled
def learning_curve(history: Sequence[Epoch], loss: str, watched: str) -> Figure:
    """Training loss, score of the watched samples and learning rate against the epoch.

    Args:
        history: What was recorded of each epoch.
        loss: Name of the training loss.
        watched: The samples by whose score the epoch is chosen.
    """
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
    axes.plot(epoch, losses, color=TRUTH, lw=1.0, ls="--", label=f"training loss ({loss})")
    axes.plot(epoch, score, color=MODEL, marker=marker, ms=3, label=f"relative L² error, {watched}")
    best = int(np.argmin(score))
    note = f"best: {scientific(score[best])}, epoch {epoch[best]}"
    axes.plot(epoch[best], score[best], "o", color=ERROR, ms=6, label=note)
    axes.set(xlabel="epoch", ylabel="loss, error")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    logarithmic(axes, "y", np.concatenate([losses, score]))
    axes.set_zorder(rate.get_zorder() + 1)  # the curves lie above the thin learning rate
    axes.patch.set_visible(False)
    legend(figure, axes, rate)
    return figure


def ranked(errors: np.ndarray) -> dict[str, int]:
    """Which samples are the best, the median (of two the better) and the worst."""
    order = np.argsort(errors).tolist()
    return {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": order[-1]}


@styled
def best_median_worst(
    x: np.ndarray,
    target: np.ndarray,
    prediction: np.ndarray,
    errors: np.ndarray,
    samples: Sequence[int],
    times: Sequence[float],
) -> Figure:
    """The best, the median and the worst prediction over the truth, and p - u beneath.

    Args:
        x: Grid points, shape (n,).
        target, prediction: u and p, shape (samples, n, times).
        errors: Relative L² error of each sample.
        samples: Their numbers in the store.
        times: Time of each channel; of more than four, four are drawn.
    """
    figure = Figure(figsize=(WIDE, 4.6))
    axes = figure.subplots(2, 3, sharex=True, height_ratios=[2, 1])
    drawn = np.unique(np.linspace(0, len(times) - 1, 4).round().astype(int))
    several = len(times) > 1
    colour = Normalize(times[0], times[-1]) if several else None
    for column, (name, i) in enumerate(ranked(errors).items()):
        above, below = axes[:, column]
        for channel in drawn:
            ink = TIMES(colour(times[channel])) if colour else TRUTH
            u, p = target[i, :, channel], prediction[i, :, channel]
            above.plot(x, u, color=ink, lw=1.6, alpha=0.5 if several else 1.0)
            above.plot(x, p, color=ink if several else MODEL, ls="--", lw=1.3)
            below.plot(x, p - u, color=ink if several else ERROR, lw=1.0)
        above.set_title(f"{name}: sample {samples[i]}, error {scientific(float(errors[i]))}")
        below.axhline(0, color=QUIET, lw=0.6)
        below.set(xlabel="x", xlim=(x[0], x[-1]))
    axes[0, 0].set_ylabel("u")
    axes[1, 0].set_ylabel("error, p − u")
    if colour:
        time_bar(figure, axes, colour)
    ink = TIMES(0.5) if several else TRUTH
    axes[0, 0].plot([], [], color=ink, alpha=0.5 if several else 1.0, label="truth u")
    axes[0, 0].plot([], [], color=ink if several else MODEL, ls="--", label="prediction p")
    axes[0, 0].plot([], [], color=ink if several else ERROR, lw=1.0, label="error p − u")
    legend(figure, axes[0, 0])
    return figure


@styled
def error_spectrum(target: np.ndarray, prediction: np.ndarray, modes: int | None = None) -> Figure:
    """Mean |û(k)| of the target and of the error against the mode k >= 1, û = DFT(u)/n.

    Args:
        target, prediction: Shape (samples, n, channels), on a periodic grid.
        modes: Modes 0 ... modes - 1 that the decoder keeps, to be marked; None for none.
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
    """How many samples have which relative L² error, with mean, median and worst."""
    errors = np.maximum(errors, 1e-16)  # an exact prediction has a place on a logarithmic axis
    low, high = errors.min() / 1.05, errors.max() * 1.05
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    bins = np.geomspace(low, high, 2 + max(5, int(2 * len(errors) ** 0.5)))
    axes.hist(errors, bins=bins.tolist(), color="#9CC5E0", edgecolor="white", lw=0.5)
    for name, value, ink, dashes in (
        ("mean", errors.mean(), MODEL, "-"),
        ("median", float(np.median(errors)), TRUTH, "--"),
        ("worst", errors.max(), ERROR, ":"),
    ):
        axes.axvline(value, color=ink, ls=dashes, label=f"{name} {scientific(value)}")
    axes.set(xlabel="relative L² error", ylabel="samples")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False, axis="x")
    logarithmic(axes, "x", np.array([low, high]))
    legend(figure, axes)
    return figure
