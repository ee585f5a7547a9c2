"""Pictures of test samples: inputs, targets, predictions by one or several operators, errors."""

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

FEW = 4  # largest number of channels of a sample, and of operators, in one picture
_Row = list[Panel | None]


@dataclass(frozen=True)
class Predicted:
    """Predictions of several test samples by one operator, and their relative errors."""

    name: str
    truth: Functions
    values: np.ndarray
    errors: np.ndarray

    @property
    def prediction(self) -> Functions:
        return replace(self.truth, values=self.values)

    @property
    def error(self) -> Functions:
        look = Look(f"p − {self.truth.look.name}", "diverging", moves=self.truth.look.moves)
        values = self.values - self.truth.values
        return replace(self.truth, values=values, look=look, by=self.truth.values)


def ranked(errors: np.ndarray) -> dict[str, int]:
    """Positions of the samples with the smallest, the median and the largest error. Samples without
    an error are ignored.

    For an even number of samples, the median is the better of the two in the middle.
    """
    order = rising(errors)
    return {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": order[-1]}


def predictions(
    inputs: Functions | None, predicted: Predicted, samples: Sequence[int], noisy: bool = False
) -> Figure:
    """Input, truth u, prediction p and error p - u of three samples: the best, the median and the
    worst.

    Args:
        samples: Number of each sample in the store.
        noisy: Whether the inputs have noise.
    """
    titles = {
        f"{name}: sample {samples[i]}\nerror {scientific(float(predicted.errors[i]))}": i
        for name, i in ranked(predicted.errors).items()
    }
    return drawn(inputs, [predicted], titles, noisy, channels_of(predicted.truth))


def channels_of(truth: Functions) -> int:
    """Number of channels to draw for each of three samples. For a trajectory in two or three
    dimensions the number is 1, so that the picture has at most four rows."""
    return 1 if truth.domain.dim > 1 and len(truth.times) > 1 else FEW


def drawn(
    inputs: Functions | None,
    every: Sequence[Predicted],
    titles: Mapping[str, int],
    noisy: bool = False,
    most: int = FEW,
) -> Figure:
    """Input, truth u, predictions p and errors p - u of several samples.

    Args:
        every: Predictions of one or several operators. With several operators, only one channel is
            drawn.
        titles: Maps the title of each sample to the sample's position.
        noisy: Whether the inputs have noise.
        most: Largest number of channels to draw.
    """
    most = most if len(every) == 1 else 1
    if every[0].truth.domain.dim == 1:
        return _on_a_line(inputs, noisy, every, titles, most)
    return _in_panels(inputs, noisy, every, titles, most)


@styled
def _on_a_line(
    inputs: Functions | None,
    noisy: bool,
    every: Sequence[Predicted],
    titles: Mapping[str, int],
    most: int,
) -> Figure:
    """Curves of several samples in one dimension.

    Each sample has a column. The first row has the input. Each component has two further rows: u
    with all predictions p, and all errors p - u. The panels of a row share one scale, except that
    each panel of errors has its own scale.
    """
    truth, alone = every[0].truth, len(every) == 1
    components, times = list(truth.components.items())[:most], truth.times
    several = len(times) > 1 and alone
    input_times = [] if inputs is None else inputs.times
    colour = Normalize(min(input_times + times), times[-1]) if several else None

    def ink(time: float | None, otherwise: str) -> Any:
        return TIMES(colour(time)) if colour and time is not None else otherwise

    ratios = [*[1.4] * (inputs is not None), *[2.0, 1.0] * len(components)]
    figure = Figure(figsize=(WIDE, 0.5 + 1.0 * sum(ratios)))
    grid = figure.subplots(
        len(ratios), len(titles), squeeze=False, sharex=truth.positions is None,
        height_ratios=ratios,
    )  # fmt: skip
    first_error = len(ratios) - 2 * len(components) + 1
    for row in [*grid[:first_error], *grid[first_error + 1 :: 2]]:
        for cell in row[1:]:
            cell.sharey(row[0])
            cell.tick_params(labelleft=False)
    for cell, title in zip(grid[0], titles, strict=True):
        cell.set_title(title)
    if inputs is not None:
        _inputs_on_a_line(grid[0], inputs, noisy, [*titles.values()], most, ink)
    axes = grid[len(ratios) - 2 * len(components) :]
    for row, (component, channels) in enumerate(components):
        for column, i in enumerate(titles.values()):
            above, below = axes[2 * row : 2 * row + 2, column]
            for time in few(list(channels), 4 if alone else 1):
                at, look = channels[time], {"lw": 1.5, "alpha": 0.5 if several else 1.0}
                above.plot(*line(truth.place(i), truth.of(i, at)), color=ink(time, TRUTH), **look)
                for k, one in enumerate(every):
                    hue, dashes = INKS[k % len(INKS)], DASHES[(k + 1) % len(DASHES)]
                    x, p = line(one.truth.place(i), one.prediction.of(i, at))
                    e = line(one.truth.place(i), one.error.of(i, at))[1]
                    above.plot(x, p, color=ink(time, hue), ls=dashes, lw=1.2)
                    look = {"color": ink(time, ERROR)} if alone else {"color": hue, "ls": dashes}
                    below.plot(x, e, lw=0.9, **look)
                    below.set(xlim=(x[0], x[-1]))
            below.axhline(0, color=QUIET, lw=0.6)
        axes[2 * row, 0].set_ylabel(component)
        axes[2 * row + 1, 0].set_ylabel(f"p − {component}")
    for cell in axes[-1]:
        cell.set_xlabel("x")
    if colour:
        time_bar(figure, grid, colour)
    _explain(figure, grid[0, 0], every, partial(ink, times[len(times) // 2] if several else None))
    return figure


def _inputs_on_a_line(
    row: Sequence[Axes],
    inputs: Functions,
    noisy: bool,
    samples: Sequence[int],
    most: int,
    ink: Callable[[float | None, str], Any],
) -> None:
    """Draw the inputs of samples. Empty curves provide the legend entries."""
    row[0].set_ylabel(f"input {inputs.look.name}")
    for cell, i in zip(row, samples, strict=True):
        for channel in inputs.chosen(most):
            x, a = line(inputs.place(i), inputs.of(i, channel))
            shade = ink(inputs.channels[channel].time, INPUT)
            cell.plot(x, a, color=shade, ls=_dashes(inputs, channel))
    shade = ink(inputs.times[-1] if inputs.times else None, INPUT)
    for component, channels in list(inputs.components.items())[:most]:
        name = component if len(inputs.components) > 1 else inputs.look.name
        label = f"input {name}{' with noise' if noisy else ''}"
        dashes = _dashes(inputs, next(iter(channels.values())))
        row[0].plot([], [], color=shade, ls=dashes, label=label)


def _dashes(inputs: Functions, channel: int) -> str:
    """Line style of the component to which a channel belongs."""
    components = [list(times.values()) for times in inputs.components.values()]
    return DASHES[components.index(inputs.like(channel)) % len(DASHES)]


def _explain(
    figure: Figure, first: Axes, every: Sequence[Predicted], ink: Callable[[str], Any]
) -> None:
    """Add the legend of the curves. Its entries are empty curves in the axes `first`."""
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
) -> Figure:
    """Panels of input, truth, prediction and error. Each of a few channels has a row.

    The errors of several operators are drawn below the predictions. For each sample and component,
    truth and predictions share one colour scale, and the errors share another.
    """
    rows, names, alone = list[_Row](), list[str](), len(every) == 1
    for title, i in titles.items():
        beside = [] if inputs is None else inputs.chosen(most)
        for k, (a, u) in enumerate(zip_longest(beside, every[0].truth.chosen(most))):
            given: _Row = [] if inputs is None else [None]
            if inputs is not None and a is not None:
                given = [_given(inputs, noisy, i, a, first=not rows)]
            above, below = [], []
            if u is not None:
                above, below = _beside(every, i, u, first=not rows)
            names.append(title if k == 0 else "")
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
    label = inputs.symbol(a)
    return replace(inputs.panel(i, a, title=title), label=label)


def _beside(every: Sequence[Predicted], i: int, u: int, first: bool) -> tuple[_Row, _Row]:
    """Two rows of panels for one channel of one sample. The first row has the truth and the
    predictions, the second row has the errors. The last panel of each row has the colour bar."""
    truth, alone = every[0].truth, len(every) == 1
    several = len(truth.names) > 1
    name, like = truth.names[u] if several else truth.look.name, truth.like(u)
    scale = truth.look.scale(truth.of(i, like), *(one.prediction.of(i, like) for one in every))
    errors = [one.error.of(i, like).ravel() for one in every]
    of_error = every[0].error.look.scale(np.concatenate(errors))
    titled = first or several
    above = [truth.panel(i, u, scale, f"truth {name}" if titled else "")]
    below = []
    for one in every:
        word = "prediction p" if alone else one.name
        above.append(one.prediction.panel(i, u, scale, word if titled else ""))
        word = f"error p − {name}" * titled if alone else f"error {scientific(one.errors[i])}"
        below.append(one.error.panel(i, u, of_error, word))
    symbol = truth.symbol(u)
    return [*_one_bar(above, f"{symbol}, p")], [*_one_bar(below, f"p − {symbol}")]


def _one_bar(row: Sequence[Panel], label: str) -> Iterator[Panel]:
    """The panels of a row, which share a scale. Only the last panel has a colour bar."""
    for panel in row:
        yield replace(panel, label=label if panel is row[-1] else None)


def mean_error(truth: Functions, error: np.ndarray) -> Figure:
    """Mean of |p - u| over all samples and times, as a function of the point. Each component has a
    panel."""
    mean, panels = np.abs(error).mean(axis=0), []
    for name, channels in list(truth.components.items())[:FEW]:
        values = mean[..., list(channels.values())].mean(axis=-1)
        scale = Normalize(0, float(values.max()) or 1.0)
        label = f"mean |p − {name}|"
        panels.append(Panel(truth.domain, values, Look(name, "error"), scale, label=label))
    return sheet([panels], width=HALF if len(panels) == 1 else WIDE)


@styled
def predictions_on_a_line(truth: Functions, predicted: Mapping[str, np.ndarray]) -> Figure:
    """Truth of the first sample, and the error p - u of each operator. Each panel has its own
    scale."""
    (channel,), domain = truth.chosen(1), truth.place(0)
    x, u = line(domain, truth.of(0, channel))
    figure, axes = panels(len(predicted) + 1, 3, 1.35)
    axes[0].plot(x, u, color=TRUTH)
    axes[0].set_title("truth u", fontsize=8)
    for axis, (name, p) in zip(axes[1:], predicted.items(), strict=True):
        difference = p[..., channel] - truth.of(0, channel)
        axis.plot(x, line(domain, difference)[1], color=ERROR, lw=0.9)
        axis.axhline(0, color=QUIET, lw=0.6)
        error = float(np.linalg.norm(difference) / np.linalg.norm(truth.of(0, channel)))
        axis.set_title(f"{name}: p − u, {scientific(error)}", fontsize=8)
    return figure


def predictions_in_panels(truth: Functions, predicted: Mapping[str, np.ndarray]) -> Figure:
    """Truth, prediction and error of each operator for the first sample. All errors share one
    scale. Predictions have shape (*grid, channels)."""
    (channel,), u = truth.chosen(1), truth.values[:1]
    predictions = [replace(truth, values=p[None]) for p in predicted.values()]
    look = Look("p − u", "diverging")
    errors = [replace(p, values=p.values - u, look=look) for p in predictions]
    scale = truth.scale(channel)
    largest = float(np.quantile([np.abs(e.of(0, channel)).max() for e in errors], 0.75))
    panels: _Row = [truth.panel(0, channel, scale, "truth u"), None]
    for name, p, error in zip(predicted, predictions, errors, strict=True):
        panels += [p.panel(0, channel, scale, name)]
        panels += [error.panel(0, channel, Normalize(-largest, largest), "p − u")]
    return sheet(wrapped(panels))
