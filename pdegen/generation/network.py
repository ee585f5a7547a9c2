"""Network addresses and certificates of Dask schedulers and workers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from distributed import Security

TLS = {  # fields of Dask's Security, and their keys in Dask's configuration
    "tls_ca_file": "distributed.comm.tls.ca-file",
    **{
        f"tls_{role}_{part}": f"distributed.comm.tls.{role}.{part}"
        for role in ("scheduler", "worker", "client")
        for part in ("cert", "key")
    },
}


def certificates() -> Security:
    """The certificates in Dask's configuration, or temporary ones for this run."""
    from dask import config
    from distributed import Security

    if config.get("distributed.comm.tls.ca-file"):
        return Security(require_encryption=True)
    return Security.temporary()


def dashboard() -> str:
    """Address of the dashboard: `pdegen.dashboard` in Dask's configuration, or a port that
    `few_ports` closes again."""
    from dask import config

    return config.get("pdegen.dashboard", None) or "127.0.0.1:0"


@contextmanager
def few_ports() -> Iterator[None]:
    """Schedulers and workers that are started in this context serve HTTP only for a dashboard that
    Dask's configuration asks for."""
    from dask import config

    servers = ["worker"] if config.get("pdegen.dashboard", None) else ["worker", "scheduler"]
    keys = [f"distributed.{server}.preload" for server in servers]
    with config.set({key: [*config.get(key), __name__] for key in keys}):
        yield


def dask_setup(server: Any) -> None:
    """Preload function, which Dask calls at the start of a scheduler or worker."""
    server.http_server.stop()  # it would expose tasks, addresses and logs


def interface_of(alone: bool) -> str:
    """The network interface for Dask.

    Args:
        alone: Whether all processes run on this machine.

    Returns:
        `pdegen.interface` of Dask's configuration, else the loopback interface if `alone`, else the
        interface of this machine's address.
    """
    from dask import config
    from distributed.utils import get_ip

    address = "127.0.0.1" if alone else get_ip()
    interfaces = {
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(a.family == socket.AF_INET and a.address == address for a in addresses)
    }
    return config.get("pdegen.interface", None) or min(interfaces)


def tls_entries(security: Security) -> dict[str, Any]:
    """Certificates as keys and values of Dask's configuration."""
    entries = {key: getattr(security, slot) for slot, key in TLS.items()}
    return {"distributed.comm.require-encryption": True, **entries}
