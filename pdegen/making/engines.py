"""Where tasks run: threads here, Dask's processes, an existing scheduler, MPI, or SLURM."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from pdegen.numerics.one_thread import one_thread

if TYPE_CHECKING:
    from distributed import Client, Security

KINDS = ("threads", "processes", "mpi", "slurm")
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ucx|ws|wss|inproc)://)?[^/\s:]+:\d+")
_WAITING = 64  # tasks that wait: workers never starve, and a task that waits holds no data
_RENEWAL = 5000  # milliseconds between two looks for jobs of SLURM that have ended
_PATIENCE = 30  # seconds to find an existing scheduler, or the first worker of one
_FORK = {"distributed.worker.multiprocessing-method": "forkserver"}
_PRELOADED = [  # by the server that worker processes are forked from: what is slow to import
    "array_api_compat", "distributed.nanny", "distributed.worker", "fsspec.implementations.local",
    "google_crc32c", "jaxtyping", "numcodecs.blosc", "psutil", "pydantic", "scipy.fft",
    "scipy.linalg", "threadpoolctl", "zarr",
]  # fmt: skip
_TLS = {  # fields of Dask's Security, and their entries in its configuration
    "tls_ca_file": "distributed.comm.tls.ca-file",
    **{
        f"tls_{role}_{part}": f"distributed.comm.tls.{role}.{part}"
        for role in ("scheduler", "worker", "client")
        for part in ("cert", "key")
    },
}

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class EngineError(ValueError):
    """Tasks cannot be run as asked; one line."""

    exit_status = 2


class WorkerLostError(RuntimeError):
    """A task was lost with every worker that tried it; one line."""

    exit_status = 1


class Pool(ABC):
    """What runs tasks."""

    @abstractmethod
    def run(
        self, task: Callable[[Argument], Result], arguments: Iterable[Argument]
    ) -> Generator[tuple[Argument, Result], None, None]:
        """Results of a task as they are ready; a few tasks wait, whatever the number of all.

        Raises:
            WorkerLostError: If a task was lost with every worker that tried it.
            Exception: The first that a task raises; of those that are ready together, that of the
                argument that came first.
        """


@dataclass(frozen=True)
class Threads(Pool):
    """Threads of this process.

    Args:
        executor: Them.
        count: Their number.
    """

    executor: Executor
    count: int

    def run(
        self, task: Callable[[Argument], Result], arguments: Iterable[Argument]
    ) -> Generator[tuple[Argument, Result], None, None]:
        left, waiting = iter(arguments), dict[Future[Result], Argument]()
        try:
            while True:
                for argument in islice(left, self.count + _WAITING - len(waiting)):
                    waiting[self.executor.submit(_in_one_thread, task, argument)] = argument
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in [future for future in waiting if future in done]:
                    yield waiting.pop(future), future.result()
        except BaseException as error:
            for future in waiting:
                future.cancel()
            # an interrupt is answered at once: what runs on writes nothing any more
            if not isinstance(error.__context__ or error, KeyboardInterrupt):
                wait(waiting)
            raise


@dataclass(frozen=True)
class Cluster(Pool):
    """Workers of a Dask scheduler, which may come and go.

    Args:
        client: Of the scheduler.
    """

    client: Client

    def run(
        self, task: Callable[[Argument], Result], arguments: Iterable[Argument]
    ) -> Generator[tuple[Argument, Result], None, None]:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        left, waiting, slots = iter(arguments), dict[Any, Argument](), 0
        done = as_completed(loop=self.client.loop, with_results=True, raise_errors=False)
        try:
            while True:
                # many in one message: each message costs the scheduler as much as some tasks
                if len(waiting) <= slots + _WAITING // 2:
                    threads: Any = self.client.nthreads()
                    slots = sum(threads.values())
                    more = list(islice(left, slots + _WAITING - len(waiting)))
                    sent = self.client.map(partial(_in_one_thread, task), more, pure=False)
                    waiting |= zip(sent, more, strict=True)
                    done.update(sent)
                if not waiting:
                    return
                ready = dict(done.next_batch())
                for future in [future for future in waiting if future in ready]:
                    argument, result = waiting.pop(future), ready[future]
                    if future.status == "finished":
                        yield argument, result
                        continue
                    error = result[1] if isinstance(result, tuple) else result
                    if isinstance(error, KilledWorker):
                        raise WorkerLostError(
                            f"{argument}: every worker that tried it has died (out of memory?): "
                            f"{error}"
                        ) from error
                    raise error
        finally:
            self.client.cancel(list(waiting))


@contextmanager
def pool(scheduler: str, workers: int | None) -> Iterator[Pool]:
    """A pool for as long as it is needed.

    Whoever reaches a scheduler runs code there. Those that are started here speak TLS, with
    certificates of this run alone or those of Dask's configuration, and serve no dashboard, unless
    Dask's configuration names an address for it (`pdegen.dashboard`).

    Args:
        scheduler: "threads" of this process; "processes" of a Dask cluster on this machine; the
            address of a running Dask scheduler, such as "tls://10.0.0.1:8786"; "mpi" under
            mpirun (`start_mpi` first); "slurm", whose jobs Dask's configuration describes.
        workers: Tasks at a time; jobs with "slurm"; by default the cores of this machine. An
            existing scheduler and mpirun have their own.

    Raises:
        EngineError: If there is no such scheduler, or what it needs is not installed.
    """
    check(scheduler)
    workers = workers or len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        if scheduler == "threads":
            yield Threads(stack.enter_context(_threads(workers)), workers)
        else:
            yield Cluster(stack.enter_context(_client(scheduler, workers, stack)))


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """An executor that waits for its tasks at the end, except where it is interrupted."""
    executor, answers = ThreadPoolExecutor(count), True
    try:
        yield executor
    except KeyboardInterrupt:
        answers = False
        raise
    finally:
        executor.shutdown(wait=answers, cancel_futures=not answers)


def check(scheduler: str) -> None:
    """Raise EngineError on a word that is no scheduler."""
    if scheduler not in KINDS and not _ADDRESS.fullmatch(scheduler):
        raise EngineError(
            f"unknown scheduler {scheduler!r}: known: {', '.join(KINDS)}, or the address of a "
            "Dask scheduler such as tls://10.0.0.1:8786"
        )


def _in_one_thread(task: Callable[[Argument], Result], argument: Argument) -> Result:
    """A task with matrix products on one thread: faster beside other tasks, and the same bits."""
    with one_thread():
        return task(argument)


def _start_server() -> None:
    """Begin to import what worker processes need, in a process that forks them.

    It has no threads and no module of ours, which it might take from another place than this
    process does. It ends with this process; one serves all pools.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
    resource_tracker.ensure_running()  # which would let Ctrl-C through again
    with _shielded():
        forkserver.ensure_running()


