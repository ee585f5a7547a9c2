"""How vorticity converges at a viscosity: `python -m tests.validation.vorticity 1e-5`.

The flow of the acceptance figures of tests/pdegen/test_vorticity.py on more and more points: rms of
w, w(0, 0) and w(1/4, 1/2) at some times, the solver's estimate of the error, and the difference to
the finest grid.
"""

from __future__ import annotations

import argparse

import numpy as np

from pdegen.domains import PeriodicGrid
from pdegen.equations.vorticity.solver import Flow
from pdegen.numerics.spectral import Torus

TIMES = (1.0, 5.0, 10.0, 15.0, 20.0)
POINTS = (128, 192, 256, 384)


def initial(torus: Torus) -> np.ndarray:
    """Modes of 0.5 sin 2πx cos 4πy + 0.3 cos 2π(2x - y) + 0.2 sin(2π(x + 3y) + 1)."""
    x, y = 2 * np.pi * np.stack(np.meshgrid(*[g.x for g in torus.grids], indexing="ij"))
    w = 0.5 * np.sin(x) * np.cos(2 * y) + 0.3 * np.cos(2 * x - y) + 0.2 * np.sin(x + 3 * y + 1)
    return torus.to_modes(w)[None, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("viscosity", type=float)
    parser.add_argument("--points", type=int, nargs="+", default=POINTS)
    asked = parser.parse_args()
    frames = {}
    for n in asked.points:
        torus = Torus((PeriodicGrid(n),) * 2)
        flow, v = Flow(torus, asked.viscosity, amplitude=0.1), initial(torus)
        found = flow.solver(v, 1.28 / n, np.inf).solve(v, TIMES)
        w = torus.to_points(found.v[0, :, 0])
        frames[n] = torus.to_points(found.v[0, :, 0], (128, 128))
        for t, frame, error in zip(TIMES, w, found.error[0], strict=True):
            print(
                f"{n:4d} points, t = {t:4.0f}: rms {np.sqrt(np.mean(frame**2)):.9f}, "
                f"w(0, 0) {frame[0, 0]:.8f}, w(1/4, 1/2) {frame[n // 4, n // 2]:.8f}, "
                f"estimated error {error:.1e}",
                flush=True,
            )
    finest = frames[max(frames)]
    for n, frame in frames.items():
        off = np.linalg.norm(frame - finest, axis=(1, 2)) / np.linalg.norm(finest, axis=(1, 2))
        print(f"{n:4d} points differ from {max(frames)} by", ", ".join(f"{d:.1e}" for d in off))


if __name__ == "__main__":
    main()
