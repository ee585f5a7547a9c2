"""The worker and its client. What needs dolfinx is skipped without it, or fails where CI=true."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.fenicsx import client
from pdegen.equations.darcy.finite_element import FiniteElement

SETTINGS = client.Settings(8, "Q1", "sample", "cg", 1e-10, 200)
SOLVER = FiniteElement(CellGrid(12), linear="cholesky")
ONES = np.ones((4, 8, 8))


def random_coefficients(batch):
    return np.exp(np.random.default_rng(3).uniform(0, 5, (batch, 12, 12)))


@pytest.fixture
def own_worker(dolfinx):
    """One that may be ended."""
    started = client.Worker(dolfinx)
    yield started
    started.close()


def keep_busy(worker):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        worker.solve(SETTINGS, ONES, 1.0, 0.0, 60.0)


def gone(pids, seconds=10.0):
    """Whether all of these processes end within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(map(runs, pids)):
            return True
        time.sleep(0.05)
    return False


def runs(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"  # a zombie waits for a parent to count it


OUTSIDE = """
    import json, sys
    import numpy as np
    from mpi4py import MPI
    from pdegen.equations.darcy.fenicsx import client
    a = np.load(sys.argv[1])
    settings = client.Settings(12, "Q1", "domain", "cholesky", 1e-10, 200)
    inside, *_ = client.solve(settings, a, 1.0, 0.0, 1, 60.0)
    outside, *_ = client.solve(settings, a, 1.0, 0.0, 2, 60.0)
    assert "pdegen.equations.darcy.fenicsx.worker" in sys.modules
    assert np.abs(inside - outside).max() < 1e-12
    try:
        client.solve(client.Settings(12, "Q1", "sample", "cg", 1e-10, 1), a, 1.0, 0.0, 1, 60.0)
    except client.SolveError as refusal:
        assert refusal.row == 0
    else:
        raise AssertionError
    client.close_workers()
    rank = MPI.COMM_WORLD.rank
    np.save(f"{sys.argv[2]}/{rank}.npy", inside)
"""


def test_starts_from_a_process_under_mpirun_and_solves_in_process(dolfinx, root, tmp_path):
    a = random_coefficients(2)
    np.save(tmp_path / "a.npy", a)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(OUTSIDE))
    command = [*client._mpirun(dolfinx, 2), dolfinx, str(script), str(tmp_path / "a.npy")]
    environment = {**client._environment(), "PYTHONPATH": str(root)}
    job = subprocess.run(
        [*command, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=100
    )
    assert job.returncode == 0, job.stderr
    u = SOLVER(a)
    for rank in range(2):
        # some processors sum in another order in a process that MPI has started
        np.testing.assert_allclose(np.load(tmp_path / f"{rank}.npy"), u, rtol=1e-12)


# lives and deaths of the worker


def test_a_thread_keeps_its_worker(dolfinx):
    mine = client.worker(dolfinx)
    assert client.worker(dolfinx) is mine
    others = []
    thread = threading.Thread(target=lambda: others.append(client.worker(dolfinx).pids))
    thread.start()
    thread.join()
    assert not set(others[0]) & set(mine.pids)
    assert gone(others[0])  # with its thread
    assert mine.alive


def test_close_ends_it_and_removes_its_files(own_worker):
    folder = Path(own_worker._folder)
    assert folder.exists()
    own_worker.close()
    own_worker.close()
    assert gone(own_worker.pids, 0.1)
    assert not folder.exists()
    with pytest.raises(client.WorkerError):
        own_worker.ask({}, 1.0)


def test_a_killed_worker_is_reported_and_replaced(dolfinx):
    a = random_coefficients(2)
    u = SOLVER(a)
    before = client.worker(dolfinx)
    threading.Timer(0.3, os.kill, (before.pids[-1], signal.SIGKILL)).start()
    with pytest.raises(client.WorkerError, match="worker was killed by SIGKILL"):
        keep_busy(before)
    assert not before.alive
    np.testing.assert_array_equal(SOLVER(a), u)
    assert client.worker(dolfinx) is not before


def test_a_killed_rank_ends_all(dolfinx):
    started = client.Worker(dolfinx, ranks=2)
    assert len(started.pids) == 3
    os.kill(started.pids[-1], signal.SIGKILL)
    with pytest.raises(client.WorkerError, match="died with exit status"):
        keep_busy(started)
    assert gone(started.pids)


def test_a_worker_whose_folder_is_gone_is_dead(own_worker):
    """The last rank that lives removes it, which may be before the next request."""
    os.kill(own_worker.pids[0], signal.SIGKILL)
    shutil.rmtree(own_worker._folder)
    with pytest.raises(client.WorkerError, match="was killed by SIGKILL"):
        own_worker.solve(SETTINGS, ONES, 1.0, 0.0, 60.0)


def test_a_bad_request_is_answered_and_survived(own_worker):
    good = {"n": 8, "element": "Q1", "mode": "sample", "linear": "cg", "rtol": 1e-10, "limit": 9}
    for bad, complaint in [
        (3, "TypeError"),
        ({}, "KeyError: 'mode'"),
        ({**good, "mode": "x"}, "the mode is sample or domain, got 'x'"),
        ({**good, "element": "Q9"}, "the element is Q1, Q2, P1 or P2, got 'Q9'"),
        ({**good, "n": -1}, "Error"),
        ({**good, "a": "none.npy"}, "FileNotFoundError"),
    ]:
        with pytest.raises(client.WorkerError, match=f"could not answer: .*{complaint}"):
            own_worker.ask(bad, 60.0)
    own_worker._process.stdin.write(b"{no JSON\n")
    assert "JSONDecodeError" in own_worker._reply(time.monotonic() + 60)["error"]
    u, *_ = own_worker.solve(SETTINGS, ONES, 1.0, 0.0, 60.0)
    assert u.max() > 0.07


def test_silence_ends_the_worker(own_worker):
    os.kill(own_worker.pids[0], signal.SIGSTOP)
    with pytest.raises(client.WorkerError, match="did not answer in time"):
        own_worker.solve(SETTINGS, ONES, 1.0, 0.0, 0.2)
    assert gone(own_worker.pids)
    assert not own_worker.alive


def test_what_compilers_print_is_no_reply(own_worker):
    """Neither to descriptor 1 nor to 2: the log has it."""
    pid = own_worker.pids[0]
    targets = [os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)]
    assert targets == [str(own_worker._log)] * 2


