"""Pictures of stores and of trained operators. They return figures; nothing global is changed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pdegen.schema import SchemaError
from pdegen.store import Store, StoreError, open_sealed

# Okabe and Ito's colours, which colour-blind readers tell apart; line styles differ as well.
TRUTH, MODEL, ERROR, QUIET = "#000000", "#0072B2", "#D55E00", "#7F7F7F"
TIMES: Colormap = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.88, 256)))
WIDE, HALF = 9.4, 4.6  # inches: across the report's page, and half of it
FORMATS = (".png", ".svg", ".pdf")
_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # letters of about one width
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-2, 4),
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
    "svg.fonttype": "none",  # letters stay letters: small, and found by a search
    "svg.hashsalt": "pdegen",  # the same picture is the same file
    "text.parse_math": False,  # a dollar in a name is a dollar
}
_styled = style.context(["default", _STYLE])
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def scientific(value: float) -> str:
    """Three digits and a power of ten.

    >>> scientific(0.0010314)
    '1.03e-3'
    """
    if not np.isfinite(value):
        return str(value)
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def closed(x: np.ndarray) -> np.ndarray:
    """The points of a periodic grid and the end of its circle, where the first point is again."""
    return np.append(x, 2 * x[-1] - x[-2])


def periodic(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Values on a periodic grid, for the points of `closed`."""
    return np.concatenate([values, values.take([0], axis=axis)], axis=axis)


@_styled
def learning_curve(
    history: Sequence[Mapping[str, float]], loss: str, selection: str, published: bool
) -> Figure:
    """Training loss, selection score and learning rate against the epoch.

    Args:
        history: For each epoch its epoch, loss, score and lr.
        loss: Name of the training loss.
        selection: Name of the split that is watched.
        published: True where this is the test slice of the published protocol.
    """
    figure = Figure(figsize=(WIDE, 3.4))
    axes = figure.subplots()
    epoch, losses, score, lr = (
        np.array([e[key] for e in history], dtype=float) for key in ("epoch", "loss", "score", "lr")
    )
    watched = "test slice (published protocol)" if published else f"{selection} split"
    marker = "o" if len(history) < 12 else None
    rate = axes.twinx()
    rate.plot(epoch, lr, color=QUIET, lw=0.8, ls=":", label="learning rate (right)")
    rate.set(ylabel="learning rate", ylim=(0, 1.08 * lr.max()))
    rate.grid(False)
    rate.spines["right"].set(visible=True, color=QUIET)
    rate.tick_params(axis="y", colors=QUIET)
    rate.yaxis.label.set_color(QUIET)
    axes.plot(epoch, losses, color=TRUTH, lw=1.0, ls="--", label=f"training loss ({loss})")
    axes.plot(epoch, score, color=MODEL, marker=marker, ms=3, label=f"relative L² error, {watched}")
    best = int(np.argmin(score))
    note = f"best: {scientific(score[best])}, epoch {history[best]['epoch']}"
    axes.plot(epoch[best], score[best], "o", color=ERROR, ms=6, label=note)
    axes.set(xlabel="epoch", ylabel="loss, error")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    _logarithmic(axes, "y", np.concatenate([losses, score]))
    axes.set_zorder(rate.get_zorder() + 1)  # the curves lie above the thin learning rate
    axes.patch.set_visible(False)
    _legend(figure, axes, rate)
    return figure


