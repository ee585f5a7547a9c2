"""Pictures of functions on the unit square: indexed [ix, iy], drawn with x to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from pipelines.reports.charts import ranked
from pipelines.reports.figures import HALF, TIMES, WIDE, styled
from pipelines.reports.wording import scientific

# Light sand to dark blue: two phases are told apart in print and by colour-blind readers.
MEDIUM: Colormap = LinearSegmentedColormap.from_list("medium", ["#F3E7CB", "#8FB3B0", "#173F5F"])
ERRORS = "RdBu_r"
_MOST = 160  # points of an axis that are drawn: bounds the size of a picture


@dataclass(frozen=True)
class Look:
    """How a variable is drawn.

    Args:
        name: What it is called.
        medium: It is a coefficient, positive, not a solution.
        phases: The two values of a coefficient that has just two.
    """

    name: str
    medium: bool = False
    phases: tuple[float, float] | None = None

    @property
    def colours(self) -> Colormap:
        return MEDIUM if self.medium else TIMES

    def scale(self, field: np.ndarray, *others: np.ndarray) -> Normalize:
        """One scale of colours; logarithmic for a coefficient over many magnitudes."""
        low, high = float(field.min()), float(field.max())
        if self.medium and 0 < 30 * low < high:
            return LogNorm(low, high)
        ends = [(float(f.min()), float(f.max())) for f in (field, *others)]
        return Normalize(min(low for low, _ in ends), max(high for _, high in ends))


def show(
    axes: Axes, values: np.ndarray, x: np.ndarray, colours: Colormap | str, scale: Normalize
) -> AxesImage:
    """Draw values (n, n) on the points x (n,) of each axis; each is a square, nothing is smoothed.

    Of more than 160 points every r-th is drawn.
    """
    every = slice(None, None, -(-len(x) // _MOST))
    x, values = x[every], values[every, every]
    half = (x[1] - x[0]) / 2 if len(x) > 1 else 0.5
    ends = (x[0] - half, x[-1] + half)
    image = axes.imshow(
        values.T, cmap=colours, norm=scale, origin="lower", extent=(*ends, *ends),
        interpolation="none",
    )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return image


def bar(image: AxesImage, label: str = "", phases: tuple[float, float] | None = None) -> None:
    """The colour bar of an image, at its right and as high; it may be that of others as well."""
    place = image.axes.inset_axes((1.04, 0.0, 0.055, 1.0))
    figure = image.axes.get_figure(root=True)
    assert figure is not None
    drawn = figure.colorbar(image, cax=place, label=label)
    scale = image.norm
    if phases is not None:
        drawn.set_ticks(list(phases), labels=[f"{value:.4g}" for value in phases])
    elif isinstance(scale, LogNorm):  # three numbers, whatever the range
        low, high = float(scale.vmin or 1), float(scale.vmax or 1)
        drawn.set_ticks([low, (low * high) ** 0.5, high])
        place.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2g}"))
        place.yaxis.set_minor_formatter(NullFormatter())
    else:
        place.yaxis.set_major_locator(MaxNLocator(4))
    drawn.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    place.tick_params(labelsize=7.5, length=2)
    place.yaxis.get_offset_text().set(size=7.5, horizontalalignment="left")


@styled
def best_median_worst(
    inputs: np.ndarray,
    target: np.ndarray,
    prediction: np.ndarray,
    points: tuple[np.ndarray, np.ndarray],
    looks: tuple[Look, Look],
    errors: np.ndarray,
    samples: Sequence[int],
    noisy: bool = False,
) -> Figure:
    """Input, truth, prediction p and its error, of the best, the median and the worst sample.

    Truth and prediction of a sample share one scale of colours.

    Args:
        inputs: Shape (samples, n, n).
        target, prediction: Shape (samples, m, m).
        points: Points of each axis, of the inputs (n,) and of the targets (m,).
        looks: Of the input and of the target.
        errors: Relative L² error of each sample.
        samples: Their numbers in the store.
        noisy: The inputs have noise.
    """
    (x, y), (of_input, of_target) = points, looks
    figure = Figure(figsize=(WIDE, 6.4))
    axes = figure.subplots(3, 4)
    titles = (
        f"input {of_input.name}{' with noise' if noisy else ''}",
        f"truth {of_target.name}",
        "prediction p",
        f"error p − {of_target.name}",
    )
    for cell, title in zip(axes[0], titles, strict=True):
        cell.set_title(title)
    for row, (name, i) in zip(axes, ranked(errors).items(), strict=True):
        a, u, p = inputs[i], target[i], prediction[i]
        size = float(np.abs(p - u).max()) or 1.0
        shared = of_target.scale(u, p)
        bar(show(row[0], a, x, of_input.colours, of_input.scale(a)), phases=of_input.phases)
        for cell, values in zip(row[1:3], (u, p), strict=True):
            bar(show(cell, values, y, of_target.colours, shared), phases=of_target.phases)
        bar(show(row[3], p - u, y, ERRORS, Normalize(-size, size)))
        row[0].set_ylabel(f"{name}: sample {samples[i]}\nerror {scientific(float(errors[i]))}")
    return figure


@styled
def mean_error(x: np.ndarray, error: np.ndarray, name: str) -> Figure:
    """Mean of |p - u| over the samples, at each point.

    Args:
        x: Points of each axis, shape (n,).
        error: p - u, shape (samples, n, n).
        name: Symbol of the target.
    """
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    mean = np.abs(error).mean(axis=0)
    image = show(axes, mean, x, "magma_r", Normalize(0, float(mean.max()) or 1.0))
    bar(image, f"mean |p − {name}|")
    axes.set(xlabel="x", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes.set_ylabel("y", rotation=0, labelpad=8)
    return figure


@styled
def pairs(
    inputs: np.ndarray,
    targets: np.ndarray,
    x: np.ndarray,
    looks: tuple[Look, Look],
    titles: Sequence[str],
    title: str,
) -> Figure:
    """Inputs above targets, a column for each sample; a row has one scale of colours.

    Args:
        inputs, targets: Shape (samples, n, n).
        x: Points of each axis, shape (n,).
        looks: Of the inputs and of the targets.
        titles: Of the samples.
        title: Of the picture.
    """
    several = len(titles) > 1
    figure = Figure(figsize=(WIDE, 4.5) if several else (WIDE, 4.6))
    axes = figure.subplots(*((2, len(titles)) if several else (1, 2)), squeeze=False)
    rows = axes if several else axes.T
    for row, values, look in zip(rows, (inputs, targets), looks, strict=True):
        scale = look.scale(values)
        images = [
            show(cell, value, x, look.colours, scale)
            for cell, value in zip(row, values, strict=True)
        ]
        bar(images[-1], look.name, look.phases)
    for cell, words in zip(rows[0], titles, strict=True):
        cell.set_title(words)
    _named(figure, axes, title)
    return figure


@styled
def levels(
    values: np.ndarray,
    other: np.ndarray,
    x: np.ndarray,
    looks: tuple[Look, Look],
    names: Sequence[str],
    title: str,
) -> Figure:
    """One sample at several noise levels beside each other, with the other variable before them.

    Args:
        values: The noisy variable, shape (levels, n, n); all levels have one scale of colours.
        other: The variable without noise, shape (n, n).
        x: Points of each axis, shape (n,).
        looks: Of the noisy variable and of the other one.
        names: Of the levels.
        title: Of the picture.
    """
    count = 1 + len(names)
    columns = min(4, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDE, 0.9 + 2.2 * rows))
    axes = figure.subplots(rows, columns, squeeze=False)
    first, *cells = axes.flat
    bar(show(first, other, x, looks[1].colours, looks[1].scale(other)), phases=looks[1].phases)
    first.set_title(looks[1].name)
    scale = looks[0].scale(values)
    for k, cell in enumerate(cells):
        if k >= len(names):
            cell.set_axis_off()
            continue
        bar(show(cell, values[k], x, looks[0].colours, scale))
        cell.set_title(names[k])
    _named(figure, axes, title)
    return figure


def _named(figure: Figure, axes: np.ndarray, title: str) -> None:
    for cell in axes[-1]:
        cell.set_xlabel("x", labelpad=1)
    for cell in axes[:, 0]:
        cell.set_ylabel("y", rotation=0, labelpad=6)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
