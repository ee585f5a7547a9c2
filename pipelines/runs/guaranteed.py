"""Guaranteed error bounds of predictions, from the equation of their store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from operators.data import Samples
from operators.data.opening import names_of
from pdegen.equations.base import Guarantee, Problem, SampleError
from pdegen.numerics.device import samples_at_once
from pdegen.numerics.errors import SolveError
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, open_sealed

_BLOCK = 64  # largest number of samples per block


@dataclass(frozen=True)
class Guaranteed:
    """A guaranteed error bound for predictions. The equation of the store provides the bound."""

    store: Store
    problem: Problem
    guarantee: Guarantee
    inputs: tuple[str, ...]
    target: str

    @classmethod
    def of(cls, pairs: Samples) -> Guaranteed:
        """The error bound for predictions of the targets of `pairs`. Raises SchemaError if the
        equation offers no bound, or if the resolution of `pairs` is not that of the store."""
        source = pairs.source
        store = open_sealed(source["url"])
        inputs, targets = (tuple(names_of(source[role])) for role in ("input", "target"))
        if not store.metadata.recipe.problem:
            raise SchemaError(f"{store.url}: imported data have no error bound")
        recipe = Recipe.parse(store.raw_attributes["recipe"], store.url)
        try:
            guarantee = recipe.problem.guarantee(inputs, ", ".join(targets))
        except SchemaError as refusal:
            raise SchemaError(f"{store.url}: {refusal}") from None
        stored, resolution = recipe.problem.resolution, source["resolution"]
        if source["target_resolution"] is not None or resolution != stored:
            raise SchemaError(
                f"{store.url}: bounds need the resolution {stored} of the store, "
                f"got {source['target_resolution'] or resolution}"
            )
        return cls(store, recipe.problem, guarantee, inputs, targets[0])

    def added(self, dataset: xr.Dataset) -> tuple[xr.Dataset, str]:
        """Add error bounds to a dataset of predictions. Returns the dataset and a line that
        summarises the bounds. Raises SampleError if the bound of a sample cannot be computed."""
        name, numbers = self.target, np.asarray(dataset["sample"])
        p, parts = dataset[name].to_numpy(), list[dict[str, np.ndarray]]()
        size = min(_BLOCK, samples_at_once(4 * self.problem.floats_per_sample))
        for start in range(0, len(p), size):
            rows = numbers[start : start + size]
            span = range(int(rows[0]), int(rows[-1]) + 1)
            inputs = {name: self.store.values(name, span)[rows - rows[0]] for name in self.inputs}
            try:
                parts.append(self.guarantee.bounds(inputs, p[start : start + size]))
            except SolveError as failure:
                raise SampleError(int(rows[failure.row]), failure.reason) from failure
        bounds = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        dataset = dataset.assign({
            f"{name}_bound_{key}": ("sample", values, {
                "long_name": f"guaranteed bound of {self.guarantee.sentences[key]}"})
            for key, values in bounds.items()
        })  # fmt: skip
        values, headline = bounds[self.guarantee.headline], self.guarantee.headline
        return dataset, (
            f"guaranteed {headline.replace('_', ' ')} error of {name}, {len(values)} samples: "
            f"median {np.median(values):.3e}, worst {values.max():.3e}"
        )
