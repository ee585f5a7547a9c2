"""Files are written by a thread of their own, while the steps go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Writer:
    """Runs jobs one after another in one thread; the first that fails ends the rest.

    As a context it waits for its jobs at the end, however that comes about.

    >>> with Writer() as writer:
    ...     writer(lambda: print("first"), lambda: print("second"))
    first
    second
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._running: Future[None] | None = None

    def __call__(self, *jobs: Callable[[], None]) -> None:
        """Wait for the jobs before, then begin these."""
        self.join()
        self._running = self._thread.submit(_run, jobs)

    def join(self) -> None:
        """Wait for all jobs, and raise what one of them raised."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.join()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and a file was not written: {failure}")
        finally:
            self._thread.shutdown()


def _run(jobs: tuple[Callable[[], None], ...]) -> None:
    for job in jobs:
        job()
