"""Check of two-phase fields, whose phase at a point is the sign of a Gaussian field."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from pdegen.checks.gaussian import spread
from pdegen.checks.law import Check, Statistic, Values
from pdegen.checks.p_values import RankSum, binomial
from pdegen.domains import CellGrid
from pdegen.sampling.coefficients import TwoPhase
from pdegen.sampling.gaussian import SquareGaussianField

_POINTS = 64
_PAIRS = 4  # pairs of cells at each distance, along each axis
_LINES = 32
_FOLLOWING = "the number of jumps on some lines that follow another one"
_ROUGH = 10  # number of these on all lines from which on equal samples are no chance
_REFERENCE = 512  # samples; a deviation of 1/3 of the spread over the samples can be detected


class TwoPhaseLaw(Check):
    """Check of a field with two values, selected by the sign of a Gaussian field g.

    N is the number of samples, and ρ the correlation of g between two points.

    - At each point the number of samples with g >= 0 is binomial(N, 1/2).
    - The signs of g at two points differ with probability arccos(ρ)/π (Sheppard's arcsine law). The
      number of samples in which they differ is therefore binomial. This is tested for pairs of
      cells at distances of 1, 2, 4, ... cells along an axis.
    - Some properties of each sample are compared with those of 512 reference samples by a rank-sum
      test. For each distance, these are the fraction of pairs of cells with different phases, and
      the excess of this fraction along x over that along y. A jump is a change of the phase between
      neighbouring cells of a grid line. The number of adjacent jumps, with only one cell between
      them, and their share of all jumps measure the roughness of the interfaces. The test detects
      a wrong correlation length, exponent or number of modes.

    The distribution does not depend on the scale of g. It also stays the same if the phases, or x
    and y, are exchanged. `pdegen.equations.darcy.law` detects these two exchanges by comparing a
    with u.

    References: W. F. Sheppard, Phil. Trans. R. Soc. A 192 (1899).
    """

    subject = "the two-phase field"

    def __init__(
        self, variable: str, gaussian: SquareGaussianField, grid: CellGrid, phases: TwoPhase
    ) -> None:
        self.variable, self._grid = variable, grid
        self._above = np.float32(phases.above)
        self._samples = 0
        self._points = spread((grid.n, grid.n), _POINTS)
        self._counts = np.zeros(len(self._points), dtype=int)
        self._first, self._second, self._probability = _pairs(gaussian, grid)
        self._differing = np.zeros(len(self._first), dtype=int)
        self._lines = spread((grid.n,), _LINES)
        self._ranks = {
            name: RankSum(values)
            for name, values in _reference(gaussian, grid, self._lines).items()
        }

    @property
    def rough(self) -> bool:
        """Whether interfaces are so rough that two equal samples cannot occur by chance.

        Two samples with smooth interfaces on few cells are often equal. For example, take 43 x 43
        cells with tau = 3. If alpha = 2, a sample has 15 adjacent jumps on average. The probability
        that two samples agree on r rows decreases like e^-r and is below 1e-15 for all rows. If
        alpha = 5, a sample has 0.01 adjacent jumps on average, and six of 6000 samples are equal to
        other samples.
        """
        lines = self._grid.n / len(self._lines)
        return self._ranks[_FOLLOWING].expected * lines >= _ROUGH

    def add(self, numbers: np.ndarray, values: Values) -> None:
        above = values[self.variable] == self._above
        flat = above.reshape(len(above), -1)
        self._samples += len(above)
        self._counts += flat[:, self._points].sum(axis=0)
        self._differing += (flat[:, self._first] != flat[:, self._second]).sum(axis=0)
        along_x = above[:, :, self._lines].transpose(0, 2, 1)
        for name, x in _shape(along_x, above[:, self._lines]).items():
            self._ranks[name].add(x)

    def statistics(self) -> Iterator[Statistic]:
        n = self._samples
        if not n:
            return
        for point, count in zip(self._points, self._counts.tolist(), strict=True):
            name = f"the share of samples above at point {point}"
            yield Statistic(name, count / n, 0.5, binomial(count, n, 0.5))
        for first, second, p, count in zip(
            self._first, self._second, self._probability.tolist(), self._differing.tolist(),
            strict=True,
        ):  # fmt: skip
            name = f"the share of samples in which points {first} and {second} differ"
            yield Statistic(name, count / n, p, binomial(count, n, p))
        for name, ranks in self._ranks.items():
            yield Statistic(name, ranks.observed, ranks.expected, ranks.p)


def _lags(n: int) -> Iterator[int]:
    """The distances 1, 2, 4, ... up to half the number of cells."""
    return (2**k for k in range((n // 2).bit_length()))


def _shape(
    along_x: Bool[np.ndarray, "batch line n"], along_y: Bool[np.ndarray, "batch line n"]
) -> dict[str, Float[np.ndarray, " batch"]]:
    """Named properties of each sample, computed on some grid lines along x and along y."""
    n = along_x.shape[2]
    properties = {}
    for r in _lags(n):
        x, y = (np.mean(g[:, :, r:] != g[:, :, :-r], axis=(1, 2)) for g in (along_x, along_y))
        properties[f"the share of cells {r} apart that differ"] = (x + y) / 2
        properties[f"the excess along x of the share of cells {r} apart that differ"] = x - y
    jumps = [g[:, :, 1:] != g[:, :, :-1] for g in (along_x, along_y)]
    twice = sum(np.sum(jump[:, :, 1:] & jump[:, :, :-1], axis=(1, 2)) for jump in jumps)
    number = sum(jump.sum(axis=(1, 2)) for jump in jumps)
    properties[_FOLLOWING] = twice
    properties["the share of jumps that follow another one"] = twice / np.maximum(number, 1)
    return properties


def _reference(
    gaussian: SquareGaussianField, grid: CellGrid, lines: np.ndarray
) -> dict[str, Float[np.ndarray, " R"]]:
    """Named properties of reference samples, which are independent of all samples of stores."""
    normals = np.random.default_rng(0)
    basis = gaussian.basis(grid)
    properties: dict[str, list[np.ndarray]] = {}
    for _ in range(_REFERENCE):
        xi = normals.standard_normal(gaussian.mode_deviations.shape)
        coefficients = gaussian.mode_deviations * xi
        along_x = (basis[lines] @ coefficients.T) @ basis.T >= 0  # (line, n)
        along_y = (basis[lines] @ coefficients) @ basis.T >= 0
        for name, value in _shape(along_x[None], along_y[None]).items():
            properties.setdefault(name, []).append(value)
    return {name: np.concatenate(values) for name, values in properties.items()}


def _pairs(
    gaussian: SquareGaussianField, grid: CellGrid
) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, " pairs"]]:
    """Flat indices of pairs of cells, and for each pair the probability that the phases differ."""
    n, variances = grid.n, gaussian.mode_deviations**2
    basis = gaussian.basis(grid)
    first, second = [], []
    for r in _lags(n):
        i, j = np.unravel_index(spread((n - r, n), _PAIRS), (n - r, n))
        first += [i * n + j, j * n + i]
        second += [(i + r) * n + j, j * n + i + r]
    flat = np.concatenate(first), np.concatenate(second)
    (x, y), (x2, y2) = (np.unravel_index(points, (n, n)) for points in flat)
    phi, phi2 = (basis[x], basis[y]), (basis[x2], basis[y2])  # (pairs, M) each

    def covariance(at: tuple[np.ndarray, ...], at2: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.einsum("kp,kp->k", (at[0] * at2[0]) @ variances, at[1] * at2[1])

    correlation = covariance(phi, phi2) / np.sqrt(covariance(phi, phi) * covariance(phi2, phi2))
    return *flat, np.arccos(np.clip(correlation, -1, 1)) / np.pi
