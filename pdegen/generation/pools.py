"""Pools that run tasks in threads of this process or on workers of a Dask scheduler."""

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
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from threading import BoundedSemaphore, Condition
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from pdegen.numerics.device import one_thread, reuse_memory
from pdegen.software import cores

if TYPE_CHECKING:
    from distributed import Client, Security


# Network addresses and certificates of Dask schedulers and workers.


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


_QUEUED = 64  # queued tasks: enough to keep workers busy; a queued task holds no data

Argument = TypeVar("Argument")
Value = TypeVar("Value")
Result = TypeVar("Result")


class EngineError(ValueError):
    """This scheduler cannot run tasks. The message has one line."""

    exit_status = 2


class WorkerLostError(RuntimeError):
    """Every worker that tried a task was lost. The message has one line."""

    exit_status = 1


class Pool(ABC):
    """A pool of workers that run tasks."""

    note: str = ""  # where its dashboard is, for the user

    def run(
        self, task: Callable[[Argument], Result], arguments: Iterable[Argument]
    ) -> Generator[tuple[Argument, Result], None, None]:
        """Run a task on each argument. Yields (argument, result) in order of completion.

        Only a few tasks are queued at any time, even if there are many arguments.

        Raises:
            WorkerLostError: If every worker that tried a task was lost.
            Exception: The first error that a task raises. If several tasks have failed, the error
                of the task whose argument comes first.
        """
        return self.overlapped(task, _unchanged, arguments)

    @abstractmethod
    def overlapped(
        self,
        task: Callable[[Argument], Value],
        then: Callable[[Value], Result],
        arguments: Iterable[Argument],
    ) -> Generator[tuple[Argument, Result], None, None]:
        """Run `then(task(argument))` for each argument, as `run` does. While `then` waits for a
        disk or a network, the worker runs `task` on the next argument. If `then` falls behind,
        tasks wait for it, so that memory does not grow."""


@dataclass(frozen=True)
class Threads(Pool):
    """A pool of threads in this process. Only the threads in `computing` run tasks, because some
    solvers keep a process for each thread."""

    executor: Executor  # twice as many threads, which wait for tasks and run what follows them
    computing: Executor  # the threads that compute
    count: int  # number of threads that compute

    def overlapped(
        self,
        task: Callable[[Argument], Value],
        then: Callable[[Value], Result],
        arguments: Iterable[Argument],
    ) -> Generator[tuple[Argument, Result], None, None]:
        following = _Running()

        def computed(argument: Argument) -> Value:
            reuse_memory()
            with one_thread():  # of BLAS
                value = task(argument)
            following.enter()  # before this thread computes the next value
            return value

        def whole(argument: Argument) -> Result:
            value = self.computing.submit(computed, argument).result()
            try:
                return then(value)
            finally:
                following.leave()

        remaining, waiting = iter(arguments), dict[Future[Result], Argument]()
        try:
            while True:
                for argument in islice(remaining, self.count + _QUEUED - len(waiting)):
                    waiting[self.executor.submit(whole, argument)] = argument
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in [future for future in waiting if future in done]:
                    yield waiting.pop(future), future.result()
        except BaseException as error:
            for future in waiting:
                future.cancel()
            # after an interrupt, values that are computed already are still written
            if isinstance(error.__context__ or error, KeyboardInterrupt):
                following.wait()
            else:
                wait(waiting)
            raise


class _Running:
    """The number of calls that run now, for a thread that waits until there are none."""

    def __init__(self) -> None:
        self._count, self._ended = 0, Condition()

    def enter(self) -> None:
        with self._ended:
            self._count += 1

    def leave(self) -> None:
        with self._ended:
            self._count -= 1
            self._ended.notify_all()

    def wait(self) -> None:
        with self._ended:
            self._ended.wait_for(lambda: self._count == 0)


