"""Charts of the errors in a study: curves, matrices, and errors plotted against costs."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pipelines.reports.figures import WIDE, colour_bar, logarithmic, panels, styled
from pipelines.reports.method_styles import Style, styles
from pipelines.reports.palette import MODEL, QUIET
from pipelines.reports.wording import plus_minus, significant

MEAN_ERROR = "mean relative L² error"
_NAME = 30  # letters of a line of a name beside a matrix
_LETTER, _LINE = 0.066, 0.165  # inches of a letter and of a line in a legend
_MARGIN = 1.15  # ratio of the ends of an axis to the smallest and largest values
_CLOSE = 0.06  # of the range: levels that are closer have no room for their labels


def _columns(names: Sequence[str], width: float = WIDE) -> int:
    """Number of columns in a legend that is as wide as the figure, in inches."""
    return max(1, min(len(names), int(width / (0.6 + _LETTER * max(map(len, names))))))


def _height(names: Sequence[str], axes: float = 2.9, width: float = WIDE) -> float:
    """Height in inches of a figure with a legend above the axes. `axes` is the height of the axes,
    and `names` are the legend entries."""
    return axes + _LINE * -(-len(names) // _columns(names, width))


def _legend(axes: Axes, *others: Patch) -> None:
    """Add a legend above the axes, for the labelled curves and for `others`."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    handles, labels = axes.get_legend_handles_labels()
    handles, labels = [*handles, *others], [*labels, *(str(o.get_label()) for o in others)]
    figure.legend(
        handles, labels, loc="outside upper left", fontsize=7.5,
        ncols=_columns(labels, figure.get_figwidth()),
        labelspacing=0.3,
    )  # fmt: skip


@styled
def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    x: str,
    y: str = MEAN_ERROR,
    *,
    looks: Mapping[str, Style] | None = None,
    ticks: Mapping[float, str] | None = None,
    spreads: Sequence[Sequence[float]] | None = None,
    crossed: Sequence[Sequence[bool]] | None = None,
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    band: str = "",
    markers: bool = True,
    trained: float | None = None,
    log: bool = False,
    whole: bool = False,
    width: float = WIDE,
    ends: Sequence[float] = (),
) -> Figure:
    """A curve of positive values for each name.

    Args:
        looks: Style of each name; by default `styles` of the names.
        ticks: Labels of the ticks, keyed by position; by default matplotlib chooses the ticks.
        spreads: For each curve, half the length of the error bar at each position. On the
            logarithmic axis, a bar that contains 0 ends at the lower end of the axis.
        crossed: For each curve, whether a cross marks the point at each position.
        bands: Lower and upper ends of a shaded band around a curve, keyed by the curve's name.
        band: Meaning of the bands, for the legend.
        trained: Position of the training grid, which a dotted line marks.
        whole: Whether ticks are whole numbers, such as epochs.
        width: Width of the figure in inches.
        ends: Ends of the vertical axis; by default matplotlib chooses them.
    """
    names = [*series, "grid of training"]
    figure = Figure(figsize=(width, _height(names, width=width)))
    axes = figure.subplots()
    looks = styles(list(series)) if looks is None else looks
    if spreads is not None and not ends:
        ends = ends_of(*(np.concatenate(of) for of in ([v for _, v in series.values()], spreads)))
    for i, (name, (positions, values)) in enumerate(series.items()):
        look = looks[name]
        marker = look.marker if markers else ""
        error = None if spreads is None or not any(spreads[i]) else _bars(values, spreads[i], ends)
        axes.errorbar(
            positions, values, error, color=look.colour, ls=look.dashes, marker=marker, label=name,
            lw=1.1, ms=4, capsize=2,
        )  # fmt: skip
        if crossed is not None and any(crossed[i]):
            points = np.transpose([positions, values])[np.array(crossed[i])]
            axes.plot(*points.T, ls="", marker="x", color="black", ms=6, mew=1.0, zorder=5)
        if bands and name in bands:
            axes.fill_between(positions, *bands[name], color=look.colour, alpha=0.18, lw=0)
    axes.set(xlabel=x, ylabel=y)
    if trained is not None:
        axes.axvline(trained, color=QUIET, lw=0.9, ls=":", label="grid of training")
    if log:
        axes.set_xscale("log")
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if ticks is not None:
        axes.set_xticks(list(ticks), list(ticks.values()), minor=False)
        axes.set_xticks([], minor=True)
    drawn = [ends, *(values for pair in (bands or {}).values() for values in pair)]
    logarithmic(axes, "y", np.concatenate([*(values for _, values in series.values()), *drawn]))
    if ends:
        axes.set_ylim(min(ends), max(ends))
    _legend(axes, *([Patch(color=QUIET, alpha=0.3, lw=0, label=band)] if bands and band else []))
    return figure


