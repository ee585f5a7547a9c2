"""Ringleb's flow: an exact solution of the Euler equations, by its hodograph.

With the speed q, c² = 1 - (γ - 1)q²/2 and γ = 1.4, points on the streamline k are
x = (1/q² - 2/k²)/2ρ + J/2, y = √(1 - q²/k²)/(kρq), ρ = c⁵,
J = 1/c + 1/3c³ + 1/5c⁵ - ½ log((1 + c)/(1 - c)), and the flow turns with sin θ = q/k.

Reference: G. Chiocchia, Exact solutions to transonic and supersonic flows, AGARD-AR-211 (1985).
"""

import numpy as np

ENTHALPY = 2.5  # where the speed of sound at rest is 1


def _functions(q):
    c = np.sqrt(1 - 0.2 * q * q)
    j = 1 / c + 1 / (3 * c**3) + 1 / (5 * c**5) - 0.5 * np.log((1 + c) / (1 - c))
    return c**5, j


def positions(q, k):
    """x, y on the streamline k where the speed is q."""
    rho, j = _functions(q)
    x = (1 / q**2 - 2 / k**2) / (2 * rho) + j / 2
    return np.stack([x, np.sqrt(1 - (q / k) ** 2) / (k * rho * q)], axis=-1)


def states(points):
    """ρ, u, v at points of the upper half plane where the flow is subsonic."""
    x, y = np.moveaxis(points, -1, 0)
    low, high = np.full(x.shape, 0.05), np.full(x.shape, 0.91)
    for _ in range(60):  # points of one speed lie on a circle, the slower ones outside
        q = (low + high) / 2
        rho, j = _functions(q)
        outside = np.hypot(x - j / 2, y) > 1 / (2 * rho * q**2)
        low, high = np.where(outside, low, q), np.where(outside, q, high)
    rho, j = _functions(q)
    k = np.sqrt(2 / (1 / q**2 - 2 * rho * (x - j / 2)))
    return np.stack([rho, -q * np.sqrt(1 - (q / k) ** 2), -(q**2) / k], axis=-1)
