r"""Position attention as a quadrature: PiT's Theorem 2.1 on points of growing number.

At points x_1 ... x_n position attention (5) is A_n(y) = Σ_k w_k(y) v(x_k), where the w_k(y) are the
softmax of -λ|y - x_k|² over k. Its integral is

    F(y) = ∫ κ(y - z) v(z) dμ(z),   κ(y - z) = exp(-λ|y - z|²) / ∫ exp(-λ|y - z'|²) dμ(z').

If the points follow μ, the mean distance of A_n from F over the points tends to 0 in probability.
The theorem states no rate. For independent points the delta method shows that A_n, a quotient of
two sample means, is asymptotically normal:

    n E (A_n(y) - F(y))² -> σ²(y) = ∫ κ(y - z)² (v(z) - F(y))² dμ(z),

so that the root mean square is (∫ σ² dμ / n)^(1/2). The command measures it beside this formula on
(0,1)^dim with μ uniform and v = Π cos(3 x_i) + x_1². Sobol points and grids of cell centres, which
also follow μ, have higher rates. The exponential without softmax, Σ_k exp(-λ|y - x_k|²) v(x_k),
grows like n, as the paper says after the theorem.

References: J. Chen and K. Wu, Positional Knowledge is All You Need, ICML 2024, Theorem 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.stats import qmc

from benchmarks.attention.inf_sup import rate
from operators.nn.tokens import PositionAverage, SquaredDistance
from pipelines.reports.document import Table
from pipelines.reports.figures import curves

Points = Float[np.ndarray, "n dim"]
Values = Float[np.ndarray, " n"]
FULL, QUICK = (64, 256, 1024, 4096, 16384), (64, 256, 1024)
LAMBDA = 20.0
_GAUSS = 60  # points of Gauss-Legendre quadrature along each axis
_ASKED = 256  # points y at which the error is measured


def v(x: Points) -> Values:
    """Π cos(3 x_i) + x_1²: smooth and bounded, not periodic."""
    return np.cos(3 * x).prod(axis=1) + x[:, 0] ** 2


@dataclass(frozen=True)
class Integral:
    """F(y) and σ²(y) by Gauss-Legendre quadrature on (0,1)^dim."""

    dim: int
    rate: float  # λ

    def __call__(self, y: Points) -> tuple[Values, Values]:
        """F and σ² at the points y."""
        nodes, weights = np.polynomial.legendre.leggauss(_GAUSS)
        grids = np.meshgrid(*[(nodes + 1) / 2] * self.dim, indexing="ij")
        products = np.meshgrid(*[weights / 2] * self.dim, indexing="ij")
        z, w = np.stack([g.ravel() for g in grids], 1), np.prod([p.ravel() for p in products], 0)
        k = np.exp(-self.rate * ((y[:, None] - z) ** 2).sum(axis=2))
        k /= (k @ w)[:, None]
        f = k @ (w * v(z))
        return f, (k**2 * (v(z) - f[:, None]) ** 2) @ w


def attention(x: Points, y: Points, values: Values) -> Values:
    """Position attention from x to y, computed by the layer of PiT with the head's λ."""
    layer = PositionAverage(1, 100.0, SquaredDistance(periodic=False, scale=1.0)).double()
    with torch.no_grad():
        # the layer's λ is tan(π/4 (1 + sin r)); below 1e7 this inverts it
        layer.r.fill_(float(np.arcsin(4 / np.pi * np.arctan(LAMBDA) / (1 - 1e-7) - 1)))
        u = torch.from_numpy(values)[None, :, None]
        return layer(u, torch.from_numpy(x), torch.from_numpy(y))[0, :, 0].numpy()


def random_points(n: int, dim: int, seed: int) -> Points:
    """Independent uniform points."""
    return np.random.default_rng(seed).random((n, dim))


def sobol_points(n: int, dim: int, seed: int) -> Points:
    """Scrambled Sobol points; n is a power of 2."""
    return qmc.Sobol(dim, rng=seed).random(n)


def grid_points(n: int, dim: int, seed: int) -> Points:
    """Centres of equal cells, about n of them."""
    m = round(n ** (1 / dim))
    axes = np.meshgrid(*[(np.arange(m) + 0.5) / m] * dim, indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


POINTS = {"random": random_points, "Sobol": sobol_points, "grid": grid_points}


@dataclass(frozen=True)
class Errors:
    """Root mean squares over points y and draws, by n.

    Args:
        by_points: Errors of position attention, by the kind of points.
        theory: (∫ σ² dμ / n)^(1/2).
        exponential: Size of the sums without softmax, relative to that for the fewest points.
    """

    by_points: dict[str, list[float]]
    theory: list[float]
    exponential: list[float]


def measured(sizes: Sequence[int], dim: int, draws: int) -> Errors:
    """Errors of position attention on (0,1)^dim."""
    y = sobol_points(_ASKED, dim, 0)
    f, variance = Integral(dim, LAMBDA)(y)
    by_points: dict[str, list[float]] = {}
    for name, points in POINTS.items():
        times = 1 if name == "grid" else draws
        by_points[name] = []
        for n in sizes:
            drawn = (points(n, dim, 1 + k) for k in range(times))
            squares = [np.mean((attention(x, y, v(x)) - f) ** 2) for x in drawn]
            by_points[name].append(float(np.sqrt(np.mean(squares))))
    theory = [float(np.sqrt(variance.mean() / n)) for n in sizes]
    sums = []
    for n in sizes:
        x = random_points(n, dim, 1)
        k = np.exp(-LAMBDA * ((y[:, None] - x) ** 2).sum(axis=2))
        sums.append(float(np.sqrt(np.mean((k @ v(x)) ** 2))))
    return Errors(by_points, theory, [s / sums[0] for s in sums])


def table(by_dimension: dict[int, Errors], sizes: Sequence[int]) -> Table:
    """Errors by dimension and n, and the exponents of n."""
    kinds = list(POINTS)
    header = ("dim", "n", *kinds, "theory, random", "sums without softmax")
    rows: list[tuple[str, ...]] = []
    for dim, errors in by_dimension.items():
        columns = [*(errors.by_points[k] for k in kinds), errors.theory, errors.exponential]
        for n, values in zip(sizes, zip(*columns, strict=True), strict=True):
            rows.append((str(dim), str(n), *(f"{value:.3g}" for value in values)))
        fits = [f"{rate(column, sizes):+.2f}" for column in columns]
        rows.append((str(dim), "exponent of n", *fits))
    return Table(rows, header)


def drawn(by_dimension: dict[int, Errors], sizes: Sequence[int]) -> Figure:
    """Errors against n, with the theory for random points."""
    series: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for dim, errors in by_dimension.items():
        for name in ("random", "Sobol", "grid"):
            series[f"{name}, dim {dim}"] = sizes, errors.by_points[name]
        series[f"theory, dim {dim}"] = sizes, errors.theory
    ticks = {float(n): str(n) for n in sizes}
    axes = "number of points n", "root mean square of Aₙ − F"
    return curves(series, *axes, log=True, ticks=ticks)
