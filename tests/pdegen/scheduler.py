"""A Dask cluster in processes of its own, as somebody else would have started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

QUIET = {  # between tasks a scheduler and a worker would use a tenth of a processor
    "DASK_LOGGING__DISTRIBUTED": "critical",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
}


def address_in(file: Path, scheduler: subprocess.Popen[bytes]) -> str:
    """The address that a scheduler writes into its file, which is there before its text."""
    while not (file.exists() and (text := file.read_text("utf-8")).endswith("}")):
        assert scheduler.poll() is None
        time.sleep(0.05)
    return json.loads(text)["address"]


@contextmanager
def scheduler_of(
    folder: Path, environment: Mapping[str, str], protocol: str = "tls", *preloaded: str
) -> Iterator[str]:
    """The address of a scheduler with one worker, which have these variables and modules."""
    file, started = folder / "scheduler.json", list[subprocess.Popen[bytes]]()

    def start(program: str, *words: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard", *words]
        environ = {**os.environ, **QUIET, **environment}
        started.append(subprocess.Popen(command, env=environ, cwd=folder))

    try:
        start("dask_scheduler", "--port", "0", "--host", "127.0.0.1", "--protocol", protocol,
              "--scheduler-file", str(file))  # fmt: skip
        address = address_in(file, started[0])
        words = [word for module in preloaded for word in ("--preload", module)]
        start("dask_worker", address, "--nthreads", "1", "--local-directory", str(folder), *words)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(20)
