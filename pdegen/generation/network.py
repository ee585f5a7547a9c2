"""Where Dask's schedulers and workers listen, and with which certificates."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from distributed import Security

TLS = {  # fields of Dask's Security, and their entries in its configuration
    "tls_ca_file": "distributed.comm.tls.ca-file",
    **{
        f"tls_{role}_{part}": f"distributed.comm.tls.{role}.{part}"
        for role in ("scheduler", "worker", "client")
        for part in ("cert", "key")
    },
}


def certificates() -> Security:
    """The user's certificates, where Dask's configuration names them, or some for this run."""
    from dask import config
    from distributed import Security

    if config.get("distributed.comm.tls.ca-file"):
        return Security(require_encryption=True)
    return Security.temporary()


def dashboard() -> str:
    """Where the scheduler serves HTTP: where the user says, else at a port that is closed again."""
    from dask import config

    return config.get("pdegen.dashboard", None) or "127.0.0.1:0"


@contextmanager
def few_ports() -> Iterator[None]:
    """Schedulers and workers that are made meanwhile listen for HTTP only where the user says."""
    from dask import config

    servers = ["worker"] if config.get("pdegen.dashboard", None) else ["worker", "scheduler"]
    keys = [f"distributed.{server}.preload" for server in servers]
    with config.set({key: [*config.get(key), __name__] for key in keys}):
        yield


def dask_setup(server: Any) -> None:
    """Dask calls this at the start of a scheduler or worker with this module as a preload."""
    server.http_server.stop()  # it tells tasks, addresses and logs


def interface_of(alone: bool) -> str:
    """The network interface that the user chose, that of loopback where all processes are on this
    machine, or that of its address."""
    from dask import config
    from distributed.utils import get_ip

    address = "127.0.0.1" if alone else get_ip()
    mine = {
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(a.family == socket.AF_INET and a.address == address for a in addresses)
    }
    return config.get("pdegen.interface", None) or min(mine)


def tls_entries(security: Security) -> dict[str, Any]:
    """Certificates as entries of Dask's configuration."""
    entries = {key: getattr(security, slot) for slot, key in TLS.items()}
    return {"distributed.comm.require-encryption": True, **entries}
