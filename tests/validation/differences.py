"""Stated errors of semilinear equations against finite differences that share no code with the
solver: `python -m tests.validation.differences [NAME ...]`.

Derivatives are central differences of order 8 on two or three times as many points. SciPy's DOP853
marches the values at the points. Values beyond walls are reflections. A projection uses the wave
numbers of the differences. Printed for a small form of each recipe: the largest stated error, the
ratio of the true to the stated error over the samples, and the share of samples in which it lies
between 1/2 and 2. The stated error is the sum of the estimates in time and in space, so the ratio
is below 1 where these are alike (gray-scott-3d). With --cost, the processor time of the first
sample of the recipe itself. With --white-noise, the root mean square of u at t = 1 of
`diffusion-reaction` on more and more cells, if the initial value is white noise in each cell, and
if it has the law of the recipe.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfftn, rfftn
from scipy.integrate import solve_ivp
from scipy.ndimage import correlate1d

from pdegen.equations.semilinear.problem import SemilinearProblem
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe
from tests.pdegen.small import SEMILINEAR

FIRST = (4 / 5, -1 / 5, 4 / 105, -1 / 280)
SECOND = (8 / 5, -1 / 5, 8 / 315, -1 / 560)
CENTRE = -205 / 72
SLOPE = (*(-c for c in reversed(FIRST)), 0.0, *FIRST)
CURVATURE = (*reversed(SECOND), CENTRE, *SECOND)
# the number of samples, and how many times as many points the differences have
FORMS = {
    "allen-cahn-3d": (8, 3, {}),
    "gray-scott-3d": (8, 3, {"times": [10.0, 20.0]}),
    "decaying-3d": (8, 3, {"times": [0.1]}),
    "cahn-hilliard": (3, 2, {"times": [0.5, 1.0], "problem.solver.resolution": 32}),
    "diffusion-reaction": (20, 3, {}),
}


@dataclass(frozen=True)
class Differences:
    """uₜ = L u + N(u) at equally spaced points, by central differences of order 8."""

    problem: SemilinearProblem
    n: int  # points along each axis

    @property
    def spacing(self) -> float:
        return self.problem.length / self.n

    def along(self, u: np.ndarray, axis: int, weights: tuple[float, ...]) -> np.ndarray:
        """The weighted sums of the values at a point and its neighbours along an axis."""
        mode = "wrap" if self.problem.walls == "none" else "reflect"
        return correlate1d(u, weights, axis, mode=mode)

    def slope(self, u: np.ndarray, axis: int) -> np.ndarray:
        return self.along(u, axis, SLOPE) / self.spacing

    def laplacian(self, u: np.ndarray) -> np.ndarray:
        axes = range(-self.problem.dimension, 0)
        return sum(self.along(u, axis, CURVATURE) for axis in axes) / self.spacing**2

    def projected(self, u: np.ndarray, wave_numbers: np.ndarray) -> np.ndarray:
        """u without its part along the wave vectors."""
        dim, n = self.problem.dimension, self.n
        axes = tuple(range(-dim, 0))
        half = wave_numbers[: n // 2 + 1]
        k = np.stack(np.meshgrid(*[wave_numbers] * (dim - 1), half, indexing="ij"))
        v, square = rfftn(u, axes=axes), np.sum(k**2, axis=0)
        square[square < 1e-9] = np.inf
        along = np.sum(k * v, axis=-dim - 1, keepdims=True) / square
        return irfftn(v - k * along, (n,) * dim, axes)

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """The derivative in time, for values of shape (batch, components, *points)."""
        problem, names = self.problem, list(self.problem.components)
        count, dim = len(names), problem.dimension

        def column(value: object) -> np.ndarray:
            numbers = np.broadcast_to(np.asarray(value, dtype=float), count)
            return numbers.reshape(-1, *[1] * dim)

        lap = self.laplacian(u)
        change = column(problem.linear.diffusion) * lap
        if np.any(column(problem.linear.hyper_diffusion)):
            change = change - column(problem.linear.hyper_diffusion) * self.laplacian(lap)
        for monomial in problem.nonlinear.reaction:
            factors = (u[:, k] ** p for k, p in enumerate(monomial.powers) if p)
            term = math.prod(factors, start=monomial.coefficient)
            if monomial.laplacian:
                term = self.laplacian(term)
            change[:, names.index(monomial.of)] += term
        if problem.nonlinear.projection:
            carried = sum(u[:, j : j + 1] * self.slope(u, j - dim) for j in range(dim))
            theta = 2 * np.pi * np.fft.fftfreq(self.n)
            k = sum(2 * c * np.sin(m * theta) for m, c in enumerate(FIRST, 1)) / self.spacing
            change = change - column(problem.nonlinear.convection) * self.projected(carried, k)
        return change

    def initial(self, samples: range) -> np.ndarray:
        problem, walled = self.problem, self.problem.walls == "no-flow"
        torus = Torus(problem._grids(self.n), 1)
        u = problem.initial.values(torus, len(problem.components), 0, samples, None, walled)
        u = u[(..., *[slice(self.n)] * problem.dimension)]
        k = 2 * np.pi * np.fft.fftfreq(self.n) * self.n
        return self.projected(u, k) if problem.nonlinear.projection else u

    def solve(self, u0: np.ndarray) -> np.ndarray:
        """The values at the times, shape (batch, times, components, *points)."""
        times = list(self.problem.times)
        steepest = sum(abs(c) for c in SECOND) * 2 - CENTRE  # of the second difference
        square = self.problem.dimension * steepest / self.spacing**2
        linear = self.problem.linear
        fastest = np.max(
            np.abs(linear.diffusion) * square + np.abs(linear.hyper_diffusion) * square**2
        )
        found = solve_ivp(
            lambda _, u: self(u.reshape(u0.shape)).ravel(), (0.0, times[-1]), u0.ravel(),
            method="DOP853", t_eval=times, rtol=1e-8, atol=1e-9,
            max_step=5 / fastest,  # about the limit of stability
        )  # fmt: skip
        assert found.success
        return np.moveaxis(found.y.T.reshape(len(times), *u0.shape), 0, 1)


def ratios(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The stated error of each sample of a small form, and the true over the stated error."""
    count, factor, overrides = FORMS[name]
    given = {**SEMILINEAR[name], "tolerance": 0.1, **overrides}
    problem = load_recipe(name).with_overrides(given).problem
    assert isinstance(problem, SemilinearProblem)
    values = problem.compute(0, range(count))
    n = factor * problem.resolution
    start = (factor - 1) // 2 if problem.walls == "no-flow" else 0
    every = (..., *[slice(start, None, factor)] * problem.dimension)
    reference = Differences(problem, n)
    starts = (reference.initial(range(k, k + 1)) for k in range(count))
    true = [reference.solve(u0)[0][every] for u0 in starts]
    exact = np.stack(true)
    space = tuple(range(2, exact.ndim))
    difference = np.sum((values["u"].reshape(exact.shape) - exact) ** 2, axis=space)
    error = np.sqrt(difference / np.sum(exact**2, axis=space)).max(axis=1)
    return values["error"], error / values["error"]


