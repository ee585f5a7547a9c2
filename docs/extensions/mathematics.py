"""Formulas as MathML, which browsers set themselves: no script, font or picture is loaded."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

OPENING = r"<mo[^>]*>(?:\(|\[|&#x00028;|&#x0003D;|&#x0002C;)</mo>"  # ( [ = ,

# Bars that open or close: the converter writes both alike, and browsers space them as relations.
BARS = {r"\lvert": "⟦", r"\rvert": "⟧", r"\lVert": "⟪", r"\rVert": "⟫"}
FENCES = {"⟦": "prefix|", "⟧": "postfix|", "⟪": "prefix‖", "⟫": "postfix‖"}


def mathml(formula: str, display: str = "inline") -> str:
    """A formula as MathML, with the spaces of TeX around signs, dots, slashes and functions."""
    for name, mark in BARS.items():
        formula = formula.replace(name, f"{mark} ")
    text = convert(formula, display=display)
    for mark, fence in FENCES.items():
        bar = f'<mo form="{fence[:-1]}" stretchy="false" lspace="0em" rspace="0em">{fence[-1]}</mo>'
        text = re.sub(f"<m([io])>(?:{mark}|&#x0{ord(mark):04X};)</m\\1>", bar, text)
    text = re.sub(
        f"({OPENING}|<mrow>)<mo>&#x02212;</mo>",
        r'\1<mo form="prefix" lspace="0em" rspace="0em">&#x02212;</mo>',
        text,
    )
    text = re.sub(
        f"({OPENING})<mo>&#x000B7;</mo>", r'\1<mo lspace="0em" rspace="0em">&#x000B7;</mo>', text
    )
    text = text.replace(
        '<mi mathvariant="script">N</mi>', "<mi>\N{MATHEMATICAL SCRIPT CAPITAL N}</mi>"
    )
    text = text.replace("<mi>&#x0007E;</mi>", '<mo lspace="0.28em" rspace="0.28em">&#x0223C;</mo>')
    text = re.sub(r"<mo>(/|&#x0002F;)</mo>", r'<mo lspace="0em" rspace="0em">\1</mo>', text)
    text = re.sub(r"<mo>([a-z]{2,4})</mo>", r'<mo lspace="0em" rspace="0.17em">\1</mo>', text)
    return re.sub(
        r"(?<!<msu[bp]>)(<mi>(?:cos|sin|exp|log)</mi>)", r'\1<mspace width="0.17em" />', text
    )


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def display(writer: HTML5Translator, node: nodes.math_block) -> None:
    # scrolled by its keys where a narrow screen does not hold the line
    label = '<div class="math" role="region" aria-label="formula" tabindex="0">'
    writer.body.append(f"{label}{mathml(node.astext(), 'block')}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
