"""Measures the cost of a dataset's solver at several resolutions, and computes break-even points of
operators."""

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
from pdegen.generation.generate import RecipeJob, generate
from pdegen.generation.pools import pool
from pdegen.recipe import Recipe
from pdegen.store.reading import open_sealed
from pipelines.runs.data import Source
from pipelines.runs.score import measures_of

SAMPLES = 4  # samples that are solved to measure
STORED = 2.0**-24  # relative rounding error of float32, which all stored labels have


class Solve(BaseModel):
    """Cost and error of the solver at one resolution.

    Args:
        overrides: Overrides of the recipe; empty for the solver that computed the labels.
        seconds: Time per sample.
        error: Mean error of the solutions relative to the labels, in the same measure as errors of
            operators.
    """

    overrides: dict[str, Any] = {}
    seconds: float
    error: float = 0.0


class SolverCost(BaseModel):
    """Costs of the solver of a dataset.

    Args:
        label_error: Error of the labels, as recorded in their store; 0 if the store records no
            errors.
        samples: Number of training and validation samples that the solver generated.
    """

    made_from: str
    label_error: float
    samples: int
    solves: list[Solve]
    provenance: dict[str, Any] = {}

    @property
    def comparable(self) -> bool:
        """Whether the solver was also measured at a coarser resolution than that of the labels."""
        return len(self.solves) > 1

    @property
    def data_seconds(self) -> float:
        """Time to generate all training and validation samples."""
        return self.samples * self.solves[0].seconds

    def seconds(self, error: float) -> float:
        """Time per sample of the solver at the resolution at which its error equals `error`.

        Errors e are measured against labels that have an error l. Both errors are assumed to be
        independent, so the true error is √(e² + l²). Between measured resolutions, log time is
        interpolated linearly in log error. For errors above that of the coarsest resolution, the
        time of this resolution is used. A resolution is ignored if a more accurate one is faster.
        """
        label = max(self.label_error, STORED)
        wanted, best = math.hypot(error, label), list[tuple[float, float]]()
        solves = sorted((math.hypot(solve.error, label), solve.seconds) for solve in self.solves)
        for solve_error, seconds in solves:
            if not best or seconds < best[-1][1]:
                best.append((solve_error, seconds))
        for (finer, slow), (coarser, fast) in pairwise(best):
            if wanted <= coarser:
                share = math.log(wanted / finer) / math.log(coarser / finer)
                return slow * (fast / slow) ** max(0.0, share)
        return best[-1][1]

    def break_even(
        self, error: float, spent: float, inference: float, trivial: float = math.inf
    ) -> float:
        """Number of solves after which an operator saves time; infinite if it never does.

        N = (T_data + T_training + T_tuning) / (t_solver(ε) - t_inference)

        Args:
            error: Error ε of the operator.
            spent: Time of training and tuning in seconds.
            inference: Time of a prediction per sample in seconds.
            trivial: Error of the best trivial predictor, which has no weights and costs nothing. An
                operator that is not more accurate than this predictor never saves time.

        References:
            arXiv 2605.15399; the treatment of label errors is ours.
        """
        saved = self.seconds(error) - inference if error < trivial else 0.0
        return (self.data_seconds + spent) / saved if saved > 0 else math.inf


def recipe_of(store: str, coarser: Sequence[Mapping[str, object]]) -> Recipe | None:
    """The recipe that generated a store; None if the store was made from other data.

    Raises:
        SchemaError: If the recipe does not match the store's fingerprint, or does not accept the
            overrides in `coarser`.
    """
    sealed = open_sealed(store)
    if sealed.command != "generate":
        return None
    recipe = RecipeJob.of(sealed).recipe
    for overrides in coarser:
        recipe.with_overrides(overrides)
    return recipe


