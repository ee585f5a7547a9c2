"""What moves in the report of a run: its test samples, and one of them in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from pdegen.domains import Box
from pipelines.reports import charts, trajectories
from pipelines.reports.document import Picture
from pipelines.reports.fields import line
from pipelines.reports.figures import WIDE, legend, styled
from pipelines.reports.live import (
    MOST,
    Slide,
    by_error,
    rendered,
    sample_slides,
    with_slides,
)
from pipelines.reports.palette import MODEL, TRUTH
from pipelines.reports.sheets import Functions, few

_MILLISECONDS = 200  # of a time


def samples(
    picture: Picture, inputs: Functions | None, truth: Functions, predicted: np.ndarray,
    errors: np.ndarray, numbers: Sequence[int], noisy: bool,
) -> Picture:  # fmt: skip
    """A picture of predictions with a slide for each of some samples; see `charts.predictions`."""

    def draw(i: int) -> Figure:
        return charts.drawn(inputs, truth, predicted, {"": i}, noisy, 1, by_error(errors))

    said = f"truth {truth.look.name}, prediction and error"
    slides, middle = sample_slides(errors, numbers, draw, said)
    return with_slides(picture, slides, "sample", middle)


def playing(picture: Picture, truth: Functions, predicted: np.ndarray, i: int) -> Picture:
    """A picture with the truth, the prediction and the difference of one sample in time, which
    play when that is asked.

    Args:
        picture: What stands alone without a script.
        truth, predicted, i: See `trajectories.frames`; in one dimension too.
    """
    shown = f"truth {truth.look.name}, prediction p and difference"
    if isinstance(truth.domain, Box) and truth.domain.dim > 1 and not truth.look.moves:
        images = trajectories.images(truth, predicted, i)
        times = truth.times
    else:
        times = few(truth.times, MOST)
        draw = _on_a_line if truth.domain.dim == 1 else trajectories.at_time
        images = rendered(draw(truth, predicted, i, time) for time in times)
    slides = [
        Slide(image, f"t = {time:g}", f"{shown} at t = {time:g}")
        for image, time in zip(images, times, strict=True)
    ]
    return with_slides(picture, slides, "time", moving=_MILLISECONDS)


@styled
def _on_a_line(truth: Functions, predicted: np.ndarray, i: int, time: float) -> Figure:
    """u and p at one time, on the scale of all times."""
    components = list(truth.components.items())[: charts.FEW]
    figure = Figure(figsize=(WIDE, 0.4 + 2.4 * len(components)))
    axes = figure.subplots(len(components), 1, squeeze=False)[:, 0]
    found = replace(truth, values=predicted)
    for cell, (name, channels) in zip(axes, components, strict=True):
        every = [one.of(i, list(channels.values())) for one in (truth, found)]
        low, high = min(map(np.min, every)), max(map(np.max, every))
        rim = 0.05 * (high - low or 1.0)
        for one, ink, dashes, word in (
            (truth, TRUTH, "-", f"truth {truth.look.name}"), (found, MODEL, "--", "prediction p"),
        ):  # fmt: skip
            x, values = line(one.place(i), one.of(i, channels[time]))
            cell.plot(x, values, color=ink, ls=dashes, label=word)
            cell.set(xlim=(x[0], x[-1]), ylim=(low - rim, high + rim), ylabel=name)
    axes[0].set_title(f"t = {time:g}")
    axes[-1].set_xlabel("x")
    legend(figure, axes[0])
    return figure
