"""Stores, read: the one reader of both packages.

What is read is compared with what was recorded and sealed of it: metadata and coordinates when a
store is opened, and shards when they are read (`pdegen.store.shards`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pdegen.domains import Domain
from pdegen.store.arrays import Array as Array
from pdegen.store.arrays import Json, MetadataError, Values
from pdegen.store.description import Description, UnfinishedMetadataError, parse
from pdegen.store.digests import SHORT_DIGITS, sha256, short_digest, short_digest_of
from pdegen.store.format import METADATA_BYTES, ROOT, StoreMetadata
from pdegen.store.labels import Labels
from pdegen.store.objects import Objects, TooLargeError
from pdegen.store.record import Record, Seal
from pdegen.store.shards import Shards as Shards

_AT_ONCE = 256  # records read at a time


class StoreError(ValueError):
    """A store that is absent, not ours, unfinished, in the way, or damaged; one line."""

    exit_status = 2


class UnfinishedLayoutError(StoreError):
    """The layout of the store was interrupted."""


@dataclass(frozen=True)
class Store:
    """A store at a URL or path; nothing in it is open. Raises StoreError on first use, if there is
    no pdegen store."""

    url: str  # where it is
    # bytes to take in place of its `zarr.json`
    root: bytes | None = field(default=None, repr=False)
    # its seal, if records and coordinates are to be those that it knows
    seal: Seal | None = field(default=None, repr=False)

    def __getstate__(self) -> Json:
        """The arguments alone: another process reads coordinates itself."""
        return {"url": self.url, "root": self.root, "seal": self.seal}

    @property
    def objects(self) -> Objects:
        return Objects(self.url)  # each time anew: connections do not survive a fork

    @cached_property
    def description(self) -> Description:
        """What `zarr.json` says: attributes, and all arrays."""
        try:
            return parse(_root_bytes(self.objects) if self.root is None else self.root)
        except MetadataError as error:
            unfinished = isinstance(error, UnfinishedMetadataError)
            kind = UnfinishedLayoutError if unfinished else StoreError
            raise kind(f"{self.url}: {error}") from None

    @property
    def metadata(self) -> StoreMetadata:
        """What the group says."""
        return self.description.metadata

    @property
    def raw_attributes(self) -> Json:
        """The same, as JSON."""
        return self.description.raw_attributes

    @property
    def sealed(self) -> bool:
        return self.metadata.sealed

    @property
    def version(self) -> int:
        """Version of the format."""
        return self.description.version

    @property
    def derived(self) -> bool:
        """Whether it was made from another store, its parent (`pdegen.generation.derived`)."""
        return self.metadata.parent is not None

    @property
    def command(self) -> str:
        """The command that made it."""
        if self.derived:
            return "noise"
        return "import" if self.metadata.imported else "generate"

    @property
    def samples(self) -> int:
        return self.metadata.samples

    @property
    def shard_size(self) -> int:
        return self.metadata.shard

    @property
    def shards(self) -> int:
        return self.description.shards

    @property
    def variables(self) -> list[str]:
        return [*self.metadata.variables]

    @property
    def skipped(self) -> list[int]:
        """Samples that could not be computed; their values are NaN."""
        return [*self.metadata.skipped]

    @property
    def arrays(self) -> Mapping[str, Array]:
        """All arrays, by name."""
        return self.description.arrays

    def array(self, name: str) -> Array:
        """An array of the store. Raises StoreError if there is none of this name."""
        try:
            return self.arrays[name]
        except KeyError:
            raise StoreError(f"{self.url} has no variable {name}") from None

    def raw_attributes_of(self, name: str) -> Json:
        """What an array says of itself, as JSON."""
        return self.description.zarr_metadata[name]["attributes"]

    def shard_range(self, shard: int) -> range:
        """The samples of a shard."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.samples))

    def key(self, name: str, shard: int) -> str:
        """The key of the object that holds a variable's shard."""
        return self.arrays[name].key(shard)

    # values

    @cached_property
    def coordinates(self) -> Mapping[str, Values]:
        """The values of all coordinates but the names of channels, which the metadata have. Raises
        StoreError if they are damaged, or not those that were sealed."""
        arrays, labels = self.description.coordinates, self.description.labels
        limits = {array.key(): array.limit for array in arrays.values()}
        limits |= {} if labels is None else {labels.KEY: len(labels.data)}
        found = dict[str, bytes]()
        for key, limit in limits.items():
            data, what = self.objects.try_read(key, limit)
            if data is None:
                raise self.damaged(f"{key} {what}")
            if self.seal is not None and sha256(data) != self.seal.objects.get(key):
                raise self.damaged(f"{key} differs from the seal")
            found[key] = data
        if labels is not None and found[labels.KEY] != labels.data:
            raise self.damaged(f"{Labels.KEY} has other names than the channels")
        try:
            return {name: array.decode(found[array.key()]) for name, array in arrays.items()}
        except MetadataError as error:
            raise self.damaged(str(error)) from None

    def domain(self, axes: tuple[str, ...]) -> Domain:
        """The domain of functions along these axes. Raises StoreError if there is none."""
        try:
            return self.description.domain(axes, self.coordinates)
        except MetadataError as error:
            raise StoreError(f"{self.url}: {error}") from None

    def values(self, name: str, samples: range | None = None) -> Values:
        """What is stored of a coordinate, or of a variable for these samples, by default all; NaN
        of samples that were skipped. Raises StoreError if it is damaged or missing."""
        if name in self.description.coordinates:
            return self.coordinates[name]
        array, shards = self.array(name), self.shards_of(name)
        samples = range(self.samples) if samples is None else samples
        out = np.empty((len(samples), *array.shape[1:]), array.dtype)
        try:
            for shard in range(
                samples.start // self.shard_size, -(-samples.stop // self.shard_size)
            ):
                whole = self.shard_range(shard)
                own = range(max(whole.start, samples.start), min(whole.stop, samples.stop))
                into = out[own.start - samples.start : own.stop - samples.start]
                for _ in shards.pieces(np.array(own), into):
                    pass
            if not_finite(out, samples, self.skipped).size:
                raise ValueError("values are missing")
        except (ValueError, RuntimeError) as error:
            what = str(error).removeprefix(f"{self.url}: ")
            raise StoreError(
                f"{self.url}: {name}, samples {samples.start} to {samples.stop - 1} are damaged "
                f"({what}); pdegen verify names the shards"
            ) from error
        return out

    def shards_of(self, name: str) -> Shards:
        """The shards of a variable."""
        known = f"{self.metadata.content}, {'sealed' if self.seal else 'as recorded'}"
        return Shards(self.url, self.array(name), self.record, known)

    def damaged(self, what: str) -> StoreError:
        """An error that says what of its metadata is wrong."""
        return StoreError(f"{self.url} is damaged: {what}; pdegen verify --repair mends it")

    # records

    def recorded(self) -> list[int]:
        """The shards that have a record, valid or not."""
        found = map(Record.number, self.objects.keys("records"))
        return sorted(shard for shard in found if shard is not None and shard < self.shards)

    def record(self, shard: int) -> Record:
        """The record of a shard. Raises StoreError if there is none that fits the store."""
        data, what = self.objects.try_read(Record.key(shard), METADATA_BYTES)
        if data is None:
            raise StoreError(f"{self.url}: shard {shard} has no record: {Record.key(shard)} {what}")
        return self._parsed(shard, data)

    def records(self) -> Iterator[Record]:
        """The records of all shards, in order, some at a time. Raises StoreError if one is missing,
        or does not fit the store."""
        objects = self.objects
        for start in range(0, self.shards, _AT_ONCE):
            shards = range(start, min(start + _AT_ONCE, self.shards))
            try:
                found = objects.read_all([Record.key(shard) for shard in shards], METADATA_BYTES)
            except (FileNotFoundError, TooLargeError):
                yield from map(self.record, shards)  # which names the one that is missing
            else:
                yield from map(self._parsed, shards, found)

    def _parsed(self, shard: int, data: bytes) -> Record:
        where = f"{self.url}: {Record.key(shard)}"
        try:
            record = Record.parse(data)
        except ValueError as error:
            raise StoreError(f"{where}: {error}") from None
        samples, digests = self.shard_range(shard), self.seal.shards if self.seal else None
        if record.shard != shard or record.samples != (samples.start, samples.stop):
            raise StoreError(f"{where} is the record of another shard")
        if record.job != self.metadata.job:
            raise StoreError(f"{where} is the record of another job")
        if digests is not None and short_digest_of(digests, shard) != short_digest(data):
            raise StoreError(f"{where} is not the record that was sealed")
        return record


