"""An S3 server behind a line that can be cut, and what a store has there."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import boto3
import fsspec
import pytest

from pdegen.store.objects import Objects
from tests.daemons import moto

SECRET = "sesame-4711-secret"


class Line:
    """A TCP line to a server, which can be cut."""

    def __init__(self, port: int) -> None:
        self.target, self.cut, self.passed = port, False, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            caller, _ = self.listener.accept()
            if self.cut:
                caller.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.target))
            for source, sink in ((caller, server), (server, caller)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while (data := source.recv(65536)) and not self.cut:
                self.passed += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def served() -> Iterator[Line]:
    """A line to an S3 server with a bucket `data`, whose credentials are in the environment."""
    with moto() as port, pytest.MonkeyPatch.context() as patch:
        line = Line(port)
        place = f"http://127.0.0.1:{line.port}"
        for name, value in {
            "AWS_ENDPOINT_URL": place,
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",  # in the client; it waits long between its attempts
            "NO_PROXY": "127.0.0.1",
        }.items():
            patch.setenv(name, value)
        # by name, for fsspec keeps one client for each set of options
        patch.setitem(fsspec.config.conf, "s3", {"endpoint_url": place})
        boto3.client("s3").create_bucket(Bucket="data")
        yield line


def stored(url: str) -> dict[str, bytes]:
    """Every object of a store on S3 except `log/`."""
    objects, found = Objects(url), {}
    filesystem, root = objects._location
    for path in filesystem.find(root):
        key = path.removeprefix(f"{root}/")
        if not key.startswith("log/"):
            found[key] = objects.read(key)
    return found
