"""Pictures of the samples of a store, on any domain."""

import io
import re
import textwrap
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from operators.data import Channel, Samples
from operators.data.opening import names_of
from operators.norms import rising
from pdegen.domains import NAMES, Box
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, StoreError, open_sealed
from pipelines.config.experiment import Experiment, domain_of, functions_in, physics_of
from pipelines.reports.document import Picture, scientific
from pipelines.reports.fields import (
    Above,
    Ends,
    Functions,
    Look,
    Panel,
    curves_along,
    few,
    in_columns,
    line,
    sheet,
    wrapped,
)
from pipelines.reports.figures import (
    HALF,
    TIMES,
    WIDE,
    above_rounding,
    colour_bar,
    legend,
    logarithmic,
    panels,
    save,
    styled,
    time_bar,
)
from pipelines.reports.palette import DASHES, ERROR, INKS, INPUT, MODEL, QUIET, TRUTH
from pipelines.runs.finished import FinishedRun

# Slides below a static picture, each of which shows one sample or one time. `report.js` shows one
# slide at a time. Without a script and on paper, only the picture is shown.


MOST = 24  # slides per picture
BYTES = 1_500_000  # of the slides of a picture; larger slides are fewer
_DPI = 115


@dataclass(frozen=True)
class Slide:
    """An image with a short label and an alternative text."""

    image: Image.Image
    label: str
    alt: str


def with_slides(
    picture: Picture, slides: Sequence[Slide], word: str, start: int = 0, moving: int = 0
) -> Picture:
    """Append slides to a picture. If their files exceed `BYTES`, only every n-th slide is used.

    Args:
        word: Quantity that differs from slide to slide, "sample" or "time".
        start: Position of the slide that is shown first.
        moving: Milliseconds per slide of an animation; 0 for no animation.
    """
    files = list[bytes]()
    for slide in slides:
        data = io.BytesIO()
        image = slide.image.convert("RGB")
        image.save(data, "WEBP", lossless=True, quality=50, method=3)
        files.append(data.getvalue())
    every = 1
    while sum(map(len, files[::every])) > BYTES:
        every += 1
    images = "".join(
        f'<img src="data:image/webp;base64,{b64encode(file).decode()}" width="{slide.image.width}" '
        f'height="{slide.image.height}" alt="{escape(slide.alt)}" '
        f'data-label="{escape(slide.label)}" hidden>'
        for slide, file in list(zip(slides, files, strict=True))[::every]
    )
    plays = f' data-moving="{moving * every}"' if moving else ""
    return replace(picture, live=(
        f'{picture.live}<div class="live" data-word="{escape(word)}" '
        f'data-start="{start // every + 1}"{plays} hidden>{images}</div>'
    ))  # fmt: skip


def by_error(errors: np.ndarray, most: int = MOST) -> list[int]:
    """Positions of at most `most` samples, sorted by error and evenly spaced in rank. The smallest,
    the median (the better of two) and the largest error are included.

    >>> by_error(np.array([0.3, 0.1, 0.2, 0.5, 0.4]), 3)
    [1, 0, 3]
    """
    order = rising(errors)
    n = len(order)
    ranks = {round(k * (n - 1) / max(1, min(most, n) - 1)) for k in range(min(most, n))}
    middle = (n - 1) // 2
    if n > most:
        ranks.remove(min(ranks - {0, n - 1}, key=lambda rank: abs(rank - middle)))
    return [order[rank] for rank in sorted(ranks | {middle})]


@styled
def rendered(figures: Iterable[Figure]) -> list[Image.Image]:
    """Images of figures. All figures must have the same number of axes, and get the layout of the
    first."""
    images, first = list[Image.Image](), list[Axes]()
    for figure in figures:
        if first:
            figure.set_layout_engine("none")
            for axes, like in zip(figure.axes, first, strict=True):
                axes.set_position(like.get_position(original=True))
        else:  # room for longer tick labels of later figures
            figure.set_layout_engine("constrained", rect=(0.01, 0, 0.96, 1))
        figure.set_dpi(_DPI)
        canvas = FigureCanvasAgg(figure)  # saving would draw the figure twice
        canvas.draw()
        first = first or figure.axes
        images.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    return images


