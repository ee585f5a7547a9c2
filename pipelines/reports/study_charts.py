"""Charts of studies: curves of errors, errors against costs, matrices, fields of one sample."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipelines.reports.figures import WIDE, logarithmic, panels, styled
from pipelines.reports.palette import DASHES, INKS, MARKERS, MODEL, QUIET

MEAN_ERROR = "mean relative L² error"


def _inks(names: Sequence[str]) -> list[Any]:
    """A colour for each name; with more names than eight, neighbours stay apart by their dashes."""
    if len(names) <= len(INKS):
        return list(INKS[: len(names)])
    return list(colormaps["turbo"](np.linspace(0.05, 0.92, len(names))))


def _single(names: int) -> tuple[Figure, Axes]:
    """Axes beside a legend of so many lines."""
    figure = Figure(figsize=(WIDE, max(3.4, 0.3 + 0.165 * names)))
    return figure, figure.subplots()


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)


@styled
def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    x: str,
    y: str = MEAN_ERROR,
    *,
    ticks: Mapping[int, str] | None = None,
    spreads: Sequence[Sequence[float]] | None = None,
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    markers: bool = True,
    trained: float | None = None,
    log: bool = False,
    whole: bool = False,
) -> Figure:
    """A curve of positive values for each name.

    Args:
        ticks: Places with labels, in place of those that matplotlib finds.
        bands: Name -> smallest and largest values, between which the curve lies.
        trained: A place that a dotted line marks.
    """
    figure, axes = _single(len(series))
    for i, (ink, (name, (places, values))) in enumerate(
        zip(_inks(list(series)), series.items(), strict=False)
    ):
        marker = MARKERS[i % len(MARKERS)] if markers else ""
        look = {"color": ink, "label": name, "lw": 1.1, "ms": 4, "marker": marker}
        error = None if spreads is None or not any(spreads[i]) else spreads[i]
        axes.errorbar(places, values, error, ls=DASHES[i % 4], capsize=2, **look)
        if bands and name in bands:
            axes.fill_between(places, *bands[name], color=ink, alpha=0.18, lw=0)
    axes.set(xlabel=x, ylabel=y)
    if trained is not None:
        axes.axvline(trained, color=QUIET, lw=0.9, ls=":")
    if log:
        axes.set_xscale("log")
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if ticks is not None:
        axes.set_xticks(list(ticks), list(ticks.values()), minor=False)
        axes.set_xticks([], minor=True)
    ends = [values for pair in (bands or {}).values() for values in pair]
    logarithmic(axes, "y", np.concatenate([*(values for _, values in series.values()), *ends]))
    _legend(axes)
    return figure


@styled
def dots(means: Mapping[str, float], spreads: Sequence[float]) -> Figure:
    """A mean error for each name, the smallest one on top, with its spread."""
    order = np.argsort(list(means.values()))[::-1]
    names, values = list(means), np.array(list(means.values()))
    figure = Figure(figsize=(WIDE, 0.9 + 0.3 * len(names)))
    axes = figure.subplots()
    for place, i in enumerate(order):
        spread = spreads[i] or None
        axes.errorbar(values[i], place, xerr=spread, fmt="o", color=MODEL, ms=6, capsize=3)
        axes.annotate(
            f"{values[i]:.3g}", (values[i], place), (8, 5), textcoords="offset points", fontsize=8
        )
    axes.set_yticks(range(len(names)), [names[i] for i in order])
    ends = values + np.nan_to_num(spreads)
    axes.set(
        xlabel=MEAN_ERROR, xlim=(0, 1.12 * float(max(ends[np.isfinite(ends)], default=0.0)) or 1.0)
    )
    return figure


@styled
def errors_against_costs(
    costs: Mapping[str, Mapping[str, float]],
    errors: Mapping[str, float],
    baseline: float,
    y: str = MEAN_ERROR,
) -> Figure:
    """A panel for each cost; operators are numbered in the order of `errors`.

    Args:
        baseline: The error of the mean of the training targets.
    """
    figure = Figure(figsize=(WIDE, max(4.2, 0.3 + 0.165 * (len(errors) + 1))))
    axes = figure.subplots(1, len(costs), sharey=True)
    for axis, (what, values) in zip(axes, costs.items(), strict=True):
        for i, (ink, (name, error)) in enumerate(
            zip(_inks(list(errors)), errors.items(), strict=False)
        ):
            marker, label = MARKERS[i % len(MARKERS)], f"{i + 1} {name}"
            axis.plot(values[name], error, marker, color=ink, ms=5, label=label)
            place = {"xytext": (3, 3), "textcoords": "offset points", "fontsize": 6.5}
            axis.annotate(str(i + 1), (values[name], error), **place)
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
    figure, axes = _single(2)
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
    means: np.ndarray, spreads: np.ndarray, rows: Sequence[str], columns: Sequence[str], x: str
) -> Figure:
    """Mean and spread of an error for each method (rows) and condition (columns)."""
    figure = Figure(figsize=(WIDE, 0.9 + 0.42 * len(rows)))
    axes = figure.subplots()
    drawn = means[(means > 0) & np.isfinite(means)]
    scale = LogNorm(drawn.min(), drawn.max() * 1.001) if drawn.size else Normalize(0.0, 1.0)
    image = axes.imshow(means, cmap="cividis_r", norm=scale, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel=x, title=MEAN_ERROR)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    for (i, j), mean in np.ndenumerate(means):
        spread = f" ± {spreads[i, j]:.2g}" if spreads[i, j] > 0 else ""
        red, green, blue, _ = image.cmap(image.norm(mean))
        colour = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"
        axes.text(j, i, f"{mean:.3g}{spread}", ha="center", va="center", color=colour)
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.ax.minorticks_off()
    logarithmic(bar.ax, "y", means)
    return figure


@styled
def couplings(matrices: Mapping[str, np.ndarray]) -> Figure:
    """|∂u(y)/∂a(x)| of each operator, y upwards and x to the right, by decades below its
    largest."""
    decades = 3
    figure, axes = panels(len(matrices), 7, 1.5)
    for axis, (name, matrix) in zip(axes, matrices.items(), strict=True):
        size = np.abs(matrix) / (np.abs(matrix).max() or 1.0)
        values = np.log10(np.maximum(size, 10.0**-decades))
        image = axis.imshow(values, origin="lower", aspect="auto", vmin=-decades, vmax=0)
        axis.set_title(name, fontsize=7.5, loc="center")
        axis.set(xticks=[], yticks=[])
        axis.grid(False)
    figure.colorbar(image, ax=axes, label="log₁₀ |∂u(y)/∂a(x)| / largest", aspect=40, pad=0.01)
    return figure
