"""Functions for NumPy arrays and for tensors on a device of PyTorch."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from threading import Lock
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from jaxtyping import Complex, Float
from threadpoolctl import LibController, ThreadpoolController

# Matrix products on one thread, so that their bits do not depend on the environment.


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
    """Set the number of threads of each library, even if another thread has set it before."""
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
    """The controller of the thread pools, cached until another module is imported."""
    return ThreadpoolController()


Array = Any  # of NumPy or another namespace of the array API standard, such as torch on a GPU

_CACHE_POINTS = 32768  # points of a block of rows: a few such arrays fit into a core's cache
# points of a block of rows for NumPy: Python's time for an operation is small beside it, and
# threads seldom wait for Python's lock
ARRAY_POINTS = 2**19
_REUSED_BYTES = 2**25  # the largest threshold that glibc adapts to
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_DEVICE_BYTES = 4_000_000_000  # largest memory of a block on a device, whatever its memory is


def torch() -> Any:
    """The module torch; it is imported only when a device is used."""
    return importlib.import_module("torch")


def empty(shape: tuple[int, ...], dtype: Any, device: str | None) -> Array:
    """An uninitialised array with a NumPy dtype.

    The result is a NumPy array if `device` is None, and a tensor on this PyTorch device otherwise.
    """
    if device is None:
        return np.empty(shape, dtype)
    return torch().empty(shape, dtype=getattr(torch(), np.dtype(dtype).name), device=device)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Zeros with the dtype and the device of another array."""
    return array_namespace(like).zeros(shape, dtype=like.dtype, device=device(like))


def constant(values: np.ndarray, like: Array) -> Array:
    """NumPy values as an array on the device of `like`; their dtype does not change."""
    return array_namespace(like).asarray(values, device=device(like))


def to_numpy(values: Array) -> np.ndarray:
    """Values as a NumPy array; NumPy arrays are returned unchanged."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def detached(values: Array) -> Array:
    """Values detached from the autograd graph of PyTorch; NumPy arrays are returned unchanged."""
    return values if isinstance(values, np.ndarray) else values.detach()


def scaled(
    v: Complex[Array, "*batch k"], factor: Float[Array, "*batch k"]
) -> Complex[Array, "*batch k"]:
    """Complex v times real factors, without multiplications by zero imaginary parts."""
    xp = array_namespace(v)
    return (v.view(xp.float64) * xp.repeat(factor, 2, axis=-1)).view(xp.complex128)


def singular_matrix_error(like: Array) -> type[Exception]:
    """The exception that `linalg.solve` of the array's library raises for a singular matrix."""
    return np.linalg.LinAlgError if isinstance(like, np.ndarray) else torch().linalg.LinAlgError


def first_true(failed: Array) -> int | None:
    """Index of the first row that is true; None if no row is true.

    For a tensor on a device, this takes one synchronisation if no row is true, and two otherwise.
    """
    xp = array_namespace(failed)
    return int(xp.argmax(xp.astype(failed, xp.int64))) if bool(xp.any(failed)) else None


@cache
def reuse_memory() -> None:
    """Make this process reuse memory that it frees, up to 64 MB, for the next arrays.

    glibc returns blocks from 128 kB on to the system, and requests fresh pages for the next ones.
    This takes longer than the transforms of a small grid. glibc adapts after it has freed a large
    block (`M_MMAP_THRESHOLD` in mallopt(3)), but never in a worker of Dask, because Dask sets
    MALLOC_TRIM_THRESHOLD_. This function sets the largest values to which glibc adapts. Without
    glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _REUSED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _REUSED_BYTES)


def blocks(
    rows: int, points: int, at_once: bool, multiple: int = 1, largest: int = _CACHE_POINTS
) -> Iterator[slice]:
    """Slices of rows with about `largest` points in total, if a row has `points` points.

    By default a few such slices fit into a core's cache. If `at_once` is true, as for tensors on a
    device, a single slice contains all rows. Otherwise the number of rows in a slice is a multiple
    of `multiple`, even if it then has more points.
    """
    size = max(1, rows if at_once else multiple * -(-largest // points // multiple))
    return (slice(start, start + size) for start in range(0, rows, size))


def samples_at_once(values: int) -> int:
    """Number of samples in a block on a device, if a sample takes `values` float64 numbers."""
    return max(1, _DEVICE_BYTES // (8 * values))
