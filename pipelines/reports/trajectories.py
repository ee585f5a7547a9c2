"""Pictures of trajectories: frames, images of all times, and how power is spread over scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib import get_data_path
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from pdegen.domains import Box
from pipelines.reports.fields import layer
from pipelines.reports.figures import HALF, legend, logarithmic, styled
from pipelines.reports.palette import ERROR, MODEL, TRUTH
from pipelines.reports.sheets import Functions, Panel, few, sheet

_ROWS = ("truth {}", "prediction p", "difference p − {}")
_COLUMNS = 5  # times that are drawn
_SIDE, _GAP, _LINE = 160, 6, 16  # of its panels, in pixels: side, space between, line of text
_WHITE, _BLACK = 254, 255  # in its palette; the colours of values are those before


def frames(truth: Functions, predicted: np.ndarray, i: int) -> Figure:
    """Truth, prediction and difference of one sample at a few times, on one scale of colours.

    Args:
        truth: u, at several times, in two dimensions or more.
        predicted: p, of the shape of its values.
        i: Place of the sample.
    """
    rows, names, alone = [], [], len(truth.components) == 1
    for component, channels in truth.components.items():
        scale, drawn = _together(truth, predicted, i, list(channels.values()))
        for word, one in zip(_ROWS, drawn, strict=True):
            row: list[Panel | None] = []
            for time in few(list(channels), _COLUMNS):
                title = "" if rows or time is None else f"t = {time:g}"
                row.append(replace(one.panel(i, channels[time], scale, title), label=None))
            assert row[-1]
            row[-1] = replace(row[-1], label="")
            rows.append(row)
            names.append(word.format(truth.look.name if alone else component))
    return sheet(rows, names)


def _together(
    truth: Functions, predicted: np.ndarray, i: int, channels: list[int]
) -> tuple[Normalize, tuple[Functions, Functions, Functions]]:
    """One scale for truth, prediction and difference of channels of a sample, and the three."""
    p = replace(truth, values=predicted)
    e = replace(truth, values=predicted - truth.values, by=truth.values)
    others = [one.of(i, channels) for one in (p, e)]
    look = replace(truth.look, log=False)
    return look.scale(truth.of(i, channels), *others), (truth, p, e)


@styled
def spectrum(truth: Functions, predicted: np.ndarray, time: float) -> Figure:
    """Power of truth, prediction and error at one time: Σ |û(k)|² over the shell of each |k|.

    Args:
        truth: u, on a periodic box of two dimensions or more; its components are added.
        predicted: p, of the shape of its values.
        time: One of its times.
    """
    channels = [own[time] for own in truth.components.values() if time in own]
    assert isinstance(truth.domain, Box)
    lengths = [grid.length for grid in truth.domain.grids]
    figure = Figure(figsize=(HALF, 3.5))
    axes, every = figure.subplots(), []
    for values, name, ink, dashes in (
        (truth.values, f"truth {truth.look.name}", TRUTH, "-"),
        (predicted, "prediction p", MODEL, "--"),
        (predicted - truth.values, f"error p − {truth.look.name}", ERROR, ":"),
    ):
        k, power = shells(values[..., channels], lengths)
        axes.plot(k, power, color=ink, ls=dashes, label=name)
        every.append(power)
    axes.set(xlabel="wave number |k|", ylabel="power in the shell")
    logarithmic(axes, "x", k)
    logarithmic(axes, "y", np.maximum(np.concatenate(every), 1e-30))
    legend(figure, axes)
    return figure


def shells(values: np.ndarray, lengths: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Σ |û(k)|² over the shells k - 1/2 <= |k| < k + 1/2, k = 1, 2, ..., mean over the samples.

    Args:
        values: Shape (samples, *grid, channels), on a periodic grid.
        lengths: Of the domain along each axis; wave numbers are those of the longest.

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
    k = np.sqrt(sum(np.square(one) for one in np.meshgrid(*scaled, indexing="ij")))
    shell = np.floor(k + 0.5).astype(int)
    found = np.bincount(shell.ravel(), power.ravel())
    last = min(n // 2 for n in grid)
    return np.arange(1, last + 1), found[1 : last + 1]


def at_time(truth: Functions, predicted: np.ndarray, i: int, time: float) -> Figure:
    """Truth, prediction and difference of one sample at one time, a row for each component, on the
    scale of colours of all times; see `frames`."""
    rows, names, alone = [], [], len(truth.components) == 1
    for component, channels in truth.components.items():
        scale, drawn = _together(truth, predicted, i, list(channels.values()))
        panels = [one.panel(i, channels[time], scale, "" if rows else word.format(truth.look.name))
                  for word, one in zip(_ROWS, drawn, strict=True)]  # fmt: skip
        rows.append([replace(p, label="" if p is panels[-1] else None) for p in panels])
        names.append("" if alone else component)
    return sheet(rows, names, f"t = {time:g}")


def images(truth: Functions, predicted: np.ndarray, i: int) -> list[Image.Image]:
    """Truth, prediction and difference of one sample beside each other: an image for each time, a
    row for each component, in the colours of `truth.look`.

    Args:
        truth, predicted, i: See `frames`; on a box.
    """
    colours = (255 * truth.look.map(np.linspace(0, 1, _WHITE))[:, :3]).round().astype(np.uint8)
    palette = np.concatenate([colours, [[255] * 3, [0] * 3]]).astype(np.uint8).tobytes()
    rows: list[list[np.ndarray]] = [[] for _ in truth.times]
    for channels in truth.components.values():
        scale, drawn = _together(truth, predicted, i, list(channels.values()))
        for row, time in zip(rows, truth.times, strict=True):
            panels = [_pixels(one, i, channels[time]) for one in drawn]
            shown = [
                np.clip(scale(panel) * (_WHITE - 1), 0, _WHITE - 1).astype(np.uint8)
                for panel in panels
            ]
            row.append(_beside(shown, axis=1))
    found, font = [], ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf", 11)
    for time, row in zip(truth.times, rows, strict=True):
        pixels = np.pad(_beside(row, axis=0), ((_LINE, _LINE), (0, 0)), constant_values=_WHITE)
        image = Image.fromarray(pixels)
        image.putpalette(palette)
        pen, side = ImageDraw.Draw(image), (image.width - 2 * _GAP) // 3 + _GAP
        for k, word in enumerate(_ROWS):
            pen.text((k * side, 0), word.format(truth.look.name), _BLACK, font)
        pen.text((0, image.height - _LINE + 1), f"t = {time:g}", _BLACK, font)
        found.append(image)
    return found


def _pixels(one: Functions, i: int, channel: int) -> np.ndarray:
    """Values of a channel as rows of pixels from the top, x to the right."""
    values = layer(one.place(i), one.of(i, channel))[0].T[::-1]
    longest = max(values.shape)
    every, times = -(-longest // _SIDE), max(1, _SIDE // longest)
    return values[::every, ::every].repeat(times, axis=0).repeat(times, axis=1)


def _beside(panels: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Panels with white between them."""
    widths = [(0, 0), (0, 0)]
    widths[axis] = (0, _GAP)
    *first, last = panels
    padded = [np.pad(panel, widths, constant_values=_WHITE) for panel in first]
    return np.concatenate([*padded, last], axis=axis)
