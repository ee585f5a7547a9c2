"""Classical inversion of an experiment's data, by the methods that the equation of the store
offers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from time import process_time

import numpy as np
import torch
from jaxtyping import Bool, Float

from operators.data import Samples, Subsample, averaging_weights
from operators.norms import mean_defined, relative_error
from pdegen.domains import Box, Domain
from pdegen.equations.base import Problem
from pdegen.generation.generate import RecipeJob, other_equation
from pdegen.inverse.classical import ClassicalMethod, Estimate, Forward, InverseProblem
from pdegen.plugins import plugin_of
from pdegen.recipe import Recipe
from pdegen.sampling.noise import SensorNoise
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment, InputNoise, domain_of
from pipelines.runs.data import Source
from pipelines.studies.noise_cells import NONE

TUNED_ON = 16  # validation samples that choose the weight of a classical inversion
KNOWN = 200  # largest number of training samples that a classical inversion uses
_INVERSE = [["u"], ["a"]]  # inputs and targets of an inverse problem
_TIMED = 5  # solves whose time is measured


@dataclass(frozen=True)
class Inverted:
    """Estimates of a classical inversion method, one for each sample.

    Args:
        seconds: Processor time per sample. Samples are inverted one after another.
    """

    estimates: tuple[Estimate, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def solves(self) -> float:
        """Mean number of systems of equations that the method solved per sample."""
        return float(np.mean([estimate.solves for estimate in self.estimates]))

    @property
    def iterations(self) -> float:
        """Mean number of steps per sample."""
        return float(np.mean([estimate.iterations for estimate in self.estimates]))

    @property
    def converged(self) -> int:
        """Number of samples whose steps ended by the method's criterion."""
        return sum(estimate.converged for estimate in self.estimates)

    def fields(self, cells: int) -> Float[np.ndarray, " samples *cells"]:
        """The estimates, averaged on `cells` cells along each axis."""
        return np.stack([on_cells(estimate.a, cells) for estimate in self.estimates])


@dataclass(frozen=True)
class ChosenWeight:
    """The choice of a method's regularisation weight.

    Args:
        samples: Number of validation samples; 0 if the method has only one weight.
        at_end: Whether the weight is the smallest or the largest of several.
        unconverged: Number of inversions for this choice, over all weights tried, that did not end
            by the method's criterion.
    """

    weight: float
    samples: int = 0
    at_end: bool = False
    unconverged: int = 0


@dataclass(frozen=True)
class Observed:
    """Data for a classical inversion: values at the data points, and the assumed standard
    deviations of their noise.
    """

    values: Float[np.ndarray, " samples *data"]
    std: Float[np.ndarray, " samples *data"]

    @property
    def first(self) -> Observed:
        return Observed(self.values[:1], self.std[:1])


