"""Sealed store -> pairs of functions on a device, ready to train on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from operators.data.samples import Samples, quadrature
from operators.data.streaming import Streamed, shards_within
from operators.data.variables import (
    DataError,
    Resolution,
    Stacked,
    StoredVariable,
    Subsample,
    array_of,
    names_of,
    open_store,
)
from pdegen.domains import Box, Domain
from pdegen.store.reading import Store, StoreError

BUFFER_BYTES = 2**28  # of shards that are shuffled together, where they are not all in memory


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
    """Inputs and targets of some samples, to be read in pieces; no values are read yet.

    Samples that the store names as skipped are left out.

    Args:
        url: A sealed store.
        split: Name of a split of the store, or first and one past the last sample.
        resolution: Points of the first axis to take, every r-th of the store's, and every r-th of
            the other axes; or the points of each axis. All by default. Values are taken at the
            points, not averaged. On periodic axes r = n/resolution; on others
            r = (n-1)/(resolution-1), which keeps both ends: 421 cells give 211, 141, 85, ...
            Clouds are taken whole.
        input, target: Names of the variables; several are put side by side as channels. By default
            the inputs are all functions of the role input or, where there is none, the positions
            of the points; the target is the first function of the role target. A store that names
            no roles has the input a and the target u.
        target_resolution: Average the target over this many cells of the first axis, and as many
            in proportion of the others, or over so many of each; their centres are then its points.
            By default it is taken at the same points as the input.
        level: Which level of a store with several noise levels.
        buffer: Bytes of shards that are shuffled together; at least one shard is.
        weighted: Whether points of meshes and clouds have quadrature weights, or all count alike.

    Raises:
        DataError: If the store is absent, unfinished, of another kind or breaks the format, the
            split, a variable or the level is unknown, no sample is left, a resolution does not
            fit the store's, or axes differ from one variable to another.
    """
    store = open_store(str(url))
    url, said, samples = store.url, store.metadata, _numbers(store, split)
    if input is None:
        input = _of_role(store, "input")
        input = input[0] if len(input) == 1 else input
    if target is None:
        target = _of_role(store, "target")[0]
    inputs, targets = names_of(input), names_of(target)
    axes = _axes(store, inputs + targets)
    a, u = (
        Stacked(tuple(StoredVariable.of(store, name, level, axes) for name in names))
        for names in (inputs, targets)
    )
    if level is not None and all(v.level is None for v in (*a.variables, *u.variables)):
        raise DataError(f"{url} has no noise levels, asked for level {level}")
    domain = _domain(store, axes)
    lines = [store.coordinates[axis] for axis in axes] if isinstance(domain, Box) else None
    kept = Subsample.of(domain, resolution, target_resolution, url, lines)
    a, u = a.reduced(kept.input), u.reduced(kept.target)
    per_sample = _per_sample(store, domain, kept)
    first = domain.shape[0] if resolution is None else resolution
    window = shards_within(buffer, a, u, *per_sample.values())
    shared = weighted and kept.y is None and "weight" not in per_sample
    if not weighted:
        per_sample.pop("weight", None)
    return Samples(
        reader=Streamed(
            url=url, a=a, u=u, per_sample=per_sample, samples=samples, domain=kept.domain,
            window=window,
            weighted=weighted,
        ),
        x=kept.x,
        y=kept.y,
        domain=kept.domain,
        weight=quadrature(kept.domain) if shared else None,
        input_channels=a.channels,
        target_channels=u.channels,
        near=said.physics.near,
        source={
            "url": url,
            "recipe": said.recipe.name,
            "fingerprint": said.fingerprint,
            "content": said.content,
            "resolution": first if isinstance(first, int) else list(first),
            "input": input if isinstance(input, str) else inputs,
            "target": target if isinstance(target, str) else targets,
            "target_resolution": target_resolution,
            "level": level,
        },
    )  # fmt: skip


def _numbers(store: Store, split: str | tuple[int, int]) -> np.ndarray:
    """The samples of a split or of a range, except skipped ones."""
    url, said = store.url, store.metadata
    if isinstance(split, str) and split not in said.splits:
        raise DataError(f"{url} has no split {split!r}: known are {', '.join(said.splits)}")
    start, stop = said.splits[split] if isinstance(split, str) else split
    if not 0 <= start < stop <= said.samples:
        raise DataError(
            f"{url} has samples 0 to {said.samples - 1}, asked for {start} to {stop - 1}"
        )
    samples = np.setdiff1d(np.arange(start, stop), said.skipped)
    if not len(samples):
        raise DataError(f"{url}: all samples {start} to {stop - 1} were skipped")
    return samples


def _domain(store: Store, axes: tuple[str, ...]) -> Domain:
    try:
        return store.domain(axes)
    except StoreError as error:
        raise DataError(str(error)) from None


def _of_role(store: Store, role: str) -> list[str]:
    """The functions of a role; positions are the inputs of a store that has no others. A store that
    names no roles has the input a and the target u."""
    described = store.description
    found = [
        name
        for name, variable in described.variables.items()
        if variable.metadata.role == role and described.axes_of(variable)
    ]
    if not found and role == "input":
        found = [name for name, v in described.variables.items() if v.metadata.role == "geometry"]
    return found or [{"input": "a", "target": "u"}[role]]


def _axes(store: Store, names: list[str]) -> tuple[str, ...]:
    """The axes of the domain that all these functions have."""
    known = {name: store.description.axes_of(array_of(store, name)) for name in names}
    first, axes = next(iter(known.items()))
    for name, found in known.items():
        if not found:
            raise DataError(f"{store.url}: {name} is no function on a grid")
        if found != axes:
            raise DataError(
                f"{store.url}: {first} is a function of {', '.join(axes)}, {name} of "
                f"{', '.join(found)}: input and target must have the same axes"
            )
    return axes


def _per_sample(store: Store, domain: Domain, kept: Subsample) -> dict[str, Stacked]:
    """What differs by sample beside inputs and targets."""
    named = dict[str, list[str]]()
    for name, array in store.description.variables.items():
        named.setdefault(array.metadata.role, []).append(name)

    def entry(names: list[str], *axes: str) -> Stacked:
        return Stacked(tuple(StoredVariable.of(store, name, None, axes) for name in names))

    found = dict[str, Stacked]()
    if domain.moves:
        positions = ("x", "y", "z")[: domain.dim]
        lost = [name for name in positions if name not in named.get("geometry", [])]
        if lost:
            raise DataError(f"{store.url} has no variable {lost[0]} of the role geometry")
        found["x"] = entry([*positions], *domain.axes).reduced(kept.input)
    if (
        "weight" in named and kept.target.keeps_all
    ):  # they are of all points, not of some or of cells
        found["weight"] = entry(named["weight"][:1], *domain.axes)
    if "count" in named:
        found["mask"] = entry(named["count"][:1])
    if "parameter" in named:
        found["parameters"] = entry(named["parameter"])
    return found


def read_pairs(
    url: str, split: str | tuple[int, int], resolution: Resolution | None = None, **options: Any
) -> Samples:
    """Read a split into memory. Other arguments are those of `open_pairs`.

    Raises:
        DataError: As there, or if the data are damaged or missing.
    """
    return open_pairs(url, split, resolution, **options).resident()
