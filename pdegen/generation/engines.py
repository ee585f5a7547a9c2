"""Where tasks run: threads here, Dask's processes, an existing scheduler, MPI, or SLURM."""

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

from pdegen.generation.network import certificates, dashboard, few_ports
from pdegen.generation.pools import Cluster, EngineError, Pool, Threads
from pdegen.generation.slurm import keep, slurm_cluster

KINDS = ("threads", "processes", "mpi", "slurm")
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ucx|ws|wss|inproc)://)?[^/\s:]+:\d+")
_PATIENCE = 30  # seconds to find an existing scheduler, or the first worker of one
_FORK = {"distributed.worker.multiprocessing-method": "forkserver"}
_PRELOADED = [  # by the server that worker processes are forked from: what is slow to import
    "array_api_compat", "distributed.nanny", "distributed.worker", "fsspec.implementations.local",
    "google_crc32c", "jaxtyping", "numcodecs.blosc", "psutil", "pydantic", "scipy.fft",
    "scipy.linalg", "threadpoolctl", "zarr",
]  # fmt: skip


@contextmanager
def pool(scheduler: str, workers: int | None) -> Iterator[Pool]:
    """A pool for as long as it is needed.

    Whoever reaches a scheduler runs code there. Those that are started here speak TLS, with
    certificates of this run alone or those of Dask's configuration, and serve no dashboard, unless
    Dask's configuration names an address for it (`pdegen.dashboard`).

    Args:
        scheduler: "threads" of this process; "processes" of a Dask cluster on this machine; the
            address of a running Dask scheduler, such as "tls://10.0.0.1:8786"; "mpi" under
            mpirun, after `pdegen.generation.mpi.start_mpi`; "slurm", whose jobs Dask's
            configuration describes.
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


def _start_server() -> None:
    """Begin to import what worker processes need, in a process without threads and modules of ours,
    which forks them. One serves all pools, and ends with this process."""
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
            with few_ports():
                cluster = LocalCluster(
                    env=dict(os.environ),  # that of the server may be older
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
                f"Dask could not start {workers} processes: {error} They import the script again: "
                "it must be a file, with its work below if __name__ == '__main__'"
            ) from error
        stack.enter_context(_closed(cluster))
        return Client(cluster, set_as_default=False)
    if scheduler == "slurm":
        cluster = stack.enter_context(slurm_cluster())
        keep(cluster, workers)
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
