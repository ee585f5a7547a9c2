"""Pictures of values along the surfaces of bodies, and of blocks that a rigid body deforms."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pdegen.domains import Box
from pipelines.reports.fields import bodies
from pipelines.reports.figures import WIDE, legend, styled
from pipelines.reports.palette import MODEL, QUIET, TRUTH
from pipelines.reports.sheets import BODY, Curves, Functions, few, sheet

_COLUMNS = 4  # times in a picture
_LINES = 6  # mesh lines across the shorter side


def curves_along(
    truth: Functions, numbers: Sequence[int], predicted: np.ndarray | None = None
) -> list[Curves]:
    """Curves of the first channel along the surfaces of bodies. Each sample has its own panel."""
    scaling = truth.look.along
    assert scaling is not None
    panels = []
    for i in numbers:
        domain, lines = truth.place(i), []
        for loop in bodies(domain):
            loop = np.append(loop, loop[0])
            x = domain.points.reshape(-1, domain.dim)[loop, 0]
            drawn = [(truth.values, TRUTH, "-", "truth")]
            if predicted is not None:
                drawn.append((predicted, MODEL, "--", "prediction"))
            for values, ink, dashes, name in drawn:
                v = replace(truth, values=values).of(i, 0).reshape(-1)[loop]
                lines.append((x, (v - scaling.offset) / scaling.scale, ink, dashes, name))
        panels.append(Curves(lines, label="" if panels else scaling.symbol))
    return panels


def along(truth: Functions, predicted: np.ndarray, titles: Mapping[str, int]) -> Figure:
    """Truth and prediction along the surfaces of bodies. `titles` maps the title of each panel to
    the position of its sample in `truth`."""
    curves = curves_along(truth, list(titles.values()), predicted)
    panels = [replace(panel, title=title) for panel, title in zip(curves, titles, strict=True)]
    return sheet([[replace(panels[0], named=True), *panels[1:]]])


@styled
def deformed(truth: Functions, predicted: np.ndarray, samples: Mapping[str, int]) -> Figure:
    """True and predicted deformed blocks below the rigid body, at a few times."""
    assert isinstance(truth.domain, Box)
    assert truth.above is not None
    times = few(truth.times, _COLUMNS + 1)[-_COLUMNS:]
    prediction = replace(truth, values=predicted)
    last = next(iter(truth.components.values()))[times[-1]]
    x = np.concatenate([blocks.moved(i, last).points.reshape(-1, 2)
                        for blocks in (truth, prediction) for i in samples.values()])  # fmt: skip
    (low, bottom), (high, top) = x.min(axis=0), [x[:, 0].max(), truth.above.heights.max()]
    height = WIDE / len(times) * (top - bottom) / (high - low) + 0.35
    figure = Figure(figsize=(WIDE, 0.6 + height * len(samples)))
    axes = figure.subplots(len(samples), len(times), squeeze=False, sharex=True, sharey=True)
    for time, cell in zip(times, axes[0], strict=True):
        cell.set_title(f"t = {time:g}")
    for row, (name, i) in zip(axes, samples.items(), strict=True):
        row[0].set_ylabel(name)
        for cell, time in zip(row, times, strict=True):
            channel = next(iter(truth.components.values()))[time]
            cell.fill(*truth.above.at(i, time).T, facecolor=QUIET, edgecolor="none")
            x = truth.moved(i, channel).points
            cell.fill(*_around(x).T, facecolor=BODY, edgecolor=TRUTH, lw=0.8)
            _lines(cell, prediction.moved(i, channel).points)
            cell.set(xlim=(low, high), ylim=(bottom, top), aspect="equal", xticks=[], yticks=[])
            cell.grid(False)
            cell.spines[:].set_visible(False)
    first = axes[0, 0]
    first.fill([], [], facecolor=BODY, edgecolor=TRUTH, lw=0.8, label="truth")
    first.plot([], [], color=MODEL, lw=0.7, label="prediction p")
    legend(figure, first)
    return figure


def _around(x: np.ndarray) -> np.ndarray:
    """The boundary points of a plane grid x, shape (n, m, 2), in the order along the boundary."""
    return np.concatenate([x[:, 0], x[-1, 1:], x[-2::-1, -1], x[0, -2:0:-1]])


def _lines(axes: Axes, x: np.ndarray) -> None:
    """Draw a few lines of a plane grid x, shape (n, m, 2), including the outermost lines."""
    n, m = x.shape[:2]
    for k in few(range(m), _LINES):
        axes.plot(*x[:, k].T, color=MODEL, lw=0.7)
    for k in few(range(n), max(2, _LINES * n // m)):
        axes.plot(*x[k].T, color=MODEL, lw=0.7)
