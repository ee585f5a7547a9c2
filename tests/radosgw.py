"""An S3 server of Ceph on loopback: a monitor, one object store in memory, and its gateway."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemons import absent, answers, free_ports, until

PROGRAMS = (
    "ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin",
)  # fmt: skip
CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr1 = false
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
pid file = {folder}/$name.pid
crash dir = {folder}
keyring = {folder}/keyring
mon data = {folder}/mon
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 1073741824
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw data = {folder}/rgw
rgw enable usage log = false
rgw enable ops log = false
"""


def missing() -> list[str]:
    """Programs of Ceph that are not here."""
    return absent(PROGRAMS)


@contextmanager
def radosgw(folder: Path, name: str, secret: str) -> Iterator[int]:
    """The port of the gateway, where one user has these credentials.

    Args:
        folder: An empty one with a short path: that of a socket has at most 107 bytes.
    """
    monitor, gateway = free_ports(2)
    fsid, configuration = str(uuid.uuid4()), folder / "ceph.conf"
    configuration.write_text(
        CONFIGURATION.format(folder=folder, fsid=fsid, monitor=monitor, gateway=gateway)
    )
    for part in ("mon", "osd", "rgw"):
        (folder / part).mkdir()
    environment = {**os.environ, "CEPH_CONF": str(configuration)}
    daemons: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> None:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def start(*command: str) -> None:
        with (folder / f"{command[0]}.out").open("wb") as out:
            daemons.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))

    try:
        monmap = str(folder / "monmap")
        run("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{monitor}]", "--fsid", fsid,
            monmap)  # fmt: skip
        keyring = f"{folder}/keyring"
        run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.",
            "--cap", "mon", "allow *")  # fmt: skip
        run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin",
            "--cap", "mon", "allow *", "--cap", "osd", "allow *")  # fmt: skip
        run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        start("ceph-mon", "-f", "-i", "a")
        store = str(uuid.uuid4())
        run("ceph", "--connect-timeout", "30", "osd", "new", store)
        run("ceph", "auth", "get-or-create", "osd.0", "mon", "allow profile osd", "osd", "allow *",
            "-o", f"{folder}/osd/keyring")  # fmt: skip
        run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", store,
            "--keyring", f"{folder}/osd/keyring")  # fmt: skip
        start("ceph-osd", "-f", "-i", "0", "--keyring", f"{folder}/osd/keyring")
        start("radosgw", "-f", "-n", "client.admin", "--keyring", keyring)
        run("radosgw-admin", "user", "create", "--uid", "test", "--display-name", "test",
            "--access-key", name, "--secret-key", secret)  # fmt: skip
        until(lambda: answers(gateway), daemons, folder)
        yield gateway
    finally:
        for daemon in reversed(daemons):
            daemon.kill()  # all they have is in memory or in the folder
        for daemon in daemons:
            daemon.wait(30)