def not_finite(
    values: Values, samples: range, skipped: Mapping[int, str] | list[int]
) -> np.ndarray:
    """Numbers of the samples with values that are not finite, except those that were skipped."""
    finite = np.isfinite(values)
    if finite.all():
        return np.array([], dtype=int)
    rows = np.flatnonzero(~finite.reshape(len(values), -1).all(axis=1))
    return np.setdiff1d(rows + samples.start, np.array(list(skipped), dtype=int))


def seal_in(objects: Objects) -> Seal:
    """The seal that lies somewhere. Raises StoreError if it is missing or damaged."""
    data, what = objects.try_read(Seal.KEY, METADATA_BYTES)
    if data is None:
        raise StoreError(f"{Seal.KEY}: {what}")
    try:
        return Seal.parse(data)
    except ValueError as error:
        raise StoreError(f"{Seal.KEY}: {error}") from None


def _root_bytes(objects: Objects) -> bytes:
    """The bytes of `zarr.json`; StoreError where there is none."""
    try:
        return objects.read(ROOT, at_most=METADATA_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        what = "not a pdegen store" if objects.exists() else "no such store"
        raise StoreError(f"{objects.url}: {what}") from None


def open_sealed(url: str) -> Store:
    """A finished store whose metadata and coordinates are those that were sealed. Raises StoreError
    if it is absent, not ours, not sealed (saying how to resume), or damaged."""
    root = _root_bytes(Objects(url))
    finished(Store(url, root))
    try:
        store = Store(url, root, seal_in(Objects(url)))
    except StoreError as error:
        raise Store(url, root).damaged(str(error)) from None
    assert store.seal is not None
    if store.seal.objects.get(ROOT) != sha256(root):
        raise store.damaged(f"{ROOT}: differs from the seal")
    if len(store.seal.shards) != SHORT_DIGITS * store.shards:
        raise store.damaged(f"{Seal.KEY}: it is the seal of other shards than the store has")
    _ = store.coordinates
    return store


def finished(store: Store) -> Store:
    """A store that is sealed, as it says itself. Raises StoreError if it is absent, not ours, or
    not sealed (saying how to resume)."""
    if not store.sealed:
        done, said = len(store.recorded()), store.metadata
        recipe = f" {said.recipe.name}" if store.command == "generate" else ""
        raise StoreError(
            f"{store.url} is not sealed ({done} of {store.shards} shards are written): finish it "
            f"by the command that made it, pdegen {store.command}{recipe} ... "
            f"--out {store.url}, with --resume"
        )
    return store
