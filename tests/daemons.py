"""Common parts of servers that tests start on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def absent(programs: tuple[str, ...]) -> list[str]:
    """The programs that are not installed."""
    return [program for program in programs if shutil.which(program, path=PATH) is None]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in held]


def answers(port: int) -> bool:
    """Whether a server listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def until(
    condition: Callable[[], bool], daemons: list[subprocess.Popen[bytes]], folder: Path
) -> None:
    """Wait, and say what the daemons said in files `*.out` where one ends or a minute does."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end or any(daemon.poll() is not None for daemon in daemons):
            said = [path.read_text("utf-8", "replace")[-2000:] for path in folder.glob("*.out")]
            raise RuntimeError("a server does not run:\n" + "\n".join(said))
        time.sleep(0.1)


@contextmanager
def moto() -> Iterator[int]:
    """The port of an S3 server in a process of its own."""
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "moto.out").open("wb") as out,
        subprocess.Popen(words, stdout=out, stderr=out) as process,
    ):
        try:
            until(lambda: answers(port), [process], Path(folder))
            yield port
            if process.poll() is not None:
                said = (Path(folder) / "moto.out").read_text("utf-8", "replace")[-2000:]
                raise RuntimeError(f"the server ended with status {process.returncode}:\n{said}")
        finally:
            process.terminate()  # Popen waits for its end
