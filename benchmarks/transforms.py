"""Pairs of real Fourier transforms in float64: compiled vectors of eight samples, and libraries.

    python -m benchmarks.transforms [--rounds 15] [--only 1024 64x64 ...]

A pair goes from the modes that the 2/3 rule keeps to the points and back. The libraries get modes
padded with zeros, outside of the time. Each library is compared where it is installed: NumPy,
SciPy (from 1.18 on with the FFT of ducc0; needs Python 3.12), MKL through PyTorch, ducc0,
rocket-fft (SciPy's functions in code that Numba compiles), and XLA through jax (extra `exponax`).
Times are processor time of one thread for eight samples, and ratios are medians over interleaved
rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import scipy.fft

from benchmarks.exponax_burgers import ONE_THREAD
from benchmarks.history import show
from benchmarks.timing import interleaved, ratio, rounded
from pdegen.domains import PeriodicGrid
from pdegen.numerics.spectral import Pseudospectral, Step, Torus
from pdegen.numerics.transforms import has_vectors

ROWS = 8
LINES = (64, 96, 128, 192, 240, 256, 320, 384, 512, 640, 768, 1000, 1024, 1536, 2000, 2048, 3000,
         4096, 5000, 6144, 8192, 16384)  # fmt: skip
SQUARES = (32, 40, 48, 60, 64, 72, 80, 96, 100, 120, 128, 144, 160, 180, 192, 200, 240, 250, 256,
           320, 384, 512)  # fmt: skip
BUDGET = 2e-2  # seconds of a round


def shapes() -> dict[str, tuple[int, ...]]:
    lines = {str(n): (n,) for n in LINES}
    return lines | {f"{n}x{n}": (n, n) for n in SQUARES}


def ours(torus: Torus) -> Callable[[int], object]:
    """Pairs of the compiled transforms: u -> u at the points, between modes."""
    from pdegen.numerics import lane_steps
    from pdegen.numerics.lane_steps import LaneMarch

    same = Pseudospectral(torus, [[(0, None)]], [[(1.0, (0,))]], [[(0, None)]])
    march = LaneMarch(same, Step.of(torus.laplacian[None], 1.0), 1.0)
    values = np.random.default_rng(0).standard_normal((ROWS, 1, *torus.points))
    v, change, table = march.packed_slope(torus.to_modes(values))
    arguments = [array.ctypes.data for array in (v, change)]
    slope = int(table[lane_steps.SLOPE])

    def pairs(count: int) -> object:
        lane_steps.slopes(slope, *arguments, count, table.ctypes.data)
        return march, v, change, table  # which live as long as this function

    return pairs


def libraries(points: tuple[int, ...]) -> dict[str, Callable[[int], object]]:
    """Pairs of the libraries that are installed, by name."""
    axes = tuple(range(1, len(points) + 1))
    half = np.fft.rfftn(np.random.default_rng(0).standard_normal((ROWS, *points)), axes=axes)
    pairs: dict[str, Callable[[], object]] = {
        "NumPy": lambda: np.fft.rfftn(np.fft.irfftn(half, s=points, axes=axes), axes=axes),
        "SciPy": lambda: scipy.fft.rfftn(scipy.fft.irfftn(half, s=points, axes=axes), axes=axes),
    }
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        tensor = torch.from_numpy(half)
        pairs["MKL through PyTorch"] = lambda: torch.fft.rfftn(
            torch.fft.irfftn(tensor, s=points, dim=axes), dim=axes
        )
    if importlib.util.find_spec("ducc0"):
        import ducc0  # pyright: ignore[reportMissingImports]

        fft: Any = ducc0.fft
        last = points[-1]
        pairs["ducc0"] = lambda: fft.r2c(
            fft.c2r(half, axes=axes, lastsize=last, forward=False), axes=axes
        )
    if importlib.util.find_spec("rocket_fft"):  # which Numba finds by itself
        import numba

        last_axes = np.array(axes)
        sizes = np.array(points)

        @numba.njit
        def compiled(half: np.ndarray) -> np.ndarray:
            return scipy.fft.rfftn(scipy.fft.irfftn(half, sizes, last_axes), sizes, last_axes)

        pairs["rocket-fft"] = lambda: compiled(half)
    if importlib.util.find_spec("jax"):
        import jax

        jax.config.update("jax_enable_x64", True)
        on_device = jax.numpy.asarray(half)
        pair = jax.jit(lambda v: jax.numpy.fft.rfftn(
            jax.numpy.fft.irfftn(v, s=points, axes=axes), axes=axes
        ))  # fmt: skip
        pairs["XLA"] = lambda: pair(on_device).block_until_ready()

    def times(pair: Callable[[], object]) -> Callable[[int], object]:
        return lambda count: [pair() for _ in range(count)]

    return {name: times(pair) for name, pair in pairs.items()}


def compared(points: tuple[int, ...], rounds: int) -> dict[str, float]:
    torus = Torus(tuple(PeriodicGrid(n) for n in points))
    assert has_vectors(points)
    jobs = {"ours": ours(torus), **libraries(points)}
    counts = {name: _count(job) for name, job in jobs.items()}
    seconds = interleaved(
        {name: (lambda job=job, name=name: job(counts[name])) for name, job in jobs.items()},
        rounds, clock=time.process_time,
    )  # fmt: skip
    each = {name: [s / counts[name] for s in listed] for name, listed in seconds.items()}
    return {
        "us, ours": rounded(1e6 * median(each["ours"])),
        **{f"{name} / ours": ratio(each, name, "ours") for name in each if name != "ours"},
    }


def _count(job: Callable[[int], object]) -> int:
    """The number of pairs in a round."""
    job(1)
    start = time.perf_counter()
    job(3)
    return max(1, int(3 * BUDGET / max(1e-7, time.perf_counter() - start)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", default=list(shapes()))
    options = parser.parse_args(arguments)
    os.environ.update(ONE_THREAD)  # before jax is imported
    figures: dict[str, Any] = {}
    for name in options.only:
        figures[name] = compared(shapes()[name], options.rounds)
        print(name, figures[name], flush=True)
    show("transforms", figures)


if __name__ == "__main__":
    main()