@dataclass(frozen=True)
class Cluster(Pool):
    """A pool of the workers of a Dask scheduler. The number of workers may change."""

    client: Client  # client of the scheduler
    note: str = ""

    def overlapped(
        self,
        task: Callable[[Argument], Value],
        then: Callable[[Value], Result],
        arguments: Iterable[Argument],
    ) -> Generator[tuple[Argument, Result], None, None]:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        remaining, waiting, slots = iter(arguments), dict[Any, Argument](), 0
        done = as_completed(loop=self.client.loop, with_results=True, raise_errors=False)
        try:
            while True:
                # submit many tasks in one message, which costs the scheduler as much as several
                # tasks
                if len(waiting) <= slots + _QUEUED // 2:
                    threads: Any = self.client.nthreads()
                    slots = sum(threads.values())
                    more = list(islice(remaining, slots + _QUEUED - len(waiting)))
                    sent = self.client.map(partial(_in_worker, task, then), more, pure=False)
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


def _in_worker(
    task: Callable[[Argument], Value], then: Callable[[Value], Result], argument: Argument
) -> Result:
    """Run `then(task(argument))` in a worker of Dask."""
    from distributed import get_worker, secede

    computing, outside = _threads_of_worker(get_worker().state.nthreads)
    value = computing.submit(_in_one_thread, task, argument).result()
    if then is _unchanged or not outside.acquire(blocking=False):
        return then(value)
    try:
        secede()
        return then(value)
    finally:
        outside.release()


@cache
def _threads_of_worker(count: int) -> tuple[Executor, BoundedSemaphore]:
    """The threads of a worker that compute, because Dask replaces a thread that leaves its pool;
    and a semaphore for the threads outside of the pool."""
    from distributed.threadpoolexecutor import ThreadPoolExecutor

    executor = ThreadPoolExecutor(count, thread_name_prefix="computing")
    return executor, BoundedSemaphore(count)


def _unchanged(value: Any) -> Any:
    return value


def _in_one_thread(task: Callable[[Argument], Result], argument: Argument) -> Result:
    """Run a task with one BLAS thread."""
    reuse_memory()
    with one_thread():
        return task(argument)


# Dask scheduler and workers under mpirun.


def start_mpi() -> None:
    """Start Dask under mpirun. Process 0 becomes the scheduler, process 1 returns to the caller,
    and the others become workers. Raises EngineError if there are fewer than three processes, or if
    dask-mpi is not installed."""
    from dask import config

    config.set({"logging.distributed": "error"})  # as without mpirun
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
        sys.exit(2)  # process 0 prints the error
    security = world.bcast(certificates() if world.rank == 0 else None)
    config.set(tls_entries(security))
    with few_ports():
        initialize(
            interface=interface_of(world.Split_type(MPI.COMM_TYPE_SHARED).size == world.size),
            protocol="tls",
            nthreads=1,
            local_directory=tempfile.gettempdir(),
            dashboard=bool(config.get("pdegen.dashboard", None)),
            dashboard_address=dashboard(),
        )


# Dask workers in SLURM jobs.


_RENEWAL = 5000  # milliseconds between two checks for ended SLURM jobs


@contextmanager
def slurm_cluster() -> Iterator[Any]:
    """A Dask cluster of SLURM jobs, each of which runs one task at a time. Its options are read
    from Dask's configuration. Raises EngineError if dask-jobqueue or SLURM is not installed, or if
    an option is wrong or missing."""
    from dask import config
    from distributed.utils import get_ip

    job, options = _slurm()
    if shutil.which(job.submit_command) is None:
        raise EngineError("the scheduler slurm needs SLURM: there is no command sbatch")
    from dask_jobqueue.slurm import SLURMCluster

    configured = config.get("jobqueue.slurm")
    scheduler = {**(configured.get("scheduler-options") or {}), "dashboard_address": dashboard()}
    if not (configured.get("interface") or "interface" in scheduler or "host" in scheduler):
        scheduler["host"] = get_ip()  # the default would listen on all addresses
    with ExitStack() as stack:
        try:
            security = stack.enter_context(_in_files(certificates(), configured))
            with few_ports():
                cluster = SLURMCluster(**options, security=security, scheduler_options=scheduler)
            stack.enter_context(cluster)
        except (OSError, ValueError, TypeError) as error:
            raise EngineError(f"jobqueue.slurm in Dask's configuration: {error}") from None
        yield cluster