def ends_of(means: np.ndarray, halves: np.ndarray) -> list[float]:
    """Ends of a logarithmic axis that contains all positive means and the ends of their intervals,
    as far as they are positive. Empty if there is no positive mean."""
    drawn = np.ravel([means, means - halves, means + halves])
    drawn = drawn[np.isfinite(drawn) & (drawn > 0)]
    return [float(drawn.min()) / _MARGIN, float(drawn.max()) * _MARGIN] if drawn.size else []


def _bars(values: Sequence[float], halves: Sequence[float], ends: Sequence[float]) -> np.ndarray:
    """Lengths of the lower and upper parts of error bars, shape (2, n), on a logarithmic axis."""
    middle, half = np.array(values, dtype=float), np.array(halves, dtype=float)
    room = middle - (min(ends) if ends else 0.0)
    return np.stack([np.where(middle > half, half, np.maximum(room, 0.0)), half])


def positions_of(levels: Sequence[float]) -> tuple[list[float], str]:
    """Positions of noise levels on an axis, and a note for the label of the axis.

    Positions are the levels if their labels have room on the axis. Otherwise positions are evenly
    spaced, and the note says this.

    >>> positions_of([0.0, 0.01, 0.1])
    ([0.0, 0.01, 0.1], '')
    >>> positions_of([0.0, 0.001, 0.1])
    ([0.0, 1.0, 2.0], ' (evenly spaced, not to scale)')
    """
    gaps = np.diff(np.sort(levels))
    if len(levels) < 2 or gaps.min() >= _CLOSE * gaps.sum():
        return list(levels), ""
    return [float(k) for k in range(len(levels))], " (evenly spaced, not to scale)"


