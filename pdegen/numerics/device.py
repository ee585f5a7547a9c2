"""NumPy arrays, and tensors on a device of PyTorch, in the same lines of code."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from jaxtyping import Complex, Float

Array = Any  # NumPy, or of another namespace of the array API standard such as torch on a GPU

_CACHE_POINTS = 32768  # points of a block of rows: a few such arrays fit into a core's cache
_KEPT_BYTES = 2**25 - 2**16  # just below the largest that glibc adapts to
_DEVICE_BYTES = 4_000_000_000  # that a block may take on a device, however large its memory is


def torch() -> Any:
    """PyTorch, which is needed only to compute on its devices."""
    return importlib.import_module("torch")


def empty(shape: tuple[int, ...], dtype: Any, device: str | None) -> Array:
    """Room for values of a NumPy type, with NumPy or on a device of PyTorch."""
    if device is None:
        return np.empty(shape, dtype)
    return torch().empty(shape, dtype=getattr(torch(), np.dtype(dtype).name), device=device)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Where another array is, and of its type."""
    return array_namespace(like).zeros(shape, dtype=like.dtype, device=device(like))


def constant(values: np.ndarray, like: Array) -> Array:
    """NumPy values where another array is; they keep their type."""
    return array_namespace(like).asarray(values, device=device(like))


def to_numpy(values: Array) -> np.ndarray:
    """Values where NumPy can read them; NumPy arrays as they are."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def detached(values: Array) -> Array:
    """Without PyTorch's record of how they were computed; NumPy arrays as they are."""
    return values if isinstance(values, np.ndarray) else values.detach()


def recorded(values: Array) -> bool:
    """Whether PyTorch records what is computed with them, for derivatives."""
    return not isinstance(values, np.ndarray) and bool(values.requires_grad)


def multiplied(v: Array, factor: Array) -> Array:
    """v times a factor; v is written over, unless PyTorch records it, for derivatives need it.

    >>> v = np.array([1.0, 2.0])
    >>> multiplied(v, np.array([3.0, 4.0])) is v, v.tolist()
    (True, [3.0, 8.0])
    """
    if recorded(v):
        return v * factor
    v *= factor
    return v


def scaled(v: Complex[Array, "*batch k"], factor: Float[Array, " k"]) -> Complex[Array, "*batch k"]:
    """v times real numbers, without the products with imaginary parts that are 0."""
    xp = array_namespace(v)
    return (v.view(xp.float64) * xp.repeat(factor, 2)).view(xp.complex128)


def singular_matrix_error(like: Array) -> type[Exception]:
    """What solving linear equations raises where an array is, if a matrix is singular."""
    return np.linalg.LinAlgError if isinstance(like, np.ndarray) else torch().linalg.LinAlgError


def first_true(failed: Array) -> int | None:
    """The first row that failed; where none did, a device is asked once for the whole batch."""
    xp = array_namespace(failed)
    return int(xp.argmax(xp.astype(failed, xp.int64))) if bool(xp.any(failed)) else None


@cache
def reuse_memory() -> None:
    """Let this process keep memory that it frees, up to 64 MB, for the arrays it allocates next.

    Steps allocate and free arrays of some 100 kB each. glibc gives such memory back and asks for
    fresh pages, which at 64 x 64 points takes longer than the transforms; it stops to do so for
    sizes that it has seen freed (`M_MMAP_THRESHOLD` in mallopt(3)). No page of this one is touched.
    """
    np.empty(_KEPT_BYTES, np.uint8)


def blocks(rows: int, points: int, at_once: bool) -> Iterator[slice]:
    """Blocks of rows of so many points that stay in a core's cache; a device takes all at once."""
    size = max(1, rows if at_once else _CACHE_POINTS // points)
    return (slice(start, start + size) for start in range(0, rows, size))


def samples_at_once(values: int) -> int:
    """Samples of a block on a device, where each needs room for so many float64 values."""
    return max(1, _DEVICE_BYTES // (8 * values))
