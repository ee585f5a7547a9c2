"""The choice of the Fourier transforms of the solvers.

Time steps take most transforms of a job. On the CPU they run in code of this project that Numba
compiles (`lane_transforms.py`), eight samples at once, wherever `has_vectors` holds. It needs no
library beside those of a job, releases the lock of the interpreter, and gives every processor the
same bits. It is faster than NumPy, SciPy, MKL, ducc0, rocket-fft and XLA at all shapes that
`python -m benchmarks.transforms` measures. The FFT of ducc0 may be shipped (BSD-3-Clause or GPL)
and is that of later versions of SciPy, which need Python 3.12. PyTorch, which has MKL, takes a
second to import.

All other transforms, a few for each sample, use SciPy, whose import costs nothing here, or the
library of the device. A dataset records the first choice as `transforms`, and `verify --deep`
allows for rounding where a store has another one.
"""

from __future__ import annotations

from typing import Any

import scipy
from array_api_compat import array_namespace, is_numpy_namespace

from pdegen.numerics.device import Array

EIGHT = 8  # samples of a vector; blocks of samples are multiples of it
VECTORS = "vectors of 8 samples, 1"  # name of the compiled transforms; the last number is a version


def has_plan(n: int) -> bool:
    """Whether compiled transforms of n complex numbers exist: n has the factors 2, 3 and 5 only.

    >>> [n for n in range(1, 17) if not has_plan(n)]
    [7, 11, 13, 14]
    """
    return 60**64 % n == 0


def has_vectors(points: tuple[int, ...]) -> bool:
    """Whether time steps on a torus of these even numbers of points use compiled transforms.

    >>> has_vectors((64, 96)), has_vectors((28,)), has_vectors((16, 16, 16))
    (True, False, False)
    """
    *others, last = points
    return len(points) <= 2 and has_plan(last // 2) and all(map(has_plan, others))


def provenance(*tori: tuple[int, ...]) -> dict[str, str]:
    """The record of the transforms of time steps in a dataset; empty if all are those of SciPy.

    Args:
        tori: The numbers of points of each torus on which a job makes time steps. The finer torus,
            which gives the error in space, is one of them.
    """
    return {"transforms": VECTORS} if any(map(has_vectors, tori)) else {}


def fft_of(like: Array) -> tuple[Any, dict[str, bool]]:
    """The FFT module for an array, and the keyword arguments that let it overwrite the input."""
    xp = array_namespace(like)
    return (scipy.fft, {"overwrite_x": True}) if is_numpy_namespace(xp) else (xp.fft, {})