@styled
def dots(
    means: Mapping[str, float], spreads: Sequence[float], crossed: Sequence[bool] = ()
) -> Figure:
    """Mean error and its spread for each name, with the smallest error at the top. Crosses mark the
    names for which `crossed` is true."""
    order = np.argsort(list(means.values()))[::-1]
    names, values = list(means), np.array(list(means.values()))
    figure = Figure(figsize=(WIDE, 0.9 + 0.3 * len(names)))
    axes = figure.subplots()
    for line, i in enumerate(order):
        spread = spreads[i] or None
        axes.errorbar(values[i], line, xerr=spread, fmt="o", color=MODEL, ms=6, capsize=3)
        if crossed and crossed[i]:
            axes.plot(values[i], line, marker="x", color="black", ms=9, mew=1.2, zorder=5)
        axes.annotate(
            significant(float(values[i])),
            (values[i], line),
            (8, 5),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_yticks(range(len(names)), [names[i] for i in order])
    low, high = (values + sign * np.nan_to_num(spreads) for sign in (-1, 1))
    first = 1.12 * min(0.0, float(min(low[np.isfinite(low)], default=0.0)))
    last = 1.12 * float(max(high[np.isfinite(high)], default=0.0)) or 1.0
    axes.set(xlabel=MEAN_ERROR, xlim=(first, last))
    return figure


@styled
def errors_against_costs(
    costs: Mapping[str, Mapping[str, float]],
    errors: Mapping[str, float],
    baseline: float,
    y: str = MEAN_ERROR,
    looks: Mapping[str, Style] | None = None,
) -> Figure:
    """Errors against costs, with a panel for each cost. Operators are numbered in the order of
    `errors`.

    Args:
        baseline: Error of predicting the mean of the training targets, drawn as a line.
        looks: Style of each operator; by default `styles` of their names.
    """
    looks = styles(list(errors)) if looks is None else looks
    labels = [f"{i} {name}" for i, name in enumerate(errors, 1)]
    figure = Figure(figsize=(WIDE, _height([*labels, "mean of the targets"])))
    axes = figure.subplots(1, len(costs), sharey=True)
    for axis, (what, values) in zip(axes, costs.items(), strict=True):
        for i, (label, (name, error)) in enumerate(zip(labels, errors.items(), strict=True), 1):
            look = looks[name]
            axis.plot(values[name], error, look.marker, color=look.colour, ms=5, label=label)
            offset: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
            axis.annotate(str(i), (values[name], error), fontsize=7, **offset)
        axis.axhline(baseline, color=QUIET, lw=0.9, ls="--", label="mean of the targets")
        axis.set(xlabel=what)
        logarithmic(axis, "x", np.array(list(values.values())))
        logarithmic(axis, "y", np.array([*errors.values(), baseline]))
    axes[0].set(ylabel=y)
    _legend(axes[-1])
    return figure


@styled
def error_by_samples(
    samples: Sequence[int], errors: Sequence[float], streamed: tuple[int, float] | None
) -> Figure:
    """Mean error against the number of distinct training samples."""
    figure = Figure(figsize=(WIDE, 3.2))
    axes = figure.subplots()
    axes.plot(samples, errors, marker="o", ms=5, label="stored samples, in several passes")
    ends = np.array([samples, errors])
    if streamed is not None:
        axes.plot(*streamed, ls="", marker="D", ms=7, label="a stream, each sample once")
        axes.axhline(streamed[1], lw=0.8, ls=":", color=QUIET)
        ends = np.column_stack([ends, streamed])
    axes.set(xlabel="distinct training samples", ylabel=f"{MEAN_ERROR}, test")
    for direction, end in zip("xy", ends, strict=True):
        logarithmic(axes, direction, end)
    _legend(axes)
    return figure


@styled
def heat_map(
    means: np.ndarray,
    spreads: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    x: str,
    crossed: np.ndarray | None = None,
) -> Figure:
    """Mean and spread of an error for each method (rows) and condition (columns). Crosses mark the
    cells for which `crossed` is true."""
    names = [fill(name, _NAME) for name in rows]
    letters = max(len(line) for name in names for line in name.splitlines())
    room = (WIDE - _LETTER * letters - 1.0) / len(columns)  # inches of a cell
    marks = np.zeros(means.shape, dtype=bool) if crossed is None else crossed
    words = [[_in_cell(*cell) for cell in zip(*of, strict=True)]
             for of in zip(means, spreads, marks, strict=True)]  # fmt: skip
    longest = max(len(word) for row in words for word in row)
    if longest * _LETTER > room:  # the spread has a line of its own
        words = [[word.replace(" ± ", "\n± ") for word in row] for row in words]
        longest = max(len(line) for row in words for word in row for line in word.splitlines())
    size = min(8.0, 8.0 * room / (_LETTER * longest))
    lines = max(text.count("\n") for text in [*names, *(word for row in words for word in row)])
    height = 0.9 + (0.36 + 0.12 * lines) * len(rows)
    figure = Figure(figsize=(WIDE, max(height, 1.8)))  # room for the label of the colour bar
    axes = figure.subplots()
    drawn = means[(means > 0) & np.isfinite(means)]
    scale = LogNorm(drawn.min(), drawn.max() * 1.001) if drawn.size else Normalize(0.0, 1.0)
    image = axes.imshow(means, cmap="cividis_r", norm=scale, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), names)
    axes.set(xlabel=x)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    for (i, j), mean in np.ndenumerate(means):
        red, green, blue, _ = image.cmap(image.norm(mean))
        colour = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"
        axes.text(j, i, words[i][j], ha="center", va="center", color=colour, fontsize=size)
    colour_bar(figure, image, ax=axes, pad=0.01, label=MEAN_ERROR)
    return figure


def _in_cell(mean: float, spread: float, crossed: bool) -> str:
    """Mean and spread as text for a cell of a matrix, which may begin with a cross."""
    words = significant(mean)
    return ("× " if crossed else "") + (plus_minus(words, spread) if spread > 0 else words)


@styled
def couplings(matrices: Mapping[str, np.ndarray]) -> Figure:
    """Image of |∂u(y)/∂a(x)| for each operator, with x to the right and y upwards. The scale is
    logarithmic and ends three decades below the largest value."""
    decades = 3
    figure, axes = panels(len(matrices), 6, 1.4)
    for axis, (name, matrix) in zip(axes, matrices.items(), strict=True):
        size = np.abs(matrix) / (np.abs(matrix).max() or 1.0)
        values = np.log10(np.maximum(size, 10.0**-decades))
        image = axis.imshow(values, origin="lower", aspect="auto", vmin=-decades, vmax=0)
        axis.set_title(name, fontsize=7.5, loc="center")
        axis.set(xticks=[], yticks=[])
        axis.grid(False)
    colour_bar(figure, image, ax=axes, label="log₁₀ |∂u(y)/∂a(x)| / largest", aspect=40, pad=0.01)
    return figure
