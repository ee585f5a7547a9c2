"""The dataset format: Zarr v3 with shards, records and a seal. `datasets/README.md` describes it.

A store is laid out first, filled shard by shard by one writer each, and sealed last. A shard
counts as written once its record, written after its data, carries the digests of the data and
names the job that made them. So an interrupted store is continued by writing the shards that have
no valid record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import zarr

from pdegen.store.card import CARD, CROISSANT, documents
from pdegen.store.encoding import encoded_shard
from pdegen.store.format import (
    BEGUN,
    METADATA_BYTES,
    ROOT,
    Array,
    Attributes,
    BegunError,
    Description,
    MetadataError,
    parse,
)
from pdegen.store.labels import CHANNEL, Labels
from pdegen.store.layout import Layout, in_memory
from pdegen.store.objects import Objects, TooLargeError
from pdegen.store.record import Record, Seal, Summary, sample_moments
from pdegen.store.signed import MARK, mark, sha256

_AT_ONCE = 256  # records read at a time
_KNOWN = 2**14  # shards that a process remembers to be sound


class StoreError(ValueError):
    """A store that is absent, not ours, unfinished, in the way, or damaged; one line."""

    exit_status = 2


class UnfinishedLayoutError(StoreError):
    """The layout of the store was interrupted."""


@dataclass(frozen=True)
class Fault:
    """Something wrong in a store.

    Args:
        where: The object, or what of the store.
        what: What is wrong with it.
        shard: Number of the shard, where it is one.
        variable: Name of the variable, where it is one.
    """

    where: str
    what: str
    shard: int | None = None
    variable: str | None = None

    @classmethod
    def of_shard(cls, shard: int, what: str, variable: str | None = None) -> Fault:
        where = f"shard {shard}" if variable is None else f"{variable}, shard {shard}"
        return cls(where, what, shard, variable)

    @classmethod
    def of_seal(cls, error: StoreError) -> Fault:
        """What `seal_in` or `Store.check_seal` has said."""
        return cls(Seal.KEY, str(error).removeprefix(f"{Seal.KEY}: "))

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def lay_out(url: str, layout: Layout) -> Store:
    """Create an empty store: metadata and coordinates, no data yet.

    Raises:
        StoreError: If the layout is beyond what a store can have.
        OSError: If the place cannot be written.
    """
    objects, described = Objects(url), described_by(layout, url)
    objects.write(ROOT, BEGUN)
    for key, data in described.items():  # the root last
        objects.write(key, data)
    return Store(url)


def described_by(layout: Layout, url: str) -> dict[str, bytes]:
    """The metadata and coordinates of a layout by their keys, `zarr.json` last.

    Raises:
        StoreError: If the layout is beyond what a store can have.
    """
    described = layout.objects()
    try:
        parse(described[ROOT])
    except MetadataError as error:
        raise StoreError(f"{url}: {error}") from None
    return described


@dataclass(frozen=True)
class Store:
    """A store at a URL or path.

    Args:
        url: Where it is.
        root: Bytes to take in place of its `zarr.json`, where that is damaged.
        marks: What its seal knows its records by, if they are to be those (`Seal.shards`).

    Raises:
        StoreError: On first use, if there is no pdegen store.
    """

    url: str
    root: bytes | None = field(default=None, repr=False)
    marks: str | None = field(default=None, repr=False)

    @cached_property
    def objects(self) -> Objects:
        return Objects(self.url)

    @cached_property
    def description(self) -> Description:
        """What `zarr.json` says: attributes, and all arrays."""
        try:
            return parse(_root_bytes(self.objects) if self.root is None else self.root)
        except MetadataError as error:
            kind = UnfinishedLayoutError if isinstance(error, BegunError) else StoreError
            raise kind(f"{self.url}: {error}") from None

    @property
    def damage(self) -> StoreError | None:
        """Why it cannot be read; None where it can, and where it was."""
        try:
            _ = self.description
        except StoreError as error:
            return error
        return None

    def reread(self) -> None:
        """Forget the metadata, which another may have changed."""
        for name in ("description", "group", "_fixed_keys"):
            self.__dict__.pop(name, None)

    @cached_property
    def group(self) -> zarr.Group:
        """The store as Zarr sees it, to be read."""
        _ = self.description
        # a local path without its protocol, for Zarr knows no file:// URLs
        place = self.objects.root if self.objects.is_local else self.url
        return zarr.open_group(place, mode="r", zarr_format=3)  # pyright: ignore[reportUnknownMemberType]

    @property
    def said(self) -> Attributes:
        """What the group says."""
        return self.description.said

    @property
    def attributes(self) -> dict[str, Any]:
        """The same, as JSON."""
        return self.description.attributes

    @property
    def sealed(self) -> bool:
        return self.said.sealed

    @property
    def version(self) -> int:
        """Of the format."""
        return self.description.version

    @property
    def job(self) -> str | None:
        """What every record must name; None in version 2, where records name nothing."""
        return self.description.job

    @property
    def derived(self) -> bool:
        """Whether it was made from another store, its parent (`pdegen.making.derived`)."""
        return self.said.parent is not None

    @property
    def command(self) -> str:
        """The command that made it."""
        if self.derived:
            return "noise"
        return "import" if self.said.imported else "generate"

    @property
    def samples(self) -> int:
        return self.said.samples

    @property
    def shard_size(self) -> int:
        return self.said.shard

    @property
    def shards(self) -> int:
        return self.description.shards

    @property
    def variables(self) -> list[str]:
        return [*self.said.variables]

    @property
    def skipped(self) -> list[int]:
        """Samples that could not be computed; their values are NaN."""
        return [*self.said.skipped]

    @property
    def arrays(self) -> Mapping[str, Array]:
        """All arrays, by name."""
        return self.description.arrays

    def array(self, name: str) -> zarr.Array[Any]:
        array = self.group[name]
        assert isinstance(array, zarr.Array)
        return array

    def values(self, name: str, samples: range) -> np.ndarray:
        """What is stored of a variable for these samples; NaN of samples that were skipped.

        A shard is compared with its recorded digest when a process first reads it, and again once
        its object is another.

        Raises:
            StoreError: If it is damaged or missing.
        """
        damaged = f"{self.url}: {name}, samples {samples.start} to {samples.stop - 1} are damaged"
        for shard in range(samples.start // self.shard_size, -(-samples.stop // self.shard_size)):
            fault = self._unsound(name, shard)
            if fault is not None:
                raise StoreError(f"{damaged} ({fault}); pdegen verify names the shards")
        try:
            values = np.asarray(self.array(name)[samples.start : samples.stop])
        except Exception as error:  # zarr raises many kinds on damaged data
            raise StoreError(f"{damaged} ({error}); pdegen verify names the shards") from error
        if _not_finite(values, samples, self.skipped).size:  # where nothing is, zarr reads NaN
            raise StoreError(f"{damaged} (values are missing); pdegen verify names the shards")
        return values

    def _unsound(self, name: str, shard: int) -> Fault | None:
        """What is wrong with a variable's shard; None where nothing is, now or when this process
        has read the same object before."""
        try:
            identity = self.objects.identity(self.key(name, shard))
        except (FileNotFoundError, NotADirectoryError):
            return Fault.of_shard(shard, "the data are missing", name)
        sealed_by = (self.said.content, self.marks is None)
        place = (self.url, sealed_by, name, shard, identity)
        if place not in _sound():
            faults = self.inspect(shard, [name])[2]
            if faults:
                return faults[0]
            if len(_sound()) >= _KNOWN:
                _sound().clear()
            _sound().add(place)
        return None

    def shard_range(self, shard: int) -> range:
        """The samples of a shard."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.samples))

    # writing

    def write_shard(
        self,
        shard: int,
        values: Mapping[str, np.ndarray],
        skipped: Mapping[int, str] | None = None,
        check: Callable[[], None] | None = None,
    ) -> Record:
        """Write the data of one shard, then its record.

        Args:
            shard: Number of the shard.
            values: For each variable the values of the samples of the shard.
            skipped: Samples that could not be computed, and why; their values are NaN.
            check: Called before and after each object, such as to raise LockedError
                (`pdegen.store.objects.Objects.write`).

        Raises:
            ValueError: On missing variables, other shapes, or values that are not finite.
        """
        objects, record = self.encoded(shard, values, skipped or {})
        for key, data in objects.items():
            self.objects.write(key, data, check)
        self.objects.write(Record.key(shard), record.encode(), check)
        return record

    def encoded(
        self, shard: int, values: Mapping[str, np.ndarray], skipped: Mapping[int, str]
    ) -> tuple[dict[str, bytes], Record]:
        """The objects of a shard's data by keys, and its record; as `write_shard` writes them."""
        samples = self.shard_range(shard)
        stored, objects = dict[str, np.ndarray](), dict[str, bytes]()
        moments = dict[str, tuple[list[float | None], list[float | None]]]()
        for name in self.variables:
            if name not in values:
                raise ValueError(f"{name}: no values are given")
            array = self.arrays[name]
            data = stored[name] = np.asarray(values[name], dtype=array.dtype)
            expected = (len(samples), *array.shape[1:])
            if data.shape != expected:
                raise ValueError(f"{name}: expected shape {expected}, got {data.shape}")
            moments[name] = sample_moments(data)
            # where all means are finite, all values are
            if not np.isfinite(np.array(moments[name][0], dtype=float)).all():
                bad = _not_finite(data, samples, skipped)
                if bad.size:
                    raise ValueError(f"{name}: sample {bad[0]} is not finite")
        for name, data in stored.items():
            objects[self.key(name, shard)] = encoded_shard(self.arrays[name], data)
        record = Record(
            shard=shard,
            samples=(samples.start, samples.stop),
            digest={name: sha256(objects[self.key(name, shard)]) for name in self.variables},
            mean={name: mean for name, (mean, _) in moments.items()},
            mean_square={name: square for name, (_, square) in moments.items()},
            skipped=dict(sorted(skipped.items())),
            job=self.job,
        )
        return objects, record

    def key(self, name: str, shard: int) -> str:
        """The key of the object that holds a variable's shard."""
        return self.arrays[name].key(shard)

    def has_place_for(self, key: str) -> bool:
        """Whether it is the key of an object that a store of this layout has, beside its lock and
        `log/`."""
        if key in (ROOT, CARD, CROISSANT, Seal.KEY):
            return True
        first, _, rest = key.partition("/")
        if first == "records":
            shard = Record.number(rest)
            return shard is not None and shard < self.shards
        if first in self.variables and rest.startswith("c/"):
            digits = rest.split("/")[1]
            shard = int(digits) if digits.isdecimal() and len(digits) <= 18 else self.shards
            return shard < self.shards and key == self.key(first, shard)
        return key in self._fixed_keys

    @cached_property
    def _fixed_keys(self) -> frozenset[str]:
        return frozenset(self.fixed_keys())

    def decode(self, name: str, shard: int, data: bytes) -> np.ndarray:
        """The values of a variable's shard in the bytes of its object.

        Raises:
            StoreError: If they are damaged.
        """
        key = self.key(name, shard).removeprefix(f"{name}/")
        memory = in_memory({ROOT: json.dumps(self.description.metadata[name]).encode(), key: data})
        samples = self.shard_range(shard)
        try:
            array = zarr.open_array(memory, mode="r", zarr_format=3)  # pyright: ignore[reportUnknownMemberType]
            return np.asarray(array[samples.start : samples.stop])
        except Exception as error:  # zarr raises many kinds on damaged data
            raise StoreError(f"{self.url}: {name}, shard {shard} is damaged: {error}") from error

    # records

    def recorded(self) -> list[int]:
        """The shards that have a record, valid or not."""
        found = map(Record.number, self.objects.keys("records"))
        return sorted(shard for shard in found if shard is not None and shard < self.shards)

    def record(self, shard: int) -> Record:
        """The record of a shard.

        Raises:
            StoreError: If there is none, or it does not fit the store.
        """
        data, what = self.objects.found(Record.key(shard), METADATA_BYTES)
        if data is None:
            raise StoreError(f"{self.url}: shard {shard} has no record: {Record.key(shard)} {what}")
        return self._parsed(shard, data)

    def records(self) -> Iterator[Record]:
        """The records of all shards, in order, some at a time.

        Raises:
            StoreError: If one is missing, or does not fit the store.
        """
        for start in range(0, self.shards, _AT_ONCE):
            shards = range(start, min(start + _AT_ONCE, self.shards))
            try:
                keys = [Record.key(shard) for shard in shards]
                found = self.objects.read_all(keys, METADATA_BYTES)
            except (FileNotFoundError, TooLargeError):
                found = []
            if len(found) == len(shards):
                yield from map(self._parsed, shards, found)
            else:
                yield from map(self.record, shards)  # which names the one that is missing

    def _parsed(self, shard: int, data: bytes) -> Record:
        try:
            record = Record.parse(data)
        except ValueError as error:
            raise StoreError(f"{self.url}: {Record.key(shard)}: {error}") from None
        samples = self.shard_range(shard)
        if record.shard != shard or record.samples != (samples.start, samples.stop):
            raise StoreError(f"{self.url}: {Record.key(shard)} is the record of another shard")
        if record.job != self.job:
            raise StoreError(f"{self.url}: {Record.key(shard)} is the record of another job")
        if self.marks is not None and self.marks[shard * MARK : (shard + 1) * MARK] != mark(data):
            raise StoreError(f"{self.url}: {Record.key(shard)} is not the record that was sealed")
        return record

    def faults_of(self, shard: int) -> list[Fault]:
        """What is wrong with the record of a shard or with its data's digests."""
        return self.inspect(shard)[2]

    def inspect(
        self, shard: int, variables: Sequence[str] | None = None
    ) -> tuple[Record | None, dict[str, bytes], list[Fault]]:
        """The record of a shard, the bytes of each variable that fit it, and what is wrong.

        Args:
            shard: Its number.
            variables: All by default.
        """
        try:
            record = self.record(shard)
        except StoreError as error:
            what = str(error).removeprefix(f"{self.url}: ")
            return None, {}, [Fault.of_shard(shard, what)]
        sound, faults = dict[str, bytes](), list[Fault]()
        for name in variables or self.variables:
            try:
                data = self.objects.read(self.key(name, shard), self.arrays[name].limit)
            except (FileNotFoundError, NotADirectoryError):
                faults.append(Fault.of_shard(shard, "the data are missing", name))
                continue
            except IsADirectoryError:
                faults.append(Fault.of_shard(shard, "a folder is in the place of the data", name))
                continue
            except TooLargeError as error:
                faults.append(Fault.of_shard(shard, f"the data are {error.strerror}", name))
                continue
            if sha256(data) == record.digest.get(name):
                sound[name] = data
            else:
                what = "the data differ from the recorded digest"
                faults.append(Fault.of_shard(shard, what, name))
        return record, sound, faults

    def missing(self) -> list[int]:
        """The shards without a valid record: what remains to be computed."""
        return [k for k in range(self.shards) if self.faults_of(k)]

    # sealing

    def summary(self, replaced: Mapping[int, Record] | None = None) -> Summary:
        """What follows from all records.

        Args:
            replaced: Records to take in place of those of some shards.

        Raises:
            StoreError: If a record is missing or damaged, or no training sample is left.
        """
        split = self.said.splits["train"]
        records = self.records()
        if replaced:
            records = (replaced.get(k) or self.record(k) for k in range(self.shards))
        try:
            return Summary.of(records, self.variables, split, self.samples)
        except StoreError:
            raise
        except ValueError as error:
            raise StoreError(f"{self.url}: {error}") from None

    def closing(self, measured: Mapping[str, object]) -> dict[str, bytes]:
        """What closes the store: card, description, seal, and `zarr.json` with statistics and
        content digest, by keys.

        Args:
            measured: Further attributes.

        Raises:
            StoreError: If a shard has no record, or no training sample is left.
        """
        summary = self.summary()
        content = dict(self.description.raw)
        content["attributes"] = {
            **self.attributes,
            **measured,
            "statistics": summary.statistics,
            "content": summary.content,
            **({"skipped": summary.skipped} if summary.skipped else {}),
            "sealed": True,
        }
        objects = {key: self.objects.read(key) for key in self.fixed_keys()}
        objects[ROOT] = json.dumps(content, indent=2).encode()
        written = documents(parse(objects[ROOT]), sha256(objects[ROOT]))
        marks = None if self.version == 2 else summary.shards
        seal = Seal.of({**objects, **written}, summary.records, marks)
        return {**written, Seal.KEY: seal.encode(), ROOT: objects[ROOT]}

    def seal(
        self,
        measured: Mapping[str, object] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Close the store.

        Args:
            measured: Further attributes.
            check: Called before and after each change, such as to raise LockedError.

        Raises:
            StoreError: If a shard has no record, or no training sample is left.
        """
        objects = self.closing(measured or {})
        self.objects.remove_partial()
        for key, data in objects.items():  # the root last
            self.objects.write(key, data, check)
        self.reread()

    # checking what is sealed

    def sealed_by(self) -> Seal:
        """The seal. Raises StoreError if it is missing, damaged, or of another store."""
        seal = seal_in(self.objects)
        self.check_seal(seal)
        return seal

    def check_seal(self, seal: Seal) -> None:
        """Raise StoreError where a seal is that of another store."""
        if seal.objects.keys() != {ROOT, CARD, CROISSANT, *self.fixed_keys()}:
            raise StoreError(f"{Seal.KEY}: it is the seal of other objects than the store has")

    def seal_faults(self, cards: bool = True) -> list[Fault]:
        """What is wrong with the seal, or with what it covers beside records and shards.

        Args:
            cards: Whether what is for people alone counts too.
        """
        try:
            seal = self.sealed_by()
        except StoreError as error:
            return [Fault.of_seal(error)]
        found, named = list[Fault](), self.description.labels
        labels = None if named is None else named.data
        for key, digest in seal.objects.items():
            if cards or key not in (CARD, CROISSANT):
                data, what = self.fixed(key)
                if data is not None and sha256(data) != digest:
                    what = "differs from the seal"
                elif data is not None and key == Labels.KEY and data != labels:
                    what = "has other names than the channels"
                if what:
                    found.append(Fault(key, what))
        return found

    def altered(self) -> list[int]:
        """The shards whose record is another than the seal knows; none where there is no seal."""
        try:
            marks = self.sealed_by().shards or ""
        except StoreError:
            return []
        found = list[int]()
        for shard in self.recorded():
            with suppress(OSError):
                data = self.objects.read(Record.key(shard), METADATA_BYTES)
                if marks[shard * MARK : (shard + 1) * MARK] not in ("", mark(data)):
                    found.append(shard)
        return found

    def fixed(self, key: str) -> tuple[bytes | None, str]:
        """The bytes of metadata, a coordinate or the card; or why there are none."""
        labels = self.description.labels
        if labels is not None and key == Labels.KEY:
            return self.objects.found(key, len(labels.data))
        name, _, chunk = key.partition("/c")
        limit = self.arrays[name].limit if chunk or key.endswith("/c") else METADATA_BYTES
        return self.objects.found(key, limit)

    def summary_faults(self, seal: Seal | None = None) -> list[Fault]:
        """What of all records together is other than the store says.

        Args:
            seal: What it was sealed with, if that is known.

        Raises:
            StoreError: If a record is missing or damaged.
        """
        summary, found = self.summary(), list[Fault]()
        if seal is not None and summary.records != seal.records:
            found.append(Fault("records", "differ from the seal"))
        if summary.statistics != self.said.statistics:
            found.append(Fault("statistics", "differ from the recorded samples"))
        if summary.content != self.said.content:
            found.append(Fault("content", "the digest differs from the records"))
        if summary.skipped != self.skipped:
            found.append(Fault("skipped", "differs from the records"))
        return found

    def fixed_keys(self) -> list[str]:
        """The keys of what does not change after the layout: metadata of arrays, coordinates."""
        chunks = [array.key() for array in self.description.coordinates.values()]
        labels = () if self.description.labels is None else (f"{CHANNEL}/{ROOT}", Labels.KEY)
        return sorted([*(f"{name}/{ROOT}" for name in self.arrays), *chunks, *labels])


@cache
def _sound() -> set[tuple[object, ...]]:
    """The shards that this process has compared with their records: of which store, content and
    variable, number, and the identity of the object."""
    return set()


def seal_in(objects: Objects) -> Seal:
    """The seal that lies somewhere. Raises StoreError if it is missing or damaged."""
    data, what = objects.found(Seal.KEY, METADATA_BYTES)
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


def _not_finite(
    values: np.ndarray, samples: range, skipped: Mapping[int, str] | list[int]
) -> np.ndarray:
    """Numbers of the samples with values that are not finite, except those that were skipped."""
    finite = np.isfinite(values)
    if finite.all():
        return np.array([], dtype=int)
    rows = np.flatnonzero(~finite.reshape(len(values), -1).all(axis=1))
    return np.setdiff1d(rows + samples.start, np.array(list(skipped), dtype=int))


def open_sealed(url: str) -> Store:
    """A finished store whose metadata and coordinates are those that were sealed.

    Raises:
        StoreError: If it is absent, not ours, not sealed (saying how to resume), or damaged.
    """
    store = finished(url)
    faults = store.seal_faults(cards=False)
    if not faults and store.version == 2:  # whose seal knows its records only together
        faults = store.summary_faults(store.sealed_by())
    if faults:
        raise StoreError(f"{url} is damaged: {faults[0]}; pdegen verify --repair mends it")
    return Store(url, marks=store.sealed_by().shards)


def finished(url: str) -> Store:
    """A finished store, as it says itself.

    Raises:
        StoreError: If it is absent, not ours, or not sealed (saying how to resume).
    """
    store = Store(url)
    if not store.sealed:
        done = len(store.recorded())
        recipe = f" {store.said.recipe.name}" if store.command == "generate" else ""
        raise StoreError(
            f"{url} is not sealed ({done} of {store.shards} shards are written): finish it by "
            f"the command that made it, pdegen {store.command}{recipe} ... "
            f"--out {url}, with --resume"
        )
    return store
