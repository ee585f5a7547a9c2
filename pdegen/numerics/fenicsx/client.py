"""Client of a worker process that runs dolfinx, usually with another Python interpreter."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NoReturn
from zipfile import BadZipFile

import numpy as np

from pdegen.numerics.errors import MissingSolverError, SolveError, WorkerError
from pdegen.software import cores

VARIABLE = "PDEGEN_DOLFINX_PYTHON"
SYSTEM_PYTHON = "/usr/bin/python3"
_PROBE = (
    "import dolfinx, numpy, petsc4py.PETSc as p; assert numpy.dtype(p.ScalarType).kind == 'f'; "
    "print(dolfinx.__version__, '.'.join(map(str, p.Sys.getVersion())))"
)
_GMSH_PROBE = "import gmsh; print(gmsh.__version__)"
_START_SECONDS = 120.0
_END_SECONDS = 5.0
_OF_AN_OUTER_MPI = ("OMPI_", "PMIX_", "PMI_", "ORTE_", "PRTE_", "HYDRA_", "HYDI_")


class MissingDolfinxError(MissingSolverError):
    """No Python interpreter with dolfinx was found; the message says how to install dolfinx."""

    def __init__(self, tried: list[str]) -> None:
        super().__init__(
            f"no dolfinx for real numbers in {' or '.join(tried)}: "
            "apt-get install python3-dolfinx-real libopenblas0-pthread (Debian), or "
            "conda install -c conda-forge fenics-dolfinx (conda), "
            f"or let {VARIABLE} name a Python that has it"
        )


class MissingGmshError(MissingSolverError):
    """The Python interpreter with dolfinx has no Gmsh; the message says how to install it."""

    def __init__(self, python: str) -> None:
        super().__init__(
            f"no Gmsh in {python}, which has dolfinx: apt-get install python3-gmsh (Debian), or "
            "conda install -c conda-forge python-gmsh (conda)"
        )


@dataclass(frozen=True)
class Settings:
    """The options of a solve. `FiniteElement` has fields of the same names and meanings."""

    element: str
    mode: str
    linear: str
    rtol: float
    limit: int


def interpreter() -> str:
    """Path of the Python interpreter that runs dolfinx.

    The candidate is $PDEGEN_DOLFINX_PYTHON if that variable is set; otherwise the candidates are
    this interpreter and the system's. Raises MissingDolfinxError if no candidate can import
    dolfinx.
    """
    named = os.environ.get(VARIABLE)
    candidates = [named] if named else [sys.executable, SYSTEM_PYTHON]
    for python in candidates:
        if _versions(python):
            return python
    raise MissingDolfinxError(candidates)


def versions() -> dict[str, str]:
    """Versions of dolfinx and PETSc, by package name; empty if no dolfinx is found."""
    try:
        return dict(_versions(interpreter()))
    except MissingDolfinxError:
        return {}


def meshing_interpreter() -> str:
    """Path of the Python interpreter that runs dolfinx, which must also have Gmsh.

    Raises MissingDolfinxError or MissingGmshError.
    """
    python = interpreter()
    if not _gmsh_version(python):
        raise MissingGmshError(python)
    return python


def meshing_versions() -> dict[str, str]:
    """`versions`, with the version of Gmsh if it is installed."""
    packages = versions()
    gmsh = _gmsh_version(interpreter()) if packages else ""
    return {**packages, "gmsh": gmsh} if gmsh else packages


@lru_cache
def _gmsh_version(python: str) -> str:
    """Version of Gmsh for a Python interpreter; empty if it has none."""
    command = [python, "-I", "-c", _GMSH_PROBE]
    probe = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    return "" if probe.returncode else probe.stdout.split()[-1]


@lru_cache
def _versions(python: str) -> tuple[tuple[str, str], ...]:
    """Names and versions of dolfinx and PETSc for a Python interpreter."""
    if python == sys.executable and find_spec("dolfinx") is None:
        return ()
    command = [python, "-I", "-c", _PROBE]
    try:
        probe = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    except OSError:
        return ()
    if probe.returncode:
        return ()
    return tuple(zip(("dolfinx", "petsc"), probe.stdout.split()[-2:], strict=True))


def solve(
    settings: Settings, a: np.ndarray, f: np.ndarray | float, walls: np.ndarray | float,
    ranks: int, timeout: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Solves for a batch; returns u at the cell centres, residuals and numbers of iterations.

    Arguments and errors are those of `FiniteElement.solve`, except that functions are given as
    arrays of their values at the nodes.
    """
    u, residual, iterations = np.empty_like(a), np.empty(len(a)), np.empty(len(a), dtype=int)
    python, block_size = interpreter(), ranks if settings.mode == "sample" else 1
    for start in range(0, len(a), block_size):
        block = slice(start, start + block_size)
        source = f[block] if isinstance(f, np.ndarray) and f.ndim == 3 else f
        request = {**asdict(settings), "a": a[block], "f": source, "walls": walls}
        reply = worker(python, ranks).ask(request, timeout)
        if "reason" in reply:
            raise SolveError(start + int(reply["row"]), str(reply["reason"]))
        u[block], residual[block] = reply["u"], reply["residual"]
        iterations[block] = reply["iterations"]
    return u, residual, iterations


