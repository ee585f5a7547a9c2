"""Matrix products on one thread, so that numbers do not depend on the environment.

OpenBLAS, MKL and OpenMP split a product among as many threads as there are cores, or as variables
such as `OPENBLAS_NUM_THREADS` say, and each split rounds otherwise. Whatever computes numbers that
are stored, or that are compared with stored ones, computes within `one_thread()`.
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
    """Limits the libraries of matrix products and OpenMP to one thread; may be nested.

    The limit of OpenMP holds for the calling thread. That of a library of matrix products holds for
    the whole process, until the last of the threads that ask for it has left.
    """
    with _blas, _controller().select(user_api="openmp").limit(limits=1):
        yield


class _Blas:
    """The limit of the libraries of matrix products, shared by all threads that ask for it."""

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
    """Set the numbers of threads of some libraries, whichever thread has set them before.

    Threadpoolctl lets the thread that set the number of OpenBLAS first keep the others from it,
    without a word; here the last thread to leave need not be the first that entered.
    """
    for library, threads in numbers:
        give_up = getattr(library, "clear_controlling_thread", lambda force: None)
        give_up(force=True)
        library.set_num_threads(threads)
        give_up(force=True)


def _controller() -> ThreadpoolController:
    """The thread pools of this process."""
    import scipy.linalg  # noqa: F401 - has one, and is imported first by some solvers

    return _found(len(sys.modules))


@lru_cache(maxsize=1)
def _found(modules: int) -> ThreadpoolController:
    """The same while no further module is imported; looking for them takes milliseconds."""
    return ThreadpoolController()
