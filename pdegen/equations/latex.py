"""Parts of the LaTeX formulas of equations."""

from __future__ import annotations

from pdegen.sampling.scalars import ScalarLaw


class Named(float):
    r"""A number that formulas show by a name, because it differs from sample to sample.

    >>> nu = Named("viscosity")
    >>> number(nu), f"{-nu:g}", -nu < 0 < abs(-nu)
    ('\\mathrm{viscosity}', 'viscosity', True)
    """

    name: str

    def __new__(cls, name: str, value: float = 1.5) -> Named:
        """The value gives the sign in a sum; it is not 1, which formulas leave out."""
        named = super().__new__(cls, value)
        named.name = name
        return named

    def __abs__(self) -> Named:
        return Named(self.name, abs(float(self)))

    def __neg__(self) -> Named:
        return Named(self.name, -float(self))

    def __format__(self, spec: str) -> str:
        return self.name


def number(value: float) -> str:
    r"""A number with six digits in LaTeX, with a power of ten for large and small numbers.

    >>> number(0.1), number(2e-05)
    ('0.1', '2 \\cdot 10^{-5}')
    """
    if isinstance(value, Named):
        escaped = value.name.replace("_", r"\_")
        return rf"\mathrm{{{escaped}}}"
    digits, _, power = f"{value:.6g}".partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if power else digits


def with_value(symbol: str, value: float | ScalarLaw) -> str:
    r"""The last part of a formula, which states the value of a constant, or its law.

    >>> with_value(r"\nu", 0.1)
    ',\\quad \\nu = 0.1'
    """
    if isinstance(value, ScalarLaw):
        ends = f"[{number(value.low)}, {number(value.high)}]"
        return rf",\quad {symbol} \text{{ {value.law} in }} {ends}"
    return rf",\quad {symbol} = {number(value)}"
