"""The functions of the package: list recipes, generate, open and verify datasets."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np
import xarray as xr

from pdegen.generation import generate as generating
from pdegen.generation import verify as verifying
from pdegen.generation.verify import Verification
from pdegen.plugins import load_plugin as run_file
from pdegen.recipe import Recipe, default_store, load_recipe, recipe_names
from pdegen.store.reading import StoreError, open_sealed

PathOrUrl = str | PathLike[str]


def recipes() -> dict[str, str]:
    """A dictionary that maps the names of the shipped recipes to their headlines.

    Example:
        >>> recipes()["burgers-quick"]
        'Burgers: u(0) -> u at t = 1/2π, ν = 0.1/2π, on 256 points; a small burgers-r10: seconds'
    """
    return {name: load_recipe(name).headline for name in recipe_names()}


def load_plugin(file: PathOrUrl) -> None:
    """Run a Python file that registers equations, operators, optimisers, schedules or losses, like
    the option --plugin of the commands.

    Stores of the file's equations, and checkpoints of its operators, record the SHA-256 of the
    file. If a program imports the file as a module instead, only programs with that import can
    verify such stores and load such checkpoints.

    Args:
        file: Path of the file.

    Raises:
        SchemaError: If the file cannot be read, raises an error, or registers nothing.

    Example:
        >>> load_plugin("nowhere.py")
        Traceback (most recent call last):
        pdegen.schema.SchemaError: cannot read nowhere.py: no such file or directory
    """
    run_file(fspath(file))


def generate(
    recipe: PathOrUrl | Recipe,
    *,
    out: PathOrUrl | None = None,
    samples: int | None = None,
    resolution: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    device: str | None = None,
    **options: Any,
) -> str:
    """Write the dataset of a recipe to a sealed store.

    Args:
        recipe: Name of a recipe, a TOML file, or a `pdegen.recipe.Recipe`.
        out: Path or URL of the store; by default data/NAME-FINGERPRINT.zarr.
        samples: Number of samples.
        resolution: The key `resolution` of the equation, usually the number of output points along
            each axis.
        overrides: Values that replace those of the recipe. It maps dotted keys to values, such as
            {"viscosity": 0.02}.
        device: "cuda" to solve on a GPU; by default NumPy on the CPU.
        options: The fields of `pdegen.generation.generate.Options`: workers, scheduler, resume,
            overwrite, take_over, skip_failed, progress.

    Returns:
        Path or URL of the store.

    Raises:
        SchemaError: If the recipe or a key is unknown, or a value is impossible.
        StoreError, OSError, SampleError, ...: See `pdegen.generation.generate.write`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     generate("burgers-quick", samples=8, out=f"{folder}/s.zarr").removeprefix(folder)
        '/s.zarr'
    """
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(fspath(recipe))
    sizes = {"samples": samples, "problem.resolution": resolution}
    given = {key: value for key, value in sizes.items() if value is not None}
    recipe = recipe.with_overrides({**(overrides or {}), **given})
    url = default_store(recipe) if out is None else fspath(out)
    return generating.generate(recipe, url, device, **options).url


def open(url: PathOrUrl, split: str | None = None) -> xr.Dataset:
    """Open a sealed store as an xarray dataset. Its values are read lazily.

    Args:
        url: Path or URL of the store.
        split: Name of a split, such as "train". The dataset then has the samples of this split,
            without skipped samples. By default, the dataset has all samples.

    Raises:
        StoreError: If there is no sealed store, or no such split.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = generate("burgers-quick", samples=8, out=f"{folder}/s.zarr")
        ...     open(store, "test").u.sel(x=0.5).shape
        (1,)
    """
    store = open_sealed(fspath(url))
    dataset = xr.open_zarr(store.url)
    if split is None:
        return dataset
    splits = store.metadata.splits
    if split not in splits:
        raise StoreError(f"{store.url} has no split {split!r}: known are {', '.join(splits)}")
    samples = np.setdiff1d(np.arange(*splits[split]), list(store.skipped))
    return dataset.isel(sample=samples)


def verify(url: PathOrUrl, *, deep: int = 0) -> Verification:
    """Check a sealed store: its digests, finite values, statistics, and the law of its recipe.

    Args:
        url: Path or URL of the store.
        deep: Number of random samples that are computed again and compared bit for bit.

    Returns:
        The result. Its list `faults` is empty if the store is valid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     verify(generate("burgers-quick", samples=8, out=f"{folder}/s.zarr")).faults
        []
    """
    return verifying.verify(fspath(url), deep=deep)
