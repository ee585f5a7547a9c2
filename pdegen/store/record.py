"""The record of a written shard, the summary of all records, and the seal of a store."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pdegen.schema import explained
from pdegen.store.digests import sha256, short_digest, with_digest, without_digest

_BLOCK = 2**15  # points whose float64 copy fits in the cache of a core


@cache
def _validator(kind: type[Any]) -> TypeAdapter[Any]:
    """The validator of a class. It is cached, because building it takes longer than using it."""
    return TypeAdapter(kind)


@dataclass(frozen=True)
class Record:
    """The record of one written shard: digests, moments and skipped samples."""

    shard: int  # number of the shard
    samples: tuple[int, int]  # first and one past the last sample
    digest: dict[str, str]  # SHA-256 of the stored object of each variable
    # mean and mean square of each sample, by variable, in float64 over the stored values; None for
    # a skipped sample
    mean: dict[str, list[float | None]]
    mean_square: dict[str, list[float | None]]
    skipped: dict[int, str]  # reason for each sample that could not be computed
    job: str  # identity of the job that computed them (`pdegen.store.format.job_of`)

    @staticmethod
    def key(shard: int) -> str:
        """Key of the object that stores the record of a shard."""
        return f"records/{shard:06d}.json"

    @staticmethod
    def number(name: str) -> int | None:
        """Number of the shard whose record has this file name. None if no record can have this
        name."""
        digits = name.removesuffix(".json")
        if not digits.isdecimal() or len(digits) > 18:
            return None
        return int(digits) if Record.key(int(digits)) == f"records/{name}" else None

    def encode(self) -> bytes:
        """The record as JSON that ends with its own SHA-256."""
        return with_digest(vars(self))

    @classmethod
    def parse(cls, data: bytes) -> Record:
        """Parse the bytes of a record. Raises ValueError if they are not those of a record, or were
        changed."""
        try:
            return _validator(cls).validate_python(without_digest(data))
        except ValidationError as error:
            raise ValueError(f"it is no record: {explained(error)}") from None


@dataclass(frozen=True)
class Summary:
    """Digests and statistics of all records. They are computed in one pass, with one record at a
    time in memory."""

    content: str  # SHA-256 over the digests of all shards, which identifies the data
    records: str  # SHA-256 over the records
    shards: str  # the `short_digest` of each record, concatenated
    skipped: list[int]  # numbers of the skipped samples
    # mean and standard deviation of each variable over the training split, in float64. Sums over
    # samples are rounded once, so that they do not depend on the size of shards
    statistics: dict[str, dict[str, float]]

    @classmethod
    def of(
        cls, records: Iterable[Record], variables: list[str], split: tuple[int, int], samples: int
    ) -> Summary:
        """Compute the summary of records.

        Args:
            records: The records of all shards, in order.
            variables: Names of the variables.
            split: Range (start, stop) of the training samples.
            samples: Number of samples in the store.

        Raises:
            ValueError: If all training samples were skipped.
        """
        content, whole, short_digests = hashlib.sha256(), hashlib.sha256(), list[str]()
        skipped = list[int]()
        # arrays, because Python floats would take four times the memory
        moments = {name: np.full((2, samples), np.nan) for name in variables}
        for record in records:
            content.update(json.dumps(sorted(record.digest.items())).encode())
            encoded = record.encode()
            whole.update(encoded)
            short_digests.append(short_digest(encoded))
            skipped += sorted(record.skipped)
            for name, values in moments.items():
                values[0, slice(*record.samples)] = record.mean[name]
                values[1, slice(*record.samples)] = record.mean_square[name]
        return cls(
            content=content.hexdigest(),
            records=whole.hexdigest(),
            shards="".join(short_digests),
            skipped=skipped,
            statistics={
                name: _statistics(values[:, slice(*split)]) for name, values in moments.items()
            },
        )


def _statistics(moments: np.ndarray) -> dict[str, float]:
    means, squares = moments[:, ~np.isnan(moments[0])]
    if not len(means):
        raise ValueError("every training sample was skipped")
    mean = math.fsum(means) / len(means)
    return {"mean": mean, "std": math.sqrt(max(math.fsum(squares) / len(means) - mean**2, 0.0))}


@dataclass(frozen=True)
class Seal:
    """The seal of a complete store. It contains the digests of all objects that the records do not
    cover."""

    objects: dict[
        str, str
    ]  # SHA-256 of metadata, coordinates, card and Croissant description, by key
    metadata: dict[str, str]  # text of the Zarr metadata by key, to repair damaged ones
    records: str  # SHA-256 over the records
    # the `short_digest` of each record, concatenated, to find changed records
    shards: str

    KEY = "seal.json"

    @classmethod
    def of(cls, objects: Mapping[str, bytes], records: str, shards: str) -> Seal:
        """Make a seal.

        Args:
            objects: The bytes of the objects that the seal covers. Keys are the keys of the
                objects.
            records: Digest of all records (`Summary.records`).
            shards: Short digests of the records (`Summary.shards`).
        """
        return cls(
            objects={key: sha256(objects[key]) for key in sorted(objects)},
            metadata={
                key: objects[key].decode() for key in sorted(objects) if key.endswith("zarr.json")
            },
            records=records,
            shards=shards,
        )

    def encode(self) -> bytes:
        """The seal as JSON that ends with its own SHA-256."""
        return with_digest(vars(self))

    @classmethod
    def parse(cls, data: bytes) -> Seal:
        """Parse the bytes of a seal. Raises ValueError if they are not those of a seal, or were
        changed."""
        try:
            seal: Seal = _validator(cls).validate_python(without_digest(data))
        except ValidationError as error:
            raise ValueError(f"it is no seal: {explained(error)}") from None
        for key, text in seal.metadata.items():
            if seal.objects.get(key) != sha256(text.encode()):
                raise ValueError(f"its copy of {key} differs from the digest")
        return seal


def sample_moments(values: np.ndarray) -> tuple[list[float | None], list[float | None]]:
    """Mean and mean square of each sample, in float64. None for a skipped sample, whose values are
    all NaN.

    NumPy sums the values of each sample separately. The result therefore has the same bits for any
    number of samples in a call.
    """
    rows = values.reshape(len(values), -1)
    size = max(1, _BLOCK // rows.shape[1])
    means, squares = np.empty(len(rows)), np.empty(len(rows))
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        # by blocks, without a float64 copy of all values
        values64 = rows[block].astype(np.float64, order="C")
        with np.errstate(invalid="ignore"):  # infinities of both signs have no mean
            values64.mean(axis=1, out=means[block])
            values64 *= values64
            values64.mean(axis=1, out=squares[block])
    skipped = np.isnan(means).tolist()
    return _or_none(means, skipped), _or_none(squares, skipped)


def _or_none(values: np.ndarray, skipped: list[bool]) -> list[float | None]:
    return [None if nan else value for value, nan in zip(values.tolist(), skipped, strict=True)]
