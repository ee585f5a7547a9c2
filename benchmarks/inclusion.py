"""Errors of fitted quadratic elements and of finite volumes on a disc with an exact solution.

`python -m benchmarks.inclusion` prints the relative L² error at the cell centres of 96 x 96 cells
against the edges along each side, and that of finite volumes on as many cells along each side. Then
it prints the ratio of stated to true errors of the first samples of `darcy-inclusion-quick`, with
the solution for six times as many edges as the truth.
"""

from __future__ import annotations

import argparse

import numpy as np
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy_inclusion.problem import DarcyInclusion, RandomInclusion
from pdegen.equations.darcy_inclusion.solver import Disc, FittedElement
from pdegen.recipe import load_recipe
from pdegen.sampling.coefficients import RandomVoid

Cells = Float[np.ndarray, "n n"]
DISC = Disc(radius=0.3, inside=12.0, outside=3.0)


def relative(u: Cells, v: Cells) -> float:
    """‖u - v‖/‖v‖."""
    return float(np.linalg.norm(u - v) / np.linalg.norm(v))


def fitted(n: int, cells: int = 96) -> float:
    """Error of fitted elements with n edges along each side."""
    grid = CellGrid(cells)
    circle = RandomInclusion(RandomVoid(DISC.radius, 0.0, 1.0, 3.0, 1), 0.0)
    solver = FittedElement(n, DISC.outside, DISC.inside)
    u, _ = solver.solve(circle.curve(np.zeros(4), n), grid, 1.0, DISC)
    return relative(u, DISC(*np.meshgrid(grid.x, grid.x, indexing="ij")))


def volumes(n: int) -> float:
    """Error of finite volumes on n x n cells, at their own centres."""
    grid = CellGrid(n)
    x, y = np.meshgrid(grid.x, grid.x, indexing="ij")
    a = np.where(np.hypot(x - 0.5, y - 0.5) < DISC.radius, DISC.inside, DISC.outside)
    ends = (
        (0 * grid.x, grid.x),
        (0 * grid.x + 1, grid.x),
        (grid.x, 0 * grid.x),
        (grid.x, 0 * grid.x + 1),
    )
    walls = np.stack([DISC(*end) for end in ends])
    return relative(FiniteVolume(grid)(a[None], 1.0, walls)[0], DISC(x, y))


def ratios(samples: int, truth: int = 96) -> list[float]:
    """Stated errors over true errors of the first samples of darcy-inclusion-quick.

    The true error is the difference to the solution with `truth` edges along each side.
    """
    problem = load_recipe("darcy-inclusion-quick").problem
    assert isinstance(problem, DarcyInclusion)
    shape, solver = problem.inclusion.build(), FittedElement(truth, problem.outside, problem.inside)
    z = shape.numbers(0, range(samples))
    stored, quotients = problem.labels(z), []
    for row, numbers in enumerate(z):
        finest, _ = solver.solve(shape.curve(numbers, truth), problem.grid, problem.source)
        quotients.append(float(stored["error"][row]) / relative(stored["u"][row], finest))
    return quotients


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inclusion", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="coarse meshes, one sample")
    options = parser.parse_args()
    print("| edges or cells along a side | fitted P2 | order | finite volumes | order |")
    print("|---|---|---|---|---|")
    before: tuple[float, float] | None = None
    for n in (16, 32) if options.quick else (16, 32, 64, 128):
        errors = fitted(n), volumes(n)
        orders = ["–", "–"] if before is None else [
            f"{np.log2(old / new):.2f}" for old, new in zip(before, errors, strict=True)
        ]  # fmt: skip
        print(f"| {n} | {errors[0]:.2g} | {orders[0]} | {errors[1]:.2g} | {orders[1]} |")
        before = errors
    stated = ratios(1 if options.quick else 40)
    print(f"stated over true error, {len(stated)} samples: {min(stated):.3f} to {max(stated):.3f}")


if __name__ == "__main__":
    main()
