"""The folder `log/` of a store. It has one file for each run that wrote to the store, with the
time, machine, commit and outcome of the run."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from pdegen.software import platform_facts, versions
from pdegen.store.format import METADATA_BYTES, Json
from pdegen.store.objects import Objects, retried_errors
from pdegen.version import __version__

_SHOWN = ("processor", "commit", "device", "dask")  # keys that `runs` shows


@contextmanager
def logged(
    objects: Objects, scheduler: str, workers: int | None, device: str | None
) -> Iterator[Json]:
    """Collect facts about this run, and write them to `log/` at the end, whether or not the run
    succeeds.

    The commit and the processor are logged here and are not attributes of the store. Machines and
    commits that compute the same numbers therefore write the same store.
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
        with suppress(OSError):  # a full disk raises its own error elsewhere
            objects.write(key, json.dumps(log, indent=1).encode())


def runs(objects: Objects) -> list[str]:
    """The runs that computed shards of a store. Each is described in one line: processor, commit,
    PyTorch device, and version of Dask.

    The list is empty for a copy of the store without `log/`. The seal does not cover logs.
    """
    lines = list[str]()
    try:
        names = sorted(objects.keys("log"))
    except OSError:  # the location cannot be listed
        return []
    for name in names:
        data, _ = objects.try_read(f"log/{name}", METADATA_BYTES)
        try:
            log = json.loads(data or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(log, dict) and log.get("shards"):
            shown = {key: log[key] for key in _SHOWN if isinstance(log.get(key), str)}
            words = [v if key == "processor" else f"{key} {v}" for key, v in shown.items()]
            lines.append(", ".join(words))
    return [line for line in dict.fromkeys(lines) if line]
