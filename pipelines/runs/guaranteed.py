"""Bounds of the errors of predictions, and their polishing, by what the store's equation offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
import xarray as xr

from operators.data import Samples
from pdegen.equations.base import Problem, SampleError
from pdegen.equations.guarantee import Guarantee
from pdegen.numerics.device import samples_at_once
from pdegen.numerics.failure import SolveError
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store.store import Store, open_sealed

Found = TypeVar("Found")
_AT_ONCE = 64  # samples, at most


def check_tolerance(rtol: float | None) -> None:
    """Raise SchemaError for a tolerance that polishing cannot have."""
    if rtol is not None and not 0 < rtol < 1:
        raise SchemaError(f"--polish is a relative residual between 0 and 1, got {rtol:g}")


@dataclass(frozen=True)
class Guaranteed:
    """The guarantee of an equation for predictions of samples of its store.

    Args:
        store, problem, guarantee: What is held, of which equation, and what that proves.
        inputs, target: Names of the variables.
    """

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
            raise SchemaError(f"{store.url}: no bound and no polishing of data that were imported")
        recipe = Recipe.parse(store.attributes["recipe"], store.url)
        try:
            guarantee = recipe.problem.guarantee(inputs, ", ".join(targets))
        except SchemaError as refusal:
            raise SchemaError(f"{store.url}: {refusal}") from None
        whole, asked = recipe.problem.resolution, source["resolution"]
        if source["target_resolution"] is not None or asked != whole:
            raise SchemaError(
                f"{store.url}: bounds and polishing are at the resolution {whole} of the store, "
                f"got {source['target_resolution'] or asked}"
            )
        return cls(store, recipe.problem, guarantee, inputs, targets[0])

    def added(
        self, dataset: xr.Dataset, bound: bool, rtol: float | None, device: torch.device
    ) -> tuple[xr.Dataset, tuple[str, ...]]:
        """Predictions with bounds and polished functions beside them, and sentences for people.

        Raises:
            SampleError: If a sample has no bound, or does not reach the tolerance.
        """
        p, said = dataset[self.target], list[str]()
        numbers = np.asarray(dataset["sample"])
        if bound:
            dataset, line = self._bounded(dataset, self.target, numbers)
            said.append(line)
        if rtol is not None:
            name, on = f"{self.target}_polished", None if device.type == "cpu" else str(device)
            polished = partial(self.guarantee.polished, rtol=rtol, device=on)
            parts = self._each(polished, numbers, p.to_numpy())
            u, residual, iterations = (np.concatenate(part) for part in zip(*parts, strict=True))
            dataset = dataset.assign({
                name: (p.dims, u, {"long_name": f"{self.target} solved from the prediction"}),
                f"{name}_residual": ("sample", residual, {"long_name": "relative residual"}),
                f"{name}_iterations": ("sample", iterations),
            })  # fmt: skip
            said.append(
                f"{self.target} polished to {rtol:g}: largest residual {residual.max():.3e}, "
                f"{np.median(iterations):g} iterations in the median"
            )
            if bound:
                dataset, line = self._bounded(dataset, name, numbers)
                said.append(line)
        return dataset, tuple(said)

    def _bounded(
        self, dataset: xr.Dataset, name: str, numbers: np.ndarray
    ) -> tuple[xr.Dataset, str]:
        """With the bounds of a function of the dataset, and what is said of them."""
        parts = self._each(self.guarantee.bounds, numbers, dataset[name].to_numpy())
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

    def _each(
        self,
        function: Callable[[dict[str, np.ndarray], np.ndarray], Found],
        numbers: np.ndarray,
        p: np.ndarray,
    ) -> list[Found]:
        """What a function makes of inputs as they are stored and predictions, some at a time."""
        found = list[Found]()
        size = min(_AT_ONCE, samples_at_once(4 * self.problem.needed))
        for start in range(0, len(p), size):
            rows = numbers[start : start + size]
            there = range(int(rows[0]), int(rows[-1]) + 1)
            inputs = {name: self.store.values(name, there)[rows - rows[0]] for name in self.inputs}
            try:
                found.append(function(inputs, p[start : start + size]))
            except SolveError as failure:
                raise SampleError(int(rows[failure.row]), failure.reason) from failure
        return found


def _names(named: str | list[str]) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else (*named,)
