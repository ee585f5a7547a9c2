"""Errors of dam-break samples, ours and those of a scheme like the published one:
`python -m tests.validation.dam_break`.

`stated`: the stated errors of samples beside the true ones. The truth is a radial solution by
Rusanov's flux with minmod slopes of h and h u on many more rings, averaged by points in each cell.

`published`: plane finite volumes on n x n cells with a staircase for the dam, as in PDEBench's
script (fluxes of Harten, Lax and van Leer, central limiter, Heun's method), against the recipe's
solution. Printed are the relative L² errors at t = 1 of h and of h - 1: nearly all of h is 1.
"""

from __future__ import annotations

import argparse

import numpy as np
from numba import njit

from pdegen.equations.dam_break.problem import DamBreak
from pdegen.recipe import load_recipe
from tests.validation.stated import comparison


@njit(error_model="numpy")
def _minmod(a: float, b: float) -> float:
    return 0.0 if a * b <= 0 else (min(a, b) if a > 0 else max(a, b))


@njit(error_model="numpy")
def _radial_rates(q, dr, rates):
    n = q.shape[1]
    before = np.zeros(2)
    sides = np.empty((2, 2))
    for i in range(n):
        for k in range(2):
            sign = 1.0 if k == 0 else -1.0
            left = q[k, i - 1] if i > 0 else sign * q[k, 0]
            right = q[k, i + 1] if i + 1 < n else q[k, i]
            further = q[k, i + 2] if i + 2 < n else right
            sides[0, k] = q[k, i] + 0.5 * _minmod(q[k, i] - left, right - q[k, i])
            sides[1, k] = right - 0.5 * _minmod(right - q[k, i], further - right)
        speed = 0.0
        for s in range(2):
            speed = max(speed, abs(sides[s, 1] / sides[s, 0]) + np.sqrt(sides[s, 0]))
        edge, middle = (i + 1) * dr, (i + 0.5) * dr
        for k in range(2):
            flux = 0.0
            for s in range(2):
                h, m = sides[s]
                flux += 0.5 * (m if k == 0 else m * m / h + 0.5 * h * h)
            flux = edge * (flux - 0.5 * speed * (sides[1, k] - sides[0, k]))
            rates[k, i] = (before[k] - flux) / (middle * dr)
            before[k] = flux
        rates[1, i] += 0.5 * q[0, i] ** 2 / middle


@njit(error_model="numpy")
def _radial(q, dr, t):
    rates, new, now = np.empty_like(q), np.empty_like(q), 0.0
    while now < t:
        dt = min(t - now, 0.4 * dr / np.max(np.abs(q[1] / q[0]) + np.sqrt(q[0])))
        _radial_rates(q, dr, rates)
        new[:] = q + dt * rates
        _radial_rates(new, dr, rates)
        q[:] = 0.5 * (q + new + dt * rates)
        now = t if t - now <= dt else now + dt


