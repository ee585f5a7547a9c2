"""`log/`: a file for each run that wrote to a store: when, on what, by which code, how it ended."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from pdegen.software import platform_facts, versions
from pdegen.store.arrays import Json
from pdegen.store.format import METADATA_BYTES
from pdegen.store.objects import Objects
from pdegen.store.retries import retried_errors
from pdegen.version import __version__

_SHOWN = ("processor", "commit", "device", "dask")  # of a run, to people


@contextmanager
def logged(
    objects: Objects, scheduler: str, workers: int | None, device: str | None
) -> Iterator[Json]:
    """What is known of this run, written to `log/` when it ends, however it does.

    Commit and processor stand here, not in the attributes: two makings of a recipe are the same
    bytes on machines and at commits that give the same numbers.
    """
    started = datetime.now(UTC)
    log: Json = {
        "started": started.isoformat(timespec="seconds"),
        "scheduler": scheduler,
        "workers": workers,
        "machine": platform.machine(),
        "pdegen": __version__,
        **platform_facts(),
        **({"device": device} if device else {}),
        **({} if scheduler == "threads" else versions("dask")),
        "shards": 0,
        "notes": [],
    }
    try:
        with retried_errors() as notes:
            yield log
        log["notes"] += notes
        log["end"] = "complete"
    except BaseException as error:
        log["end"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        log["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        key = f"log/{started:%Y%m%dT%H%M%S%fZ}.json"
        with suppress(OSError):  # a full disk has its own error
            objects.write(key, json.dumps(log, indent=1).encode())


def runs(objects: Objects) -> list[str]:
    """The runs that computed shards of a store, each in a line: processor, commit, device, Dask.

    Logs are not sealed, and a copy of a store need not have them: then the list is empty.
    """
    lines = list[str]()
    try:
        names = sorted(objects.keys("log"))
    except OSError:  # of a place that cannot be listed
        return []
    for name in names:
        data, _ = objects.try_read(f"log/{name}", METADATA_BYTES)
        try:
            log = json.loads(data or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(log, dict) and log.get("shards"):
            said = {key: log[key] for key in _SHOWN if isinstance(log.get(key), str)}
            words = [v if key == "processor" else f"{key} {v}" for key, v in said.items()]
            lines.append(", ".join(words))
    return [line for line in dict.fromkeys(lines) if line]
