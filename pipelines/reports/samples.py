"""Pictures of test samples: what one or several operators predict of them, and where these err."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from operators.norms import rising
from pipelines.reports.fields import Look, line
from pipelines.reports.figures import HALF, TIMES, WIDE, legend, panels, styled, time_bar
from pipelines.reports.palette import DASHES, ERROR, INKS, INPUT, QUIET, TRUTH
from pipelines.reports.sheets import Functions, Panel, few, sheet, wrapped
from pipelines.reports.wording import scientific

FEW = 4  # channels of a sample that are drawn, and operators whose predictions are
_Row = list[Panel | None]


@dataclass(frozen=True)
class Predicted:
    """Predictions of some test samples, and their errors."""

    name: str
    truth: Functions
    values: np.ndarray
    errors: np.ndarray

    @property
    def found(self) -> Functions:
        return replace(self.truth, values=self.values)

    @property
    def error(self) -> Functions:
        look = Look(f"p − {self.truth.look.name}", "diverging", moves=self.truth.look.moves)
        values = self.values - self.truth.values
        return replace(self.truth, values=values, look=look, by=self.truth.values)


def ranked(errors: np.ndarray) -> dict[str, int]:
    """Which samples are the best, the median (of two the better) and the worst, of those that have
    an error."""
    order = rising(errors)
    return {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": order[-1]}


def predictions(
    inputs: Functions | None, one: Predicted, samples: Sequence[int], noisy: bool = False
) -> Figure:
    """Input, truth u and prediction p of the best, the median and the worst sample, and p - u."""
    titles = {
        f"{name}: sample {samples[i]}{{}}error {scientific(float(one.errors[i]))}": i
        for name, i in ranked(one.errors).items()
    }
    return drawn(inputs, [one], titles, noisy)


def drawn(
    inputs: Functions | None,
    every: Sequence[Predicted],
    titles: Mapping[str, int],
    noisy: bool = False,
    most: int = FEW,
    alike: Sequence[int] = (),
) -> Figure:
    """Input, truth u, predictions p and p - u of samples, whose places follow their titles.

    Args:
        every: What operators predict; u is that of the first. Of several, one channel is drawn.
        alike: Places of samples whose errors have one scale in panels; by default of those drawn.
    """
    most = most if len(every) == 1 else 1
    if every[0].truth.domain.dim == 1:
        return _on_a_line(inputs, noisy, every, titles, most)
    return _in_panels(inputs, noisy, every, titles, most, alike or [*titles.values()])


@styled
def _on_a_line(
    inputs: Functions | None,
    noisy: bool,
    every: Sequence[Predicted],
    titles: Mapping[str, int],
    most: int,
) -> Figure:
    """A column for each sample: a row for the input, and two for each component, u and all p, and
    p - u beneath. A row has one scale."""
    truth, alone = every[0].truth, len(every) == 1
    components, times = list(truth.components.items())[:most], truth.times
    several = len(times) > 1 and alone
    known = [] if inputs is None else inputs.times
    colour = Normalize(min(known + times), times[-1]) if several else None

    def ink(time: float | None, otherwise: str) -> Any:
        return TIMES(colour(time)) if colour and time is not None else otherwise

    ratios = [*[1.4] * (inputs is not None), *[2.0, 1.0] * len(components)]
    figure = Figure(figsize=(WIDE, 0.4 + 1.4 * sum(ratios)))
    grid = figure.subplots(
        len(ratios), len(titles), squeeze=False, sharex=truth.positions is None, sharey="row",
        height_ratios=ratios,
    )  # fmt: skip
    for cell, title in zip(grid[0], titles, strict=True):
        cell.set_title(title.format(", "))
    if inputs is not None:
        grid[0, 0].set_ylabel(f"input {inputs.look.name}{' with noise' if noisy else ''}")
        for cell, i in zip(grid[0], titles.values(), strict=True):
            for channel in inputs.chosen(most):
                time = inputs.channels[channel].time
                cell.plot(*line(inputs.place(i), inputs.of(i, channel)), color=ink(time, INPUT))
    axes = grid[len(ratios) - 2 * len(components) :]
    for row, (component, channels) in enumerate(components):
        for column, i in enumerate(titles.values()):
            above, below = axes[2 * row : 2 * row + 2, column]
            for time in few(list(channels), 4 if alone else 1):
                at, look = channels[time], {"lw": 1.6, "alpha": 0.5 if several else 1.0}
                above.plot(*line(truth.place(i), truth.of(i, at)), color=ink(time, TRUTH), **look)
                for k, one in enumerate(every):
                    own, dashes = INKS[k % len(INKS)], DASHES[(k + 1) % len(DASHES)]
                    x, p = line(one.truth.place(i), one.found.of(i, at))
                    e = line(one.truth.place(i), one.error.of(i, at))[1]
                    above.plot(x, p, color=ink(time, own), ls=dashes, lw=1.3)
                    look = {"color": ink(time, ERROR)} if alone else {"color": own, "ls": dashes}
                    below.plot(x, e, lw=1.0, **look)
                    below.set(xlim=(x[0], x[-1]))
            below.axhline(0, color=QUIET, lw=0.6)
        axes[2 * row, 0].set_ylabel(component)
        axes[2 * row + 1, 0].set_ylabel(f"error, p − {component}")
    for cell in axes[-1]:
        cell.set_xlabel("x")
    if colour:
        time_bar(figure, grid, colour)
    _explain(figure, grid[0, 0], every, partial(ink, times[len(times) // 2] if several else None))
    return figure


def _explain(
    figure: Figure, first: Axes, every: Sequence[Predicted], ink: Callable[[str], Any]
) -> None:
    """The legend of curves, by what stands for them in the first axes."""
    name, alone = every[0].truth.look.name, len(every) == 1
    several = len(every[0].truth.times) > 1 and alone
    first.plot([], [], color=ink(TRUTH), label=f"truth {name}", alpha=0.5 if several else 1)
    for k, one in enumerate(every):
        look = {"color": ink(INKS[k % len(INKS)]), "ls": DASHES[(k + 1) % len(DASHES)]}
        first.plot([], [], label="prediction p" if alone else f"p of {one.name}", **look)
    if alone:
        first.plot([], [], color=ink(ERROR), lw=1.0, label=f"error p − {name}")
    legend(figure, first)


def _in_panels(
    inputs: Functions | None,
    noisy: bool,
    every: Sequence[Predicted],
    titles: Mapping[str, int],
    most: int,
    alike: Sequence[int],
) -> Figure:
    """Input, truth, prediction and error beside each other, a row for each of a few channels; of
    several operators the errors are beneath their predictions. Truth and predictions of a component
    of a sample have one scale of colours, errors in all samples have one."""
    rows, names, alone = list[_Row](), list[str](), len(every) == 1
    for title, i in titles.items():
        beside = [] if inputs is None else inputs.chosen(most)
        for k, (a, u) in enumerate(zip_longest(beside, every[0].truth.chosen(most))):
            given: _Row = [] if inputs is None else [None]
            if inputs is not None and a is not None:
                given = [_given(inputs, noisy, i, a, first=not rows)]
            above, below = [], []
            if u is not None:
                above, below = _beside(every, i, u, alike, first=not rows)
            names.append(title.format("\n") if k == 0 else "")
            if alone:
                rows.append([*given, *above, *below])
            else:
                rows += [[*given, *above], [*[None] * (len(given) + 1), *below]]
                names.append("")
    return sheet(rows, names)


def _given(inputs: Functions, noisy: bool, i: int, a: int, first: bool) -> Panel:
    several = len(inputs.names) > 1
    name = inputs.names[a] if several else inputs.look.name
    title = f"input {name}{' with noise' if noisy else ''}" if first or several else ""
    return replace(inputs.panel(i, a, title=title), label=name)


def _beside(
    every: Sequence[Predicted], i: int, u: int, alike: Sequence[int], first: bool
) -> tuple[_Row, _Row]:
    """Truth and predictions of a channel of a sample, the last of which has the bar of all; and
    the errors, the last of which has theirs."""
    truth, alone = every[0].truth, len(every) == 1
    several = len(truth.names) > 1
    name, like = truth.names[u] if several else truth.look.name, truth.like(u)
    scale = truth.look.scale(truth.of(i, like), *(one.found.of(i, like) for one in every))
    errors = [one.error.of(j, like).ravel() for one in every for j in alike]
    of_error = every[0].error.look.scale(np.concatenate(errors))
    titled = first or several
    above = [truth.panel(i, u, scale, f"truth {name}" if titled else "")]
    below = []
    for one in every:
        word = "prediction p" if alone else one.name
        above.append(one.found.panel(i, u, scale, word if titled else ""))
        word = f"error p − {name}" * titled if alone else f"error {scientific(one.errors[i])}"
        below.append(one.error.panel(i, u, of_error, word))
    return [*_one_bar(above, f"{name}, p" if alone else name)], [*_one_bar(below, f"p − {name}")]


def _one_bar(row: Sequence[Panel], label: str) -> Iterator[Panel]:
    """Panels of one scale, the last of which has the bar."""
    for panel in row:
        yield replace(panel, label=label if panel is row[-1] else None)


def mean_error(truth: Functions, error: np.ndarray) -> Figure:
    """Mean of |p - u| over the samples and times at each point, a panel for each component."""
    mean, panels = np.abs(error).mean(axis=0), []
    for name, channels in list(truth.components.items())[:FEW]:
        values = mean[..., list(channels.values())].mean(axis=-1)
        scale = Normalize(0, float(values.max()) or 1.0)
        label = f"mean |p − {name}|"
        panels.append(Panel(truth.domain, values, Look(name, "error"), scale, label=label))
    return sheet([panels], width=HALF if len(panels) == 1 else WIDE)


@styled
def predictions_on_a_line(truth: Functions, predicted: Mapping[str, np.ndarray]) -> Figure:
    """The truth and p - u of each operator on the first sample, each error on its own scale."""
    (channel,), place = truth.chosen(1), truth.place(0)
    x, u = line(place, truth.of(0, channel))
    figure, axes = panels(len(predicted) + 1, 3, 1.35)
    axes[0].plot(x, u, color=TRUTH)
    axes[0].set_title("truth u", fontsize=8)
    for axis, (name, p) in zip(axes[1:], predicted.items(), strict=True):
        difference = line(place, p[..., channel])[1] - u
        axis.plot(x, difference, color=ERROR, lw=0.9)
        axis.axhline(0, color=QUIET, lw=0.6)
        error = float(np.linalg.norm(difference) / np.linalg.norm(u))
        axis.set_title(f"{name}: p − u, {scientific(error)}", fontsize=8)
    return figure


def predictions_in_panels(truth: Functions, predicted: Mapping[str, np.ndarray]) -> Figure:
    """The truth, predictions (*grid, channels) and error maps of the first of some samples; all
    errors have one scale."""
    (channel,), u = truth.chosen(1), truth.values[:1]
    found = [replace(truth, values=p[None]) for p in predicted.values()]
    errors = [replace(one, values=one.values - u, look=Look("p − u", "diverging")) for one in found]
    scale = truth.scale(channel)
    largest = float(np.quantile([np.abs(e.of(0, channel)).max() for e in errors], 0.75))
    every: _Row = [truth.panel(0, channel, scale, "truth u"), None]
    for name, p, error in zip(predicted, found, errors, strict=True):
        every += [p.panel(0, channel, scale, name)]
        every += [error.panel(0, channel, Normalize(-largest, largest), "p − u")]
    return sheet(wrapped(every))
