"""A SLURM of one machine, on loopback alone: munged, slurmctld and slurmd in a folder."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemons import PATH, absent, free_ports, until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 RealMemory=65536
PartitionName=all Nodes=localhost Default=YES State=UP
"""


def missing() -> list[str]:
    """Programs of SLURM and munge that are not here."""
    return absent(PROGRAMS)


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which its commands work; all of it ends afterwards.

    Args:
        folder: An empty one with a short path: that of a socket has at most 107 bytes.
    """
    control, node = free_ports(2)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=folder, control=control, node=node, user=pwd.getpwuid(os.getuid()).pw_name
        )
    )
    environment = {
        **os.environ,
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": PATH,
    }
    munged = ["munged", "--foreground", "--force", f"--socket={folder}/munge", f"--key-file={key}",
              f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed",
              f"--log-file={folder}/munged.log", "--origin=127.0.0.1"]  # fmt: skip
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in (munged, ["slurmctld", "-D", "-i"], ["slurmd", "-D", "-N", "localhost"]):
            with (folder / f"{command[0]}.out").open("wb") as out:
                daemons.append(
                    subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=folder)
                )
            until(lambda: (folder / "munge").exists(), daemons, folder)
        until(lambda: "idle" in asked(environment, "sinfo", "-h", "-o", "%T"), daemons, folder)
        yield environment
        asked(environment, "scancel", "--user", pwd.getpwuid(os.getuid()).pw_name)
        until(lambda: not asked(environment, "squeue", "-h"), daemons, folder)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(30)


def asked(environment: dict[str, str], *command: str) -> str:
    """Output of a SLURM command; empty if it fails."""
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    ).stdout
