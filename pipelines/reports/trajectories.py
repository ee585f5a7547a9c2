"""Pictures of trajectories: frames, an animation of them, and how power is spread over scales."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from html import escape

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from pdegen.domains import Box
from pipelines.reports.fields import layer
from pipelines.reports.figures import ERROR, HALF, MODEL, TRUTH, legend, logarithmic, styled
from pipelines.reports.sheets import Functions, Panel, few, sheet

_ROWS = ("truth {}", "prediction p", "difference p − {}")
_COLUMNS = 5  # times that are drawn
_BYTES = 700_000  # of an animation; a third more in a page
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


def animation(truth: Functions, predicted: np.ndarray, i: int, label: str) -> str:
    """Truth, prediction and difference of one sample in time, as an <svg> element.

    Args:
        truth, predicted, i: See `frames`; on a box.
        label: What it shows, for readers who do not see it.
    """
    images, every = _images(truth, predicted, i), 1
    while len(data := _gif(images[::every], 150 * every)) > _BYTES and every < len(images):
        every *= 2
    width, height = images[0].size
    side = (width - 2 * _GAP) // 3
    words = [word.format(truth.look.name) for word in _ROWS]
    texts = "".join(
        f'<text x="{k * (side + _GAP)}" y="11" font-size="11" font-family="sans-serif">'
        f"{escape(word)}</text>"
        for k, word in enumerate(words)
    )
    source = f"data:image/gif;base64,{b64encode(data).decode()}"
    return (
        f'<svg role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {width} {height + _LINE}" '
        f'style="width: {width}px; max-width: 100%">{texts}<image href="{source}" y="{_LINE}" '
        f'width="{width}" height="{height}" style="image-rendering: pixelated"/></svg>'
    )


def _images(truth: Functions, predicted: np.ndarray, i: int) -> list[Image.Image]:
    """A picture for each time, a row for each component, in the colours of `truth.look`."""
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
    images = []
    for time, row in zip(truth.times, rows, strict=True):
        pixels = np.pad(_beside(row, axis=0), ((0, _LINE), (0, 0)), constant_values=_WHITE)
        image = Image.fromarray(pixels)
        image.putpalette(palette)
        ImageDraw.Draw(image).text((0, len(pixels) - _LINE + 2), f"t = {time:g}", fill=_BLACK)
        images.append(image)
    return images


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


def _gif(images: Sequence[Image.Image], milliseconds: int) -> bytes:
    data = io.BytesIO()
    images[0].save(
        data, "GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0,
        optimize=False,
    )  # fmt: skip
    return data.getvalue()