def print_white_noise() -> None:
    """What the cells of `diffusion-reaction` do to white noise, and to a smooth field."""
    problem = load_recipe("diffusion-reaction").with_overrides({"times": [1.0]}).problem
    assert isinstance(problem, SemilinearProblem)
    for n in (32, 64, 128, 256):
        cells = Differences(problem, n)
        white = np.random.default_rng(0).standard_normal((1, 2, n, n))
        noise, smooth = (
            np.sqrt(np.mean(cells.solve(u0)[0, 0, 0] ** 2))
            for u0 in (white, cells.initial(range(1)))
        )
        print(f"{n} x {n} cells: white noise {noise:.3f}, law of the recipe {smooth:.5f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(FORMS))
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--white-noise", action="store_true")
    asked = parser.parse_args()
    if asked.white_noise:
        print_white_noise()
        return
    for name in asked.recipes:
        if asked.cost:
            problem = load_recipe(name).problem
            start = time.process_time()
            error = problem.compute(0, range(1))["error"]
            spent = time.process_time() - start
            print(f"{name}: {spent:.1f} s for the first sample, error {error[0]:.1e}", flush=True)
            continue
        stated, ratio = ratios(name)
        share = np.mean((ratio > 1 / 2) & (ratio < 2))
        print(
            f"{name}: {len(ratio)} samples, stated error up to {stated.max():.1e}, true / stated "
            f"{ratio.min():.3g} to {ratio.max():.3g}, within 2: {share:.3g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
