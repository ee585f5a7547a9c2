"""Charts of a benchmark: errors against size, time and grid, learning curves, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from pipelines.reports.figures import ERROR, QUIET, TRUTH, WIDE, logarithmic, styled
from pipelines.reports.wording import scientific

_DASHES = ("-", "--", "-.", ":")
_MARKERS = "osD^vP*X<>hp"


def _inks(names: Sequence[str]) -> dict[str, tuple]:
    """A colour for each name; with more names than eight, neighbours stay apart by their dashes."""
    colours = colormaps["turbo"](np.linspace(0.05, 0.92, max(2, len(names))))
    return dict(zip(names, map(tuple, colours), strict=False))


def _height(names: int) -> float:
    """Inches that hold a legend of so many lines beside the axes."""
    return max(4.2, 0.3 + 0.165 * names)


@styled
def errors_against_costs(
    costs: Mapping[str, Mapping[str, float]], errors: Mapping[str, float], baseline: float
) -> Figure:
    """A panel for each cost; operators are numbered in the order of `errors`.

    Args:
        costs: What it is -> operator -> its value.
        errors: Operator -> mean relative L² error.
        baseline: The error of the mean of the training targets.
    """
    figure = Figure(figsize=(WIDE, _height(len(errors) + 1)))
    axes = figure.subplots(1, len(costs), sharey=True)
    inks = _inks(list(errors))
    for axis, (what, values) in zip(axes, costs.items(), strict=True):
        for number, (name, error) in enumerate(errors.items()):
            axis.plot(values[name], error, _MARKERS[number % len(_MARKERS)], color=inks[name],
                      ms=5, label=f"{number + 1} {name}")  # fmt: skip
            axis.annotate(str(number + 1), (values[name], error), xytext=(3, 3),
                          textcoords="offset points", fontsize=6.5)  # fmt: skip
        axis.axhline(baseline, color=QUIET, lw=0.9, ls="--", label="mean of the targets")
        axis.set(xlabel=what)
        logarithmic(axis, "x", np.array(list(values.values())))
        logarithmic(axis, "y", np.array([*errors.values(), baseline]))
    axes[0].set(ylabel="mean relative L² error")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    return figure


@styled
def learning_curves(histories: Mapping[str, Sequence[float]], watched: str) -> Figure:
    """Error of the watched samples after each epoch."""
    figure = Figure(figsize=(WIDE, _height(len(histories))))
    axes = figure.subplots()
    inks = _inks(list(histories))
    for number, (name, score) in enumerate(histories.items()):
        axes.plot(range(1, len(score) + 1), score, color=inks[name], label=name, lw=1.1,
                  ls=_DASHES[number % 4])  # fmt: skip
    axes.set(xlabel="epoch", ylabel=f"relative L² error, {watched}")
    logarithmic(axes, "y", np.concatenate([np.array(score) for score in histories.values()]))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    return figure


@styled
def error_by_grid(means: Mapping[str, Mapping[int, float]], trained: int) -> Figure:
    """Mean error of each operator on every grid, trained on one."""
    figure = Figure(figsize=(WIDE, _height(len(means))))
    axes = figure.subplots()
    inks = _inks(list(means))
    for number, (name, by_grid) in enumerate(means.items()):
        grids = sorted(by_grid)
        axes.plot(grids, [by_grid[n] for n in grids], color=inks[name], label=name, lw=1.1, ms=4,
                  marker=_MARKERS[number % len(_MARKERS)], ls=_DASHES[number % 4])  # fmt: skip
    axes.axvline(trained, color=QUIET, lw=0.9, ls=":")
    axes.set(xlabel="points of each axis (dotted: the grid of training)",
             ylabel="mean relative L² error")  # fmt: skip
    grids = sorted({n for by_grid in means.values() for n in by_grid})
    axes.set_xscale("log")
    axes.set_xticks(grids, [str(n) for n in grids], minor=False)
    axes.set_xticks([], minor=True)
    logarithmic(axes, "y", np.array([e for by_grid in means.values() for e in by_grid.values()]))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    return figure


@styled
def predictions_on_a_line(
    x: np.ndarray, truth: np.ndarray, predicted: Mapping[str, np.ndarray]
) -> Figure:
    """The truth and p - u of each operator on one sample, each error on a scale of its own."""
    columns = 3
    rows = -(-(len(predicted) + 1) // columns)
    figure = Figure(figsize=(WIDE, 1.35 * rows + 0.3))
    axes = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    axes[0].plot(x, truth, color=TRUTH)
    axes[0].set_title("truth u", fontsize=8)
    for axis, (name, p) in zip(axes[1:], predicted.items(), strict=False):
        axis.plot(x, p - truth, color=ERROR, lw=0.9)
        axis.axhline(0, color=QUIET, lw=0.6)
        error = float(np.linalg.norm(p - truth) / np.linalg.norm(truth))
        axis.set_title(f"{name}: p − u, {scientific(error)}", fontsize=8)
    for axis in axes[len(predicted) + 1 :]:
        axis.set_axis_off()
    return figure


@styled
def predictions_on_a_square(truth: np.ndarray, predicted: Mapping[str, np.ndarray]) -> Figure:
    """The truth, predictions and error maps of one sample; all errors have one scale."""
    columns = 6
    names = ["truth u", *predicted]
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(WIDE, rows * 2 * WIDE / columns + 0.4))
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    fields = [truth, *predicted.values()]
    largest = float(np.quantile([np.abs(p - truth).max() for p in fields[1:]], 0.75))
    image = None
    for number, (name, field) in enumerate(zip(names, fields, strict=True)):
        above, below = (axes[2 * (number // columns) + i, number % columns] for i in (0, 1))
        above.imshow(field.T, origin="lower", cmap="viridis", vmin=truth.min(), vmax=truth.max())
        above.set_title(name, fontsize=7.5, loc="center")
        if number:
            image = below.imshow((field - truth).T, origin="lower", cmap="RdBu_r", vmin=-largest,
                                 vmax=largest)  # fmt: skip
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
        axis.grid(False)
        if not axis.images:
            axis.set_axis_off()
    if image is not None:
        figure.colorbar(image, ax=axes.ravel().tolist(), label="p − u", aspect=40, pad=0.01)
    return figure


@styled
def couplings(matrices: Mapping[str, np.ndarray]) -> Figure:
    """|∂u(y)/∂a(x)| of each operator, y upwards and x to the right, by decades below its largest.

    Args:
        matrices: Operator -> matrix [y, x].
    """
    columns, decades = 7, 3
    rows = -(-len(matrices) // columns)
    figure = Figure(figsize=(WIDE, 1.5 * rows + 0.3))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    image = None
    for axis, (name, matrix) in zip(axes, matrices.items(), strict=False):
        size = np.abs(matrix)
        image = axis.imshow(
            np.log10(np.maximum(size / size.max(), 10.0**-decades)), origin="lower",
            aspect="auto", cmap="viridis", vmin=-decades, vmax=0,
        )  # fmt: skip
        axis.set_title(name, fontsize=7, loc="center")
        axis.set(xticks=[], yticks=[])
        axis.grid(False)
    for axis in axes[len(matrices) :]:
        axis.set_axis_off()
    if image is not None:
        figure.colorbar(image, ax=axes.tolist(), label="log₁₀ |∂u(y)/∂a(x)| / largest", aspect=40,
                        pad=0.01)  # fmt: skip
    return figure
