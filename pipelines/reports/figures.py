"""Style, legends, logarithmic axes and files of figures. Global matplotlib settings are not
changed."""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import product
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import colormaps, style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import (
    Colormap,
    LinearSegmentedColormap,
    ListedColormap,
    LogNorm,
    Normalize,
    to_hex,
)
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from operators.norms import by_column, defined, over_defined
from operators.training.fit import Epoch
from pdegen.files import write
from pipelines.reports.document import Picture, plus_minus, scientific, significant
from pipelines.reports.palette import DASHES, ERROR, INKS, MARKERS, MODEL, QUIET, SHADE, TRUTH
from pipelines.studies.inversions import CONSTANT, Cell

# Names of operators, whose styles are the same in every report. Each line has one colour per name,
# in the order of INKS; later lines repeat the colours with other dashes and markers.
_OPERATORS = (
    ("FNO", "GT", "DeepONet", "ONO", "Transolver", "PiT", "", "LRSA"),
    ("FNO++", "Transformer", "FT", "ST", "LT", "Self-PiT", "", "GNOT"),
    ("U-FNO", "OFormer", "shift-DeepONet", "UPT", "Transolver++", "PiT 2025", "", "FLARE"),
    ("F-FNO", "FactFormer", "LNO", "LSM", "LinearNO", "GAOT", "", "MWT"),
    ("Geo-FNO", "HT-Net", "XD", "CNO", "IPOT", "scOT", "", "U-Net"),
)
_SHORT = {  # names of operators in experiments, whose names in reports are shorter
    "galerkin-transformer": "GT",
    "galerkin-transformer-2d": "GT",
}
_CLASSICAL = {  # name of an inversion method: place of its colour in INKS
    "maximum a posteriori": 1,
    "total variation": 2,
    "Tikhonov": 3,
    "level set": 4,
    "maximum a posteriori, level estimated": 5,
}
_LEVELS = LinearSegmentedColormap.from_list("levels", [SHADE, MODEL, "#001B33"])
_DECIBELS = 40.0  # a signal-to-noise ratio that is drawn as no noise


@dataclass(frozen=True)
class Style:
    """How the curve and the points of a method are drawn."""

    colour: str
    dashes: str = "-"
    marker: str = "o"


def _slot(colour: int, row: int) -> Style:
    """Style of the method with number `row` among those of the same colour."""
    number = colour + len(INKS) * row
    return Style(INKS[colour], DASHES[(colour + row) % len(DASHES)], MARKERS[number % len(MARKERS)])


_FIXED: Mapping[str, tuple[int, int]] = {
    name: (colour, row)
    for row, names in enumerate(_OPERATORS)
    for colour, name in enumerate(names)
    if name
}


