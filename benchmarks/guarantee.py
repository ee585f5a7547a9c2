"""Guaranteed error bounds against errors, on fresh coefficients.

    python -m benchmarks.guarantee bounds      # 10,000 coefficients, some minutes
    python -m benchmarks.guarantee times       # processor time of bounds

Trains the experiment darcy-quick, predicts for coefficients outside every store, and prints a line
of JSON per group of predictions: number of valid bounds, effectivities, times. Cells three times
finer enclose the true error: the energy of a conforming function gives its lower end, without any
flux, and a flux gives its upper end. A bound is valid if it is above the upper end, hence above the
error of the exact solution. Effectivities are given for both ends. Times are processor time of one
thread. The exit status is 1 if a bound is invalid.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import operators
from pdegen.domains import CellGrid
from pdegen.equations.darcy.error_bound import ErrorBound
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.config.experiment import load_experiment
from pipelines.runs.training import train

N = 43
_FRESH = 10**6  # number of the first sample
_BLOCK = 10
_COMPARED, _TIMED = 1000, 100  # samples per kind of flux, and samples timed
FLUXES = {"prediction": None, "solved to 0.1": 0.1, "solved to 1e-3": 1e-3}
Predictor = Callable[[np.ndarray], np.ndarray]


def trained(folder: Path) -> Predictor:
    """The trained operator of darcy-quick, from coefficients to pressures."""
    experiment = load_experiment("darcy-quick")
    store = generate(load_recipe("darcy-quick"), str(folder / "data.zarr"), workers=1).url
    train(experiment, store, folder / "run", torch.device("cpu"))
    model = operators.load_model(folder / "run/best.safetensors")
    points = operators.read_pairs(store, "test").x

    def predict(a: np.ndarray) -> np.ndarray:
        return model.predict(torch.from_numpy(a)[..., None], points)[..., 0].double().numpy()

    return predict


def blocks(samples: int, **overrides: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Fresh coefficients and the labels of the recipe, in blocks of samples."""
    problem = load_recipe("darcy-quick").with_overrides(overrides).problem
    for start in range(_FRESH, _FRESH + samples, _BLOCK):
        values = problem.compute(0, range(start, min(start + _BLOCK, _FRESH + samples)))
        yield values["a"], values["u"].astype(np.float64)


def timed_samples(samples: int, **overrides: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and labels of the samples that are timed."""
    a, u = zip(*blocks(min(samples, _TIMED), **overrides), strict=True)
    return np.concatenate(a), np.concatenate(u)


def perturbed(u: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Predictions by name: from the label itself to senseless ones and zero."""
    size = np.sqrt(np.mean(u**2, axis=(1, 2), keepdims=True))
    yield "label", u
    yield "label + 1 % noise", u + 0.01 * size * rng.standard_normal(u.shape)
    yield "label + 100 % noise", u + size * rng.standard_normal(u.shape)
    yield "label of another sample", np.roll(u, 1, axis=0)
    yield "sign flipped", -u
    yield "zero", np.zeros_like(u)


class Tally:
    """Bounds of a group of predictions, with lower and upper ends of their errors."""

    def __init__(self, name: str, bound: ErrorBound | None = None) -> None:
        self.name, self.bound = name, bound or ErrorBound(CellGrid(N))
        self._reference = ErrorBound(CellGrid(N), refinement=3, rtol=1e-8)
        self._rows: list[np.ndarray] = []

    def add(self, a: np.ndarray, p: np.ndarray) -> None:
        bound, reference = self.bound(a, p), self._reference(a, p)
        size = reference.energy / reference.relative  # below the norm of the solution
        self._rows.append(
            np.stack([bound.energy, reference.lower, reference.energy, size, bound.relative_l2])
        )

    @property
    def held(self) -> bool:
        bound, lower, upper, *_ = np.concatenate(self._rows, axis=1)
        return bool((bound >= upper).all() and (upper >= lower).all())

    def show(self) -> None:
        bound, lower, upper, size, l2 = np.concatenate(self._rows, axis=1)
        from_upper, from_lower = bound / upper, bound / np.maximum(lower, 1e-300)
        line: dict[str, Any] = {
            "predictions": self.name,
            "held": f"{int((bound >= upper).sum())} of {len(bound)}",
            "median relative bound": np.median(bound / size),
            "median relative error, at least": np.median(lower / size),
            "median effectivity, at least": np.median(from_upper),
            "median effectivity, at most": np.median(from_lower),
            "smallest effectivity": from_upper.min(),
            "largest effectivity, at most": from_lower.max(),
            "median relative L2 bound": np.median(l2),
        }
        print(json.dumps({k: v if isinstance(v, str) else float(f"{v:.4g}")
                          for k, v in line.items()}), flush=True)  # fmt: skip


def bounds(predict: Predictor, samples: int) -> bool:
    """Whether all bounds are valid: of the operator, with other fluxes, of wrong predictions."""
    rng = np.random.default_rng(0)
    operator = Tally("operator")
    fluxes = [Tally(f"operator, flux {name}", ErrorBound(CellGrid(N), rtol=rtol))
              for name, rtol in FLUXES.items()]  # fmt: skip
    fluxes.append(Tally("operator, finer flux", ErrorBound(CellGrid(N), 2)))
    wrong: dict[str, Tally] = {}
    for number, (a, u) in enumerate(blocks(samples)):
        p = predict(a)
        operator.add(a, p)
        if number * _BLOCK < _COMPARED:
            for tally in fluxes:
                tally.add(a, p)
        kinds = list(perturbed(u, rng))  # each block uses one of them
        name, values = kinds[number % len(kinds)]
        wrong.setdefault(name, Tally(name)).add(a, values)
    for coefficient, overrides in {
        "contrast 1000": {"above": 1000.0, "below": 1.0},
        "log-normal": {"problem.coefficient.kind": "log-normal"},
    }.items():
        for a, u in blocks(min(samples, _COMPARED) // 4, **overrides):
            for name, p in perturbed(u, rng):
                wrong.setdefault(f"{coefficient}, {name}", Tally(f"{coefficient}, {name}")).add(
                    a, p
                )
    tallies = [operator, *fluxes, *wrong.values()]
    for tally in tallies:
        tally.show()
    return all(tally.held for tally in tallies)


def milliseconds(function: Callable[[int], Any], samples: int) -> float:
    """Median processor time of one sample, after one to warm up."""
    function(0)
    seconds = []
    for row in range(samples):
        start = time.process_time()
        function(row)
        seconds.append(time.process_time() - start)
    return round(1e3 * float(np.median(seconds)), 2)


def times(samples: int) -> None:
    """Print the processor time of bounds by grid and flux."""
    for n in (43, 85, 141):
        a, u = timed_samples(samples, resolution=n, refinement=1)
        for name, rtol in FLUXES.items():
            bound = ErrorBound(CellGrid(n), rtol=rtol)
            ms = milliseconds(lambda i: bound(a[i : i + 1], u[i : i + 1]), len(a))  # noqa: B023
            print(json.dumps({"bound": f"{n} x {n}", "flux": name, "ms": ms}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Guaranteed bounds against errors.")
    parser.add_argument("what", choices=["bounds", "times"])
    parser.add_argument("--samples", type=int, default=10_000, help="number of fresh coefficients")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        predict = trained(Path(folder))
        if options.what == "times":
            times(options.samples)
        elif not bounds(predict, options.samples):
            sys.exit("a bound is below the error")


if __name__ == "__main__":
    main()
