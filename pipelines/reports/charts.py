"""Charts of a trained operator: how it learned, what it predicts, where it errs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import fmean

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from operators.defined import by_column, defined, over_defined, rising
from operators.training.fit import Epoch
from pipelines.reports.fields import Look, line
from pipelines.reports.figures import HALF, TIMES, WIDE, legend, logarithmic, styled, time_bar
from pipelines.reports.palette import DASHES, ERROR, INPUT, MARKERS, MODEL, QUIET, SHADE, TRUTH
from pipelines.reports.sheets import Functions, Panel, few, sheet
from pipelines.reports.wording import scientific

FEW = 4  # channels of a sample that are drawn
_COUNTED = 20  # samples, from which on bins count them


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


def ranked(errors: np.ndarray) -> dict[str, int]:
    """Which samples are the best, the median (of two the better) and the worst, of those that have
    an error."""
    order = rising(errors)
    return {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": order[-1]}


def predictions(
    inputs: Functions | None,
    truth: Functions,
    predicted: np.ndarray,
    errors: np.ndarray,
    samples: Sequence[int],
    noisy: bool = False,
) -> Figure:
    """Input, truth u and prediction p of the best, the median and the worst sample, and p - u.

    Args:
        inputs: Drawn beside them; None draws none.
        truth: u; of many channels a few are drawn.
        predicted: p, of the shape of the values of u.
        errors: Relative L² error of each sample.
        samples: Their numbers in the store.
        noisy: The inputs have noise.
    """
    titles = {
        name: f"{name}: sample {samples[i]}{{}}error {scientific(float(errors[i]))}"
        for name, i in ranked(errors).items()
    }
    places = dict(zip(titles.values(), ranked(errors).values(), strict=True))
    return drawn(inputs, truth, predicted, places, noisy)


def drawn(
    inputs: Functions | None,
    truth: Functions,
    predicted: np.ndarray,
    titles: dict[str, int],
    noisy: bool = False,
    most: int = FEW,
    alike: Sequence[int] = (),
) -> Figure:
    """Input, truth u, prediction p and p - u of samples, whose places follow their titles.

    Args:
        inputs, truth, predicted, noisy: See `predictions`.
        titles: What stands above each sample, and its place.
        most: Channels that are drawn.
        alike: Places of samples whose errors have one scale in panels; by default of those drawn.
    """
    if truth.domain.dim == 1:
        return _on_a_line(inputs, noisy, truth, predicted, titles, most)
    return _in_panels(inputs, noisy, truth, predicted, titles, most, alike or [*titles.values()])


@styled
def _on_a_line(
    inputs: Functions | None,
    noisy: bool,
    truth: Functions,
    predicted: np.ndarray,
    titles: dict[str, int],
    most: int,
) -> Figure:
    """A column for each sample: a row for the input, and two for each component, u and p, and p - u
    beneath. A row has one scale."""
    components, times = list(truth.components.items())[:most], truth.times
    several = len(times) > 1
    known = [] if inputs is None else inputs.times
    colour = Normalize(min(known + times), times[-1]) if several else None
    ratios = [*[1.4] * (inputs is not None), *[2.0, 1.0] * len(components)]
    figure = Figure(figsize=(WIDE, 0.4 + 1.4 * sum(ratios)))
    every = figure.subplots(
        len(ratios), len(titles), squeeze=False, sharex=truth.positions is None, sharey="row",
        height_ratios=ratios,
    )  # fmt: skip
    for cell, title in zip(every[0], titles, strict=True):
        cell.set_title(title.format(", "))
    if inputs is not None:
        every[0, 0].set_ylabel(f"input {inputs.look.name}{' with noise' if noisy else ''}")
        for cell, i in zip(every[0], titles.values(), strict=True):
            for channel in inputs.chosen(most):
                time = inputs.channels[channel].time
                ink = TIMES(colour(time)) if colour and time is not None else INPUT
                cell.plot(*line(inputs.place(i), inputs.of(i, channel)), color=ink, lw=1.3)
    axes = every[len(ratios) - 2 * len(components) :]
    for row, (component, channels) in enumerate(components):
        for column, i in enumerate(titles.values()):
            above, below = axes[2 * row : 2 * row + 2, column]
            for time in few(list(channels), 4):
                ink = TIMES(colour(time)) if colour and time is not None else TRUTH
                p = replace(truth, values=predicted).of(i, channels[time])
                x, u = line(truth.place(i), truth.of(i, channels[time]))
                p = line(truth.place(i), p)[1]
                above.plot(x, u, color=ink, lw=1.6, alpha=0.5 if several else 1.0)
                above.plot(x, p, color=ink if several else MODEL, ls="--", lw=1.3)
                below.plot(x, p - u, color=ink if several else ERROR, lw=1.0)
                below.set(xlim=(x[0], x[-1]))
            below.axhline(0, color=QUIET, lw=0.6)
        axes[2 * row, 0].set_ylabel(component)
        axes[2 * row + 1, 0].set_ylabel(f"error, p − {component}")
    for cell in axes[-1]:
        cell.set_xlabel("x")
    if colour:
        time_bar(figure, every, colour)
    name, ink = truth.look.name, TIMES(0.5) if several else TRUTH
    first = axes[0, 0]
    first.plot([], [], color=ink, alpha=0.5 if several else 1.0, label=f"truth {name}")
    first.plot([], [], color=ink if several else MODEL, ls="--", label="prediction p")
    first.plot([], [], color=ink if several else ERROR, lw=1.0, label=f"error p − {name}")
    legend(figure, first)
    return figure


def _in_panels(
    inputs: Functions | None,
    noisy: bool,
    truth: Functions,
    predicted: np.ndarray,
    titles: dict[str, int],
    most: int,
    alike: Sequence[int],
) -> Figure:
    """Input, truth, prediction and error beside each other, a row for each of a few channels;
    truth and prediction of a component of a sample have one scale of colours, its errors in all
    samples have one."""
    found = replace(truth, values=predicted)
    error = replace(
        truth, values=predicted - truth.values, by=truth.values,
        look=Look(f"p − {truth.look.name}", "diverging", moves=truth.look.moves),
    )  # fmt: skip
    rows, names = [], []
    for title, i in titles.items():
        beside = [] if inputs is None else inputs.chosen(most)
        for k, (a, u) in enumerate(zip_longest(beside, truth.chosen(most))):
            first = not rows
            row: list[Panel | None] = [None] * 4
            if a is not None and inputs is not None:
                one = inputs.names[a] if len(inputs.names) > 1 else inputs.look.name
                words = f"input {one}{' with noise' if noisy else ''}"
                panel = inputs.panel(i, a, title=words if first or len(inputs.names) > 1 else "")
                row[0] = replace(panel, label=one)
            if u is not None:
                several = len(truth.names) > 1
                one = truth.names[u] if several else truth.look.name
                words = (f"truth {one}", "prediction p", f"error p − {one}")
                like = truth.like(u)
                scale = truth.look.scale(truth.of(i, like), found.of(i, like))
                of_error = error.look.scale(
                    np.concatenate([error.of(j, like).ravel() for j in alike])
                )
                labels = (None, f"{one}, p", f"p − {one}")
                for place, (f, s, word, label) in enumerate(zip(
                    (truth, found, error), (scale, scale, of_error), words, labels, strict=True
                )):  # fmt: skip
                    panel = f.panel(i, u, s, word if first or several else "")
                    row[1 + place] = replace(panel, label=label)
            rows.append(row[inputs is None :])
            names.append(title.format("\n") if k == 0 else "")
    return sheet(rows, names)


def mean_error(truth: Functions, error: np.ndarray) -> Figure:
    """Mean of |p - u| over the samples and times at each point, a panel for each component.

    Args:
        truth: u, on the same points in all samples.
        error: p - u, of the shape of its values.
    """
    mean, panels = np.abs(error).mean(axis=0), []
    for name, channels in list(truth.components.items())[:FEW]:
        values = mean[..., list(channels.values())].mean(axis=-1)
        scale = Normalize(0, float(values.max()) or 1.0)
        label = f"mean |p − {name}|"
        panels.append(Panel(truth.domain, values, Look(name, "error"), scale, label=label))
    return sheet([panels], width=HALF if len(panels) == 1 else WIDE)


@styled
def error_by_time(
    times: Sequence[float],
    errors: Mapping[str, np.ndarray],
    beside: Mapping[str, np.ndarray] | None = None,
    seen: float | None = None,
) -> Figure:
    """Mean relative L² error at each time, and the range of nine in ten samples.

    Args:
        times: The times, or the steps of a rollout.
        errors: By component, shape (samples, times).
        beside: Mean errors of trivial predictors, shape (times).
        seen: The last time that training sees, to be marked.
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
    beside = beside or {}
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
    """Relative L² errors on each grid: of every sample a dot, and the means.

    Args:
        errors: Points of an axis -> errors of the samples.
        trained: Points of an axis in training, which a dotted line marks.
    """
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
def error_spectrum(target: np.ndarray, prediction: np.ndarray, modes: int | None = None) -> Figure:
    """Mean |û(k)| of the target and of the error against the mode k >= 1, û = DFT(u)/n.

    Args:
        target, prediction: Shape (samples, n, channels), on a periodic grid.
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
