"""From a recipe to arrays: what a store of it holds, and the samples of a range."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np

import pdegen
from pdegen.burgers import SolveError
from pdegen.grid import PeriodicGrid
from pdegen.recipe import Recipe
from pdegen.store import Coordinate, Layout, Variable

_BLOCK = 16  # samples computed at a time: bounds the float64 arrays beside the shard itself


class SampleError(ArithmeticError):
    """A sample of a dataset could not be computed; says which and why."""

    def __init__(self, sample: int, reason: str) -> None:
        super().__init__(sample, reason)
        self.sample = sample
        self.reason = reason

    def __str__(self) -> str:
        return f"sample {self.sample}: {self.reason}"


def layout(recipe: Recipe) -> Layout:
    """Variables, coordinates and attributes of the recipe's store."""
    problem = recipe.problem
    n, times = problem.resolution, np.array(problem.times)
    one_time = len(times) == 1
    u_dims, u_shape = (("x",), (n,)) if one_time else (("time", "x"), (len(times), n))
    parameters = {"viscosity": problem.viscosity, "units": "1"}
    return Layout(
        samples=recipe.samples,
        shard=min(recipe.shard, recipe.samples),
        variables=(
            Variable("a", ("x",), (n,), "float32", {
                "long_name": "initial value u(x, 0)", "role": "input", **parameters}),
            Variable("u", u_dims, u_shape, "float32", {
                "long_name": "solution u(x, t)", "role": "target", "coordinates": "time",
                **parameters}),
            Variable("error", (), (), "float64", {
                "long_name": "estimate of the relative L2 error of u by the solver",
                "role": "quality", "units": "1"}),
        ),
        coordinates=(
            Coordinate("sample", ("sample",), np.arange(recipe.samples), {
                "long_name": "number of the sample"}),
            Coordinate("x", ("x",), PeriodicGrid(n).x, {
                "long_name": "position on the circle of length 1", "units": "1",
                "grid": "periodic"}),
            Coordinate("time", () if one_time else ("time",),
                       times.reshape(()) if one_time else times,
                       {"long_name": "time", "units": "1"}),
        ),
        attributes={
            "title": recipe.summary,
            "equation": "u_t + u u_x = viscosity u_xx, x on the circle of length 1",
            "recipe": recipe.model_dump(mode="json"),
            "fingerprint": recipe.fingerprint,
            "splits": {k: list(v) for k, v in recipe.splits.ranges(recipe.samples).items()},
            "provenance": provenance(),
        },
    )  # fmt: skip


def provenance() -> dict[str, Any]:
    """Software and time of the making."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "pdegen": pdegen.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: version(name) for name in ("numpy", "scipy", "zarr", "dask")},
    }


def compute(recipe: Recipe, samples: range) -> dict[str, np.ndarray]:
    """The values of these samples for each variable of the layout.

    Fields and solutions are computed on the solver's grid, where they are resolved, and then
    taken at the points of the output grid.

    Raises:
        SampleError: If a sample cannot be solved or is not finite.
    """
    problem = recipe.problem
    field, solver = problem.initial.build(), problem.solver.build(problem.viscosity)
    stride = solver.grid.stride_to(PeriodicGrid(problem.resolution))
    times = list(problem.times)
    a = np.empty((len(samples), problem.resolution), dtype=np.float32)
    u = np.empty((len(samples), len(times), problem.resolution), dtype=np.float32)
    error = np.empty(len(samples))
    for start in range(0, len(samples), _BLOCK):
        block = slice(start, start + _BLOCK)
        u0 = field(solver.grid, recipe.seed, samples[block])
        try:
            solution = solver.solve(u0, times)
        except SolveError as failure:
            raise SampleError(samples[start + failure.row], failure.reason) from failure
        finite = np.isfinite(u0.sum(axis=1)) & np.isfinite(solution.u.sum(axis=(1, 2)))
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise SampleError(samples[start + row], "the solution is not finite")
        a[block], u[block] = u0[:, ::stride], solution.u[:, :, ::stride]
        error[block] = solution.error
    return {"a": a, "u": u[:, 0] if len(times) == 1 else u, "error": error}
