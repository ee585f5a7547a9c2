"""Checks of stored moving pulses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import EPSILON, Bound, Distinct, StoreChecks, UniformCheck, Values

# from z to height, width and centre, each of shape (batch,)
Initial = Callable[[Float[np.ndarray, "batch 3"]], tuple[np.ndarray, np.ndarray, np.ndarray]]


def pulses_checks(
    n: int, speed: float, times: Sequence[float], names: Sequence[str], initial: Initial
) -> StoreChecks:
    """Checks of moving pulses: z is uniform and defines a pulse with the cell averages a and u.

    a contains the averages at t = 0, and u those at the output times. Both have the same mean.
    """

    def distance(name: str, times: Sequence[float]) -> Bound:
        def from_pulse(stored: Values) -> tuple[np.ndarray, np.ndarray]:
            height, width, centre = initial(stored["z"])
            values = stored[name].reshape(len(height), len(times), n).astype(np.float64)
            shifts = (centre[:, None] + speed * np.array(times) - width[:, None] / 2) % 1
            covered = np.stack([_covered(rear, width, n) for rear in shifts.T], axis=1)
            error = abs(values - covered * height[:, None, None]).max(axis=(1, 2))
            return error, 4 * (EPSILON + 1e-15 * n) * height

        return Bound(name, "the distance from the averages of the pulse", from_pulse)

    def mean(stored: Values) -> tuple[np.ndarray, np.ndarray]:
        a, u = (stored[name].astype(np.float64) for name in "au")
        mean = a.mean(axis=1)
        difference = u.reshape(len(a), len(times), n).mean(axis=2) - mean[:, None]
        return abs(difference).max(axis=1), 2 * EPSILON * mean

    return StoreChecks(
        (
            UniformCheck("z", names),
            Distinct("z"),
            distance("a", [0.0]),
            distance("u", times),
            Bound("u", "the distance of the means of u and a", mean),
        )
    )


def _covered(
    rear: Float[np.ndarray, " batch"], width: Float[np.ndarray, " batch"], n: int
) -> Float[np.ndarray, "batch n"]:
    """The fraction of each cell that the interval [rear, rear + width] on the circle covers.

    `rear` is in [0, 1).
    """
    edges = np.arange(n + 1) / n
    fraction = np.zeros((len(rear), n))
    for image in (-1.0, 0.0):
        low = np.maximum(edges[:-1], (rear + image)[:, None])
        high = np.minimum(edges[1:], (rear + image + width)[:, None])
        fraction += np.maximum(high - low, 0) * n
    return fraction
