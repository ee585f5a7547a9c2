"""Parts of the LaTeX formulas of equations."""

from __future__ import annotations


def number(value: float) -> str:
    r"""A number with six digits in LaTeX, with a power of ten for large and small numbers.

    >>> number(0.1), number(2e-05)
    ('0.1', '2 \\cdot 10^{-5}')
    """
    digits, _, power = f"{value:.6g}".partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if power else digits


def with_value(symbol: str, value: float) -> str:
    r"""The last part of a formula, which states the value of a constant.

    >>> with_value(r"\nu", 0.1)
    ',\\quad \\nu = 0.1'
    """
    return rf",\quad {symbol} = {number(value)}"
