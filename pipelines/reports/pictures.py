"""Pictures of the samples of a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from pdegen.schema import SchemaError
from pdegen.store.store import Store, StoreError, open_sealed
from pipelines.reports import fields
from pipelines.reports.fields import Look
from pipelines.reports.figures import (
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
from pipelines.runs.interfaces import two_phases

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
    """Draw samples of a sealed store into a file.

    One sample, or without a number the first ones, on one- or two-dimensional grids. Of a store
    with several noise levels, one sample at every level.

    Args:
        url: The store.
        sample: Number of the sample; None for the first ones.
        out: The file, *.png, *.svg or *.pdf.

    Raises:
        StoreError: If the store cannot be read, or has no such sample.
        SchemaError: If `out` names another format, or what is no file.
    """
    if out.suffix.lower() not in FORMATS:
        raise SchemaError(f"a picture is {', '.join(FORMATS)}, got {str(out)!r}")
    if "\0" in str(out) or (out.exists() and not out.is_file()):
        raise SchemaError(f"{str(out)!r} is no file: a picture is written to one")
    store = open_sealed(url)
    if sample is not None and not 0 <= sample < store.samples:
        raise StoreError(f"{url} has samples 0 to {store.samples - 1}, got {sample}")
    plane = "y" in store.group
    if "level" in store.group:
        draw = _plane_levels if plane else _levels
        figure = draw(store, sample or 0)
    elif plane:
        figure = _plane(store, _numbers(store, sample, 4))
    else:
        drawn = _samples(store, _numbers(store, sample, 6))
        figure = _panel(drawn) if sample is None else _one_sample(drawn)
    save(figure, out)
    return out


def _numbers(store: Store, sample: int | None, most: int) -> range:
    """The sample that is asked for, or the first ones."""
    return range(min(most, store.samples)) if sample is None else range(sample, sample + 1)


def _title(store: Store) -> str:
    """Title of the store, and the constants of its target."""
    constants = [
        f"{key} = {value:.4g}"
        for key, value in store.array("u").attrs.asdict().items()
        if isinstance(value, int | float)
    ]
    return f"{store.attributes['title']}\n{', '.join(constants)}"


def _named(store: Store, name: str) -> str:
    array = store.array(name)
    return f"{array.attrs.get('role', 'variable')} {name}: {array.attrs.get('long_name', '')}"


def _look(store: Store, name: str) -> Look:
    brief = str(store.array(name).attrs.get("long_name", name)).partition(",")[0]
    return Look(brief, True, two_phases(store)) if name == "a" else Look(brief)


def _plane(store: Store, numbers: range) -> Figure:
    """Inputs above targets."""
    a, u = (store.values(name, numbers).astype(float) for name in ("a", "u"))
    titles = [f"sample {i}" for i in numbers]
    return fields.pairs(
        a,
        u,
        np.asarray(store.array("x")[:]),
        (_look(store, "a"), _look(store, "u")),
        titles,
        _title(store),
    )


def _noisy(store: Store) -> tuple[str, str, list[str]]:
    """The variable that has noise levels, the other one, and the levels in words."""
    noisy = [name for name in store.variables if "level" in _dims(store, name)]
    if len(noisy) != 1:
        raise StoreError(f"{store.url} has {len(noisy)} variables with noise levels, not one")
    kind = store.attributes.get("noise", {}).get("kind", "")
    words = [f"{kind} noise {v:g}".strip() for v in np.asarray(store.array("level")[:]).tolist()]
    return noisy[0], "u" if noisy[0] == "a" else "a", words


def _dims(store: Store, name: str) -> tuple[str, ...]:
    return tuple(map(str, getattr(store.array(name).metadata, "dimension_names", None) or ()))


def _plane_levels(store: Store, sample: int) -> Figure:
    """One sample at every noise level."""
    name, other, words = _noisy(store)
    values, clean = (
        store.values(variable, range(sample, sample + 1))[0].astype(float)
        for variable in (name, other)
    )
    return fields.levels(
        values, clean, np.asarray(store.array("x")[:]), (_look(store, name), _look(store, other)),
        [f"{name}, {level}" for level in words], f"sample {sample} of {_title(store)}",
    )  # fmt: skip


@styled
def _levels(store: Store, sample: int) -> Figure:
    """One sample at every noise level, as curves."""
    name, other, words = _noisy(store)
    x = np.asarray(store.array("x")[:])
    values, clean = (
        store.values(variable, range(sample, sample + 1))[0].astype(float)
        for variable in (name, other)
    )
    columns = min(3, len(words))
    rows = -(-len(words) // columns)
    figure = Figure(figsize=(WIDE, 1.0 + 2.2 * rows))
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for k, cell in enumerate(axes.flat):
        if k >= len(words):
            cell.set_axis_off()
            continue
        cell.plot(x, clean.reshape(-1, len(x)).T, color=QUIET, ls="--", lw=1.2)
        cell.plot(x, values[k].reshape(-1, len(x)).T, color=MODEL, lw=1.0)
        cell.set(title=words[k], xlim=(x[0], x[-1]))
    for cell in axes[-1]:
        cell.set_xlabel("x")
    for cell in axes[:, 0]:
        cell.set_ylabel("a, u")
    axes[0, 0].plot([], [], color=MODEL, label=_named(store, name))
    axes[0, 0].plot([], [], color=QUIET, ls="--", label=_named(store, other))
    figure.suptitle(f"sample {sample} of {_title(store)}", x=0.01, ha="left", fontsize=10.5)
    legend(figure, axes[0, 0], below=True)
    return figure


def _samples(store: Store, numbers: range) -> _Samples:
    x = store.array("x")
    points = np.asarray(x[:])
    inputs, targets = (store.values(name, numbers).astype(float) for name in ("a", "u"))
    if x.attrs["grid"] == "periodic":
        points, inputs, targets = closed(points), periodic(inputs), periodic(targets)
    return _Samples(
        numbers=numbers,
        x=points,
        times=np.atleast_1d(store.array("time")[...]) if "time" in store.arrays else np.empty(0),
        a=inputs,
        u=targets.reshape(len(numbers), -1, len(points)),
        title=_title(store),
        input=_named(store, "a"),
        target=_named(store, "u"),
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
    colours = [MODEL]
    if drawn.trajectory:
        colours = TIMES(Normalize(drawn.times[0], drawn.times[-1])(drawn.times))
    for colour, u in zip(colours, drawn.u[i], strict=True):
        axes.plot(drawn.x, u, color=colour, lw=1.2)
    axes.set_xlim(drawn.x[0], drawn.x[-1])


def _finish(figure: Figure, axes: np.ndarray, drawn: _Samples, prefix: str = "") -> None:
    """Axis labels, title, legend and colour bar that the samples share."""
    for cell in axes[-1]:
        cell.set_xlabel("x")
    for cell in axes[:, 0]:
        cell.set_ylabel("a, u")
    at = f" at t = {drawn.times[0]:.4g}" if len(drawn.times) == 1 else ""
    ink = TIMES(0.6) if drawn.trajectory else MODEL
    axes[0, 0].plot([], [], color=QUIET, ls="--", label=drawn.input)
    axes[0, 0].plot([], [], color=ink, label=drawn.target + at)
    if drawn.trajectory:
        time_bar(figure, axes, Normalize(drawn.times[0], drawn.times[-1]))
    figure.suptitle(prefix + drawn.title, x=0.01, ha="left", fontsize=10.5)
    legend(figure, axes[0, 0], below=True)
