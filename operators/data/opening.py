"""Open a sealed store as pairs of input and target functions."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operators.data.errors import DataError
from operators.data.resolution import Resolution, Subsample
from operators.data.samples import Samples, quadrature
from operators.data.streaming import Streamed, shards_within
from operators.data.variables import (
    Stacked,
    StoredVariable,
    array_of,
    names_of,
    open_store,
)
from pdegen.domains import Box, Domain
from pdegen.store.format import ParameterLaw
from pdegen.store.reading import Store, StoreError

BUFFER_BYTES = 2**28  # size of the shuffle buffer of streamed samples
_THREADS = 4  # largest number of threads that read


def open_pairs(
    url: str,
    split: str | tuple[int, int],
    resolution: Resolution | None = None,
    *,
    input: str | Sequence[str] | None = None,
    target: str | Sequence[str] | None = None,
    target_resolution: Resolution | None = None,
    level: float | None = None,
    buffer: int = BUFFER_BYTES,
    weighted: bool = True,
) -> Samples:
    """Open the samples of a split. Their values are read from the store during iteration.

    Samples that the store lists as skipped are left out. `read_pairs` reads all values at once.

    Args:
        url: URL or path of a sealed store.
        split: Name of a split, or the pair (first sample, last sample + 1).
        resolution: Number of points along the first axis, or a tuple with a number for each axis.
            By default, all n points of each axis are used. A smaller number keeps every r-th
            point, without averages. The whole number r is n/resolution on a periodic axis. On other
            axes it is (n - 1)/(resolution - 1), so both ends are kept: of 421 points, 211, 141 or
            85 can be kept. A single number gives one r for all axes. Clouds keep all points.
        input, target: Name or names of the variables, which are concatenated as channels. By
            default the inputs are all functions with the role input. If no function has this
            role, the inputs are the positions of the points. The default target is the first
            function with the role target. In a store without roles, the input is `a` and the
            target is `u`.
        target_resolution: Number of cells along the first axis, or a tuple with a number for each
            axis. The target is averaged over each cell, and its points are the centres of the
            cells. A single number coarsens all axes by the same ratio. By default the target has
            the points of the input, without averages.
        level: Noise level; required if a variable is stored at several noise levels.
        buffer: Size of the shuffle buffer in bytes; it has room for at least one shard.
        weighted: Whether points of meshes and clouds have quadrature weights; otherwise all points
            count alike.

    Raises:
        DataError: If the store is missing, unfinished, invalid or of another kind, or if no sample
            is left. Also if the split, a variable or the noise level is unknown, if a resolution
            does not fit the store, or if the variables have different axes.
    """
    store = open_store(str(url))
    samples = _sample_numbers(store, split)
    if input is None:
        input = _of_role(store, "input")
        input = input[0] if len(input) == 1 else input
    if target is None:
        target = _of_role(store, "target")[0]
    inputs, targets = names_of(input), names_of(target)
    axes = _axes(store, inputs + targets)
    a, u = (_stacked(store, names, axes, level) for names in (inputs, targets))
    if level is not None and all(v.level is None for v in (*a.variables, *u.variables)):
        raise DataError(f"{store.url} has no noise levels, got level {level}")
    domain = _domain(store, axes)
    lines = [store.coordinates[axis] for axis in axes] if isinstance(domain, Box) else None
    subsample = Subsample.of(domain, resolution, target_resolution, store.url, lines)
    first = domain.shape[0] if resolution is None else resolution
    source = {
        "url": store.url,
        "recipe": store.metadata.recipe.name,
        "fingerprint": store.metadata.fingerprint,
        "content": store.metadata.content,
        "resolution": first if isinstance(first, int) else list(first),
        "input": input if isinstance(input, str) else inputs,
        "target": target if isinstance(target, str) else targets,
        "target_resolution": target_resolution,
        "level": level,
    }
    if laws := store.metadata.physics.parameters:
        source["parameters"] = list(laws)
    return _streamed(store, samples, a, u, domain, subsample, buffer, weighted, source)


def _streamed(
    store: Store,
    samples: np.ndarray,
    a: Stacked,
    u: Stacked,
    domain: Domain,
    subsample: Subsample,
    buffer: int,
    weighted: bool,
    source: dict[str, Any],
) -> Samples:
    """Samples that are streamed from a store, at the points of a subsample.

    The arguments `buffer` and `weighted` are those of `open_pairs`.
    """
    a, u = a.reduced(subsample.input), u.reduced(subsample.target)
    per_sample = _per_sample(store, domain, subsample)
    window = shards_within(buffer, a, u, *per_sample.values())
    shared_weight = weighted and subsample.y is None and "weight" not in per_sample
    if not weighted:
        per_sample.pop("weight", None)
    reader = Streamed(
        url=store.url, a=a, u=u, per_sample=per_sample, samples=samples, domain=subsample.domain,
        window=window, weighted=weighted, threads=_threads(store),
    )  # fmt: skip
    return Samples(
        reader=reader,
        x=subsample.x,
        y=subsample.y,
        domain=subsample.domain,
        target_domain=subsample.target_domain,
        stored_domain=subsample.stored,
        weight=quadrature(subsample.domain) if shared_weight else None,
        input_channels=a.channels,
        target_channels=u.channels,
        near=store.metadata.physics.near,
        parameter_laws=_parameter_laws(store, per_sample),
        source=source,
    )


def _threads(store: Store) -> int:
    """Number of threads that read a store: several for each core only if they wait for a server."""
    cores = len(os.sched_getaffinity(0))
    return min(_THREADS, cores) if store.objects.is_local else _THREADS


def _sample_numbers(store: Store, split: str | tuple[int, int]) -> np.ndarray:
    """Numbers of the samples in a split or in a range, without the skipped samples."""
    url, metadata = store.url, store.metadata
    if isinstance(split, str) and split not in metadata.splits:
        raise DataError(f"{url} has no split {split!r}: known are {', '.join(metadata.splits)}")
    start, stop = metadata.splits[split] if isinstance(split, str) else split
    if not 0 <= start < stop <= metadata.samples:
        raise DataError(
            f"{url} has samples 0 to {metadata.samples - 1}, got the range {start} to {stop - 1}"
        )
    samples = np.setdiff1d(np.arange(start, stop), metadata.skipped)
    if not len(samples):
        raise DataError(f"{url}: all samples {start} to {stop - 1} were skipped")
    return samples


def _domain(store: Store, axes: tuple[str, ...]) -> Domain:
    try:
        return store.domain(axes)
    except StoreError as error:
        raise DataError(str(error)) from None


def _of_role(store: Store, role: str) -> list[str]:
    """Names of the functions that have a role in the store.

    If no function has the role input, the positions of the points are the inputs. In a store
    without roles, the input is a and the target is u.
    """
    description = store.description
    names = [
        name
        for name, variable in description.variables.items()
        if variable.metadata.role == role and description.axes_of(variable)
    ]
    if not names and role == "input":
        names = [name for name, v in description.variables.items() if v.metadata.role == "geometry"]
    return names or [{"input": "a", "target": "u"}[role]]


def _axes(store: Store, names: list[str]) -> tuple[str, ...]:
    """Names of the domain axes. Raises DataError if the functions have different axes."""
    axes_of = {name: store.description.axes_of(array_of(store, name)) for name in names}
    first, shared = next(iter(axes_of.items()))
    for name, axes in axes_of.items():
        if not axes:
            raise DataError(f"{store.url}: {name} is not a function on a grid")
        if axes != shared:
            raise DataError(
                f"{store.url}: {first} is a function of {', '.join(shared)}, {name} of "
                f"{', '.join(axes)}: input and target must have the same axes"
            )
    return shared


def _stacked(
    store: Store, names: list[str], axes: tuple[str, ...] = (), level: float | None = None
) -> Stacked:
    """Variables of a store at all points, concatenated as channels."""
    return Stacked(tuple(StoredVariable.of(store, name, level, axes) for name in names))


def _per_sample(store: Store, domain: Domain, subsample: Subsample) -> dict[str, Stacked]:
    """The variables that differ by sample: positions, weights, masks and parameters.

    The keys are field names of `Batch`.
    """
    names_by_role = dict[str, list[str]]()
    for name, array in store.description.variables.items():
        names_by_role.setdefault(array.metadata.role, []).append(name)
    entries = dict[str, Stacked]()
    if domain.moves:
        positions = [*("x", "y", "z")[: domain.dim]]
        missing = [name for name in positions if name not in names_by_role.get("geometry", [])]
        if missing:
            raise DataError(f"{store.url} has no variable {missing[0]} of the role geometry")
        entries["x"] = _stacked(store, positions, domain.axes).reduced(subsample.input)
    if "weight" in names_by_role and subsample.target.keeps_all:  # weights of a part are not stored
        entries["weight"] = _stacked(store, names_by_role["weight"][:1], domain.axes)
    if "count" in names_by_role:
        entries["mask"] = _stacked(store, names_by_role["count"][:1])
    if "parameter" in names_by_role:
        entries["parameters"] = _stacked(store, names_by_role["parameter"])
    return entries


def _parameter_laws(
    store: Store, per_sample: Mapping[str, Stacked]
) -> tuple[ParameterLaw | None, ...]:
    """The law of each parameter of a sample, in the order of `Batch.parameters`."""
    if "parameters" not in per_sample:
        return ()
    laws = store.metadata.physics.parameters
    return tuple(
        laws.get(variable.shards.array.name)
        for variable in per_sample["parameters"].variables
        for _ in range(variable.shape[-1])
    )


def read_pairs(
    url: str, split: str | tuple[int, int], resolution: Resolution | None = None, **options: Any
) -> Samples:
    """Read a split into memory. The arguments are those of `open_pairs`.

    Raises:
        DataError: See `open_pairs`; also if the data are damaged or missing.
    """
    return open_pairs(url, split, resolution, **options).resident()
