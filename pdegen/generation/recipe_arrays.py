"""The layout of the store of a recipe, and the values of its samples."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from pdegen.equations.base import Problem, SampleError
from pdegen.numerics.device import one_thread
from pdegen.plugins import error_in_plugin, error_summary, path_of, plugin_of
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.software import versions
from pdegen.store.format import Json
from pdegen.store.layout import Coordinate, Layout, positions
from pdegen.version import __version__


def layout(
    recipe: Recipe, device: str | None = None, software: Mapping[str, str] = MappingProxyType({})
) -> Layout:
    """The layout of the store of a recipe.

    Args:
        recipe: The recipe.
        device: PyTorch device of the solver; None for NumPy.
        software: Versions of further packages that determine the numbers.
    """
    problem = recipe.problem
    source = plugin_of(type(problem))
    with one_thread():
        coordinates = (*positions(problem.domain), *problem.coordinates())
    number = Coordinate(
        "sample", ("sample",), np.arange(recipe.samples), {"long_name": "number of the sample"}
    )
    return Layout(
        samples=recipe.samples,
        shard=min(recipe.shard, recipe.samples),
        variables=problem.variables(),
        coordinates=(number, *coordinates),
        attributes={
            "title": recipe.headline,
            "equation": problem.formula,
            **({"physics": physics} if (physics := problem.physics().attributes()) else {}),
            "recipe": recipe.model_dump(mode="json"),
            "fingerprint": recipe.fingerprint,
            **({"equation_file": source.attributes()} if source else {}),
            "splits": {k: list(v) for k, v in recipe.splits.ranges(recipe.samples).items()},
            "provenance": {**provenance(software), **({"device": device} if device else {})},
        },
        codec=recipe.codec,
        domain=problem.domain,
    )


def compute(recipe: Recipe, samples: range, device: str | None = None) -> dict[str, np.ndarray]:
    """Compute the values of samples. Returns a dictionary that maps the names of variables to
    arrays. Raises SampleError if a sample cannot be solved or is not finite. Raises SchemaError if
    the code of a user's equation raises another error, or returns values that do not match its
    variables."""
    problem = recipe.problem
    path = path_of(type(problem))
    if path is None:
        values = problem.compute(recipe.seed, samples, device)
        for name, array in values.items():
            _check_finite(name, array, samples)
        return values
    where = f"equation {problem.equation_name}, {_numbers(samples)}"
    try:
        values = problem.compute(recipe.seed, samples, device)
    except (SampleError, SchemaError, OSError, MemoryError):
        raise
    except Exception as error:  # of a user's code
        message = error_in_plugin(error) or f"{path}: {error_summary(error)}"
        raise SchemaError(f"{message} ({where}; --debug shows the traceback)") from error
    return _checked(problem, samples, values, f"{path}: solve of {where}")


def probe(recipe: Recipe, device: str | None = None, failures: bool = False) -> None:
    """Solve the first sample of a user's equation, to find mistakes in its code early.

    Args:
        recipe: The recipe; equations of pdegen are not probed.
        device: PyTorch device of the solver; None for NumPy.
        failures: Whether samples that cannot be computed are allowed.

    Raises:
        SchemaError: If the code raises an error, or returns values that do not match its variables.
    """
    problem = recipe.problem
    path = path_of(type(problem))
    if path is None:
        return
    try:
        compute(recipe, range(1), device)
    except SampleError as error:
        if not failures:
            raise SchemaError(f"{path}: equation {problem.equation_name}, {error}") from error
    try:
        problem.checks_of_store()
    except Exception as error:  # of a user's code
        message = error_in_plugin(error) or f"{path}: {error_summary(error)}"
        raise SchemaError(f"{message} (the law of equation {problem.equation_name})") from error


def _checked(problem: Problem, samples: range, values: object, where: str) -> dict[str, np.ndarray]:
    """Convert values to the dtypes of the variables. Raises SchemaError if the names, shapes or
    dtypes do not match the variables."""
    variables = {variable.name: variable for variable in problem.variables()}
    if not isinstance(values, Mapping) or values.keys() != variables.keys():
        names = (
            ", ".join(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        )
        raise SchemaError(
            f"{where} gives {names or 'nothing'}: expected a dictionary of arrays for "
            f"{', '.join(variables)}"
        )
    stored = dict[str, np.ndarray]()
    for name, variable in variables.items():
        try:
            array, expected = np.asarray(values[name]), (len(samples), *variable.shape)
        except ValueError as error:  # rows of different lengths
            raise SchemaError(f"{where} gives {name} that is no array: {error}") from error
        if array.shape != expected:
            raise SchemaError(f"{where} gives {name} of shape {array.shape}: expected {expected}")
        if not np.can_cast(array.dtype, variable.dtype, "same_kind"):
            raise SchemaError(
                f"{where} gives {name} of type {array.dtype}: expected {variable.dtype}"
            )
        with np.errstate(over="ignore"):
            stored[name] = array.astype(variable.dtype)
        _check_finite(name, stored[name], samples)
    return stored


def _check_finite(name: str, values: np.ndarray, samples: range) -> None:
    finite = np.isfinite(values).reshape(len(samples), -1).all(axis=1)
    if not finite.all():
        reason = f"{name} is not finite, or exceeds {values.dtype}"
        raise SampleError(samples[int(np.argmin(finite))], reason)


def _numbers(samples: range) -> str:
    first, last = samples[0], samples[-1]
    return f"sample {first}" if first == last else f"samples {first} to {last}"


def provenance(software: Mapping[str, str] = MappingProxyType({})) -> Json:
    """Versions of the software that makes a store.

    The time, commit, processor and scheduler are not included, so that a regenerated store has the
    same bytes. For each run, they are written to `log/`.
    """
    return {
        "pdegen": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        **versions("numpy", "zarr"),
        **software,
    }
