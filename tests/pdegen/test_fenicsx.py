"""The worker and its client. What needs dolfinx is skipped without it, or fails where CI=true."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_element import FiniteElement
from pdegen.numerics.fenicsx import client

SETTINGS = client.Settings("Q1", "sample", "cg", 1e-10, 200)
GOOD = {**asdict(SETTINGS), "a": np.ones((1, 8, 8)), "f": 1.0, "walls": 0.0}
SOLVER = FiniteElement(CellGrid(12), linear="cholesky")
A = np.exp(np.random.default_rng(3).uniform(0, 5, (2, 12, 12)))


@pytest.fixture
def own_worker(dolfinx):
    """One that may be ended."""
    started = client.Worker(dolfinx)
    yield started
    started.close()


def keep_busy(worker):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        worker.ask(GOOD, 60.0)


def children(pid):
    """The processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"  # a zombie waits for a parent to count it


def gone(pids, seconds=10.0):
    """Whether all of these processes end within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(map(runs, pids)):
            return True
        time.sleep(0.05)
    return False


OUTER = """
    import sys
    import numpy as np
    from mpi4py import MPI
    from pdegen.numerics.fenicsx import client
    settings = client.Settings("Q1", "domain", "cholesky", 1e-10, 200)
    u, *_ = client.solve(settings, np.load(sys.argv[1]), 1.0, 0.0, 2, 60.0)
    np.save(f"{sys.argv[2]}/{MPI.COMM_WORLD.rank}.npy", u)
"""


def test_starts_from_a_process_under_mpirun(dolfinx, root, tmp_path):
    np.save(tmp_path / "a.npy", A)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(OUTER))
    command = [*client._mpirun(dolfinx, 2), dolfinx, str(script), str(tmp_path / "a.npy")]
    environment = {**client._environment(), "PYTHONPATH": str(root)}
    job = subprocess.run(
        [*command, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=100
    )
    assert job.returncode == 0, job.stderr
    for rank in range(2):
        np.testing.assert_allclose(np.load(tmp_path / f"{rank}.npy"), SOLVER(A), rtol=1e-12)


def test_a_thread_keeps_its_worker(dolfinx):
    mine = client.worker(dolfinx)
    assert client.worker(dolfinx) is mine
    others = []
    thread = threading.Thread(target=lambda: others.append(client.worker(dolfinx).pid))
    thread.start()
    thread.join()
    assert others[0] != mine.pid
    assert gone(others)  # with its thread
    assert mine.alive


def test_a_killed_worker_is_reported_and_replaced(dolfinx):
    u, before = SOLVER(A), client.worker(dolfinx)
    threading.Timer(0.3, os.kill, (before.pid, signal.SIGKILL)).start()
    with pytest.raises(client.WorkerError, match="worker was killed by SIGKILL"):
        keep_busy(before)
    assert not before.alive
    np.testing.assert_array_equal(SOLVER(A), u)
    assert client.worker(dolfinx) is not before


def test_a_killed_rank_ends_all(dolfinx):
    started = client.Worker(dolfinx, ranks=2)
    started.ask(GOOD, 60.0)
    ranks = children(started.pid)
    assert len(ranks) == 2
    os.kill(ranks[-1], signal.SIGKILL)
    with pytest.raises(client.WorkerError, match="died with exit status"):
        keep_busy(started)
    assert gone([started.pid, *ranks])


def test_another_number_of_ranks_is_refused(dolfinx, monkeypatch):
    monkeypatch.setattr(client, "_mpirun", lambda python, ranks: [])
    started = client.Worker(dolfinx, ranks=2)
    with pytest.raises(
        client.WorkerError, match="does not have 2 ranks: is mpirun that of its Python"
    ):
        started.ask(GOOD, 60.0)
    assert not started.alive


def test_a_bad_request_is_answered_and_survived(own_worker):
    for bad, complaint in [
        ({}, "KeyError: 'mode"),
        ({**GOOD, "element": "Q9"}, "the element is Q1, Q2, P1 or P2, got 'Q9'"),
        ({**GOOD, "linear": "lu"}, "the linear solver is cg or cholesky, got 'lu'"),
        ({**GOOD, "f": np.ones((3, 3))}, "Error"),
    ]:
        with pytest.raises(client.WorkerError, match=f"could not answer: .*{complaint}"):
            own_worker.ask(bad, 60.0)
    assert own_worker.ask(GOOD, 60.0)["u"].max() > 0.07


def test_silence_ends_the_worker(own_worker):
    own_worker.ask(GOOD, 60.0)
    os.kill(own_worker.pid, signal.SIGSTOP)
    with pytest.raises(client.WorkerError, match=r"did not answer in time and was ended$"):
        own_worker.ask(GOOD, 0.2)
    assert gone([own_worker.pid])
    with pytest.raises(client.WorkerError, match="the dolfinx worker"):
        own_worker.ask(GOOD, 0.2)


def test_silence_of_a_rank_ends_all(dolfinx):
    started = client.Worker(dolfinx, ranks=2)
    started.ask(GOOD, 60.0)
    ranks = children(started.pid)
    for rank in ranks:
        os.kill(rank, signal.SIGSTOP)
    started._expire()  # mpirun continues its ranks before it ends them: one may still answer
    assert gone([started.pid, *ranks])


def test_what_compilers_print_is_no_reply(own_worker):
    """Descriptor 1 goes where errors go."""
    own_worker.ask(GOOD, 60.0)
    log, printed = (os.readlink(f"/proc/{own_worker.pid}/fd/{number}") for number in (2, 1))
    assert log == printed


@pytest.mark.parametrize("reply", ["nonsense", "7\nno archive"])
def test_what_is_no_reply_ends_the_worker(tmp_path, reply):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nread line\nprintf '{reply}'\necho why >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(client.WorkerError, match="worker died with exit status 3; its log: why"):
        client.Worker(str(python)).ask(GOOD, 60.0)


PARENT = """
    import sys
    import numpy as np
    from pdegen.numerics.fenicsx import client
    ranks = int(sys.argv[2])
    mine = client.worker(sys.argv[1], ranks)
    settings = client.Settings("Q2", "domain", "cholesky", 1e-10, 200)
    client.solve(settings, np.ones((1, 8, 8)), 1.0, 0.0, ranks, 60.0)
    print(mine.pid, flush=True)
    while True:
        client.solve(settings, np.ones((50, 100, 100)), 1.0, 0.0, ranks, 60.0)
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_orphan_outlives_its_parent(dolfinx, root, ranks):
    """Busy ones end after the sample that they solve."""
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), dolfinx, str(ranks)],
        stdout=subprocess.PIPE, text=True, cwd=root,
    )  # fmt: skip
    mine = int(parent.stdout.readline())
    pids = [mine, *children(mine)]
    assert len(pids) >= 2 * ranks - 1  # a process alone may have a helper of MPI
    assert all(map(runs, pids))
    time.sleep(0.5)
    parent.kill()
    parent.communicate()
    assert gone(pids, 60.0)  # the rest of a sample, on a busy machine


