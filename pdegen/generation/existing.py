"""What lies where a store is to be made: nothing, a store of ours, or what is never touched."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

from pdegen.store import lock
from pdegen.store.card import CARD, CROISSANT
from pdegen.store.checking import expects_key
from pdegen.store.format import METADATA_BYTES, ROOT, UNFINISHED_ROOT
from pdegen.store.objects import Objects, TooLargeError
from pdegen.store.reading import Store, StoreError, UnfinishedLayoutError, seal_in
from pdegen.store.record import Record, Seal

_AT_ONCE = 256  # records read at a time
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
    """The store that is there, damaged or not; None where nothing is, or nothing but the beginning
    of a layout. The shards of a job that goes on count, although a layout was begun over them by
    one that was too late to see that it had been taken over. Raises StoreError if something else is
    there."""
    there = set(objects.keys("")) if objects.exists() else set()
    logs = [f"log/{name}" for name in objects.keys("log")] if "log" in there else []
    if all(map(_LOG.fullmatch, logs)) and not there - {lock.LOCK_KEY, lock.LEASE_KEY, "log"}:
        if there:  # in a folder that has the name of the lock
            check_no_unexpected(objects)
        return None
    store = Store(objects.url)
    damage = damage_of(store)
    if isinstance(damage, UnfinishedLayoutError):
        check_no_unexpected(objects)
        return store if job and objects.keys("records") and holds_only_job(objects, job) else None
    if damage is not None and not _is_ours(objects):
        raise damage
    return store


def damage_of(store: Store) -> StoreError | None:
    """Why a store cannot be read; None where it can."""
    try:
        _ = store.description
    except StoreError as error:
        return error
    return None


def _is_ours(objects: Objects) -> bool:
    """Whether what cannot be read as a store was one: by its root, by another object of ours that
    is whole, or since nothing else than a root that was cut off is there."""
    root, _ = objects.try_read(ROOT, METADATA_BYTES)
    torn = False  # the root is no JSON, as after a loss of power
    try:
        if root is not None and json.loads(root)["attributes"]["format"] == "pdegen":
            return True
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        torn = True
    except (TypeError, KeyError):
        pass
    if lock.holder(objects) is not None or next(_records(objects), None) is not None:
        return True
    with suppress(StoreError):
        seal_in(objects)
        return True
    return torn and set(objects.keys("")) <= {ROOT, "log"}


def _records(objects: Objects) -> Iterator[Record]:
    """The records that can be read, some at a time."""
    keys = [
        f"records/{name}" for name in objects.keys("records") if Record.number(name) is not None
    ]
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        try:
            found = objects.read_all(some, METADATA_BYTES)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, TooLargeError):
            whole = (objects.try_read(key, METADATA_BYTES)[0] for key in some)
            found = [data for data in whole if data is not None]
        for data in found:
            with suppress(ValueError):
                yield Record.parse(data)


def holds_only_job(objects: Objects, job: str) -> bool:
    """Whether all that was computed and can be read is of this job, whatever the root says."""
    records = _records(objects)
    first = next(records, None)
    if first is not None:
        return first.job == job and all(record.job == job for record in records)
    nothing = not objects.keys("records") and not objects.exists(Seal.KEY)
    return nothing and damage_of(Store(objects.url)) is not None


def strangers(objects: Objects, store: Store | None) -> Iterator[str]:
    """The keys of what a store of this layout does not have; without a layout, of what no store at
    all has, or not the one of the seal."""
    sealed = None
    if store is None:
        with suppress(StoreError):
            sealed = {key.partition("/")[0] for key in seal_in(objects).objects} | {"records"}
    for key in objects.all_keys():
        if key in (lock.LOCK_KEY, lock.LEASE_KEY) or _LOG.fullmatch(key):
            continue
        room, within, _ = key.partition("/")
        unknown = sealed is not None and bool(within) and room not in sealed
        if unknown or not (_OURS.fullmatch(key) if store is None else expects_key(store, key)):
            yield key


def check_no_unexpected(objects: Objects, store: Store | None = None) -> None:
    """Raise StoreError where a file lies there that the store does not have (`strangers`): nobody
    knows whose it is, and it may be in the way."""
    some = list(itertools.islice(strangers(objects, store), 4))
    if some:
        more = ", ..." if len(some) > 3 else ""
        raise StoreError(
            f"{objects.url} holds what is not of a store: {', '.join(some[:3])}{more}; nothing was "
            "deleted: move it away"
        )


def laid_out(objects: Objects, described: dict[str, bytes], check: Callable[[], None]) -> Store:
    """A new store of metadata and coordinates (`pdegen.store.writing.layout_objects`), in place of
    what is there; `log/` goes on. `check` raises LockedError once the place is another job's; it is
    called before and after each change."""
    objects.write(ROOT, UNFINISHED_ROOT, check)  # from here on the old one is none
    for key in objects.keys(""):
        if key not in (lock.LOCK_KEY, lock.LEASE_KEY, ROOT, "log"):
            objects.remove_all(key, check)
    objects.flush()
    for key, data in described.items():  # the root last
        objects.write(key, data, check)
    return Store(objects.url)


def continued(objects: Objects, described: dict[str, bytes], check: Callable[[], None]) -> Store:
    """A store whose metadata and coordinates are made those of the layout; a sealed one is open
    again. The arguments are those of `laid_out`."""
    for key in differing(objects, described):
        objects.write(key, described[key], check)
    return Store(objects.url)


def differing(objects: Objects, described: dict[str, bytes]) -> list[str]:
    """The keys of what is not as it was laid out, `zarr.json` first."""
    keys = [ROOT, *(key for key in described if key != ROOT)]
    return [key for key in keys if objects.try_read(key, len(described[key]))[0] != described[key]]
