"""Charts of several runs: how they learned, how their errors are spread, one sample by all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from operators.defined import defined
from pipelines.reports.fields import Look, line
from pipelines.reports.figures import HALF, WIDE, legend, logarithmic, styled
from pipelines.reports.palette import DASHES, INKS, QUIET, TRUTH
from pipelines.reports.sheets import Functions, Panel, sheet
from pipelines.reports.wording import scientific

MARKERS = "osD^vPX"
FEW = 4  # runs of which predictions are drawn


@dataclass(frozen=True)
class Predicted:
    """Predictions of some test samples, and their errors.

    Args:
        name: Of the run.
        truth: The targets, on the points of the run.
        values: Of the shape of the values of `truth`.
        errors: Relative L² error of each sample.
    """

    name: str
    truth: Functions
    values: np.ndarray
    errors: np.ndarray

    @property
    def found(self) -> Functions:
        return replace(self.truth, values=self.values)

    @property
    def error(self) -> Functions:
        name = self.truth.look.name
        look = Look(f"p − {name}", "diverging", moves=self.truth.look.moves)
        return replace(self.truth, values=self.values - self.truth.values, look=look,
                       by=self.truth.values)  # fmt: skip


@styled
def learning(
    series: Mapping[str, tuple[Sequence[float], np.ndarray]], x: str, y: str, whole: bool
) -> Figure:
    """Scores while training, a curve for each run; of several seeds the mean, and their range.

    Args:
        series: Name -> places, and scores of shape (seeds, places).
        x, y: What the axes show.
        whole: Places are whole numbers.
    """
    figure = Figure(figsize=(WIDE, 3.4))
    axes = figure.subplots()
    for k, (name, (places, scores)) in enumerate(series.items()):
        ink, dashes = INKS[k % len(INKS)], DASHES[k % len(DASHES)]
        marker = MARKERS[k % len(MARKERS)] if len(places) < 12 else ""
        axes.plot(
            places, scores.mean(axis=0), color=ink, ls=dashes, marker=marker, ms=4, label=name
        )
        if len(scores) > 1:
            low, high = scores.min(axis=0), scores.max(axis=0)
            axes.fill_between(places, low, high, color=ink, alpha=0.18, lw=0)
    axes.set(xlabel=x, ylabel=y)
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    logarithmic(axes, "y", np.concatenate([scores.ravel() for _, scores in series.values()]))
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
    """The error of each sample by a run, against its error by the reference, a marker a run.

    Args:
        reference: Its name, and the error of each sample.
        errors: Those of the others, by name.
    """
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


def one_sample(
    inputs: Functions | None, every: Sequence[Predicted], samples: Mapping[str, int]
) -> Figure:
    """Some samples as all runs predict them, beside truth and input, of one scale; and p - u, of
    one scale as well.

    Args:
        inputs: Drawn beside them; None draws none.
        every: What the runs predict; truth and input are of the first.
        samples: Places of the samples by their titles.
    """
    if every[0].truth.domain.dim == 1:
        return _on_a_line(every, samples)
    rows, names = list[list[Panel | None]](), list[str]()
    for title, i in samples.items():
        above, below = _panels(inputs, every, i, first=not rows)
        rows += [above, below]
        names += [title, ""]
    return sheet(rows, names)


def _panels(
    inputs: Functions | None, every: Sequence[Predicted], i: int, first: bool
) -> tuple[list[Panel | None], list[Panel | None]]:
    """Input, truth and predictions of a sample; beneath them the errors."""
    truth = every[0].truth
    (channel,) = truth.chosen(1)
    u = truth.look.name
    scale = truth.look.scale(
        truth.of(i, channel), *(one.found.of(i, channel) for one in every)
    )  # fmt: skip
    of_error = every[0].error.look.scale(
        every[0].error.of(i, channel), *(one.error.of(i, channel) for one in every)
    )
    above: list[Panel | None] = [truth.panel(i, channel, scale, f"truth {u}" if first else "")]
    below: list[Panel | None] = [None]
    if inputs is not None:
        (a,) = inputs.chosen(1)
        above.insert(0, inputs.panel(i, a, title=f"input {inputs.look.name}" if first else ""))
        below.append(None)
    for one in every:
        above.append(one.found.panel(i, channel, scale, one.name if first else ""))
        below.append(one.error.panel(
            i, channel, of_error, f"error {scientific(float(one.errors[i]))}"
        ))  # fmt: skip
    return _one_bar(above, u, keep=int(inputs is not None)), _one_bar(below, f"p − {u}")


def _one_bar(row: list[Panel | None], label: str, keep: int = 0) -> list[Panel | None]:
    """Panels of one scale, the last of which has the bar; the first ones have their own."""
    last = len(row) - 1
    return [
        one if one is None or k < keep else replace(one, label=label if k == last else None)
        for k, one in enumerate(row)
    ]


@styled
def _on_a_line(every: Sequence[Predicted], samples: Mapping[str, int]) -> Figure:
    """A column for each sample: u and all p above, all p - u beneath. A row has one scale."""
    truth = every[0].truth
    (channel,) = truth.chosen(1)
    figure = Figure(figsize=(WIDE, 4.6))
    axes = figure.subplots(
        2, len(samples), height_ratios=[3, 2], sharex=truth.positions is None, sharey="row",
        squeeze=False,
    )  # fmt: skip
    for (above, below), (title, i) in zip(axes.T, samples.items(), strict=True):
        above.plot(*line(truth.place(i), truth.of(i, channel)), color=TRUTH, lw=1.8, alpha=0.6)
        for k, one in enumerate(every):
            look = {"color": INKS[k % len(INKS)], "ls": DASHES[(k + 1) % len(DASHES)], "lw": 1.2}
            x, p = line(one.truth.place(i), one.found.of(i, channel))
            above.plot(x, p, **look)
            below.plot(x, line(one.truth.place(i), one.error.of(i, channel))[1], **look)
            above.set(xlim=(x[0], x[-1]), title=title)
            below.set(xlim=(x[0], x[-1]), xlabel="x")
        below.axhline(0, color=QUIET, lw=0.6)
    name = truth.look.name
    axes[0, 0].set_ylabel(name)
    axes[1, 0].set_ylabel(f"error, p − {name}")
    axes[0, 0].plot([], [], color=TRUTH, lw=1.8, alpha=0.6, label=f"truth {name}")
    for k, one in enumerate(every):
        ink, dashes = INKS[k % len(INKS)], DASHES[(k + 1) % len(DASHES)]
        axes[0, 0].plot([], [], color=ink, ls=dashes, lw=1.2, label=f"p of {one.name}")
    legend(figure, axes[0, 0])
    return figure
