"""What is known of a written shard, and of a whole store once it is sealed."""

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

_BLOCK = 2**15  # points whose float64 copy stays in a core's cache


@cache
def _validator(kind: type[Any]) -> TypeAdapter[Any]:
    """To build one takes longer than to use it."""
    return TypeAdapter(kind)


@dataclass(frozen=True)
class Record:
    """What is known of one written shard."""

    shard: int  # its number
    samples: tuple[int, int]  # first and one past the last sample
    digest: dict[str, str]  # SHA-256 of the stored object of each variable
    # mean, mean_square: per variable, of each sample, in float64 over the stored values; None of a
    # sample that was skipped
    mean: dict[str, list[float | None]]
    mean_square: dict[str, list[float | None]]
    skipped: dict[int, str]  # samples that could not be computed, and why
    job: str  # what made them (`job_of`)

    @staticmethod
    def key(shard: int) -> str:
        return f"records/{shard:06d}.json"

    @staticmethod
    def number(name: str) -> int | None:
        """The shard whose record has this name; None where it is no record's."""
        digits = name.removesuffix(".json")
        if not digits.isdecimal() or len(digits) > 18:
            return None
        return int(digits) if Record.key(int(digits)) == f"records/{name}" else None

    def encode(self) -> bytes:
        return with_digest(vars(self))

    @classmethod
    def parse(cls, data: bytes) -> Record:
        """Raises ValueError on bytes that are no record, or where any of them was changed."""
        try:
            return _validator(cls).validate_python(without_digest(data))
        except ValidationError as error:
            raise ValueError(f"it is no record: {explained(error)}") from None


@dataclass(frozen=True)
class Summary:
    """What follows from all records, in their order, without holding them."""

    content: str  # SHA-256 over the digests of all shards: the identity of the data
    records: str  # SHA-256 over the records themselves
    shards: str  # the mark of each record (`mark`), one after another
    skipped: list[int]  # numbers of the samples that were skipped
    # mean and standard deviation of each variable over the training split, in float64. Sums over
    # samples are rounded once, so they do not depend on how the samples are cut into shards
    statistics: dict[str, dict[str, float]]

    @classmethod
    def of(
        cls, records: Iterable[Record], variables: list[str], split: tuple[int, int], samples: int
    ) -> Summary:
        content, whole, marks = hashlib.sha256(), hashlib.sha256(), list[str]()
        skipped = list[int]()
        # eight bytes for each number: Python's own objects would take four times as much
        moments = {name: np.full((2, samples), np.nan) for name in variables}
        for record in records:
            content.update(json.dumps(sorted(record.digest.items())).encode())
            encoded = record.encode()
            whole.update(encoded)
            marks.append(short_digest(encoded))
            skipped += sorted(record.skipped)
            for name, values in moments.items():
                values[0, slice(*record.samples)] = record.mean[name]
                values[1, slice(*record.samples)] = record.mean_square[name]
        return cls(
            content=content.hexdigest(),
            records=whole.hexdigest(),
            shards="".join(marks),
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
    """What closes a store: the digests of all that its shards' records do not cover."""

    objects: dict[str, str]  # SHA-256 of the metadata, coordinates, card and description, by keys
    metadata: dict[str, str]  # the text of the Zarr metadata, from which damaged ones are mended
    records: str  # SHA-256 over the records
    # the first 16 digits of SHA-256 of each record, one after another: which record is another one
    shards: str

    KEY = "seal.json"

    @classmethod
    def of(cls, objects: Mapping[str, bytes], records: str, shards: str) -> Seal:
        """The seal of these objects, and of records (`Summary`)."""
        return cls(
            objects={key: sha256(objects[key]) for key in sorted(objects)},
            metadata={
                key: objects[key].decode() for key in sorted(objects) if key.endswith("zarr.json")
            },
            records=records,
            shards=shards,
        )

    def encode(self) -> bytes:
        return with_digest(vars(self))

    @classmethod
    def parse(cls, data: bytes) -> Seal:
        """Raises ValueError on bytes that are no seal, or where any of them was changed."""
        try:
            seal: Seal = _validator(cls).validate_python(without_digest(data))
        except ValidationError as error:
            raise ValueError(f"it is no seal: {explained(error)}") from None
        for key, text in seal.metadata.items():
            if seal.objects.get(key) != sha256(text.encode()):
                raise ValueError(f"it holds another {key} than it has the digest of")
        return seal


def sample_moments(values: np.ndarray) -> tuple[list[float | None], list[float | None]]:
    """Mean and mean square of each sample, in float64; None where it was skipped (all NaN).

    NumPy sums a row in pairs, alone or among others, so the bits do not depend on the blocks.
    """
    rows = values.reshape(len(values), -1)
    size = max(1, _BLOCK // rows.shape[1])
    means, squares = np.empty(len(rows)), np.empty(len(rows))
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        some = rows[block].astype(
            np.float64, order="C"
        )  # a block at a time: no copy of all in float64
        with np.errstate(invalid="ignore"):  # infinities of both signs have no mean
            some.mean(axis=1, out=means[block])
            some *= some
            some.mean(axis=1, out=squares[block])
    lost = np.isnan(means).tolist()
    return _or_none(means, lost), _or_none(squares, lost)


def _or_none(values: np.ndarray, lost: list[bool]) -> list[float | None]:
    return [None if gone else value for value, gone in zip(values.tolist(), lost, strict=True)]