def reference(problem: DamBreak, radius: float, height: float, rings: int) -> np.ndarray:
    """Averages over the cells of the quadrant x, y > 0, by points in each cell."""
    reach, half = problem.side / 2, problem.resolution // 2
    dr, points = reach / rings, max(1, 1024 // half)
    edges = np.arange(rings + 1) * dr
    inside = np.clip((radius**2 - edges[:-1] ** 2) / np.diff(edges**2), 0, 1)
    q, now, frames = np.stack([1 + (height - 1) * inside, np.zeros(rings)]), 0.0, []
    x = (np.arange(half * points) + 0.5) * reach / (half * points)
    r = np.hypot(x[:, None], x)
    for t in problem.times:
        _radial(q, dr, t - now)
        now = t
        h = np.interp(r, edges[:-1] + dr / 2, q[0], right=1.0)
        frames.append(h.reshape(half, points, half, points).mean(axis=(1, 3)))
    return np.stack(frames)


def errors(name: str, samples: range, rings: int) -> tuple[np.ndarray, np.ndarray]:
    """The stated errors of samples, and the true ones, the largest over the times."""
    recipe = load_recipe(name)
    problem, true = recipe.problem, list[float]()
    assert isinstance(problem, DamBreak)
    stored, half = problem.compute(recipe.seed, samples), problem.resolution // 2
    for row in range(len(samples)):
        radius = stored["radius"][row]
        height = stored["height"][row] if "height" in stored else problem.height
        exact = reference(problem, float(radius), float(height), rings)
        distance = np.linalg.norm(stored["u"][row][:, half:, half:] - exact, axis=(1, 2))
        true.append(float(max(distance / np.linalg.norm(exact, axis=(1, 2)))))
    return stored["error"], np.array(true)


@njit(error_model="numpy")
def _limited(a: float, b: float) -> float:
    if a * b <= 0:
        return 0.0
    size = min(0.25 * abs(a + b), min(abs(a), abs(b)))
    return size if a > 0 else -size


@njit(error_model="numpy")
def _plane_rates(q, dx, rates):
    n = q.shape[1]
    rates[:] = 0
    side = np.empty((2, 3))
    flux = np.empty((2, 3))
    for axis in range(2):
        for i in range(n):
            for j in range(-1, n):  # between cells j and j + 1 along the axis
                for k in range(3):
                    line = q[k, :, i] if axis == 0 else q[k, i]
                    c = [line[min(max(j + o, 0), n - 1)] for o in range(-1, 3)]
                    side[0, k] = c[1] + _limited(c[1] - c[0], c[2] - c[1])
                    side[1, k] = c[2] - _limited(c[2] - c[1], c[3] - c[2])
                low, high = 0.0, 0.0
                for s in range(2):
                    h, speed = side[s, 0], side[s, 1 + axis] / side[s, 0]
                    low = min(low, speed - np.sqrt(h))
                    high = max(high, speed + np.sqrt(h))
                    flux[s] = speed * side[s]
                    flux[s, 1 + axis] += 0.5 * h * h
                for k in range(3):
                    f = high * flux[0, k] - low * flux[1, k]
                    f = (f + low * high * (side[1, k] - side[0, k])) / (high - low) / dx
                    for cell, sign in ((j, -1.0), (j + 1, 1.0)):
                        if 0 <= cell < n:
                            at = (cell, i) if axis == 0 else (i, cell)
                            rates[k, at[0], at[1]] += sign * f


@njit(error_model="numpy")
def _plane(q, dx, t):
    rates, new, now = np.empty_like(q), np.empty_like(q), 0.0
    while now < t:
        fastest = 0.0
        for i in range(q.shape[1]):
            for j in range(q.shape[2]):
                h = q[0, i, j]
                fastest = max(fastest, max(abs(q[1, i, j]), abs(q[2, i, j])) / h + np.sqrt(h))
        dt = min(t - now, 0.4 * dx / fastest)
        _plane_rates(q, dx, rates)
        new[:] = q + dt * rates
        _plane_rates(new, dx, rates)
        q[:] = 0.5 * (q + new + dt * rates)
        now = t if t - now <= dt else now + dt


def published_like(n: int, radius: float, t: float, side: float = 5.0) -> np.ndarray:
    """The height by plane finite volumes on n x n cells; the dam is a staircase."""
    x = (np.arange(n) + 0.5) * side / n - side / 2
    q = np.zeros((3, n, n))
    q[0] = np.where(np.hypot(x[:, None], x) <= radius, 2.0, 1.0)
    _plane(q, side / n, t)
    return q[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["stated", "published"])
    parser.add_argument("--recipe", default="dam-break-quick")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--rings", type=int, default=8000, help="of the truth")
    parser.add_argument("--cells", type=int, nargs="*", default=[128, 256])
    asked = parser.parse_args()
    if asked.what == "stated":
        stated, true = errors(asked.recipe, range(asked.samples), asked.rings)
        print(f"{asked.recipe}: {comparison(stated, true)}")
        return
    for n in asked.cells:
        numbers = {"radius": 0.5, "times": [1.0], "resolution": n}
        fine = load_recipe("dam-break").with_overrides(numbers).problem
        exact = fine.compute(0, range(1))["u"][0].astype(float)
        distance = np.linalg.norm(published_like(n, 0.5, 1.0) - exact)
        whole, change = distance / np.linalg.norm(exact), distance / np.linalg.norm(exact - 1)
        print(f"{n} x {n} cells: error of h {whole:.2g}, of h - 1 {change:.2g}", flush=True)


if __name__ == "__main__":
    main()