@_styled
def best_median_worst(
    x: np.ndarray,
    target: np.ndarray,
    prediction: np.ndarray,
    errors: np.ndarray,
    first_sample: int,
    times: Sequence[float],
) -> Figure:
    """The best, the median and the worst prediction over the truth, and p - u beneath.

    Args:
        x: Grid points, shape (n,).
        target, prediction: u and p, shape (samples, n, times).
        errors: Relative L² error of each sample.
        first_sample: Number of the first sample in the store.
        times: Time of each channel; of more than four, four are drawn.
    """
    order = np.argsort(errors)
    figure = Figure(figsize=(WIDE, 4.6))
    axes = figure.subplots(2, 3, sharex=True, height_ratios=[2, 1])
    drawn = np.unique(np.linspace(0, len(times) - 1, 4).round().astype(int))
    several = len(times) > 1
    colour = Normalize(times[0], times[-1]) if several else None
    chosen = {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": order[-1]}
    for column, (name, i) in enumerate(chosen.items()):
        above, below = axes[:, column]
        for channel in drawn:
            ink = TIMES(colour(times[channel])) if colour else TRUTH
            u, p = target[i, :, channel], prediction[i, :, channel]
            above.plot(x, u, color=ink, lw=1.6, alpha=0.5 if several else 1.0)
            above.plot(x, p, color=ink if several else MODEL, ls="--", lw=1.3)
            below.plot(x, p - u, color=ink if several else ERROR, lw=1.0)
        above.set_title(f"{name}: sample {first_sample + i}, error {scientific(float(errors[i]))}")
        below.axhline(0, color=QUIET, lw=0.6)
        below.set(xlabel="x", xlim=(x[0], x[-1]))
    axes[0, 0].set_ylabel("u")
    axes[1, 0].set_ylabel("error, p − u")
    if colour:
        _time_bar(figure, axes, colour)
    ink = TIMES(0.5) if several else TRUTH
    axes[0, 0].plot([], [], color=ink, alpha=0.5 if several else 1.0, label="truth u")
    axes[0, 0].plot([], [], color=ink if several else MODEL, ls="--", label="prediction p")
    axes[0, 0].plot([], [], color=ink if several else ERROR, lw=1.0, label="error p − u")
    _legend(figure, axes[0, 0])
    return figure


@_styled
def error_spectrum(target: np.ndarray, prediction: np.ndarray, modes: int | None) -> Figure:
    """Mean |û(k)| of the target and of the error against the mode k >= 1, û = DFT(u)/n.

    Args:
        target, prediction: Shape (samples, n, channels), on a periodic grid.
        modes: Modes 0 ... modes - 1 that the decoder keeps, to be marked.
    """
    spectra = [
        np.abs(np.fft.rfft(values, axis=1, norm="forward")).mean(axis=(0, 2))[1:]
        for values in (target, prediction - target)
    ]
    k = np.arange(1, len(spectra[0]) + 1)
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    axes.plot(k, spectra[0], color=TRUTH, label="target u")
    axes.plot(k, spectra[1], color=ERROR, ls="--", label="error p − u")
    if modes is not None and modes <= k[-1]:
        label = f"decoder keeps k < {modes}"
        axes.axvline(modes, color=MODEL, lw=1.0, ls=":", label=label)
    axes.set(xlabel="mode k", ylabel="mean |û(k)|")
    _logarithmic(axes, "x", k)
    _logarithmic(axes, "y", np.concatenate(spectra))
    _legend(figure, axes)
    return figure


@_styled
def error_histogram(errors: np.ndarray) -> Figure:
    """How many samples have which relative L² error, with mean, median and worst."""
    errors = np.maximum(errors, 1e-16)  # an exact prediction has a place on a logarithmic axis
    low, high = errors.min() / 1.05, errors.max() * 1.05
    figure = Figure(figsize=(HALF, 3.5))
    axes = figure.subplots()
    bins = np.geomspace(low, high, 2 + max(5, int(2 * len(errors) ** 0.5)))
    axes.hist(errors, bins=bins.tolist(), color="#9CC5E0", edgecolor="white", lw=0.5)
    for name, value, ink, dashes in (
        ("mean", errors.mean(), MODEL, "-"),
        ("median", float(np.median(errors)), TRUTH, "--"),
        ("worst", errors.max(), ERROR, ":"),
    ):
        axes.axvline(value, color=ink, ls=dashes, label=f"{name} {scientific(value)}")
    axes.set(xlabel="relative L² error", ylabel="samples")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False, axis="x")
    _logarithmic(axes, "x", np.array([low, high]))
    _legend(figure, axes)
    return figure


