"""The classical inversions that a store's equation offers, on the data of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import process_time

import numpy as np
import torch
from jaxtyping import Bool, Float

from operators.data import Samples, averaging_weights
from operators.norms import mean_defined, relative_error
from pdegen.equations.base import Problem
from pdegen.inverse.setting import ClassicalMethod, Estimate, Forward, Setting
from pdegen.recipe import Recipe
from pdegen.sampling.noise import SensorNoise
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.physics import domain_of
from pipelines.config.registry import InputNoise
from pipelines.runs.data import Source

TUNED_ON = 2  # validation samples that choose the weight of a classical inversion
KNOWN = 200  # training samples, at most, that a classical inversion may look at
_TIMED = 5  # solves


@dataclass(frozen=True)
class Inverted:
    """What a classical inversion found of some samples.

    Args:
        seconds: Processor time of a sample, one after another.
    """

    estimates: tuple[Estimate, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def solves(self) -> float:
        return float(np.mean([estimate.solves for estimate in self.estimates]))

    def fields(self, cells: int) -> Float[np.ndarray, " samples *cells"]:
        """On the cells of the target, m an axis."""
        return np.stack([on_cells(estimate.a, cells) for estimate in self.estimates])


@dataclass(frozen=True)
class Observed:
    """What a classical inversion takes of some samples."""

    values: Float[np.ndarray, " samples *data"]
    deviation: Float[np.ndarray, " samples *data"]

    @property
    def first(self) -> Observed:
        return Observed(self.values[:1], self.deviation[:1])


@dataclass(frozen=True)
class Inversions:
    """Classical inversions of noisy inputs.

    Args:
        only: The methods, by name; by default all that the equation offers.
        cells: Of an axis, on which they find the target; by default as many as the data have
            points. Where the store has points that are no cells, they find it at those of the data.
    """

    source: Source
    only: tuple[str, ...] = ()
    cells: int | None = None

    @cached_property
    def setting(self) -> Setting:
        """The points of the data, and training samples."""
        count = min(KNOWN, len(self.source.stored("train")))
        known = self._on_cells({"data.samples": count}).samples("train", noise=None).resident()
        x = known.points.flatten(1, -2)[:, 0, 0] if known.dim > 1 else known.points[:, 0]
        a, u = (values[..., 0].double().numpy() for values in (known.u, known.a))
        return Setting(x.double().numpy(), a, u, self._seen(u.shape[1:]))

    def _seen(self, shape: tuple[int, ...]) -> Bool[np.ndarray, "..."] | None:
        """Points that have a sensor; None where all have."""
        noise = self.source.experiment.noise
        model = None if noise is None else noise.build()
        if noise is None or not isinstance(model, SensorNoise):
            return None
        return model.observed(shape, noise.seed)

    def _on_cells(self, overrides: Mapping[str, object]) -> Source:
        experiment, changed = self.source.experiment, {**overrides}
        if set(domain_of(open_sealed(self.source.url)).kinds) == {"cell"}:
            changed["data.target_resolution"] = self.cells or experiment.data.resolution
        elif self.cells is not None:
            raise SchemaError(f"cells: {self.source.url} holds no averages over cells")
        return Source(self.source.url, experiment.with_overrides(changed))

    @cached_property
    def truth(self) -> Float[np.ndarray, "samples n n"]:
        """Targets of the test samples on the cells of the methods."""
        return self._on_cells({}).samples("test", noise=None).resident().u[..., 0].double().numpy()

    @property
    def _problem(self) -> Problem:
        held = open_sealed(self.source.url)
        if not held.metadata.recipe.problem:
            raise SchemaError(
                f"study noise: {self.source.url} has no recipe, and classical methods need the law "
                "of what they look for"
            )
        return Recipe.parse(held.raw_attributes["recipe"], self.source.url).problem

    @cached_property
    def methods(self) -> dict[str, ClassicalMethod]:
        """By name. Raises SchemaError if the equation does not offer a method, or none for this
        law."""
        try:
            offered = self._problem.inversions(self.setting)
        except SchemaError as refusal:
            raise SchemaError(f"study noise: {self.source.url}: {refusal}") from refusal
        for name in self.only:
            if name not in offered:
                raise SchemaError(
                    f"method: unknown {name!r}, known: {', '.join(map(repr, offered))}"
                )
        return {name: offered[name] for name in self.only or offered}

    @property
    def corrector(self) -> str | None:
        """The first method that can start at the answer of a model."""
        offered = (name for name, m in self.methods.items() if m.correction is not None)
        return next(offered, None)

    def data(
        self, pairs: Samples, noise: InputNoise, assumed_level: float, samples: int
    ) -> Observed:
        """Of the first samples.

        Args:
            noise: What is told of their noise: a kind and a level.
            assumed_level: A multiple of its deviation that is told.
        """
        setting, model = self.setting, noise.build()
        values = pairs.a[:samples, ..., 0].double().numpy()
        spread = self.source.deviation(pairs)
        deviation = assumed_level * np.stack(
            [model.equivalent(d, setting.u, spread) for d in values]
        )
        if setting.seen is None:
            return Observed(values, deviation)
        return Observed(values[:, setting.seen], deviation[:, setting.seen])

    def invert(self, name: str, weight: float, data: Observed) -> Inverted:
        inversion = self.methods[name].with_weight(weight)
        return _timed(inversion, data.values, data.deviation)

    def correct(self, data: Observed, answers: np.ndarray) -> Inverted:
        """What steps of a method make of the answers of a model for these data."""
        assert self.corrector is not None
        correction = self.methods[self.corrector].correction
        assert correction is not None
        return _timed(correction, data.values, data.deviation, answers)

    def weight(self, name: str, data: Observed, known: Float[np.ndarray, "samples m m"]) -> float:
        """The weight with the smallest mean error on samples whose targets are known; only a method
        with several weights looks at them."""
        weights = self.methods[name].weights
        if len(weights) == 1:
            return weights[0]

        def mean_error(weight: float) -> float:
            fields = self.invert(name, weight, data).fields(known.shape[1])
            errors = relative_error(torch.from_numpy(fields), torch.from_numpy(known))
            return mean_defined(errors[:, 0])

        return min(weights, key=mean_error)

    def misfits(
        self, data: Observed, found: Sequence[Float[np.ndarray, "n n"]]
    ) -> Float[np.ndarray, " samples"] | None:
        """Root mean square of (d - H u(a))/σ, by the solver of the recipe; None without noise, or
        where the equation offers no solver."""
        if self._forward is None or not np.all(data.deviation > 0):
            return None
        solved = np.stack([self._forward(a) for a in found])
        if self.setting.seen is not None:
            solved = solved[:, self.setting.seen]
        squares = ((data.values - solved) / data.deviation) ** 2
        return np.sqrt(squares.reshape(len(found), -1).mean(axis=1))

    @cached_property
    def _forward(self) -> Forward | None:
        return self._problem.forward(self.setting.x)

    @cached_property
    def solve_seconds(self) -> float:
        """Processor time in which the recipe's solver solves for a known sample."""
        if self._forward is None:
            return 0.0
        self._forward(self.setting.a[0])  # compiles
        start, few = process_time(), self.setting.a[:_TIMED]
        for a in few:
            self._forward(a)
        return (process_time() - start) / len(few)


def on_cells(a: Float[np.ndarray, " *cells"], cells: int) -> Float[np.ndarray, " *fewer"]:
    """Averages over so many cells of each axis."""
    weights = averaging_weights(len(a), cells)
    for axis in range(a.ndim):
        a = np.moveaxis(np.tensordot(weights, a, axes=(1, axis)), 0, axis)
    return a


def _timed(invert: Callable[..., Estimate], *given: np.ndarray) -> Inverted:
    samples = list(zip(*given, strict=True))
    if len(samples) > 1:
        invert(*samples[0])  # prepares what all samples share
    start = process_time()
    found = tuple(invert(*one) for one in samples)
    return Inverted(found, (process_time() - start) / len(found))