def styles(names: Sequence[str]) -> dict[str, Style]:
    """Style of each name. Known operators have fixed styles. Other names get the first styles that
    are not in use.

    >>> styles(["mine", "FNO"])["FNO"] == styles(["FNO", "GT"])["FNO"]
    True
    >>> len({style.colour for style in styles(["mine", "FNO", "yours"]).values()})
    3
    """
    fixed = {name: _FIXED[name] for name in names if name in _FIXED}
    taken, colours = {*fixed.values()}, {colour for colour, _ in fixed.values()}
    rows = range(1 + len(_OPERATORS) + len(names) // len(INKS))
    free = [(c, row) for row, c in product(rows, range(len(INKS))) if (c, row) not in taken]
    # colours that no name has come first
    slots = iter(sorted(free, key=lambda slot: (slot[1] + (slot[0] in colours), slot)))
    return {name: _slot(*(fixed[name] if name in fixed else next(slots))) for name in names}


def study_styles(methods: Sequence[Cell], kind: str, names: Sequence[str]) -> dict[Cell, Style]:
    """Style of each method in a noise study.

    If the study has several operators, each has the colour and the marker of its name in other
    reports, and classical methods have the colours that are left. Lines show what they show in
    `style_of`; those of classical methods are drawn as dashes and dots.

    Args:
        names: Name of the operator of each method; empty for other methods.
    """
    operators = dict.fromkeys(filter(None, names))
    if len(operators) < 2:
        return {method: style_of(method, kind) for method in methods}
    classical = dict.fromkeys(
        str(m.method) for m in methods if isinstance(m.method, str) and m.method != CONSTANT
    )
    looks = operator_styles([*operators, *classical])

    def look(method: Cell, name: str) -> Style:
        alone = style_of(method, kind)
        if method.method == CONSTANT:
            return alone
        if isinstance(method.method, str):
            dashes = "-." if alone.dashes == "-" else alone.dashes
            return Style(looks[method.method].colour, dashes, alone.marker)
        return replace(looks[name], dashes=alone.dashes)

    return {method: look(method, name) for method, name in zip(methods, names, strict=True)}


def operator_styles(names: Sequence[str]) -> dict[str, Style]:
    """`styles` of operators by their names in experiments, and of other names.

    >>> operator_styles(["fno"])["fno"] == styles(["FNO"])["FNO"]
    True
    """
    known = {name.lower(): name for name in _FIXED} | _SHORT
    titles = {name: known.get(name, name) for name in names}
    looks = styles(list(dict.fromkeys(titles.values())))
    return {name: looks[title] for name, title in titles.items()}


def style_of(method: Cell, kind: str) -> Style:
    """Style of a method in a noise study.

    Models are blue, and darker the more noise they were trained with; a model trained at all levels
    is black. Lines are dashed for methods that correct a model's prediction, dotted for methods
    that assume a wrong noise level, and dashed and dotted for the seeds of a model together.

    Args:
        kind: The kind of the noise. Levels of the kind "snr" are in decibels.
    """
    if method.method == CONSTANT:
        return Style(QUIET, "-", "_")
    dashes = ":" if method.assumed_level != 1 else "--" if method.corrected else "-"
    dashes = "-." if method.together else dashes
    if isinstance(method.method, str):
        place = _CLASSICAL.get(method.method, len(INKS) - 1)
        return Style(INKS[place], dashes, "sD^vP*"[place % 6])
    if isinstance(method.method, tuple):
        return Style(TRUTH, dashes, MARKERS[-1])
    shade = _shade(method.method, kind)
    return Style(to_hex(_LEVELS(shade)), dashes, MARKERS[round(10 * shade)])


def _shade(level: float, kind: str) -> float:
    """Darkness of the blue for a noise level: 0 without noise, 1 at level 1 (at 0 dB for "snr")."""
    if kind == "snr":
        return min(1.0, max(0.0, 1 - level / _DECIBELS))
    return 0.0 if level <= 0 else min(1.0, max(0.15, 1 + math.log10(level) / 3))


TIMES: Colormap = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.88, 256)))
WIDE, HALF = 6.8, 3.3  # inches: two columns of a paper and one; also the page and half of it
_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # letters of about one width
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-2, 4),
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "pdf.fonttype": 42,  # TrueType: text can be searched, and journals accept it
    "svg.hashsalt": "pdegen",  # the same figure gives the same bytes
    "text.parse_math": False,  # a dollar sign in a name is printed
}
styled = style.context(["default", _STYLE])
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def panels(count: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes. Each row is `height` inches high."""
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDE, height * rows + 0.3))
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def time_bar(figure: Figure, axes: np.ndarray, colour: Normalize) -> None:
    """Add a colour bar for curves whose colour shows the time."""
    colour_bar(
        figure, ScalarMappable(colour, TIMES), ax=axes.ravel().tolist(), label="time t",
        aspect=30, pad=0.02,
    )  # fmt: skip


def legend(figure: Figure, *axes: Axes, below: bool = False) -> None:
    """Add one legend for all labelled curves, above or below the axes, in as many columns as
    fit."""
    curves = [pair for a in axes for pair in zip(*a.get_legend_handles_labels(), strict=True)]
    handles, labels = zip(*curves, strict=True)
    renderer = FigureCanvasAgg(figure).get_renderer()
    for columns in range(min(4, len(labels)), 0, -1):
        added = figure.legend(
            handles, labels, loc="outside lower left" if below else "outside upper left",
            ncols=columns, columnspacing=1.2, handlelength=1.8,
        )  # fmt: skip
        # a tenth is left for wider fonts of browsers
        if columns == 1 or added.get_window_extent(renderer).width <= 0.9 * figure.bbox.width:
            return
        added.remove()


def _power_of_ten(value: float, position: int | None = None) -> str:
    """A value as text with a power of ten, such as 10⁻³ or 1.5·10⁻³."""
    exponent = int(np.floor(np.log10(value) + 1e-9))
    power = f"10{str(exponent).translate(_SUPERSCRIPT)}"
    factor = f"{value / 10.0**exponent:.3g}"
    return power if factor == "1" else f"{factor}·{power}"


def _decimal(value: float, position: int | None = None) -> str:
    """A tick label such as 0.02 or 50. Below 0.001 and from 10,000 on, it has a power of ten."""
    if value <= 0:  # a tick beyond the end of the axis, which is not drawn
        return ""
    return f"{value:.4g}" if 1e-3 <= value < 1e4 else _power_of_ten(value)


def logarithmic(axes: Axes, direction: str, values: np.ndarray) -> None:
    """Make an axis logarithmic, with ticks for the positive values. A longer axis has more
    ticks."""
    positive = values[(values > 0) & np.isfinite(values)]
    if not positive.size:
        return
    axis: Axis = getattr(axes, f"{direction}axis")
    scale: Callable[..., Any] = getattr(axes, f"set_{direction}scale")
    scale("log")
    low, high = np.log10(positive.min()), np.log10(positive.max())
    figure = axes.get_figure(root=True)
    assert figure is not None
    width, height = axes.bbox.width / figure.dpi, axes.bbox.height / figure.dpi
    room = int(width / 0.5) if direction == "x" else int(height / 0.25)
    if high - low > 3:
        axis.set_major_locator(LogLocator(numticks=max(3, room)))
        axis.set_major_formatter(FuncFormatter(_power_of_ten))
    else:
        factors = (1.0, 2.0, 5.0) if 3 * (high - low) < room else (1.0, 3.0)
        wide = high - low > 0.7
        axis.set_major_locator(
            LogLocator(subs=factors) if wide else MaxNLocator(min(5, room), steps=[1, 2, 5, 10])
        )
        axis.set_major_formatter(FuncFormatter(_decimal))
    axis.set_minor_formatter(NullFormatter())


def colour_bar(figure: Figure, image: ScalarMappable, **words: Any) -> Colorbar:
    """Add a colour bar without an outline. On a logarithmic scale it has three ticks with plain
    numbers. Other arguments are those of `Figure.colorbar`."""
    bar = figure.colorbar(image, **words)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    if isinstance(image.norm, LogNorm):
        low, high = float(image.norm.vmin or 1.0), float(image.norm.vmax or 1.0)
        places = [low, (low * high) ** 0.5, high]
        bar.set_ticks(places, labels=[_decimal(float(f"{place:.3g}")) for place in places])
        bar.minorticks_off()
    return bar


def save(figure: Figure, out: Path) -> None:
    """Write a figure to a *.png, *.svg or *.pdf file."""
    write(out, _file(figure, out.suffix[1:].lower()))


@styled
def _file(figure: Figure, suffix: str) -> bytes:
    """A figure as the content of an svg, pdf or png file."""
    content = io.BytesIO()
    dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(content, format=suffix, metadata=dates.get(suffix, {}))
    return content.getvalue()


def picture(figure: Figure, name: str, caption: str, half: bool = False) -> Picture:
    """A figure of a report as SVG and PDF. `half` means that it takes half the width of the
    page."""
    element = svg(figure, name, caption)
    figure.set_layout_engine("none")  # the layout of the SVG holds: PDF has 72 points an inch too
    return Picture(name, caption, element, half, _file(figure, "pdf"))


def svg(figure: Figure, name: str, label: str) -> str:
    """A figure as an <svg> element. The prefix `name` makes its ids unique in a page."""
    body = _file(figure, "svg").decode()
    body = re.sub(r"<metadata>.*?</metadata>", "", body[body.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r' id="image[0-9a-f]+"', "", body)  # equal images share it
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", body)
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1).strip()


_BINNED = 20  # samples from which a histogram is drawn
_HEIGHT = 2.6  # inches
_FLOOR = 1e-16  # of errors on a logarithmic axis


def watched_quantity(loss: str) -> str:
    """Name of the score by which a training with this loss chooses its epoch."""
    return "loss of the flow" if loss == "flow" else "relative L² error"


@styled
def learning_curve(history: Sequence[Epoch], loss: str, watched: str) -> Figure:
    """Training loss, mean and largest relative L² error of the watched samples, and learning rate
    against the epoch. The largest error is not drawn if an earlier version recorded an epoch."""
    figure = Figure(figsize=(WIDE, _HEIGHT))
    axes = figure.subplots()
    epoch, losses, score, lr = (
        np.array([getattr(e, key) for e in history]) for key in ("epoch", "loss", "score", "lr")
    )
    marker = "o" if len(history) < 12 else None
    rate = axes.twinx()
    rate.plot(epoch, lr, color=QUIET, lw=0.8, ls=":", label="learning rate (right)")
    rate.set(ylabel="learning rate", ylim=(0, 1.08 * lr.max()))
    rate.grid(False)
    rate.spines["right"].set(visible=True, color=QUIET)
    rate.tick_params(axis="y", colors=QUIET)
    rate.yaxis.label.set_color(QUIET)
    square = marker and "s"
    label = f"training loss ({loss})"
    axes.plot(epoch, losses, color=TRUTH, lw=1.0, ls="--", marker=square, ms=3, label=label)
    label = f"{watched_quantity(loss)}, {watched}"
    axes.plot(epoch, score, color=MODEL, marker=marker, ms=3, label=label)
    largest = [e.largest for e in history if e.largest is not None]
    if len(largest) == len(history):
        label = "largest error of a sample"
        axes.plot(epoch, largest, color=MODEL, ls="-.", lw=0.9, marker=marker, ms=3, label=label)
    best = int(np.argmin(score))
    note = f"best: {scientific(score[best])}, epoch {epoch[best]}"
    axes.plot(epoch[best], score[best], "D", color=ERROR, ms=6, label=note)
    axes.set(xlabel="epoch", ylabel="loss, error")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if (losses > 0).all():  # a logarithm of a density may have either sign
        logarithmic(axes, "y", np.concatenate([losses, score, largest]))
    axes.set_zorder(rate.get_zorder() + 1)  # the curves are drawn over the learning rate
    axes.patch.set_visible(False)
    legend(figure, axes, rate)
    return figure


@styled
def error_by_time(
    times: Sequence[float],
    errors: Mapping[str, np.ndarray],
    beside: Mapping[str, np.ndarray],
    seen: float | None,
) -> Figure:
    """Mean relative L² error at each time, with a band that contains the errors of 90 % of the
    samples.

    Args:
        errors: Errors of each component, shape (samples, times).
        beside: Mean errors of trivial predictors at each time, drawn for comparison.
        seen: Last time used in training, marked by a line; None for no line.
    """
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    for number, (name, error) in enumerate(errors.items()):
        ink, dashes = (MODEL, ERROR, TRUTH, QUIET)[number % 4], DASHES[number % 4]
        low, high = (
            by_column(lambda values, share=share: float(np.quantile(values, share)), error)
            for share in (0.05, 0.95)
        )
        axes.fill_between(times, low, high, color=ink, alpha=0.15, lw=0)
        axes.plot(
            times,
            by_column(fmean, error),
            color=ink,
            ls=dashes,
            marker=MARKERS[number],
            ms=3,
            label=name,
        )
    for (name, error), dashes in zip(beside.items(), (":", "-."), strict=False):
        axes.plot(times, error, color=TRUTH, ls=dashes, lw=1.0, label=name)
    if seen is not None:
        axes.axvline(seen, color=QUIET, lw=0.8, ls="--", label=f"trained to t = {seen:g}")
    axes.set(xlabel="time t", ylabel="relative L² error")
    drawn = [np.ravel(error) for error in (*errors.values(), *beside.values())]
    logarithmic(axes, "y", np.maximum(np.concatenate(drawn), _FLOOR))
    legend(figure, axes)
    return figure


@styled
def error_by_grid(errors: Mapping[int, np.ndarray], trained: int, points: str) -> Figure:
    """Relative L² errors of all samples on each grid, and their means.

    Args:
        errors: Errors of the samples, keyed by resolution.
        trained: Training resolution, marked by a line.
        points: Label of the axis of resolutions.
    """
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes, grids = figure.subplots(), sorted(errors)
    for n in grids:
        measured = np.maximum(defined(errors[n]), _FLOOR)
        label = "each sample" if n == grids[0] else None
        axes.plot(
            np.full(len(measured), n), measured, "_", color=SHADE, ms=12, mew=0.8, label=label
        )
    means = [over_defined(fmean, errors[n]) for n in grids]
    axes.plot(grids, means, color=MODEL, marker="D", ms=4, label="mean")
    axes.axvline(trained, color=QUIET, lw=0.9, ls=":", label="training grid")
    axes.set(xlabel=points, ylabel="relative L² error", xscale="log")
    axes.set_xlim(grids[0] / 1.3, grids[-1] * 1.3)
    axes.set_xticks(grids, [str(n) for n in grids])
    axes.set_xticks([], minor=True)
    logarithmic(axes, "y", np.maximum(np.concatenate([errors[n] for n in grids]), _FLOOR))
    legend(figure, axes)
    return figure


@styled
def error_spectrum(target: np.ndarray, prediction: np.ndarray, modes: int | None) -> Figure:
    """Mean of |û(k)| over the samples, for target and error and modes k >= 1, with û = DFT(u)/n.

    Each curve ends at its last value above the rounding errors of single precision.

    Args:
        modes: The operator retains the modes k < `modes`, and a line marks this limit; None if the
            operator retains all modes.
    """
    spectra = [
        np.abs(np.fft.rfft(values, axis=1, norm="forward")).mean(axis=(0, 2))[1:]
        for values in (target, prediction - target)
    ]
    spectra = [above_rounding(spectrum, spectra[0].max()) for spectrum in spectra]
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    for spectrum, ink, dashes, label in zip(
        spectra, (TRUTH, ERROR), DASHES, ("target u", "error p − u"), strict=False
    ):
        axes.plot(range(1, len(spectrum) + 1), spectrum, color=ink, ls=dashes, label=label)
    if modes is not None:
        axes.axvline(modes, color=MODEL, lw=1.0, ls=":", label=f"decoder keeps k < {modes}")
    axes.set(xlabel="mode k", ylabel="mean |û(k)|")
    logarithmic(axes, "x", np.arange(1, max(map(len, spectra)) + 1))
    logarithmic(axes, "y", np.concatenate(spectra))
    legend(figure, axes)
    return figure


def above_rounding(spectrum: np.ndarray, largest: float) -> np.ndarray:
    """The values of a spectrum up to the last one that exceeds the rounding errors of single
    precision.

    Args:
        largest: Rounding errors are this value times the machine epsilon.

    >>> above_rounding(np.array([1.0, 1e-3, 1e-9, 2e-9]), 1.0)
    array([1.   , 0.001])
    """
    above = np.flatnonzero(spectrum > float(np.finfo(np.float32).eps) * largest)
    return spectrum[: above[-1] + 1] if len(above) else spectrum


@styled
def error_histogram(errors: np.ndarray) -> Figure:
    """Histogram of relative L² errors, with lines at the mean, the median and the largest error.
    With fewer than 20 samples, the sorted errors are drawn instead."""
    errors = np.maximum(defined(errors), _FLOOR)
    low, high = errors.min() / 1.05, errors.max() * 1.05
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    axes.set_xscale("log")
    if len(errors) < _BINNED:
        ranks = range(1, len(errors) + 1)
        axes.plot(np.sort(errors), ranks, "o", color=MODEL, ms=4, ls="", label="each sample")
    else:
        bins = np.geomspace(low, high, 2 + max(5, int(2 * len(errors) ** 0.5)))
        axes.hist(errors, bins=bins.tolist(), color=SHADE, edgecolor="white", lw=0.5)
    for name, value, ink, dashes in (
        ("mean", errors.mean(), MODEL, "-"),
        ("median", float(np.median(errors)), TRUTH, "--"),
        ("worst", errors.max(), ERROR, ":"),
    ):
        axes.axvline(value, color=ink, ls=dashes, label=f"{name} {scientific(value)}")
    label = "rank of the sample" if len(errors) < _BINNED else "samples"
    axes.set(xlabel="relative L² error", ylabel=label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False, axis="x")
    logarithmic(axes, "x", np.array([low, high]))
    legend(figure, axes)
    return figure


@styled
def distributions(errors: Mapping[str, np.ndarray]) -> Figure:
    """Step curve for each run: the share of the samples whose error is at most e, as a function of
    e."""
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    for k, (name, values) in enumerate(errors.items()):
        measured = defined(values)
        shares = np.arange(1, len(measured) + 1) / len(measured)
        axes.step(
            np.sort(np.maximum(measured, _FLOOR)), shares, where="post", color=INKS[k % len(INKS)],
            ls=DASHES[k % len(DASHES)], label=name,
        )  # fmt: skip
    axes.set(xlabel="relative L² error e", ylabel="share with errors ≤ e", ylim=(0, 1.02))
    logarithmic(axes, "x", np.maximum(np.concatenate(list(errors.values())), _FLOOR))
    legend(figure, axes)
    return figure


@styled
def sample_by_sample(reference: tuple[str, np.ndarray], errors: Mapping[str, np.ndarray]) -> Figure:
    """Error of each sample against the error of the reference run. Each run has its own marker."""
    figure = Figure(figsize=(HALF, _HEIGHT))
    axes = figure.subplots()
    name, r = reference
    for k, (other, values) in enumerate(errors.items(), start=1):
        axes.plot(
            r, values, ls="", marker=MARKERS[k % len(MARKERS)], ms=4, mew=0.8, mfc="none",
            color=INKS[k % len(INKS)], label=other,
        )  # fmt: skip
    drawn = np.maximum(np.concatenate([r, *errors.values()]), _FLOOR)
    ends = [drawn.min() / 1.1, drawn.max() * 1.1]
    axes.plot(ends, ends, color=QUIET, lw=0.8, ls="--", label="equal errors")
    axes.set(xlabel=f"error by {name}", ylabel="error by the other run")
    logarithmic(axes, "x", drawn)
    logarithmic(axes, "y", drawn)
    legend(figure, axes)
    return figure


MEAN_ERROR = "mean relative L² error"
_NAME = 30  # letters of a line of a name beside a matrix
_LETTER, _LINE = 0.066, 0.165  # inches of a letter and of a line in a legend
_MARGIN = 1.15  # ratio of the ends of an axis to the smallest and largest values
_CLOSE = 0.06  # of the range: levels that are closer have no room for their labels


def _columns(names: Sequence[str], width: float = WIDE) -> int:
    """Number of columns in a legend that is as wide as the figure, in inches."""
    return max(1, min(len(names), int(width / (0.6 + _LETTER * max(map(len, names))))))


def _height(names: Sequence[str], axes: float = 2.9, width: float = WIDE) -> float:
    """Height in inches of a figure with a legend above the axes."""
    return axes + _LINE * -(-len(names) // _columns(names, width))


def _legend(axes: Axes, *others: Patch) -> None:
    """Add a legend above the axes, for the labelled curves and for `others`."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    handles, labels = axes.get_legend_handles_labels()
    handles, labels = [*handles, *others], [*labels, *(str(o.get_label()) for o in others)]
    figure.legend(
        handles, labels, loc="outside upper left", fontsize=7.5,
        ncols=_columns(labels, figure.get_figwidth()),
        labelspacing=0.3,
    )  # fmt: skip


@styled
def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    x: str,
    y: str = MEAN_ERROR,
    *,
    looks: Mapping[str, Style] | None = None,
    ticks: Mapping[float, str] | None = None,
    spreads: Sequence[Sequence[float]] | None = None,
    crossed: Sequence[Sequence[bool]] | None = None,
    bands: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    band: str = "",
    markers: bool = True,
    trained: float | None = None,
    log: bool = False,
    whole: bool = False,
    width: float = WIDE,
    ends: Sequence[float] = (),
) -> Figure:
    """A curve of positive values for each name.

    Args:
        looks: Style of each name; by default `styles` of the names.
        ticks: Labels of the ticks, keyed by position; by default matplotlib chooses the ticks.
        spreads: For each curve, half the length of the error bar at each position. On the
            logarithmic axis, a bar that contains 0 ends at the lower end of the axis.
        crossed: For each curve, whether a cross marks the point at each position.
        bands: Lower and upper ends of a shaded band around a curve, keyed by the curve's name.
        band: Meaning of the bands, for the legend.
        trained: Position of the training grid, which a dotted line marks.
        whole: Whether ticks are whole numbers, such as epochs.
        width: Width of the figure in inches.
        ends: Ends of the vertical axis; by default matplotlib chooses them.
    """
    names = [*series, "grid of training"]
    figure = Figure(figsize=(width, _height(names, width=width)))
    axes = figure.subplots()
    looks = styles(list(series)) if looks is None else looks
    if spreads is not None and not ends:
        ends = ends_of(*(np.concatenate(of) for of in ([v for _, v in series.values()], spreads)))
    for i, (name, (positions, values)) in enumerate(series.items()):
        look = looks[name]
        marker = look.marker if markers else ""
        error = None if spreads is None or not any(spreads[i]) else _bars(values, spreads[i], ends)
        axes.errorbar(
            positions, values, error, color=look.colour, ls=look.dashes, marker=marker, label=name,
            lw=1.1, ms=4, capsize=2,
        )  # fmt: skip
        if crossed is not None and any(crossed[i]):
            points = np.transpose([positions, values])[np.array(crossed[i])]
            axes.plot(*points.T, ls="", marker="x", color="black", ms=6, mew=1.0, zorder=5)
        if bands and name in bands:
            axes.fill_between(positions, *bands[name], color=look.colour, alpha=0.18, lw=0)
    axes.set(xlabel=x, ylabel=y)
    if trained is not None:
        axes.axvline(trained, color=QUIET, lw=0.9, ls=":", label="grid of training")
    if log:
        axes.set_xscale("log")
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if ticks is not None:
        axes.set_xticks(list(ticks), list(ticks.values()), minor=False)
        axes.set_xticks([], minor=True)
    drawn = [ends, *(values for pair in (bands or {}).values() for values in pair)]
    logarithmic(axes, "y", np.concatenate([*(values for _, values in series.values()), *drawn]))
    if ends:
        axes.set_ylim(min(ends), max(ends))
    _legend(axes, *([Patch(color=QUIET, alpha=0.3, lw=0, label=band)] if bands and band else []))
    return figure


