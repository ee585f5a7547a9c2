"""Stated errors of PDEBench's family beside the true ones: `python -m tests.validation.waves`.

The initial value is computed from the stored numbers z by a second program. The true solution of
advection is u0(x - ct); that of Burgers' equation comes from the integrals of Cole and Hopf; that
of reaction and diffusion from differences of order 4 and SciPy's method Radau.
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse as sparse
from scipy.integrate import solve_ivp

from pdegen.equations.semilinear.problem import SemilinearProblem
from pdegen.recipe import load_recipe
from tests.validation.stated import comparison

RECIPES = ("pdebench-advection", "pdebench-burgers", "pdebench-reaction")


def initial(z: np.ndarray, x: np.ndarray, scaled: bool) -> np.ndarray:
    """The initial value at points x, for four waves and shares of 0.1."""

    def waves(x: np.ndarray) -> np.ndarray:
        x, times, u = x % 1, [0, 0, 0, 0], np.zeros_like(x)
        for place in z[:2]:
            times[int(4 * place)] += 1
        for k in range(4):
            u = u + z[2 + k] * np.sin(2 * np.pi * ((k + 1) * times[k] * x + z[6 + k]))
        u = abs(u) if z[10] < 0.1 else u
        u = u if z[11] < 0.5 else -u
        if z[12] < 0.1:
            left, right = 0.1 + 0.35 * z[13], 0.55 + 0.35 * z[14]
            u = u * (np.tanh((x - left) / 0.01) - np.tanh((x - right) / 0.01)) / 2
        return u

    if not scaled:
        return waves(x)
    every = waves(np.arange(4096) / 4096)
    return (waves(x) - every.min()) / np.ptp(every)


def by_cole_hopf(z: np.ndarray, viscosity: float, x: np.ndarray, t: float) -> np.ndarray:
    """u(x, t) of Burgers' equation: the mean of (x - y)/t with weights exp(-F/2ν),
    F = ∫u0 + (x - y)²/2t."""
    n, reach = 8192, 1 + int(4 * t + 8 * np.sqrt(viscosity * t))
    fine = np.arange(16 * n + 1) / (16 * n)
    u0 = initial(z, fine, False)
    simpson = (u0[:-2:2] + 4 * u0[1::2] + u0[2::2]) / (48 * n)
    once = np.concatenate([[0], np.cumsum(simpson)])[::8]  # the integral at n + 1 points
    y = np.arange(-reach * n, (reach + 1) * n) / n
    integral = (
        np.tile(once[:-1], 2 * reach + 1) + np.repeat(np.arange(-reach, reach + 1), n) * once[-1]
    )
    u = np.empty_like(x)
    for row, point in enumerate(x):
        exponent = -(integral + (point - y) ** 2 / (2 * t)) / (2 * viscosity)
        weight = np.exp(exponent - exponent.max())
        u[row] = weight @ (point - y) / weight.sum() / t
    return u


def by_differences(z: np.ndarray, problem: SemilinearProblem, n: int = 2048) -> np.ndarray:
    """u at n points and the times of u_t = ν u_xx + u - u²."""
    v = problem.terms.diffusion[0] * n * n / 12
    rows = sparse.lil_array((n, n))
    for offset, c in zip(range(-2, 3), (-1, 16, -30, 16, -1), strict=True):
        rows[np.arange(n), (np.arange(n) + offset) % n] = c * v
    laplacian = rows.tocsc()
    start = initial(z, np.arange(n) / n, True)

    def change(_: float, u: np.ndarray) -> np.ndarray:
        return laplacian @ u + u - u * u

    def slope(_: float, u: np.ndarray) -> sparse.csc_matrix:
        return sparse.csc_matrix(laplacian + sparse.diags_array(1 - 2 * u))

    ends = 0, problem.times[-1]
    return solve_ivp(
        change, ends, start, "Radau", problem.times, jac=slope, rtol=1e-9, atol=1e-10
    ).y.T


def errors(name: str, samples: range) -> tuple[np.ndarray, np.ndarray]:
    """The stated errors of samples, and the true ones, the largest over some of the times."""
    recipe = load_recipe(name)
    problem = recipe.problem
    assert isinstance(problem, SemilinearProblem)
    stored, n, true = problem.compute(recipe.seed, samples), problem.resolution, list[float]()
    x = np.arange(n) / n
    for z, u in zip(stored["z"], stored["u"], strict=True):
        compared = range(len(problem.times))
        if name.startswith("pdebench-burgers"):
            compared, x = (0, 1, 3, 9, len(problem.times) - 1), np.arange(0, n, 8) / n
            compared = [k for k in compared if k < len(problem.times)]
            nu = problem.terms.diffusion[0]
            exact = [by_cole_hopf(z, nu, x, problem.times[k]) for k in compared]
            u = u[:, ::8]
        elif name.startswith("pdebench-advection"):
            speed = problem.terms.advection[0][0]
            exact = [initial(z, x - speed * t, False) for t in problem.times]
        else:
            exact = by_differences(z, problem)[:, :: 2048 // n]
        true.append(max(
            float(np.linalg.norm(u[k] - v) / np.linalg.norm(v))
            for k, v in zip(compared, exact, strict=True)
        ))  # fmt: skip
    return stored["error"], np.array(true)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--samples", type=int, default=20)
    asked = parser.parse_args()
    for name in asked.recipes:
        stated, true = errors(name, range(asked.samples))
        print(f"{name}: {comparison(stated, true)}", flush=True)


if __name__ == "__main__":
    main()
