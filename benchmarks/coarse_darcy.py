"""Darcy without learning: finite volumes on the points that operators are given.

    python -m benchmarks.coarse_darcy [RECIPE ...] [--train 256] [--test 100]

Operators for Darcy take the coefficient a at every r-th point of a fine grid along each axis. The
same values suffice for a solve: five-point finite volumes at these points, with the harmonic mean
of two neighbours on their common face, and u = 0 on the walls, half a fine cell beyond the
outermost points. The errors of this solve that are the same for all samples can be reduced by least
squares: by one factor, or by a factor for each point, fitted on training samples.

The default recipe is darcy-421. Errors are means over the test samples of the relative L² error.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from jaxtyping import Float
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import splu

from pdegen.recipe import Recipe, load_recipe

STRIDES = (10, 5, 3, 2)

Fields = Float[np.ndarray, "batch n n"]


def harmonic(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 2 * a * b / (a + b)


def solved(a: Float[np.ndarray, "n n"], h: float, wall: float) -> Float[np.ndarray, "n n"]:
    """u of -div(a grad u) = 1 at points with spacing h, u = 0 on walls at a distance `wall` from
    the outermost points. The cell of a point ends halfway to its neighbours, or at the wall.

    >>> solved(np.ones((1, 1)), 1.0, 0.5).tolist()  # 4u/(1/2) = 1
    [[0.125]]
    """
    n = len(a)
    number = np.arange(n * n).reshape(n, n)
    width = np.full(n, h)
    width[[0, -1]] = wall + h / 2 if n > 1 else 2 * wall
    at_wall = np.zeros(n)
    at_wall[0] += 1 / wall
    at_wall[-1] += 1 / wall
    # fluxes through the walls, times the length of the cell along the wall
    diagonal = a * (at_wall[:, None] * width + width[:, None] * at_wall)
    rows, columns, values = [number.ravel()], [number.ravel()], [diagonal.ravel()]
    for left, right, length in (
        (number[:-1], number[1:], np.tile(width, n - 1)),
        (number[:, :-1], number[:, 1:], np.repeat(width, n - 1)),
    ):
        i, j = left.ravel(), right.ravel()
        face = harmonic(a.ravel()[i], a.ravel()[j]) * length / h
        rows += [i, j, i, j]
        columns += [j, i, i, j]
        values += [-face, -face, face, face]
    matrix = csc_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), (n * n, n * n)
    )
    return splu(matrix).solve(np.outer(width, width).ravel()).reshape(n, n)


def mean_error(p: Fields, u: Fields) -> float:
    """Mean of ‖p - u‖/‖u‖ over the samples."""
    norm = np.linalg.norm
    return float(np.mean(norm(p - u, axis=(1, 2)) / norm(u, axis=(1, 2))))


def errors(recipe: Recipe, train: int, test: int) -> list[dict[str, float]]:
    """Errors on the test samples, for each stride of the grid."""
    n = recipe.problem.resolution
    fields = recipe.problem.solve_in_blocks(recipe.seed, range(train + test))
    rows = list[dict[str, float]]()
    for stride in STRIDES:
        a, u = (fields[name][:, ::stride, ::stride].astype(float) for name in ("a", "u"))
        start = time.process_time()
        p = np.stack([solved(sample, stride / n, 0.5 / n) for sample in a])
        seconds = (time.process_time() - start) / len(a)
        known, truth = p[:train], u[:train]
        factor = np.sum(known * truth) / np.sum(known**2)
        by_point = np.sum(known * truth, axis=0) / np.sum(known**2, axis=0)
        p, truth = p[train:], u[train:]
        rows.append(
            {
                "points": a.shape[1],
                "solve": mean_error(p, truth),
                "with one factor": mean_error(factor * p, truth),
                "with a factor at each point": mean_error(by_point * p, truth),
                "ms a solve": 1e3 * seconds,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipes", nargs="*", default=["darcy-421"], metavar="RECIPE")
    parser.add_argument("--train", type=int, default=256, help="samples for the factors")
    parser.add_argument("--test", type=int, default=100)
    options = parser.parse_args()
    for name in options.recipes:
        rows = errors(load_recipe(name), options.train, options.test)
        print(name)
        print("| " + " | ".join(rows[0]) + " |")
        for row in rows:
            print("| " + " | ".join(f"{value:.3g}" for value in row.values()) + " |")


if __name__ == "__main__":
    main()
