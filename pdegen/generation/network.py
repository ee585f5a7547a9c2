"""Network addresses and certificates of Dask schedulers and workers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from distributed import Client, Security

TLS = {  # fields of Dask's Security, and their keys in Dask's configuration
    "tls_ca_file": "distributed.comm.tls.ca-file",
    **{
        f"tls_{role}_{part}": f"distributed.comm.tls.{role}.{part}"
        for role in ("scheduler", "worker", "client")
        for part in ("cert", "key")
    },
}


def certificates() -> Security:
    """The certificates that Dask's configuration names, or temporary certificates for this run."""
    from dask import config
    from distributed import Security

    if config.get("distributed.comm.tls.ca-file"):
        return Security(require_encryption=True)
    return Security.temporary()


def dashboard() -> str:
    """The address of the dashboard, from the key `pdegen.dashboard` in Dask's configuration.
    Without this key, the result is an unused port of this machine; `few_ports` closes it again
    unless a dashboard was asked for."""
    from dask import config

    return config.get("pdegen.dashboard", None) or "127.0.0.1:0"


@contextmanager
def few_ports(dashboard: bool = False) -> Iterator[None]:
    """Stop the HTTP servers of schedulers and workers that are started in this context. The
    scheduler keeps its server if `dashboard` is true or Dask's configuration has an address for
    it."""
    from dask import config

    keeps_server = dashboard or config.get("pdegen.dashboard", None)
    servers = ["worker"] if keeps_server else ["worker", "scheduler"]
    keys = [f"distributed.{server}.preload" for server in servers]
    with config.set({key: [*config.get(key), __name__] for key in keys}):
        yield


def link(client: Client) -> str:
    """One line with the address of the dashboard of a scheduler on this machine. Without bokeh its
    pages are tables of workers and tasks; the line says how to get charts."""
    address = f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}"
    if find_spec("bokeh") is None:
        return f"dashboard: {address}/info/main/workers.html (charts need: pip install bokeh)"
    return f"dashboard: {address}/status"


def dask_setup(server: Any) -> None:
    """The preload function of this module, which Dask calls when a scheduler or worker starts. It
    stops the HTTP server."""
    server.http_server.stop()  # it would expose tasks, addresses and logs


def interface_of(alone: bool) -> str:
    """The network interface that Dask uses.

    Args:
        alone: Whether all processes run on this machine.

    Returns:
        Name of the interface. It is the value of `pdegen.interface` in Dask's configuration if
        this key is set. Otherwise it is the loopback interface if `alone` is True, and the
        interface of this machine's address if not.
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
    """The entries of Dask's configuration that make Dask use these certificates."""
    entries = {key: getattr(security, slot) for slot, key in TLS.items()}
    return {"distributed.comm.require-encryption": True, **entries}
