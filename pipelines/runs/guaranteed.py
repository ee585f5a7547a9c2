"""Bounds of the errors of predictions, which the store's equation proves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from operators.data import Samples
from pdegen.equations.base import Problem, SampleError
from pdegen.equations.guarantee import Guarantee
from pdegen.numerics.device import samples_at_once
from pdegen.numerics.failure import SolveError
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, open_sealed

_AT_ONCE = 64  # samples, at most


@dataclass(frozen=True)
class Guaranteed:
    """The guarantee of an equation for predictions of samples of its store."""

    store: Store
    problem: Problem
    guarantee: Guarantee
    inputs: tuple[str, ...]
    target: str

    @classmethod
    def of(cls, pairs: Samples) -> Guaranteed:
        """For predictions of the targets of these samples.

        Raises:
            SchemaError: If the equation offers none, or they are not of all points as they were
                solved; says why.
        """
        source = pairs.source
        store = open_sealed(source["url"])
        inputs, targets = (_names(source[role]) for role in ("input", "target"))
        if not store.said.recipe.problem:
            raise SchemaError(f"{store.url}: no bound of errors for data that were imported")
        recipe = Recipe.parse(store.attributes["recipe"], store.url)
        try:
            guarantee = recipe.problem.guarantee(inputs, ", ".join(targets))
        except SchemaError as refusal:
            raise SchemaError(f"{store.url}: {refusal}") from None
        whole, asked = recipe.problem.resolution, source["resolution"]
        if source["target_resolution"] is not None or asked != whole:
            raise SchemaError(
                f"{store.url}: bounds are at the resolution {whole} of the store, "
                f"got {source['target_resolution'] or asked}"
            )
        return cls(store, recipe.problem, guarantee, inputs, targets[0])

    def added(self, dataset: xr.Dataset) -> tuple[xr.Dataset, str]:
        """Predictions with the bounds of their errors beside them, and a sentence for people.

        Raises:
            SampleError: If a sample has no bound.
        """
        name, numbers = self.target, np.asarray(dataset["sample"])
        p, parts = dataset[name].to_numpy(), list[dict[str, np.ndarray]]()
        size = min(_AT_ONCE, samples_at_once(4 * self.problem.needed))
        for start in range(0, len(p), size):
            rows = numbers[start : start + size]
            there = range(int(rows[0]), int(rows[-1]) + 1)
            inputs = {name: self.store.values(name, there)[rows - rows[0]] for name in self.inputs}
            try:
                parts.append(self.guarantee.bounds(inputs, p[start : start + size]))
            except SolveError as failure:
                raise SampleError(int(rows[failure.row]), failure.reason) from failure
        found = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        dataset = dataset.assign({
            f"{name}_bound_{key}": ("sample", values, {
                "long_name": f"guaranteed bound of {self.guarantee.sentences[key]}"})
            for key, values in found.items()
        })  # fmt: skip
        values, headline = found[self.guarantee.headline], self.guarantee.headline
        return dataset, (
            f"guaranteed {headline.replace('_', ' ')} error of {name}, {len(values)} samples: "
            f"median {np.median(values):.3e}, worst {values.max():.3e}"
        )


def _names(named: str | list[str]) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else (*named,)
