"""Schedulers of tasks: threads, Dask processes with or without a dashboard, a running Dask
scheduler, MPI or SLURM."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from typing import Any

from pdegen.generation.network import certificates, dashboard, few_ports, link
from pdegen.generation.pools import Cluster, EngineError, Pool, Threads
from pdegen.generation.slurm import keep_jobs, slurm_cluster

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
            `pdegen.generation.mpi.start_mpi` before. "slurm" runs them in SLURM jobs that Dask's
            configuration describes. An address such as "tls://10.0.0.1:8786" names a running Dask
            scheduler.
        workers: Number of concurrent tasks, or of SLURM jobs. By default the number of cores of
            this machine. Ignored for a running scheduler and for "mpi".

    Raises:
        EngineError: If the scheduler is unknown, or needs a package that is not installed.
    """
    check(scheduler)
    workers = workers or len(os.sched_getaffinity(0))
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
    """Start the fork server. This is a process without threads that imports the modules which
    workers need, and then forks the workers. It serves all pools and ends with this process."""
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
    """Close a cluster of processes at the end of the context. After an interrupt, the processes are
    killed. Otherwise they would compute for some seconds, although their results are not
    written."""
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
