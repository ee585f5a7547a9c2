"""Style, legends, logarithmic axes and files of figures. Global matplotlib settings are not
changed."""

import io
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pdegen.ownership import write
from pipelines.reports.document import Picture

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
