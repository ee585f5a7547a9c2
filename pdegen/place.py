"""What lies where a store is to be made: nothing, a store of ours, or what is never touched."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

from pdegen import lock
from pdegen.card import CARD, CROISSANT
from pdegen.layout import ROOT
from pdegen.metadata import BEGUN, METADATA_BYTES
from pdegen.objects import Objects, TooLargeError
from pdegen.record import Record, Seal
from pdegen.store import Store, StoreError

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_LOG = re.compile(r"log/\d{8}T\d{12}Z\.json")
_OURS = re.compile(
    "|".join(
        [
            *map(re.escape, (ROOT, lock.KEY, lock.RENEWED, Seal.KEY, CARD, CROISSANT)),
            _LOG.pattern,
            r"records/\d+\.json",
            r"[A-Za-z][A-Za-z0-9_-]*/(zarr\.json|c(/\d+)*)",
        ]
    )
)


def found(objects: Objects) -> Store | None:
    """The store that is there, damaged or not; None where nothing is, or nothing but the beginning
    of a layout.

    Raises:
        StoreError: If something else is there.
    """
    there = set(objects.keys("")) if objects.exists() else set()
    logs = [f"log/{name}" for name in objects.keys("log")] if "log" in there else []
    store = Store(objects.url)
    if all(map(_LOG.fullmatch, logs)) and not there - {lock.KEY, lock.RENEWED, "log"}:
        return None
    if store.begun:
        check_all_ours(objects)
        return None
    if store.damage is not None and not _is_ours(objects):
        store.check()  # says what it is not
    return store


def _is_ours(objects: Objects) -> bool:
    """Whether what cannot be read as a store was one: by its root, by another object of ours that
    is whole, or since nothing else than a root that was cut off is there."""
    try:
        attributes = json.loads(objects.read(ROOT, METADATA_BYTES))["attributes"]
        if attributes["format"] == "pdegen":
            return True
    except (*_ABSENT, TooLargeError, ValueError, RecursionError, TypeError, KeyError):
        pass
    if lock.holder(objects) is not None or next(_records(objects), None) is not None:
        return True
    try:
        Seal.parse(objects.read(Seal.KEY, METADATA_BYTES))
        return True
    except (*_ABSENT, TooLargeError, ValueError):
        pass
    return set(objects.keys("")) <= {ROOT, "log"} and _is_torn(objects)


def _is_torn(objects: Objects) -> bool:
    """Whether the root is no JSON, as after a loss of power."""
    try:
        json.loads(objects.read(ROOT, METADATA_BYTES))
    except (ValueError, RecursionError):
        return True
    except (*_ABSENT, TooLargeError):
        pass
    return False


def _records(objects: Objects) -> Iterator[Record]:
    """The records that can be read."""
    for name in objects.keys("records"):
        if Record.number(name) is None:
            continue
        try:
            yield Record.parse(objects.read(f"records/{name}", METADATA_BYTES))
        except (*_ABSENT, TooLargeError, ValueError):
            continue


def is_all_of(objects: Objects, job: str) -> bool:
    """Whether all that was computed and can be read is of this job, whatever the root says."""
    made_by = {record.job for record in _records(objects)}
    if made_by:
        return made_by == {job}
    nothing = not objects.keys("records") and not objects.exists(Seal.KEY)
    return nothing and Store(objects.url).damage is not None


def check_all_ours(objects: Objects) -> None:
    """Raise StoreError where a file lies there that no store has: it would be deleted."""
    strangers = (key for key in objects.all_keys() if not _OURS.fullmatch(key))
    some = list(itertools.islice(strangers, 4))
    if some:
        more = ", ..." if len(some) > 3 else ""
        raise StoreError(
            f"{objects.url} holds what is not of a store: {', '.join(some[:3])}{more}; nothing was "
            "deleted: move it away"
        )


def laid_out(objects: Objects, described: dict[str, bytes]) -> Store:
    """A new store, in place of what is there; `log/` goes on.

    Args:
        objects: The place.
        described: Metadata and coordinates by keys (`pdegen.store.described_by`).
    """
    objects.write(ROOT, BEGUN)  # from here on the old one is none
    for key in objects.keys(""):
        if key not in (lock.KEY, lock.RENEWED, ROOT, "log"):
            objects.remove_all(key)
    objects.flush()
    for key, data in described.items():  # the root last
        objects.write(key, data)
    return Store(objects.url)


def continued(objects: Objects, described: dict[str, bytes]) -> Store:
    """A store whose metadata and coordinates are made those of the layout; a sealed one is open
    again."""
    for key in differing(objects, described):
        objects.write(key, described[key])
    return Store(objects.url)


def differing(objects: Objects, described: dict[str, bytes]) -> list[str]:
    """The keys of what is not as it was laid out, `zarr.json` first."""
    keys = [ROOT, *(key for key in described if key != ROOT)]
    return [key for key in keys if not _has(objects, key, described[key])]


def _has(objects: Objects, key: str, data: bytes) -> bool:
    try:
        return objects.read(key, len(data)) == data
    except (*_ABSENT, TooLargeError):
        return False
