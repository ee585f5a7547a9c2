"""Colour, dashes and marker of each method. They are the same in every report."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from matplotlib.colors import LinearSegmentedColormap, to_hex

from pipelines.reports.palette import DASHES, INKS, MARKERS, MODEL, QUIET, SHADE, TRUTH
from pipelines.studies.inversions import CONSTANT, Cell

# Each line has one colour per name, in the order of INKS; later lines repeat the colours with
# other dashes and markers.
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
    """Style of the method with number `row` among those of the same colour. Dashes and markers
    depend on both numbers."""
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
    free = _free({*fixed.values()}, {colour for colour, _ in fixed.values()}, len(names))
    slots = iter(free)
    return {name: _slot(*(fixed[name] if name in fixed else next(slots))) for name in names}


def _free(
    slots: Collection[tuple[int, int]], colours: Collection[int], count: int
) -> list[tuple[int, int]]:
    """Pairs (colour, row) that no method uses. Pairs whose colour is not in use come first."""
    rows = range(1 + len(_OPERATORS) + count // len(INKS))
    every = [(c, row) for row, c in product(rows, range(len(INKS))) if (c, row) not in slots]
    return sorted(every, key=lambda slot: (slot[1] + (slot[0] in colours), slot))


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
    is black. Lines are dashed for methods that correct a model's prediction, and dotted for methods
    that assume a wrong noise level.

    Args:
        kind: The kind of the noise. Levels of the kind "snr" are in decibels.
    """
    if method.method == CONSTANT:
        return Style(QUIET, "-", "_")
    dashes = ":" if method.assumed_level != 1 else "--" if method.corrected else "-"
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
