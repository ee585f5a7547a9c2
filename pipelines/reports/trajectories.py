"""Pictures of trajectories: frames, animations and power spectra."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from pdegen.domains import Box
from pipelines.reports.charts import above_rounding
from pipelines.reports.document import Picture
from pipelines.reports.fields import line
from pipelines.reports.figures import HALF, WIDE, legend, logarithmic, styled
from pipelines.reports.live import MOST, Slide, rendered, with_slides
from pipelines.reports.palette import ERROR, MODEL, TRUTH
from pipelines.reports.samples import FEW
from pipelines.reports.sheets import Functions, Panel, few, sheet

_ROWS = ("truth {}", "prediction p", "difference p − {}")
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
    return sheet(rows, [name.format(symbol) for name in _ROWS])


def _together(
    truth: Functions, predicted: np.ndarray, i: int, channels: list[int]
) -> tuple[Normalize, tuple[Functions, Functions, Functions]]:
    """The functions truth, prediction and difference, and a colour scale that all three share. The
    scale covers some channels of one sample."""
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
    """Truth, prediction and difference of a sample at one time. Each component has a row, with a
    colour scale that covers all times."""
    rows, names, alone = [], [], len(truth.components) == 1
    for component, channels in truth.components.items():
        scale, drawn = _together(truth, predicted, i, list(channels.values()))
        panels = [one.panel(i, channels[time], scale, "" if rows else word.format(truth.look.name))
                  for word, one in zip(_ROWS, drawn, strict=True)]  # fmt: skip
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
