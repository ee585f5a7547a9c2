"""Dask processes, on this machine or on others, that compute the parts of a study."""

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
from pdegen.generation.pools import Cluster, pool
from pdegen.plugins import PluginFile, loaded_plugins
from pipelines.runs.folder import RunError
from pipelines.studies.devices import take_device, visible_devices

if TYPE_CHECKING:
    from distributed import Client, Worker

LOCAL = "processes"
_CPU = torch.device("cpu")
_DEVICES = "pdegen.devices"  # key of Dask's configuration, which worker processes inherit
_POLL = 0.5  # seconds between checks whether to stop
_CONFIG = {  # a training may use more than its share of the memory, and is not retried
    "distributed.scheduler.allowed-failures": 0,
    **{f"distributed.worker.memory.{what}": False for what in ("pause", "spill", "target")},
    "distributed.worker.memory.terminate": False,
    "distributed.worker.preload": [__name__],
}


class Processes(AbstractContextManager["Processes"]):
    """Processes that call a function.

    The processes start at the first call. Processes on this machine share the cores equally.

    Args:
        call: The function to call. Its first argument is an element of the sequence that `__call__`
            receives; its second argument is a function that returns whether to stop.
        workers: Number of processes.
        stop: A function that returns whether to stop.
        scheduler: `LOCAL`, "slurm", or the address of a Dask scheduler.
        folder: A folder that all processes can read. A file there tells the processes to stop.
        device: The device of the calls. If it is a GPU, processes on this machine see one GPU each,
            in turn (`pipelines.studies.devices`).
    """

    def __init__(
        self,
        call: Callable[[Any, Callable[[], bool]], Any],
        workers: int,
        stop: Callable[[], bool],
        scheduler: str = LOCAL,
        folder: Path | None = None,
        device: torch.device = _CPU,
    ) -> None:
        self.call, self.workers, self.stop = call, workers, stop
        self.scheduler, self.folder, self.device = scheduler, folder, device
        self._stack = ExitStack()

    @property
    def parallel(self) -> bool:
        """Whether calls run in processes other than this one."""
        return self.workers > 1 or self.scheduler != LOCAL

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def __call__(self, arguments: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Call the function for each argument and yield (argument, result) as calls finish.

        Raises:
            Stopped: If `stop` returns true. It is raised after all calls have ended.
            RunError: If a process was killed.
            Exception: If a call raises it. Results of other calls that are ready are yielded first.
        """
        from distributed import wait
        from distributed.scheduler import KilledWorker

        if not arguments:
            return
        client, halt = self._started
        local = self.scheduler == LOCAL
        threads = max(1, len(os.sched_getaffinity(0)) // self.workers) if local else None
        call = partial(_called, loaded_plugins(), self.call, halt, threads)
        pending = dict(zip(client.map(call, arguments, pure=False), arguments, strict=True))
        try:
            while pending:
                with suppress(TimeoutError), client.as_current():
                    wait(list(pending), _POLL, "FIRST_COMPLETED")
                done = [future for future in pending if future.done()]
                for future in sorted(done, key=lambda future: future.status == "error"):
                    argument = pending.pop(future)
                    yield argument, future.result()
                if self.stop():
                    raise Stopped("the study was stopped")
        except KilledWorker:
            raise RunError(
                "a training was killed, perhaps because memory was short. Finished trainings are "
                "kept: continue with --resume, with fewer --workers or with more memory"
            ) from None
        finally:
            if pending:
                halt.touch()
                with client.as_current():
                    wait(list(pending))

    @cached_property
    def _started(self) -> tuple[Client, Path]:
        """The Dask client, and the path of a file. All calls stop when this file exists."""
        folder = TemporaryDirectory(prefix=".stop-", dir=self.folder)
        halt = Path(self._stack.enter_context(folder)).absolute() / "halt"
        if self.scheduler == LOCAL:
            devices = {_DEVICES: visible_devices(self.device)}
            self._stack.enter_context(config.set(_CONFIG | devices))
        cluster = self._stack.enter_context(pool(self.scheduler, self.workers))
        assert isinstance(cluster, Cluster)
        return cluster.client, halt


def dask_setup(server: Worker) -> None:
    """Ignore interrupts in a worker process, so that only the parent process handles them. Take one
    of the GPUs.

    Dask preloads this module in each worker process and calls this function when the process
    starts.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    take_device(config.get(_DEVICES, []), server.name)


def _called(
    plugins: Sequence[PluginFile],
    call: Callable[[Any, Any], Any],
    halt: Path,
    threads: int | None,
    argument: Any,
) -> Any:
    """Call the function in a worker process.

    The users' files of the parent run when this process unpickles them. They come first, because
    the function may need their classes.

    Returns None if the file `halt` exists, because Dask would log an exception. The parent ignores
    this result.
    """
    if halt.exists():
        return None
    if threads is not None:
        torch.set_num_threads(threads)
    with suppress(Stopped):
        return call(argument, halt.exists)
    return None
