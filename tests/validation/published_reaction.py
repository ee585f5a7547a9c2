"""How far the labels of PDEBench's reaction-diffusion files are off:
`python -m tests.validation.published_reaction`.

u_t = nu u_xx + rho u (1 - u) on 1,024 cells of the circle of length 1, from u(0) = (1 + sin 2πx)/2.
The scheme is that of the published script, in our words, in float32 and in float64. A step dt has
two stages. Each applies the exact solution u -> 1/(1 + e^(-rho dt) (1 - u)/u) of the reaction, and
then adds dt times the difference of the fluxes; the second stage takes the fluxes of the result of
the first, which is half a step. dt = dx²/(8 nu), which is 2.4e-7 for nu = 0.5. In float32 the
factor e^(-rho dt) is a few units in the last place below 1, and rounding decides whether u grows.

Printed: the means of u by the scheme in both precisions, and by a Galerkin method with SciPy, and
the relative L² distance of each scheme from the latter.
"""

from __future__ import annotations

import argparse

import numpy as np
from numba import njit
from scipy.integrate import solve_ivp

CELLS = 1024
SETTINGS = (
    (0.5, 1.0, 0.5), (0.5, 1.0, 1.0), (0.5, 2.0, 0.5), (0.5, 5.0, 0.5), (0.5, 10.0, 0.5),
    (1.0, 1.0, 0.5), (1.0, 10.0, 0.5),
)  # fmt: skip


@njit(error_model="numpy")
def _scheme(u, nu, rho, dt, inverse, steps, half):  # numbers have the type of u
    n, one = len(u), u.dtype.type(1)
    middle, flux = np.empty_like(u), np.empty_like(u)
    slow, fast = np.exp(-rho * (dt * half)), np.exp(-rho * dt)
    for _ in range(steps):
        for stage in range(2):
            source = u if stage == 0 else middle
            step, decay = (dt * half, slow) if stage == 0 else (dt, fast)
            for i in range(n - 1):
                flux[i] = -nu * (source[i + 1] - source[i]) * inverse
            flux[n - 1] = -nu * (source[0] - source[n - 1]) * inverse
            target, factor = (middle if stage == 0 else u), step * inverse
            for i in range(1, n):
                reacted = one / (one + decay * (one - u[i]) / u[i])
                target[i] = reacted - factor * (flux[i] - flux[i - 1])
            reacted = one / (one + decay * (one - u[0]) / u[0])
            target[0] = reacted - factor * (flux[0] - flux[n - 1])
    return u


def by_scheme(u0: np.ndarray, nu: float, rho: float, t: float, kind: type) -> np.ndarray:
    """u at the time t by the published scheme, with numbers of this type."""
    n = len(u0)
    dt = 0.125 / n**2 / nu
    numbers = (kind(value) for value in (nu, rho, dt, n))
    return _scheme(u0.astype(kind), *numbers, round(t / dt), kind(0.5)).astype(float)


def by_galerkin(u0: np.ndarray, nu: float, rho: float, t: float, modes: int = 24) -> np.ndarray:
    """u at the time t by SciPy, with the first Fourier modes of u."""
    n, k = len(u0), np.arange(modes + 1)

    def change(_: float, packed: np.ndarray) -> np.ndarray:
        v = packed[: modes + 1] + 1j * packed[modes + 1 :]
        u = np.fft.irfft(v, 4 * modes) * 4 * modes
        r = np.fft.rfft(rho * u * (1 - u))[: modes + 1] / (4 * modes)
        r -= nu * (2 * np.pi * k) ** 2 * v
        return np.concatenate([r.real, r.imag])

    start = np.fft.rfft(u0)[: modes + 1] / n
    packed = np.concatenate([start.real, start.imag])
    end = solve_ivp(change, (0, t), packed, "BDF", rtol=1e-9, atol=1e-12).y[:, -1]
    return np.fft.irfft(end[: modes + 1] + 1j * end[modes + 1 :], n) * n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="number of rows")
    x = (np.arange(CELLS) + 0.5) / CELLS
    u0 = (1 + np.sin(2 * np.pi * x)) / 2
    for nu, rho, t in SETTINGS[: parser.parse_args().settings]:
        exact = by_galerkin(u0, nu, rho, t)
        print(f"nu {nu:g}, rho {rho:g}, t {t:g}: mean {exact.mean():.4f}", end="")
        for kind in (np.float32, np.float64):
            u = by_scheme(u0, nu, rho, t, kind)
            distance = np.linalg.norm(u - exact) / np.linalg.norm(exact)
            print(f"; {kind.__name__} {u.mean():.4f}, off by {distance:.2g}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