PARENT = """
    import sys, time
    import numpy as np
    from pdegen.equations.darcy.fenicsx import client
    started = client.Worker(sys.argv[1], int(sys.argv[2]))
    print(started._folder, *started.pids, flush=True)
    settings = client.Settings(200, "Q2", "domain", "cholesky", 1e-10, 200)
    while sys.argv[3] == "busy":
        started.solve(settings, np.ones((50, 200, 200)), 1.0, 0.0, 60.0)
    time.sleep(60)
"""


@pytest.mark.parametrize(("ranks", "state"), [(1, "idle"), (1, "busy"), (2, "idle"), (2, "busy")])
def test_no_orphan_outlives_its_parent(dolfinx, root, ranks, state):
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), dolfinx, str(ranks), state],
        stdout=subprocess.PIPE, text=True, cwd=root,
    )  # fmt: skip
    folder, *pids = parent.stdout.readline().split()
    assert all(map(runs, pids))
    time.sleep(1.0 if state == "busy" else 0.0)
    parent.kill()
    parent.communicate()
    assert gone(pids)
    assert not Path(folder).exists()


FORK = """
    import os, sys
    import numpy as np
    from pdegen.equations.darcy.fenicsx import client
    mine = client.worker(sys.argv[1])
    pid = os.fork()
    if pid == 0:
        assert client.worker(sys.argv[1]).pids != mine.pids
        client.close_workers()
        mine.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    settings = client.Settings(8, "Q1", "sample", "cg", 1e-10, 200)
    u, *_ = mine.solve(settings, np.ones((1, 8, 8)), 1.0, 0.0, 60.0)
    print(mine._folder, *mine.pids, u.max())
"""


def test_a_forked_child_has_its_own_and_a_process_ends_its_worker(dolfinx, root):
    command = [sys.executable, "-c", textwrap.dedent(FORK), dolfinx]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    folder, *pids, largest = process.stdout.split()
    assert float(largest) > 0.07
    assert gone(pids, 0.1)
    assert not Path(folder).exists()


def test_an_interrupted_compilation_is_taken_up(dolfinx, tmp_path, monkeypatch):
    """A source without its mark of completion, over which dolfinx alone would time out."""
    cache = Path(client._environment(str(tmp_path))["XDG_CACHE_HOME"], "fenics")
    left = cache / "libffcx_forms_interrupted.c"
    cache.mkdir(parents=True, exist_ok=True)
    left.touch()
    with_others = client.Worker(dolfinx)
    with_others.solve(SETTINGS, ONES, 1.0, 0.0, 60.0)
    with_others.close()
    assert not left.exists()


# without dolfinx


@pytest.mark.parametrize("python", [sys.executable, "/nowhere/python"])
def test_without_dolfinx_both_installations_are_named(monkeypatch, python):
    if python == sys.executable and client._has_dolfinx(python):
        pytest.skip("this Python has dolfinx")
    monkeypatch.setenv(client.VARIABLE, python)
    with pytest.raises(client.MissingDolfinxError) as refusal:
        SOLVER(random_coefficients(1))
    message = str(refusal.value)
    assert "apt-get install python3-dolfinx-real libopenblas0-pthread" in message
    assert "conda install -c conda-forge fenics-dolfinx" in message
    assert python in message
    assert "\n" not in message


def test_a_worker_without_dolfinx_is_reported():
    if client._has_dolfinx(sys.executable):
        pytest.skip("this Python has dolfinx")
    with pytest.raises(client.WorkerError, match=r"exit status 1; its log: .*No module named"):
        client.Worker(sys.executable)
