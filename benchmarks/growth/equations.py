"""The solvers whose growth is measured: those whose growth in theory is stated here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.growth.measuring import Case, Work, allocated_bytes, resident_bytes
from pdegen.equations.airfoil.problem import AirfoilFlow
from pdegen.equations.airfoil.solver import Airfoil
from pdegen.recipe import load_recipe

_LINE = [2**k for k in range(7, 17)]
_PLANE = [32, 48, 64, 96, 128, 192, 256, 384, 512]


def _work(
    recipe: str,
    changes: Callable[[int], Mapping[str, Any]],
    points: Callable[[int], int],
    samples: int,
    size: int,
) -> Work:
    """Draws and solves `samples` samples of a changed recipe."""
    declared = {f"problem.{key}": value for key, value in changes(size).items()}
    problem = load_recipe(recipe).with_overrides(declared).problem
    run = partial(problem.compute, 0, range(samples))
    return Work(points(size), run, partial(allocated_bytes, run))


def _case(
    time: str, memory: str, why: str, recipe: str, changes: Callable[[int], Mapping[str, Any]],
    sizes: Sequence[int], samples: int = 1, points: Callable[[int], int] = lambda n: n,
    above: str = "",
) -> Case:  # fmt: skip
    make = partial(_work, recipe, changes, points, samples)
    return Case(time, memory, why, sizes, make, above)


def _airfoil(size: int) -> Work:
    """The flow of the first sample of airfoil-quick on grids coarser than recipes may declare."""
    problem = load_recipe("airfoil-quick").problem
    assert isinstance(problem, AirfoilFlow)
    (design,) = problem.design.build(0, range(1))
    airfoil = Airfoil(design, problem.stream, problem.solver.tolerance)
    run = partial(airfoil.solve, size)
    return Work(airfoil.euler(size).mesh.areas.size, run, partial(resident_bytes, run))


def _square(n: int) -> int:
    return n * n


EQUATIONS: Mapping[str, Case] = {
    "airfoil": Case(
        "n^1.5", "n log n",
        "sparse elimination on a plane mesh with a fill-reducing order, in a bounded number of "
        "Newton steps",
        [88, 110, 132, 176], _airfoil,
        "the number of Newton steps grows, since shocks become sharper", longest=30.0,
    ),
    "burgers": _case(
        "n log n", "n", "a fixed number of Fourier transforms (Cole-Hopf)",
        "burgers-quick",
        lambda n: {"resolution": n, "solver.resolution": n, "initial.modes": n // 2 - 1},
        _LINE[3:], samples=512,
    ),
    "dam-break": _case(
        "n^2", "n", "n time steps, each a loop over the rings",
        "dam-break-quick", lambda n: {"rings": n, "radius": 0.5}, [128, 256, 512, 1024, 2048, 4096],
    ),
    "darcy": _case(
        "n^1.5", "n",
        "sines of the whole field as matrix products; each of a bounded number of iterations "
        "takes n (interface cells times modes, and a tridiagonal sweep)",
        "darcy-quick", lambda n: {"resolution": n, "field.modes": 2 * n - 1},
        [64, 85, 107, 128, 160, 192, 256, 320, 421], samples=4, points=_square,
    ),
    "elasticity": _case(
        "n^2", "n^1.5",
        "dense elimination of n^0.5 columns of elements, each with a matrix of n^0.5 rows",
        "elasticity-quick", lambda n: {"resolution": n}, [24, 36, 48, 60, 84, 108, 144],
        points=_square,
    ),
    "inviscid-burgers": _case(
        "n", "n",
        "a lower hull of 16 n candidates, and Newton steps at each point that sum a fixed number "
        "of modes; the antiderivative is one Fourier transform",
        "inviscid-burgers-quick", lambda n: {"resolution": n, "solver.candidates": 16 * n},
        _LINE[1:], samples=64,
    ),
    "pipe": _case(
        "n^2", "n^1.5",
        "dense elimination of n^0.5 columns of elements, each with a matrix of n^0.5 rows",
        "pipe-quick", lambda n: {"resolution": n}, [33, 49, 65, 81, 97, 129],
        points=_square,
    ),
    "plasticity": _case(
        "n^1.5", "n", "n^0.5 explicit time steps, each a loop over the elements",
        "plasticity-quick", lambda n: {"resolution": n + 1}, [20, 40, 60, 80],
        points=lambda n: n * n * 3 // 10,
    ),
    "poisson": _case(
        "n log n", "n", "sine transforms; the modes of the source are matrix products, n^1.5",
        "poisson-quick", lambda n: {"resolution": n + 1, "field.modes": 16},
        [32, 64, 96, 128, 192, 256], points=_square,
    ),
    "pulses": _case(
        "n", "n", "a formula at each point", "pulses-quick", lambda n: {"resolution": n},
        _LINE[2:], samples=512,
    ),
    "semilinear, line": _case(
        "n log n", "n", "Fourier transforms in a fixed number of time steps (kdv)",
        "kdv",
        lambda n: {"resolution": n // 4, "solver.resolution": n, "solver.dt": 5e-4,
                   "times": [0.05]},
        _LINE[1:], samples=16,
    ),
    "semilinear, plane": _case(
        "n log n", "n", "Fourier transforms in a fixed number of time steps (allen-cahn)",
        "allen-cahn", lambda n: {"resolution": n // 2, "solver.resolution": n, "times": [1.0]},
        _PLANE[3:], points=_square,
    ),
    "shock-tube": _case(
        "n", "n", "a formula at each cell", "shock-tube-quick", lambda n: {"resolution": n},
        _LINE[1:], samples=512,
    ),
    "vorticity": _case(
        "n log n", "n", "Fourier transforms in a fixed number of time steps",
        "ns-quick",
        lambda n: {"resolution": n, "solver.resolution": 3 * n // 2, "solver.dt": 0.01,
                   "solver.tolerance": 1e-2, "times": [0.2]},
        _PLANE, points=_square,
    ),
    "wave": _case(
        "n^1.5", "n", "n^0.5 time steps, each a loop over the points",
        "wave-quick", lambda n: {"resolution": n}, [32, 48, 64, 96, 128, 192], points=_square,
    ),
}  # fmt: skip