@dataclass(frozen=True)
class Inversions:
    """Classical inversions of noisy inputs.

    Args:
        only: Names of the methods to use; by default all methods that the equation offers.
        cells: Number of cells along each axis on which the target is reconstructed; by default the
            number of data points. In stores without cells, the target is reconstructed at the
            points of the data.
    """

    source: Source
    only: tuple[str, ...] = ()
    cells: int | None = None

    @cached_property
    def setting(self) -> InverseProblem:
        """The data points, and the training samples that methods may use."""
        count = min(KNOWN, len(self.source.stored("train")))
        training = self._on_cells({"data.samples": count}).samples("train", noise=None).resident()
        x = training.points.flatten(1, -2)[:, 0, 0] if training.dim > 1 else training.points[:, 0]
        a, u = (values[..., 0].double().numpy() for values in (training.u, training.a))
        return InverseProblem(x.double().numpy(), a, u, self.seen(u.shape[1:]))

    def seen(self, shape: tuple[int, ...]) -> Bool[np.ndarray, "..."] | None:
        """Mask of the points that have a sensor; None if all points have a sensor."""
        noise = self.source.experiment.noise
        model = None if noise is None else noise.build()
        if noise is None or not isinstance(model, SensorNoise):
            return None
        return model.observed(shape, noise.seed)

    def _on_cells(self, overrides: Mapping[str, object]) -> Source:
        experiment, changed = self.source.experiment, {**overrides}
        if set(domain_of(open_sealed(self.source.url)).kinds) == {"cell"}:
            changed["data.target_resolution"] = self.cells or experiment.data.finest_resolution
        elif self.cells is not None:
            raise SchemaError(f"cells: {self.source.url} holds no averages over cells")
        return Source(self.source.url, experiment.with_overrides(changed))

    @cached_property
    def truth(self) -> Float[np.ndarray, "samples n n"]:
        """Targets of the test samples, on the cells on which classical methods reconstruct them."""
        return self._on_cells({}).samples("test", noise=None).resident().u[..., 0].double().numpy()

    @cached_property
    def _problem(self) -> Problem:
        """The equation of the store. Raises SchemaError if it is not that of its fingerprint."""
        store = open_sealed(self.source.url)
        if store.command == "generate":
            return RecipeJob.of(store).recipe.problem
        problem = Recipe.parse(store.raw_attributes["recipe"], self.source.url).problem
        recorded = store.metadata.equation_file is not None
        if recorded and (fault := other_equation(problem, store)):
            raise SchemaError(f"{self.source.url}: {fault}")
        return problem

    @property
    def equation_digest(self) -> str | None:
        """SHA-256 of the user's file of the equation, whose map the methods invert; None for
        equations of packages, and if the equation is not used."""
        file = None if self.unsuited else plugin_of(type(self._problem))
        return None if file is None else file.digest

    @cached_property
    def unsuited(self) -> str:
        """The reason why the data do not suit classical methods; empty if they do.

        The data must be of an inverse problem u -> a of a recipe, on a grid that all samples share.
        """
        store = open_sealed(self.source.url)
        domain = domain_of(store)
        if reason := no_inverse_problem(self.source.experiment, domain):
            return reason
        if not store.metadata.recipe.problem:
            return (
                f"{self.source.url} has no recipe, and classical methods need the distribution "
                "of the target"
            )
        return ""

    @cached_property
    def methods(self) -> dict[str, ClassicalMethod]:
        """The methods to use, keyed by name. It is empty if the equation offers none and none is
        requested, see `absent`.

        Raises SchemaError if a requested method is not offered.
        """
        return self._choice[0]

    @property
    def absent(self) -> str:
        """Why there is no classical method; empty if there is one, or if none is wanted."""
        return self._choice[1]

    @cached_property
    def _choice(self) -> tuple[dict[str, ClassicalMethod], str]:
        if self.only == (NONE,):
            return {}, ""
        if self.unsuited:
            return none_offered(self.unsuited, self.only, self.cells)
        return chosen(self._problem, self.setting, self.only, self.cells)

    @property
    def corrector(self) -> str | None:
        """Name of the first method that can start from a prediction; None if no method can."""
        names = (name for name, m in self.methods.items() if m.correction is not None)
        return next(names, None)

    def data(
        self, pairs: Samples, noise: InputNoise, assumed_level: float, samples: int
    ) -> Observed:
        """Data for the inversion of the first `samples` samples.

        Args:
            noise: The noise whose kind and level the methods assume.
            assumed_level: Factor that multiplies the assumed standard deviation of the noise.
        """
        setting, model = self.setting, noise.build()
        values = pairs.a[:samples, ..., 0].double().numpy()
        spread = self.source.std(pairs)
        std = assumed_level * np.stack([model.equivalent(d, setting.u, spread) for d in values])
        if setting.sensors is None:
            return Observed(values, std)
        return Observed(values[:, setting.sensors], std[:, setting.sensors])

    def invert(self, name: str, weight: float, data: Observed) -> Inverted:
        inversion = self.methods[name].with_weight(weight)
        return _timed(inversion, data.values, data.std)

    def correct(self, data: Observed, answers: np.ndarray) -> Inverted:
        """Estimates by the method `corrector`, which starts from the predictions of a model."""
        assert self.corrector is not None
        correction = self.methods[self.corrector].correction
        assert correction is not None
        return _timed(correction, data.values, data.std, answers)

    def choice(
        self, name: str, data: Observed, known: Float[np.ndarray, " samples *m"]
    ) -> ChosenWeight:
        """The regularisation weight of a method with the smallest mean error on samples with known
        targets.

        The search starts in the middle of the weights and goes on to the neighbour with the smaller
        error until none has a smaller one. If the method has only one weight, the samples are not
        used.
        """
        weights, unconverged = self.methods[name].weights, 0
        if len(weights) == 1:
            return ChosenWeight(weights[0])

        @cache
        def mean_error(at: int) -> float:
            nonlocal unconverged
            inverted = self.invert(name, weights[at], data)
            unconverged += len(inverted) - inverted.converged
            found, true = map(torch.from_numpy, (inverted.fields(known.shape[1]), known))
            errors = relative_error(found, true)[:, 0]
            failed = errors.isnan() & true.flatten(1).any(dim=1)
            return mean_defined(errors.masked_fill(failed, math.inf))

        best, at = -1, len(weights) // 2
        while at != best:
            best = at
            at = min((best, max(best - 1, 0), min(best + 1, len(weights) - 1)), key=mean_error)
        at_end = best in (0, len(weights) - 1)
        return ChosenWeight(weights[best], len(known), at_end, unconverged)

    def misfits(
        self, data: Observed, fields: Sequence[Float[np.ndarray, "n n"]]
    ) -> Float[np.ndarray, " samples"] | None:
        """Root mean square of (d - H u(a))/σ for each field a, with the data d and the deviations σ
        of their noise. H restricts the solution u(a) to the data points.

        The solver of the recipe computes u(a). The result is None if there is no noise, or if the
        equation states no map to the data.
        """
        if self._forward is None or not np.all(data.std > 0):
            return None
        solved = np.stack([self._forward(a) for a in fields])
        if self.setting.sensors is not None:
            solved = solved[:, self.setting.sensors]
        squares = ((data.values - solved) / data.std) ** 2
        return np.sqrt(squares.reshape(len(fields), -1).mean(axis=1))

    @property
    def has_forward(self) -> bool:
        """Whether the equation states the map from the target to the data."""
        return self._forward is not None

    @cached_property
    def _forward(self) -> Forward | None:
        return None if self.unsuited else self._problem.forward(self.setting.x)

    @cached_property
    def solve_seconds(self) -> float:
        """Processor time of the recipe's solver per sample; 0 if the equation has no solver."""
        if self._forward is None:
            return 0.0
        self._forward(self.setting.a[0])  # compiles
        start, few = process_time(), self.setting.a[:_TIMED]
        for a in few:
            self._forward(a)
        return (process_time() - start) / len(few)


