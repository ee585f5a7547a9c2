"""Square pulses that move around a circle with a constant velocity c: uₜ + c uₓ = 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Numbers = Float[np.ndarray, " batch"]


@dataclass(frozen=True)
class Pulse:
    """A pulse on a circle of length 1: `height` within width/2 of the centre, 0 elsewhere."""

    # height, width, centre: numbers of each sample; 0 < width < 1
    height: Numbers
    width: Numbers
    centre: Numbers

    def averages(self, n: int, shift: float = 0.0) -> Float[np.ndarray, "batch n"]:
        """Averages of the pulse, moved by `shift`, over n equal cells of the circle.

        The average over a cell [a, b] is (V(b) - V(a))/(b - a). Here V is the antiderivative
        V(x) = height (⌊y⌋ width + min(y - ⌊y⌋, width)), where y is x minus the rear of the pulse.

        >>> pulse = Pulse(np.array([2.0]), np.array([0.5]), np.array([0.5]))
        >>> pulse.averages(4), pulse.averages(4, shift=0.125)
        (array([[0., 2., 2., 0.]]), array([[0., 1., 2., 1.]]))
        """
        width = self.width[:, None]
        rear = (self.centre + shift - self.width / 2) % 1
        y = np.arange(n + 1) / n - rear[:, None]
        turns = np.floor(y)
        return np.diff(turns * width + np.minimum(y - turns, width)) * n * self.height[:, None]


@dataclass(frozen=True)
class Transport:
    """Averages over n equal cells of the exact solution u(x, t) = u₀(x - ct)."""

    n: int  # number of cells
    speed: float = 1.0  # velocity c

    def __call__(self, pulse: Pulse, t: float) -> Float[np.ndarray, "batch n"]:
        """Cell averages at the time t."""
        return pulse.averages(self.n, self.speed * t)