@dataclass(frozen=True)
class _Samples:
    """Some samples of a store with what is written on a picture of them."""

    numbers: range
    x: np.ndarray
    times: np.ndarray
    a: np.ndarray
    u: np.ndarray  # (samples, times, n)
    title: str
    labels: dict[str, str]


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
    figure = _one_sample(drawn) if sample is not None else _panel(drawn)
    save(figure, out)
    return out


def _samples(store: Store, numbers: range) -> _Samples:
    for name in ("x", "a", "u"):
        if name not in store.group:
            raise StoreError(f"{store.url} has no variable {name}")
    x, a, u = store.array("x"), store.array("a"), store.array("u")
    if a.ndim != 2 or u.ndim not in (2, 3):
        raise StoreError(f"{store.url}: only samples on one-dimensional grids are drawn")
    attributes = {name: store.array(name).attrs.asdict() for name in ("x", "a", "u")}
    times, time_label = np.array([np.nan]), "time"
    if "time" in store.group:
        times = np.atleast_1d(np.asarray(store.array("time")[...], dtype=float))
        time_label = _with_units("time t", store.array("time").attrs.asdict())
    words = {"long_name", "role", "units", "coordinates"}
    parameters = {k: v for k, v in attributes["u"].items() if k not in words}
    constants = ", ".join(f"{k} = {_short(v)}" for k, v in parameters.items())
    points = np.asarray(x[:], dtype=float)
    values = [np.asarray(v[numbers.start : numbers.stop], dtype=float) for v in (a, u)]
    if attributes["x"].get("grid") == "periodic":
        points, values = closed(points), [periodic(v) for v in values]
    return _Samples(
        numbers, points, times, values[0], values[1].reshape(len(numbers), -1, len(points)),
        "\n".join(filter(None, (store.attributes["title"], constants))),
        {
            "x": _with_units("x", attributes["x"]),
            "time": time_label,
            **{name: str(attributes[name].get("long_name", name)) for name in ("a", "u")},
            "values": _with_units("a, u", attributes["u"]),
        },
    )  # fmt: skip


@_styled
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


@_styled
def _one_sample(drawn: _Samples) -> Figure:
    trajectory = len(drawn.times) > 1
    figure = Figure(figsize=(WIDE, 4.0))
    axes = figure.subplots(1, 2 if trajectory else 1, squeeze=False)
    _draw(axes[0, 0], drawn, 0)
    if trajectory:
        image = axes[0, 1]
        times, u = drawn.times, drawn.u[0]
        size = np.abs(u).max()
        mesh = image.pcolormesh(
            drawn.x, times, u, cmap="RdBu_r", vmin=-size, vmax=size,
            shading="nearest", rasterized=True,
        )  # fmt: skip
        image.set(xlabel=drawn.labels["x"], ylabel=drawn.labels["time"])
        image.grid(False)
        figure.colorbar(mesh, ax=image, label="u")
    _finish(figure, axes[:, :1], drawn, f"sample {drawn.numbers[0]} of ")
    return figure


def _draw(axes: Axes, drawn: _Samples, i: int) -> None:
    """Input and target of the i-th sample; the curves of a trajectory are coloured by time."""
    trajectory = len(drawn.times) > 1
    axes.plot(drawn.x, drawn.a[i], color=QUIET, ls="--", lw=1.2)
    colour = Normalize(drawn.times[0], drawn.times[-1])
    for time, u in zip(drawn.times, drawn.u[i], strict=True):
        axes.plot(drawn.x, u, color=TIMES(colour(time)) if trajectory else MODEL, lw=1.2)
    axes.set_xlim(drawn.x[0], drawn.x[-1])


