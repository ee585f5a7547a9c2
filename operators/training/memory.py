"""Host memory: reuse of freed memory, and detection of out-of-memory errors."""

import ctypes
import gc
import sys
from functools import cache

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@cache
def keep_memory() -> None:
    """Let the process reuse the memory that it frees, as PyTorch does on GPUs.

    By default, glibc returns large blocks to the system. Pages that the system provides again are
    first filled with zeros, which takes some percent of the time of a step. Without glibc, this
    function does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def return_memory() -> None:
    """Return the memory that the process has freed to the system. Without glibc, only collect
    garbage."""
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether PyTorch raised an error because memory ran out."""
    message = str(error)
    return isinstance(error, torch.OutOfMemoryError) or (
        "DefaultCPUAllocator" in message and "allocate memory" in message
    )
