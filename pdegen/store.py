"""The dataset format: Zarr v3 with shards, records and a seal. `datasets/README.md` describes it.

A store is laid out first, filled shard by shard by one writer each, and sealed last. A shard
counts as written once its record, written after its data, carries the digests of the data. So an
interrupted store is continued by writing the shards that have no valid record.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec
from zarr.errors import ZarrUserWarning

from pdegen.objects import Objects

FORMAT = "pdegen"
FORMAT_VERSION = 1
_CHUNK_BYTES = 2**19  # about half a megabyte: fast to compress, small enough to read one sample
_COMPRESSOR = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")


class StoreError(ValueError):
    """A store that is absent, not ours, unfinished, in the way, or damaged; one line."""


@dataclass(frozen=True)
class Variable:
    """An array with a value for every sample.

    Args:
        name: Name in the store.
        dims: Names of its dimensions after `sample`.
        shape: Sizes of these.
        dtype: Type on disk.
        attributes: long_name, units and what else a reader should know.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Coordinate:
    """An array shared by all samples, such as the grid points."""

    name: str
    dims: tuple[str, ...]
    values: np.ndarray
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """What a store will hold: variables, coordinates and attributes; and how it is cut."""

    samples: int
    shard: int
    variables: tuple[Variable, ...]
    coordinates: tuple[Coordinate, ...]
    attributes: Mapping[str, Any]

    @property
    def shards(self) -> int:
        return math.ceil(self.samples / self.shard)

    @property
    def bytes(self) -> int:
        """Size of the variables before compression."""
        return sum(
            self.samples * math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in self.variables
        )