def sample_slides(
    errors: np.ndarray, numbers: Sequence[int], draw: Callable[[int], Figure], shown: str
) -> tuple[list[Slide], int]:
    """Slides of samples sorted by error, and the position of the median sample among the slides.

    Args:
        numbers: Numbers of the samples in their store.
        shown: Description of the panels, which begins the alternative text of each slide.
    """
    order = rising(errors)
    slides, places = [], by_error(errors)
    for i, image in zip(places, rendered(map(draw, places)), strict=True):
        label = (
            f"number {numbers[i]} in the store, error {scientific(float(errors[i]))}, "
            f"rank {order.index(i) + 1} of {len(order)} from the smallest error"
        )
        slides.append(Slide(image, label, f"{shown}: {label}"))
    return slides, places.index(order[(len(order) - 1) // 2])


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
    """Curves of several samples in one dimension."""
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
    """Panels of input, truth, prediction and error."""
    rows, names, alone = list[_Row](), list[str](), len(every) == 1
    for title, i in titles.items():
        beside = [] if inputs is None else inputs.chosen(most)
        for k, (a, u) in enumerate(zip_longest(beside, every[0].truth.chosen(most))):
            given: _Row = [] if inputs is None else [None]
            if inputs is not None and a is not None:
                several = len(inputs.names) > 1
                name = inputs.names[a] if several else inputs.look.name
                words = f"input {name}{' with noise' if noisy else ''}"
                panel = inputs.panel(i, a, title="" if rows and not several else words)
                given = [replace(panel, label=inputs.symbol(a))]
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


def _beside(every: Sequence[Predicted], i: int, u: int, first: bool) -> tuple[_Row, _Row]:
    """Two rows of panels for one channel of one sample."""
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


_FRAME_ROWS = ("truth {}", "prediction p", "difference p − {}")
_COLUMNS = 5  # times in a picture
_MILLISECONDS = 200  # per frame of an animation


def frames(truth: Functions, predicted: np.ndarray, i: int) -> Figure:
    """Truth, prediction and difference of a sample at a few times. Only the first component is
    drawn. All panels share one colour scale.

    Args:
        truth: The target u at several times, in two or three dimensions.
        i: Position of the sample.
    """
    component, channels = next(iter(truth.components.items()))
    symbol = truth.look.name if len(truth.components) == 1 else component
    scale, functions = _together(truth, predicted, i, list(channels.values()))
    rows = list[list[Panel]]()
    for one in functions:
        row = list[Panel]()
        for time in few(list(channels), _COLUMNS):
            title = "" if rows or time is None else f"t = {time:g}"
            row.append(replace(one.panel(i, channels[time], scale, title), label=None))
        rows.append([*row[:-1], replace(row[-1], label="")])
    return sheet(rows, [name.format(symbol) for name in _FRAME_ROWS])


def _together(
    truth: Functions, predicted: np.ndarray, i: int, channels: list[int]
) -> tuple[Normalize, tuple[Functions, Functions, Functions]]:
    """The functions truth, prediction and difference, and a colour scale that all three share."""
    p = replace(truth, values=predicted)
    e = replace(truth, values=predicted - truth.values, by=truth.values)
    others = [one.of(i, channels) for one in (p, e)]
    look = replace(truth.look, log=False)
    return look.scale(truth.of(i, channels), *others), (truth, p, e)


@styled
def spectrum(truth: Functions, predicted: np.ndarray, time: float) -> Figure:
    """Power spectra of truth, prediction and error at one time, computed by `shells`."""
    channels = [times[time] for times in truth.components.values() if time in times]
    assert isinstance(truth.domain, Box)
    lengths = [grid.length for grid in truth.domain.grids]
    figure = Figure(figsize=(HALF, 2.6))
    axes, drawn, largest = figure.subplots(), [], 0.0
    for values, name, ink, dashes in (
        (truth.values, f"truth {truth.look.name}", TRUTH, "-"),
        (predicted, "prediction p", MODEL, "--"),
        (predicted - truth.values, f"error p − {truth.look.name}", ERROR, ":"),
    ):
        power = shells(values[..., channels], lengths)[1]
        amplitude = np.sqrt(power)
        largest = largest or amplitude.max()
        power = np.square(above_rounding(amplitude, largest))
        axes.plot(range(1, len(power) + 1), power, color=ink, ls=dashes, label=name)
        drawn.append(power)
    axes.set(xlabel="wave number |k|", ylabel="power in the shell")
    logarithmic(axes, "x", np.arange(1, max(map(len, drawn)) + 1))
    logarithmic(axes, "y", np.maximum(np.concatenate(drawn), 1e-30))
    legend(figure, axes)
    return figure


def shells(values: np.ndarray, lengths: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Power of functions in shells of wave numbers.

    Returns k = 1, 2, ... and Σ |û(q)|² over all wave vectors q with k - 1/2 <= |q| < k + 1/2,
    averaged over the samples.

    Args:
        lengths: Lengths of the domain along each axis. Wave numbers count waves along the longest
            axis.

    >>> x = np.arange(16) / 16
    >>> wave = np.cos(2 * np.pi * 3 * x)[None, :, None, None] * np.ones((1, 1, 16, 1))
    >>> shells(wave, (1.0, 1.0))[1].round(3)[:4]
    array([0. , 0. , 0.5, 0. ])
    """
    grid = values.shape[1:-1]
    axes = tuple(range(1, 1 + len(grid)))
    power = np.square(np.abs(np.fft.fftn(values, axes=axes, norm="forward"))).sum(-1).mean(0)
    scaled = [
        np.fft.fftfreq(n, 1 / n) * max(lengths) / length
        for n, length in zip(grid, lengths, strict=True)
    ]
    k = np.sqrt(sum(np.square(k_i) for k_i in np.meshgrid(*scaled, indexing="ij")))
    shell = np.floor(k + 0.5).astype(int)
    totals = np.bincount(shell.ravel(), power.ravel())
    last = min(n // 2 for n in grid)
    return np.arange(1, last + 1), totals[1 : last + 1]


def _panels_at(truth: Functions, predicted: np.ndarray, i: int, time: float) -> Figure:
    """Truth, prediction and difference of a sample at one time."""
    rows, names, alone = [], [], len(truth.components) == 1
    for component, channels in truth.components.items():
        scale, drawn = _together(truth, predicted, i, list(channels.values()))
        panels = [one.panel(i, channels[time], scale, "" if rows else word.format(truth.look.name))
                  for word, one in zip(_FRAME_ROWS, drawn, strict=True)]  # fmt: skip
        rows.append([replace(p, label="" if p is panels[-1] else None) for p in panels])
        names.append("" if alone else component)
    return sheet(rows, names, f"t = {time:g}")


@styled
def _curves_at(truth: Functions, predicted: np.ndarray, i: int, time: float) -> Figure:
    """Curves of truth and prediction at one time. The limits of the axes cover all times."""
    components = list(truth.components.items())[:FEW]
    figure = Figure(figsize=(WIDE, 0.4 + 1.8 * len(components)))
    axes = figure.subplots(len(components), 1, squeeze=False)[:, 0]
    prediction = replace(truth, values=predicted)
    for cell, (name, channels) in zip(axes, components, strict=True):
        values = [one.of(i, list(channels.values())) for one in (truth, prediction)]
        low, high = min(map(np.min, values)), max(map(np.max, values))
        rim = 0.05 * (high - low or 1.0)
        for one, ink, dashes, word in (
            (truth, TRUTH, "-", f"truth {truth.look.name}"),
            (prediction, MODEL, "--", "prediction p"),
        ):
            x, values = line(one.place(i), one.of(i, channels[time]))
            cell.plot(x, values, color=ink, ls=dashes, label=word)
            cell.set(xlim=(x[0], x[-1]), ylim=(low - rim, high + rim), ylabel=name)
    axes[0].set_title(f"t = {time:g}")
    axes[-1].set_xlabel("x")
    legend(figure, axes[0])
    return figure


def playing(picture: Picture, truth: Functions, predicted: np.ndarray, i: int) -> Picture:
    """Append an animation of one sample to a picture. The animation shows truth and prediction and,
    in more than one dimension, also the difference."""
    shown = f"truth {truth.look.name}, prediction p and difference"
    draw, times = _curves_at if truth.domain.dim == 1 else _panels_at, few(truth.times, MOST)
    images = rendered(draw(truth, predicted, i, time) for time in times)
    slides = [
        Slide(image, f"t = {time:g}", f"{shown} at t = {time:g}")
        for image, time in zip(images, times, strict=True)
    ]
    return with_slides(picture, slides, "time", moving=_MILLISECONDS)


FORMATS = (".png", ".svg", ".pdf")
_LINE = 95  # characters per line of the title
_ROWS = 4  # largest number of channels drawn of a variable
_INPUTS = ((INPUT, "--"), ("#CC79A7", "-."), ("#E69F00", ":"), (QUIET, "--"))
_Style = tuple[str, str]  # colour and line style

AFTERTHOUGHT = re.compile(r",(?![^(]*\)).*")  # from a comma outside brackets on


def plot_store(url: str, sample: int | None, out: Path) -> Path:
    """Draw samples of a complete store and write the picture to a file.

    Functions of one variable are drawn as curves. For other functions, a few channels and times are
    drawn as images. If the store has several noise levels, one sample is drawn at every level.

    Args:
        sample: Number of the sample; None for the first ones.

    Raises:
        StoreError: If the store cannot be read, or has no such sample.
        SchemaError: If `out` has another suffix, or is not a file.
    """
    if out.suffix.lower() not in FORMATS:
        raise SchemaError(f"a picture ends in {', '.join(FORMATS)}, got {str(out)!r}")
    if "\0" in str(out) or (out.exists() and not out.is_file()):
        raise SchemaError(f"{str(out)!r} is not a file: name the picture file to write")
    store = open_sealed(url)
    if sample is not None and not 0 <= sample < store.samples:
        raise StoreError(f"{url} has samples 0 to {store.samples - 1}, got {sample}")
    if sample in store.skipped:
        raise StoreError(f"{url} has no values of sample {sample}: it was skipped")
    names = [name for role in ("input", "target") for name in functions_in(store, role)]
    names = [name for name in names if store.arrays[name].metadata.role != "geometry"]
    curves = domain_of(store).dim == 1
    noisy = next((name for name in names if "level" in store.arrays[name].dims), None)
    most = 1 if noisy else 6 if curves else 4
    with_values = (i for i in range(store.samples) if i not in store.skipped)
    numbers = list(islice(with_values, most)) if sample is None else [sample]
    prefix = f"sample {numbers[0]} of " if noisy or sample is not None else ""
    title = f"{prefix}{_title(store, names[-1])}"
    variables = _with_bodies([functions(store, name, numbers) for name in names])
    columns = [f"sample {i}" for i in numbers]
    if noisy:
        columns, variables = _at_levels(store, names, noisy, numbers[0])
    if curves:
        labels = [_named(store, name) for name in names]
        styles = _styles(names, noisy or names[-1])
        figure = _curves(variables, columns, labels, styles, title)
    else:
        figure = _panels(variables, columns, title, names.index(noisy) if noisy else None)
    save(figure, out)
    return out


def _styles(names: Sequence[str], main: str) -> list[_Style]:
    """Colour and line style of each variable."""
    others = cycle(_INPUTS)
    return [(MODEL, "-") if name == main else next(others) for name in names]


def look_of(store: Store, name: str) -> Look:
    """How a variable of a store is drawn. If the equation does not declare this, it depends on the
    role of the variable."""
    physics, role = physics_of(store), store.arrays[name].metadata.role
    how, phases = physics.drawing.get(name), physics.phases.get(name)
    symbol = name if how is None else how.symbol or name
    if how is not None and phases is None:
        return Look(
            symbol, how.colours, how.log, None, how.moves, how.contours, how.along, how.falls
        )
    return Look(symbol, "phases" if phases or role == "input" else "sequential", True, phases)


def functions(store: Store, name: str, numbers: Sequence[int], level: int = 0) -> Functions:
    """Values of a variable for some samples of a store, at one of its noise levels."""
    domain, array = domain_of(store), store.arrays[name]

    def values(variable: str) -> np.ndarray:
        return np.concatenate([store.values(variable, range(i, i + 1)) for i in numbers])

    data = values(name).astype(float)
    data = data[:, level] if "level" in array.dims else data
    sizes = dict(zip(array.dims, array.shape, strict=True))
    components = array.metadata.channels or tuple(
        f"{name}_{k}" for k in range(sizes.get("channel", 0))
    )
    times = np.atleast_1d(store.values("time")).tolist() if "time" in sizes else [None]
    channels = tuple(Channel(name, part, time) for time in times for part in components or ("",))
    data = np.moveaxis(data.reshape(len(numbers), len(channels), *domain.shape), 1, -1)
    roles = {variable.metadata.role: n for n, variable in store.description.variables.items()}
    axes = [axis for axis in NAMES if axis in store.variables]
    return Functions(
        replace(look_of(store, name), name=AFTERTHOUGHT.sub("", array.metadata.long_name) or name),
        data, channels, domain,
        np.stack([values(axis) for axis in axes], axis=-1) if domain.moves else None,
        values(roles["count"]) if "count" in roles else None, near_of(store),
    )  # fmt: skip


def near_of(store: Store) -> Ends | None:
    """The part of the plane that is drawn for a store; None for all of it."""
    near = physics_of(store).near
    if domain_of(store).dim != 2 or not {"x", "y"} <= near.keys():
        return None
    ends = np.array([near["x"], near["y"]])
    return ends[:, 0], ends[:, 1]


@dataclass(frozen=True)
class Tested:
    """Test samples of an experiment and their store."""

    experiment: Experiment
    store: Store
    pairs: Samples


def functions_of(run: FinishedRun | Tested) -> tuple[Functions, Functions]:
    """Inputs and targets of test samples. Inputs contain the noise with which the model is
    tested."""
    pairs, arrays = run.pairs, run.pairs.all.per_sample
    input, target = (names_of(names)[0] for names in run.experiment.variables)
    mask = arrays.get("mask")
    counts = None if mask is None else mask.sum(dim=1).numpy()

    def of(name: str, values: Tensor, channels: tuple[Channel, ...], points: str) -> Functions:
        positions, domain = arrays.get(points), pairs.domain
        shared = pairs.y if points == "y" else None
        if shared is not None:  # averages over cells of the unit box
            domain = Box.cell(*shared.shape[:-1])
        return Functions(
            look_of(run.store, channels[0].variable if channels else name),
            values[..., : len(channels) or None].numpy(),
            channels or tuple(Channel(name, f"{name}_{k}") for k in range(values.shape[-1])),
            domain, None if positions is None else positions.numpy(), counts, near_of(run.store),
        )  # fmt: skip

    targets = "y" if "y" in arrays or pairs.y is not None else "x"
    inputs = of(input, pairs.a, pairs.input_channels, "x")
    truth = of(target, pairs.u, pairs.target_channels, targets)
    return inputs, replace(truth, above=Above.of(inputs) if truth.look.moves else None)


def _with_bodies(variables: list[Functions]) -> list[Functions]:
    """Variables to draw."""
    if not any(variable.look.moves for variable in variables):
        return variables
    above = next((body for variable in variables if (body := Above.of(variable))), None)
    return [
        replace(variable, above=above if variable.look.moves else None)
        for variable in variables
        if above is None or variable.look.falls is None
    ]


def _title(store: Store, name: str) -> str:
    """Text with two lines: the title of the store, and the constants of a variable."""
    constants = [
        f"{key} = {value:.4g}"
        for key, value in store.raw_attributes_of(name).items()
        if isinstance(value, int | float)
    ]
    title = textwrap.fill(str(store.raw_attributes["title"]), _LINE)
    return f"{title}\n{', '.join(constants)}"


def _named(store: Store, name: str) -> str:
    """Role, name and meaning of a variable."""
    metadata, time = store.arrays[name].metadata, ""
    if "time" in metadata.coordinates and "time" in store.arrays:
        times = np.atleast_1d(store.values("time"))
        time = f" at t = {times[0]:.4g}" if len(times) == 1 else ""
    return f"{metadata.role} {name}: {metadata.long_name}{time}"


def _at_levels(
    store: Store, names: list[str], noisy: str, number: int
) -> tuple[list[str], list[Functions]]:
    """Titles of the noise levels, and the variables of one sample at each level."""
    kind = store.metadata.noise.kind if store.metadata.noise else ""
    levels = store.values("level").tolist()

    def stacked(name: str) -> Functions:
        by_level = [functions(store, name, [number], k) for k in range(len(levels))]
        first = by_level[0]
        return replace(
            first,
            values=np.concatenate([level.values for level in by_level]),
            positions=_repeated(first.positions, len(levels)),
            counts=_repeated(first.counts, len(levels)),
        )

    return [f"{kind} noise {v:g}".strip() for v in levels], [stacked(name) for name in names]


def _repeated(values: np.ndarray | None, times: int) -> np.ndarray | None:
    return None if values is None else np.repeat(values, times, axis=0)


def _panels(
    variables: list[Functions], columns: list[str], title: str, noisy: int | None
) -> Figure:
    """Panels of all variables."""
    if noisy is not None:
        others = [variable for variable in variables if variable is not variables[noisy]]
        first = [variable.panel(0, 0, title=variable.look.name) for variable in others]
        main = variables[noisy]
        levels = [main.panel(k, 0, main.scale(0), word) for k, word in enumerate(columns)]
        return sheet(wrapped([*first, *levels]), title=title)
    curves = [curves_along(v, range(len(columns))) for v in variables if v.look.along]
    if len(columns) > 1:
        rows, names = in_columns(variables, _ROWS, columns)
        return sheet([*rows, *curves], names, title)
    panels = list[list[Panel | None]]()
    for v in variables:
        names = v.names if len(v.names) > 1 else [""] * len(v.names)
        drawn = [v.panel(0, c, v.scale(c), names[c]) for c in v.chosen(_ROWS)]
        panels.append([replace(panel, label=v.look.name) for panel in drawn])
    together = [panel for row in [*panels, *curves] for panel in row]
    if len(together) <= _ROWS or len(panels) > 2:
        panels = wrapped(together)
    return sheet(panels, title=title)


@styled
def _curves(
    variables: list[Functions],
    columns: list[str],
    labels: list[str],
    styles: list[_Style],
    title: str,
) -> Figure:
    """Curves of all variables, with a panel for each sample."""
    components = [(k, name) for k, variable in enumerate(variables) for name in variable.components]
    alone = len(components) > len(variables)
    across = list(range(min(3 if alone else 6, len(columns))))
    layout = (
        [([component], across) for component in components]
        if alone
        else [(components, across[k : k + 3]) for k in range(0, len(across), 3)]
    )
    times = sorted({time for variable in variables for time in variable.times})
    colour = Normalize(times[0], times[-1]) if len(times) > 1 else None
    image = colour is not None and len(columns) == 1
    height = (3.0 if len(columns) == 1 else 2.4) + (1.3 if alone else 1.6) * (len(layout) - 1)
    figure = Figure(figsize=(WIDE, height))
    axes = figure.subplots(
        len(layout), 2 if image else len(layout[0][1]), squeeze=False,
        sharex=variables[0].positions is None,
        sharey=False if image else "row" if alone else True,
    )  # fmt: skip
    for row, (drawn, samples) in zip(axes, layout, strict=True):
        for cell, i in zip(row, samples, strict=False):
            for k, name in drawn:
                _draw(cell, variables[k], name, i, styles[k], colour)
            if len(columns) > 1 and (not alone or drawn == layout[0][0]):
                cell.set_title(columns[i])
        for cell in row[len(samples) :]:
            if image:
                _against_time(figure, cell, *[(variables[k], name) for k, name in drawn][-1])
            else:
                cell.set_axis_off()
        row[0].set_ylabel(", ".join(dict.fromkeys(name for _, name in drawn)))
    for cell in axes[-1]:
        cell.set_xlabel("x")
    for variable, label, (ink, dashes) in zip(variables, labels, styles, strict=True):
        ink = TIMES(0.6) if len(variable.times) > 1 else ink
        axes[0, 0].plot([], [], color=ink, ls=dashes, label=label)
    if colour:
        time_bar(figure, axes[:, :1] if image else axes, colour)
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    legend(figure, axes[0, 0], below=True)
    return figure


def _draw(
    axes: Axes, variable: Functions, name: str, i: int, style: _Style, colour: Normalize | None
) -> None:
    ink, dashes = style
    for time, channel in variable.components[name].items():
        x, values = line(variable.place(i), variable.of(i, channel))
        shade = ink if time is None or colour is None else TIMES(colour(time))
        axes.plot(x, values, color=shade, ls=dashes, lw=1.1)
        axes.set_xlim(x[0], x[-1])


def _against_time(figure: Figure, axes: Axes, variable: Functions, name: str) -> None:
    """Draw a component of the first sample as an image over x and t."""
    channels = {t: c for t, c in variable.components[name].items() if t is not None}
    if len(channels) < 2:
        axes.set_axis_off()
        return
    x, values = line(variable.place(0), variable.of(0, list(channels.values())))
    size = np.abs(values).max()
    mesh = axes.pcolormesh(
        x, list(channels), values.T, cmap="RdBu_r", vmin=-size, vmax=size, shading="nearest",
        rasterized=True,
    )  # fmt: skip
    axes.set(ylabel="time t")
    axes.grid(False)
    colour_bar(figure, mesh, ax=axes, label=name)