def ends_of(means: np.ndarray, halves: np.ndarray) -> list[float]:
    """Ends of a logarithmic axis that contains all positive means and the ends of their intervals,
    as far as they are positive. Empty if there is no positive mean."""
    drawn = np.ravel([means, means - halves, means + halves])
    drawn = drawn[np.isfinite(drawn) & (drawn > 0)]
    return [float(drawn.min()) / _MARGIN, float(drawn.max()) * _MARGIN] if drawn.size else []


def _bars(values: Sequence[float], halves: Sequence[float], ends: Sequence[float]) -> np.ndarray:
    """Lengths of the lower and upper parts of error bars, shape (2, n), on a logarithmic axis."""
    middle, half = np.array(values, dtype=float), np.array(halves, dtype=float)
    room = middle - (min(ends) if ends else 0.0)
    return np.stack([np.where(middle > half, half, np.maximum(room, 0.0)), half])


def positions_of(levels: Sequence[float]) -> tuple[list[float], str]:
    """Positions of noise levels on an axis, and a note for the label of the axis.

    Positions are the levels if their labels have room on the axis. Otherwise positions are evenly
    spaced, and the note says this.

    >>> positions_of([0.0, 0.01, 0.1])
    ([0.0, 0.01, 0.1], '')
    >>> positions_of([0.0, 0.001, 0.1])
    ([0.0, 1.0, 2.0], ' (evenly spaced, not to scale)')
    """
    gaps = np.diff(np.sort(levels))
    if len(levels) < 2 or gaps.min() >= _CLOSE * gaps.sum():
        return list(levels), ""
    return [float(k) for k in range(len(levels))], " (evenly spaced, not to scale)"


