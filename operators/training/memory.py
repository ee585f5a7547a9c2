"""Memory of the processor that a training gives back and takes again in every step."""

import ctypes
import sys
from functools import cache

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@cache
def keep_memory() -> None:
    """Let the process keep the memory that it frees, as PyTorch does on GPUs.

    glibc returns large blocks to the system and gets them back page by page, filled with zeros:
    some percent of a step. Without glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error of PyTorch says that no memory was left."""
    words = str(error)
    return isinstance(error, torch.OutOfMemoryError) or (
        "DefaultCPUAllocator" in words and "allocate memory" in words
    )
