"""What our own solver costs, coarser and coarser, and when an operator has paid beside it."""

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import BaseModel
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator, make_interp_spline
from scipy.signal import resample

from operators.data import Samples
from operators.norms import mean_defined
from operators.training.evaluate import errors_of
from pdegen.domains import Box, Cloud, Domain
from pdegen.equations.base import SampleError
from pdegen.generation.engines import pool
from pdegen.generation.generate import generate
from pdegen.generation.job import RecipeJob
from pdegen.recipe import Recipe
from pdegen.store.reading import open_sealed
from pipelines.runs.data import Source
from pipelines.runs.measures import measures_of

SAMPLES = 4  # that are solved to measure
STORED = 2.0**-24  # relative error of what is stored in float32: labels have no smaller one


class Solve(BaseModel):
    """Solving at one resolution.

    Args:
        overrides: Of the recipe; none are the labels themselves.
        error: Mean distance of the solutions to the labels, as the operators' errors are measured.
    """

    overrides: dict[str, Any] = {}
    seconds: float
    error: float = 0.0


class SolverCost(BaseModel):
    """The costs of a dataset's solver.

    Args:
        label_error: What the solver states of the labels; 0 where they are exact.
    """

    made_from: str
    label_error: float
    samples: int
    solves: list[Solve]
    provenance: dict[str, Any] = {}

    @property
    def comparable(self) -> bool:
        """Whether solving more coarsely was measured."""
        return len(self.solves) > 1

    @property
    def data_seconds(self) -> float:
        return self.samples * self.solves[0].seconds

    def seconds(self, error: float) -> float:
        """Of the solver, coarsened until it is off by as much as an operator with this error.

        Both are measured against labels that are off themselves, independently of them as far as
        is known: the distance e of a solution to its label is taken for √(e² + label²). Between
        the resolutions that were measured the logarithms are interpolated; a solver is not made
        coarser than the coarsest of them, nor slower than a more accurate one.
        """
        label = max(self.label_error, STORED)
        wanted, best = math.hypot(error, label), list[tuple[float, float]]()
        known = sorted((math.hypot(one.error, label), one.seconds) for one in self.solves)
        for of, seconds in known:
            if not best or seconds < best[-1][1]:
                best.append((of, seconds))
        for (finer, slow), (coarser, fast) in pairwise(best):
            if wanted <= coarser:
                share = math.log(wanted / finer) / math.log(coarser / finer)
                return slow * (fast / slow) ** max(0.0, share)
        return best[-1][1]

    def break_even(
        self, error: float, spent: float, inference: float, trivial: float = math.inf
    ) -> float:
        """Number of solves after which an operator has paid; infinite where it never does.

        N = (T_data + T_training + T_tuning) / (t_solver(ε) - t_inference)

        Args:
            trivial: Error of the best predictor that does not learn; it costs nothing, so an
                operator that is not better never pays.

        References:
            arXiv 2605.15399; the errors of labels are ours.
        """
        saved = self.seconds(error) - inference if error < trivial else 0.0
        return (self.data_seconds + spent) / saved if saved > 0 else math.inf


def recipe_of(store: str, coarser: Sequence[Mapping[str, object]]) -> Recipe | None:
    """The recipe that a store was made by, as the store says it; None where it was made from other
    data. Raises SchemaError if the recipe is not that of the store's fingerprint, or does not take
    them."""
    held = open_sealed(store)
    if held.command != "generate":
        return None
    recipe = RecipeJob.of(held).recipe
    for overrides in coarser:
        recipe.with_overrides(overrides)
    return recipe


def solver_cost(
    source: Source, coarser: Sequence[Mapping[str, object]], measure: str, label: float | None
) -> dict[str, Any]:
    """The fields of `SolverCost`, measured on the first training samples."""
    recipe = recipe_of(source.url, coarser)
    assert recipe is not None
    labels = source.samples("train", noise=None).rows(slice(SAMPLES)).resident()
    solves = [Solve(seconds=_seconds(recipe))]
    for overrides in coarser:
        changed = recipe.with_overrides(overrides)
        try:
            error = _distance(source, labels, changed, measure)
            seconds = _seconds(changed)
        except SampleError:  # too coarse to be solved
            continue
        solves.append(Solve(overrides=dict(overrides), seconds=seconds, error=error))
    splits = open_sealed(source.url).metadata.splits
    sizes = {name: stop - start for name, (start, stop) in splits.items()}
    train = source.experiment.data.samples or sizes["train"]
    return {"label_error": label or 0.0, "samples": train + sizes["validation"], "solves": solves}


