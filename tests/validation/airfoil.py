"""Figures of flows around airfoils that take minutes: `python -m tests.validation.airfoil WHAT`.

limits: drag, lift and shocks of the NACA 0012 on some grids, and what they extrapolate to.
streams: the stated error of flows at other Mach numbers and angles on 176 cells, beside the
    distance to the flow on 352.
designs: how many of the first random airfoils have a steady flow, and its cost.
errors: the stated error of samples beside the distance to the flow on a grid twice as fine.
spacing: drag and lift of the NACA 0012 at Mach 0.8 and 1.25 degrees on the published grid, and on
    grids with the same number of cells that are finer at the nose and the trailing edge, or whose
    cells grow in one ratio away from the section.

    python -m tests.validation.airfoil limits 110 220          # by default 440 too
    python -m tests.validation.airfoil streams
    python -m tests.validation.airfoil designs 200             # the first 200
    python -m tests.validation.airfoil errors 0 20 220 kept.npz  # samples 0 to 19 on 220 cells
    python -m tests.validation.airfoil spacing 110 220
"""

import sys
import time
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.equations.airfoil.mesh import NORMAL_CELLS, PUBLISHED_CELLS, SIDE_CELLS, c_grid
from pdegen.equations.airfoil.problem import AirfoilFlow, richardson_error
from pdegen.equations.airfoil.solver import Airfoil, FreeStream
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from tests.pdegen.test_airfoil import mach_number, pressure_coefficients, shock

CASES = ((0.8, 1.25), (0.8, 0.0), (0.3, 0.0))
GRIDS = (110, 220, 440)


def _problem() -> AirfoilFlow:
    problem = load_recipe("airfoil").problem
    assert isinstance(problem, AirfoilFlow)
    return problem


def limits(*grids: int) -> None:
    for mach, angle in CASES:
        rows, near = [], None
        for n in grids or GRIDS:
            near = Airfoil(np.zeros(8), FreeStream(mach, angle)).solve(n, near)
            euler, solution = near
            drag, lift = euler.forces(solution.q)
            row = [drag, lift]
            if mach > 0.5:
                x, upper, lower = pressure_coefficients(euler, solution)
                row += [shock(x, upper), shock(x, lower) if lower.min() < -0.44 else np.nan]
            rows.append(row)
            print(f"Mach {mach:g}, {angle:g} degrees, {n}:", np.round(row, 6), solution.residual,
                  solution.iterations, flush=True)  # fmt: skip
        *_, coarse, fine = np.array(rows)
        print("  extrapolated with order 1:", np.round(2 * fine - coarse, 5),
              "with order 2:", np.round((4 * fine - coarse) / 3, 5), flush=True)  # fmt: skip


def designs(count: int) -> None:
    problem = _problem()
    all_designs = problem.design.build(0, range(count))
    steps, seconds, failed = [], [], []
    for sample, design in enumerate(all_designs):
        start = time.process_time()
        try:
            _, (_, solution) = Airfoil(design, problem.stream).solve_on_two_grids(
                problem.resolution
            )
            steps.append(solution.iterations)
        except SolveError as error:
            failed.append(sample)
            print(f"sample {sample}: {error}", flush=True)
        seconds.append(time.process_time() - start)
        cost = f"{np.mean(seconds):.1f} s a sample, at most {max(seconds):.1f}"
        print(
            f"{len(steps)} of {sample + 1} steady, {np.median(steps):g} steps, {cost}", flush=True
        )


def errors(first: int, last: int, resolution: int = 220, file: str = "") -> None:
    problem = _problem()
    rows = list[tuple[float, ...]]()
    fields = dict[str, np.ndarray]()
    for sample, design in enumerate(problem.design.build(0, range(first, last)), first):
        start = time.process_time()
        airfoil = Airfoil(design, problem.stream)
        try:
            coarse, flow = airfoil.solve_on_two_grids(resolution)
            # a larger tolerance saves a step, which is long on this grid
            fine_airfoil = Airfoil(design, problem.stream, 1e-5)
            flows = coarse, flow, fine_airfoil.solve(2 * resolution, flow)
        except SolveError as error:
            print(f"sample {sample}: {error}", flush=True)
            continue
        coarse_u, u, fine_u = (mach_number(*flow) for flow in flows)
        true = float(np.linalg.norm(fine_u[::2, ::2] - u) / np.linalg.norm(fine_u[::2, ::2]))
        stated = richardson_error(u, coarse_u)
        drag, lift = np.transpose([euler.forces(solution.q) for euler, solution in flows])
        rows.append((stated, true, abs(drag[1] - drag[2]), abs(lift[1] - lift[2])))
        fields |= {
            f"{sample}-{n}": v for n, v in zip((1, 2, 4), (coarse_u, u, fine_u), strict=True)
        }
        fields |= {f"{sample}-drag": drag, f"{sample}-lift": lift}
        if file:
            np.savez(file, allow_pickle=False, **fields)
        print(f"sample {sample}: stated {stated:.5f}, true {true:.5f}; drag {drag.round(5)}, lift "
              f"{lift.round(4)}; {time.process_time() - start:.0f} s", flush=True)  # fmt: skip
        _summary(np.array(rows))


