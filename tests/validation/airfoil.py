"""Figures of flows around sections that take minutes: `python -m tests.validation.airfoil WHAT`.

limits: drag, lift and shocks of the NACA 0012 on three grids, with their extrapolation.
designs: how many of the first random sections have a steady flow, and what it takes.
errors: the stated error of the first samples beside the one that a grid twice as fine shows.
"""

import sys
import time

import numpy as np

from pdegen.equations.airfoil.solver import Airfoil, FarStream, FlowError
from pdegen.recipe import load_recipe
from tests.pdegen.test_airfoil import mach_number, pressure_coefficients, shock

CASES = ((0.3, 0.0), (0.8, 0.0), (0.8, 1.25))
GRIDS = (110, 220, 440)


def limits() -> None:
    for mach, angle in CASES:
        found, near = [], None
        for n in GRIDS:
            near = Airfoil(np.zeros(8), FarStream(mach, angle)).solve(n, near)
            euler, solution = near
            drag, lift = euler.forces(solution.q)
            row = [drag, lift]
            if mach > 0.5:
                x, upper, lower = pressure_coefficients(euler, solution)
                row += [shock(x, upper), shock(x, lower) if lower.min() < -0.44 else np.nan]
            found.append(row)
            print(f"Mach {mach:g}, {angle:g} degrees, {n}:", np.round(row, 6), solution.residual,
                  solution.iterations, flush=True)  # fmt: skip
        _, coarse, fine = np.array(found)
        print("  extrapolated with order 1:", np.round(2 * fine - coarse, 5),
              "with order 2:", np.round((4 * fine - coarse) / 3, 5), flush=True)  # fmt: skip


def designs(count: int) -> None:
    problem = load_recipe("airfoil").problem
    sections = problem.design.build(0, range(count))
    steps, seconds, failed = [], [], []
    for sample, design in enumerate(sections):
        start = time.process_time()
        try:
            _, (_, solution) = Airfoil(design, problem.stream).solve_twice(problem.resolution)
            steps.append(solution.iterations)
        except FlowError as error:
            failed.append(sample)
            print(f"sample {sample}: {error}", flush=True)
        seconds.append(time.process_time() - start)
        cost = f"{np.mean(seconds):.1f} s a sample, at most {max(seconds):.1f}"
        print(
            f"{len(steps)} of {sample + 1} steady, {np.median(steps):g} steps, {cost}", flush=True
        )


def errors(count: int, resolution: int) -> None:
    problem = load_recipe("airfoil").with_overrides({"resolution": resolution}).problem
    sections = problem.design.build(0, range(count))
    ratios = []
    for sample, design in enumerate(sections):
        stated = float(problem.compute(0, range(sample, sample + 1))["error"][0])
        section = Airfoil(design, problem.stream, 1e-5)
        own = section.solve(resolution)
        u, finer = (mach_number(*one) for one in (own, section.solve(2 * resolution, own)))
        true = float(np.linalg.norm(finer[::2, ::2] - u) / np.linalg.norm(finer[::2, ::2]))
        ratios.append(stated / true)
        print(f"sample {sample}: stated {stated:.4f}, true {true:.4f}; ratios so far "
              f"{min(ratios):.2f} to {max(ratios):.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    {"limits": limits, "designs": designs, "errors": errors}[what](*map(int, numbers))
