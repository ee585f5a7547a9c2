"""A proxy between a client of S3 and its server that fails on purpose, the same for one seed."""

from __future__ import annotations

import http.client
import os
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KINDS = ("500", "503", "reset", "torn", "slow", "lost", "late")
_CODES = {"412": "PreconditionFailed", "500": "InternalError", "503": "SlowDown"}
_UNIQUE = re.compile(r"[0-9a-f]{32}|\d{8}T\d{12}Z")  # names that each run invents
_SECONDS = {"slow": 0.3, "late": 1.5}  # until the answer; a client should wait one second


class Faults(ThreadingHTTPServer):
    """Forwards requests on loopback; a share of them fails.

    "500" and "503" are answered without asking the server; "reset" cuts the connection instead;
    "torn" cuts it within the answer, "lost" before the answer of a request that was done; "slow"
    answers come in time, "late" ones after the client has given up. Whether a request fails
    depends on the seed, its method and path, and how often that came; not on the order of all.

    Attributes:
        share: Share of the requests that fail.
        seed: Seed that chooses them.
        forgotten: Headers of requests that the server does not see; it must check no signatures.
        kinds: What happens to those that fail.

    Args:
        port: Port of the server.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = port
        self._lock = threading.Lock()
        self.begin()

    def begin(
        self,
        share: float = 0.0,
        seed: int = 0,
        forgotten: tuple[str, ...] = (),
        kinds: tuple[str, ...] = KINDS,
    ) -> None:
        """Fail from now on so, and count from zero."""
        self.share, self.seed, self.forgotten, self.kinds = share, seed, forgotten, kinds
        self.planned: dict[tuple[str, str], list[str | None]] = {}
        self.requests, self.injected = Counter[tuple[str, str]](), Counter[str]()

    def plan(self, method: str, end: str, *kinds: str | None) -> None:
        """What happens to the next requests of a method whose path ends so; None: no fault."""
        self.planned[method, end] = list(kinds)

    def kind(self, method: str, path: str) -> str | None:
        """Kind of fault for this request."""
        path = _UNIQUE.sub("*", path)
        with self._lock:
            self.requests[method, path] += 1
            chance = random.Random(f"{self.seed} {method} {path} {self.requests[method, path]}")
            kind = chance.choice(self.kinds) if chance.random() < self.share else None
            for (planned, end), kinds in self.planned.items():
                if kinds and planned == method and path.split("?")[0].endswith(end):
                    kind = kinds.pop(0)
            if kind:
                self.injected[kind] += 1
            return kind

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is none of our business; threads end on other errors as well."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{self.injected[kind]} {kind}" for kind in KINDS)
        return f"{sum(self.requests.values())} requests, of which {kinds}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Faults

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.server.kind(self.command, self.path)
        if kind == "reset":
            return self.cut()
        if kind in _CODES:
            error = f"<Error><Code>{_CODES[kind]}</Code><Message>on purpose</Message></Error>"
            return self.answer(int(kind), [("Content-Type", "application/xml")], error.encode())
        status, headers, data = self.asked(body)
        if kind == "lost":
            return self.cut()
        time.sleep(_SECONDS.get(kind or "", 0))
        if kind == "torn":
            self.answer(status, headers, data, len(data) // 2)
            return self.cut()
        return self.answer(status, headers, data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

    def asked(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """The answer of the server."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name not in ("Connection", "Expect", *self.server.forgotten):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(
        self, status: int, headers: list[tuple[str, str]], data: bytes, at_most: int | None = None
    ) -> None:
        """Send an answer, or its first bytes."""
        self.send_response_only(status)
        kept = ("connection", "transfer-encoding", "content-length")
        for name, value in headers:
            if name.lower() not in kept or (self.command, name.lower()) == ("HEAD", kept[2]):
                self.send_header(name, value)
        if self.command != "HEAD" and status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:at_most])

    def cut(self) -> None:
        """Reset the connection: the client reads no more of it."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        os.close(self.connection.detach())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def faults(port: int) -> Iterator[Faults]:
    """A proxy to a port of this machine, as long as it is needed."""
    with Faults(port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