def _seconds(recipe: Recipe) -> float:
    def timed(samples: range) -> float:
        start = time.perf_counter()
        recipe.problem.compute(recipe.seed, samples)
        return time.perf_counter() - start

    few = range(min(SAMPLES, recipe.samples))
    with pool("threads", 1) as workers:
        ((_, first),) = workers.run(timed, [range(1)])  # compiles
        if first > 10:
            ((_, first),) = workers.run(timed, [range(1)])
            return first
        ((_, seconds),) = workers.run(timed, [few])
    return seconds / len(few)


def _distance(source: Source, labels: Samples, recipe: Recipe, measure: str) -> float:
    """Mean error of coarse solutions of the samples of some labels."""
    count = 1 + int(labels.samples.max())  # those that the store skipped among them
    sizes = {"splits.train": count, "splits.validation": 1, "splits.test": 1}
    few = recipe.with_overrides({"samples": count + 2, "shard": count + 2, **sizes})
    with tempfile.TemporaryDirectory() as folder:
        url = generate(few, str(Path(folder) / "coarse.zarr"), workers=1).url
        experiment, stored = source.experiment, Source(url, source.experiment).stored_resolution
        data = experiment.data.model_copy(update={"resolution": stored, "samples": None})
        there = Source(url, experiment.model_copy(update={"data": data}))
        coarse = there.samples("train", noise=None).rows(slice(count)).resident()
    coarse, count = _rows(coarse, np.isin(coarse.samples, labels.samples)), len(labels)
    assert coarse.samples.tolist() == labels.samples.tolist()
    found = list[float]()
    for order in (1, 3):  # the better one: kinks and shocks are for lines, smooth fields for cubics
        p = torch.from_numpy(np.stack([_at_labels(coarse, labels, i, order) for i in range(count)]))
        (batch,) = labels.parts(count)
        every = {"l2": errors_of(p, batch, labels)[:, 0]}
        every |= measures_of(p, batch, labels, source.task)
        found.append(mean_defined(every[measure]))
    return min(found)


def _rows(pairs: Samples, kept: Bool[np.ndarray, " samples"]) -> Samples:
    return pairs.rows(kept)


def _at_labels(
    coarse: Samples, labels: Samples, i: int, order: int
) -> Float[np.ndarray, "*grid c"]:
    """A coarse solution at the points of its label, interpolated over the indices of a mesh."""
    u, domain, other = coarse.u[i].double().numpy(), coarse.domain, labels.domain
    if isinstance(domain, Cloud):
        x, y = (np.asarray(pairs.all.own["x"][i], float) for pairs in (coarse, labels))
        at, nearest = LinearNDInterpolator(x, u)(y), NearestNDInterpolator(x, u)(y)
        return np.where(np.isfinite(at), at, nearest)
    for axis in range(len(domain.shape)):
        u = _along(u, axis, _places(domain, axis), _places(other, axis), order,
                   domain.kinds[axis] == "periodic")  # fmt: skip
    return u


def _places(domain: Domain, axis: int) -> Float[np.ndarray, " n"]:
    """Coordinates of the points along an axis; of a mesh, its indices from 0 to 1."""
    if isinstance(domain, Box):
        return domain.grids[axis].x
    n = domain.shape[axis]
    return np.arange(n) / n if domain.kinds[axis] == "periodic" else np.linspace(0.0, 1.0, n)


def _along(
    u: np.ndarray, axis: int, x: np.ndarray, y: np.ndarray, order: int, periodic: bool
) -> np.ndarray:
    if x.shape == y.shape and np.allclose(x, y):
        return u
    if periodic and order > 1:
        times = -(-len(x) // len(y))
        fine: Any = resample(u, times * len(y), axis=axis)
        return np.take(fine, np.arange(len(y)) * times, axis)
    if periodic:
        x = np.append(x, x[0] + len(x) * (x[1] - x[0]))
        u = np.concatenate([u, np.take(u, [0], axis)], axis)
    spline: Any = make_interp_spline(x, u, min(order, len(x) - 1), axis=axis)
    return spline(y)