@contextmanager
def _shielded() -> Iterator[None]:
    """Processes that are started meanwhile do not see Ctrl-C: this process ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _client(scheduler: str, workers: int, stack: ExitStack) -> Any:
    """A Dask client of the cluster that is meant."""
    if scheduler == "processes":
        _start_server()  # it imports while this process does
    from dask import config
    from distributed import Client, LocalCluster

    if scheduler == "mpi":
        if not config.get("scheduler-address", None):
            raise EngineError("the scheduler mpi needs the command line, under mpirun")
        return Client(timeout=_PATIENCE, set_as_default=False)
    if scheduler == "processes":
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="pdegen-", ignore_cleanup_errors=True)
        )
        try:
            stack.enter_context(config.set(_FORK))
            with _few_ports():
                cluster = LocalCluster(
                    env=dict(os.environ),  # that of the server may be older
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    security=_security(),
                    dashboard_address=_dashboard(),
                    local_directory=folder,
                )
        except RuntimeError as error:
            raise EngineError(
                f"Dask could not start {workers} processes: {error} They import the script again: "
                "it must be a file, with its work below if __name__ == '__main__'"
            ) from error
        stack.enter_context(_closed(cluster))
        return Client(cluster, set_as_default=False)
    if scheduler == "slurm":
        cluster = stack.enter_context(slurm_cluster())
        _keep(cluster, workers)
        client = Client(cluster, set_as_default=False)
    else:
        try:
            client = Client(scheduler, timeout=_PATIENCE, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise EngineError(f"no Dask scheduler answers at {scheduler}: {error}") from None
        except (TypeError, RuntimeError) as error:  # certificates, or encryption that is required
            raise EngineError(f"the Dask scheduler at {scheduler}: {error}") from None
    try:
        client.wait_for_workers(1, timeout=None if scheduler == "slurm" else _PATIENCE)
    except TimeoutError:
        client.close()
        raise EngineError(f"the Dask scheduler at {scheduler} has no workers") from None
    return client


@contextmanager
def _closed(cluster: Any) -> Iterator[None]:
    """Close a cluster of processes at the end. An interrupt does not wait: what they compute is not
    written any more, and they would be given seconds to finish it."""
    try:
        yield
    except KeyboardInterrupt:
        cluster.loop.add_callback(cluster.close)
        for worker in cluster.workers.values():
            if (process := getattr(worker, "pid", None)) is not None:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        raise
    cluster.close()


def _security() -> Security:
    """The user's certificates, where Dask's configuration names them, or some for this run."""
    from dask import config
    from distributed import Security

    if config.get("distributed.comm.tls.ca-file"):
        return Security(require_encryption=True)
    return Security.temporary()


def _dashboard() -> str:
    """Where the scheduler serves HTTP: where the user says, else at a port that is closed again."""
    from dask import config

    return config.get("pdegen.dashboard", None) or "127.0.0.1:0"


@contextmanager
def _few_ports() -> Iterator[None]:
    """Schedulers and workers that are made meanwhile listen for HTTP only where the user says."""
    from dask import config

    servers = ["worker"] if config.get("pdegen.dashboard", None) else ["worker", "scheduler"]
    keys = [f"distributed.{server}.preload" for server in servers]
    with config.set({key: [*config.get(key), __name__] for key in keys}):
        yield


def dask_setup(server: Any) -> None:
    """Dask calls this at the start of a scheduler or worker with this module as a preload."""
    server.http_server.stop()  # it tells tasks, addresses and logs


def _interface(alone: bool) -> str:
    """The network interface that the user chose, or that of the address of this machine.

    Args:
        alone: Whether all processes are on this machine: then it is that of loopback.
    """
    from dask import config
    from distributed.utils import get_ip

    address = "127.0.0.1" if alone else get_ip()
    mine = {
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(a.family == socket.AF_INET and a.address == address for a in addresses)
    }
    return config.get("pdegen.interface", None) or min(mine)


def start_mpi() -> None:
    """Begin under mpirun: process 0 schedules, process 1 returns, and the others work and end.

    Raises:
        EngineError: If there are fewer than three processes, or dask-mpi is not installed.
    """
    from dask import config

    config.set({"logging.distributed": "error"})  # as it is without mpirun
    try:
        from dask_mpi import initialize
        from mpi4py import MPI
    except ImportError as error:
        raise EngineError(
            f"the scheduler mpi needs dask-mpi: pip install 'pdegen-operators[mpi]' ({error})"
        ) from None
    world = MPI.COMM_WORLD
    if world.size < 3:
        if world.rank == 0:
            raise EngineError(
                "the scheduler mpi needs at least 3 processes (one schedules, one drives, others "
                f"work), got {world.size}: mpirun -n 3 pdegen generate ..."
            )
        sys.exit(2)  # the first one says it
    security = world.bcast(_security() if world.rank == 0 else None)
    config.set(_tls(security))
    with _few_ports():
        initialize(
            interface=_interface(world.Split_type(MPI.COMM_TYPE_SHARED).size == world.size),
            protocol="tls",
            nthreads=1,
            local_directory=tempfile.gettempdir(),
            dashboard=bool(config.get("pdegen.dashboard", None)),
            dashboard_address=_dashboard(),
        )


def _tls(security: Security) -> dict[str, Any]:
    """Certificates as entries of Dask's configuration."""
    entries = {key: getattr(security, slot) for slot, key in _TLS.items()}
    return {"distributed.comm.require-encryption": True, **entries}


