"""Speed of generation: sampling and solving against one pair of transforms, and whole jobs."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.fft
import torch
import zarr
from threadpoolctl import threadpool_limits

from benchmarks.products import alone, counted, products_of
from benchmarks.timing import Say, copy_speed, interleaved, milliseconds, ratio, rounded
from pdegen.generation.generate import generate, layout
from pdegen.numerics.device import constant, empty, samples_at_once, zeros
from pdegen.numerics.sines import solve_block_tridiagonal
from pdegen.recipe import Recipe, load_recipe
from pdegen.store.reading import Store
from pdegen.store.writing import lay_out
from pipelines.studies.cost import Clock, clock_of

WORKERS = 2
_CHILD = """
import json, sys
from pathlib import Path

from pdegen.generation.generate import generate
from pdegen.recipe import Recipe

recipe = Recipe.parse(json.loads(sys.argv[1]), "the recipe of a benchmark")
generate(recipe, sys.argv[2], workers=int(sys.argv[3]))
status = Path("/proc/self/status").read_text().split()
print(int(status[status.index("VmHWM:") + 1]) / 1024)  # getrusage counts the parent's too
"""


@dataclass(frozen=True)
class Generation:
    """Figures of generating datasets.

    Args:
        burgers, darcy, pipe: Recipes.
        burgers_samples, darcy_samples, pipe_samples: Number of samples drawn and solved at a time.
        job: Number of samples of a whole job.
        growing, darcy_growing: Numbers of samples at which time is measured.
        memory: Numbers of samples at which peak memory is measured.
        rounds: Number of interleaved rounds.
    """

    burgers: Recipe = field(default_factory=lambda: load_recipe("burgers-r10"))
    darcy: Recipe = field(default_factory=lambda: load_recipe("darcy-421"))
    pipe: Recipe = field(default_factory=lambda: load_recipe("pipe"))
    burgers_samples: int = 16
    darcy_samples: int = 4
    pipe_samples: int = 1
    job: int = 2048
    growing: tuple[int, ...] = (256, 512, 1024)
    darcy_growing: tuple[int, ...] = (32, 64, 128)
    memory: tuple[int, ...] = (512, 2048, 8192)
    rounds: int = 11

    def __call__(self, device: torch.device, say: Say, trace: Path | None = None) -> dict[str, Any]:
        on = None if device.type == "cpu" else str(device)
        figures: dict[str, Any] = {"copy, GB/s": copy_speed(device)}
        with threadpool_limits(1 if on is None else None):
            say("generate: Burgers, one sample")
            figures["Burgers"] = self.burgers_alone(on)
            say("generate: Darcy, one sample")
            figures["Darcy"] = self.darcy_alone(on)
            say("generate: pipe, one sample")
            figures["pipe"] = self.pipe_alone(on)
        say("generate: whole jobs")
        figures["Burgers, whole job"] = self.whole(self.burgers, self.job, on, self.rounds)
        if on is not None:
            figures["Darcy, whole job"] = self.whole(self.darcy, self.job, on, 1)
        say("generate: growth with the samples")
        figures["seconds a sample, by samples"] = self.growth(on)
        if on is None:
            say("generate: memory")
            figures["peak memory, MiB, by samples"] = self.peaks()
        return figures

    def burgers_alone(self, on: str | None) -> dict[str, Any]:
        """Drawing and solving Burgers against one rfft + irfft pair per sample.

        Args:
            on: PyTorch device, where all samples are one array; None for NumPy on one thread.
        """
        problem: Any = self.burgers.problem
        seed = self.burgers.seed
        numbers = range(self.burgers_samples)
        law, solver = problem.initial.build(), problem.solver.build(problem.viscosity)
        times, n = list(problem.times), solver.grid.n
        u0 = law(solver.grid, seed, numbers, on)
        jobs = {
            "pair": _pairs(u0),
            "draw": lambda: law(solver.grid, seed, numbers, on),
            "solve": lambda: solver.solve(u0, times),
            "draw and solve": lambda: problem.solve_in_blocks(seed, numbers, on),
        }
        seconds = interleaved(jobs, self.rounds, clock=_clock(on))
        per_sample = {name: [s / len(numbers) for s in times] for name, times in seconds.items()}
        flops, size = 5 * n * math.log2(n), 8 * n
        pair = median(per_sample["pair"])
        return {
            "points": n,
            "samples at a time": len(numbers),
            **{f"{name} / pair": ratio(per_sample, name, "pair") for name in list(jobs)[1:]},
            **{f"{name}, ms a sample": milliseconds(per_sample[name]) for name in jobs},
            "all samples drawn and solved, ms": milliseconds(seconds["draw and solve"]),
            # a real transform of n points takes 2.5 n log₂ n, reads one array and writes one
            "pair, MFLOP": rounded(flops / 1e6),
            "pair, GFLOP/s": rounded(flops / 1e9 / pair),
            "pair, GB/s": rounded(4 * size / 1e9 / pair),
        }

    def darcy_alone(self, on: str | None) -> dict[str, Any]:
        """Drawing and solving Darcy: with NumPy against one pair of 2-D sine transforms, on a
        device against the matrix products of the solver."""
        problem, seed, numbers = self.darcy.problem, self.darcy.seed, range(self.darcy_samples)
        n = problem.resolution

        def whole() -> object:
            return problem.solve_in_blocks(seed, numbers, on)

        figures: dict[str, Any] = {"cells": f"{n} x {n}", "samples at a time": len(numbers)}
        if on is None:
            values = np.random.default_rng(0).standard_normal((len(numbers), n, n))
            floor, jobs = "pair", {"draw and solve": whole, "pair": _sine_pairs(values)}
            # each of the two transforms runs along both axes
            flops = len(numbers) * 10 * n**2 * math.log2(n)
        else:
            device = torch.device(on)
            products = products_of(whole)
            floor, figures["matrix products"] = "products alone", counted(products)
            jobs = {"draw and solve": whole, floor: alone(products, device)}
            flops = 1e9 * counted(products)["GFLOP"]
            figures.update(self.sines(on))
        seconds = interleaved(jobs, min(self.rounds, 5), clock=_clock(on))
        per_sample = {name: [s / len(numbers) for s in times] for name, times in seconds.items()}
        return {
            **figures,
            f"draw and solve / {floor}": ratio(seconds, "draw and solve", floor),
            **{f"{name}, ms a sample": milliseconds(per_sample[name]) for name in jobs},
            "all samples drawn and solved, ms": milliseconds(seconds["draw and solve"]),
            f"{floor}, GFLOP/s": rounded(flops / 1e9 / median(seconds[floor])),
        }

    def pipe_alone(self, on: str | None) -> dict[str, Any]:
        """Drawing and solving pipes against the elimination of one linear system per sample, in
        dense blocks, one column of elements after the other."""
        problem: Any = self.pipe.problem
        seed, numbers, n = self.pipe.seed, range(self.pipe_samples), problem.elements
        inner = 2 * (2 * n - 1)  # unknowns of a line of nodes within a column
        outer, cut = inner + n + 1, 2 * inner + n + 1
        at_once = 1 if on is None else min(len(numbers), samples_at_once(problem.floats_per_sample))
        blocks = [at_once] * (len(numbers) // at_once)
        like = empty((1,), np.float64, on)
        rng = np.random.default_rng(0)
        matrix = constant(
            rng.standard_normal((at_once, cut + outer, cut + outer)) + 100 * np.eye(cut + outer),
            like,
        )
        ends, middle = zeros((at_once, n + 1, outer), like), zeros((at_once, n, inner), like)

        def elimination() -> None:
            for _ in blocks:
                solve_block_tridiagonal((1 * matrix for _ in range(n)), ends, middle)

        jobs = {"draw and solve": lambda: problem.solve_in_blocks(seed, numbers, on),
                "elimination": elimination}  # fmt: skip
        seconds = interleaved(jobs, min(self.rounds, 5), clock=_clock(on))
        per_sample = {
            "draw and solve": [s / len(numbers) for s in seconds["draw and solve"]],
            "elimination": [s / (at_once * len(blocks)) for s in seconds["elimination"]],
        }
        # a factorisation, its application to the next line and the load, their product
        flops = n * (2 / 3 * cut**3 + 2 * cut**2 * (outer + 1) + 2 * outer * cut * (outer + 1))
        return {
            "elements": f"{n} x {n}",
            "samples at a time": at_once,
            "draw and solve / elimination": ratio(per_sample, "draw and solve", "elimination"),
            **{f"{name}, ms a sample": milliseconds(per_sample[name]) for name in jobs},
            "elimination, GFLOP": rounded(flops / 1e9),
            "elimination, GFLOP/s": rounded(flops / 1e9 / median(per_sample["elimination"])),
        }

    def sines(self, on: str) -> dict[str, float]:
        """Solving a block of samples on a device: sine transforms by FFT and by products."""
        problem: Any = self.darcy.problem
        solver = problem.solver.build(problem.resolution)
        numbers = range(min(self.darcy_samples, samples_at_once(problem.floats_per_sample)))
        a = problem.solve_in_blocks(self.darcy.seed, numbers, on)["a"].double()
        jobs = {
            name: partial(replace(solver, fft=fft), a)
            for name, fft in {"products": False, "FFT": True}.items()
        }
        seconds = interleaved(jobs, min(self.rounds, 5), clock=_clock(on))
        per_sample = {name: [s / len(numbers) for s in times] for name, times in seconds.items()}
        return {
            "sines as FFTs / as products": ratio(seconds, "FFT", "products"),
            "sines as FFTs, solve, ms a sample": milliseconds(per_sample["FFT"]),
        }

    def whole(self, recipe: Recipe, samples: int, on: str | None, rounds: int) -> dict[str, Any]:
        """A job, from recipe to sealed store, against writing the same arrays by Zarr alone."""
        recipe = recipe.with_overrides({"samples": samples})
        with tempfile.TemporaryDirectory() as folder:
            store = generate(recipe, f"{folder}/first", on, workers=WORKERS)
            values = {name: store.values(name) for name in store.variables}
            size = sum(v.nbytes for v in values.values())
            jobs = {
                "job": lambda: generate(recipe, _new(folder), on, workers=WORKERS),
                "writing": lambda: _write(recipe, _new(folder), values),
                "copy": lambda: [v.copy() for v in values.values()],
            }
            seconds = interleaved(jobs, min(rounds, 5), clock=clock_of(torch.device(on or "cpu")))
        return {
            "samples": samples,
            "workers": WORKERS,
            "MB": rounded(size / 1e6),
            "job / writing alone": ratio(seconds, "job", "writing"),
            "writing alone / copy": ratio(seconds, "writing", "copy"),
            "job, seconds": rounded(median(seconds["job"])),
            "writing alone, MB/s": rounded(size / 1e6 / median(seconds["writing"])),
        }

    def growth(self, on: str | None) -> dict[str, Any]:
        """Seconds per sample by number of samples: jobs of Burgers, drawing and solving Darcy."""
        figures: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, jobs in (
                (
                    "Burgers, whole job",
                    {n: self._job(n, f"{folder}/{n}", on) for n in self.growing},
                ),
                ("Darcy", {n: self._solved(n, on) for n in self.darcy_growing}),
            ):
                seconds = interleaved(
                    {str(n): job for n, job in jobs.items()},
                    min(self.rounds, 5),
                    clock=clock_of(torch.device(on or "cpu")),
                )
                per_sample = {n: rounded(median(times) / int(n)) for n, times in seconds.items()}
                figures[name] = _with_spread(per_sample)
        return figures

    def _job(self, samples: int, url: str, on: str | None) -> Callable[[], Store]:
        recipe = self.burgers.with_overrides({"samples": samples})
        return lambda: generate(recipe, url, on, workers=WORKERS, overwrite=True)

    def _solved(self, samples: int, on: str | None) -> Callable[[], object]:
        return lambda: self.darcy.problem.solve_in_blocks(self.darcy.seed, range(samples), on)

    def peaks(self) -> dict[str, float]:
        """Peak memory in MiB of a process that generates Burgers, by number of samples."""
        peaks = {}
        for samples in self.memory:
            recipe = self.burgers.with_overrides({"samples": samples})
            with tempfile.TemporaryDirectory() as folder:
                words = [recipe.model_dump_json(), f"{folder}/store", str(WORKERS)]
                command = [sys.executable, "-c", _CHILD, *words]
                out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                peaks[str(samples)] = rounded(float(out))
        return _with_spread(peaks)


def _with_spread(figures: dict[str, float]) -> dict[str, float]:
    values = figures.values()
    return {**figures, "largest / smallest": rounded(max(values) / min(values))}


def _clock(on: str | None) -> Clock:
    """Clock of this thread for NumPy, or of the device."""
    return time.thread_time if on is None else clock_of(torch.device(on))


def _pairs(u0: Any) -> Callable[[], object]:
    """rfft and irfft of all rows at once; NumPy plans anew in each call."""
    n, fft = u0.shape[-1], np.fft if isinstance(u0, np.ndarray) else torch.fft
    return lambda: fft.irfft(fft.rfft(u0), n=n)


def _sine_pairs(values: np.ndarray) -> Callable[[], object]:
    """Sine transform of every square and back.

    DST-I of n - 2 points: its period 2(n - 1) has small factors for n = 421, which is prime.
    """
    inside = np.ascontiguousarray(values[:, 1:-1, 1:-1])
    return lambda: [scipy.fft.idstn(scipy.fft.dstn(v, type=1), type=1) for v in inside]


def _new(folder: str) -> str:
    return f"{tempfile.mkdtemp(dir=folder)}/store"


def _write(recipe: Recipe, url: str, values: dict[str, np.ndarray]) -> None:
    """Write the arrays of a recipe's store by Zarr alone, shard after shard."""
    store, group = lay_out(url, layout(recipe)), zarr.open_group(url, mode="r+")
    for name in store.variables:
        array: Any = group[name]
        for k in range(store.shards):
            samples = store.shard_range(k)
            array[samples.start : samples.stop] = values[name][samples.start : samples.stop]
