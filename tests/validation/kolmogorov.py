"""Stated errors, costs and statistics of Kolmogorov flows:
`python -m tests.validation.kolmogorov kolmogorov-quick`.

The true error of a label is its relative L² distance to a plain Runge-Kutta solution that shares no
code with `pdegen` (`plain_flow`) and starts from the stored input, on the solver's points and half
as many more. Costs are seconds of one core for a sample in a block of eight. With --grids, the
mean enstrophy ⟨w²⟩/2 of states after the burn-in is compared on two grids of the solver.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from pdegen.equations.vorticity.problem import Vorticity
from pdegen.recipe import load_recipe
from tests.validation.plain_flow import kolmogorov, plain_flow
from tests.validation.stated import comparison

_BLOCK = 8  # samples that are solved together


def errors(problem: Vorticity, samples: range, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The stated and the true errors at the last time, of solutions on the solver's points.

    Args:
        problem: A problem whose numbers have no laws.
        samples: Numbers of the samples.
        steps: Number of time steps of the plain solution.
    """
    flow, method, force = problem.flow, problem.solver, problem.force
    assert force.kind == "kolmogorov" or not force.amplitude
    values = problem.compute(0, samples)
    v = problem._modes(flow.torus, values["a"])[:, None]
    solver = flow.solver(v, method.dt, method.tolerance)
    solution = solver.solve(v, problem.times)
    fine = 3 * method.resolution // 2
    f = kolmogorov(fine, problem.length, force.wave, float(force.amplitude))  # pyright: ignore
    true = list[float]()
    for start, found in zip(v[:, 0], solution.v[:, -1, 0], strict=True):
        w = flow.torus.to_points(start, (fine, fine))
        nu, drag = float(problem.viscosity), float(problem.drag)  # pyright: ignore
        exact = plain_flow(w, problem.length, nu, drag, f, problem.times[-1], steps)
        off = flow.torus.to_points(found, (fine, fine)) - exact
        true.append(float(np.linalg.norm(off) / np.linalg.norm(exact)))
    return solution.error[:, -1], np.array(true)


def enstrophies(problem: Vorticity, samples: range, n: int) -> np.ndarray:
    """⟨w²⟩/2 of states after the burn-in, on a solver of n x n points."""
    method = problem.solver
    changed = {"resolution": n, "dt": method.dt * min(1, method.resolution / n)}
    solver = method.model_copy(update=changed)
    flow = problem.model_copy(update={"solver": solver}).flow
    field, found = problem.initial.build(), list[np.ndarray]()
    for start in range(samples.start, samples.stop, _BLOCK):
        block = range(start, min(start + _BLOCK, samples.stop))
        v = field.coefficients(flow.torus, 0, block)[:, None]
        w = flow.solver(v, solver.dt, np.inf).evolved(v, problem.initial.burn_in)
        found.append(flow.energies(w)[:, 1])
    return np.concatenate(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000, help="of the plain solution")
    parser.add_argument("--grids", type=int, nargs=2, default=())
    parser.add_argument("--states", type=int, default=64)
    parser.add_argument("--burn-in", type=float, help="in place of the recipe's")
    asked = parser.parse_args()
    problem = load_recipe(asked.recipe).problem.typical
    assert isinstance(problem, Vorticity)
    if asked.burn_in is not None:
        initial = problem.initial.model_copy(update={"burn_in": asked.burn_in})
        problem = problem.model_copy(update={"initial": initial})
    if asked.grids:
        both = [enstrophies(problem, range(asked.states), n) for n in asked.grids]
        for n, found in zip(asked.grids, both, strict=True):
            spread = found.std(ddof=1) / np.sqrt(len(found))
            print(f"{n} points: mean enstrophy {found.mean():.3f} ± {spread:.3f}", flush=True)
        print(f"correlation of the states' enstrophies {np.corrcoef(*both)[0, 1]:.2f}")
        return
    problem.compute(0, range(1))  # compiles
    began = time.process_time()
    values = problem.compute(0, range(_BLOCK))
    cost = (time.process_time() - began) / _BLOCK
    print(
        f"{asked.recipe}: {cost:.2g} s a sample; errors of {_BLOCK} samples: median "
        f"{np.median(values['error']):.1e}, largest {values['error'].max():.1e}",
        flush=True,
    )
    if asked.samples:
        print(comparison(*errors(problem, range(asked.samples), asked.steps)))


if __name__ == "__main__":
    main()