def _finish(figure: Figure, axes: np.ndarray, drawn: _Samples, prefix: str = "") -> None:
    """Axis labels, title, legend and colour bar that the samples share."""
    trajectory = len(drawn.times) > 1
    for cell in axes[-1]:
        cell.set_xlabel(drawn.labels["x"])
    for cell in axes[:, 0]:
        cell.set_ylabel(drawn.labels["values"])
    single = not trajectory and np.isfinite(drawn.times[0])
    at = f" at t = {_short(drawn.times[0])}" if single else ""
    axes[0, 0].plot([], [], color=QUIET, ls="--", label=f"input a: {drawn.labels['a']}")
    axes[0, 0].plot([], [], color=TIMES(0.6) if trajectory else MODEL,
                    label=f"target u: {drawn.labels['u']}{at}")  # fmt: skip
    if trajectory:
        _time_bar(figure, axes, Normalize(drawn.times[0], drawn.times[-1]), drawn.labels["time"])
    figure.suptitle(f"{prefix}{drawn.title}", x=0.01, ha="left", fontsize=10.5)
    _legend(figure, axes[0, 0], below=True)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _with_units(text: str, attributes: Mapping[str, Any]) -> str:
    units = attributes.get("units", "1")
    return text if units == "1" else f"{text} ({units})"


def _time_bar(figure: Figure, axes: Any, colour: Normalize, label: str = "time t") -> None:
    figure.colorbar(ScalarMappable(colour, TIMES), ax=axes, label=label, aspect=30, pad=0.02)


def _legend(figure: Figure, *axes: Axes, below: bool = False) -> None:
    """One legend of all labelled curves, in a row above or below the axes."""
    pairs = [a.get_legend_handles_labels() for a in axes]
    handles = [handle for found, _ in pairs for handle in found]
    labels = [label for _, found in pairs for label in found]
    place = "outside lower left" if below else "outside upper left"
    figure.legend(handles, labels, loc=place, ncols=4)


def _power_of_ten(value: float, position: int | None = None) -> str:
    """10⁻³ or 1.5·10⁻³."""
    exponent = int(np.floor(np.log10(value) + 1e-9))
    power = f"10{str(exponent).translate(_SUPERSCRIPT)}"
    factor = f"{value / 10.0**exponent:.3g}"
    return power if factor == "1" else f"{factor}·{power}"


def _decimal(value: float, position: int | None = None) -> str:
    """0.02 or 50 where that is short, else with a power of ten."""
    if value <= 0:  # a tick beyond the end of the axis, which is not drawn
        return ""
    return f"{value:.4g}" if 1e-3 <= value < 1e4 else _power_of_ten(value)


def _logarithmic(axes: Axes, direction: str, values: np.ndarray) -> None:
    """A logarithmic axis with labels at every power, at 1, 2, 5, or between, as the range asks."""
    axis: Axis = getattr(axes, f"{direction}axis")
    scale: Callable[..., Any] = getattr(axes, f"set_{direction}scale")
    scale("log")
    positive = values[values > 0]
    decades = np.log10(positive.max() / positive.min()) if len(positive) else 0.0
    if decades > 3:
        axis.set_major_locator(LogLocator())
        axis.set_major_formatter(FuncFormatter(_power_of_ten))
    else:
        near = MaxNLocator(5, steps=[1, 2, 5, 10])
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if decades > 0.9 else near)
        axis.set_major_formatter(FuncFormatter(_decimal))
    axis.set_minor_formatter(NullFormatter())


@_styled
def save(figure: Figure, out: Path) -> None:
    """Write a figure to a *.png, *.svg or *.pdf file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    dated = {"Date": None} if out.suffix.lower() == ".svg" else {}
    figure.savefig(out, metadata=dated)


@_styled
def svg(figure: Figure, name: str, label: str) -> str:
    """A figure as an <svg> element that can stand in a page beside others, or in a file.

    Args:
        figure: The figure.
        name: Put before its ids, so that those of two figures differ; letters and hyphens.
        label: What the picture shows, for readers who do not see it.
    """
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    body = text.getvalue()
    body = re.sub(r"<metadata>.*?</metadata>", "", body[body.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", body)
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1).strip()
