"""Charts of studies: errors by noise level and by number of samples, reconstructions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from pipelines.reports.figures import QUIET, WIDE, logarithmic, styled


@styled
def heat_map(
    means: np.ndarray, spreads: np.ndarray, rows: Sequence[str], levels: Sequence[float], title: str
) -> Figure:
    """Mean and spread of an error for each method (rows) and test level (columns)."""
    figure = Figure(figsize=(WIDE, 0.9 + 0.42 * len(rows)))
    axes = figure.subplots()
    image = axes.imshow(
        means, cmap="cividis_r", norm=LogNorm(means.min(), means.max() * 1.001), aspect="auto"
    )
    axes.set(
        xticks=range(len(levels)), xticklabels=[f"{level:g}" for level in levels],
        yticks=range(len(rows)), yticklabels=rows, xlabel="noise level of the test samples",
        title=title,
    )  # fmt: skip
    axes.grid(False)
    axes.spines[:].set_visible(False)
    for (i, j), mean in np.ndenumerate(means):
        spread = f" ± {spreads[i, j]:.2g}" if spreads[i, j] > 0 else ""
        red, green, blue, _ = image.cmap(image.norm(mean))
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        axes.text(j, i, f"{mean:.3g}{spread}", ha="center", va="center",
                  color="white" if dark else "black")  # fmt: skip
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.ax.minorticks_off()
    logarithmic(bar.ax, "y", means)
    return figure


@styled
def reconstructions(
    fields: Sequence[Sequence[np.ndarray]],
    titles: Sequence[str],
    rows: Sequence[str],
    values: tuple[float, float],
) -> Figure:
    """Fields in rows; the first column has a scale of its own, the others that of the phases."""
    height = 0.35 + 1.02 * WIDE / len(titles) * len(rows)
    figure = Figure(figsize=(WIDE, height))
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for i, row in enumerate(fields):
        for j, field in enumerate(row):
            low, high = (None, None) if j == 0 else values
            axes[i, j].imshow(
                field.T, origin="lower", cmap="viridis" if j == 0 else "cividis",
                vmin=low, vmax=high, interpolation="nearest",
            )  # fmt: skip
            axes[i, j].set(xticks=[], yticks=[])
            axes[i, j].grid(False)
            if i == 0:
                axes[i, j].set_title(titles[j], loc="center")
        axes[i, 0].set_ylabel(rows[i])
    return figure


@styled
def error_by_level(
    levels: Sequence[float], means: np.ndarray, spreads: np.ndarray, rows: Sequence[str]
) -> Figure:
    """Mean error of each method against the noise level of the test samples."""
    figure = Figure(figsize=(WIDE, 3.2))
    axes = figure.subplots()
    styles = ["-", "--", "-.", ":"]
    for i, row in enumerate(rows):
        axes.errorbar(
            range(len(levels)), means[i], spreads[i], label=row, marker="o", ms=4,
            ls=styles[i % 4], capsize=2,
        )  # fmt: skip
    axes.set(
        xticks=range(len(levels)), xticklabels=[f"{level:g}" for level in levels],
        xlabel="noise level of the test samples", ylabel="mean relative L² error",
    )  # fmt: skip
    logarithmic(axes, "y", means)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


@styled
def error_by_samples(
    samples: Sequence[int], errors: Sequence[float], streamed: tuple[int, float] | None
) -> Figure:
    """Mean error against the number of distinct training samples.

    Args:
        samples, errors: Of the trainings on stored samples, which see them again and again.
        streamed: Of the one that sees each of its samples once.
    """
    figure = Figure(figsize=(WIDE, 3.4))
    axes = figure.subplots()
    axes.plot(samples, errors, marker="o", ms=5, label="stored samples, in several passes")
    ends = np.array([samples, errors])
    if streamed is not None:
        axes.plot(*streamed, ls="", marker="D", ms=7, label="a stream, each sample once")
        axes.axhline(streamed[1], lw=0.8, ls=":", color=QUIET)
        ends = np.column_stack([ends, streamed])
    axes.set(xlabel="distinct training samples", ylabel="mean relative L² error, test")
    for direction, end in zip("xy", ends, strict=True):
        logarithmic(axes, direction, end)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
