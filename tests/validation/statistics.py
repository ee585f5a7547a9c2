"""Statistics of a store beside those of the published arrays, as the tables of the cards:

python -m tests.validation.statistics pipe STORE [--samples 100]
python -m tests.validation.statistics elasticity STORE

STORE is of a recipe or of published files that were imported. Published figures come from pictures
and tables of others who had the arrays.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr

QUANTILES = (0, 0.25, 0.5, 0.75, 1)


class Row(NamedTuple):
    """What is counted, its figures here, and the published ones."""

    said: str
    here: str
    published: str = ""


def pipe(store: xr.Dataset) -> Iterator[Row]:
    """Over nodes and samples; knots are the ends of the four cubics of a centre line."""
    y, u, v = (store[name].values.astype(np.float64) for name in "yuv")
    samples, n, m = u.shape
    middle = y[:, :, m // 2].reshape(samples, -1)
    t = np.linspace(0, 1, (n - 1) // 4 + 1)
    parts = np.stack([middle[:, k * (len(t) - 1) :][:, : len(t)] for k in range(4)], axis=1)
    cubics = np.polynomial.polynomial.polyfit(t, parts.reshape(-1, len(t)).T, 3)
    first, last = cubics[1], cubics[1] + 2 * cubics[2] + 3 * cubics[3]
    slopes = np.c_[first.reshape(samples, 4), last.reshape(samples, 4)[:, -1]]
    heights = parts[:, :, -1]
    yield Row("heights of knots, deviation and range", _spread(heights), "0.576, -0.985 to 0.985")
    yield Row("slopes of knots, deviation and range", _spread(slopes), "1.156, -1.90 to 1.90")
    inlet, outlet = u[:, 0], u[:, -1]
    yield Row("`u` at the inlet, mean and deviation", f"{inlet.mean():.6f}, {inlet.std():.4f}",
              "0.165365, 0.0757")  # fmt: skip
    yield Row("`u` at the outlet, mean", f"{outlet.mean():.5f}", "0.1607")
    yield Row("`u` at the outlet, range", _range(outlet), "-1.810 to 0.430")
    yield Row("`v` at the outlet, mean", f"{v[:, -1].mean():.4f}", "0.034")
    yield Row("`v` at the outlet, range", _range(v[:, -1]), "-0.22 to 3.78")
    yield Row("`u` one node from the lower wall, mean", f"{u[:, :, 1].mean():.5f}", "0.00766")
    flux = store["flux"].values
    yield Row("`flux`, median, mean and largest",
              f"{np.median(flux):.2%}, {flux.mean():.2%}, {flux.max():.2%}",
              "0.42%, 3.2%, above 100%")  # fmt: skip
    yield Row("largest `u`, median over samples", f"{np.median(u.max(axis=(1, 2))):.3f}")
    yield Row("samples in which fluid flows back", f"{np.mean(u.min(axis=(1, 2)) < -1e-6):.0%}")
    size = np.linalg.norm(u.reshape(samples, -1), axis=1)
    straight = 0.25 - (y - middle[:, :, None]) ** 2
    for said, field in (("mean field", u.mean(axis=0)), ("flow of a straight pipe", straight)):
        off = np.linalg.norm((u - field).reshape(samples, -1), axis=1) / size
        yield Row(f"relative L² error of the {said}", f"{off.mean():.3f}")


def elasticity(store: xr.Dataset) -> Iterator[Row]:
    """Least, quartiles and largest of samples."""
    u = store["u"].values.astype(np.float64)
    found = [
        ("mean of `u` over the points", u.mean(axis=1), "150 to 260, median 186"),
        ("largest `u`", u.max(axis=1), "450 to 1440, median 850"),
        ("smallest `u`", u.min(axis=1), "above 0"),
        ("deviation of `u` over the points", u.std(axis=1), ""),
    ]
    if "weight" in store:
        weight = store["weight"].values.astype(np.float64)
        mean = (u * weight).sum(axis=1) / weight.sum(axis=1)
        found.append(("mean of `u` by area", mean, ""))
    for said, values, published in found:
        yield Row(said, ", ".join(f"{q:.4g}" for q in np.quantile(values, QUANTILES)), published)
    if "theta" in store:
        theta = store["theta"].values
        yield Row("`theta`, deviation", f"{theta.std():.2f}", "14.3, fitted to 16 outlines")
    if "radius" in store:
        radius = store["radius"].values[:, :-1]
        mean, area = f"{radius.mean():.3f}, {radius.std():.3f}", np.pi * np.mean(radius**2)
        yield Row("`radius`, mean and deviation", mean)
        yield Row("area of the void, mean", f"{area:.3f}")


def _range(values: np.ndarray) -> str:
    return f"{values.min():.3f} to {values.max():.3f}"


def _spread(values: np.ndarray) -> str:
    return f"{values.std():.3f}, {_range(values)}"


SETS: dict[str, Callable[[xr.Dataset], Iterator[Row]]] = {"pipe": pipe, "elasticity": elasticity}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", choices=SETS)
    parser.add_argument("store")
    parser.add_argument("--samples", type=int, help="the first ones; all by default")
    asked = parser.parse_args()
    store = xr.open_zarr(asked.store).isel(sample=slice(asked.samples))
    print(f"{store.sizes['sample']} samples of {asked.store}\n")
    table = SETS[asked.set]
    print(f"| {table.__doc__} | here | published arrays |\n|---|---|---|".replace(". |", " |"))
    for row in table(store):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
