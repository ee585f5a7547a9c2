"""Matrix products on one thread, so that their bits do not depend on the environment.

OpenBLAS, MKL and OpenMP split a product among threads. The number of threads depends on the cores,
or on variables such as `OPENBLAS_NUM_THREADS`. Each split rounds differently. All numbers that are
stored, or compared with stored numbers, are therefore computed within `one_thread()`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

from threadpoolctl import LibController, ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits the BLAS libraries and OpenMP to one thread; the context may be nested.

    The limit of OpenMP applies to the calling thread. The limit of a BLAS library applies to the
    whole process, until the last thread has left the context.
    """
    with _blas, _controller().select(user_api="openmp").limit(limits=1):
        yield


class _Blas:
    """A context that limits BLAS libraries to one thread while any thread is in the context."""

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._before = list[tuple[LibController, int]]()

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                libraries = _controller().select(user_api="blas").lib_controllers
                self._before = [(library, library.num_threads) for library in libraries]
                _set([(library, 1) for library in libraries])
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                _set(self._before)


_blas = _Blas()


def _set(numbers: list[tuple[LibController, int]]) -> None:
    """Set the number of threads of each library, even if another thread has set it before.

    In threadpoolctl, the thread that first sets the number of OpenBLAS threads silently prevents
    other threads from setting it. Here the thread that enters the context first sets the limit, but
    another thread may be the last to leave the context and must remove the limit.
    """
    for library, threads in numbers:
        give_up = getattr(library, "clear_controlling_thread", lambda force: None)
        give_up(force=True)
        library.set_num_threads(threads)
        give_up(force=True)


def _controller() -> ThreadpoolController:
    """The thread pools of this process."""
    import scipy.linalg  # noqa: F401 - has a pool, and some solvers import it later

    return _cached_controller(len(sys.modules))


@lru_cache(maxsize=1)
def _cached_controller(modules: int) -> ThreadpoolController:
    """The controller of the thread pools, cached until another module is imported.

    A search for the pools takes milliseconds.
    """
    return ThreadpoolController()