@contextmanager
def slurm_cluster() -> Iterator[Any]:
    """A cluster of SLURM jobs, one task at a time each; options from Dask's configuration.

    Raises:
        EngineError: If dask-jobqueue or SLURM is not here, or an option is wrong or missing.
    """
    from dask import config
    from distributed.utils import get_ip

    job, options = _slurm()
    if shutil.which(job.submit_command) is None:
        raise EngineError("the scheduler slurm needs SLURM: there is no command sbatch")
    from dask_jobqueue.slurm import SLURMCluster

    given = config.get("jobqueue.slurm")
    scheduler = {**(given.get("scheduler-options") or {}), "dashboard_address": _dashboard()}
    if not (given.get("interface") or "interface" in scheduler or "host" in scheduler):
        scheduler["host"] = get_ip()  # by default it would listen at all addresses
    with ExitStack() as stack:
        try:
            security = stack.enter_context(_in_files(_security(), given))
            with _few_ports():
                cluster = SLURMCluster(**options, security=security, scheduler_options=scheduler)
            stack.enter_context(cluster)
        except (OSError, ValueError, TypeError) as error:
            raise EngineError(f"jobqueue.slurm in Dask's configuration: {error}") from None
        yield cluster


def _keep(cluster: Any, jobs: int) -> None:
    """Submit jobs, and others in place of those that end: at their time limit, or cancelled."""
    from tornado.ioloop import PeriodicCallback

    def submit() -> None:
        cluster.scale(jobs=jobs)

    cluster.loop.add_callback(submit)
    cluster.loop.add_callback(PeriodicCallback(submit, _RENEWAL).start)


