"""Checks of the URL of a new store. At this URL there may be nothing, a store to replace or resume,
or unrelated files."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

from pdegen.store import lock
from pdegen.store.card import CARD, CROISSANT
from pdegen.store.format import METADATA_BYTES, ROOT, UNFINISHED_ROOT
from pdegen.store.objects import Objects, TooLargeError
from pdegen.store.reading import Record, Seal, Store, StoreError, UnfinishedLayoutError, seal_in
from pdegen.store.writing import expects_key

_RECORDS_AT_ONCE = 256  # records read at a time
_LOG = re.compile(r"log/\d{8}T\d{12}Z\.json")
_OURS = re.compile(
    "|".join(
        [
            *map(re.escape, (ROOT, lock.LOCK_KEY, lock.LEASE_KEY, Seal.KEY, CARD, CROISSANT)),
            _LOG.pattern,
            r"records/\d+\.json",
            r"[A-Za-z][A-Za-z0-9_-]*/(zarr\.json|c(/\d+)*)",
        ]
    )
)


def store_at(objects: Objects, job: str | None = None) -> Store | None:
    """The store at a URL. It may be damaged. None if the URL is empty or has only an unfinished
    layout.

    Args:
        objects: The objects at the URL.
        job: Identity of the job to resume, if any. An unfinished layout counts as a store if it has
            shards of this job. This happens if another job began to replace the store and lost the
            lock.

    Raises:
        StoreError: If something other than a store is at the URL.
    """
    names = set(objects.keys("")) if objects.exists() else set()
    logs = [f"log/{name}" for name in objects.keys("log")] if "log" in names else []
    if all(map(_LOG.fullmatch, logs)) and not names - {lock.LOCK_KEY, lock.LEASE_KEY, "log"}:
        if names:  # a folder may have the name of the lock
            check_no_unexpected(objects)
        return None
    store = Store(objects.url)
    damage = damage_of(store)
    if isinstance(damage, UnfinishedLayoutError):
        check_no_unexpected(objects)
        return store if job and objects.keys("records") and holds_only_job(objects, job) else None
    if damage is not None and not _was_store(objects):
        raise damage
    return store


def damage_of(store: Store) -> StoreError | None:
    """Try to read the metadata of a store. Returns the error that this raises, or None."""
    try:
        _ = store.description
    except StoreError as error:
        return error
    return None


def _was_store(objects: Objects) -> bool:
    """Whether objects that cannot be read as a store were one before. This is the case if
    `zarr.json` names the format pdegen, if another object of a store is intact, or if a truncated
    `zarr.json` is the only object."""
    root, _ = objects.try_read(ROOT, METADATA_BYTES)
    truncated = False  # the root is not JSON, as after a power loss
    try:
        if root is not None and json.loads(root)["attributes"]["format"] == "pdegen":
            return True
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        truncated = True
    except (TypeError, KeyError):
        pass
    if lock.holder(objects) is not None or next(_records(objects), None) is not None:
        return True
    with suppress(StoreError):
        seal_in(objects)
        return True
    return truncated and set(objects.keys("")) <= {ROOT, "log"}


def _records(objects: Objects) -> Iterator[Record]:
    """Yield the valid records of a store; several are read at once."""
    keys = [
        f"records/{name}" for name in objects.keys("records") if Record.number(name) is not None
    ]
    for start in range(0, len(keys), _RECORDS_AT_ONCE):
        group = keys[start : start + _RECORDS_AT_ONCE]
        try:
            encoded = objects.read_all(group, METADATA_BYTES)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, TooLargeError):
            readable = (objects.try_read(key, METADATA_BYTES)[0] for key in group)
            encoded = [data for data in readable if data is not None]
        for data in encoded:
            with suppress(ValueError):
                yield Record.parse(data)


def holds_only_job(objects: Objects, job: str) -> bool:
    """Whether all readable records of a store belong to a job. For a store without records, the
    result is True if the store is damaged and has no seal."""
    records = _records(objects)
    first = next(records, None)
    if first is not None:
        return first.job == job and all(record.job == job for record in records)
    empty = not objects.keys("records") and not objects.exists(Seal.KEY)
    return empty and damage_of(Store(objects.url)) is not None


def unexpected_keys(objects: Objects, store: Store | None) -> Iterator[str]:
    """Keys of objects that do not belong to a store.

    Args:
        objects: The objects at the URL of the store.
        store: The store, whose layout determines which keys belong to it. None if the layout is
            unknown. In this case a key is unexpected if no store can have it, or if the seal lists
            no object in its folder.
    """
    sealed = None
    if store is None:
        with suppress(StoreError):
            sealed = {key.partition("/")[0] for key in seal_in(objects).objects} | {"records"}
    for key in objects.all_keys():
        if key in (lock.LOCK_KEY, lock.LEASE_KEY) or _LOG.fullmatch(key):
            continue
        folder, below, _ = key.partition("/")
        unknown = sealed is not None and bool(below) and folder not in sealed
        if unknown or not (_OURS.fullmatch(key) if store is None else expects_key(store, key)):
            yield key


def check_no_unexpected(objects: Objects, store: Store | None = None) -> None:
    """Raise StoreError if there are objects that do not belong to the store (`unexpected_keys`).
    Somebody may need these objects. Therefore they are neither removed nor overwritten."""
    keys = list(itertools.islice(unexpected_keys(objects, store), 4))
    if keys:
        more = ", ..." if len(keys) > 3 else ""
        raise StoreError(
            f"{objects.url} holds files that are not of a store: {', '.join(keys[:3])}{more}; "
            "nothing was deleted: move them away"
        )


def laid_out(objects: Objects, layout: dict[str, bytes], check: Callable[[], None]) -> Store:
    """Remove the objects at a URL, except `log/`, and lay out a new store there.

    Args:
        objects: The objects at the URL of the store.
        layout: Metadata and coordinates (`pdegen.store.writing.layout_objects`).
        check: Called before and after each write. It raises LockedError if the lock was lost.
    """
    objects.write(ROOT, UNFINISHED_ROOT, check)  # from here on the old store is invalid
    for key in objects.keys(""):
        if key not in (lock.LOCK_KEY, lock.LEASE_KEY, ROOT, "log"):
            objects.remove_all(key, check)
    objects.flush()
    objects.write_all({key: layout[key] for key in layout if key != ROOT}, check)
    objects.write(ROOT, layout[ROOT], check)
    return Store(objects.url)


def resumed(objects: Objects, layout: dict[str, bytes], check: Callable[[], None]) -> Store:
    """Write the objects of a layout that are missing in the store or differ from it. A sealed store
    is then no longer sealed. The arguments are those of `laid_out`."""
    for key in differing(objects, layout):
        objects.write(key, layout[key], check)
    return Store(objects.url)


def differing(objects: Objects, layout: dict[str, bytes]) -> list[str]:
    """Keys of the objects of a layout that are missing at the URL or differ there. If `zarr.json`
    is one of them, its key comes first."""
    keys = [ROOT, *(key for key in layout if key != ROOT)]
    return [key for key in keys if objects.try_read(key, len(layout[key]))[0] != layout[key]]
