"""Pools that run tasks in threads of this process or on workers of a Dask scheduler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from threading import BoundedSemaphore, Condition
from typing import TYPE_CHECKING, Any, TypeVar

from pdegen.numerics.device import one_thread, reuse_memory

if TYPE_CHECKING:
    from distributed import Client

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
            value = _in_one_thread(task, argument)
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
    """Run `then(task(argument))` in a worker of Dask. After `task` the calling thread leaves the
    pool of the worker, unless as many threads as the worker has left it and have not ended yet."""
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
    """Run a task with one BLAS thread. One thread is faster while other tasks run, and gives the
    same bits for any number of cores."""
    reuse_memory()
    with one_thread():
        return task(argument)