@contextmanager
def _in_files(security: Security, given: dict[str, Any]) -> Iterator[Security]:
    """Certificates where jobs can read them, and other users cannot."""
    from distributed import Security

    shared = os.path.expanduser(os.path.expandvars(given.get("shared-temp-directory") or "."))
    with tempfile.TemporaryDirectory(prefix=".pdegen-", dir=os.path.abspath(shared)) as folder:
        files = dict[str, Any]()
        for slot in _TLS:
            files[slot] = getattr(security, slot)
            if files[slot] and "\n" in files[slot]:  # its text, not its path
                path = Path(folder) / slot
                path.write_text(files[slot], "ascii")
                files[slot] = str(path)
        yield Security(require_encryption=True, **files)


def slurm_script() -> str:
    """The script of one SLURM job, without submitting it.

    Raises:
        EngineError: If dask-jobqueue is not installed, or an option is wrong or missing.
    """
    from distributed import Security

    job, options = _slurm()
    files = {f"tls_{name}": f"<{name}>" for name in ("ca_file", "worker_cert", "worker_key")}
    try:
        return job(
            scheduler="tls://<scheduler>", name="<name>", security=Security(**files), **options
        ).job_script()
    except (ValueError, TypeError) as error:
        raise EngineError(f"jobqueue.slurm in Dask's configuration: {error}") from None


def _slurm() -> tuple[Any, dict[str, Any]]:
    """The class of SLURM's jobs, and what they are beside Dask's configuration."""
    from dask import config

    try:
        from dask_jobqueue.slurm import SLURMJob
    except ImportError:
        raise EngineError(
            "the scheduler slurm needs dask-jobqueue: pip install 'pdegen-operators[slurm]'"
        ) from None
    given = config.get("jobqueue.slurm")
    defaults = {"cores": 1, "processes": 1, "memory": "4GB"}
    options = {key: value for key, value in defaults.items() if given.get(key) is None}
    extra = [*(given.get("worker-extra-args") or []), "--no-dashboard", "--preload", __name__]
    return SLURMJob, {**options, "worker_extra_args": extra, "protocol": "tls"}
