"""Pictures of the samples of a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from pdegen.schema import SchemaError
from pdegen.store import Store, StoreError, open_sealed
from pipelines.figures import (
    MODEL,
    QUIET,
    TIMES,
    WIDE,
    closed,
    legend,
    periodic,
    save,
    styled,
    time_bar,
)

FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class _Samples:
    """Some samples of a store, and what is written on a picture of them."""

    numbers: range
    x: np.ndarray
    times: np.ndarray
    a: np.ndarray  # (samples, n)
    u: np.ndarray  # (samples, times, n)
    title: str
    input: str
    target: str

    @property
    def trajectory(self) -> bool:
        return len(self.times) > 1


def plot_store(url: str, sample: int | None, out: Path) -> Path:
    """Draw one sample of a sealed store, or a panel of its first six, into a file.

    One-dimensional grids only, by convenience.

    Args:
        url: The store.
        sample: Number of the sample; None for the panel.
        out: The file, *.png, *.svg or *.pdf.

    Raises:
        StoreError: If the store cannot be read, or has no such sample.
        SchemaError: If `out` names another format.
    """
    if out.suffix.lower() not in FORMATS:
        raise SchemaError(f"a picture is {', '.join(FORMATS)}, got {str(out)!r}")
    store = open_sealed(url)
    if sample is not None and not 0 <= sample < store.samples:
        raise StoreError(f"{url} has samples 0 to {store.samples - 1}, got {sample}")
    first, stop = (0, min(6, store.samples)) if sample is None else (sample, sample + 1)
    drawn = _samples(store, range(first, stop))
    save(_panel(drawn) if sample is None else _one_sample(drawn), out)
    return out


def _samples(store: Store, numbers: range) -> _Samples:
    x, a, u = store.array("x"), store.array("a"), store.array("u")
    points = np.asarray(x[:])
    inputs, targets = (store.values(name, numbers).astype(float) for name in ("a", "u"))
    if x.attrs["grid"] == "periodic":
        points, inputs, targets = closed(points), periodic(inputs), periodic(targets)
    words = {"long_name", "role", "units", "coordinates"}
    constants = [f"{k} = {v:.4g}" for k, v in u.attrs.asdict().items() if k not in words]
    return _Samples(
        numbers=numbers,
        x=points,
        times=np.atleast_1d(store.array("time")[...]),
        a=inputs,
        u=targets.reshape(len(numbers), -1, len(points)),
        title=f"{store.attributes['title']}\n{', '.join(constants)}",
        input=f"input a: {a.attrs['long_name']}",
        target=f"target u: {u.attrs['long_name']}",
    )


@styled
def _panel(drawn: _Samples) -> Figure:
    columns = min(3, len(drawn.numbers))
    rows = -(-len(drawn.numbers) // columns)
    figure = Figure(figsize=(WIDE, 1.0 + 2.2 * rows))
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for i, cell in enumerate(axes.flat):
        if i >= len(drawn.numbers):
            cell.set_axis_off()
            continue
        _draw(cell, drawn, i)
        cell.set_title(f"sample {drawn.numbers[i]}")
    _finish(figure, axes, drawn)
    return figure


@styled
def _one_sample(drawn: _Samples) -> Figure:
    figure = Figure(figsize=(WIDE, 4.0))
    axes = figure.subplots(1, 2 if drawn.trajectory else 1, squeeze=False)
    _draw(axes[0, 0], drawn, 0)
    if drawn.trajectory:
        image, u = axes[0, 1], drawn.u[0]
        size = np.abs(u).max()
        mesh = image.pcolormesh(
            drawn.x, drawn.times, u, cmap="RdBu_r", vmin=-size, vmax=size,
            shading="nearest", rasterized=True,
        )  # fmt: skip
        image.set(xlabel="x", ylabel="time t")
        image.grid(False)
        figure.colorbar(mesh, ax=image, label="u")
    _finish(figure, axes[:, :1], drawn, f"sample {drawn.numbers[0]} of ")
    return figure


def _draw(axes: Axes, drawn: _Samples, i: int) -> None:
    """Input and target of the i-th sample; the curves of a trajectory are coloured by time."""
    axes.plot(drawn.x, drawn.a[i], color=QUIET, ls="--", lw=1.2)
    colour = Normalize(drawn.times[0], drawn.times[-1])
    for time, u in zip(drawn.times, drawn.u[i], strict=True):
        axes.plot(drawn.x, u, color=TIMES(colour(time)) if drawn.trajectory else MODEL, lw=1.2)
    axes.set_xlim(drawn.x[0], drawn.x[-1])


def _finish(figure: Figure, axes: np.ndarray, drawn: _Samples, prefix: str = "") -> None:
    """Axis labels, title, legend and colour bar that the samples share."""
    for cell in axes[-1]:
        cell.set_xlabel("x")
    for cell in axes[:, 0]:
        cell.set_ylabel("a, u")
    at = "" if drawn.trajectory else f" at t = {drawn.times[0]:.4g}"
    ink = TIMES(0.6) if drawn.trajectory else MODEL
    axes[0, 0].plot([], [], color=QUIET, ls="--", label=drawn.input)
    axes[0, 0].plot([], [], color=ink, label=drawn.target + at)
    if drawn.trajectory:
        time_bar(figure, axes, Normalize(drawn.times[0], drawn.times[-1]))
    figure.suptitle(prefix + drawn.title, x=0.01, ha="left", fontsize=10.5)
    legend(figure, axes[0, 0], below=True)