def keep_jobs(cluster: Any, jobs: int) -> None:
    """Submit jobs. Replace each job that reaches its time limit or is cancelled."""
    from tornado.ioloop import PeriodicCallback

    def submit() -> None:
        cluster.scale(jobs=jobs)

    cluster.loop.add_callback(submit)
    cluster.loop.add_callback(PeriodicCallback(submit, _RENEWAL).start)


@contextmanager
def _in_files(security: Security, configured: dict[str, Any]) -> Iterator[Security]:
    """Write certificates to files that SLURM jobs can read and other users cannot."""
    from distributed import Security

    shared = os.path.expanduser(os.path.expandvars(configured.get("shared-temp-directory") or "."))
    with tempfile.TemporaryDirectory(prefix=".pdegen-", dir=os.path.abspath(shared)) as folder:
        files = dict[str, Any]()
        for slot in TLS:
            files[slot] = getattr(security, slot)
            if files[slot] and "\n" in files[slot]:  # the text of a certificate, not its path
                path = Path(folder) / slot
                path.write_text(files[slot], "ascii")
                files[slot] = str(path)
        yield Security(require_encryption=True, **files)


def slurm_script() -> str:
    """The text of the script that starts a SLURM job. Raises EngineError if dask-jobqueue is not
    installed, or if an option is wrong or missing."""
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
    """The dask-jobqueue class for SLURM jobs, and options in addition to those of Dask's
    configuration."""
    from dask import config

    try:
        from dask_jobqueue.config import reconfigure
        from dask_jobqueue.slurm import SLURMJob
    except ImportError:
        raise EngineError(
            "the scheduler slurm needs dask-jobqueue: pip install 'pdegen-operators[slurm]'"
        ) from None
    reconfigure()  # a dask.config.set that was entered before the import removes its defaults
    configured = config.get("jobqueue.slurm")
    defaults = {"cores": 1, "processes": 1, "memory": "4GB"}
    options = {key: value for key, value in defaults.items() if configured.get(key) is None}
    extra = [
        *(configured.get("worker-extra-args") or []),
        "--no-dashboard",
        "--preload",
        __name__,
    ]
    return SLURMJob, {**options, "worker_extra_args": extra, "protocol": "tls"}


# Schedulers of tasks: threads, Dask processes with or without a dashboard, a running Dask
# scheduler, MPI or SLURM.


KINDS = ("threads", "processes", "dask", "mpi", "slurm")
_LOCAL = ("processes", "dask")  # clusters of processes on this machine
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ucx|ws|wss|inproc)://)?[^/\s:]+:\d+")
_TIMEOUT = 30  # seconds to find an existing scheduler, or its first worker
_FORK = {"distributed.worker.multiprocessing-method": "forkserver"}
_PRELOADED = [  # slow modules that the fork server of worker processes imports
    "array_api_compat", "distributed.nanny", "distributed.worker", "fsspec.implementations.local",
    "google_crc32c", "jaxtyping", "numcodecs.blosc", "psutil", "pydantic", "scipy.fft",
    "scipy.linalg", "threadpoolctl", "zarr",
]  # fmt: skip


