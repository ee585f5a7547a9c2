"""Parts of a study in processes of Dask, on this machine or on others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from dask import config

from operators.training.fit import Stopped
from pdegen.equations.registry import EquationFile, sources
from pdegen.generation.engines import pool
from pdegen.generation.pools import Cluster
from pipelines.runs.folder import RunError

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "processes"
_POLL = 0.5  # seconds between looks at whether to stop
_CONFIG = {  # a training may take more than its share of the memory, and is not tried again
    "distributed.scheduler.allowed-failures": 0,
    **{f"distributed.worker.memory.{what}": False for what in ("pause", "spill", "target")},
    "distributed.worker.memory.terminate": False,
    "distributed.worker.preload": [__name__],
}


class Processes(AbstractContextManager["Processes"]):
    """Calls a function in processes, which start with the first call; those of this machine have
    each its share of the cores.

    Args:
        call: Takes an argument, and a function that says whether to stop.
        scheduler: `LOCAL`, "slurm", or the address of a Dask scheduler.
        folder: One that all processes see, to tell them to stop.
    """

    def __init__(
        self,
        call: Callable[[Any, Callable[[], bool]], Any],
        workers: int,
        stop: Callable[[], bool],
        scheduler: str = LOCAL,
        folder: Path | None = None,
    ) -> None:
        self.call, self.workers, self.stop = call, workers, stop
        self.scheduler, self.folder = scheduler, folder
        self._stack = ExitStack()

    @property
    def several(self) -> bool:
        """Whether calls are to be made in other processes than this one."""
        return self.workers > 1 or self.scheduler != LOCAL

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def __call__(self, arguments: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Arguments and results, as they are ready.

        Raises:
            Stopped: If it was asked to; every call has ended then.
            RunError: If a process was killed.
            Exception: The first that a call raises, after the results that are ready.
        """
        from distributed import wait
        from distributed.scheduler import KilledWorker

        if not arguments:
            return
        client, halt = self._started
        local = self.scheduler == LOCAL
        threads = max(1, len(os.sched_getaffinity(0)) // self.workers) if local else None
        call = partial(_called, self.call, halt, threads, sources())
        pending = dict(zip(client.map(call, arguments, pure=False), arguments, strict=True))
        try:
            while pending:
                with suppress(TimeoutError), client.as_current():
                    wait(list(pending), _POLL, "FIRST_COMPLETED")
                done = [one for one in pending if one.done()]
                for future in sorted(done, key=lambda one: one.status == "error"):
                    argument = pending.pop(future)
                    yield argument, future.result()
                if self.stop():
                    raise Stopped("the study was stopped")
        except KilledWorker:
            raise RunError(
                "a training was killed, perhaps for want of memory: what is finished is kept, "
                "continue with --resume, and with fewer --workers or larger ones"
            ) from None
        finally:
            if pending:
                halt.touch()
                with client.as_current():
                    wait(list(pending))

    @cached_property
    def _started(self) -> tuple[Client, Path]:
        """The client, and the file whose presence asks all calls to stop."""
        place = TemporaryDirectory(prefix=".stop-", dir=self.folder)
        halt = Path(self._stack.enter_context(place)).absolute() / "halt"
        if self.scheduler == LOCAL:
            self._stack.enter_context(config.set(_CONFIG))
        cluster = self._stack.enter_context(pool(self.scheduler, self.workers))
        assert isinstance(cluster, Cluster)
        return cluster.client, halt


def dask_setup(server: object) -> None:
    """Dask calls this at the start of a worker process, with this module as a preload: the parent
    alone hears what is typed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _called(
    call: Callable[[Any, Any], Any],
    halt: Path,
    threads: int | None,
    equations: Sequence[EquationFile],
    argument: Any,
) -> Any:
    """A call in a worker process, which knows the equations of this one; None once it is to halt,
    for nobody reads that, and Dask would log an error for each."""
    if halt.exists():
        return None
    for source in equations:
        source.run()
    if threads is not None:
        torch.set_num_threads(threads)
    with suppress(Stopped):
        return call(argument, halt.exists)
    return None
