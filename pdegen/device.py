"""NumPy arrays, and tensors on a device of PyTorch, in the same lines of code."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

Array = Any  # NumPy, or of another namespace of the array API standard such as torch on a GPU


def torch() -> Any:
    """PyTorch, which is needed only to compute on its devices."""
    return importlib.import_module("torch")


def empty(shape: tuple[int, ...], dtype: Any, device: str | None) -> Array:
    """Room for values of a NumPy type, with NumPy or on a device of PyTorch."""
    if device is None:
        return np.empty(shape, dtype)
    return torch().empty(shape, dtype=getattr(torch(), np.dtype(dtype).name), device=device)


def constant(values: np.ndarray, like: Array) -> Array:
    """NumPy values where another array is; they keep their type."""
    return array_namespace(like).asarray(values, device=device(like))


def to_numpy(values: Array) -> np.ndarray:
    """Values where NumPy can read them; NumPy arrays as they are."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def first(failed: Array) -> int | None:
    """The first row that failed; where none did, a device is asked once for the whole batch."""
    xp = array_namespace(failed)
    return int(xp.argmax(xp.astype(failed, xp.int64))) if bool(xp.any(failed)) else None
