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


@contextmanager
def scheduler_of(
    folder: Path, environment: Mapping[str, str], protocol: str = "tls"
) -> Iterator[str]:
    """The address of a scheduler with one worker, which have these variables."""
    file, started = folder / "scheduler.json", list[subprocess.Popen[bytes]]()

    def start(program: str, *words: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard", *words]
        environ = {**os.environ, "DASK_LOGGING__DISTRIBUTED": "critical", **environment}
        started.append(subprocess.Popen(command, env=environ, cwd=folder))

    try:
        start("dask_scheduler", "--port", "0", "--host", "127.0.0.1", "--protocol", protocol,
              "--scheduler-file", str(file))  # fmt: skip
        while not file.exists():
            assert started[0].poll() is None
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        start("dask_worker", address, "--nthreads", "1", "--local-directory", str(folder))
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(20)
