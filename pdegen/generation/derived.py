"""Derived stores. A derived store is a copy of a sealed store in which one variable has noise at
several levels."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pdegen.equations.base import SampleError
from pdegen.generation.generate import Job, Options, provenance, write
from pdegen.sampling.noise import Noise, SensorNoise, pointwise_std
from pdegen.schema import SchemaError, near
from pdegen.store.layout import Coordinate, Layout, Variable
from pdegen.store.objects import Objects
from pdegen.store.reading import Store, StoreError, open_sealed
from pdegen.store.writing import missing, summary_of

# Part of every fingerprint: raised when a change of this code changes the noise.
ALGORITHM_VERSION = 1

_NOT_INHERITED = {  # attributes of a derived store that are not copied from its parent
    "format", "format_version", "sealed", "samples", "shard", "variables", "fingerprint",
    "content", "statistics", "skipped", "provenance",
}  # fmt: skip


def at_levels(declared: Mapping[str, Any], levels: Sequence[float]) -> tuple[Noise, ...]:
    """Make the noise of each level.

    Args:
        declared: Values of the keys of `pdegen.sampling.noise.Noise`, without `level`.
        levels: The levels of the noise.

    Raises:
        SchemaError: If a key is unknown, a value is impossible, a level is repeated, or `levels` is
            empty.

    >>> [noise.level for noise in at_levels({"kind": "relative"}, [0.0, 0.1])]
    [0.0, 0.1]
    """
    if "level" in declared:
        raise SchemaError("noise: a derived store has a list of levels, not the key 'level'")
    if not levels:
        raise SchemaError("noise: a derived store has at least one level")
    noises = tuple(Noise.parse({**declared, "level": level}, "noise") for level in levels)
    repeated = [level for k, level in enumerate(levels) if level in levels[:k]]
    if repeated:
        raise SchemaError(f"noise: levels must differ, got {repeated[0]:g} twice")
    return noises


def add_noise(
    parent: str, variable: str, noises: tuple[Noise, ...], url: str, **options: Any
) -> Store:
    """Write a copy of a sealed store with noise added to one variable. In the copy, this variable
    has an additional axis `level`.

    The noisy samples of a split equal `noise.build()(u, noise.seed, samples, std)`, bit for bit,
    with the positions of the values as `points`. Here u are the values of the split without noise,
    and samples are their numbers in the store. This holds for any number of workers and after any
    interruption.

    Args:
        parent: Path or URL of the sealed store.
        variable: Name of the variable.
        noises: The noise at each level.
        url: Path or URL of the derived store.
        options: The fields of `pdegen.generation.generate.Options`.

    Raises:
        StoreError: If the parent cannot be read, is damaged, or has no such field; or if `url` is
            occupied. Also if the store to resume has another parent or other noise, or if its
            parent has changed.
        OSError: If the location cannot be written or has no room.
        SampleError: If a noisy value exceeds the range of its type.
    """
    _check_apart(parent, url)
    job = NoiseJob(str(parent), variable, noises)
    return write(job, url, Options(**options))


@dataclass(frozen=True)
class NoiseJob(Job):
    """The job that writes a derived store. Raises StoreError if the parent cannot be read or has no
    field with the name `variable`."""

    parent: str
    variable: str
    noises: tuple[Noise, ...]

    def __post_init__(self) -> None:
        parent = open_sealed(self.parent)
        fields = [name for name in parent.variables if parent.arrays[name].dims[1:]]
        if parent.derived:
            raise StoreError(f"{self.parent} has noise already: give its parent store")
        if self.variable not in fields:
            problem = "is no field of" if self.variable in parent.variables else "is not in"
            hint = near(self.variable, fields)
            raise StoreError(f"{self.variable!r} {problem} {self.parent}: {hint}")

    @property
    def fingerprint(self) -> str:
        parent = open_sealed(self.parent).metadata
        content = {
            "parent": [parent.fingerprint, parent.content],
            "variable": self.variable,
            "noises": [noise.model_dump(mode="json") for noise in self.noises],
            "shard": self._shard(parent.shard),
            "algorithm": ALGORITHM_VERSION,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _shard(self, parent_shard: int) -> int:
        """Number of samples in a shard of the derived store."""
        return -(-parent_shard // len(self.noises))

    def check(self) -> None:
        """Raise StoreError if the data of the parent differ from its seal."""
        parent = open_sealed(self.parent)
        if missing(parent) or summary_of(parent).content != parent.metadata.content:
            raise StoreError(f"{self.parent} is damaged: pdegen verify lists the damaged shards")

    def layout(self) -> Layout:
        parent = open_sealed(self.parent)
        field = parent.arrays[self.variable]
        std = pointwise_std(
            values
            for samples in _training_blocks(parent)
            if len(values := _computed(parent, self.variable, samples))
        )
        axes = field.dims[1:]
        others = [axis for axis in axes if axis not in parent.description.axes_of(field)]
        if self.noises[0].kind == "correlated" and others:
            raise StoreError(
                f"correlated noise is for functions of space, {self.variable} of {self.parent} has "
                f"the {'axes' if len(others) > 1 else 'axis'} {', '.join(others)} too"
            )
        self._check_suits(std)
        levels = np.array([noise.level for noise in self.noises])
        noise = self.noises[0]
        coordinates = [
            *_coordinates(parent),
            Coordinate("level", ("level",), levels, {
                "long_name": f"level of the {noise.kind} noise",
                "units": "dB" if noise.kind == "snr" else "1"}),
            Coordinate("deviation", axes, std, {
                "long_name": f"standard deviation of {self.variable} over the training samples",
                "units": field.metadata.units or "1"}),
        ]  # fmt: skip
        model = noise.build()
        if isinstance(model, SensorNoise):
            coordinates.append(
                Coordinate("observed", axes, model.observed(std.shape, noise.seed), {
                    "long_name": f"whether {self.variable} is observed"})
            )  # fmt: skip
        declared = noise.model_dump(mode="json", exclude={"level"}, exclude_none=True)
        attributes = parent.raw_attributes
        return Layout(
            samples=parent.samples,
            shard=self._shard(parent.shard_size),
            variables=tuple(self._variable(parent, name) for name in parent.variables),
            coordinates=tuple(coordinates),
            attributes={
                **{key: value for key, value in attributes.items() if key not in _NOT_INHERITED},
                "title": f"{attributes['title']}; {self.variable} with {noise.kind} noise",
                "fingerprint": self.fingerprint,
                "parent": {
                    **{key: attributes[key] for key in ("fingerprint", "content", "provenance")},
                    "recipe": attributes["recipe"]["name"],
                },
                "noise": {
                    "variable": self.variable, **declared, "levels": levels.tolist(),
                    "deviation": _digest(std),
                },
                "provenance": provenance(),
            },
        )  # fmt: skip

    def _check_suits(self, std: np.ndarray) -> None:
        """Raise StoreError if this noise cannot be added to the variable."""
        try:
            noise = max(self.noises, key=lambda noise: noise.level)
            points = _points(open_sealed(self.parent), self.variable)
            noise.build()(np.zeros((1, *std.shape)), noise.seed, [0], std, points=points)
        except ValueError as error:
            raise StoreError(f"{self.variable} of {self.parent}: {error}") from None

    def _variable(self, parent: Store, name: str) -> Variable:
        array = parent.arrays[name]
        variable = Variable(
            name, array.dims[1:], array.shape[1:], array.dtype.name, parent.raw_attributes_of(name)
        )
        if name != self.variable:
            return variable
        shared = variable.attributes.get("coordinates", "")
        return replace(
            variable,
            dims=("level", *variable.dims),
            shape=(len(self.noises), *variable.shape),
            attributes={
                **variable.attributes,
                "long_name": f"{variable.attributes.get('long_name', variable.name)}, with noise",
                "coordinates": f"{shared} deviation".strip(),
            },
        )

    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        parent = open_sealed(self.parent)
        if (
            store.metadata.parent is None
            or parent.metadata.content != store.metadata.parent.content
        ):
            raise StoreError(self.difference(store))
        std = _std(store)
        values = {name: parent.values(name, samples) for name in parent.variables}
        u = values[self.variable]
        noisy = np.empty((len(u), len(self.noises), *u.shape[1:]), dtype=u.dtype)
        numbers = self._numbers(parent)[samples.start : samples.stop]
        points = _points(parent, self.variable)
        with np.errstate(over="ignore"):
            for k, noise in enumerate(self.noises):
                noisy[:, k] = noise.build().add(u, noise.seed, numbers, std, points=points)
        finite = np.isfinite(noisy.reshape(len(u), -1)).all(axis=1)
        finite |= np.isin(np.array(samples), parent.skipped)
        if not finite.all():
            first = samples[int(np.flatnonzero(~finite)[0])]
            raise SampleError(first, f"{self.variable} with noise exceeds {u.dtype.name}")
        values[self.variable] = noisy
        return values

    def skipped(self, samples: range) -> dict[int, str]:
        skipped = open_sealed(self.parent).skipped
        return {i: "skipped in the parent" for i in skipped if i in samples}

    def _numbers(self, parent: Store) -> list[int]:
        """The number that selects the random stream of each sample."""
        numbers = np.arange(parent.samples)
        for start, stop in parent.metadata.splits.values():
            numbers[start:stop] = self.noises[0].build().numbers(range(start, stop))
        return numbers.tolist()

    def difference(self, store: Store) -> str:
        origin, parent = store.metadata.parent, open_sealed(self.parent).metadata
        if origin is None:
            return f"{store.url} is not a store with noise made from {self.parent}"
        if origin.fingerprint != parent.fingerprint:
            return (
                f"{store.url} was made from another store ({origin.recipe}, fingerprint "
                f"{origin.fingerprint[:12]}, not {parent.fingerprint[:12]})"
            )
        if origin.content != parent.content:
            return f"{self.parent} has changed since {store.url} was made from it"
        noise = {k: v for k, v in store.raw_attributes["noise"].items() if k != "deviation"}
        return f"{store.url} was made with other noise: {json.dumps(noise)}"


def _coordinates(parent: Store) -> Iterator[Coordinate]:
    for name, array in sorted(parent.description.coordinates.items()):
        yield Coordinate(name, array.dims, parent.values(name), parent.raw_attributes_of(name))


def _points(parent: Store, variable: str) -> np.ndarray:
    """Positions of the values of a variable: coordinates of its axes, or (i + ½)/n without them."""
    array = parent.arrays[variable]
    along = [
        parent.values(axis).astype(np.float64)
        if axis in parent.coordinates and parent.arrays[axis].dims == (axis,)
        else (np.arange(n) + 0.5) / n
        for axis, n in zip(array.dims[1:], array.shape[1:], strict=True)
    ]
    return np.stack(np.meshgrid(*along, indexing="ij"), axis=-1)


def _training_blocks(parent: Store) -> Iterator[range]:
    """Yield the range of the training samples in each shard that contains training samples."""
    start, stop = parent.metadata.splits["train"]
    for shard in range(parent.shards):
        samples = parent.shard_range(shard)
        if samples.start < stop and start < samples.stop:
            yield range(max(start, samples.start), min(stop, samples.stop))


def _computed(parent: Store, variable: str, samples: range) -> np.ndarray:
    """The values of a variable for samples that were not skipped."""
    return parent.values(variable, samples)[~np.isin(np.array(samples), parent.skipped)]


def _std(store: Store) -> np.ndarray:
    """The standard deviation σ(x) that is stored in the derived store."""
    damaged = f"{store.url}: the deviation is damaged: --resume restores it"
    try:
        std = store.values("deviation")
    except StoreError as error:
        raise StoreError(damaged) from error
    if store.metadata.noise is None or _digest(std) != store.metadata.noise.deviation:
        raise StoreError(damaged)
    return std


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<f8").tobytes()).hexdigest()


def _check_apart(parent: str, url: str) -> None:
    """Raise StoreError if the two stores are the same, or if one is inside the other."""
    stores = [Objects(store) for store in (parent, url)]
    roots = [os.path.realpath(s.root) if s.is_local else s.root.rstrip("/") for s in stores]
    if stores[0].is_local == stores[1].is_local and (
        f"{roots[0]}/".startswith(f"{roots[1]}/") or f"{roots[1]}/".startswith(f"{roots[0]}/")
    ):
        raise StoreError(f"the store with noise must lie outside of {parent}, got {url}")