FORK = """
    import os, sys
    import numpy as np
    from pdegen.numerics.fenicsx import client
    mine = client.worker(sys.argv[1])
    pid = os.fork()
    if pid == 0:
        assert client.worker(sys.argv[1]).pid != mine.pid
        mine.close()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    settings = client.Settings("Q1", "sample", "cg", 1e-10, 200)
    u, *_ = client.solve(settings, np.ones((1, 8, 8)), 1.0, 0.0, 1, 60.0)
    assert client.worker(sys.argv[1]) is mine
    print(mine.pid, u.max())
"""


def test_a_forked_child_has_its_own_and_a_process_ends_its_worker(dolfinx, root):
    command = [sys.executable, "-c", textwrap.dedent(FORK), dolfinx]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    pid, largest = process.stdout.split()
    assert float(largest) > 0.07
    assert gone([pid], 0.1)


def test_an_interrupted_compilation_is_taken_up(dolfinx, tmp_path, monkeypatch):
    """A source without its mark of completion, over which dolfinx alone would time out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    left = tmp_path / "pdegen" / "fenics" / "libffcx_forms_interrupted.c"
    left.parent.mkdir(parents=True)
    left.touch()
    worker = client.Worker(dolfinx)
    worker.ask(GOOD, 60.0)
    worker.close()
    assert not left.exists()


# without dolfinx


@pytest.mark.parametrize("python", [sys.executable, "/nowhere/python"])
def test_without_dolfinx_both_installations_are_named(monkeypatch, python):
    if python == sys.executable and client._versions(python):
        pytest.skip("this Python has dolfinx")
    monkeypatch.setenv(client.VARIABLE, python)
    with pytest.raises(client.MissingDolfinxError) as refusal:
        SOLVER(A)
    message = str(refusal.value)
    assert "apt-get install python3-dolfinx-real libopenblas0-pthread" in message
    assert "conda install -c conda-forge fenics-dolfinx" in message
    assert python in message
    assert "\n" not in message


def test_a_worker_without_dolfinx_is_reported():
    if client._versions(sys.executable):
        pytest.skip("this Python has dolfinx")
    with pytest.raises(client.WorkerError, match=r"exit status 1; its log: .*No module named"):
        client.Worker(sys.executable).ask(GOOD, 60.0)
    with pytest.raises(client.WorkerError, match=r"does not start: .*/nowhere"):
        client.Worker("/nowhere/python")