def solve_fitted(request: dict[str, Any], timeout: float) -> dict[str, np.ndarray]:
    """The mesh and the solution of one sample on a mesh that fits a curve; see `fitted.solve`.

    Raises:
        SolveError: If Gmsh or the linear solver fails.
        WorkerError: If the worker dies or exceeds the timeout.
        MissingDolfinxError, MissingGmshError: If the software is missing.
    """
    reply = worker(meshing_interpreter()).ask(request, timeout)
    if "reason" in reply:
        raise SolveError(int(reply["row"]), str(reply["reason"]))
    return reply


class Worker:
    """A process that runs `worker.py`, or `ranks` such processes under mpirun.

    The worker ends when this object is deleted, and when this process ends for any reason. If this
    process ends while the worker is busy, the worker first finishes its sample. Raises WorkerError
    if the worker does not start.
    """

    def __init__(self, python: str, ranks: int = 1) -> None:
        self._ranks, self._patience, self._late = ranks, _START_SECONDS, False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        script = str(Path(__file__).with_name("worker.py"))
        try:
            self._process = subprocess.Popen(
                [*_mpirun(python, ranks), python, "-I", script], env=_environment(ranks),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                cwd=tempfile.gettempdir(), start_new_session=True,
            )  # fmt: skip
        except OSError as failure:
            self._log.close()
            raise WorkerError(f"the dolfinx worker does not start: {failure}") from failure
        self._end = weakref.finalize(self, _end, self._process, ranks, self._log, os.getpid())

    @property
    def alive(self) -> bool:
        return self._end.alive and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process ID of the worker; that of mpirun if there are several ranks."""
        return self._process.pid

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, np.ndarray]:
        """Sends a request and returns the arrays of the reply.

        Raises WorkerError if the worker cannot answer, dies, or does not answer within the timeout.
        A worker that does not answer in time is killed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        archive = io.BytesIO()
        np.savez(archive, **request)
        watch = threading.Timer(timeout + self._patience, self._expire)
        watch.start()
        try:
            self._process.stdin.write(b"%d\n%b" % (archive.tell(), archive.getvalue()))
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            content = self._process.stdout.read(int(line))
            reply = dict(np.load(io.BytesIO(content), allow_pickle=False))
            if int(reply.pop("ranks")) != self._ranks:
                raise WorkerError(
                    f"the dolfinx worker does not have {self._ranks} ranks: is mpirun that of its "
                    "Python?"
                )
        except (OSError, ValueError, KeyError, BadZipFile):  # it died, or the reply is malformed
            self._give_up()
        except BaseException:
            self._end()  # otherwise a late reply would count as that to the next request
            raise
        finally:
            watch.cancel()
        self._patience = 0.0
        if "error" in reply:
            raise WorkerError(f"the dolfinx worker could not answer: {reply['error']}")
        return reply

    def close(self) -> None:
        """Ends the worker gracefully, unless it has ended already."""
        self._end()

    def _expire(self) -> None:
        self._late = True
        _kill(self._process, self._ranks)

    def _give_up(self) -> NoReturn:
        """Raise WorkerError with the reason for the missing reply and the last lines of the log."""
        try:
            status = self._process.wait(_END_SECONDS)
            reason = (
                f"was killed by {signal.Signals(-status).name}"
                if status < 0
                else (f"died with exit status {status}")
            )
        except subprocess.TimeoutExpired:
            reason = "sent no valid reply and was ended"
        except ValueError:  # closed
            reason = "has ended"
        if self._late:
            reason = "did not answer in time and was ended"
        log = ""
        if not self._log.closed:
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").split("\n")[-12:]
            log = " / ".join(line.strip() for line in lines if line.strip())
        self._end()
        raise WorkerError(f"the dolfinx worker {reason}" + (f"; its log: {log}" if log else ""))


_of_this_thread = threading.local()


def worker(python: str, ranks: int = 1) -> Worker:
    """The worker of this thread.

    The first call starts the worker, and later calls return the same one. A call starts another
    worker if the previous worker has died, or if this process is a forked child.
    """
    workers: dict[Any, Worker] = _of_this_thread.__dict__.setdefault("workers", {})
    key = (python, ranks, os.getpid())
    if key not in workers or not workers[key].alive:
        workers[key] = Worker(python, ranks)
    return workers[key]


def _end(process: subprocess.Popen[bytes], ranks: int, log: IO[bytes], parent: int) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError):  # unsent data
            pipe.close()
    log.close()
    if os.getpid() != parent:  # in a forked child the worker belongs to the parent
        return
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(process, ranks)


def _kill(process: subprocess.Popen[bytes], ranks: int) -> None:
    if ranks > 1:  # mpirun, which kills its ranks
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    process.kill()
    process.wait()


def _environment(ranks: int = 1) -> dict[str, str]:
    outer = os.environ
    inherited = {k: value for k, value in outer.items() if not k.startswith(_OF_AN_OUTER_MPI)}
    cache = outer.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return {
        **inherited,
        "XDG_CACHE_HOME": str(Path(cache, "pdegen")),  # of compiled forms
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",  # two workers would share the first cores
        # ranks that share a core must yield; on a busy machine those that yield are starved
        "OMPI_MCA_mpi_yield_when_idle": str(int(ranks > cores())),
    }


def _mpirun(python: str, ranks: int) -> list[str]:
    if ranks == 1:
        return []
    beside = Path(python).with_name("mpirun")
    return [str(beside) if beside.exists() else "mpirun", "-n", str(ranks)]