def no_inverse_problem(experiment: Experiment, domain: Domain) -> str:
    """The reason why classical methods cannot solve an experiment; empty if they can."""
    if [[name] if isinstance(name, str) else name for name in experiment.variables] != _INVERSE:
        return f"{experiment.name} does not learn u -> a"
    if experiment.noise is not None and experiment.noise.on != "inputs":
        return "they invert noisy inputs, not noisy targets"
    if not isinstance(domain, Box):
        return f"they need points on a grid, got a {domain.kind}"
    return ""


def chosen(
    problem: Problem, setting: InverseProblem, only: Sequence[str], cells: int | None = None
) -> tuple[dict[str, ClassicalMethod], str]:
    """The methods that an equation offers, or those of the names `only`; and why there is none.

    Raises SchemaError if a requested method is not offered.
    """
    try:
        offered = problem.inversions(setting)
    except SchemaError as refusal:
        return none_offered(str(refusal), only, cells)
    for name in only:
        if name not in offered:
            known = ", ".join(map(repr, (*offered, NONE)))
            raise SchemaError(f"unknown method {name!r}: known: {known}")
    return {name: offered[name] for name in only or offered}, ""


def none_offered(
    reason: str, only: Sequence[str], cells: int | None
) -> tuple[dict[str, ClassicalMethod], str]:
    """No method, with the reason. Raises SchemaError if methods, or their cells, are requested."""
    requested = f"--method {only[0]!r}" if only else "--cells" if cells is not None else ""
    if requested:
        raise SchemaError(f"{requested}: there are no classical methods: {reason}")
    return {}, reason


def check_methods(experiment: Experiment, only: tuple[str, ...], cells: int | None) -> None:
    """Raise SchemaError if the recipe of an experiment does not offer a requested method.

    Nothing is generated: the equation names its methods for a setting without samples.
    """
    if only == (NONE,):
        return
    problem, data = experiment.data.load_recipe().problem, experiment.data
    if reason := no_inverse_problem(experiment, problem.domain):
        none_offered(reason, only, cells)
        return
    assert isinstance(problem.domain, Box)
    averaged = problem.domain.grid == "cell"
    if cells is not None and not averaged:
        raise SchemaError(f"--cells: recipe {data.recipe} holds no averages over cells")
    estimated = cells or data.finest_resolution
    where = f"recipe {data.recipe}"
    subsample = Subsample.of(
        problem.domain, data.finest_resolution, estimated if averaged else None, where
    )
    x = subsample.domain.grids[0].x if isinstance(subsample.domain, Box) else np.empty(0)
    a, u = (np.empty((0, *[n] * problem.domain.dim)) for n in (estimated, data.finest_resolution))
    chosen(problem, InverseProblem(x, a, u), only, cells)


def on_cells(a: Float[np.ndarray, " *cells"], cells: int) -> Float[np.ndarray, " *fewer"]:
    """Averages of `a` over coarser cells, with `cells` cells along each axis."""
    weights = averaging_weights(len(a), cells)
    for axis in range(a.ndim):
        a = np.moveaxis(np.tensordot(weights, a, axes=(1, axis)), 0, axis)
    return a


def _timed(invert: Callable[..., Estimate], *arguments: np.ndarray) -> Inverted:
    samples = list(zip(*arguments, strict=True))
    invert(*samples[0])  # computes what all samples share
    start = process_time()
    estimates = tuple(invert(*sample) for sample in samples)
    return Inverted(estimates, (process_time() - start) / len(estimates))
