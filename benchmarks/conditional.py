"""Errors of trained operators against a parameter of the samples.

python -m benchmarks.conditional NAME=RUN@STORE ... --parameter viscosity --resolution 256

Each RUN is the folder of a finished run. Its operator is evaluated on the test samples of STORE.
Printed is the mean relative L² error over all samples, and over thirds of the range of the
parameter; --picture draws the error of each sample against its parameter.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from pdegen.store.format import ParameterLaw
from pdegen.store.reading import Store, open_sealed
from pipelines.reports.figures import legend, logarithmic, panels, save, styled
from pipelines.runs.evaluation import evaluate

_PARTS = 3  # of the range of the parameter
_SIDE = 3.2  # inches


def errors(run: Path, store: Store, resolution: int) -> np.ndarray:
    """The error of each test sample."""
    score = evaluate(
        run / "best.safetensors", store.url, torch.device("cpu"), resolution=resolution
    )
    return np.array(score.summary()["errors"])


def law_of(parameter: str, store: Store) -> ParameterLaw:
    """The law of a parameter. Raises ValueError if the store has none."""
    laws = store.metadata.physics.parameters
    if parameter not in laws:
        names = ", ".join(laws) or "none"
        raise ValueError(f"{store.url} has no parameter {parameter!r} with a law, known: {names}")
    return laws[parameter]


@styled
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN@STORE")
    parser.add_argument("--parameter", required=True)
    parser.add_argument("--resolution", type=int, required=True)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    stores = [open_sealed(given.rpartition("@")[2]) for given in options.runs]
    try:
        laws = [law_of(options.parameter, store) for store in stores]
    except ValueError as error:
        parser.error(f"argument --parameter: {error}")
    figure, (axes,) = panels(1, 1, _SIDE)
    every = list[np.ndarray]()
    for given, store, law in zip(options.runs, stores, laws, strict=True):
        name, _, run = given.rpartition("@")[0].rpartition("=")
        error = errors(Path(run), store, options.resolution)
        every.append(error)
        values = store.values(options.parameter, range(*store.metadata.splits["test"]))
        space = np.geomspace if law.log else np.linspace
        edges = space(law.low, law.high, _PARTS + 1)
        parts = [error[(values >= a) & (values < b)].mean() for a, b in pairwise(edges)]
        shown = ", ".join(f"{part:.2e}" for part in parts)
        print(
            f"{name}: {len(error)} samples with {options.parameter} in "
            f"[{law.low:g}, {law.high:g}], "
            f"mean error {error.mean():.2e}, median {np.median(error):.2e}; by thirds {shown}"
        )
        if law.log:
            logarithmic(axes, "x", np.array([law.low, law.high]))
        axes.plot(values, error, ".", markersize=4, label=name)
    axes.set(xlabel=options.parameter, ylabel="relative L² error")
    logarithmic(axes, "y", np.concatenate(every))
    legend(figure, axes)
    if options.picture:
        save(figure, options.picture)


if __name__ == "__main__":
    main()
