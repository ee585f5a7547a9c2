"""Darcy without learning: finite volumes on the points that operators are given.

    python -m benchmarks.coarse_darcy [RECIPE ...] [--train 256] [--test 100]

Operators for Darcy take the coefficient a at every r-th point of a fine grid along each axis. The
same values suffice for a solve: five-point finite volumes at these points, with the harmonic mean
of two neighbours on their common face, and u = 0 at the outermost points. The errors of this solve
that are the same for all samples can be removed by least squares: by one factor, or by a factor for
each point, fitted on training samples.

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


def solved(a: Float[np.ndarray, "n n"], h: float) -> Float[np.ndarray, "n n"]:
    """u of -div(a grad u) = 1 at points with spacing h, u = 0 at the outermost points.

    >>> u = solved(np.ones((3, 3)), 0.5)  # at the middle 4u = h²
    >>> float(u[1, 1]), float(u[0].max())
    (0.0625, 0.0)
    """
    n = len(a)
    number = np.arange(n * n).reshape(n, n)
    rows, columns, values = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for left, right in ((number[:-1], number[1:]), (number[:, :-1], number[:, 1:])):
        i, j = left.ravel(), right.ravel()
        face = harmonic(a.ravel()[i], a.ravel()[j])
        rows += [i, j, i, j]
        columns += [j, i, i, j]
        values += [-face, -face, face, face]
    matrix = csc_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), (n * n, n * n)
    )
    inner = number[1:-1, 1:-1].ravel()
    u = np.zeros(n * n)
    u[inner] = splu(matrix[inner][:, inner]).solve(np.full(inner.size, h * h))
    return u.reshape(n, n)


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
        p = np.stack([solved(sample, stride / n) for sample in a])
        seconds = (time.process_time() - start) / len(a)
        known, truth = p[:train], u[:train]
        factor = np.sum(known * truth) / np.sum(known**2)
        # the solution is 0 at the outermost points
        by_point = np.sum(known * truth, axis=0) / np.maximum(np.sum(known**2, axis=0), 1e-300)
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