@styled
def dots(
    means: Mapping[str, float],
    spreads: Sequence[float],
    crossed: Sequence[bool] = (),
    error: str = MEAN_ERROR,
) -> Figure:
    """Mean error and its spread for each name, with the smallest error at the top. Crosses mark the
    names for which `crossed` is true."""
    order = np.argsort(list(means.values()))[::-1]
    names, values = list(means), np.array(list(means.values()))
    figure = Figure(figsize=(WIDE, 0.9 + 0.3 * len(names)))
    axes = figure.subplots()
    for line, i in enumerate(order):
        spread = spreads[i] or None
        axes.errorbar(values[i], line, xerr=spread, fmt="o", color=MODEL, ms=6, capsize=3)
        if crossed and crossed[i]:
            axes.plot(values[i], line, marker="x", color="black", ms=9, mew=1.2, zorder=5)
        axes.annotate(
            significant(float(values[i])),
            (values[i], line),
            (8, 5),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_yticks(range(len(names)), [names[i] for i in order])
    low, high = (values + sign * np.nan_to_num(spreads) for sign in (-1, 1))
    first = 1.12 * min(0.0, float(min(low[np.isfinite(low)], default=0.0)))
    last = 1.12 * float(max(high[np.isfinite(high)], default=0.0)) or 1.0
    axes.set(xlabel=error, xlim=(first, last))
    return figure


@styled
def errors_against_costs(
    costs: Mapping[str, Mapping[str, float]],
    errors: Mapping[str, float],
    baseline: float,
    y: str = MEAN_ERROR,
    looks: Mapping[str, Style] | None = None,
) -> Figure:
    """Errors against costs, with a panel for each cost. Operators are numbered in the order of
    `errors`.

    Args:
        baseline: Error of predicting the mean of the training targets, drawn as a line.
        looks: Style of each operator; by default `styles` of their names.
    """
    looks = styles(list(errors)) if looks is None else looks
    labels = [f"{i} {name}" for i, name in enumerate(errors, 1)]
    figure = Figure(figsize=(WIDE, _height([*labels, "mean of the targets"])))
    axes = figure.subplots(1, len(costs), sharey=True)
    for axis, (what, values) in zip(axes, costs.items(), strict=True):
        for i, (label, (name, error)) in enumerate(zip(labels, errors.items(), strict=True), 1):
            look = looks[name]
            axis.plot(values[name], error, look.marker, color=look.colour, ms=5, label=label)
            offset: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
            axis.annotate(str(i), (values[name], error), fontsize=7, **offset)
        axis.axhline(baseline, color=QUIET, lw=0.9, ls="--", label="mean of the targets")
        axis.set(xlabel=what)
        logarithmic(axis, "x", np.array(list(values.values())))
        logarithmic(axis, "y", np.array([*errors.values(), baseline]))
    axes[0].set(ylabel=y)
    _legend(axes[-1])
    return figure


@styled
def error_by_samples(
    samples: Sequence[int], errors: Sequence[float], streamed: tuple[int, float] | None
) -> Figure:
    """Mean error against the number of distinct training samples."""
    figure = Figure(figsize=(WIDE, 3.2))
    axes = figure.subplots()
    axes.plot(samples, errors, marker="o", ms=5, label="stored samples, in several passes")
    ends = np.array([samples, errors])
    if streamed is not None:
        axes.plot(*streamed, ls="", marker="D", ms=7, label="a stream, each sample once")
        axes.axhline(streamed[1], lw=0.8, ls=":", color=QUIET)
        ends = np.column_stack([ends, streamed])
    axes.set(xlabel="distinct training samples", ylabel=f"{MEAN_ERROR}, test")
    for direction, end in zip("xy", ends, strict=True):
        logarithmic(axes, direction, end)
    _legend(axes)
    return figure


@styled
def heat_map(
    means: np.ndarray,
    spreads: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    x: str,
    crossed: np.ndarray | None = None,
    error: str = MEAN_ERROR,
) -> Figure:
    """Mean and spread of an error for each method (rows) and condition (columns). Crosses mark the
    cells for which `crossed` is true."""
    names = [fill(name, _NAME) for name in rows]
    letters = max(len(line) for name in names for line in name.splitlines())
    room = (WIDE - _LETTER * letters - 1.0) / len(columns)  # inches of a cell
    marks = np.zeros(means.shape, dtype=bool) if crossed is None else crossed
    words = [[_in_cell(*cell) for cell in zip(*of, strict=True)]
             for of in zip(means, spreads, marks, strict=True)]  # fmt: skip
    longest = max(len(word) for row in words for word in row)
    if longest * _LETTER > room:  # the spread has a line of its own
        words = [[word.replace(" ± ", "\n± ") for word in row] for row in words]
        longest = max(len(line) for row in words for word in row for line in word.splitlines())
    size = min(8.0, 8.0 * room / (_LETTER * longest))
    lines = max(text.count("\n") for text in [*names, *(word for row in words for word in row)])
    height = 0.9 + (0.36 + 0.12 * lines) * len(rows)
    figure = Figure(figsize=(WIDE, max(height, 1.8)))  # room for the label of the colour bar
    axes = figure.subplots()
    drawn = means[(means > 0) & np.isfinite(means)]
    scale = LogNorm(drawn.min(), drawn.max() * 1.001) if drawn.size else Normalize(0.0, 1.0)
    image = axes.imshow(means, cmap="cividis_r", norm=scale, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), names)
    axes.set(xlabel=x)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    for (i, j), mean in np.ndenumerate(means):
        red, green, blue, _ = image.cmap(image.norm(mean))
        colour = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"
        axes.text(j, i, words[i][j], ha="center", va="center", color=colour, fontsize=size)
    colour_bar(figure, image, ax=axes, pad=0.01, label=error)
    return figure


def _in_cell(mean: float, spread: float, crossed: bool) -> str:
    """Mean and spread as text for a cell of a matrix, which may begin with a cross."""
    words = significant(mean)
    return ("× " if crossed else "") + (plus_minus(words, spread) if spread > 0 else words)


@styled
def couplings(matrices: Mapping[str, np.ndarray]) -> Figure:
    """Image of |∂u(y)/∂a(x)| for each operator, with x to the right and y upwards. The scale is
    logarithmic and ends three decades below the largest value."""
    decades = 3
    figure, axes = panels(len(matrices), 6, 1.4)
    for axis, (name, matrix) in zip(axes, matrices.items(), strict=True):
        size = np.abs(matrix) / (np.abs(matrix).max() or 1.0)
        values = np.log10(np.maximum(size, 10.0**-decades))
        image = axis.imshow(values, origin="lower", aspect="auto", vmin=-decades, vmax=0)
        axis.set_title(name, fontsize=7.5, loc="center")
        axis.set(xticks=[], yticks=[])
        axis.grid(False)
    colour_bar(figure, image, ax=axes, label="log₁₀ |∂u(y)/∂a(x)| / largest", aspect=40, pad=0.01)
    return figure
