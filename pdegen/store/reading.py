"""The reader of stores. The packages pdegen and operators both use it.

When a store is opened, its metadata and coordinates are compared with the seal. When a shard is
read, it is compared with its record (`pdegen.store.shards`).
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

_RECORDS_AT_ONCE = 256  # records read at a time


class StoreError(ValueError):
    """A store is missing, damaged, unfinished or of another format, or the URL of a new store is
    occupied. The message has one line."""

    exit_status = 2


class UnfinishedLayoutError(StoreError):
    """The store is unfinished: the process that laid it out was interrupted."""


@dataclass(frozen=True)
class Store:
    """A store at a URL or path. It keeps no file or connection open. The first use raises
    StoreError if there is no pdegen store at the URL."""

    url: str  # URL or path of the store
    # bytes of `zarr.json` to use in place of the stored ones
    root: bytes | None = field(default=None, repr=False)
    # the seal that records and coordinates must match; None to read them as they are
    seal: Seal | None = field(default=None, repr=False)

    def __getstate__(self) -> Json:
        """The fields to pickle, without cached values. Another process reads the coordinates
        again."""
        return {"url": self.url, "root": self.root, "seal": self.seal}

    @property
    def objects(self) -> Objects:
        return Objects(self.url)  # a new one at each use: connections do not survive a fork

    @cached_property
    def description(self) -> Description:
        """The parsed `zarr.json`: metadata of the store and all its arrays."""
        try:
            return parse(_root_bytes(self.objects) if self.root is None else self.root)
        except MetadataError as error:
            unfinished = isinstance(error, UnfinishedMetadataError)
            kind = UnfinishedLayoutError if unfinished else StoreError
            raise kind(f"{self.url}: {error}") from None

    @property
    def metadata(self) -> StoreMetadata:
        """The checked, typed attributes of the store."""
        return self.description.metadata

    @property
    def raw_attributes(self) -> Json:
        """The attributes of the store as JSON, unchanged from `zarr.json`."""
        return self.description.raw_attributes

    @property
    def sealed(self) -> bool:
        """Whether the store is complete."""
        return self.metadata.sealed

    @property
    def version(self) -> int:
        """Version of the store format."""
        return self.description.version

    @property
    def derived(self) -> bool:
        """Whether the store was made from a parent store (`pdegen.generation.derived`)."""
        return self.metadata.parent is not None

    @property
    def command(self) -> str:
        """The pdegen command that made the store."""
        if self.derived:
            return "noise"
        return "import" if self.metadata.imported else "generate"

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.metadata.samples

    @property
    def shard_size(self) -> int:
        """Number of samples in a shard; the last shard may have fewer."""
        return self.metadata.shard

    @property
    def shards(self) -> int:
        """Number of shards of each variable."""
        return self.description.shards

    @property
    def variables(self) -> list[str]:
        """Names of the variables, which are the arrays that have values for each sample."""
        return [*self.metadata.variables]

    @property
    def skipped(self) -> list[int]:
        """Numbers of the samples that could not be computed; their values are NaN."""
        return [*self.metadata.skipped]

    def samples_in(self, split: str) -> int:
        """Number of samples of a split, without the skipped samples."""
        numbers = range(*self.metadata.splits[split])
        return len(numbers) - sum(sample in numbers for sample in self.skipped)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """A dictionary that maps names to variables and coordinates."""
        return self.description.arrays

    def array(self, name: str) -> Array:
        """The array with this name. Raises StoreError if the store has no such array."""
        try:
            return self.arrays[name]
        except KeyError:
            raise StoreError(f"{self.url} has no variable {name}") from None

    def raw_attributes_of(self, name: str) -> Json:
        """The attributes of an array as JSON, unchanged from `zarr.json`."""
        return self.description.zarr_metadata[name]["attributes"]

    def shard_range(self, shard: int) -> range:
        """Numbers of the samples in a shard."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.samples))

    def key(self, name: str, shard: int) -> str:
        """Key of the object that holds a shard of a variable."""
        return self.arrays[name].key(shard)

    # values

    @cached_property
    def coordinates(self) -> Mapping[str, Values]:
        """A dictionary that maps the names of all coordinates to their values. Channel names are
        not included. They are in the metadata. Raises StoreError if a coordinate is damaged or
        differs from the seal."""
        arrays, labels = self.description.coordinates, self.description.labels
        limits = {array.key(): array.limit for array in arrays.values()}
        limits |= {} if labels is None else {labels.KEY: len(labels.data)}
        stored = dict[str, bytes]()
        for key, limit in limits.items():
            data, problem = self.objects.try_read(key, limit)
            if data is None:
                raise self.damaged(f"{key} {problem}")
            if self.seal is not None and sha256(data) != self.seal.objects.get(key):
                raise self.damaged(f"{key} differs from the seal")
            stored[key] = data
        if labels is not None and stored[labels.KEY] != labels.data:
            raise self.damaged(f"{Labels.KEY} differs from the names of the channels")
        try:
            return {name: array.decode(stored[array.key()]) for name, array in arrays.items()}
        except MetadataError as error:
            raise self.damaged(str(error)) from None

    def domain(self, axes: tuple[str, ...]) -> Domain:
        """The domain on which functions with these axes are defined. Raises StoreError if the store
        describes no such domain."""
        try:
            return self.description.domain(axes, self.coordinates)
        except MetadataError as error:
            raise StoreError(f"{self.url}: {error}") from None

    def values(self, name: str, samples: range | None = None) -> Values:
        """The values of a coordinate or variable. For a variable, `samples` selects the samples; by
        default all are read. Skipped samples have the value NaN. Raises StoreError if the values
        are damaged or missing."""
        if name in self.description.coordinates:
            return self.coordinates[name]
        array, shards = self.array(name), self.shards_of(name)
        samples = range(self.samples) if samples is None else samples
        out = np.empty((len(samples), *array.shape[1:]), array.dtype)
        try:
            for shard in range(
                samples.start // self.shard_size, -(-samples.stop // self.shard_size)
            ):
                in_shard = self.shard_range(shard)
                wanted = range(max(in_shard.start, samples.start), min(in_shard.stop, samples.stop))
                rows = out[wanted.start - samples.start : wanted.stop - samples.start]
                for _ in shards.pieces(np.array(wanted), rows):
                    pass
            if not_finite(out, samples, self.skipped).size:
                raise ValueError("values are missing")
        except (ValueError, RuntimeError) as error:
            problem = str(error).removeprefix(f"{self.url}: ")
            raise StoreError(
                f"{self.url}: {name}, samples {samples.start} to {samples.stop - 1} are damaged "
                f"({problem}); pdegen verify lists the damaged shards"
            ) from error
        return out

    def shards_of(self, name: str) -> Shards:
        """The shards of a variable, from which its values can be read."""
        content = f"{self.metadata.content}, {'sealed' if self.seal else 'as recorded'}"
        return Shards(self.url, self.array(name), self.record, content)

    def damaged(self, problem: str) -> StoreError:
        """An error about damaged metadata or coordinates. Its message names the command that
        repairs the store."""
        return StoreError(f"{self.url} is damaged: {problem}; pdegen verify --repair mends it")

    # records

    def recorded(self) -> list[int]:
        """Numbers of the shards that have a record, valid or not."""
        numbers = map(Record.number, self.objects.keys("records"))
        return sorted(shard for shard in numbers if shard is not None and shard < self.shards)

    def record(self, shard: int) -> Record:
        """The record of a shard. Raises StoreError if it is missing or belongs to another store."""
        data, problem = self.objects.try_read(Record.key(shard), METADATA_BYTES)
        if data is None:
            raise StoreError(
                f"{self.url}: shard {shard} has no record: {Record.key(shard)} {problem}"
            )
        return self._parsed(shard, data)

    def records(self) -> Iterator[Record]:
        """Yield the records of all shards in order; several are read at once. Raises StoreError if
        a record is missing or belongs to another store."""
        objects = self.objects
        for start in range(0, self.shards, _RECORDS_AT_ONCE):
            shards = range(start, min(start + _RECORDS_AT_ONCE, self.shards))
            try:
                encoded = objects.read_all([Record.key(shard) for shard in shards], METADATA_BYTES)
            except (FileNotFoundError, TooLargeError):
                yield from map(self.record, shards)  # its error names the missing record
            else:
                yield from map(self._parsed, shards, encoded)

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
    """Numbers of the samples that have a NaN or infinite value. Skipped samples are not listed."""
    finite = np.isfinite(values)
    if finite.all():
        return np.array([], dtype=int)
    rows = np.flatnonzero(~finite.reshape(len(values), -1).all(axis=1))
    return np.setdiff1d(rows + samples.start, np.array(list(skipped), dtype=int))


