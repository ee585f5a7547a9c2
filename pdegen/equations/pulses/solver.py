"""Square pulses that a constant velocity carries round the circle: uₜ + c uₓ = 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Numbers = Float[np.ndarray, " batch"]


@dataclass(frozen=True)
class Pulse:
    """u₀ is `height` within width/2 of the centre, 0 elsewhere, on a circle of length 1."""

    # height, width, centre: one of each for every sample; 0 < width < 1
    height: Numbers
    width: Numbers
    centre: Numbers

    def averages(self, n: int, shift: float = 0.0) -> Float[np.ndarray, "batch n"]:
        """Averages over n equal cells of the pulse, moved by `shift`.

        They are differences of ∫₀^x u = height (⌊y⌋ width + min(y - ⌊y⌋, width)) over h, up to a
        constant, where y is the distance of x from the rear of the pulse.

        >>> one = Pulse(np.array([2.0]), np.array([0.5]), np.array([0.5]))
        >>> one.averages(4), one.averages(4, shift=0.125)
        (array([[0., 2., 2., 0.]]), array([[0., 1., 2., 1.]]))
        """
        width = self.width[:, None]
        rear = (self.centre + shift - self.width / 2) % 1
        y = np.arange(n + 1) / n - rear[:, None]
        turns = np.floor(y)
        return np.diff(turns * width + np.minimum(y - turns, width)) * n * self.height[:, None]


@dataclass(frozen=True)
class Transport:
    """The exact solution u(x, t) = u₀(x - ct), as averages over n cells."""

    n: int  # number of cells
    speed: float = 1.0  # the velocity c

    def __call__(self, pulse: Pulse, t: float) -> Float[np.ndarray, "batch n"]:
        """The averages at time t."""
        return pulse.averages(self.n, self.speed * t)