@dataclass(frozen=True)
class Record:
    """What is known of one written shard.

    Args:
        shard: Its number.
        samples: First and one past the last sample.
        digest: SHA-256 of the stored object of each variable.
        mean, mean_square: Per variable, of each sample, in float64 over the stored values.
        seconds: Time taken to compute it.
    """

    shard: int
    samples: tuple[int, int]
    digest: dict[str, str]
    mean: dict[str, list[float]]
    mean_square: dict[str, list[float]]
    seconds: float

    @staticmethod
    def key(shard: int) -> str:
        return f"records/{shard:06d}.json"

    @classmethod
    def parse(cls, data: bytes) -> Record:
        """Raises ValueError on bytes that are no record."""
        content = json.loads(data)
        if not isinstance(content, dict):
            raise ValueError("not a record")
        try:
            return cls(**{**content, "samples": tuple(content["samples"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a record: {error}") from None


@dataclass(frozen=True)
class Fault:
    """Something wrong in a store: where, and what."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def lay_out(url: str, layout: Layout) -> Store:
    """Create an empty store: metadata and coordinates, no data yet.

    Raises:
        OSError: If the place cannot be written.
    """
    place = _place(url)
    group = zarr.create_group(
        store=place,
        attributes={
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "sealed": False,
            "samples": layout.samples,
            "shard": layout.shard,
            "variables": [v.name for v in layout.variables],
            **layout.attributes,
        },
    )
    for coordinate in layout.coordinates:
        array = group.create_array(
            coordinate.name,
            shape=coordinate.values.shape,
            chunks=coordinate.values.shape,
            dtype=coordinate.values.dtype,
            dimension_names=coordinate.dims,
            attributes=dict(coordinate.attributes),
        )
        array[...] = coordinate.values
    for variable in layout.variables:
        row = int(np.dtype(variable.dtype).itemsize * math.prod(variable.shape))
        rows = _divisor(layout.shard, at_most=max(1, _CHUNK_BYTES // row))
        group.create_array(
            variable.name,
            shape=(layout.samples, *variable.shape),
            chunks=(rows, *variable.shape),
            shards=(layout.shard, *variable.shape),
            dtype=variable.dtype,
            compressors=_COMPRESSOR,
            fill_value=float("nan"),  # what was never written is no value
            dimension_names=("sample", *variable.dims),
            attributes=dict(variable.attributes),
        )
    with warnings.catch_warnings():
        # zarr warns that readers other than zarr-python may ignore this part; they may
        warnings.filterwarnings("ignore", "Consolidated metadata", ZarrUserWarning)
        zarr.consolidate_metadata(place, zarr_format=3)
    return Store(url)


def _divisor(n: int, at_most: int) -> int:
    return max(d for d in range(1, min(n, at_most) + 1) if n % d == 0)


@dataclass(frozen=True)
class Store:
    """A store at a URL or path.

    Raises:
        StoreError: On first use, if there is no pdegen store.
    """

    url: str

    @cached_property
    def objects(self) -> Objects:
        return Objects(self.url)

    @cached_property
    def group(self) -> zarr.Group:
        return _open_group(self.url)

    def check(self) -> None:
        """Raise StoreError unless there is a pdegen store."""
        _open_group(self.url)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return self.group.attrs.asdict()

    @property
    def sealed(self) -> bool:
        return self.attributes["sealed"] is True

    @property
    def derived(self) -> bool:
        """Whether it was made from another store, its parent (`pdegen.derived`)."""
        return "parent" in self.attributes

    @property
    def samples(self) -> int:
        return self.attributes["samples"]

    @property
    def shard_size(self) -> int:
        return self.attributes["shard"]

    @property
    def shards(self) -> int:
        return math.ceil(self.samples / self.shard_size)

    @property
    def variables(self) -> list[str]:
        return self.attributes["variables"]

    def array(self, name: str) -> zarr.Array:
        array = self.group[name]
        assert isinstance(array, zarr.Array)
        return array

    def values(self, name: str, samples: range) -> np.ndarray:
        """What is stored of a variable for these samples.

        Raises:
            StoreError: If it is damaged or missing.
        """
        damaged = f"{self.url}: {name}, samples {samples.start} to {samples.stop - 1} are damaged"
        try:
            values = np.asarray(self.array(name)[samples.start : samples.stop])
        except Exception as error:  # zarr raises many kinds on damaged data
            raise StoreError(f"{damaged} ({error}); pdegen verify names the shards") from error
        if not np.isfinite(values).all():  # where nothing is stored, zarr reads NaN
            raise StoreError(f"{damaged} (values are missing); pdegen verify names the shards")
        return values

    def shard_range(self, shard: int) -> range:
        """The samples of a shard."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.samples))

    def write_shard(self, shard: int, values: Mapping[str, np.ndarray], seconds: float) -> Record:
        """Write the data of one shard, then its record.

        Args:
            shard: Number of the shard.
            values: For each variable the values of the samples of the shard.
            seconds: Time taken to compute them, kept in the record.

        Raises:
            ValueError: On missing variables, other shapes, or values that are not finite.
        """
        samples = self.shard_range(shard)
        stored = {}
        for name in self.variables:
            if name not in values:
                raise ValueError(f"{name}: no values are given")
            array = self.array(name)
            data = stored[name] = np.asarray(values[name], dtype=array.dtype)
            if data.shape != (len(samples), *array.shape[1:]):
                raise ValueError(
                    f"{name}: expected shape {(len(samples), *array.shape[1:])}, got {data.shape}"
                )
            if not np.isfinite(data).all():
                bad = np.flatnonzero(~np.isfinite(data.reshape(len(samples), -1)).all(axis=1))
                raise ValueError(f"{name}: sample {samples[int(bad[0])]} is not finite")
        mean, mean_square = {}, {}
        for name, data in stored.items():
            # into what is there Zarr would merge the values, and fail if that is damaged
            self.objects.remove(self._key(name, shard))
            self.array(name)[samples.start : samples.stop] = data
            mean[name], mean_square[name] = _moments(data)
        record = Record(
            shard=shard,
            samples=(samples.start, samples.stop),
            digest={name: self.digest(name, shard) for name in self.variables},
            mean=mean,
            mean_square=mean_square,
            seconds=seconds,
        )
        self.objects.write(Record.key(shard), json.dumps(asdict(record)).encode())
        return record

    def digest(self, name: str, shard: int) -> str:
        """SHA-256 of the stored object that holds a variable's shard."""
        return hashlib.sha256(self.objects.read(self._key(name, shard))).hexdigest()

    def _key(self, name: str, shard: int) -> str:
        return "/".join([name, "c", str(shard), *["0"] * (self.array(name).ndim - 1)])

    def record(self, shard: int) -> Record:
        """The record of a shard.

        Raises:
            StoreError: If there is none, or it does not fit the store.
        """
        try:
            record = Record.parse(self.objects.read(Record.key(shard)))
        except FileNotFoundError:
            raise StoreError(f"{self.url}: shard {shard} has no record") from None
        except ValueError as error:
            raise StoreError(f"{self.url}: {Record.key(shard)}: {error}") from None
        samples = self.shard_range(shard)
        if record.shard != shard or record.samples != (samples.start, samples.stop):
            raise StoreError(f"{self.url}: {Record.key(shard)} is the record of another shard")
        return record

    def faults_of(self, shard: int) -> Iterator[Fault]:
        """What is wrong with the record of a shard or with its data's digests."""
        try:
            record = self.record(shard)
        except StoreError as error:
            yield Fault(f"shard {shard}", str(error).removeprefix(f"{self.url}: "))
            return
        for name in self.variables:
            try:
                digest = self.digest(name, shard)
            except FileNotFoundError:
                yield Fault(f"{name}, shard {shard}", "the data are missing")
                continue
            if digest != record.digest.get(name):
                yield Fault(f"{name}, shard {shard}", "the data differ from the recorded digest")

    def missing(self) -> list[int]:
        """The shards without a valid record: what remains to be computed."""
        return [k for k in range(self.shards) if any(self.faults_of(k))]

    def seal(self, measured: Mapping[str, Any] | None = None) -> None:
        """Close the store: statistics, content digest, and the seal.

        Args:
            measured: Further attributes.

        Raises:
            StoreError: If a shard has no record.
        """
        records = [self.record(shard) for shard in range(self.shards)]
        final = {
            **(measured or {}),
            "statistics": self.statistics(records),
            "content": content_digest(records),
            "sealed": True,
        }
        self._update(final)

    def unseal(self) -> None:
        """Open a sealed store for writing again: readers refuse it until it is sealed anew."""
        self._update({"sealed": False})

    def _update(self, attributes: dict[str, Any]) -> None:
        self.group.attrs.update(attributes)
        self.__dict__.pop("attributes", None)
        self.__dict__.pop("group", None)

    def statistics(self, records: list[Record]) -> dict[str, dict[str, float]]:
        """Mean and standard deviation of each variable over the training split, in float64.

        Sums over samples are rounded once, so they do not depend on how the samples are cut
        into shards.
        """
        start, stop = self.attributes["splits"]["train"]
        result = {}
        for name in self.variables:
            means = [m for record in records for m in record.mean[name]][start:stop]
            squares = [m for record in records for m in record.mean_square[name]][start:stop]
            mean = math.fsum(means) / len(means)
            variance = math.fsum(squares) / len(squares) - mean**2
            result[name] = {"mean": mean, "std": math.sqrt(max(variance, 0.0))}
        return result

    def verify(self) -> list[Fault]:
        """All faults of a sealed store: records, digests, values, statistics, content digest."""
        faults = [] if self.sealed else [Fault("store", "not sealed")]
        records = []
        for shard in range(self.shards):
            found = list(self.faults_of(shard))
            faults += found
            if found:
                continue
            record = self.record(shard)
            records.append(record)
            samples = self.shard_range(shard)
            for name in self.variables:
                values = np.asarray(self.array(name)[samples.start : samples.stop])
                if not np.isfinite(values).all():
                    faults.append(Fault(f"{name}, shard {shard}", "values are not finite"))
                if _moments(values) != (record.mean.get(name), record.mean_square.get(name)):
                    faults.append(Fault(f"{name}, shard {shard}", "the recorded means differ"))
        if not faults:
            if self.statistics(records) != self.attributes["statistics"]:
                faults.append(Fault("statistics", "differ from the recorded samples"))
            if content_digest(records) != self.attributes["content"]:
                faults.append(Fault("content", "the digest differs from the records"))
        return faults


def _moments(values: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and mean square of each sample, in float64."""
    mean, mean_square = [], []
    for row in values.reshape(len(values), -1):  # one at a time: no copy of all in float64
        row = row.astype(np.float64)
        mean.append(float(row.mean()))
        row *= row
        mean_square.append(float(row.mean()))
    return mean, mean_square


def content_digest(records: list[Record]) -> str:
    """One SHA-256 over the digests of all shards, in order: the identity of the data."""
    digests = [sorted(record.digest.items()) for record in records]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def _place(url: str) -> str:
    """What Zarr is given: a local path without its protocol, for it makes no folders by URL."""
    objects = Objects(url)
    return objects.root if objects.is_local else url


def _open_group(url: str) -> zarr.Group:
    objects = Objects(url)
    if not objects.exists():
        raise StoreError(f"{url}: no such store")
    try:
        group = zarr.open_group(_place(url), mode="r+", zarr_format=3)
        attributes = group.attrs.asdict()
    except (FileNotFoundError, FileExistsError, NotADirectoryError):  # no metadata, or a file
        raise StoreError(f"{url} is not a pdegen store") from None
    except Exception as error:  # zarr raises many kinds on damaged metadata
        raise StoreError(f"{url}: the metadata are damaged: {error}") from error
    if attributes.get("format") != FORMAT:
        raise StoreError(f"{url} is a Zarr group, but not a pdegen store")
    if attributes.get("format_version") != FORMAT_VERSION:
        raise StoreError(
            f"{url} has format version {attributes.get('format_version')}, "
            f"this version reads {FORMAT_VERSION}"
        )
    if group.metadata.consolidated_metadata is None:  # what `lay_out` writes last
        raise StoreError(f"{url} was interrupted while it was laid out: remove it, start again")
    return group


def open_sealed(url: str) -> Store:
    """A finished store.

    Raises:
        StoreError: If it is absent, not ours, or not sealed (saying how to resume).
    """
    store = Store(url)
    if not store.sealed:
        done = len(store.objects.keys("records"))
        command = f"generate {store.attributes['recipe']['name']}"
        raise StoreError(
            f"{url} is not sealed ({done} of {store.shards} shards are written): finish it by "
            f"the command that made it, pdegen {'noise' if store.derived else command} ... "
            f"--out {url}, with --resume"
        )
    return store