def seal_in(objects: Objects) -> Seal:
    """Read the seal of a store. Raises StoreError if it is missing or damaged."""
    data, problem = objects.try_read(Seal.KEY, METADATA_BYTES)
    if data is None:
        raise StoreError(f"{Seal.KEY}: {problem}")
    try:
        return Seal.parse(data)
    except ValueError as error:
        raise StoreError(f"{Seal.KEY}: {error}") from None


def _root_bytes(objects: Objects) -> bytes:
    """The bytes of `zarr.json`. Raises StoreError if this object does not exist."""
    try:
        return objects.read(ROOT, at_most=METADATA_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        problem = "not a pdegen store" if objects.exists() else "no such store"
        raise StoreError(f"{objects.url}: {problem}") from None


def open_sealed(url: str) -> Store:
    """Open a sealed store whose metadata and coordinates match the seal. Raises StoreError if the
    store is missing, damaged, of another format or not sealed. If it is not sealed, the message
    says how to resume."""
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
        raise store.damaged(f"{Seal.KEY} has another number of shards than the store")
    _ = store.coordinates
    return store


def finished(store: Store) -> Store:
    """Return a store if its metadata say that it is sealed. Raises StoreError if the store is
    missing, of another format or not sealed. If it is not sealed, the message says how to
    resume."""
    if not store.sealed:
        done = len(store.recorded())
        recipe = f" {store.metadata.recipe.name}" if store.command == "generate" else ""
        raise StoreError(
            f"{store.url} is not sealed ({done} of {store.shards} shards are written): finish it "
            f"by the command that made it, pdegen {store.command}{recipe} ... "
            f"--out {store.url}, with --resume"
        )
    return store
