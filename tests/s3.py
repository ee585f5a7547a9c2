"""An S3 server behind a proxy that fails on purpose, and what a store has there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import boto3
import fsspec
import pytest

from pdegen.store.objects import Objects
from tests.daemons import moto
from tests.faults import Faults, faults

NAME, SECRET = "someone", "sesame-4711-secret"


@contextmanager
def served(
    server: Callable[[], AbstractContextManager[int]] = moto, retried: bool = False, **options: Any
) -> Iterator[Faults]:
    """A proxy to an S3 server with a bucket `data`, whose credentials are in the environment.

    Args:
        server: What gives the port of the server.
        retried: Whether the client tries again, and waits long between its attempts.
        options: Of fsspec's client.
    """
    with server() as port, faults(port) as proxy, pytest.MonkeyPatch.context() as patch:
        place = f"http://127.0.0.1:{proxy.server_port}"
        for name, value in {
            "AWS_ENDPOINT_URL": place,
            "AWS_ACCESS_KEY_ID": NAME,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
            **({} if retried else {"AWS_MAX_ATTEMPTS": "1"}),
        }.items():
            patch.setenv(name, value)
        # by name, for fsspec keeps one client for each set of options
        patch.setitem(fsspec.config.conf, "s3", {**options, "endpoint_url": place})
        boto3.client("s3").create_bucket(Bucket="data")
        yield proxy


def stored(url: str) -> dict[str, bytes]:
    """Every object of a store on S3 except `log/`."""
    objects, found = Objects(url), {}
    filesystem, root = objects._location
    for path in filesystem.find(root):
        key = path.removeprefix(f"{root}/")
        if not key.startswith("log/"):
            found[key] = objects.read(key)
    return found