def solver_cost(
    source: Source, coarser: Sequence[Mapping[str, object]], measure: str, label: float | None
) -> dict[str, Any]:
    """Values for the fields of `SolverCost`, measured on the first training samples."""
    recipe = recipe_of(source.url, coarser)
    assert recipe is not None
    labels = source.samples("train", noise=None).rows(slice(SAMPLES)).resident()
    solves = [Solve(seconds=_seconds(recipe))]
    for overrides in coarser:
        changed = recipe.with_overrides(overrides)
        try:
            error = _distance(source, labels, changed, measure)
            seconds = _seconds(changed)
        except SampleError:  # too coarse to solve
            continue
        solves.append(Solve(overrides=dict(overrides), seconds=seconds, error=error))
    splits = open_sealed(source.url).metadata.splits
    sizes = {name: stop - start for name, (start, stop) in splits.items()}
    train = source.experiment.data.samples or sizes["train"]
    return {"label_error": label or 0.0, "samples": train + sizes["validation"], "solves": solves}


def _seconds(recipe: Recipe) -> float:
    """Time per sample of the recipe's solver on one thread."""

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
    """Mean error of the solutions of a coarse recipe, relative to the labels of the same
    samples."""
    count = 1 + int(labels.ids.max())  # includes samples that the store skipped
    sizes = {"splits.train": count, "splits.validation": 1, "splits.test": 1}
    few = recipe.with_overrides({"samples": count + 2, "shard": count + 2, **sizes})
    with tempfile.TemporaryDirectory() as folder:
        url = generate(few, str(Path(folder) / "coarse.zarr"), workers=1).url
        experiment, stored = source.experiment, Source(url, source.experiment).stored_resolution
        data = experiment.data.model_copy(
            update={"resolution": stored, "resolutions": None, "samples": None}
        )
        coarse_source = Source(url, experiment.model_copy(update={"data": data}))
        coarse = coarse_source.samples("train", noise=None).rows(slice(count)).resident()
    coarse, count = _rows(coarse, np.isin(coarse.ids, labels.ids)), len(labels)
    assert coarse.ids.tolist() == labels.ids.tolist()
    errors = list[float]()
    for order in (1, 3):  # keep the better: linear for kinks and shocks, cubic for smooth fields
        p = torch.from_numpy(np.stack([_at_labels(coarse, labels, i, order) for i in range(count)]))
        (batch,) = labels.in_order(count)
        scores = {"l2": errors_of(p, batch, labels)[:, 0]}
        scores |= measures_of(p, batch, labels, source.task)
        errors.append(mean_defined(scores[measure]))
    return min(errors)


def _rows(pairs: Samples, kept: Bool[np.ndarray, " samples"]) -> Samples:
    return pairs.rows(kept)


def _at_labels(
    coarse: Samples, labels: Samples, i: int, order: int
) -> Float[np.ndarray, "*grid c"]:
    """Interpolate a coarse solution to the points of its label.

    On a mesh, solutions are interpolated as functions of the node indices.
    """
    u, domain, other = coarse.u[i].double().numpy(), coarse.domain, labels.domain
    if isinstance(domain, Cloud):
        x, y = (np.asarray(pairs.all.per_sample["x"][i], float) for pairs in (coarse, labels))
        at, nearest = LinearNDInterpolator(x, u)(y), NearestNDInterpolator(x, u)(y)
        return np.where(np.isfinite(at), at, nearest)
    for axis in range(len(domain.shape)):
        u = _along(u, axis, _coordinates(domain, axis), _coordinates(other, axis), order,
                   domain.kinds[axis] == "periodic")  # fmt: skip
    return u


def _coordinates(domain: Domain, axis: int) -> Float[np.ndarray, " n"]:
    """Coordinates of the points along an axis. On a mesh, these are the node indices, scaled to [0,
    1]."""
    if isinstance(domain, Box):
        return domain.grids[axis].x
    n = domain.shape[axis]
    return np.arange(n) / n if domain.kinds[axis] == "periodic" else np.linspace(0.0, 1.0, n)


def _along(
    u: np.ndarray, axis: int, x: np.ndarray, y: np.ndarray, order: int, periodic: bool
) -> np.ndarray:
    """Interpolate values along an axis from points x to points y, by splines of a given order."""
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
