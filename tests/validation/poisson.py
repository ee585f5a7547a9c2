"""Stated errors of Poisson samples beside the true errors: `python -m tests.validation.poisson`.

For each recipe of Poisson's equation: the median and the largest stated relative L² error of all
samples, and for the first 40 samples the stated error divided by the true one. The true error is
the distance to the solution by the compact stencil on nodes four times finer. For Helmholtz'
equation also the distance of its solutions to those of Poisson's for the same sources, and for the
published recipes, which stretch the source, to those without stretching.

For the published recipes, the exact posterior of 100 samples given 500 sensors: the mean relative
error without noise; the sum of squares of the errors, over that which the posterior states, at
noise of 0, 0.01 and 0.1 of the root mean square of the data; and at 0.01 the share of 1,600 block
means whose rank among 39 draws is in the middle 90 %.
"""

from __future__ import annotations

import argparse

import numpy as np

from pdegen.equations.poisson.inversion import SourceInversion
from pdegen.equations.poisson.problem import PoissonEquation
from pdegen.equations.poisson.solver import SineSolver
from pdegen.recipe import Recipe, load_recipe
from pdegen.sampling.noise import SensorNoise
from tests.validation.stated import comparison

RECIPES = ("poisson", "poisson-128-published", "helmholtz-128-published")


def true_errors(recipe: Recipe, samples: range, finer: int = 4) -> np.ndarray:
    """Relative L² distances of stored values to the solution on finer nodes."""
    problem = recipe.problem
    assert isinstance(problem, PoissonEquation)
    field, n = problem.field.build(), problem.resolution
    basis = field.modes_at(problem.field.positions(n, finer))
    solver = SineSolver(finer * (n - 1) + 1, problem.wave_number, compact=True)
    u = problem.compute(recipe.seed, samples)["u"]
    errors = list[float]()
    for row, sample in enumerate(samples):
        f = basis @ field.coefficients(recipe.seed, [sample])[0] @ basis.T
        exact = solver(f)[::finer, ::finer]
        errors.append(float(np.linalg.norm(u[row] - exact) / np.linalg.norm(exact)))
    return np.array(errors)


def posterior_figures(recipe: Recipe, samples: range, members: int = 39) -> None:
    """Print the figures of the exact posterior."""
    problem = recipe.problem
    assert isinstance(problem, PoissonEquation)
    n = problem.resolution
    mask = SensorNoise(0.0, points="diffusionpde").observed((n, n), seed=0)
    solver = SineSolver(n, problem.wave_number, problem.solver.stencil == "compact")
    inversion = SourceInversion(problem.field.prior(n), solver, mask, slice(None))
    values = problem.compute(recipe.seed, samples)
    a, u = values["a"].astype(np.float64), values["u"][:, mask].astype(np.float64)
    size = np.sqrt(np.mean(np.diag(inversion.covariance)))
    xi = np.random.default_rng(0).standard_normal(u.shape)
    for level in (0.0, 0.01, 0.1):
        std = np.full(u.shape[1], level * size)
        posterior = inversion.posterior(std)
        square = ((posterior.mean(u + std * xi) - a) ** 2).sum(axis=(1, 2))
        stated = (posterior.deviation**2).sum()
        relative = np.sqrt(square / (a**2).sum(axis=(1, 2)))
        print(
            f"  noise {level:g}: relative error {100 * relative.mean():.2f} % ± "
            f"{100 * relative.std() / np.sqrt(len(a)):.2f}; squares {square.mean():.4g}, stated "
            f"{stated:.4g}, quotient {square.mean() / stated:.3f}",
            flush=True,
        )
    std = np.full(u.shape[1], 0.01 * size)
    ranks = list[np.ndarray]()
    for row, sample in enumerate(samples):
        draws = inversion.draws(u[row] + std * xi[row], std, sample, members)
        ranks.append((_blocks(draws) < _blocks(a[row])).sum(axis=0))
    edge = round(0.05 * (members + 1))
    middle = np.mean((np.array(ranks) >= edge) & (np.array(ranks) <= members - edge))
    print(f"  noise 0.01: {100 * middle:.1f} % of {np.size(ranks)} ranks in the middle 90 %")


def _blocks(f: np.ndarray) -> np.ndarray:
    """Means over 4 x 4 blocks of nodes."""
    n = f.shape[-1] // 4
    return f[..., : 4 * n, : 4 * n].reshape(*f.shape[:-2], 4, n, 4, n).mean(axis=(-3, -1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--samples", type=int, help="of each recipe; default: all")
    asked = parser.parse_args()
    for name in asked.recipes:
        recipe = load_recipe(name)
        problem, count = recipe.problem, asked.samples or recipe.samples
        assert isinstance(problem, PoissonEquation)
        few = range(min(40, count))
        values = problem.compute(recipe.seed, range(count))
        stated = values["error"]
        print(f"{name}: median {np.median(stated):.2g}, largest {stated.max():.2g}")
        print(f"  {comparison(stated[: len(few)], true_errors(recipe, few))}", flush=True)
        others = dict[str, PoissonEquation]()
        if problem.wave_number:
            others["of Poisson's equation"] = problem.model_copy(update={"wave_number": 0.0})
        if problem.field.points == "centres":
            field = problem.field.model_copy(update={"points": "nodes"})
            others["for sources that are not stretched"] = problem.model_copy(
                update={"field": field}
            )
        for name, other in others.items():
            u = other.compute(recipe.seed, few)["u"]
            distance = np.linalg.norm(values["u"][: len(few)] - u) / np.linalg.norm(u)
            print(f"  {100 * distance:.2g} % from the solutions {name}")
        if problem.resolution == 128 and problem.field.points == "centres":
            posterior_figures(recipe, range(min(100, count)))


if __name__ == "__main__":
    main()
