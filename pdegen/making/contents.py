"""From a recipe to what a store of it holds."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from pdegen.recipe import Recipe
from pdegen.store.layout import Layout
from pdegen.store.variables import Coordinate, positions
from pdegen.version import __version__


def layout(recipe: Recipe, device: str | None = None) -> Layout:
    """Variables, coordinates and attributes of the recipe's store, solved on this device."""
    problem = recipe.problem
    number = Coordinate(
        "sample", ("sample",), np.arange(recipe.samples), {"long_name": "number of the sample"}
    )
    return Layout(
        samples=recipe.samples,
        shard=min(recipe.shard, recipe.samples),
        variables=problem.variables(),
        coordinates=(number, *positions(problem.domain), *problem.coordinates()),
        attributes={
            "title": recipe.summary,
            "equation": problem.formula,
            **({"physics": said} if (said := problem.physics().attributes()) else {}),
            "recipe": recipe.model_dump(mode="json"),
            "fingerprint": recipe.fingerprint,
            "splits": {k: list(v) for k, v in recipe.splits.ranges(recipe.samples).items()},
            "provenance": {**provenance(), **({"device": device} if device else {})},
        },
        codec=recipe.codec,
        domain=problem.domain,
    )


def compute(recipe: Recipe, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
    """The values of these samples for each variable of the layout.

    Raises:
        SampleError: If a sample cannot be solved or is not finite.
    """
    return recipe.problem.compute(recipe.seed, samples, device)


def provenance() -> dict[str, Any]:
    """The software that makes it; never when or where, so that two makings are the same bytes."""
    return {
        "pdegen": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: _version(name) for name in ("numpy", "scipy", "zarr", "dask")},
    }


@cache
def _version(name: str) -> str:
    """Of an installed package; to look it up takes milliseconds."""
    return version(name)