@dataclass(frozen=True)
class Respaced(Airfoil):
    """The flow around an airfoil on a C-grid with other distances between the nodes."""

    # clustering: 1 less the width of cells at nose and trailing edge, over the published width
    # ratio: of successive cells away from the section, in the published number; 0: as published
    clustering: float = 0.0
    ratio: float = 0.0

    def points(self, resolution: int) -> Float[np.ndarray, "n m 2"]:
        fine = c_grid(self.design, times := 16 * resolution // 22 * 22)
        i = self._index(np.linspace(-1, 1, resolution + 1)) * times
        nodes = fine[np.rint(i).astype(int)]
        if not self.ratio:
            return nodes[:, :: times // resolution]
        j = np.linspace(0, NORMAL_CELLS, resolution * NORMAL_CELLS // PUBLISHED_CELLS + 1)
        w = ((self.ratio**j - 1) / (self.ratio**NORMAL_CELLS - 1))[None, :, None]
        return (1 - w) * nodes[:, :1] + w * nodes[:, -1:]  # lines of constant i are straight

    def _index(self, t: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The place in the published grid, from 0 to 1, of the node at the place t in [-1, 1]."""
        edge, c = 2 * SIDE_CELLS / PUBLISHED_CELLS, self.clustering
        side, wake = abs(t) / edge, np.maximum(abs(t) - edge, 0) / (1 - edge)
        side = side - c * np.sin(2 * np.pi * side) / (2 * np.pi)
        wake = (1 - c) * wake + c * wake**2
        return (1 + np.sign(t) * np.where(abs(t) < edge, edge * side, edge + (1 - edge) * wake)) / 2


SPACINGS = {
    "published": (0.0, 0.0),
    "finer at nose and trailing edge": (0.75, 0.0),
    "growing in one ratio": (0.0, 1.12),
    "both": (0.75, 1.12),
}


def spacing(*grids: int) -> None:
    stream = FreeStream(*CASES[0])
    for name, spaces in SPACINGS.items():
        near = None
        for n in grids or GRIDS[:2]:
            near = Respaced(np.zeros(8), stream, 1e-6, *spaces).solve(n, near)
            drag, lift = near[0].forces(near[1].q)
            print(f"{name}, {n}: drag {drag:.4f}, lift {lift:.4f}", flush=True)


STREAMS = (  # Mach number, angle, and the random section; None is the NACA 0012
    (0.63, 2.0, None), (0.5, 1.0, None), (0.8, 1.25, None), (0.8, 0.0, 0), (0.7, 1.0, 3),
    (0.6, 0.0, 1), (0.3, 0.0, 2),
)  # fmt: skip


def streams() -> None:
    all_designs = _problem().design.build(0, range(4))
    for mach, angle, number in STREAMS:
        airfoil = Airfoil(
            np.zeros(8) if number is None else all_designs[number], FreeStream(mach, angle)
        )
        coarse, flow = airfoil.solve_on_two_grids(176)
        fine = airfoil.solve(352, flow)
        coarse_u, u, fine_u = (mach_number(*flow) for flow in (coarse, flow, fine))
        true = float(np.linalg.norm(fine_u[::2, ::2] - u) / np.linalg.norm(fine_u[::2, ::2]))
        stated = richardson_error(u, coarse_u)
        print(f"Mach {mach:g}, {angle:g} degrees, section {number}: stated {stated:.5f}, true "
              f"{true:.5f}, ratio {stated / true:.2f}", flush=True)  # fmt: skip


def _summary(rows: np.ndarray) -> None:
    stated, true, drag, lift = rows.T
    ratios = stated / true
    within = np.mean((ratios > 0.5) & (ratios < 2))
    print(f"  {len(rows)} samples: stated over true {ratios.min():.2f} to {ratios.max():.2f}, "
          f"median {np.median(ratios):.2f}, {within:.0%} within a factor of 2; true error mean "
          f"{true.mean():.5f}, at most {true.max():.5f}; drag off by {drag.mean():.5f}, lift by "
          f"{lift.mean():.5f} on the mean", flush=True)  # fmt: skip


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    command = {"limits": limits, "streams": streams, "designs": designs, "errors": errors,
               "spacing": spacing}[what]  # fmt: skip
    command(*(int(n) if n.isdigit() else n for n in numbers))
