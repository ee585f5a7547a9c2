"""The classical inversions that a store's equation offers, on the data of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from time import process_time

import numpy as np
from jaxtyping import Float

from operators.data import Pairs, averaging_weights
from operators.norms import relative_l2
from pdegen.inverse.setting import ClassicalMethod, Correction, Estimate, Setting
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.store import open_sealed
from pipelines.runs.data import Source

TUNED_ON = 2  # validation samples that choose the weight of a classical inversion
KNOWN = 200  # training samples, at most, that a classical inversion may look at


@dataclass(frozen=True)
class Inverted:
    """What a classical inversion found of some samples.

    Args:
        estimates: One of each sample.
        seconds: Processor time of a sample, one after another.
    """

    estimates: tuple[Estimate, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def solves(self) -> float:
        """Of a sample, in the mean."""
        return float(np.mean([estimate.solves for estimate in self.estimates]))

    def fields(self, cells: int) -> Float[np.ndarray, "samples m m"]:
        """On the cells of the target, m an axis."""
        weights = averaging_weights(len(self.estimates[0].a), cells)
        return np.stack([weights @ estimate.a @ weights.T for estimate in self.estimates])


@dataclass(frozen=True)
class Inversions:
    """Classical inversions of noisy inputs.

    Args:
        source: The data of the experiment.
        only: The methods, by name; by default all that the equation offers.
        learned: Others, that the equation does not offer.
    """

    source: Source
    only: tuple[str, ...] = ()
    learned: Mapping[str, ClassicalMethod] = field(default_factory=dict[str, ClassicalMethod])

    @cached_property
    def methods(self) -> dict[str, ClassicalMethod]:
        """By name.

        Raises:
            SchemaError: If the equation does not offer a method.
        """
        experiment, held = self.source.experiment, open_sealed(self.source.url)
        n = experiment.data.resolution
        count = min(KNOWN, len(self.source.streamed("train")))
        same = {"data.target_resolution": n, "data.samples": count}
        known = Source(self.source.url, experiment.with_overrides(same)).clean("train")
        x = known.points[:, 0, 0].double().numpy()
        a, u = (values[..., 0].double().numpy() for values in (known.u, known.a))
        problem = Recipe.parse(held.attributes["recipe"], self.source.url).problem
        offered = problem.inversions(Setting(x, a, u))
        for name in self.only:
            if name not in offered:
                raise SchemaError(f"method: unknown {name!r}, known: {', '.join(offered)}")
        return {**{name: offered[name] for name in self.only or offered}, **self.learned}

    @property
    def correction(self) -> Correction | None:
        """Of the first method that has one."""
        offered = [m.correction for m in self.methods.values() if m.correction is not None]
        return offered[0] if offered else None

    def invert(
        self, name: str, weight: float, pairs: Pairs, deviation: np.ndarray, samples: int
    ) -> Inverted:
        """What a method makes of the first samples, told the deviation of their noise."""
        inversion = self.methods[name].with_weight(weight)
        return _timed(lambda data, place: inversion(data, deviation), _data(pairs, samples))

    def correct(self, pairs: Pairs, deviation: np.ndarray, answers: np.ndarray) -> Inverted:
        """What steps of a method make of the answers of a model for the first samples."""
        correction = self.correction
        assert correction is not None
        return _timed(
            lambda data, place: correction(data, deviation, answers[place]),
            _data(pairs, len(answers)),
        )

    def weight(self, name: str, validation: Pairs, deviation: np.ndarray) -> float:
        """The weight with the smallest mean error on the first validation samples, which only a
        method with several weights looks at."""
        weights = self.methods[name].weights
        if len(weights) == 1:
            return weights[0]
        known = validation.u[:TUNED_ON, ..., 0].double()

        def mean_error(weight: float) -> float:
            found = self.invert(name, weight, validation, deviation, TUNED_ON)
            fields = known.new_tensor(found.fields(known.shape[1]))
            return float(relative_l2(fields, known).mean())

        return min(weights, key=mean_error)


def _data(pairs: Pairs, samples: int) -> np.ndarray:
    return pairs.a[:samples, ..., 0].double().numpy()


def _timed(invert: Callable[[np.ndarray, int], Estimate], data: np.ndarray) -> Inverted:
    start = process_time()
    found = tuple(invert(one, place) for place, one in enumerate(data))
    return Inverted(found, (process_time() - start) / len(found))
