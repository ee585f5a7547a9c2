"""How figures look and are saved: style, logarithmic axes, legends. Nothing global is changed."""

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
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from operators.training.files import write
from pipelines.reports.document import Picture

TIMES: Colormap = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.88, 256)))
WIDE, HALF = 9.4, 4.6  # inches: across the report's page, and half of it
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
    "pdf.fonttype": 42,  # letters are found by a search, and journals take them
    "svg.hashsalt": "pdegen",  # the same picture is the same file
    "text.parse_math": False,  # a dollar in a name is a dollar
}
styled = style.context(["default", _STYLE])
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def panels(count: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of so many axes, in rows of an equal height."""
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDE, height * rows + 0.3))
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def time_bar(figure: Figure, axes: np.ndarray, colour: Normalize) -> None:
    """The scale of the colours of curves at several times."""
    figure.colorbar(
        ScalarMappable(colour, TIMES), ax=axes.ravel().tolist(), label="time t", aspect=30, pad=0.02
    )


def legend(figure: Figure, *axes: Axes, below: bool = False) -> None:
    """One legend of all labelled curves, in a row above or below the axes."""
    curves = [pair for a in axes for pair in zip(*a.get_legend_handles_labels(), strict=True)]
    handles, labels = zip(*curves, strict=True)
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


def logarithmic(axes: Axes, direction: str, values: np.ndarray) -> None:
    """A logarithmic axis with labels at every power, at 1, 2, 5, or between, as the range asks."""
    positive = values[(values > 0) & np.isfinite(values)]
    if not positive.size:
        return
    axis: Axis = getattr(axes, f"{direction}axis")
    scale: Callable[..., Any] = getattr(axes, f"set_{direction}scale")
    scale("log")
    decades = np.log10(positive.max() / positive.min())
    if decades > 3:
        axis.set_major_locator(LogLocator())
        axis.set_major_formatter(FuncFormatter(_power_of_ten))
    else:
        near = MaxNLocator(5, steps=[1, 2, 5, 10])
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if decades > 0.9 else near)
        axis.set_major_formatter(FuncFormatter(_decimal))
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, out: Path) -> None:
    """Write a figure to a *.png, *.svg or *.pdf file."""
    write(out, _drawn(figure, out.suffix[1:].lower()))


@styled
def _drawn(figure: Figure, kind: str) -> bytes:
    """A figure as a file of a kind; the same figure is the same bytes."""
    drawn = io.BytesIO()
    dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(drawn, format=kind, metadata=dates.get(kind, {}))
    return drawn.getvalue()


def picture(figure: Figure, name: str, caption: str, half: bool = False) -> Picture:
    """A figure as a part of a report; `half` as wide as the page."""
    element = svg(figure, name, caption)
    figure.set_layout_engine("none")  # it is laid out, and both kinds have 72 points an inch
    return Picture(name, caption, element, half, _drawn(figure, "pdf"))


def svg(figure: Figure, name: str, label: str) -> str:
    """A figure as an <svg> element that can stand in a page beside others, or in a file."""
    body = _drawn(figure, "svg").decode()
    body = re.sub(r"<metadata>.*?</metadata>", "", body[body.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r' id="image[0-9a-f]+"', "", body)  # one for images that are alike, used nowhere
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", body)
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1).strip()
