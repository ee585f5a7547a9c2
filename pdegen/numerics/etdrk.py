"""Exponential time differencing Runge-Kutta of order 4 for a diagonal linear part.

References: Cox and Matthews, J. Comput. Phys. 176 (2002), equations (26)-(29); Kassam and
Trefethen, SIAM J. Sci. Comput. 26 (2005), section 3 for the contour integrals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float

from pdegen.numerics.device import Array, constant

State = Complex[Array, "batch *modes"]
Symbol = Float[Array, " *modes"] | Complex[Array, " *modes"]  # or with an axis of samples


@dataclass(frozen=True)
class Step:
    """One step of size h of dv/dt = L v + N(v) for a diagonal L. `Step.of(L, h)` builds it.

    `Step.of_each` builds the step of an L that differs from sample to sample.

    Without N the step is exact for any h:

    >>> step = Step.of(np.array([-1.0, -100.0]), h=0.5)
    >>> bool(np.allclose(step.full, np.exp([-0.5, -50.0]), rtol=1e-14))
    True
    """

    half: Symbol  # exp(L h/2)
    full: Symbol  # exp(L h)
    q: Symbol
    f1: Symbol
    f2: Symbol
    f3: Symbol

    @classmethod
    def of(cls, linear: Symbol, h: float, points: int = 32) -> Step:
        """The step of size h for the symbol L.

        Each coefficient is the mean of its formula over `points` points of a circle of radius 1
        about L h. The formula suffers from cancellation near L h = 0, but not on the circle. For a
        real symbol, the mean of the real part over half of the circle suffices.
        """
        real = np.isrealobj(linear)
        turn = np.pi if real else 2 * np.pi
        z = h * linear[..., None] + np.exp(1j * turn * (np.arange(points) + 0.5) / points)
        e = np.exp(z)

        def mean(value: Complex[np.ndarray, "*modes points"]) -> Symbol:
            return h * (np.real(value) if real else value).mean(axis=-1)

        return cls(
            half=np.exp(h * linear / 2),
            full=np.exp(h * linear),
            q=mean((np.exp(z / 2) - 1) / z),
            f1=mean((-4 - z + e * (4 - 3 * z + z**2)) / z**3),
            f2=2 * mean((2 + z + e * (z - 2)) / z**3),
            f3=mean((-4 - 3 * z - z**2 + e * (4 - z)) / z**3),
        )

    @classmethod
    def of_each(cls, linear: Iterable[Symbol], h: float) -> Step:
        """The step of size h with one symbol for each sample, with the bits of `Step.of`."""
        steps = [vars(cls.of(symbol, h)).values() for symbol in linear]
        return cls(*(np.stack(symbols) for symbols in zip(*steps, strict=True)))

    def where(self, like: Array) -> Step:
        """The same step for arrays of the namespace and device of `like`."""
        return Step(*(constant(symbol, like) for symbol in vars(self).values()))

    def __call__(self, v: State, nonlinear: Callable[[State], State]) -> State:
        """The state after the step."""
        n_v = nonlinear(v)
        v_half = self.half * v
        a = v_half + self.q * n_v
        n_a = nonlinear(a)
        b = v_half + self.q * n_a
        n_b = nonlinear(b)
        c = self.half * a + self.q * (2 * n_b - n_v)
        n_c = nonlinear(c)
        return self.full * v + self.f1 * n_v + self.f2 * (n_a + n_b) + self.f3 * n_c
