"""Stated errors of waves beside the true ones: `python -m tests.validation.wave wave-quick`.

The truth has Fourier's Laplacian on finer points and the leapfrog scheme, extrapolated from two
time steps. It shares no code with the label's scheme, except the random fields. Speeds that jump
are compared on fewer points (`--resolution 32`), because their truth needs many.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import scipy.fft

from pdegen.domains import PeriodicGrid
from pdegen.equations.wave.problem import WaveEquation
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe
from tests.validation.stated import comparison


def leapfrog(u0: np.ndarray, c: np.ndarray, times: list[float], steps: int) -> np.ndarray:
    """u at the times, multiples of the first one, with a number of steps until this."""
    n, dt = len(u0), times[0] / steps
    k = 2 * np.pi * np.fft.fftfreq(n, 1 / n)
    squares = -(k[:, None] ** 2 + k[: n // 2 + 1] ** 2)

    def change(u: np.ndarray) -> np.ndarray:
        return dt**2 * c**2 * scipy.fft.irfft2(squares * scipy.fft.rfft2(u), (n, n))

    before, u, frames, now = u0, u0 + change(u0) / 2, list[np.ndarray](), 1
    for t in times:
        while now < steps * round(t / times[0]):
            before, u, now = u, 2 * u - before + change(u), now + 1
        frames.append(u)
    return np.stack(frames)


def reference(u0: np.ndarray, c: np.ndarray, times: list[float]) -> np.ndarray:
    """u at the times on the points of u0 and c, of order 4 in time."""
    stable = math.ceil(times[0] * c.max() * np.pi * len(u0) / 1.2)  # the limit is 2/√2
    coarse, fine = (leapfrog(u0, c, times, steps) for steps in (stable, 2 * stable))
    return (4 * fine - coarse) / 3


def errors(problem: WaveEquation, samples: range, finer: int) -> tuple[np.ndarray, np.ndarray]:
    """Stated and true errors of samples; the truth has `finer` times the points of the output."""
    stored, true = problem.compute(0, samples), list[float]()
    torus = Torus((PeriodicGrid(finer * problem.resolution),) * 2, 1)
    for row, sample in enumerate(samples):
        a = problem.initial.build()(torus, 0, [sample])[0]
        c = problem.speed.of(problem.speed.build()(torus, 0, [sample + 2**32])[0])
        exact = reference(a, c, list(problem.times))[:, ::finer, ::finer]
        distance = np.linalg.norm(stored["u"][row] - exact, axis=(1, 2))
        true.append(float(max(distance / np.linalg.norm(exact, axis=(1, 2)))))
    return stored["error"], np.array(true)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first sample")
    parser.add_argument("--resolution", type=int, help="points of the output")
    parser.add_argument("--finer", type=int, default=4, help="factor of the points of the truth")
    asked = parser.parse_args()
    recipe = load_recipe(asked.recipe)
    if asked.resolution:
        recipe = recipe.with_overrides({"problem.resolution": asked.resolution})
    assert isinstance(recipe.problem, WaveEquation)
    samples = range(asked.first, asked.first + asked.samples)
    print(f"{asked.recipe}: {comparison(*errors(recipe.problem, samples, asked.finer))}")


if __name__ == "__main__":
    main()
