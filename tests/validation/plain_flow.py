"""A plane flow by plain NumPy: full complex transforms, velocities, Runge-Kutta of order 4.

It shares no code with `pdegen`: the convection is u·∇w, the step is not exponential, and aliases
are removed by zeroing the modes beyond a third of the points.
"""

from __future__ import annotations

import numpy as np


def plain_flow(
    w: np.ndarray, length: float, nu: float, drag: float, f: np.ndarray, t: float, steps: int
) -> np.ndarray:
    """The vorticity at time t from its values w at n x n points, index [x, y]."""
    n = len(w)
    k = 2 * np.pi / length * np.fft.fftfreq(n, 1 / n)
    kx, ky = k[:, None], k[None, :]
    square = kx**2 + ky**2
    inverse = np.where(square > 0, 1 / np.where(square > 0, square, 1), 0)
    kept = (abs(kx) < n / 3 * 2 * np.pi / length) & (abs(ky) < n / 3 * 2 * np.pi / length)
    f_hat, h = np.fft.fft2(f), t / steps

    def rate(v: np.ndarray) -> np.ndarray:
        psi = inverse * v
        u_x, u_y, w_x, w_y = (
            np.fft.ifft2(1j * part).real for part in (ky * psi, -kx * psi, kx * v, ky * v)
        )
        return kept * (f_hat - np.fft.fft2(u_x * w_x + u_y * w_y)) - (nu * square + drag) * v

    v = np.fft.fft2(w) * kept
    for _ in range(steps):
        a = rate(v)
        b = rate(v + h / 2 * a)
        c = rate(v + h / 2 * b)
        v = v + h / 6 * (a + 2 * b + 2 * c + rate(v + h * c))
    return np.fft.ifft2(v).real


def kolmogorov(n: int, length: float, wave: int, amplitude: float = 1.0) -> np.ndarray:
    """-κA cos κy at n x n points, κ = 2π wave/length."""
    kappa = 2 * np.pi * wave / length
    y = np.arange(n) * length / n
    return np.tile(-kappa * amplitude * np.cos(kappa * y), (n, 1))