@contextmanager
def pool(scheduler: str, workers: int | None) -> Iterator[Pool]:
    """Start a pool of workers and close it at the end of the context.

    Anyone who can connect to a Dask scheduler can run code on it. Schedulers that are started here
    therefore require TLS. If Dask's configuration names no certificates, temporary ones are made.
    "dask" has a dashboard on this machine. The others have one only if Dask's configuration has an
    address for it (`pdegen.dashboard`).

    Args:
        scheduler: "threads" runs tasks in threads of this process. "processes" runs them in a Dask
            cluster on this machine, and "dask" adds a dashboard. "mpi" runs them under mpirun; call
            `pdegen.generation.pools.start_mpi` before. "slurm" runs them in SLURM jobs that Dask's
            configuration describes. An address such as "tls://10.0.0.1:8786" names a running Dask
            scheduler.
        workers: Number of concurrent tasks, or of SLURM jobs. By default the number of cores of
            this machine. Ignored for a running scheduler and for "mpi".

    Raises:
        EngineError: If the scheduler is unknown, or needs a package that is not installed.
    """
    check(scheduler)
    workers = workers or cores()
    with ExitStack() as stack:
        if scheduler == "threads":
            computing = stack.enter_context(_threads(workers))
            yield Threads(stack.enter_context(_threads(2 * workers)), computing, workers)
        else:
            client = stack.enter_context(_client(scheduler, workers, stack))
            yield Cluster(client, link(client) if scheduler == "dask" else "")


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """A thread pool that waits for its tasks at the end of the context, unless it is
    interrupted."""
    executor, wait = ThreadPoolExecutor(count), True
    try:
        yield executor
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        executor.shutdown(wait=wait, cancel_futures=not wait)


def check(scheduler: str) -> None:
    """Raise EngineError if a scheduler is unknown."""
    if scheduler not in KINDS and not _ADDRESS.fullmatch(scheduler):
        raise EngineError(
            f"unknown scheduler {scheduler!r}: known: {', '.join(KINDS)}, or the address of a "
            "Dask scheduler such as tls://10.0.0.1:8786"
        )


def _start_server() -> None:
    """Start the fork server."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
    # modules of the working directory are no code that the user has named: import none of them
    with _environment(PYTHONSAFEPATH="1"):
        # semaphores that an interrupt leaves are removed, which needs no warning
        with _environment(PYTHONWARNINGS="ignore:resource_tracker"):
            resource_tracker.ensure_running()  # first, because its start unblocks Ctrl-C
        with _shielded():
            forkserver.ensure_running()


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables of the processes that are started in this context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _shielded() -> Iterator[None]:
    """Block Ctrl-C in processes that are started in this context. Only this process stops them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _client(scheduler: str, workers: int, stack: ExitStack) -> Any:
    """A Dask client of a new or running cluster."""
    if scheduler in _LOCAL:
        _start_server()  # it imports in parallel to this process
    from dask import config
    from distributed import Client, LocalCluster

    if scheduler == "mpi":
        if not config.get("scheduler-address", None):
            raise EngineError("the scheduler mpi needs the command line, under mpirun")
        return Client(timeout=_TIMEOUT, set_as_default=False)
    if scheduler in _LOCAL:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="pdegen-", ignore_cleanup_errors=True)
        )
        try:
            stack.enter_context(config.set(_FORK))
            with few_ports(dashboard=scheduler == "dask"):
                cluster = LocalCluster(
                    env=dict(os.environ),  # the environment of the fork server may be older
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    security=certificates(),
                    dashboard_address=dashboard(),
                    local_directory=folder,
                )
        except RuntimeError as error:
            raise EngineError(
                f"Dask could not start {workers} processes: {error} Each process imports the "
                "script: it must be a file, with its work below if __name__ == '__main__'"
            ) from error
        stack.enter_context(_closed(cluster))
        return Client(cluster, set_as_default=False)
    if scheduler == "slurm":
        cluster = stack.enter_context(slurm_cluster())
        keep_jobs(cluster, workers)
        client = Client(cluster, set_as_default=False)
    else:
        try:
            client = Client(scheduler, timeout=_TIMEOUT, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise EngineError(f"no Dask scheduler answers at {scheduler}: {error}") from None
        except (TypeError, RuntimeError) as error:  # wrong certificates, or encryption is required
            raise EngineError(f"the Dask scheduler at {scheduler}: {error}") from None
    try:
        client.wait_for_workers(1, timeout=None if scheduler == "slurm" else _TIMEOUT)
    except TimeoutError:
        client.close()
        raise EngineError(f"the Dask scheduler at {scheduler} has no workers") from None
    return client


@contextmanager
def _closed(cluster: Any) -> Iterator[None]:
    """Close a cluster of processes at the end of the context."""
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
