"""Whoever reaches a scheduler runs code there: who can, and where it listens."""

import os
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import dask
import psutil
import pytest
from distributed import Client, Security

from pdegen.generation.pools import EngineError, pool, slurm_cluster
from tests.pdegen.scheduler import scheduler_of

TLS = {
    "ca-file": "tls_ca_file",
    **{
        f"{role}.{part}": f"tls_{role}_{part}"
        for role in ("scheduler", "worker", "client")
        for part in ("cert", "key")
    },
}


def listening(process: psutil.Process) -> list[tuple[str, int]]:
    """Addresses and ports on which a process and its descendants listen."""
    return [
        tuple(connection.laddr)
        for one in [process, *process.children(recursive=True)]
        for connection in one.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]


def answer(port: int, tls: bool) -> bytes:
    """Answer of a local port to an HTTP request without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as stack:
        line = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        try:
            if tls:
                line = stack.enter_context(context.wrap_socket(line))
            line.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return line.recv(100)
        except (ssl.SSLError, ConnectionError):
            return b""


def double(number: int) -> int:
    return 2 * number


@pytest.fixture(scope="module")
def others() -> set[tuple[str, int]]:
    """Addresses on which this process listens for other tests."""
    return set(listening(psutil.Process()))


@pytest.fixture(scope="module")
def cluster(others) -> Iterator[Client]:
    """The cluster that `--scheduler processes` starts."""
    with pool("processes", 1) as workers:
        assert list(workers.run(double, [1])) == [(1, 2)]
        yield workers.client  # type: ignore[attr-defined]


def test_processes_listen_on_loopback_alone_and_answer_nobody_without_a_certificate(
    cluster, others
):
    places = set(listening(psutil.Process())) - others
    assert len(places) == 3  # the scheduler, a nanny, its worker
    assert {address for address, _ in places} == {"127.0.0.1"}
    for _, port in places:
        assert answer(port, tls=True) == answer(port, tls=False) == b""


@pytest.mark.filterwarnings("ignore")  # of Dask, on the connection that fails
def test_a_client_without_the_certificate_is_refused(cluster):
    address = cluster.scheduler.address
    assert address.startswith("tls://127.0.0.1:")
    for there, security in ((address, None), (address, Security.temporary()),
                            (address.replace("tls", "tcp"), None)):  # fmt: skip
        with pytest.raises((OSError, TypeError)):
            Client(there, security=security, timeout=3, set_as_default=False, loop=cluster.loop)


def test_a_dashboard_is_served_where_the_user_asks_for_one():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with dask.config.set({"pdegen.dashboard": f"127.0.0.1:{port}"}), pool("processes", 1):
        assert answer(port, tls=False).startswith(b"HTTP/1.1 200")


def test_of_the_engine_dask_the_dashboard_alone_answers_and_on_loopback_alone(others):
    before = set(listening(psutil.Process()))
    with pool("dask", 1) as workers:
        places = set(listening(psutil.Process())) - before
        assert {address for address, _ in places} == {"127.0.0.1"}
        port = int(workers.note.split(":")[3].split("/")[0])
        answers = {place: answer(place[1], tls=False) for place in places}
        assert {place for place, text in answers.items() if text} == {("127.0.0.1", port)}
    assert set(listening(psutil.Process())) <= before | others


# SLURM, without its jobs


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """A folder to work in, and a command that is found."""
    path = tmp_path / "bin" / "sbatch"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_slurms_scheduler_listens_at_one_address_by_tls(sbatch):
    before = set(listening(psutil.Process()))
    for chosen, expected in [({}, None), ({"jobqueue.slurm.interface": "lo"}, "127.0.0.1")]:
        with dask.config.set(chosen), slurm_cluster() as cluster:
            address = cluster.scheduler_address
            (place,) = set(listening(psutil.Process())) - before
            assert address == f"tls://{place[0]}:{place[1]}"
            assert place[0] not in ("0.0.0.0", "::")
            assert expected in (None, place[0])


def test_slurms_certificates_are_files_of_the_user_and_gone_afterwards(sbatch):
    shared = sbatch / "shared"
    with dask.config.set({"jobqueue.slurm.shared-temp-directory": str(shared)}):
        with pytest.raises(EngineError, match=r"jobqueue\.slurm .*No such file"):
            slurm_cluster().__enter__()
        shared.mkdir()
        with slurm_cluster() as cluster:
            words = cluster.job_script().split()
            files = [Path(words[words.index(f"--tls-{name}") + 1]) for name in ("key", "cert")]
            for file in files:
                assert file.read_text().startswith("-----BEGIN")
                assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
                assert file.parent.parent == shared
    assert list(shared.iterdir()) == []


def test_without_slurm_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="there is no command sbatch"):
        slurm_cluster().__enter__()


# a scheduler of the user's, with the user's certificates


@pytest.mark.filterwarnings("ignore")  # of Dask, on the connection that fails
def test_a_scheduler_with_certificates_of_the_users_is_used_by_who_has_them(tmp_path):
    made, chosen = Security.temporary(), {"distributed.comm.require-encryption": True}
    for name, slot in TLS.items():
        file = tmp_path / f"{slot}.pem"
        file.write_text(getattr(made, slot))
        chosen[f"distributed.comm.tls.{name}"] = str(file)
    environment = {
        "DASK_" + key.upper().replace(".", "__").replace("-", "_"): str(value)
        for key, value in chosen.items()
    }
    with scheduler_of(tmp_path, environment) as address:
        assert address.startswith("tls://")
        with dask.config.set(chosen), pool(address, None) as workers:
            assert list(workers.run(double, [3])) == [(3, 6)]
        for without in (address, address.replace("tls", "tcp")):
            with pytest.raises(EngineError) as error, pool(without, None):
                pass
            assert len(str(error.value).splitlines()) == 1


# MPI


@pytest.mark.usefixtures("mpi")
def test_processes_of_mpi_on_one_machine_listen_on_loopback_by_tls():
    code = (
        "import psutil\n"
        "from pdegen.generation.pools import pool\nfrom pdegen.generation.pools import start_mpi\n"
        "start_mpi()\n"
        "from tests.pdegen.test_engine_security import double, listening\n"
        "with pool('mpi', None) as workers:\n"
        "    assert list(workers.run(double, [1])) == [(1, 2)]\n"
        "    print(workers.client.scheduler.address)\n"
        "    parent = psutil.Process().parent()\n"
        "    for process in parent.children():\n"
        "        print(*(address for address, _ in listening(process)))\n"
    )
    done = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3",
         "--mca", "btl", "self,vader",  # MPI's own messages need no network here
         sys.executable, "-c", code],
        capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    address, *places = done.stdout.split()
    assert address.startswith("tls://127.0.0.1:")
    assert places == ["127.0.0.1"] * 2  # the scheduler and a worker


@pytest.mark.parametrize("scheduler", ["processes", "dask"])
def test_workers_import_nothing_from_the_working_directory(tmp_path, scheduler):
    for name in ("dask", "psutil", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'executed')!r}, 'w').close()\nraise ImportError('shadow')\n"
        )
    command = Path(sys.executable).with_name("pdegen")
    words = ["generate", "burgers-quick", "--samples", "20", "--workers", "1", "--out", "s.zarr"]
    subprocess.run(
        [command, *words, "--scheduler", scheduler],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    assert not (tmp_path / "executed").exists()
    assert (tmp_path / "s.zarr").exists()
