"""Reaches dolfinx: in this process where it can be imported, otherwise in a worker process."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pdegen.numerics.failure import MissingSolverError, SolveError, WorkerError

PROTOCOL = 1
VARIABLE = "PDEGEN_DOLFINX_PYTHON"
SYSTEM_PYTHON = "/usr/bin/python3"
_PROBE = "import dolfinx, numpy, petsc4py.PETSc as p; assert numpy.dtype(p.ScalarType).kind == 'f'"
_VERSIONS = (
    "import dolfinx, petsc4py.PETSc as p; "
    "print(dolfinx.__version__, '.'.join(map(str, p.Sys.getVersion())))"
)
_START_SECONDS = 120.0
_END_SECONDS = 5.0
_BLOCK_BYTES = 2**24  # of coefficients in one request
_LEAST_SHARED = 2**28  # bytes free in shared memory, to use it
_OF_AN_OUTER_MPI = ("OMPI_", "PMIX_", "PMI_", "ORTE_", "PRTE_", "HYDRA_", "HYDI_")


class MissingDolfinxError(MissingSolverError):
    """No Python with dolfinx was found; the message is one line and says how to install it."""

    def __init__(self, tried: list[str]) -> None:
        super().__init__(
            f"no dolfinx for real numbers in {' or '.join(tried)}: "
            "apt-get install python3-dolfinx-real libopenblas0-pthread (Debian), or "
            "conda install -c conda-forge fenics-dolfinx (conda), "
            f"or let {VARIABLE} name a Python that has it"
        )


@dataclass(frozen=True)
class Settings:
    """What is solved, and how: the fields of `FiniteElement`, n for its grid."""

    n: int
    element: str
    mode: str
    linear: str
    rtol: float
    limit: int


def interpreter() -> str:
    """The Python that runs dolfinx: $PDEGEN_DOLFINX_PYTHON, this one, or the system's.

    Raises:
        MissingDolfinxError: If none can import it.
    """
    named = os.environ.get(VARIABLE)
    candidates = [named] if named else [sys.executable, SYSTEM_PYTHON]
    for python in candidates:
        if _has_dolfinx(python):
            return python
    raise MissingDolfinxError(candidates)


@lru_cache
def _found(python: str) -> bool:
    try:
        command = [python, "-I", "-c", _PROBE]
        return subprocess.run(command, env=_environment(), capture_output=True).returncode == 0
    except OSError:
        return False


def versions() -> dict[str, str]:
    """The versions of dolfinx and PETSc that solve; nothing where there is no dolfinx."""
    try:
        return dict(_versions(interpreter()))
    except MissingDolfinxError:
        return {}


@lru_cache
def _versions(python: str) -> tuple[tuple[str, str], ...]:
    command = [python, "-I", "-c", _VERSIONS]
    said = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, check=True
    ).stdout.split()
    return tuple(zip(("dolfinx", "petsc"), said[-2:], strict=True))


def _has_dolfinx(python: str) -> bool:
    if python == sys.executable and find_spec("dolfinx") is None:
        return False
    return _found(python)


def solve(
    settings: Settings, a: np.ndarray, f: np.ndarray | float, walls: np.ndarray | float,
    ranks: int, timeout: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """u at the centres, residuals and iterations for a batch of coefficients.

    In this process where it has dolfinx, needs one rank and is in its main thread (PETSc knows one
    thread); `timeout` does not apply there. Otherwise by this thread's worker.

    Args:
        settings: What is solved, and how.
        a: Coefficients, shape (batch, n, n).
        f: A number, cell values (n, n) or (batch, n, n), or values at the nodes.
        walls: A number, or values at the nodes, of which the outer ones are used.
        ranks: Processes of the worker.
        timeout: Seconds that a sample may take.

    Raises:
        SolveError: For a sample that is not solved.
        WorkerError: If the worker fails.
        MissingDolfinxError: If there is no dolfinx.
    """
    u, residual, iterations = np.empty_like(a), np.empty(len(a)), np.empty(len(a), dtype=int)
    python = interpreter()
    main = threading.current_thread() is threading.main_thread()
    here = python == sys.executable and ranks == 1 and main
    at_once = max(ranks, _BLOCK_BYTES // a[:1].nbytes // ranks * ranks) if len(a) else 1
    for start in range(0, len(a), at_once):
        block = slice(start, start + at_once)
        source = f[block] if isinstance(f, np.ndarray) and f.ndim == 3 else f
        arguments = (settings, a[block], source, walls)
        try:
            if here:
                answer = _solved_here(*arguments)
            else:
                answer = worker(python, ranks).solve(*arguments, timeout)
        except SolveError as failure:
            raise SolveError(start + failure.row, failure.reason) from failure
        u[block], residual[block], iterations[block] = answer
    return u, residual, iterations


def _solved_here(
    settings: Settings, a: np.ndarray, f: np.ndarray | float, walls: np.ndarray | float
) -> tuple[np.ndarray, Any, Any]:
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]

    from pdegen.equations.darcy.fenicsx.worker import Discretisation, UnsolvedError, solve_rows

    key = (settings.n, settings.element)
    if key not in _discretisations:
        _discretisations.clear()
        _discretisations[key] = Discretisation(MPI.COMM_SELF, *key)
    u = np.empty_like(a)
    try:
        figures = solve_rows(
            _discretisations[key], range(len(a)), a, f, walls, u,
            linear=settings.linear, rtol=settings.rtol, limit=settings.limit,
        )  # fmt: skip
    except UnsolvedError as failure:
        raise SolveError(failure.row, failure.reason) from failure
    residual, iterations = zip(*figures.values(), strict=True)
    return u, residual, iterations


_discretisations: dict[tuple[int, str], Any] = {}


class Worker:
    """A process, or `ranks` of them under mpirun, that runs `worker.py`.

    It ends with `close`, with this object, and with this process, however that ends.

    Args:
        python: An interpreter with dolfinx.
        ranks: Number of MPI processes.

    Raises:
        WorkerError: If it does not start, or MPI gives it another number of ranks.
    """

    def __init__(self, python: str, ranks: int = 1) -> None:
        self._folder = tempfile.mkdtemp(prefix="pdegen-dolfinx-", dir=_shared_memory())
        script = str(Path(__file__).with_name("worker.py"))
        with open(self._log, "wb") as log:
            try:
                self._process = subprocess.Popen(
                    [*_mpirun(python, ranks), python, "-I", script, self._folder],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0,
                    cwd=self._folder, env=_environment(self._folder), start_new_session=True,
                )  # fmt: skip
            except OSError as failure:
                shutil.rmtree(self._folder)
                raise WorkerError(f"the dolfinx worker does not start: {failure}") from failure
        self._unread = b""
        self._pids: list[int] = []
        self._end = weakref.finalize(self, _end, self._process, self._folder)
        _workers_alive.add(self)
        try:
            hello = self._reply(time.monotonic() + _START_SECONDS)
            self._pids += hello["pids"]
            if (hello["protocol"], hello["ranks"]) != (PROTOCOL, ranks):
                self._give_up(
                    f"speaks protocol {hello['protocol']} on {hello['ranks']} ranks, expected "
                    f"protocol {PROTOCOL} on {ranks} (is mpirun that of {python}?)"
                )
        except BaseException:
            self._kill()
            raise
        self.versions = {"dolfinx": hello["dolfinx"], "mpi": hello["mpi"]}

    @property
    def alive(self) -> bool:
        return self._end.alive and self._process.poll() is None

    @property
    def pids(self) -> tuple[int, ...]:
        """Of mpirun, if there is one, and of the ranks."""
        return tuple(dict.fromkeys([self._process.pid, *self._pids]))

    def solve(
        self, settings: Settings, a: np.ndarray, f: np.ndarray | float,
        walls: np.ndarray | float, timeout: float,
    ) -> tuple[np.ndarray, Any, Any]:  # fmt: skip
        """u, residuals and iterations; `timeout` seconds for each sample."""
        request: dict[str, Any] = {**asdict(settings), "a": a, "f": f, "walls": walls}
        ranks = max(1, len(self._pids)) if settings.mode == "sample" else 1
        try:
            for name in ("a", "f", "walls"):
                if np.ndim(request[name]):
                    np.save(self._file(name), request[name])
                    request[name] = f"{name}.npy"
            np.save(self._file("u"), np.zeros_like(a))
            request["u"] = "u.npy"
            reply = self.ask(request, timeout * -(-len(a) // ranks))
            u = np.load(self._file("u"))
        except FileNotFoundError:  # the last rank that lives removes the folder
            self._give_up(self._death())
        finally:
            for name in ("a", "f", "walls", "u"):
                self._file(name).unlink(missing_ok=True)
        return u, reply["residual"], reply["iterations"]

    def ask(self, request: Any, timeout: float) -> dict[str, Any]:
        """The reply to a request, of which it may be the last: silence ends the worker.

        Raises:
            SolveError: For a sample that is not solved.
            WorkerError: If it cannot answer, dies, or does not answer in time.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except (OSError, ValueError):
            self._give_up(self._death())
        try:
            reply = self._reply(time.monotonic() + timeout)
        except BaseException:
            self._kill()  # or a late answer would be taken for that to the next request
            raise
        if "row" in reply:
            raise SolveError(reply["row"], reply["reason"])
        if "error" in reply:
            raise WorkerError(f"the dolfinx worker could not answer: {reply['error']}")
        return reply

    def close(self) -> None:
        """End it in good order; nothing happens if it has ended."""
        self._end()

    @property
    def _log(self) -> Path:
        return Path(self._folder, "log")

    def _file(self, name: str) -> Path:
        return Path(self._folder, f"{name}.npy")

    def _reply(self, deadline: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        while b"\n" not in self._unread:
            if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                self._give_up("did not answer in time; it was ended")
            read = self._process.stdout.read(65536)
            if not read:
                self._give_up(self._death())
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            self._give_up(f"does not speak its protocol: {line[:80]!r}")

    def _death(self) -> str:
        try:
            status = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output; it was ended"
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"died with exit status {status}"

    def _give_up(self, what: str) -> NoReturn:
        try:
            words = self._log.read_text(errors="replace").split("\n")
        except OSError:
            words = []
        last = " / ".join(line.strip() for line in words[-12:] if line.strip())
        self._kill()
        raise WorkerError(f"the dolfinx worker {what}" + (f"; its log: {last}" if last else ""))

    def _kill(self) -> None:
        if self._end.alive:
            for pid in self._pids:
                with suppress(ProcessLookupError):
                    if os.getsid(pid) == self._process.pid:  # still one of them
                        os.kill(pid, signal.SIGKILL)
            self._process.terminate()  # mpirun, which cleans up
            self._end()


_workers_alive: weakref.WeakSet[Worker] = weakref.WeakSet()
_of_this_thread = threading.local()


def worker(python: str, ranks: int = 1) -> Worker:
    """This thread's worker, started at the first call and again after its death."""
    workers: dict[tuple[str, int], Worker] = _of_this_thread.__dict__.setdefault("workers", {})
    key = (python, ranks)
    if key not in workers or not workers[key].alive:
        workers[key] = Worker(python, ranks)
    return workers[key]


def close_workers() -> None:
    """End this thread's workers; the next call starts others."""
    for started in _of_this_thread.__dict__.pop("workers", {}).values():
        started.close()


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    shutil.rmtree(folder, ignore_errors=True)


def _forget_workers() -> None:
    """In a forked child: they are the parent's, and end when no copy of their input is open."""
    for started in list(_workers_alive):
        started._end.detach()
        for pipe in (started._process.stdin, started._process.stdout):
            assert pipe is not None
            pipe.close()
        started._process.returncode = 0
    _of_this_thread.__dict__.clear()


os.register_at_fork(after_in_child=_forget_workers)


def _environment(folder: str | None = None) -> dict[str, str]:
    """Without traces of an outer MPI job, in which a child of it would die."""
    outer = os.environ
    kept = {key: value for key, value in outer.items() if not key.startswith(_OF_AN_OUTER_MPI)}
    environment = {
        **kept,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",  # two workers would share the first cores
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    if folder is not None:
        home = Path(outer.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pdegen")
        try:
            home.mkdir(parents=True, exist_ok=True)
            environment["XDG_CACHE_HOME"] = str(home)
        except OSError:
            environment["XDG_CACHE_HOME"] = folder
    return environment


def _mpirun(python: str, ranks: int) -> list[str]:
    if ranks == 1:
        return []
    beside = Path(python).with_name("mpirun")
    return [str(beside) if beside.exists() else "mpirun", "-n", str(ranks)]


def _shared_memory() -> str | None:
    try:
        return "/dev/shm" if shutil.disk_usage("/dev/shm").free > _LEAST_SHARED else None
    except OSError:
        return None
